/* jinja_tojson.c - the tojson filter: Python's json.dumps with the arguments that Hugging Face
 * allows (ensure_ascii=False, indent, separators, sort_keys).
 *
 * Marks: text of strings keeps its own (escapes included), the rest has the mark of the container
 * it belongs to: a request field printed as JSON is marked as a whole. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "router/text/jinja_eval.h"
#include "router/text/jinja_utf8.h"

struct json_style {
    bool ascii, sort_keys;
    struct jinja_str *indent; /* one level; NULL: all on one line */
    struct jinja_str *item_separator, *key_separator;
    uint32_t level;
};

static int write_json(struct jinja_eval *ev, struct json_style *style, const struct value *value);

static int write_escape(struct jinja_eval *ev, uint32_t c, struct jinja_origin origin)
{
    char text[16];
    const char *shorts = "\"\\\n\r\t\b\f";
    const char *found = c != 0 && c < 0x80 ? strchr(shorts, (int)c) : NULL;
    if (found != NULL)
        (void)snprintf(text, sizeof(text), "\\%c", "\"\\nrtbf"[found - shorts]);
    else if (c < 0x10000)
        (void)snprintf(text, sizeof(text), "\\u%04x", c);
    else
        (void)snprintf(text, sizeof(text), "\\u%04x\\u%04x", 0xd800 + ((c - 0x10000) >> 10),
                       0xdc00 + ((c - 0x10000) & 0x3ff));
    return jinja_write(ev, text, strlen(text), origin);
}

static int write_string(struct jinja_eval *ev, const struct json_style *style,
                        struct jinja_str *string)
{
    const char *data = jinja_str_data(ev, string);
    uint32_t start = 0, run = 0, bytes = 1;
    if (data == NULL)
        return ev->code;
    struct jinja_origin origin = jinja_str_origin(string);
    int r = jinja_write(ev, "\"", 1, origin);
    for (uint32_t at = 0; r >= 0 && at < string->bytes; at += bytes) {
        unsigned char c = (unsigned char)data[at];
        bytes = 1;
        if (c >= 0x20 && c != '"' && c != '\\' && (!style->ascii || c < 0x7f))
            continue;
        uint32_t code_point = jinja_utf8_decode(data + at, data + string->bytes, &bytes);
        r = jinja_write_sub(ev, string, start, at);
        if (r >= 0)
            r = write_escape(ev, code_point, jinja_str_origin_at(string, at, &run));
        start = at + bytes;
    }
    if (r >= 0)
        r = jinja_write_sub(ev, string, start, string->bytes);
    return r < 0 ? r : jinja_write(ev, "\"", 1, origin);
}

static int write_number(struct jinja_eval *ev, const struct value *value, bool quoted)
{
    char text[44], number[40];
    if (value->type == VALUE_NONE)
        (void)snprintf(number, sizeof(number), "null");
    else if (value->type == VALUE_BOOL)
        (void)snprintf(number, sizeof(number), "%s", value->boolean ? "true" : "false");
    else if (value->type == VALUE_INT)
        (void)snprintf(number, sizeof(number), "%lld", (long long)value->integer);
    else if (isnan(value->number))
        (void)snprintf(number, sizeof(number), "NaN");
    else if (isinf(value->number))
        (void)snprintf(number, sizeof(number), "%sInfinity", value->number < 0 ? "-" : "");
    else
        jinja_format_float(value->number, number);
    (void)snprintf(text, sizeof(text), quoted ? "\"%s\"" : "%s", number);
    return jinja_write(ev, text, strlen(text), jinja_value_origin(value));
}

static int write_key(struct jinja_eval *ev, const struct json_style *style, const struct value *key)
{
    if (key->type == VALUE_STRING)
        return write_string(ev, style, key->string);
    if (key->type == VALUE_NONE || jinja_is_number(key))
        return write_number(ev, key, true);
    return jinja_fail(ev, -EINVAL, "keys must be str, int, float, bool or None, not %s",
                      jinja_type_name(key));
}

static int write_separator(struct jinja_eval *ev, struct jinja_str *separator,
                           struct jinja_origin origin)
{
    struct jinja_origin own = jinja_str_origin(separator);
    return jinja_write(ev, separator->data, separator->bytes, own.source ? own : origin);
}

static int write_line_break(struct jinja_eval *ev, const struct json_style *style,
                            struct jinja_origin origin)
{
    if (style->indent == NULL)
        return 0;
    int r = jinja_write(ev, "\n", 1, origin);
    for (uint32_t i = 0; r >= 0 && i < style->level; i++)
        r = write_separator(ev, style->indent, origin);
    return r;
}

/* Before item `at`: separator and line break. */
static int write_item_start(struct jinja_eval *ev, const struct json_style *style, uint32_t at,
                            struct jinja_origin origin)
{
    int r = at > 0 ? write_separator(ev, style->item_separator, origin) : 0;
    return r < 0 ? r : write_line_break(ev, style, origin);
}

static int write_array(struct jinja_eval *ev, struct json_style *style,
                       const struct jinja_list *list, struct jinja_origin origin)
{
    int r = jinja_write(ev, "[", 1, origin);
    style->level++;
    for (uint32_t i = 0; r >= 0 && i < list->count; i++) {
        r = write_item_start(ev, style, i, origin);
        if (r >= 0)
            r = write_json(ev, style, &list->values[i]);
    }
    style->level--;
    if (r >= 0 && list->count > 0)
        r = write_line_break(ev, style, origin);
    return r < 0 ? r : jinja_write(ev, "]", 1, origin);
}

/* The dictionary's items in order of their keys. */
static int sorted_items(struct jinja_eval *ev, const struct jinja_dict *dict,
                        struct dict_entry **ret_entries)
{
    struct value *order = jinja_alloc(ev, (dict->count + 1) * sizeof(*order));
    struct value *keys = jinja_alloc(ev, (dict->count + 1) * sizeof(*keys));
    struct dict_entry *entries = jinja_alloc(ev, (dict->count + 1) * sizeof(*entries));
    if (order == NULL || keys == NULL || entries == NULL)
        return ev->code;
    for (uint32_t i = 0; i < dict->count; i++) {
        order[i] = jinja_int(i);
        keys[i] = dict->entries[i].key;
    }
    int r = jinja_sort(ev, order, keys, dict->count, false);
    if (r < 0)
        return r;
    for (uint32_t i = 0; i < dict->count; i++)
        entries[i] = dict->entries[order[i].integer];
    *ret_entries = entries;
    return 0;
}

static int write_object(struct jinja_eval *ev, struct json_style *style,
                        const struct jinja_dict *dict, struct jinja_origin origin)
{
    struct dict_entry *entries = dict->entries;
    int r = 0;
    if (style->sort_keys)
        r = sorted_items(ev, dict, &entries);
    if (r >= 0)
        r = jinja_write(ev, "{", 1, origin);
    style->level++;
    for (uint32_t i = 0; r >= 0 && i < dict->count; i++) {
        r = write_item_start(ev, style, i, origin);
        if (r >= 0)
            r = write_key(ev, style, &entries[i].key);
        if (r >= 0)
            r = write_separator(ev, style->key_separator, origin);
        if (r >= 0)
            r = write_json(ev, style, &entries[i].value);
    }
    style->level--;
    if (r >= 0 && dict->count > 0)
        r = write_line_break(ev, style, origin);
    return r < 0 ? r : jinja_write(ev, "}", 1, origin);
}

static int write_json(struct jinja_eval *ev, struct json_style *style, const struct value *value)
{
    int r = jinja_enter(ev);
    if (r < 0)
        return r;
    switch ((enum value_type)value->type) {
    case VALUE_NONE:
    case VALUE_BOOL:
    case VALUE_INT:
    case VALUE_FLOAT:
        r = write_number(ev, value, false);
        break;
    case VALUE_STRING:
        r = write_string(ev, style, value->string);
        break;
    case VALUE_LIST:
    case VALUE_TUPLE:
        r = write_array(ev, style, value->list, jinja_value_origin(value));
        break;
    case VALUE_DICT:
        r = write_object(ev, style, value->dict, jinja_value_origin(value));
        break;
    default:
        r = jinja_fail(ev, -EINVAL, "Object of type %s is not JSON serializable",
                       jinja_type_name(value));
        break;
    }
    jinja_leave(ev);
    return r;
}

static int set_indent(struct jinja_eval *ev, struct json_style *style, const struct value *indent)
{
    char blanks[64];
    if (indent->type == VALUE_STRING) {
        style->indent = indent->string;
        return jinja_str_data(ev, style->indent) ? 0 : ev->code;
    }
    if (!jinja_is_integer(indent) || jinja_as_int(indent) > (int64_t)sizeof(blanks))
        return jinja_fail(ev, -EINVAL, "tojson: indent must be text or a number up to %zu",
                          sizeof(blanks));
    size_t width = jinja_as_int(indent) > 0 ? (size_t)jinja_as_int(indent) : 0;
    memset(blanks, ' ', sizeof(blanks));
    style->indent = jinja_str_copy(ev, blanks, width, (struct jinja_origin){0, -1});
    return style->indent ? 0 : ev->code;
}

static int set_separators(struct jinja_eval *ev, struct json_style *style,
                          const struct value *separators)
{
    struct jinja_vec items = {0};
    if (separators->type != VALUE_MISSING && separators->type != VALUE_NONE) {
        int r = jinja_iterate(ev, separators, &items);
        if (r < 0)
            return r;
        if (items.count != 2 || items.values[0].type != VALUE_STRING ||
            items.values[1].type != VALUE_STRING)
            return jinja_fail(ev, -EINVAL, "tojson: separators must be two texts");
        style->item_separator = items.values[0].string;
        style->key_separator = items.values[1].string;
    } else {
        const char *comma = style->indent ? "," : ", ";
        style->item_separator =
            jinja_str_view(ev, comma, strlen(comma), (struct jinja_origin){0, -1});
        style->key_separator = jinja_str_view(ev, ": ", 2, (struct jinja_origin){0, -1});
        if (style->item_separator == NULL || style->key_separator == NULL)
            return ev->code;
    }
    return jinja_str_data(ev, style->item_separator) && jinja_str_data(ev, style->key_separator)
               ? 0
               : ev->code;
}

int jinja_tojson(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                 struct value *ret)
{
    struct jinja_capture capture;
    struct json_style style = {.ascii = jinja_arg_truth(args, 0, false),
                               .sort_keys = jinja_arg_truth(args, 3, false)};
    int r = 0;
    if (jinja_given(args, 1) && args->values[1].type != VALUE_NONE)
        r = set_indent(ev, &style, &args->values[1]);
    if (r >= 0)
        r = set_separators(ev, &style, &args->values[2]);
    if (r < 0)
        return r;
    jinja_capture_begin(ev, &capture);
    r = write_json(ev, &style, self);
    return r < 0 ? r : jinja_capture_end(ev, &capture, ret);
}
