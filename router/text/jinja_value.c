/* jinja_value.c - truth, equality, order, hashing and containers, as Python defines them.
 *
 * Containers cannot be changed by a template (immutable sandbox), so lists share their arrays: a
 * slice is a pointer into the old one. Recursion over nested data counts against the depth of the
 * render. Cost: dictionaries up to DICT_LINEAR entries are searched in order, others are hashed. */
#include "router/text/jinja_value.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "proto/base/assert.h"
#include "router/text/jinja_eval.h"
#include "router/text/jinja_utf8.h"

#define DICT_LINEAR 8
#define HASH_DEPTH_MAX 100

const char *jinja_type_name(const struct value *value)
{
    static const char *const names[] = {
        [VALUE_UNDEFINED] = "Undefined",
        [VALUE_MISSING] = "missing",
        [VALUE_NONE] = "NoneType",
        [VALUE_BOOL] = "bool",
        [VALUE_INT] = "int",
        [VALUE_FLOAT] = "float",
        [VALUE_STRING] = "str",
        [VALUE_LIST] = "list",
        [VALUE_TUPLE] = "tuple",
        [VALUE_DICT] = "dict",
        [VALUE_VIEW] = "dict_view",
        [VALUE_ITERATOR] = "generator",
        [VALUE_RANGE] = "range",
        [VALUE_NAMESPACE] = "Namespace",
        [VALUE_MACRO] = "Macro",
        [VALUE_FUNCTION] = "function",
        [VALUE_METHOD] = "builtin_function_or_method",
        [VALUE_LOOP] = "LoopContext",
        [VALUE_CYCLER] = "Cycler",
        [VALUE_JOINER] = "Joiner",
    };
    ASSERT(value->type < sizeof(names) / sizeof(names[0]));
    if (value->type == VALUE_VIEW)
        return value->list->kind == LIST_KEYS     ? "dict_keys"
               : value->list->kind == LIST_VALUES ? "dict_values"
                                                  : "dict_items";
    return names[value->type];
}

bool jinja_truth(const struct value *value)
{
    switch ((enum value_type)value->type) {
    case VALUE_UNDEFINED:
    case VALUE_MISSING:
    case VALUE_NONE:
        return false;
    case VALUE_BOOL:
        return value->boolean;
    case VALUE_INT:
        return value->integer != 0;
    case VALUE_FLOAT:
        return value->number != 0;
    case VALUE_STRING:
        return value->string->bytes > 0;
    case VALUE_LIST:
    case VALUE_TUPLE:
    case VALUE_VIEW:
        return value->list->count > 0;
    case VALUE_DICT:
        return value->dict->count > 0;
    case VALUE_RANGE:
        return value->range->count > 0;
    default:
        return true;
    }
}

int jinja_length(struct jinja_eval *ev, const struct value *value, uint32_t *ret_count)
{
    switch ((enum value_type)value->type) {
    case VALUE_UNDEFINED:
        *ret_count = 0;
        return 0;
    case VALUE_STRING:
        if (jinja_str_data(ev, value->string) == NULL)
            return ev->code;
        *ret_count = jinja_str_chars(value->string);
        return 0;
    case VALUE_LIST:
    case VALUE_TUPLE:
    case VALUE_VIEW:
        *ret_count = value->list->count;
        return 0;
    case VALUE_DICT:
        *ret_count = value->dict->count;
        return 0;
    case VALUE_RANGE:
        *ret_count = value->range->count;
        return 0;
    default:
        return jinja_fail(ev, -EINVAL, "object of type '%s' has no len()", jinja_type_name(value));
    }
}

int jinja_vec_push(struct jinja_eval *ev, struct jinja_vec *vec, const struct value *value)
{
    if (vec->count == vec->capacity) {
        uint32_t capacity = vec->capacity ? vec->capacity * 2 : 8;
        struct value *values = jinja_alloc(ev, capacity * sizeof(*values));
        if (values == NULL)
            return ev->code;
        if (vec->count > 0)
            memcpy(values, vec->values, vec->count * sizeof(*values));
        vec->values = values;
        vec->capacity = capacity;
    }
    vec->values[vec->count++] = *value;
    return 0;
}

int jinja_make_list(struct jinja_eval *ev, enum value_type type, struct value *values,
                    uint32_t count, struct value *ret)
{
    struct jinja_list *list = jinja_alloc(ev, sizeof(*list));
    if (list == NULL)
        return ev->code;
    *list = (struct jinja_list){.values = values, .count = count};
    *ret = (struct value){.type = (uint8_t)type, .list = list};
    return 0;
}

int jinja_make_undefined(struct jinja_eval *ev, const char *object, const struct jinja_str *name,
                         int64_t index, struct value *ret)
{
    struct jinja_undefined *undefined = jinja_alloc(ev, sizeof(*undefined));
    if (undefined == NULL)
        return ev->code;
    *undefined = (struct jinja_undefined){.object = object, .name = name, .index = index};
    *ret = (struct value){.type = VALUE_UNDEFINED, .undefined = undefined};
    return 0;
}

static int iterate_string(struct jinja_eval *ev, struct jinja_str *string, struct jinja_vec *ret)
{
    const char *data = jinja_str_data(ev, string);
    if (data == NULL)
        return ev->code;
    for (uint32_t at = 0; at < string->bytes;) {
        uint32_t bytes;
        (void)jinja_utf8_decode(data + at, data + string->bytes, &bytes);
        struct jinja_str *piece = jinja_str_sub(ev, string, at, at + bytes);
        if (piece == NULL)
            return ev->code;
        piece->markup = piece->markup && piece == string; /* letters of Markup are plain str */
        struct value item = jinja_string(piece);
        if (jinja_vec_push(ev, ret, &item) < 0)
            return ev->code;
        at += bytes;
    }
    return 0;
}

int jinja_iterate(struct jinja_eval *ev, const struct value *value, struct jinja_vec *ret)
{
    struct value item;
    *ret = (struct jinja_vec){0};
    switch ((enum value_type)value->type) {
    case VALUE_UNDEFINED:
        return 0;
    case VALUE_STRING:
        return iterate_string(ev, value->string, ret);
    case VALUE_LIST:
    case VALUE_TUPLE:
    case VALUE_VIEW:
        *ret = (struct jinja_vec){value->list->values, value->list->count, value->list->count};
        return 0;
    case VALUE_ITERATOR:
        ret->count = ret->capacity = value->list->count - value->list->at;
        if (ret->count > 0)
            ret->values = value->list->values + value->list->at;
        value->list->at = value->list->count;
        return 0;
    case VALUE_DICT:
        for (uint32_t i = 0; i < value->dict->count; i++) {
            if (jinja_vec_push(ev, ret, &value->dict->entries[i].key) < 0)
                return ev->code;
        }
        return 0;
    case VALUE_RANGE:
        for (uint32_t i = 0; i < value->range->count; i++) {
            item = jinja_int(value->range->start + value->range->step * (int64_t)i);
            if (jinja_vec_push(ev, ret, &item) < 0)
                return ev->code;
        }
        return 0;
    default:
        return jinja_fail(ev, -EINVAL, "'%s' object is not iterable", jinja_type_name(value));
    }
}

static int equal_lists(struct jinja_eval *ev, const struct jinja_list *a,
                       const struct jinja_list *b, bool *ret)
{
    *ret = a->count == b->count;
    if (*ret && jinja_charge(ev, a->count) < 0)
        return ev->code;
    for (uint32_t i = 0; *ret && i < a->count && a->values != b->values; i++) {
        int r = jinja_equal(ev, &a->values[i], &b->values[i], ret);
        if (r < 0)
            return r;
    }
    return 0;
}

static int equal_dicts(struct jinja_eval *ev, const struct jinja_dict *a,
                       const struct jinja_dict *b, bool *ret)
{
    *ret = a->count == b->count;
    if (*ret && jinja_charge(ev, a->count) < 0)
        return ev->code;
    for (uint32_t i = 0; *ret && i < a->count; i++) {
        const struct value *other;
        int r = jinja_dict_get(ev, b, &a->entries[i].key, &other);
        if (r < 0)
            return r;
        *ret = other != NULL;
        if (*ret)
            r = jinja_equal(ev, &a->entries[i].value, other, ret);
        if (r < 0)
            return r;
    }
    return 0;
}

static int equal_strings(struct jinja_eval *ev, struct jinja_str *a, struct jinja_str *b, bool *ret)
{
    *ret = a == b;
    if (a == b || a->bytes != b->bytes)
        return 0;
    const char *x = jinja_str_data(ev, a);
    const char *y = jinja_str_data(ev, b);
    if (x == NULL || y == NULL)
        return ev->code;
    *ret = memcmp(x, y, a->bytes) == 0;
    return jinja_charge(ev, a->bytes / 64);
}

static int equal_containers(struct jinja_eval *ev, const struct value *a, const struct value *b,
                            bool *ret)
{
    int r = jinja_enter(ev);
    if (r < 0)
        return r;
    switch ((enum value_type)a->type) {
    case VALUE_STRING:
        r = equal_strings(ev, a->string, b->string, ret);
        break;
    case VALUE_LIST:
    case VALUE_TUPLE:
        r = equal_lists(ev, a->list, b->list, ret);
        break;
    case VALUE_DICT:
        r = a->dict == b->dict ? 0 : equal_dicts(ev, a->dict, b->dict, ret);
        *ret = a->dict == b->dict ? true : *ret;
        break;
    case VALUE_RANGE:
        *ret = a->range->count == b->range->count &&
               (a->range->count == 0 || a->range->start == b->range->start) &&
               (a->range->count <= 1 || a->range->step == b->range->step);
        break;
    case VALUE_VIEW:
        r = a->list->kind == b->list->kind && a->list->kind != LIST_VALUES
                ? equal_lists(ev, a->list, b->list, ret)
                : 0;
        break;
    default:
        *ret = a->list == b->list; /* identity: any member of the union will do */
        break;
    }
    jinja_leave(ev);
    return r;
}

int jinja_equal(struct jinja_eval *ev, const struct value *a, const struct value *b, bool *ret)
{
    *ret = false;
    if (jinja_is_number(a) && jinja_is_number(b)) {
        if (jinja_is_integer(a) && jinja_is_integer(b))
            *ret = jinja_as_int(a) == jinja_as_int(b);
        else
            *ret = (long double)(jinja_is_integer(a) ? (long double)jinja_as_int(a)
                                                     : (long double)a->number) ==
                   (jinja_is_integer(b) ? (long double)jinja_as_int(b) : (long double)b->number);
        return 0;
    }
    if (a->type != b->type)
        return 0;
    if (a->type == VALUE_NONE || a->type == VALUE_UNDEFINED || a->type == VALUE_MISSING) {
        *ret = true;
        return 0;
    }
    return equal_containers(ev, a, b, ret);
}

static int compare_strings(struct jinja_eval *ev, struct jinja_str *a, struct jinja_str *b,
                           int *ret_order)
{
    const char *x = jinja_str_data(ev, a);
    const char *y = jinja_str_data(ev, b);
    if (x == NULL || y == NULL)
        return ev->code;
    uint32_t common = a->bytes < b->bytes ? a->bytes : b->bytes;
    int order = memcmp(x, y, common); /* UTF-8 sorts like code points */
    if (order == 0)
        order = a->bytes < b->bytes ? -1 : a->bytes > b->bytes;
    *ret_order = order < 0 ? -1 : order > 0;
    return jinja_charge(ev, common / 64);
}

static int compare_lists(struct jinja_eval *ev, const struct jinja_list *a,
                         const struct jinja_list *b, const char *op, int *ret_order)
{
    int r = jinja_enter(ev);
    uint32_t common = a->count < b->count ? a->count : b->count;
    *ret_order = a->count < b->count ? -1 : a->count > b->count;
    if (r >= 0)
        r = jinja_charge(ev, common);
    for (uint32_t i = 0; r >= 0 && i < common; i++) {
        bool equal;
        r = jinja_equal(ev, &a->values[i], &b->values[i], &equal);
        if (r < 0 || equal)
            continue;
        r = jinja_compare(ev, &a->values[i], &b->values[i], op, ret_order);
        break;
    }
    if (r < 0)
        return r;
    jinja_leave(ev);
    return 0;
}

int jinja_compare(struct jinja_eval *ev, const struct value *a, const struct value *b,
                  const char *op, int *ret_order)
{
    if (jinja_is_number(a) && jinja_is_number(b)) {
        long double x = jinja_is_integer(a) ? (long double)jinja_as_int(a) : (long double)a->number;
        long double y = jinja_is_integer(b) ? (long double)jinja_as_int(b) : (long double)b->number;
        *ret_order = x < y ? -1 : x > y ? 1 : x == y ? 0 : 2;
        return 0;
    }
    if (a->type == VALUE_STRING && b->type == VALUE_STRING)
        return compare_strings(ev, a->string, b->string, ret_order);
    if (a->type == b->type && (a->type == VALUE_LIST || a->type == VALUE_TUPLE))
        return compare_lists(ev, a->list, b->list, op, ret_order);
    if (a->type == VALUE_UNDEFINED)
        return jinja_fail_undefined(ev, a);
    if (b->type == VALUE_UNDEFINED)
        return jinja_fail_undefined(ev, b);
    return jinja_fail(ev, -EINVAL, "'%s' not supported between instances of '%s' and '%s'", op,
                      jinja_type_name(a), jinja_type_name(b));
}

uint64_t jinja_hash_bytes(const char *data, size_t bytes) /* FNV-1a, 64 bits */
{
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ (unsigned char)data[i]) * 1099511628211u;
    return hash;
}

bool jinja_hashable(const struct value *value, int depth)
{
    if (value->type == VALUE_LIST || value->type == VALUE_DICT || value->type == VALUE_VIEW)
        return false;
    if (value->type != VALUE_TUPLE)
        return true;
    if (depth > HASH_DEPTH_MAX)
        return false;
    for (uint32_t i = 0; i < value->list->count; i++) {
        if (!jinja_hashable(&value->list->values[i], depth + 1))
            return false;
    }
    return true;
}

/* Equal values hash equal: numbers by their value as a double. Strings must be flat. */
static uint64_t hash_value(const struct value *value)
{
    uint64_t hash = value->type;
    double number;
    switch ((enum value_type)value->type) {
    case VALUE_BOOL:
    case VALUE_INT:
    case VALUE_FLOAT:
        number = jinja_as_double(value) + 0.0; /* no -0.0 */
        return jinja_hash_bytes((const char *)&number, sizeof(number));
    case VALUE_STRING:
        ASSERT(value->string->data != NULL);
        return jinja_hash_bytes(value->string->data, value->string->bytes);
    case VALUE_TUPLE:
        for (uint32_t i = 0; i < value->list->count; i++)
            hash = hash * 31 + hash_value(&value->list->values[i]);
        return hash;
    case VALUE_NONE:
    case VALUE_UNDEFINED:
        return hash;
    default:
        return (uint64_t)(uintptr_t)value->list;
    }
}

static int flatten_key(struct jinja_eval *ev, const struct value *key)
{
    if (key->type == VALUE_STRING && jinja_str_data(ev, key->string) == NULL)
        return ev->code;
    if (key->type == VALUE_TUPLE) {
        for (uint32_t i = 0; i < key->list->count; i++) {
            if (flatten_key(ev, &key->list->values[i]) < 0)
                return ev->code;
        }
    }
    return 0;
}

static int prepare_key(struct jinja_eval *ev, const struct value *key, uint64_t *ret_hash)
{
    if (!jinja_hashable(key, 0))
        return jinja_fail(ev, -EINVAL, "unhashable type: '%s'", jinja_type_name(key));
    if (flatten_key(ev, key) < 0)
        return ev->code;
    *ret_hash = hash_value(key);
    return key->type == VALUE_STRING ? jinja_charge(ev, key->string->bytes / 16) : 0;
}

struct jinja_dict *jinja_dict_new(struct jinja_eval *ev, uint32_t capacity)
{
    struct jinja_dict *dict = jinja_alloc(ev, sizeof(*dict));
    if (dict == NULL)
        return NULL;
    *dict = (struct jinja_dict){.capacity = capacity};
    if (capacity > 0) {
        dict->entries = jinja_alloc(ev, capacity * sizeof(*dict->entries));
        if (dict->entries == NULL)
            return NULL;
    }
    return dict;
}

/* The entry of `key`, or -1; the caller has flattened and hashed it. */
static int find_entry(struct jinja_eval *ev, const struct jinja_dict *dict, const struct value *key,
                      uint64_t hash, int64_t *ret_at)
{
    uint32_t mask = dict->index_size - 1;
    uint32_t probe = (uint32_t)(hash & mask);
    bool equal;
    *ret_at = -1;
    for (uint32_t i = 0;; i++, probe = (probe + 1) & mask) {
        uint32_t at = i;
        if (dict->index != NULL) {
            if (dict->index[probe] == 0)
                return 0;
            at = dict->index[probe] - 1;
        } else if (i == dict->count) {
            return 0;
        }
        if (dict->entries[at].hash != hash)
            continue;
        int r = jinja_equal(ev, &dict->entries[at].key, key, &equal);
        if (r < 0)
            return r;
        if (equal) {
            *ret_at = at;
            return 0;
        }
    }
}

static void index_entry(struct jinja_dict *dict, uint32_t at)
{
    uint32_t mask = dict->index_size - 1;
    uint32_t probe = (uint32_t)(dict->entries[at].hash & mask);
    while (dict->index[probe] != 0)
        probe = (probe + 1) & mask;
    dict->index[probe] = at + 1;
}

static int grow_dict(struct jinja_eval *ev, struct jinja_dict *dict)
{
    if (dict->count == dict->capacity) {
        uint32_t capacity = dict->capacity ? dict->capacity * 2 : 4;
        struct dict_entry *entries = jinja_alloc(ev, capacity * sizeof(*entries));
        if (entries == NULL)
            return ev->code;
        if (dict->count > 0)
            memcpy(entries, dict->entries, dict->count * sizeof(*entries));
        dict->entries = entries;
        dict->capacity = capacity;
    }
    if (dict->count >= DICT_LINEAR && dict->count * 2 >= dict->index_size) {
        uint32_t size = dict->index_size ? dict->index_size * 4 : DICT_LINEAR * 4;
        uint32_t *index = jinja_alloc(ev, size * sizeof(*index));
        if (index == NULL)
            return ev->code;
        memset(index, 0, size * sizeof(*index));
        dict->index = index;
        dict->index_size = size;
        for (uint32_t i = 0; i < dict->count; i++)
            index_entry(dict, i);
    }
    return 0;
}

int jinja_dict_set(struct jinja_eval *ev, struct jinja_dict *dict, const struct value *key,
                   const struct value *value)
{
    uint64_t hash;
    int64_t at;
    int r = prepare_key(ev, key, &hash);
    if (r >= 0)
        r = find_entry(ev, dict, key, hash, &at);
    if (r < 0)
        return r;
    if (at >= 0) {
        dict->entries[at].value = *value; /* the first key stays, as in Python */
        return 0;
    }
    r = grow_dict(ev, dict);
    if (r < 0)
        return r;
    dict->entries[dict->count] = (struct dict_entry){*key, *value, hash};
    dict->count++;
    if (dict->index != NULL)
        index_entry(dict, dict->count - 1);
    return 0;
}

int jinja_dict_get(struct jinja_eval *ev, const struct jinja_dict *dict, const struct value *key,
                   const struct value **ret_value)
{
    uint64_t hash;
    int64_t at;
    int r = prepare_key(ev, key, &hash);
    if (r >= 0)
        r = find_entry(ev, dict, key, hash, &at);
    if (r < 0)
        return r;
    *ret_value = at < 0 ? NULL : &dict->entries[at].value;
    return 0;
}

const struct value *jinja_dict_get_str(const struct jinja_dict *dict, const char *key,
                                       uint32_t bytes)
{
    uint32_t mask = dict->index_size - 1;
    uint32_t probe = dict->index ? (uint32_t)(jinja_hash_bytes(key, bytes) & mask) : 0;
    for (uint32_t i = 0;; i++, probe = (probe + 1) & mask) {
        uint32_t at = i;
        if (dict->index != NULL) {
            if (dict->index[probe] == 0)
                return NULL;
            at = dict->index[probe] - 1;
        } else if (i == dict->count) {
            return NULL;
        }
        const struct value *own = &dict->entries[at].key;
        if (own->type == VALUE_STRING && own->string->bytes == bytes &&
            memcmp(own->string->data, key, bytes) == 0)
            return &dict->entries[at].value;
    }
}
