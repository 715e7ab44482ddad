/* jinja_ops.c - operators, attributes, items and slices, as Python and Jinja's sandbox define them.
 *
 * `a.b` looks for an attribute (a method), then for an item; `a['b']` the other way round. What is
 * not there, or hidden by the sandbox, is undefined; only using it is an error.
 * Marks: arithmetic on a request's numbers keeps the mark, joined strings keep theirs. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "router/text/jinja_eval.h"
#include "router/text/jinja_utf8.h"

static const char *const op_names[] = {
    [OP_ADD] = "+",       [OP_SUB] = "-", [OP_MUL] = "*",  [OP_DIV] = "/",
    [OP_FLOORDIV] = "//", [OP_MOD] = "%", [OP_POW] = "**",
};

static int unsupported(struct jinja_eval *ev, uint8_t op, const struct value *a,
                       const struct value *b)
{
    if (a->type == VALUE_UNDEFINED)
        return jinja_fail_undefined(ev, a);
    if (b->type == VALUE_UNDEFINED)
        return jinja_fail_undefined(ev, b);
    if (op == OP_ADD &&
        (a->type == VALUE_STRING || a->type == VALUE_LIST || a->type == VALUE_TUPLE))
        return jinja_fail(ev, -EINVAL, "can only concatenate %s (not \"%s\") to %s",
                          jinja_type_name(a), jinja_type_name(b), jinja_type_name(a));
    return jinja_fail(ev, -EINVAL, "unsupported operand type(s) for %s: '%s' and '%s'",
                      op_names[op], jinja_type_name(a), jinja_type_name(b));
}

static int power(struct jinja_eval *ev, int64_t base, int64_t exponent, struct value *ret)
{
    int64_t result = 1;
    if (exponent < 0) {
        if (base == 0)
            return jinja_fail(ev, -EINVAL, "0.0 cannot be raised to a negative power");
        *ret = jinja_float(pow((double)base, (double)exponent));
        return 0;
    }
    if (base == 0 || base == 1 || base == -1) {
        *ret = jinja_int(base == -1 && exponent % 2 == 0 ? 1 : exponent == 0 ? 1 : base);
        return 0;
    }
    for (; exponent > 0; exponent--) {
        if (__builtin_mul_overflow(result, base, &result))
            return jinja_fail(ev, -EINVAL, "integer overflow in **");
    }
    *ret = jinja_int(result);
    return 0;
}

static int integer_op(struct jinja_eval *ev, uint8_t op, int64_t a, int64_t b, struct value *ret)
{
    int64_t result = 0;
    bool overflow = false;
    if ((op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD) && b == 0)
        return jinja_fail(ev, -EINVAL, "division by zero");
    switch (op) {
    case OP_ADD:
        overflow = __builtin_add_overflow(a, b, &result);
        break;
    case OP_SUB:
        overflow = __builtin_sub_overflow(a, b, &result);
        break;
    case OP_MUL:
        overflow = __builtin_mul_overflow(a, b, &result);
        break;
    case OP_FLOORDIV:
        overflow = a == INT64_MIN && b == -1;
        result = overflow ? 0 : a / b - (a % b != 0 && (a % b < 0) != (b < 0));
        break;
    case OP_MOD:
        result = b == -1 ? 0 : a % b;
        result += result != 0 && (result < 0) != (b < 0) ? b : 0;
        break;
    case OP_POW:
        return power(ev, a, b, ret);
    default:
        *ret = jinja_float((double)a / (double)b);
        return 0;
    }
    if (overflow)
        return jinja_fail(ev, -EINVAL, "integer overflow in %s", op_names[op]);
    *ret = jinja_int(result);
    return 0;
}

static int float_op(struct jinja_eval *ev, uint8_t op, double a, double b, struct value *ret)
{
    double result;
    if ((op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD) && b == 0)
        return jinja_fail(ev, -EINVAL, "float division by zero");
    switch (op) {
    case OP_ADD:
        result = a + b;
        break;
    case OP_SUB:
        result = a - b;
        break;
    case OP_MUL:
        result = a * b;
        break;
    case OP_DIV:
        result = a / b;
        break;
    case OP_POW:
        result = pow(a, b);
        if (isnan(result) || (a == 0 && b < 0))
            return jinja_fail(ev, -EINVAL, "%s cannot be computed", "**");
        break;
    default: {
        double rest = fmod(a, b);
        if (rest != 0 && (rest < 0) != (b < 0))
            rest += b;
        result = op == OP_MOD ? (rest == 0 ? copysign(0.0, b) : rest) : round((a - rest) / b);
        break;
    }
    }
    *ret = jinja_float(result);
    return 0;
}

static void set_origin(struct value *value, struct jinja_origin origin)
{
    value->source = origin.source;
    value->message = origin.message;
}

static int number_op(struct jinja_eval *ev, uint8_t op, const struct value *a,
                     const struct value *b, struct value *ret)
{
    struct value result = jinja_none();
    int r = jinja_is_integer(a) && jinja_is_integer(b)
                ? integer_op(ev, op, jinja_as_int(a), jinja_as_int(b), &result)
                : float_op(ev, op, jinja_as_double(a), jinja_as_double(b), &result);
    if (r < 0)
        return r;
    set_origin(&result, jinja_value_origin(a->source ? a : b));
    *ret = result;
    return 0;
}

static int add_strings(struct jinja_eval *ev, struct jinja_str *a, struct jinja_str *b,
                       struct value *ret)
{
    bool markup = a->markup || b->markup;
    int r = 0;
    if (markup && !a->markup)
        r = jinja_escape(ev, a, &a);
    else if (markup && !b->markup)
        r = jinja_escape(ev, b, &b);
    if (r < 0)
        return r;
    struct jinja_str *joined = jinja_str_concat(ev, a, b);
    if (joined == NULL)
        return ev->code;
    if (joined->markup != markup) { /* a fresh string; concat gives an operand back only for "" */
        struct jinja_str *copy = jinja_alloc(ev, sizeof(*copy));
        if (copy == NULL)
            return ev->code;
        *copy = *joined;
        copy->markup = markup;
        joined = copy;
    }
    *ret = jinja_string(joined);
    return 0;
}

static int add_lists(struct jinja_eval *ev, const struct value *a, const struct value *b,
                     struct value *ret)
{
    size_t count = (size_t)a->list->count + b->list->count;
    const struct jinja_origin origin = jinja_value_origin(a->source ? a : b); /* ret may be a */
    struct value *values = jinja_alloc(ev, (count + 1) * sizeof(*values));
    if (values == NULL || count > UINT32_MAX)
        return ev->code;
    if (a->list->count > 0)
        memcpy(values, a->list->values, a->list->count * sizeof(*values));
    if (b->list->count > 0)
        memcpy(values + a->list->count, b->list->values, b->list->count * sizeof(*values));
    if (jinja_charge(ev, count / 4) < 0)
        return ev->code;
    int r = jinja_make_list(ev, a->type, values, (uint32_t)count, ret);
    if (r >= 0)
        set_origin(ret, origin);
    return r;
}

/* A string of one origin, times over: copied in growing blocks. */
static int repeat_uniform(struct jinja_eval *ev, const struct jinja_str *string, size_t times,
                          struct value *ret)
{
    size_t bytes = string->bytes * times, done = string->bytes;
    char *data = jinja_alloc(ev, bytes + 1);
    if (data == NULL || jinja_charge(ev, bytes / 64) < 0)
        return ev->code;
    memcpy(data, string->data, times > 0 ? done : 0);
    while (done < bytes) {
        size_t more = done < bytes - done ? done : bytes - done;
        memcpy(data + done, data, more);
        done += more;
    }
    struct jinja_str *result =
        jinja_str_view(ev, data, bytes, (struct jinja_origin){string->source, string->message});
    if (result == NULL)
        return ev->code;
    *ret = jinja_string(result);
    return 0;
}

static int repeat_string(struct jinja_eval *ev, struct jinja_str *string, int64_t times,
                         struct value *ret)
{
    struct jinja_capture capture;
    if (times < 0 || string->bytes == 0)
        times = 0;
    if (jinja_str_data(ev, string) == NULL)
        return ev->code;
    if ((uint64_t)times > CHAT_TEMPLATE_OUTPUT_MAX ||
        (uint64_t)times * string->bytes > CHAT_TEMPLATE_OUTPUT_MAX)
        return jinja_fail(ev, -E2BIG, "text repeated %lld times passes %u bytes", (long long)times,
                          CHAT_TEMPLATE_OUTPUT_MAX);
    int r = 0;
    if (string->runs == NULL) {
        r = repeat_uniform(ev, string, (size_t)times, ret);
    } else {
        jinja_capture_begin(ev, &capture);
        for (int64_t i = 0; r >= 0 && i < times; i++) {
            r = jinja_charge(ev, 1);
            if (r >= 0)
                r = jinja_write_sub(ev, string, 0, string->bytes);
        }
        if (r >= 0)
            r = jinja_capture_end(ev, &capture, ret);
    }
    if (r >= 0)
        ret->string->markup = string->markup;
    return r;
}

static int repeat_list(struct jinja_eval *ev, const struct value *list, int64_t times,
                       struct value *ret)
{
    uint32_t items = list->list->count;
    const struct jinja_origin origin = jinja_value_origin(list);
    if (times < 0 || items == 0)
        times = 0;
    if ((uint64_t)times > CHAT_TEMPLATE_MEMORY_MAX / sizeof(struct value) ||
        (uint64_t)times * items > CHAT_TEMPLATE_MEMORY_MAX / sizeof(struct value))
        return jinja_fail(ev, -E2BIG, "a list repeated %lld times is too big", (long long)times);
    uint32_t count = (uint32_t)times * items;
    struct value *values = jinja_alloc(ev, (count + 1) * sizeof(*values));
    if (values == NULL || jinja_charge(ev, count) < 0)
        return ev->code;
    for (uint32_t i = 0; i < count; i++)
        values[i] = list->list->values[i % items];
    int r = jinja_make_list(ev, list->type, values, count, ret);
    if (r >= 0)
        set_origin(ret, origin);
    return r;
}

static bool is_sequence(const struct value *value)
{
    return value->type == VALUE_STRING || value->type == VALUE_LIST || value->type == VALUE_TUPLE;
}

static int repeat(struct jinja_eval *ev, const struct value *sequence, const struct value *times,
                  struct value *ret)
{
    if (sequence->type == VALUE_STRING)
        return repeat_string(ev, sequence->string, jinja_as_int(times), ret);
    return repeat_list(ev, sequence, jinja_as_int(times), ret);
}

int jinja_binary(struct jinja_eval *ev, uint8_t op, const struct value *a, const struct value *b,
                 struct value *ret)
{
    if (jinja_is_number(a) && jinja_is_number(b))
        return number_op(ev, op, a, b, ret);
    if (op == OP_ADD && a->type == b->type) {
        if (a->type == VALUE_STRING)
            return add_strings(ev, a->string, b->string, ret);
        if (a->type == VALUE_LIST || a->type == VALUE_TUPLE)
            return add_lists(ev, a, b, ret);
    }
    if (op == OP_MUL && is_sequence(a) && jinja_is_integer(b))
        return repeat(ev, a, b, ret);
    if (op == OP_MUL && jinja_is_integer(a) && is_sequence(b))
        return repeat(ev, b, a, ret);
    if (op == OP_MOD && a->type == VALUE_STRING)
        return jinja_percent_format(ev, a->string, b, ret);
    return unsupported(ev, op, a, b);
}

static int string_contains(struct jinja_eval *ev, const struct value *item,
                           struct jinja_str *string, bool *ret)
{
    if (item->type != VALUE_STRING)
        return jinja_fail(ev, -EINVAL, "'in <string>' requires string as left operand, not %s",
                          jinja_type_name(item));
    const char *data = jinja_str_data(ev, string);
    const char *needle = jinja_str_data(ev, item->string);
    if (data == NULL || needle == NULL)
        return ev->code;
    *ret = jinja_find(data, string->bytes, needle, item->string->bytes) != NULL;
    return jinja_charge(ev, string->bytes / 64);
}

int jinja_contains(struct jinja_eval *ev, const struct value *item, const struct value *in,
                   bool *ret)
{
    const struct value *found = NULL;
    struct jinja_vec items;
    int r;
    *ret = false;
    if (in->type == VALUE_STRING)
        return string_contains(ev, item, in->string, ret);
    if (in->type == VALUE_DICT) {
        r = jinja_dict_get(ev, in->dict, item, &found);
        *ret = found != NULL;
        return r;
    }
    if (in->type == VALUE_RANGE) {
        int64_t at;
        if (!jinja_is_integer(item) ||
            __builtin_sub_overflow(jinja_as_int(item), in->range->start, &at))
            return 0;
        *ret = at % in->range->step == 0 && at / in->range->step >= 0 &&
               at / in->range->step < (int64_t)in->range->count;
        return 0;
    }
    if (in->type != VALUE_UNDEFINED && in->type != VALUE_LIST && in->type != VALUE_TUPLE &&
        in->type != VALUE_VIEW && in->type != VALUE_ITERATOR)
        return jinja_fail(ev, -EINVAL, "argument of type '%s' is not iterable",
                          jinja_type_name(in));
    r = jinja_iterate(ev, in, &items);
    for (uint32_t i = 0; r >= 0 && !*ret && i < items.count; i++)
        r = jinja_equal(ev, &items.values[i], item, ret);
    return r < 0 ? r : jinja_charge(ev, items.count / 4);
}

static const char *object_repr(const struct value *object)
{
    switch ((enum value_type)object->type) {
    case VALUE_NONE:
        return "None";
    case VALUE_BOOL:
        return "bool object";
    case VALUE_INT:
        return "int object";
    case VALUE_FLOAT:
        return "float object";
    case VALUE_STRING:
        return "str object";
    case VALUE_LIST:
        return "list object";
    case VALUE_TUPLE:
        return "tuple object";
    case VALUE_DICT:
        return "dict object";
    case VALUE_NAMESPACE:
        return "jinja2.utils.Namespace object";
    case VALUE_LOOP:
        return "jinja2.runtime.LoopContext object";
    case VALUE_MACRO:
        return "jinja2.runtime.Macro object";
    default:
        return jinja_type_name(object);
    }
}

static int make_method(struct jinja_eval *ev, const struct value *object,
                       const struct jinja_callable *callable, struct value *ret)
{
    struct jinja_method *method = jinja_alloc(ev, sizeof(*method));
    if (method == NULL)
        return ev->code;
    *method = (struct jinja_method){*object, callable};
    *ret = (struct value){.type = VALUE_METHOD, .method = method};
    return 0;
}

/* Methods and the attributes of our own objects. *ret_found says whether there was one. */
static int get_attribute(struct jinja_eval *ev, const struct value *object,
                         const struct jinja_str *name, const struct jinja_callable *methods,
                         struct value *ret, bool *ret_found)
{
    const struct jinja_callable *method = jinja_method_match(methods, object->type);
    const struct value *found = NULL;
    *ret_found = true;
    if (method != NULL && method->call != NULL)
        return make_method(ev, object, method, ret);
    if (method != NULL) {
        int r = jinja_make_undefined(ev, object_repr(object), name, 0, ret);
        if (r >= 0)
            ret->undefined->unsafe = true;
        return r;
    }
    if (object->type == VALUE_LOOP)
        return jinja_loop_getattr(ev, object->loop, name, ret);
    if (object->type == VALUE_NAMESPACE)
        found = jinja_dict_get_str(object->dict, name->data, name->bytes);
    if (object->type == VALUE_TUPLE && object->list->kind == LIST_GROUP) {
        if (name->bytes == 7 && memcmp(name->data, "grouper", 7) == 0)
            found = &object->list->values[0];
        if (name->bytes == 4 && memcmp(name->data, "list", 4) == 0)
            found = &object->list->values[1];
    }
    if (object->type == VALUE_CYCLER && name->bytes == 7 && memcmp(name->data, "current", 7) == 0)
        found = &object->list->values[object->list->at];
    *ret_found = found != NULL;
    if (found != NULL)
        *ret = *found;
    return 0;
}

int jinja_getattr(struct jinja_eval *ev, const struct value *object, const struct jinja_str *name,
                  const struct jinja_callable *methods, struct value *ret)
{
    const struct value *found = NULL;
    bool is_attribute = false;
    if (object->type == VALUE_UNDEFINED)
        return jinja_fail_undefined(ev, object);
    if (methods != NULL || object->type > VALUE_FLOAT) {
        int r = get_attribute(ev, object, name, methods, ret, &is_attribute);
        if (r < 0 || is_attribute)
            return r;
    }
    if (object->type == VALUE_DICT) {
        found = jinja_dict_get_str(object->dict, name->data, name->bytes);
        ev->steps += name->bytes / 64;
    }
    if (found == NULL)
        return jinja_make_undefined(ev, object_repr(object), name, 0, ret);
    *ret = *found;
    return 0;
}

/* Element `at` of a sequence; false: out of range. */
static int get_element(struct jinja_eval *ev, const struct value *object, int64_t at,
                       struct value *ret, bool *ret_found)
{
    uint32_t count;
    int r = jinja_length(ev, object, &count);
    if (r < 0)
        return r;
    if (at < 0)
        at += count;
    *ret_found = at >= 0 && at < (int64_t)count;
    if (!*ret_found)
        return 0;
    if (object->type == VALUE_RANGE) {
        *ret = jinja_int(object->range->start + object->range->step * at);
        return 0;
    }
    if (object->type != VALUE_STRING) {
        *ret = object->list->values[at];
        return 0;
    }
    struct jinja_str *string = object->string;
    uint32_t bytes;
    uint32_t start = jinja_str_offset(string, (uint32_t)at);
    (void)jinja_utf8_decode(string->data + start, string->data + string->bytes, &bytes);
    struct jinja_str *piece = jinja_str_sub(ev, string, start, start + bytes);
    if (piece == NULL)
        return ev->code;
    *ret = jinja_string(piece);
    return jinja_charge(ev, start / 64);
}

static int get_item(struct jinja_eval *ev, const struct value *object, const struct value *key,
                    struct value *ret, bool *ret_found)
{
    const struct value *found = NULL;
    *ret_found = false;
    if (object->type == VALUE_DICT) {
        if (!jinja_hashable(key, 0))
            return 0;
        int r = jinja_dict_get(ev, object->dict, key, &found);
        if (r < 0 || found == NULL)
            return r;
        *ret = *found;
        *ret_found = true;
        return 0;
    }
    if ((is_sequence(object) || object->type == VALUE_RANGE) && jinja_is_integer(key))
        return get_element(ev, object, jinja_as_int(key), ret, ret_found);
    return 0;
}

int jinja_getitem(struct jinja_eval *ev, const struct value *object, const struct value *key,
                  struct value *ret)
{
    bool found;
    if (object->type == VALUE_UNDEFINED)
        return jinja_fail_undefined(ev, object);
    int r = get_item(ev, object, key, ret, &found);
    if (r < 0 || found)
        return r;
    if (key->type != VALUE_STRING)
        return jinja_make_undefined(ev, object_repr(object), NULL,
                                    jinja_is_integer(key) ? jinja_as_int(key) : 0, ret);
    if (jinja_str_data(ev, key->string) == NULL)
        return ev->code;
    r = get_attribute(ev, object, key->string,
                      jinja_method_find(key->string->data, key->string->bytes), ret, &found);
    if (r < 0 || found)
        return r;
    return jinja_make_undefined(ev, object_repr(object), key->string, 0, ret);
}

/* Python's slice.indices: where to start, by what step, how many. False: bounds are no integers. */
static bool slice_indices(const struct value bounds[3], int64_t count, int64_t *ret_start,
                          int64_t *ret_step, int64_t *ret_count)
{
    int64_t value[3];
    bool given[3];
    for (int i = 0; i < 3; i++) {
        given[i] = bounds[i].type != VALUE_MISSING && bounds[i].type != VALUE_NONE;
        if (given[i] && !jinja_is_integer(&bounds[i]))
            return false;
        value[i] = given[i] ? jinja_as_int(&bounds[i]) : 0;
    }
    int64_t step = given[2] ? value[2] : 1;
    if (step < -INT32_MAX)
        step = -INT32_MAX;
    if (step > INT32_MAX)
        step = INT32_MAX;
    int64_t low = step < 0 ? -1 : 0;
    int64_t high = step < 0 ? count - 1 : count;
    for (int i = 0; i < 2; i++) {
        bool is_start = i == 0;
        if (!given[i])
            value[i] = (step < 0) == is_start ? high : low;
        else if (value[i] < 0)
            value[i] = value[i] < low - count   ? low
                       : value[i] + count < low ? low
                                                : value[i] + count;
        else if (value[i] > high)
            value[i] = high;
    }
    *ret_start = value[0];
    *ret_step = step;
    *ret_count = 0;
    if (step > 0 && value[1] > value[0])
        *ret_count = (value[1] - value[0] + step - 1) / step;
    if (step < 0 && value[1] < value[0])
        *ret_count = (value[0] - value[1] - step - 1) / -step;
    return true;
}

static int slice_string(struct jinja_eval *ev, struct jinja_str *string, int64_t start,
                        int64_t step, int64_t count, struct value *ret)
{
    struct jinja_capture capture;
    if (step == 1) {
        uint32_t from = jinja_str_offset(string, (uint32_t)start);
        uint32_t bytes =
            string->chars == string->bytes
                ? (uint32_t)count
                : jinja_utf8_offset(string->data + from, string->bytes - from, (uint32_t)count);
        struct jinja_str *sub = jinja_str_sub(ev, string, from, from + bytes);
        if (sub == NULL)
            return ev->code;
        *ret = jinja_string(sub);
        return jinja_charge(ev, string->bytes / 64);
    }
    uint32_t *offsets = jinja_alloc(ev, ((size_t)string->chars + 1) * sizeof(*offsets));
    if (offsets == NULL || jinja_charge(ev, string->chars) < 0)
        return ev->code;
    uint32_t at = 0;
    for (uint32_t i = 0; i < string->chars; i++) {
        uint32_t bytes;
        offsets[i] = at;
        (void)jinja_utf8_decode(string->data + at, string->data + string->bytes, &bytes);
        at += bytes;
    }
    offsets[string->chars] = at;
    jinja_capture_begin(ev, &capture);
    for (int64_t i = 0, k = start; i < count; i++, k += step) {
        if (jinja_write_sub(ev, string, offsets[k], offsets[k + 1]) < 0)
            return ev->code;
    }
    int r = jinja_capture_end(ev, &capture, ret);
    if (r >= 0)
        ret->string->markup = string->markup;
    return r;
}

int jinja_slice(struct jinja_eval *ev, const struct value *object, const struct value bounds[3],
                struct value *ret)
{
    uint32_t length;
    int64_t start, step, count;
    if (object->type == VALUE_UNDEFINED)
        return jinja_fail_undefined(ev, object);
    if (!is_sequence(object) && object->type != VALUE_RANGE)
        return jinja_fail(ev, -EINVAL, "'%s' object is not subscriptable", jinja_type_name(object));
    int r = jinja_length(ev, object, &length);
    if (r < 0)
        return r;
    if (!slice_indices(bounds, length, &start, &step, &count))
        return jinja_fail(ev, -EINVAL, "slice indices must be integers or None");
    if (step == 0)
        return jinja_fail(ev, -EINVAL, "slice step cannot be zero");
    if (object->type == VALUE_STRING)
        return slice_string(ev, object->string, start, step, count, ret);
    if (object->type == VALUE_RANGE) {
        struct jinja_range *range = jinja_alloc(ev, sizeof(*range));
        if (range == NULL)
            return ev->code;
        *range = *object->range; /* computed only where the elements exist: no overflow */
        range->start += count > 0 ? range->step * start : 0;
        range->step *= count > 1 ? step : 1;
        range->count = (uint32_t)count;
        *ret = (struct value){.type = VALUE_RANGE, .range = range};
        return 0;
    }
    struct value *values = object->list->values ? object->list->values + start : NULL;
    if (step != 1 || count == 0) {
        values = jinja_alloc(ev, (size_t)(count + 1) * sizeof(*values));
        if (values == NULL || jinja_charge(ev, (uint64_t)count / 4) < 0)
            return ev->code;
        for (int64_t i = 0; i < count; i++)
            values[i] = object->list->values[start + i * step];
    }
    r = jinja_make_list(ev, object->type, values, (uint32_t)count, ret);
    if (r >= 0)
        set_origin(ret, jinja_value_origin(object));
    return r;
}
