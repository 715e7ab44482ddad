/* jinja_repr.c - str() and repr() of values, as Python prints them.
 *
 * Marks: text of a string keeps its own, brackets and numbers have the mark of the value they
 * belong to, so that a printed request field is one marked run. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "router/text/jinja_eval.h"
#include "router/text/jinja_utf8.h"

/* Shortest digits that read back as the same number, then Python's choice of notation. */
void jinja_format_float(double number, char ret_text[40])
{
    char digits[40];
    int precision = 1;
    if (isnan(number) || isinf(number)) {
        (void)snprintf(ret_text, 40, "%s", isnan(number) ? "nan" : number < 0 ? "-inf" : "inf");
        return;
    }
    for (; precision <= 17; precision++) {
        (void)snprintf(digits, sizeof(digits), "%.*e", precision - 1, number);
        if (strtod(digits, NULL) == number)
            break;
    }
    int exponent = (int)strtol(strchr(digits, 'e') + 1, NULL, 10);
    if (exponent >= 16 || exponent < -4) {
        (void)snprintf(ret_text, 40, "%s", digits);
        return;
    }
    int decimals = precision - 1 - exponent;
    (void)snprintf(ret_text, 40, "%.*f", decimals > 1 ? decimals : 1, number);
}

static int write_repr_char(struct jinja_eval *ev, uint32_t c, char quote,
                           struct jinja_origin origin)
{
    char text[12];
    if (c == '\\' || c == (uint32_t)(unsigned char)quote)
        (void)snprintf(text, sizeof(text), "\\%c", (int)c);
    else if (c == '\n' || c == '\r' || c == '\t')
        (void)snprintf(text, sizeof(text), "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
    else if (c < 0x100)
        (void)snprintf(text, sizeof(text), "\\x%02x", c);
    else if (c < 0x10000)
        (void)snprintf(text, sizeof(text), "\\u%04x", c);
    else
        (void)snprintf(text, sizeof(text), "\\U%08x", c);
    return jinja_write(ev, text, strlen(text), origin);
}

static int write_repr_string(struct jinja_eval *ev, struct jinja_str *string)
{
    const char *data = jinja_str_data(ev, string);
    uint32_t start = 0, run = 0, bytes = 1;
    if (data == NULL)
        return ev->code;
    char quote = '\'';
    if (memchr(data, '\'', string->bytes) != NULL && memchr(data, '"', string->bytes) == NULL)
        quote = '"';
    struct jinja_origin origin = jinja_str_origin(string);
    int r = string->markup ? jinja_write(ev, "Markup(", 7, origin) : 0;
    if (r >= 0)
        r = jinja_write(ev, &quote, 1, origin);
    for (uint32_t at = 0; r >= 0 && at < string->bytes; at += bytes) {
        uint32_t c = jinja_utf8_decode(data + at, data + string->bytes, &bytes);
        if (c != '\\' && c != (uint32_t)(unsigned char)quote && jinja_is_printable(c))
            continue;
        r = jinja_write_sub(ev, string, start, at);
        if (r >= 0)
            r = write_repr_char(ev, c, quote, jinja_str_origin_at(string, at, &run));
        start = at + bytes;
    }
    if (r >= 0)
        r = jinja_write_sub(ev, string, start, string->bytes);
    if (r >= 0)
        r = jinja_write(ev, &quote, 1, origin);
    return r < 0 || !string->markup ? r : jinja_write(ev, ")", 1, origin);
}

static int write_items(struct jinja_eval *ev, const struct jinja_list *list, const char *open,
                       const char *close, struct jinja_origin origin)
{
    int r = jinja_write(ev, open, strlen(open), origin);
    for (uint32_t i = list->at; r >= 0 && i < list->count; i++) {
        if (i > list->at)
            r = jinja_write(ev, ", ", 2, origin);
        if (r >= 0)
            r = jinja_write_repr(ev, &list->values[i]);
    }
    return r < 0 ? r : jinja_write(ev, close, strlen(close), origin);
}

static int write_dict(struct jinja_eval *ev, const struct jinja_dict *dict,
                      struct jinja_origin origin)
{
    int r = jinja_write(ev, "{", 1, origin);
    for (uint32_t i = 0; r >= 0 && i < dict->count; i++) {
        if (i > 0)
            r = jinja_write(ev, ", ", 2, origin);
        if (r >= 0)
            r = jinja_write_repr(ev, &dict->entries[i].key);
        if (r >= 0)
            r = jinja_write(ev, ": ", 2, origin);
        if (r >= 0)
            r = jinja_write_repr(ev, &dict->entries[i].value);
    }
    return r < 0 ? r : jinja_write(ev, "}", 1, origin);
}

static int write_range(struct jinja_eval *ev, const struct jinja_range *range,
                       struct jinja_origin origin)
{
    char text[100];
    int64_t stop = range->start + range->step * (int64_t)range->count;
    int bytes =
        snprintf(text, sizeof(text), "range(%lld, %lld", (long long)range->start, (long long)stop);
    bytes += range->step == 1 ? snprintf(text + bytes, sizeof(text) - (size_t)bytes, ")")
                              : snprintf(text + bytes, sizeof(text) - (size_t)bytes, ", %lld)",
                                         (long long)range->step);
    return jinja_write(ev, text, (size_t)bytes, origin);
}

static int write_container(struct jinja_eval *ev, const struct value *value)
{
    struct jinja_origin origin = jinja_value_origin(value);
    switch ((enum value_type)value->type) {
    case VALUE_LIST:
        return write_items(ev, value->list, "[", "]", origin);
    case VALUE_TUPLE:
        return write_items(ev, value->list, "(", value->list->count == 1 ? ",)" : ")", origin);
    case VALUE_DICT:
        return write_dict(ev, value->dict, origin);
    case VALUE_NAMESPACE: {
        int r = jinja_write_text(ev, "<Namespace ");
        if (r >= 0)
            r = write_dict(ev, value->dict, origin);
        return r < 0 ? r : jinja_write_text(ev, ">");
    }
    case VALUE_VIEW: {
        int r = jinja_write_text(ev, jinja_type_name(value));
        return r < 0 ? r : write_items(ev, value->list, "([", "])", origin);
    }
    case VALUE_RANGE:
        return write_range(ev, value->range, origin);
    case VALUE_MACRO: {
        int r = jinja_write_text(ev, "<Macro ");
        struct value name = jinja_none();
        if (value->macro->def->name != NULL)
            name = jinja_string((struct jinja_str *)(uintptr_t)value->macro->def->name);
        if (r >= 0)
            r = jinja_write_repr(ev, &name);
        return r < 0 ? r : jinja_write_text(ev, ">");
    }
    default: {
        int r = jinja_write_text(ev, "<");
        if (r >= 0)
            r = jinja_write_text(ev, jinja_type_name(value));
        return r < 0 ? r : jinja_write_text(ev, " object>");
    }
    }
}

int jinja_write_repr(struct jinja_eval *ev, const struct value *value)
{
    if (value->type == VALUE_STRING)
        return write_repr_string(ev, value->string);
    if (value->type == VALUE_UNDEFINED)
        return jinja_write_text(ev, "Undefined");
    int r = jinja_enter(ev);
    if (r < 0)
        return r;
    r = jinja_write_value(ev, value);
    jinja_leave(ev);
    return r;
}

int jinja_write_value(struct jinja_eval *ev, const struct value *value)
{
    char text[40];
    struct jinja_origin origin = jinja_value_origin(value);
    switch ((enum value_type)value->type) {
    case VALUE_UNDEFINED:
    case VALUE_MISSING:
        return 0;
    case VALUE_NONE:
        return jinja_write(ev, "None", 4, origin);
    case VALUE_BOOL:
        return value->boolean ? jinja_write(ev, "True", 4, origin)
                              : jinja_write(ev, "False", 5, origin);
    case VALUE_INT:
        (void)snprintf(text, sizeof(text), "%lld", (long long)value->integer);
        return jinja_write(ev, text, strlen(text), origin);
    case VALUE_FLOAT:
        jinja_format_float(value->number, text);
        return jinja_write(ev, text, strlen(text), origin);
    case VALUE_STRING:
        return jinja_write_str(ev, value->string);
    default:
        return write_container(ev, value);
    }
}
