/* jinja_methods.c - methods of strings, lists, dicts and our own objects: the table.
 *
 * Rows are sorted by name (jinja_method_find halves); of one name the parser keeps the first, the
 * type of the object picks the row. A row without a function is one that the immutable sandbox
 * hides (append, pop, update...). `self` of a string method is flat. */
#include <errno.h>
#include <string.h>

#include "proto/base/assert.h"
#include "router/text/jinja_eval.h"
#include "router/text/jinja_methods.h"
#include "router/text/jinja_utf8.h"

static int dict_get(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                    struct value *ret)
{
    const struct value *found;
    int r = jinja_dict_get(ev, self->dict, &args->values[0], &found);
    if (r >= 0)
        *ret = found ? *found : jinja_given(args, 1) ? args->values[1] : jinja_none();
    return r;
}

static int dict_view(struct jinja_eval *ev, const struct value *self, enum list_kind kind,
                     struct value *ret)
{
    struct jinja_vec items = {0};
    for (uint32_t i = 0; i < self->dict->count; i++) {
        const struct dict_entry *entry = &self->dict->entries[i];
        struct value item = kind == LIST_KEYS ? entry->key : entry->value;
        int r = 0;
        if (kind == LIST_ITEMS) {
            struct value *pair = jinja_alloc(ev, 2 * sizeof(*pair));
            if (pair == NULL)
                return ev->code;
            pair[0] = entry->key;
            pair[1] = entry->value;
            r = jinja_make_list(ev, VALUE_TUPLE, pair, 2, &item);
            item.source = self->source;
            item.message = self->message;
        }
        if (r >= 0)
            r = jinja_vec_push(ev, &items, &item);
        if (r < 0)
            return r;
    }
    int r = jinja_make_list(ev, VALUE_VIEW, items.values, items.count, ret);
    if (r < 0)
        return r;
    ret->list->kind = (uint8_t)kind;
    ret->source = self->source;
    ret->message = self->message;
    return 0;
}

static int dict_items(struct jinja_eval *ev, const struct value *self,
                      const struct jinja_args *args, struct value *ret)
{
    return dict_view(ev, self, LIST_ITEMS, ret);
}

static int dict_keys(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                     struct value *ret)
{
    return dict_view(ev, self, LIST_KEYS, ret);
}

static int dict_values(struct jinja_eval *ev, const struct value *self,
                       const struct jinja_args *args, struct value *ret)
{
    return dict_view(ev, self, LIST_VALUES, ret);
}

static int copy_self(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                     struct value *ret)
{
    *ret = *self; /* nothing can change it */
    return 0;
}

static int list_count(struct jinja_eval *ev, const struct value *self,
                      const struct jinja_args *args, struct value *ret)
{
    int64_t count = 0;
    for (uint32_t i = 0; i < self->list->count; i++) {
        bool equal;
        if (jinja_equal(ev, &self->list->values[i], &args->values[0], &equal) < 0 ||
            jinja_charge(ev, 1) < 0)
            return ev->code;
        count += equal;
    }
    *ret = jinja_int(count);
    return 0;
}

static int list_index(struct jinja_eval *ev, const struct value *self,
                      const struct jinja_args *args, struct value *ret)
{
    int64_t start, stop;
    if (jinja_arg_int(ev, args, 1, 0, &start) < 0 ||
        jinja_arg_int(ev, args, 2, UINT32_MAX, &stop) < 0)
        return ev->code;
    int64_t count = self->list->count;
    start = start < 0 ? (start + count < 0 ? 0 : start + count) : start;
    stop = stop < 0 ? stop + count : stop > count ? count : stop;
    for (int64_t i = start; i < stop; i++) {
        bool equal;
        if (jinja_equal(ev, &self->list->values[i], &args->values[0], &equal) < 0 ||
            jinja_charge(ev, 1) < 0)
            return ev->code;
        if (equal) {
            *ret = jinja_int(i);
            return 0;
        }
    }
    return jinja_fail(ev, -EINVAL, "the value is not in the %s", jinja_type_name(self));
}

static int cycler_next(struct jinja_eval *ev, const struct value *self,
                       const struct jinja_args *args, struct value *ret)
{
    *ret = self->list->values[self->list->at];
    self->list->at = (self->list->at + 1) % self->list->count;
    return 0;
}

static int cycler_reset(struct jinja_eval *ev, const struct value *self,
                        const struct jinja_args *args, struct value *ret)
{
    self->list->at = 0;
    *ret = jinja_none();
    return 0;
}

#define STR (1u << VALUE_STRING)
#define LIST (1u << VALUE_LIST)
#define TUPLE (1u << VALUE_TUPLE)
#define DICT (1u << VALUE_DICT)
#define RAW JINJA_PARAMS_RAW

static const struct jinja_callable methods[] = {
    /* sorted by name */
    {"append", NULL, LIST, 0, RAW, {NULL}},
    {"capitalize", jinja_str_capitalize, STR, 0, 0, {NULL}},
    {"casefold", jinja_str_lower, STR, 0, 0, {NULL}},
    {"center", jinja_str_center, STR, 1, 2, {"width", "fillchar"}},
    {"changed", jinja_loop_changed, 1u << VALUE_LOOP, 0, RAW, {NULL}},
    {"clear", NULL, LIST | DICT, 0, RAW, {NULL}},
    {"copy", copy_self, LIST | DICT, 0, 0, {NULL}},
    {"count", jinja_str_count, STR, 1, 3, {"sub", "start", "end"}},
    {"count", list_count, LIST | TUPLE, 1, 1, {"value"}},
    {"cycle", jinja_loop_cycle, 1u << VALUE_LOOP, 0, RAW, {NULL}},
    {"endswith", jinja_str_endswith, STR, 1, 3, {"suffix", "start", "end"}},
    {"extend", NULL, LIST, 0, RAW, {NULL}},
    {"find", jinja_str_find, STR, 1, 3, {"sub", "start", "end"}},
    {"format", jinja_str_format, STR, 0, RAW, {NULL}},
    {"get", dict_get, DICT, 1, 2, {"key", "default"}},
    {"index", jinja_str_index, STR, 1, 3, {"sub", "start", "end"}},
    {"index", list_index, LIST | TUPLE, 1, 3, {"value", "start", "stop"}},
    {"insert", NULL, LIST, 0, RAW, {NULL}},
    {"isalnum", jinja_str_isalnum, STR, 0, 0, {NULL}},
    {"isalpha", jinja_str_isalpha, STR, 0, 0, {NULL}},
    {"isascii", jinja_str_isascii, STR, 0, 0, {NULL}},
    {"isdecimal", jinja_str_isdecimal, STR, 0, 0, {NULL}},
    {"isdigit", jinja_str_isdecimal, STR, 0, 0, {NULL}},
    {"islower", jinja_test_lower, STR, 0, 0, {NULL}},
    {"isnumeric", jinja_str_isnumeric, STR, 0, 0, {NULL}},
    {"isspace", jinja_str_isspace, STR, 0, 0, {NULL}},
    {"isupper", jinja_test_upper, STR, 0, 0, {NULL}},
    {"items", dict_items, DICT, 0, 0, {NULL}},
    {"join", jinja_str_join, STR, 1, 1, {"iterable"}},
    {"keys", dict_keys, DICT, 0, 0, {NULL}},
    {"ljust", jinja_str_ljust, STR, 1, 2, {"width", "fillchar"}},
    {"lower", jinja_str_lower, STR, 0, 0, {NULL}},
    {"lstrip", jinja_str_lstrip, STR, 0, 1, {"chars"}},
    {"next", cycler_next, 1u << VALUE_CYCLER, 0, 0, {NULL}},
    {"partition", jinja_str_partition, STR, 1, 1, {"sep"}},
    {"pop", NULL, LIST | DICT, 0, RAW, {NULL}},
    {"popitem", NULL, DICT, 0, RAW, {NULL}},
    {"remove", NULL, LIST, 0, RAW, {NULL}},
    {"removeprefix", jinja_str_removeprefix, STR, 1, 1, {"prefix"}},
    {"removesuffix", jinja_str_removesuffix, STR, 1, 1, {"suffix"}},
    {"replace", jinja_str_replace, STR, 2, 3, {"old", "new", "count"}},
    {"reset", cycler_reset, 1u << VALUE_CYCLER, 0, 0, {NULL}},
    {"reverse", NULL, LIST, 0, RAW, {NULL}},
    {"rfind", jinja_str_rfind, STR, 1, 3, {"sub", "start", "end"}},
    {"rindex", jinja_str_rindex, STR, 1, 3, {"sub", "start", "end"}},
    {"rjust", jinja_str_rjust, STR, 1, 2, {"width", "fillchar"}},
    {"rpartition", jinja_str_rpartition, STR, 1, 1, {"sep"}},
    {"rsplit", jinja_str_rsplit, STR, 0, 2, {"sep", "maxsplit"}},
    {"rstrip", jinja_str_rstrip, STR, 0, 1, {"chars"}},
    {"setdefault", NULL, DICT, 0, RAW, {NULL}},
    {"sort", NULL, LIST, 0, RAW, {NULL}},
    {"split", jinja_str_split, STR, 0, 2, {"sep", "maxsplit"}},
    {"splitlines", jinja_str_splitlines, STR, 0, 1, {"keepends"}},
    {"startswith", jinja_str_startswith, STR, 1, 3, {"prefix", "start", "end"}},
    {"strip", jinja_str_strip, STR, 0, 1, {"chars"}},
    {"swapcase", jinja_str_swapcase, STR, 0, 0, {NULL}},
    {"title", jinja_str_title, STR, 0, 0, {NULL}},
    {"update", NULL, DICT, 0, RAW, {NULL}},
    {"upper", jinja_str_upper, STR, 0, 0, {NULL}},
    {"values", dict_values, DICT, 0, 0, {NULL}},
    {"zfill", jinja_str_zfill, STR, 1, 1, {"width"}},
};
#define METHODS_COUNT (sizeof(methods) / sizeof(methods[0]))

static int compare_names(const char *row, const char *name, size_t bytes)
{
    int order = strncmp(row, name, bytes);
    return order != 0 ? order : row[bytes] != '\0';
}

const struct jinja_callable *jinja_method_find(const char *name, size_t bytes)
{
    size_t low = 0, high = METHODS_COUNT; /* the first row that is not before `name` */
    if (memchr(name, '\0', bytes) != NULL)
        return NULL;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (compare_names(methods[middle].name, name, bytes) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == METHODS_COUNT || strlen(methods[low].name) != bytes ||
        memcmp(methods[low].name, name, bytes) != 0)
        return NULL;
    return &methods[low];
}

const struct jinja_callable *jinja_method_match(const struct jinja_callable *first,
                                                enum value_type type)
{
    if (first == NULL)
        return NULL;
    ASSERT(first >= methods && first < methods + METHODS_COUNT);
    for (const struct jinja_callable *row = first;
         row < methods + METHODS_COUNT && strcmp(row->name, first->name) == 0; row++) {
        if (row->types & (1u << type))
            return row;
    }
    return NULL;
}
