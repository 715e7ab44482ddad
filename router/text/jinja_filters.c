/* jinja_filters.c - the table of filters, and those that work on one value.
 *
 * Names, parameters and defaults are Jinja2's. Left out, because no chat template uses them and
 * their results are for web pages or change between calls: random, urlize, xmlattr, pprint,
 * filesizeformat, wordwrap, striptags. Filters over sequences are in jinja_filters_list.c. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "router/text/jinja_eval.h"
#include "router/text/jinja_filters.h"
#include "router/text/jinja_utf8.h"

/* Python's soft_str: a string, flat. */
static int self_text(struct jinja_eval *ev, const struct value *self, struct jinja_str **ret)
{
    return jinja_to_str(ev, self, ret);
}

/* For filters that do not convert. */
static int only_text(struct jinja_eval *ev, const struct value *self, struct jinja_str **ret)
{
    if (self->type == VALUE_UNDEFINED)
        return jinja_fail_undefined(ev, self);
    if (self->type != VALUE_STRING)
        return jinja_fail(ev, -EINVAL, "a text is expected, not '%s'", jinja_type_name(self));
    *ret = self->string; /* flat: jinja_call_bound has seen to it */
    return 0;
}

static int filter_abs(struct jinja_eval *ev, const struct value *self,
                      const struct jinja_args *args, struct value *ret)
{
    const struct value zero = jinja_int(0);
    if (self->type == VALUE_UNDEFINED)
        return jinja_fail_undefined(ev, self);
    if (!jinja_is_number(self))
        return jinja_fail(ev, -EINVAL, "bad operand type for abs(): '%s'", jinja_type_name(self));
    *ret = *self;
    if (self->type == VALUE_FLOAT)
        ret->number = fabs(self->number);
    else
        return jinja_binary(ev, jinja_as_int(self) < 0 ? OP_SUB : OP_ADD, &zero, self, ret);
    return 0;
}

static int filter_attr(struct jinja_eval *ev, const struct value *self,
                       const struct jinja_args *args, struct value *ret)
{
    struct jinja_str *name;
    int r = jinja_to_str(ev, &args->values[0], &name);
    if (r < 0)
        return r;
    if (self->type == VALUE_DICT) { /* attributes only, never items */
        const struct jinja_callable *method =
            jinja_method_match(jinja_method_find(name->data, name->bytes), VALUE_DICT);
        if (method == NULL)
            return jinja_make_undefined(ev, "dict object", name, 0, ret);
    }
    if (self->type == VALUE_UNDEFINED)
        return jinja_make_undefined(ev, "Undefined", name, 0, ret);
    return jinja_getattr(ev, self, name, jinja_method_find(name->data, name->bytes), ret);
}

static int filter_case(struct jinja_eval *ev, const struct value *self, enum case_kind kind,
                       struct value *ret)
{
    struct jinja_str *text = NULL;
    int r = self_text(ev, self, &text);
    return r < 0 ? r : jinja_change_case(ev, text, kind, ret);
}

static int filter_upper(struct jinja_eval *ev, const struct value *self,
                        const struct jinja_args *args, struct value *ret)
{
    return filter_case(ev, self, CASE_UPPER, ret);
}

static int filter_lower(struct jinja_eval *ev, const struct value *self,
                        const struct jinja_args *args, struct value *ret)
{
    return filter_case(ev, self, CASE_LOWER, ret);
}

static int filter_capitalize(struct jinja_eval *ev, const struct value *self,
                             const struct jinja_args *args, struct value *ret)
{
    return filter_case(ev, self, CASE_CAPITALIZE, ret);
}

/* Words begin after blanks, hyphens and opening brackets. */
static int filter_title(struct jinja_eval *ev, const struct value *self,
                        const struct jinja_args *args, struct value *ret)
{
    struct jinja_capture capture;
    struct jinja_str *text = NULL;
    uint32_t run = 0, bytes;
    bool begins = true;
    int r = self_text(ev, self, &text);
    if (r < 0 || jinja_charge(ev, text->bytes / 4) < 0)
        return ev->code;
    jinja_capture_begin(ev, &capture);
    for (uint32_t at = 0; at < text->bytes; at += bytes) {
        uint32_t mapped[3];
        uint32_t c = jinja_utf8_decode(text->data + at, text->data + text->bytes, &bytes);
        uint32_t count = begins ? jinja_to_upper(c, mapped) : jinja_to_lower(c, mapped);
        struct jinja_origin origin = jinja_str_origin_at(text, at, &run);
        for (uint32_t i = 0; i < count; i++) {
            if (jinja_write_char(ev, mapped[i], origin) < 0)
                return ev->code;
        }
        begins = jinja_is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
    }
    r = jinja_capture_end(ev, &capture, ret);
    if (r >= 0)
        ret->string->markup = text->markup;
    return r;
}

static int filter_center(struct jinja_eval *ev, const struct value *self,
                         const struct jinja_args *args, struct value *ret)
{
    struct jinja_str *text = NULL;
    int64_t width;
    int r = self_text(ev, self, &text);
    if (r >= 0)
        r = jinja_arg_int(ev, args, 0, 80, &width);
    if (r < 0)
        return r;
    int64_t space = width - (int64_t)jinja_str_chars(text);
    space = space > 0 ? space : 0;
    int64_t left = space / 2 + (space & width & 1);
    return jinja_pad(ev, text, left, space - left, ' ', ret);
}

static int filter_default(struct jinja_eval *ev, const struct value *self,
                          const struct jinja_args *args, struct value *ret)
{
    bool replace =
        self->type == VALUE_UNDEFINED || (jinja_arg_truth(args, 1, false) && !jinja_truth(self));
    *ret = *self;
    if (!replace)
        return 0;
    if (jinja_given(args, 0)) {
        *ret = args->values[0];
        return 0;
    }
    struct jinja_str *empty = jinja_str_view(ev, "", 0, (struct jinja_origin){0, -1});
    *ret = jinja_string(empty);
    return empty ? 0 : ev->code;
}

static int filter_forceescape(struct jinja_eval *ev, const struct value *self,
                              const struct jinja_args *args, struct value *ret)
{
    struct jinja_str *text = NULL;
    int r = self_text(ev, self, &text);
    if (r >= 0)
        r = jinja_escape(ev, text, &text);
    if (r >= 0)
        *ret = jinja_string(text);
    return r;
}

static int filter_escape(struct jinja_eval *ev, const struct value *self,
                         const struct jinja_args *args, struct value *ret)
{
    *ret = *self;
    if (self->type == VALUE_STRING && self->string->markup)
        return 0;
    return filter_forceescape(ev, self, args, ret);
}

static int filter_safe(struct jinja_eval *ev, const struct value *self,
                       const struct jinja_args *args, struct value *ret)
{
    struct jinja_str *text = NULL;
    struct jinja_str *copy = jinja_alloc(ev, sizeof(*copy));
    int r = self_text(ev, self, &text);
    if (r < 0 || copy == NULL)
        return ev->code;
    *copy = *text;
    copy->markup = true;
    *ret = jinja_string(copy);
    return 0;
}

static int filter_string(struct jinja_eval *ev, const struct value *self,
                         const struct jinja_args *args, struct value *ret)
{
    struct jinja_str *text = NULL;
    int r = self_text(ev, self, &text);
    if (r >= 0)
        *ret = jinja_string(text);
    return r;
}

static void mark_number(struct value *number, const struct value *from)
{
    struct jinja_origin origin =
        from->type == VALUE_STRING ? jinja_str_origin(from->string) : jinja_value_origin(from);
    number->source = origin.source;
    number->message = origin.message;
}

static int filter_float(struct jinja_eval *ev, const struct value *self,
                        const struct jinja_args *args, struct value *ret)
{
    double number;
    if (self->type == VALUE_UNDEFINED)
        return jinja_fail_undefined(ev, self);
    if (jinja_is_number(self)) {
        *ret = jinja_float(jinja_as_double(self));
    } else if (self->type == VALUE_STRING &&
               jinja_parse_float(self->string->data, self->string->bytes, &number)) {
        *ret = jinja_float(number);
    } else {
        *ret = jinja_given(args, 0) ? args->values[0] : jinja_float(0.0);
        return 0;
    }
    mark_number(ret, self);
    return 0;
}

static bool float_to_int(double number, int64_t *ret)
{
    if (!(number >= -9223372036854775808.0 && number < 9223372036854775808.0))
        return false; /* NaN too */
    *ret = (int64_t)number;
    return true;
}

static int filter_int(struct jinja_eval *ev, const struct value *self,
                      const struct jinja_args *args, struct value *ret)
{
    int64_t base, number;
    double real;
    bool ok = false;
    if (self->type == VALUE_UNDEFINED)
        return jinja_fail_undefined(ev, self);
    if (jinja_arg_int(ev, args, 1, 10, &base) < 0)
        return ev->code;
    if (jinja_is_integer(self)) {
        number = jinja_as_int(self);
        ok = true;
    } else if (self->type == VALUE_FLOAT) {
        ok = float_to_int(self->number, &number);
    } else if (self->type == VALUE_STRING) {
        const struct jinja_str *text = self->string;
        ok =
            base >= 0 && base <= 36 && jinja_parse_int(text->data, text->bytes, (int)base, &number);
        if (!ok && jinja_parse_float(text->data, text->bytes, &real))
            ok = float_to_int(real, &number);
    }
    if (!ok) {
        *ret = jinja_given(args, 0) ? args->values[0] : jinja_int(0);
        return 0;
    }
    *ret = jinja_int(number);
    mark_number(ret, self);
    return 0;
}

static int filter_format(struct jinja_eval *ev, const struct value *self,
                         const struct jinja_args *args, struct value *ret)
{
    struct jinja_str *format;
    struct value values;
    int r = self_text(ev, self, &format);
    if (r < 0)
        return r;
    if (args->count > 0 && args->named_count > 0)
        return jinja_fail(ev, -EINVAL,
                          "can't handle positional and keyword arguments at the same "
                          "time");
    if (args->named_count > 0) {
        struct jinja_dict *dict = jinja_dict_new(ev, args->named_count);
        if (dict == NULL)
            return ev->code;
        for (uint32_t i = 0; i < args->named_count; i++) {
            struct value key = jinja_string(args->named[i].name);
            if (jinja_dict_set(ev, dict, &key, &args->named[i].value) < 0)
                return ev->code;
        }
        values = (struct value){.type = VALUE_DICT, .dict = dict};
    } else {
        r = jinja_make_list(ev, VALUE_TUPLE, args->values, args->count, &values);
    }
    return r < 0 ? r : jinja_percent_format(ev, format, &values, ret);
}

static int filter_indent(struct jinja_eval *ev, const struct value *self,
                         const struct jinja_args *args, struct value *ret)
{
    struct jinja_capture capture;
    struct jinja_vec lines;
    struct jinja_str *text = NULL, *indent = NULL;
    struct value padding;
    bool first = jinja_arg_truth(args, 1, false);
    bool blank = jinja_arg_truth(args, 2, false);
    int64_t width;
    int r = only_text(ev, self, &text);
    if (r < 0)
        return r;
    if (jinja_given(args, 0) && args->values[0].type == VALUE_STRING) {
        r = jinja_arg_str(ev, args, 0, &indent);
    } else {
        r = jinja_arg_int(ev, args, 0, 4, &width);
        indent = jinja_str_view(ev, "", 0, (struct jinja_origin){0, -1});
        if (r >= 0)
            r = indent ? jinja_pad(ev, indent, width, 0, ' ', &padding) : ev->code;
        if (r >= 0)
            indent = padding.string;
    }
    /* One newline is added first, so that a last empty line counts. */
    struct jinja_str *newline = jinja_str_view(ev, "\n", 1, (struct jinja_origin){0, -1});
    if (r < 0 || newline == NULL)
        return ev->code;
    text = jinja_str_concat(ev, text, newline);
    if (text == NULL || jinja_split_lines(ev, text, false, &lines) < 0)
        return ev->code;
    jinja_capture_begin(ev, &capture);
    for (uint32_t i = 0; r >= 0 && i < lines.count; i++) {
        struct jinja_str *line = lines.values[i].string;
        if (i > 0)
            r = jinja_write_str(ev, newline);
        if (r >= 0 && (i == 0 ? first : blank || line->bytes > 0))
            r = jinja_write_str(ev, indent);
        if (r >= 0)
            r = jinja_write_str(ev, line);
    }
    return r < 0 ? r : jinja_capture_end(ev, &capture, ret);
}

static int filter_length(struct jinja_eval *ev, const struct value *self,
                         const struct jinja_args *args, struct value *ret)
{
    uint32_t count;
    int r = jinja_length(ev, self, &count);
    if (r >= 0)
        *ret = jinja_int(count);
    return r;
}

static int filter_replace(struct jinja_eval *ev, const struct value *self,
                          const struct jinja_args *args, struct value *ret)
{
    struct jinja_str *text = NULL, *old = NULL, *new_text = NULL;
    int64_t count = -1;
    int r = self_text(ev, self, &text);
    if (r >= 0)
        r = jinja_to_str(ev, &args->values[0], &old);
    if (r >= 0)
        r = jinja_to_str(ev, &args->values[1], &new_text);
    if (r >= 0 && jinja_given(args, 2) && args->values[2].type != VALUE_NONE)
        r = jinja_arg_int(ev, args, 2, -1, &count);
    if (r < 0)
        return r;
    struct jinja_str plain = *text; /* the filter works on str(), not on Markup */
    plain.markup = false;
    r = jinja_replace(ev, &plain, old, new_text, count, ret);
    if (r >= 0 && ret->string == &plain)
        *ret = jinja_string(text);
    return r;
}

static int filter_round(struct jinja_eval *ev, const struct value *self,
                        const struct jinja_args *args, struct value *ret)
{
    char text[400];
    struct jinja_str *method;
    int64_t precision;
    if (self->type == VALUE_UNDEFINED)
        return jinja_fail_undefined(ev, self);
    if (!jinja_is_number(self))
        return jinja_fail(ev, -EINVAL, "type %s doesn't define __round__ method",
                          jinja_type_name(self));
    if (jinja_arg_int(ev, args, 0, 0, &precision) < 0 || jinja_arg_str(ev, args, 1, &method) < 0)
        return ev->code;
    if (precision > 300 || precision < -300)
        return jinja_fail(ev, -EINVAL, "round: precision out of range");
    double number = jinja_as_double(self);
    double scale = pow(10, (double)precision);
    bool ceiling = method && method->bytes == 4 && memcmp(method->data, "ceil", 4) == 0;
    bool floors = method && method->bytes == 5 && memcmp(method->data, "floor", 5) == 0;
    if (ceiling || floors) {
        double scaled = number * scale;
        *ret = jinja_float(((ceiling ? ceil(scaled) : floor(scaled)) + 0.0) / scale); /* no -0 */
    } else if (method && (method->bytes != 6 || memcmp(method->data, "common", 6) != 0)) {
        return jinja_fail(ev, -EINVAL, "method must be common, ceil or floor");
    } else if (jinja_is_integer(self) && precision >= 0) {
        *ret = jinja_int(jinja_as_int(self));
    } else if (jinja_is_integer(self)) {
        *ret = jinja_int((int64_t)(nearbyint(number * scale) / scale));
    } else if (precision >= 0 && precision < 22 && isfinite(number)) {
        (void)snprintf(text, sizeof(text), "%.*f", (int)precision, number); /* exact, half even */
        *ret = jinja_float(strtod(text, NULL));
    } else {
        *ret = jinja_float(precision < 0 ? nearbyint(number * scale) / scale : number);
    }
    mark_number(ret, self);
    return 0;
}

static int filter_trim(struct jinja_eval *ev, const struct value *self,
                       const struct jinja_args *args, struct value *ret)
{
    struct jinja_str *text = NULL, *chars = NULL;
    int r = self_text(ev, self, &text);
    if (r >= 0)
        r = jinja_arg_str(ev, args, 0, &chars);
    return r < 0 ? r : jinja_strip(ev, text, chars, true, true, ret);
}

static int filter_truncate(struct jinja_eval *ev, const struct value *self,
                           const struct jinja_args *args, struct value *ret)
{
    struct jinja_str *text = NULL, *tail = NULL;
    int64_t length, leeway;
    uint32_t items;
    *ret = *self;
    if (self->type != VALUE_STRING && jinja_length(ev, self, &items) < 0)
        return ev->code;
    if (self->type != VALUE_STRING && items <= 255)
        return 0; /* short enough, whatever it is */
    int r = only_text(ev, self, &text);
    if (r >= 0)
        r = jinja_arg_int(ev, args, 0, 255, &length);
    if (r >= 0)
        r = jinja_arg_str(ev, args, 2, &tail);
    if (r < 0)
        return r;
    if (tail == NULL)
        tail = jinja_str_view(ev, "...", 3, (struct jinja_origin){0, -1});
    bool no_leeway = !jinja_given(args, 3) || args->values[3].type == VALUE_NONE;
    leeway = 5;
    if (tail == NULL || (!no_leeway && jinja_arg_int(ev, args, 3, 5, &leeway) < 0))
        return ev->code;
    int64_t keep = length - (int64_t)jinja_str_chars(tail);
    if (keep < 0 || leeway < 0)
        return jinja_fail(ev, -EINVAL, "expected length >= %u, got %lld", jinja_str_chars(tail),
                          (long long)length);
    *ret = jinja_string(text);
    if (length > UINT32_MAX || leeway > UINT32_MAX ||
        (int64_t)jinja_str_chars(text) <= length + leeway)
        return 0;
    uint32_t end = jinja_str_offset(text, (uint32_t)keep);
    if (!jinja_arg_truth(args, 1, false)) {
        const char *blank = memrchr(text->data, ' ', end);
        end = blank ? (uint32_t)(blank - text->data) : end;
    }
    struct jinja_str *cut = jinja_str_sub(ev, text, 0, end);
    cut = cut ? jinja_str_concat(ev, cut, tail) : NULL;
    if (cut == NULL)
        return ev->code;
    *ret = jinja_string(cut);
    return 0;
}

static int quote_url(struct jinja_eval *ev, struct jinja_str *text, bool query)
{
    char escape[4];
    uint32_t run = 0;
    int r = 0;
    for (uint32_t i = 0; r >= 0 && i < text->bytes; i++) {
        unsigned char c = (unsigned char)text->data[i];
        struct jinja_origin origin = jinja_str_origin_at(text, i, &run);
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                     (c < 0x80 && c != 0 && strchr("_.-~", c) != NULL) || (c == '/' && !query);
        if (plain)
            r = jinja_write(ev, text->data + i, 1, origin);
        else if (c == ' ' && query)
            r = jinja_write(ev, "+", 1, origin);
        else
            r = jinja_write(ev, escape, (size_t)snprintf(escape, sizeof(escape), "%%%02X", c),
                            origin);
    }
    return r;
}

static int filter_urlencode(struct jinja_eval *ev, const struct value *self,
                            const struct jinja_args *args, struct value *ret)
{
    struct jinja_capture capture;
    struct jinja_str *text = NULL;
    struct jinja_vec items = {0};
    int r = 0;
    bool pairs = self->type == VALUE_DICT || self->type == VALUE_LIST || self->type == VALUE_TUPLE;
    uint32_t count = self->type == VALUE_DICT ? self->dict->count : pairs ? self->list->count : 1;
    jinja_capture_begin(ev, &capture);
    for (uint32_t i = 0; r >= 0 && i < count; i++) {
        struct value pair[2] = {*self, *self};
        if (self->type == VALUE_DICT) {
            pair[0] = self->dict->entries[i].key;
            pair[1] = self->dict->entries[i].value;
        } else if (pairs) {
            r = jinja_iterate(ev, &self->list->values[i], &items);
            if (r >= 0 && items.count != 2)
                r = jinja_fail(ev, -EINVAL, "urlencode needs pairs");
            if (r >= 0)
                memcpy(pair, items.values, sizeof(pair));
        }
        for (int k = 0; r >= 0 && k < (pairs ? 2 : 1); k++) {
            if (pairs && (i > 0 || k > 0))
                r = jinja_write_text(ev, k > 0 ? "=" : "&");
            if (r >= 0)
                r = jinja_to_str(ev, &pair[k], &text);
            if (r >= 0)
                r = quote_url(ev, text, pairs);
        }
    }
    return r < 0 ? r : jinja_capture_end(ev, &capture, ret);
}

static int filter_wordcount(struct jinja_eval *ev, const struct value *self,
                            const struct jinja_args *args, struct value *ret)
{
    struct jinja_str *text = NULL;
    int64_t words = 0;
    bool inside = false;
    uint32_t bytes;
    int r = self_text(ev, self, &text);
    if (r < 0 || jinja_charge(ev, text->bytes / 4) < 0)
        return ev->code;
    for (uint32_t at = 0; at < text->bytes; at += bytes) {
        uint32_t c = jinja_utf8_decode(text->data + at, text->data + text->bytes, &bytes);
        bool letter = c == '_' || jinja_is_alpha(c) || jinja_is_numeric(c);
        words += letter && !inside;
        inside = letter;
    }
    *ret = jinja_int(words);
    return 0;
}

#define RAW JINJA_PARAMS_RAW
const struct jinja_callable *jinja_filter_find(const char *name, size_t bytes)
{
    static const struct jinja_callable filters[] = {
        {"abs", filter_abs, 0, 0, 0, {NULL}},
        {"attr", filter_attr, 0, 1, 1, {"name"}},
        {"batch", jinja_filter_batch, 0, 1, 2, {"linecount", "fill_with"}},
        {"capitalize", filter_capitalize, 0, 0, 0, {NULL}},
        {"center", filter_center, 0, 0, 1, {"width"}},
        {"count", filter_length, 0, 0, 0, {NULL}},
        {"d", filter_default, 0, 0, 2, {"default_value", "boolean"}},
        {"default", filter_default, 0, 0, 2, {"default_value", "boolean"}},
        {"dictsort", jinja_filter_dictsort, 0, 0, 3, {"case_sensitive", "by", "reverse"}},
        {"e", filter_escape, 0, 0, 0, {NULL}},
        {"escape", filter_escape, 0, 0, 0, {NULL}},
        {"first", jinja_filter_first, 0, 0, 0, {NULL}},
        {"float", filter_float, 0, 0, 1, {"default"}},
        {"forceescape", filter_forceescape, 0, 0, 0, {NULL}},
        {"format", filter_format, 0, 0, RAW, {NULL}},
        {"groupby", jinja_filter_groupby, 0, 1, 3, {"attribute", "default", "case_sensitive"}},
        {"indent", filter_indent, 0, 0, 3, {"width", "first", "blank"}},
        {"int", filter_int, 0, 0, 2, {"default", "base"}},
        {"items", jinja_filter_items, 0, 0, 0, {NULL}},
        {"join", jinja_filter_join, 0, 0, 2, {"d", "attribute"}},
        {"last", jinja_filter_last, 0, 0, 0, {NULL}},
        {"length", filter_length, 0, 0, 0, {NULL}},
        {"list", jinja_filter_list, 0, 0, 0, {NULL}},
        {"lower", filter_lower, 0, 0, 0, {NULL}},
        {"map", jinja_filter_map, 0, 0, RAW, {NULL}},
        {"max", jinja_filter_max, 0, 0, 2, {"case_sensitive", "attribute"}},
        {"min", jinja_filter_min, 0, 0, 2, {"case_sensitive", "attribute"}},
        {"reject", jinja_filter_reject, 0, 0, RAW, {NULL}},
        {"rejectattr", jinja_filter_rejectattr, 0, 1, RAW, {NULL}},
        {"replace", filter_replace, 0, 2, 3, {"old", "new", "count"}},
        {"reverse", jinja_filter_reverse, 0, 0, 0, {NULL}},
        {"round", filter_round, 0, 0, 2, {"precision", "method"}},
        {"safe", filter_safe, 0, 0, 0, {NULL}},
        {"select", jinja_filter_select, 0, 0, RAW, {NULL}},
        {"selectattr", jinja_filter_selectattr, 0, 1, RAW, {NULL}},
        {"slice", jinja_filter_slice, 0, 1, 2, {"slices", "fill_with"}},
        {"sort", jinja_filter_sort, 0, 0, 3, {"reverse", "case_sensitive", "attribute"}},
        {"string", filter_string, 0, 0, 0, {NULL}},
        {"sum", jinja_filter_sum, 0, 0, 2, {"attribute", "start"}},
        {"title", filter_title, 0, 0, 0, {NULL}},
        {"tojson", jinja_tojson, 0, 0, 4, {"ensure_ascii", "indent", "separators", "sort_keys"}},
        {"trim", filter_trim, 0, 0, 1, {"chars"}},
        {"truncate", filter_truncate, 0, 0, 4, {"length", "killwords", "end", "leeway"}},
        {"unique", jinja_filter_unique, 0, 0, 2, {"case_sensitive", "attribute"}},
        {"upper", filter_upper, 0, 0, 0, {NULL}},
        {"urlencode", filter_urlencode, 0, 0, 0, {NULL}},
        {"wordcount", filter_wordcount, 0, 0, 0, {NULL}},
    };
    for (size_t i = 0; i < sizeof(filters) / sizeof(filters[0]); i++) {
        if (strlen(filters[i].name) == bytes && memcmp(filters[i].name, name, bytes) == 0)
            return &filters[i];
    }
    return NULL;
}
#undef RAW
