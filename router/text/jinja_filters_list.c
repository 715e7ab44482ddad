/* jinja_filters_list.c - filters over sequences: sort, join, map, select, groupby and so on.
 *
 * Where Jinja2 gives a generator, these give an iterator: good for one pass, without length. It is
 * computed at once, which differs only in when an error shows. Sorting is a stable merge sort. */
#include <errno.h>
#include <string.h>

#include "router/text/jinja_filters.h"

static int make_iterator(struct jinja_eval *ev, const struct jinja_vec *items, struct value *ret)
{
    return jinja_make_list(ev, VALUE_ITERATOR, items->values, items->count, ret);
}

static bool all_digits(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
    }
    return bytes > 0 && bytes < 10;
}

/* One step of a path. */
static int attribute_part(struct jinja_eval *ev, struct jinja_str *path, uint32_t start,
                          uint32_t end, struct value *item)
{
    struct value key, from = *item;
    int64_t number;
    if (all_digits(path->data + start, end - start) &&
        jinja_parse_int(path->data + start, end - start, 10, &number)) {
        key = jinja_int(number);
    } else {
        struct jinja_str *part = jinja_str_sub(ev, path, start, end);
        if (part == NULL)
            return ev->code;
        key = jinja_string(part);
    }
    return jinja_getitem(ev, &from, &key, item);
}

static int attribute_of_text(struct jinja_eval *ev, const struct value *item,
                             struct jinja_str *path, uint32_t start, uint32_t end,
                             const struct value *dflt, struct value *ret)
{
    struct value at = *item;
    for (;;) {
        const char *dot = memchr(path->data + start, '.', end - start);
        uint32_t stop = dot ? (uint32_t)(dot - path->data) : end;
        int r = attribute_part(ev, path, start, stop, &at);
        if (r < 0)
            return r;
        if (at.type == VALUE_UNDEFINED && dflt != NULL && dflt->type != VALUE_MISSING &&
            dflt->type != VALUE_NONE)
            at = *dflt;
        if (dot == NULL)
            break;
        start = stop + 1;
    }
    *ret = at;
    return 0;
}

int jinja_attribute(struct jinja_eval *ev, const struct value *item, const struct value *path,
                    const struct value *dflt, struct value *ret)
{
    struct value from = *item;
    if (path->type == VALUE_MISSING || path->type == VALUE_NONE) {
        *ret = from;
        return 0;
    }
    if (path->type == VALUE_STRING) {
        if (jinja_str_data(ev, path->string) == NULL)
            return ev->code;
        return attribute_of_text(ev, &from, path->string, 0, path->string->bytes, dflt, ret);
    }
    int r = jinja_getitem(ev, &from, path, ret);
    if (r >= 0 && ret->type == VALUE_UNDEFINED && dflt != NULL && dflt->type != VALUE_MISSING &&
        dflt->type != VALUE_NONE)
        *ret = *dflt;
    return r;
}

static int ignore_case(struct jinja_eval *ev, struct value *key)
{
    if (key->type != VALUE_STRING)
        return 0;
    return jinja_change_case(ev, key->string, CASE_LOWER, key);
}

/* Keys of `items` by one path. */
static int make_keys(struct jinja_eval *ev, const struct jinja_vec *items, const struct value *path,
                     const struct value *dflt, bool case_sensitive, struct value **ret_keys)
{
    struct value *keys = jinja_alloc(ev, ((size_t)items->count + 1) * sizeof(*keys));
    if (keys == NULL)
        return ev->code;
    for (uint32_t i = 0; i < items->count; i++) {
        int r = jinja_attribute(ev, &items->values[i], path, dflt, &keys[i]);
        if (r >= 0 && !case_sensitive)
            r = ignore_case(ev, &keys[i]);
        if (r < 0)
            return r;
    }
    *ret_keys = keys;
    return 0;
}

/* Merge sort of positions: `order` by keys[order[i]]. */
static int merge_sort(struct jinja_eval *ev, uint32_t *order, uint32_t *spare, uint32_t count,
                      const struct value *keys, bool reverse)
{
    for (uint32_t width = 1; width < count; width *= 2) {
        for (uint32_t start = 0; start < count; start += 2 * width) {
            uint32_t middle = start + width < count ? start + width : count;
            uint32_t end = middle + width < count ? middle + width : count;
            uint32_t i = start, k = middle;
            for (uint32_t to = start; to < end; to++) {
                bool take_left = k == end;
                if (i < middle && k < end) {
                    int way;
                    int r = jinja_compare(ev, &keys[order[i]], &keys[order[k]], "<", &way);
                    if (r < 0 || jinja_charge(ev, 1) < 0)
                        return ev->code;
                    take_left = way == 0 || way == 2 || (way == -1) != reverse;
                }
                spare[to] = take_left ? order[i++] : order[k++];
            }
        }
        memcpy(order, spare, count * sizeof(*order));
        if (width > UINT32_MAX / 4)
            break;
    }
    return 0;
}

int jinja_sort(struct jinja_eval *ev, struct value *values, struct value *keys, uint32_t count,
               bool reverse)
{
    uint32_t *order = jinja_alloc(ev, ((size_t)count + 1) * sizeof(*order));
    uint32_t *spare = jinja_alloc(ev, ((size_t)count + 1) * sizeof(*spare));
    struct value *sorted = jinja_alloc(ev, ((size_t)count + 1) * sizeof(*sorted));
    if (order == NULL || spare == NULL || sorted == NULL)
        return ev->code;
    for (uint32_t i = 0; i < count; i++)
        order[i] = i;
    int r = merge_sort(ev, order, spare, count, keys, reverse);
    if (r < 0)
        return r;
    for (uint32_t i = 0; i < count; i++)
        sorted[i] = values[order[i]];
    if (count > 0)
        memcpy(values, sorted, count * sizeof(*values));
    for (uint32_t i = 0; i < count; i++)
        sorted[i] = keys[order[i]];
    if (count > 0)
        memcpy(keys, sorted, count * sizeof(*keys));
    return 0;
}

static int copy_items(struct jinja_eval *ev, const struct value *self, struct jinja_vec *ret)
{
    struct jinja_vec items = {0};
    int r = jinja_iterate(ev, self, &items);
    if (r < 0)
        return r;
    struct value *copy = jinja_alloc(ev, ((size_t)items.count + 1) * sizeof(*copy));
    if (copy == NULL || jinja_charge(ev, items.count / 4) < 0)
        return ev->code;
    if (items.count > 0)
        memcpy(copy, items.values, items.count * sizeof(*copy));
    *ret = (struct jinja_vec){copy, items.count, items.count};
    return 0;
}

static void keep_origin(const struct value *self, struct value *ret)
{
    if (self->type == VALUE_STRING)
        return;
    ret->source = self->source;
    ret->message = self->message;
}

int jinja_filter_list(struct jinja_eval *ev, const struct value *self,
                      const struct jinja_args *args, struct value *ret)
{
    struct jinja_vec items = {0};
    int r = copy_items(ev, self, &items);
    if (r >= 0)
        r = jinja_make_list(ev, VALUE_LIST, items.values, items.count, ret);
    if (r >= 0)
        keep_origin(self, ret);
    return r;
}

/* attribute="a,b.c": the key is a list of attributes. */
static int multi_key(struct jinja_eval *ev, const struct value *item, const struct value *path,
                     bool case_sensitive, struct value *ret)
{
    struct jinja_vec parts = {0};
    struct value part;
    int r = 0;
    if (path->type != VALUE_STRING ||
        memchr(path->string->data, ',', path->string->bytes) == NULL) {
        r = jinja_attribute(ev, item, path, NULL, ret);
        return r < 0 || case_sensitive ? r : ignore_case(ev, ret);
    }
    struct jinja_str *text = path->string;
    for (uint32_t start = 0; r >= 0 && start <= text->bytes;) {
        const char *comma = memchr(text->data + start, ',', text->bytes - start);
        uint32_t end = comma ? (uint32_t)(comma - text->data) : text->bytes;
        r = attribute_of_text(ev, item, text, start, end, NULL, &part);
        if (r >= 0 && !case_sensitive)
            r = ignore_case(ev, &part);
        if (r >= 0)
            r = jinja_vec_push(ev, &parts, &part);
        start = end + 1;
    }
    return r < 0 ? r : jinja_make_list(ev, VALUE_LIST, parts.values, parts.count, ret);
}

int jinja_filter_sort(struct jinja_eval *ev, const struct value *self,
                      const struct jinja_args *args, struct value *ret)
{
    struct jinja_vec items = {0};
    bool case_sensitive = jinja_arg_truth(args, 1, false);
    int r = copy_items(ev, self, &items);
    if (r < 0)
        return r;
    if (args->values[2].type == VALUE_STRING && !jinja_str_data(ev, args->values[2].string))
        return ev->code;
    struct value *keys = jinja_alloc(ev, ((size_t)items.count + 1) * sizeof(*keys));
    r = keys ? 0 : ev->code;
    for (uint32_t i = 0; r >= 0 && i < items.count; i++)
        r = multi_key(ev, &items.values[i], &args->values[2], case_sensitive, &keys[i]);
    if (r >= 0)
        r = jinja_sort(ev, items.values, keys, items.count, jinja_arg_truth(args, 0, false));
    if (r >= 0)
        r = jinja_make_list(ev, VALUE_LIST, items.values, items.count, ret);
    if (r >= 0)
        keep_origin(self, ret);
    return r;
}

static bool text_is(const struct value *value, const char *text)
{
    return value->type == VALUE_STRING && value->string->data != NULL &&
           value->string->bytes == strlen(text) &&
           memcmp(value->string->data, text, value->string->bytes) == 0;
}

static int dict_pairs(struct jinja_eval *ev, const struct jinja_dict *dict, struct jinja_vec *ret)
{
    *ret = (struct jinja_vec){0};
    for (uint32_t i = 0; i < dict->count; i++) {
        struct value pair;
        struct value *two = jinja_alloc(ev, 2 * sizeof(*two));
        if (two == NULL)
            return ev->code;
        two[0] = dict->entries[i].key;
        two[1] = dict->entries[i].value;
        int r = jinja_make_list(ev, VALUE_TUPLE, two, 2, &pair);
        if (r >= 0)
            r = jinja_vec_push(ev, ret, &pair);
        if (r < 0)
            return r;
    }
    return 0;
}

int jinja_filter_dictsort(struct jinja_eval *ev, const struct value *self,
                          const struct jinja_args *args, struct value *ret)
{
    struct jinja_vec pairs;
    bool by_value = jinja_given(args, 1) && text_is(&args->values[1], "value");
    if (jinja_given(args, 1) && !by_value && !text_is(&args->values[1], "key"))
        return jinja_fail(ev, -EINVAL, "You can only sort by either \"key\" or \"value\"");
    if (self->type == VALUE_UNDEFINED)
        return jinja_fail_undefined(ev, self);
    if (self->type != VALUE_DICT)
        return jinja_fail(ev, -EINVAL, "'%s' object has no attribute 'items'",
                          jinja_type_name(self));
    int r = dict_pairs(ev, self->dict, &pairs);
    struct value *keys = jinja_alloc(ev, ((size_t)pairs.count + 1) * sizeof(*keys));
    if (r < 0 || keys == NULL)
        return ev->code;
    for (uint32_t i = 0; r >= 0 && i < pairs.count; i++) {
        keys[i] = pairs.values[i].list->values[by_value ? 1 : 0];
        if (!jinja_arg_truth(args, 0, false))
            r = ignore_case(ev, &keys[i]);
    }
    if (r >= 0)
        r = jinja_sort(ev, pairs.values, keys, pairs.count, jinja_arg_truth(args, 2, false));
    if (r >= 0)
        r = jinja_make_list(ev, VALUE_LIST, pairs.values, pairs.count, ret);
    if (r >= 0)
        keep_origin(self, ret);
    return r;
}

int jinja_filter_items(struct jinja_eval *ev, const struct value *self,
                       const struct jinja_args *args, struct value *ret)
{
    struct jinja_vec pairs = {0};
    int r = 0;
    if (self->type == VALUE_DICT)
        r = dict_pairs(ev, self->dict, &pairs);
    else if (self->type != VALUE_UNDEFINED)
        return jinja_fail(ev, -EINVAL, "Can only get item pairs from a mapping.");
    return r < 0 ? r : make_iterator(ev, &pairs, ret);
}

static int nothing_there(struct jinja_eval *ev, const char *hint, struct value *ret)
{
    int r = jinja_make_undefined(ev, NULL, NULL, 0, ret);
    if (r >= 0)
        ret->undefined->hint = hint;
    return r;
}

int jinja_filter_first(struct jinja_eval *ev, const struct value *self,
                       const struct jinja_args *args, struct value *ret)
{
    struct jinja_vec items = {0};
    if (self->type == VALUE_ITERATOR && self->list->at < self->list->count) {
        *ret = self->list->values[self->list->at++];
        return 0;
    }
    int r = jinja_iterate(ev, self, &items);
    if (r < 0)
        return r;
    if (items.count == 0)
        return nothing_there(ev, "No first item, sequence was empty.", ret);
    *ret = items.values[0];
    return 0;
}

int jinja_filter_last(struct jinja_eval *ev, const struct value *self,
                      const struct jinja_args *args, struct value *ret)
{
    struct jinja_vec items = {0};
    if (self->type == VALUE_ITERATOR || self->type == VALUE_UNDEFINED)
        return self->type == VALUE_UNDEFINED
                   ? nothing_there(ev, "No last item, sequence was empty.", ret)
                   : jinja_fail(ev, -EINVAL, "'generator' object is not reversible");
    int r = jinja_iterate(ev, self, &items);
    if (r < 0)
        return r;
    if (items.count == 0)
        return nothing_there(ev, "No last item, sequence was empty.", ret);
    *ret = items.values[items.count - 1];
    return 0;
}

int jinja_filter_join(struct jinja_eval *ev, const struct value *self,
                      const struct jinja_args *args, struct value *ret)
{
    struct jinja_capture capture;
    struct jinja_vec items = {0};
    struct jinja_str *between = NULL;
    int r = jinja_iterate(ev, self, &items);
    if (r >= 0 && jinja_given(args, 0))
        r = jinja_to_str(ev, &args->values[0], &between);
    if (r < 0)
        return r;
    jinja_capture_begin(ev, &capture);
    for (uint32_t i = 0; r >= 0 && i < items.count; i++) {
        struct value item;
        if (i > 0 && between != NULL)
            r = jinja_write_str(ev, between);
        if (r >= 0)
            r = jinja_attribute(ev, &items.values[i], &args->values[1], NULL, &item);
        if (r >= 0)
            r = jinja_write_value(ev, &item);
        if (r >= 0)
            r = jinja_charge(ev, 1);
    }
    return r < 0 ? r : jinja_capture_end(ev, &capture, ret);
}

int jinja_filter_reverse(struct jinja_eval *ev, const struct value *self,
                         const struct jinja_args *args, struct value *ret)
{
    struct jinja_vec items = {0};
    struct value bounds[3] = {jinja_missing(), jinja_missing(), jinja_int(-1)};
    if (self->type == VALUE_STRING)
        return jinja_slice(ev, self, bounds, ret);
    if (self->type == VALUE_ITERATOR) { /* Jinja makes a list of it */
        int r = jinja_filter_list(ev, self, args, ret);
        struct value list = *ret;
        return r < 0 ? r : jinja_slice(ev, &list, bounds, ret);
    }
    int r = copy_items(ev, self, &items);
    if (r < 0)
        return r;
    for (uint32_t i = 0, k = items.count; i + 1 < k; i++, k--) {
        struct value swap = items.values[i];
        items.values[i] = items.values[k - 1];
        items.values[k - 1] = swap;
    }
    return make_iterator(ev, &items, ret);
}

static int extreme(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                   int wanted, struct value *ret)
{
    struct jinja_vec items = {0};
    struct value *keys = NULL;
    uint32_t best = 0;
    int r = jinja_iterate(ev, self, &items);
    if (r >= 0 && items.count == 0)
        return nothing_there(ev, "No aggregated item, sequence was empty.", ret);
    if (r >= 0)
        r = make_keys(ev, &items, &args->values[1], NULL, jinja_arg_truth(args, 0, false), &keys);
    for (uint32_t i = 1; r >= 0 && i < items.count; i++) {
        int order;
        r = jinja_compare(ev, &keys[i], &keys[best], wanted < 0 ? "<" : ">", &order);
        if (r >= 0 && order == wanted)
            best = i;
    }
    if (r >= 0)
        *ret = items.values[best];
    return r;
}

int jinja_filter_max(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                     struct value *ret)
{
    return extreme(ev, self, args, 1, ret);
}

int jinja_filter_min(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                     struct value *ret)
{
    return extreme(ev, self, args, -1, ret);
}

int jinja_filter_sum(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                     struct value *ret)
{
    struct jinja_vec items = {0};
    struct value item, total = jinja_given(args, 1) ? args->values[1] : jinja_int(0);
    int r = jinja_iterate(ev, self, &items);
    if (r >= 0 && total.type == VALUE_STRING)
        r = jinja_fail(ev, -EINVAL, "sum() can't sum strings [use ''.join(seq) instead]");
    for (uint32_t i = 0; r >= 0 && i < items.count; i++) {
        r = jinja_attribute(ev, &items.values[i], &args->values[0], NULL, &item);
        if (r >= 0)
            r = jinja_binary(ev, OP_ADD, &total, &item, &total);
        if (r >= 0)
            r = jinja_charge(ev, 1);
    }
    if (r >= 0)
        *ret = total;
    return r;
}

int jinja_filter_unique(struct jinja_eval *ev, const struct value *self,
                        const struct jinja_args *args, struct value *ret)
{
    struct jinja_vec items, kept = {0};
    struct value *keys = NULL;
    const struct value *seen;
    struct jinja_dict *dict = jinja_dict_new(ev, 0);
    int r = jinja_iterate(ev, self, &items);
    if (r >= 0)
        r = make_keys(ev, &items, &args->values[1], NULL, jinja_arg_truth(args, 0, false), &keys);
    if (r < 0 || dict == NULL)
        return ev->code;
    for (uint32_t i = 0; r >= 0 && i < items.count; i++) {
        r = jinja_dict_get(ev, dict, &keys[i], &seen);
        if (r < 0 || seen != NULL)
            continue;
        r = jinja_dict_set(ev, dict, &keys[i], &items.values[i]);
        if (r >= 0)
            r = jinja_vec_push(ev, &kept, &items.values[i]);
    }
    return r < 0 ? r : make_iterator(ev, &kept, ret);
}

static int add_group(struct jinja_eval *ev, struct jinja_vec *groups, const struct value *grouper,
                     struct value *values, uint32_t count)
{
    struct value group;
    struct value *two = jinja_alloc(ev, 2 * sizeof(*two));
    if (two == NULL)
        return ev->code;
    two[0] = *grouper;
    int r = jinja_make_list(ev, VALUE_LIST, values, count, &two[1]);
    if (r >= 0)
        r = jinja_make_list(ev, VALUE_TUPLE, two, 2, &group);
    if (r < 0)
        return r;
    group.list->kind = LIST_GROUP;
    return jinja_vec_push(ev, groups, &group);
}

int jinja_filter_groupby(struct jinja_eval *ev, const struct value *self,
                         const struct jinja_args *args, struct value *ret)
{
    struct jinja_vec items, groups = {0};
    struct value *keys = NULL;
    const struct value *dflt = &args->values[1];
    int r = copy_items(ev, self, &items);
    if (r >= 0)
        r = make_keys(ev, &items, &args->values[0], dflt, jinja_arg_truth(args, 2, false), &keys);
    if (r >= 0)
        r = jinja_sort(ev, items.values, keys, items.count, false);
    for (uint32_t i = 0, end; r >= 0 && i < items.count; i = end) {
        struct value grouper;
        bool equal = true;
        for (end = i + 1; r >= 0 && end < items.count; end++) {
            r = jinja_equal(ev, &keys[i], &keys[end], &equal);
            if (!equal)
                break;
        }
        if (r >= 0)
            r = jinja_attribute(ev, &items.values[i], &args->values[0], dflt, &grouper);
        if (r >= 0)
            r = add_group(ev, &groups, &grouper, items.values + i, end - i);
    }
    return r < 0 ? r : jinja_make_list(ev, VALUE_LIST, groups.values, groups.count, ret);
}

static const struct value *named_arg(const struct jinja_args *args, const char *name)
{
    for (uint32_t i = 0; i < args->named_count; i++) {
        if (args->named[i].name->bytes == strlen(name) &&
            memcmp(args->named[i].name->data, name, strlen(name)) == 0)
            return &args->named[i].value;
    }
    return NULL;
}

int jinja_filter_map(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                     struct value *ret)
{
    struct jinja_vec items, mapped = {0};
    struct jinja_str *name = NULL;
    const struct value *path = named_arg(args, "attribute");
    const struct jinja_callable *filter = NULL;
    struct jinja_args rest = *args;
    if (!jinja_truth(self)) /* none|map(...) is empty, not an error */
        return make_iterator(ev, &mapped, ret);
    int r = jinja_iterate(ev, self, &items);
    if (r >= 0 && args->count == 0 && path == NULL)
        r = jinja_fail(ev, -EINVAL, "map requires a filter argument");
    if (r >= 0 && args->count > 0) {
        r = jinja_arg_str(ev, args, 0, &name);
        filter = r >= 0 && name ? jinja_filter_find(name->data, name->bytes) : NULL;
        if (r >= 0 && filter == NULL)
            r = jinja_fail(ev, -EINVAL, "map: no such filter");
        rest.values++;
        rest.count--;
    }
    for (uint32_t i = 0; r >= 0 && i < items.count; i++) {
        struct value out;
        if (filter != NULL)
            r = jinja_call_bound(ev, filter, &items.values[i], &rest, &out);
        else
            r = jinja_attribute(ev, &items.values[i], path, named_arg(args, "default"), &out);
        if (r >= 0)
            r = jinja_vec_push(ev, &mapped, &out);
        if (r >= 0)
            r = jinja_charge(ev, 1);
    }
    return r < 0 ? r : make_iterator(ev, &mapped, ret);
}

/* select, reject (no path) and selectattr, rejectattr (the first argument is the path). */
static int filter_items(struct jinja_eval *ev, const struct value *self,
                        const struct jinja_args *args, bool by_attribute, bool wanted,
                        struct value *ret)
{
    struct jinja_vec items, kept = {0};
    struct jinja_args rest = *args;
    struct value path = jinja_missing();
    struct jinja_str *name = NULL;
    const struct jinja_callable *test = NULL;
    if (!jinja_truth(self)) /* none|select(...) is empty, not an error */
        return make_iterator(ev, &kept, ret);
    int r = jinja_iterate(ev, self, &items);
    if (by_attribute) {
        path = args->values[0];
        rest.values++;
        rest.count--;
    }
    if (r >= 0 && rest.count > 0) {
        r = jinja_arg_str(ev, &rest, 0, &name);
        test = r >= 0 && name ? jinja_test_find(name->data, name->bytes) : NULL;
        if (r >= 0 && test == NULL)
            r = jinja_fail(ev, -EINVAL, "select: no such test");
        rest.values++;
        rest.count--;
    }
    for (uint32_t i = 0; r >= 0 && i < items.count; i++) {
        struct value out;
        r = jinja_attribute(ev, &items.values[i], &path, NULL, &out);
        if (r >= 0 && test != NULL) {
            struct value subject = out;
            r = jinja_call_bound(ev, test, &subject, &rest, &out);
        }
        if (r >= 0 && jinja_truth(&out) == wanted)
            r = jinja_vec_push(ev, &kept, &items.values[i]);
        if (r >= 0)
            r = jinja_charge(ev, 1);
    }
    return r < 0 ? r : make_iterator(ev, &kept, ret);
}

int jinja_filter_select(struct jinja_eval *ev, const struct value *self,
                        const struct jinja_args *args, struct value *ret)
{
    return filter_items(ev, self, args, false, true, ret);
}

int jinja_filter_reject(struct jinja_eval *ev, const struct value *self,
                        const struct jinja_args *args, struct value *ret)
{
    return filter_items(ev, self, args, false, false, ret);
}

int jinja_filter_selectattr(struct jinja_eval *ev, const struct value *self,
                            const struct jinja_args *args, struct value *ret)
{
    return filter_items(ev, self, args, true, true, ret);
}

int jinja_filter_rejectattr(struct jinja_eval *ev, const struct value *self,
                            const struct jinja_args *args, struct value *ret)
{
    return filter_items(ev, self, args, true, false, ret);
}

static int fill_up(struct jinja_eval *ev, struct jinja_vec *piece, const struct value *fill,
                   int64_t count)
{
    if (fill->type == VALUE_MISSING || fill->type == VALUE_NONE)
        return 0;
    while ((int64_t)piece->count < count) {
        if (jinja_vec_push(ev, piece, fill) < 0 || jinja_charge(ev, 1) < 0)
            return ev->code;
    }
    return 0;
}

/* Lists of items [start, end), filled up to `full`. */
static int add_piece(struct jinja_eval *ev, struct jinja_vec *pieces, const struct jinja_vec *items,
                     uint32_t start, uint32_t end, const struct value *fill, int64_t full)
{
    struct jinja_vec piece = {0};
    struct value list;
    int r = 0;
    for (uint32_t i = start; r >= 0 && i < end; i++)
        r = jinja_vec_push(ev, &piece, &items->values[i]);
    if (r >= 0)
        r = fill_up(ev, &piece, fill, full);
    if (r >= 0)
        r = jinja_make_list(ev, VALUE_LIST, piece.values, piece.count, &list);
    return r < 0 ? r : jinja_vec_push(ev, pieces, &list);
}

int jinja_filter_batch(struct jinja_eval *ev, const struct value *self,
                       const struct jinja_args *args, struct value *ret)
{
    struct jinja_vec items, pieces = {0};
    int64_t size;
    int r = jinja_iterate(ev, self, &items);
    if (r >= 0)
        r = jinja_arg_int(ev, args, 0, 0, &size);
    if (r >= 0 && size < 1)
        r = jinja_fail(ev, -EINVAL, "batch: linecount must be positive");
    for (uint32_t at = 0; r >= 0 && at < items.count;) {
        uint32_t end = size < (int64_t)(items.count - at) ? at + (uint32_t)size : items.count;
        r = add_piece(ev, &pieces, &items, at, end, &args->values[1], size);
        at = end;
    }
    return r < 0 ? r : make_iterator(ev, &pieces, ret);
}

int jinja_filter_slice(struct jinja_eval *ev, const struct value *self,
                       const struct jinja_args *args, struct value *ret)
{
    struct jinja_vec items, pieces = {0};
    int64_t slices;
    int r = jinja_iterate(ev, self, &items);
    if (r >= 0)
        r = jinja_arg_int(ev, args, 0, 0, &slices);
    if (r >= 0 && (slices < 1 || slices > JINJA_RANGE_MAX))
        r = jinja_fail(ev, -EINVAL, "slice: the number of slices is out of range");
    uint32_t at = 0;
    for (int64_t i = 0; r >= 0 && i < slices; i++) {
        uint32_t each = items.count / (uint32_t)slices;
        bool extra = i < (int64_t)(items.count % (uint32_t)slices);
        uint32_t end = at + each + (extra ? 1 : 0);
        r = add_piece(ev, &pieces, &items, at, end, &args->values[1], extra ? 0 : each + 1);
        at = end;
    }
    return r < 0 ? r : make_iterator(ev, &pieces, ret);
}
