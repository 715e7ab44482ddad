/* jinja_format.c - 'text %s' % args, 'text {}'.format(...) and strftime_now.
 *
 * Marks: literal parts keep the marks of the format, each inserted value brings its own. Widths are
 * bounded: padding cannot blow a prompt up. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "router/text/jinja_eval.h"
#include "router/text/jinja_utf8.h"

#define WIDTH_MAX 10000
#define DIGITS_MAX 900 /* 309 before the point, 300 behind it, commas */
#define NUMBER_MAX (DIGITS_MAX + 8)

struct spec {
    uint32_t fill;
    char align; /* '<' '>' '^' '=' or 0 */
    char sign;  /* '+' '-' ' ' or 0 */
    char comma; /* ',' '_' or 0 */
    bool alternate, zero;
    int64_t width, precision;   /* precision -1: none */
    char type;                  /* 0: none */
    struct jinja_origin origin; /* of the format: its fill characters are its text */
};

/* Digits at *at, at most WIDTH_MAX. -1: none. */
static int64_t take_number(const char *data, uint32_t end, uint32_t *at)
{
    int64_t number = -1;
    while (*at < end && data[*at] >= '0' && data[*at] <= '9') {
        number = (number < 0 ? 0 : number) * 10 + (data[*at] - '0');
        if (number > WIDTH_MAX)
            number = WIDTH_MAX + 1;
        (*at)++;
    }
    return number;
}

/* Sign, digits (grouped), padded to width between sign and digits, or around. */
static int write_padded(struct jinja_eval *ev, const struct spec *spec, struct jinja_str *text,
                        uint32_t sign_bytes, char dflt_align)
{
    int64_t space = spec->width - (int64_t)jinja_str_chars(text);
    char align = spec->align ? spec->align : dflt_align;
    struct jinja_origin origin = jinja_str_origin(text);
    if (origin.source == 0)
        origin = spec->origin;
    int64_t left = align == '>' || align == '=' ? space : align == '^' ? space / 2 : 0;
    int r = 0;
    if (align == '=')
        r = jinja_write_sub(ev, text, 0, sign_bytes);
    for (int64_t i = 0; r >= 0 && i < left; i++)
        r = jinja_write_char(ev, spec->fill, origin);
    if (r >= 0)
        r = jinja_write_sub(ev, text, align == '=' ? sign_bytes : 0, text->bytes);
    for (int64_t i = left > 0 ? left : 0; r >= 0 && i < space; i++)
        r = jinja_write_char(ev, spec->fill, origin);
    return r;
}

static void group_digits(char *text, size_t max, char comma)
{
    char grouped[DIGITS_MAX];
    size_t digits = strspn(text, "0123456789");
    size_t to = 0;
    for (size_t i = 0; text[i] != '\0' && to + 2 < sizeof(grouped); i++) {
        if (i > 0 && i < digits && (digits - i) % 3 == 0)
            grouped[to++] = comma;
        grouped[to++] = text[i];
    }
    grouped[to] = '\0';
    (void)snprintf(text, max, "%s", grouped);
}

static int format_integer(struct jinja_eval *ev, const struct spec *spec, const struct value *value,
                          char *ret_text, uint32_t *ret_sign)
{
    char digits[DIGITS_MAX];
    int64_t number = jinja_as_int(value);
    unsigned long long size =
        number < 0 ? 0 - (unsigned long long)number : (unsigned long long)number;
    const char *prefix = "";
    if (spec->type == 'x' || spec->type == 'X') {
        (void)snprintf(digits, sizeof(digits), spec->type == 'x' ? "%llx" : "%llX", size);
        prefix = spec->alternate ? (spec->type == 'x' ? "0x" : "0X") : "";
    } else if (spec->type == 'o') {
        (void)snprintf(digits, sizeof(digits), "%llo", size);
        prefix = spec->alternate ? "0o" : "";
    } else if (spec->type == 'b') {
        int bits = 64 - (size ? __builtin_clzll(size) : 63);
        for (int i = 0; i < bits; i++)
            digits[i] = (char)('0' + (size >> (bits - 1 - i) & 1));
        digits[bits] = '\0';
        prefix = spec->alternate ? "0b" : "";
    } else {
        (void)snprintf(digits, sizeof(digits), "%llu", size);
    }
    size_t count = strlen(digits);
    if (spec->precision > (int64_t)count) { /* at least so many digits */
        size_t zeros = (size_t)(spec->precision > 300 ? 300 : spec->precision) - count;
        memmove(digits + zeros, digits, count + 1);
        memset(digits, '0', zeros);
    }
    if (spec->comma)
        group_digits(digits, sizeof(digits), spec->comma);
    const char *sign = number < 0 ? "-" : spec->sign == '+' ? "+" : spec->sign == ' ' ? " " : "";
    (void)snprintf(ret_text, NUMBER_MAX, "%s%s%s", sign, prefix, digits);
    *ret_sign = (uint32_t)(strlen(sign) + strlen(prefix));
    return 0;
}

/* A number without a type but with a precision: like g, but "1.0" keeps its point. */
static void format_general(double size, int precision, char *ret_digits)
{
    char text[DIGITS_MAX];
    int significant = precision < 1 ? 1 : precision;
    (void)snprintf(text, sizeof(text), "%.*e", significant - 1, size);
    const char *e = strchr(text, 'e');
    int exponent = e ? (int)strtol(e + 1, NULL, 10) : 0;
    if (e == NULL) {
        (void)snprintf(ret_digits, DIGITS_MAX, "%s", text); /* inf, nan */
        return;
    }
    bool scientific = exponent < -4 || exponent >= significant - 1;
    char tail[16] = "";
    if (scientific)
        (void)snprintf(tail, sizeof(tail), "%.8s", e);
    else
        (void)snprintf(text, sizeof(text), "%.*f", significant - 1 - exponent, size);
    size_t bytes = scientific ? (size_t)(e - text) : strlen(text);
    if (memchr(text, '.', bytes) != NULL) {
        while (text[bytes - 1] == '0')
            bytes--;
        bytes -= text[bytes - 1] == '.' && scientific;
        bytes += text[bytes - 1] == '.';
    }
    (void)snprintf(ret_digits, DIGITS_MAX, "%.*s%s", (int)bytes, text, tail);
}

static void format_real(const struct spec *spec, double number, char *ret_text, uint32_t *ret_sign)
{
    char digits[DIGITS_MAX];
    char format[16] = "%.*f";
    char type = spec->type ? spec->type : 0;
    double size = fabs(number);
    int precision = spec->precision < 0 ? 6 : spec->precision > 300 ? 300 : (int)spec->precision;
    const char *sign = signbit(number)     ? "-"
                       : spec->sign == '+' ? "+"
                       : spec->sign == ' ' ? " "
                                           : "";
    if (type == '%') {
        size *= 100;
        (void)snprintf(format, sizeof(format), "%%.*f%%%%");
    } else if (type == 0 && spec->precision < 0) {
        jinja_format_float(size, digits);
        format[0] = '\0';
    } else if (type == 0) {
        format_general(size, precision, digits);
        format[0] = '\0';
    } else {
        (void)snprintf(format, sizeof(format), "%%%s.*%c", spec->alternate ? "#" : "",
                       type == 0     ? 'g'
                       : type == 'n' ? 'g'
                                     : type);
    }
    if (format[0] != '\0')
        (void)snprintf(digits, sizeof(digits), format, precision, size);
    if (spec->comma)
        group_digits(digits, sizeof(digits), spec->comma);
    (void)snprintf(ret_text, NUMBER_MAX, "%s%s", sign, digits);
    *ret_sign = (uint32_t)strlen(sign);
}

static int write_number(struct jinja_eval *ev, struct spec *spec, const struct value *value)
{
    char text[NUMBER_MAX];
    uint32_t sign;
    bool real = value->type == VALUE_FLOAT || (spec->type && strchr("eEfFgG%", spec->type) != NULL);
    if (real && spec->type && strchr("eEfFgGn%", spec->type) == NULL)
        return jinja_fail(ev, -EINVAL, "Unknown format code '%c' for object of type 'float'",
                          spec->type);
    if (!real && spec->type && strchr("bdnoxX", spec->type) == NULL)
        return jinja_fail(ev, -EINVAL, "Unknown format code '%c' for object of type 'int'",
                          spec->type);
    if (real)
        format_real(spec, jinja_as_double(value), text, &sign);
    else if (format_integer(ev, spec, value, text, &sign) < 0)
        return ev->code;
    struct jinja_str *string = jinja_str_copy(ev, text, strlen(text), jinja_value_origin(value));
    if (string == NULL)
        return ev->code;
    if (spec->zero && !spec->align) {
        spec->fill = '0';
        spec->align = '=';
    }
    return write_padded(ev, spec, string, sign, '>');
}

static int write_text(struct jinja_eval *ev, struct spec *spec, struct jinja_str *text,
                      char dflt_align)
{
    if (spec->precision >= 0 && spec->precision < (int64_t)jinja_str_chars(text))
        text = jinja_str_sub(ev, text, 0, jinja_str_offset(text, (uint32_t)spec->precision));
    if (text == NULL)
        return ev->code;
    return write_padded(ev, spec, text, 0, dflt_align);
}

/* ---- % ---- */

struct percent {
    struct jinja_str *format;
    uint32_t at;
    const struct value *args; /* tuple, dict or a single value */
    uint32_t used;
    bool named; /* some %(name)s was there */
};

static int next_arg(struct jinja_eval *ev, struct percent *state, struct value *ret)
{
    if (state->args->type == VALUE_TUPLE) {
        if (state->used >= state->args->list->count)
            return jinja_fail(ev, -EINVAL, "not enough arguments for format string");
        *ret = state->args->list->values[state->used++];
        return 0;
    }
    if (state->used++ > 0)
        return jinja_fail(ev, -EINVAL, "not enough arguments for format string");
    *ret = *state->args;
    return 0;
}

static int named_arg(struct jinja_eval *ev, struct percent *state, struct value *ret)
{
    const char *data = state->format->data;
    uint32_t start = ++state->at;
    const struct value *found;
    while (state->at < state->format->bytes && data[state->at] != ')')
        state->at++;
    if (state->at == state->format->bytes)
        return jinja_fail(ev, -EINVAL, "incomplete format key");
    if (state->args->type != VALUE_DICT)
        return jinja_fail(ev, -EINVAL, "format requires a mapping");
    struct jinja_str *name = jinja_str_sub(ev, state->format, start, state->at);
    if (name == NULL)
        return ev->code;
    struct value key = jinja_string(name);
    int r = jinja_dict_get(ev, state->args->dict, &key, &found);
    if (r >= 0 && found == NULL)
        return jinja_fail(ev, -EINVAL, "format: a key is missing");
    if (r >= 0)
        *ret = *found;
    state->named = true;
    state->at++;
    return r;
}

static int percent_flags(struct jinja_eval *ev, struct percent *state, struct spec *spec)
{
    const char *data = state->format->data;
    uint32_t end = state->format->bytes;
    struct value star = {0};
    for (; state->at < end && strchr("-+ #0", data[state->at]) && data[state->at]; state->at++) {
        char c = data[state->at];
        spec->align = c == '-' ? '<' : spec->align;
        spec->zero = spec->zero || c == '0';
        spec->alternate = spec->alternate || c == '#';
        spec->sign = c == '+' || (c == ' ' && spec->sign != '+') ? c : spec->sign;
    }
    for (int i = 0; i < 2; i++) {
        int64_t number;
        if (i == 1 && (state->at == end || data[state->at] != '.'))
            break;
        state->at += i == 1;
        if (state->at < end && data[state->at] == '*') {
            state->at++;
            if (next_arg(ev, state, &star) < 0)
                return ev->code;
            if (!jinja_is_integer(&star))
                return jinja_fail(ev, -EINVAL, "* wants int");
            number = jinja_as_int(&star);
            number = number < 0 ? 0 : number;
        } else {
            number = take_number(data, end, &state->at);
        }
        if (number > WIDTH_MAX)
            return jinja_fail(ev, -E2BIG, "a format width of more than %d", WIDTH_MAX);
        if (i == 0)
            spec->width = number < 0 ? 0 : number;
        else
            spec->precision = number < 0 ? 0 : number;
    }
    while (state->at < end && (data[state->at] == 'l' || data[state->at] == 'h'))
        state->at++;
    return 0;
}

static int percent_char(struct jinja_eval *ev, struct spec *spec, const struct value *value)
{
    char data[4];
    struct jinja_str *text = NULL;
    if (value->type == VALUE_STRING && jinja_str_data(ev, value->string) &&
        jinja_str_chars(value->string) == 1) {
        text = value->string;
    } else if (jinja_is_integer(value) && jinja_as_int(value) >= 0 &&
               jinja_as_int(value) < 0x110000 && (jinja_as_int(value) & ~0x7ff) != 0xd800) {
        uint32_t bytes = jinja_utf8_encode((uint32_t)jinja_as_int(value), data);
        text = jinja_str_copy(ev, data, bytes, jinja_value_origin(value));
    } else {
        return jinja_fail(ev, -EINVAL, "%%c requires int or char");
    }
    return text ? write_text(ev, spec, text, '>') : ev->code;
}

static int percent_value(struct jinja_eval *ev, struct percent *state, struct spec *spec, char type,
                         struct value *value)
{
    struct jinja_str *text;
    struct jinja_capture capture;
    struct value repr;
    int r = 0;
    if (type == 'c')
        return percent_char(ev, spec, value);
    if (type == 's' || type == 'r' || type == 'a') {
        spec->zero = false;
        if (type != 's') {
            jinja_capture_begin(ev, &capture);
            r = jinja_write_repr(ev, value);
            if (r >= 0)
                r = jinja_capture_end(ev, &capture, &repr);
            text = r >= 0 ? repr.string : NULL;
        } else {
            r = jinja_to_str(ev, value, &text);
        }
        if (r >= 0 && state->format->markup && !text->markup)
            r = jinja_escape(ev, text, &text);
        return r < 0 ? r : write_text(ev, spec, text, '>');
    }
    if (strchr("diuoxXeEfFgG", type) == NULL || type == '\0')
        return jinja_fail(ev, -EINVAL, "unsupported format character");
    if (!jinja_is_number(value))
        return jinja_fail(ev, -EINVAL, "%%%c format: a real number is required, not %s", type,
                          jinja_type_name(value));
    spec->type = type == 'i' || type == 'u' ? 'd' : type;
    if (value->type == VALUE_FLOAT && strchr("doxX", spec->type) != NULL) {
        if (spec->type != 'd' || !(fabs(value->number) < 9e18))
            return jinja_fail(ev, -EINVAL, "%%%c format: an integer is required", type);
        value->integer = (int64_t)value->number;
        value->type = VALUE_INT;
    }
    return write_number(ev, spec, value);
}

static int percent_one(struct jinja_eval *ev, struct percent *state) /* at is behind the '%' */
{
    struct spec spec = {.fill = ' ', .precision = -1, .origin = jinja_str_origin(state->format)};
    struct value value = jinja_missing();
    const char *data = state->format->data;
    if (state->at < state->format->bytes && data[state->at] == '(' &&
        named_arg(ev, state, &value) < 0)
        return ev->code;
    if (percent_flags(ev, state, &spec) < 0)
        return ev->code;
    if (state->at == state->format->bytes)
        return jinja_fail(ev, -EINVAL, "incomplete format");
    char type = data[state->at++];
    if (type == '%')
        return jinja_write_sub(ev, state->format, state->at - 1, state->at);
    if (value.type == VALUE_MISSING && next_arg(ev, state, &value) < 0)
        return ev->code;
    return percent_value(ev, state, &spec, type, &value);
}

int jinja_percent_format(struct jinja_eval *ev, struct jinja_str *format, const struct value *args,
                         struct value *ret)
{
    struct jinja_capture capture;
    struct value values = *args;
    struct percent state = {.format = format, .args = &values};
    const char *data = jinja_str_data(ev, format);
    if (data == NULL)
        return ev->code;
    jinja_capture_begin(ev, &capture);
    while (state.at < format->bytes) {
        const char *mark = memchr(data + state.at, '%', format->bytes - state.at);
        uint32_t stop = mark ? (uint32_t)(mark - data) : format->bytes;
        int r = jinja_write_sub(ev, format, state.at, stop);
        state.at = stop + 1;
        if (r >= 0 && mark != NULL)
            r = percent_one(ev, &state);
        if (r < 0 || jinja_charge(ev, 1) < 0)
            return ev->code;
    }
    /* What can be indexed passes as a mapping that nobody asked: Python does not complain. */
    bool is_mapping = values.type == VALUE_LIST || values.type == VALUE_DICT ||
                      values.type == VALUE_RANGE || values.type == VALUE_UNDEFINED;
    uint32_t wanted = values.type == VALUE_TUPLE ? values.list->count : is_mapping ? 0 : 1;
    if (!state.named && state.used < wanted)
        return jinja_fail(ev, -EINVAL, "not all arguments converted during string formatting");
    int r = jinja_capture_end(ev, &capture, ret);
    if (r >= 0)
        ret->string->markup = format->markup;
    return r;
}

/* ---- {} ---- */

struct brace {
    struct jinja_str *format;
    const struct jinja_args *args;
    uint32_t next; /* automatic numbering */
};

static int parse_spec(struct jinja_eval *ev, const char *data, uint32_t at, uint32_t end,
                      struct spec *ret)
{
    *ret = (struct spec){.fill = ' ', .precision = -1};
    uint32_t bytes = 0;
    bool fill_given = false;
    if (at < end)
        ret->fill = jinja_utf8_decode(data + at, data + end, &bytes);
    if (at + bytes < end && bytes > 0 && strchr("<>=^", data[at + bytes]) && data[at + bytes]) {
        ret->align = data[at + bytes];
        fill_given = true;
        at += bytes + 1;
    } else {
        ret->fill = ' ';
        if (at < end && data[at] && strchr("<>=^", data[at]))
            ret->align = data[at++];
    }
    if (at < end && data[at] && strchr("+- ", data[at]))
        ret->sign = data[at++];
    if (at < end && data[at] == '#') {
        ret->alternate = true;
        at++;
    }
    if (at < end && data[at] == '0') {
        ret->zero = true;
        ret->fill = fill_given ? ret->fill : '0';
        at++;
    }
    int64_t number = take_number(data, end, &at);
    ret->width = number < 0 ? 0 : number;
    if (at < end && (data[at] == ',' || data[at] == '_'))
        ret->comma = data[at++];
    if (at < end && data[at] == '.') {
        at++;
        ret->precision = take_number(data, end, &at);
        if (ret->precision < 0)
            return jinja_fail(ev, -EINVAL, "Format specifier missing precision");
    }
    if (ret->width > WIDTH_MAX || ret->precision > WIDTH_MAX)
        return jinja_fail(ev, -E2BIG, "a format width of more than %d", WIDTH_MAX);
    if (at < end)
        ret->type = data[at++];
    return at == end ? 0 : jinja_fail(ev, -EINVAL, "Invalid format specifier");
}

static int first_field(struct jinja_eval *ev, struct brace *state, uint32_t start, uint32_t end,
                       struct value *ret)
{
    const char *data = state->format->data;
    uint32_t at = start;
    int64_t index = take_number(data, end, &at);
    if (start == end)
        index = state->next++;
    if (start == end || (at == end && index >= 0)) {
        if (index >= (int64_t)state->args->count)
            return jinja_fail(ev, -EINVAL,
                              "Replacement index %lld out of range for positional args "
                              "tuple",
                              (long long)index);
        *ret = state->args->values[index];
        return 0;
    }
    for (uint32_t i = 0; i < state->args->named_count; i++) {
        const struct jinja_named *named = &state->args->named[i];
        if (jinja_str_data(ev, named->name) == NULL)
            return ev->code;
        if (named->name->bytes == end - start &&
            memcmp(named->name->data, data + start, end - start) == 0) {
            *ret = named->value;
            return 0;
        }
    }
    return jinja_fail(ev, -EINVAL, "format: a name is missing");
}

/* "0.name[key]" -> the value. */
static int field_value(struct jinja_eval *ev, struct brace *state, uint32_t start, uint32_t end,
                       struct value *ret)
{
    const char *data = state->format->data;
    uint32_t at = start;
    while (at < end && data[at] != '.' && data[at] != '[')
        at++;
    int r = first_field(ev, state, start, at, ret);
    while (r >= 0 && at < end) {
        bool item = data[at] == '[';
        uint32_t from = ++at;
        while (at < end && (item ? data[at] != ']' : data[at] != '.' && data[at] != '['))
            at++;
        if (item && at == end)
            return jinja_fail(ev, -EINVAL, "Missing ']' in format string");
        struct jinja_str *name = jinja_str_sub(ev, state->format, from, at);
        if (name == NULL)
            return ev->code;
        struct value object = *ret;
        uint32_t digits = from;
        int64_t number = take_number(data, at, &digits);
        struct value key = digits == at && number >= 0 ? jinja_int(number) : jinja_string(name);
        r = item
                ? jinja_getitem(ev, &object, &key, ret)
                : jinja_getattr(ev, &object, name, jinja_method_find(name->data, name->bytes), ret);
        at += item;
    }
    return r;
}

static int write_field(struct jinja_eval *ev, struct brace *state, const struct value *value,
                       char conversion, struct spec *spec)
{
    struct jinja_str *text;
    int r;
    bool real = value->type == VALUE_FLOAT || (spec->type && strchr("eEfFgG%", spec->type));
    bool empty = spec->type == 0 && spec->width == 0 && spec->align == 0 && spec->sign == 0 &&
                 !spec->alternate && spec->comma == 0 && !spec->zero && spec->precision < 0;
    if (!conversion && jinja_is_number(value) && !(value->type == VALUE_BOOL && empty)) {
        if (!real && spec->precision >= 0)
            return jinja_fail(ev, -EINVAL, "Precision not allowed in integer format specifier");
        if (!real && spec->comma == ',' && spec->type && spec->type != 'd')
            return jinja_fail(ev, -EINVAL, "Cannot specify ',' with '%c'.", spec->type);
        return write_number(ev, spec, value);
    }
    if (!empty && !conversion && value->type != VALUE_STRING)
        return jinja_fail(ev, -EINVAL, "unsupported format string passed to %s.__format__",
                          jinja_type_name(value));
    if (spec->sign || spec->alternate || spec->comma || spec->align == '=')
        return jinja_fail(ev, -EINVAL,
                          "Sign, '#', ',' or '=' not allowed in string format "
                          "specifier");
    if (spec->type && spec->type != 's')
        return jinja_fail(ev, -EINVAL, "Unknown format code '%c' for object of type 'str'",
                          spec->type);
    if (conversion == 'r' || conversion == 'a') {
        struct jinja_capture capture;
        struct value repr;
        jinja_capture_begin(ev, &capture);
        r = jinja_write_repr(ev, value);
        if (r >= 0)
            r = jinja_capture_end(ev, &capture, &repr);
        text = r >= 0 ? repr.string : NULL;
    } else {
        r = jinja_to_str(ev, value, &text);
    }
    if (r >= 0 && state->format->markup && !text->markup)
        r = jinja_escape(ev, text, &text);
    return r < 0 ? r : write_text(ev, spec, text, '<');
}

/* The field between '{' at `start` and its '}'; *ret_end is behind it. */
static int brace_one(struct jinja_eval *ev, struct brace *state, uint32_t start, uint32_t *ret_end)
{
    const char *data = state->format->data;
    const uint32_t bytes = state->format->bytes;
    struct spec spec;
    struct value value;
    char conversion = 0;
    uint32_t at = start;
    while (at < bytes && data[at] != '}' && data[at] != ':' && data[at] != '!' && data[at] != '{')
        at++;
    uint32_t name_end = at;
    if (at + 1 < bytes && data[at] == '!') {
        conversion = data[at + 1];
        at += 2;
    }
    uint32_t spec_start = at + 1;
    if (at < bytes && data[at] == ':') {
        while (at < bytes && data[at] != '}' && data[at] != '{')
            at++;
    } else {
        spec_start = at;
    }
    if (at >= bytes || data[at] != '}')
        return jinja_fail(ev, -EINVAL, "expected '}' before end of string");
    if (conversion && conversion != 's' && conversion != 'r' && conversion != 'a')
        return jinja_fail(ev, -EINVAL, "Unknown conversion specifier");
    *ret_end = at + 1;
    int r = field_value(ev, state, start, name_end, &value);
    if (r >= 0)
        r = parse_spec(ev, data, spec_start, at, &spec);
    spec.origin = jinja_str_origin(state->format);
    return r < 0 ? r : write_field(ev, state, &value, conversion, &spec);
}

int jinja_brace_format(struct jinja_eval *ev, struct jinja_str *format,
                       const struct jinja_args *args, struct value *ret)
{
    struct jinja_capture capture;
    struct brace state = {.format = format, .args = args};
    const char *data = jinja_str_data(ev, format);
    if (data == NULL)
        return ev->code;
    jinja_capture_begin(ev, &capture);
    for (uint32_t at = 0; at < format->bytes;) {
        uint32_t stop = at;
        while (stop < format->bytes && data[stop] != '{' && data[stop] != '}')
            stop++;
        int r = jinja_write_sub(ev, format, at, stop);
        at = stop;
        if (r >= 0 && stop < format->bytes) {
            bool doubled = stop + 1 < format->bytes && data[stop + 1] == data[stop];
            at = stop + 2;
            if (doubled)
                r = jinja_write_sub(ev, format, stop, stop + 1);
            else if (data[stop] == '}')
                r = jinja_fail(ev, -EINVAL, "Single '}' encountered in format string");
            else
                r = brace_one(ev, &state, stop + 1, &at);
        }
        if (r < 0 || jinja_charge(ev, 1) < 0)
            return ev->code;
    }
    int r = jinja_capture_end(ev, &capture, ret);
    if (r >= 0)
        ret->string->markup = format->markup;
    return r;
}

int jinja_strftime(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                   struct value *ret)
{
    char format[256], text[1024];
    struct jinja_str *given;
    struct tm tm;
    size_t to = 0;
    if (jinja_arg_str(ev, args, 0, &given) < 0)
        return ev->code;
    if (given == NULL || given->bytes > 200 || memchr(given->data, '\0', given->bytes) != NULL)
        return jinja_fail(ev, -EINVAL, "strftime_now: a short format is expected");
    if (!(fabs(ev->now) < 1e11))
        return jinja_fail(ev, -EINVAL, "strftime_now: no clock");
    time_t seconds = (time_t)floor(ev->now);
    int micros = (int)((ev->now - floor(ev->now)) * 1e6);
    (void)gmtime_r(&seconds, &tm);
    for (uint32_t i = 0; i < given->bytes && to + 8 < sizeof(format); i++) {
        char next = i + 1 < given->bytes ? given->data[i + 1] : '\0';
        if (given->data[i] != '%') {
            format[to++] = given->data[i];
        } else if (next == 'f') { /* Python's own; %z and %Z of a naive time are empty */
            to += (size_t)snprintf(format + to, 8, "%06d", micros);
            i++;
        } else if (next == 'z' || next == 'Z') {
            i++;
        } else {
            format[to++] = '%';
            if (next != '\0') {
                format[to++] = next;
                i++;
            }
        }
    }
    format[to] = '\0';
    size_t bytes = strftime(text, sizeof(text), format, &tm);
    struct jinja_str *string = jinja_str_copy(ev, text, bytes, jinja_str_origin(given));
    if (string == NULL)
        return ev->code;
    *ret = jinja_string(string);
    return 0;
}
