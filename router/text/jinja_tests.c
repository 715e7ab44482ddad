/* jinja_tests.c - `x is NAME`: the table of tests. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "router/text/jinja_eval.h"
#include "router/text/jinja_methods.h"
#include "router/text/jinja_utf8.h"

static int answer(struct value *ret, bool holds)
{
    *ret = jinja_bool(holds);
    return 0;
}

static int test_defined(struct jinja_eval *ev, const struct value *self,
                        const struct jinja_args *args, struct value *ret)
{
    return answer(ret, self->type != VALUE_UNDEFINED);
}

static int test_undefined(struct jinja_eval *ev, const struct value *self,
                          const struct jinja_args *args, struct value *ret)
{
    return answer(ret, self->type == VALUE_UNDEFINED);
}

static int test_none(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                     struct value *ret)
{
    return answer(ret, self->type == VALUE_NONE);
}

static int test_boolean(struct jinja_eval *ev, const struct value *self,
                        const struct jinja_args *args, struct value *ret)
{
    return answer(ret, self->type == VALUE_BOOL);
}

static int test_true(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                     struct value *ret)
{
    return answer(ret, self->type == VALUE_BOOL && self->boolean);
}

static int test_false(struct jinja_eval *ev, const struct value *self,
                      const struct jinja_args *args, struct value *ret)
{
    return answer(ret, self->type == VALUE_BOOL && !self->boolean);
}

static int test_integer(struct jinja_eval *ev, const struct value *self,
                        const struct jinja_args *args, struct value *ret)
{
    return answer(ret, self->type == VALUE_INT);
}

static int test_float(struct jinja_eval *ev, const struct value *self,
                      const struct jinja_args *args, struct value *ret)
{
    return answer(ret, self->type == VALUE_FLOAT);
}

static int test_number(struct jinja_eval *ev, const struct value *self,
                       const struct jinja_args *args, struct value *ret)
{
    return answer(ret, jinja_is_number(self));
}

static int test_string(struct jinja_eval *ev, const struct value *self,
                       const struct jinja_args *args, struct value *ret)
{
    return answer(ret, self->type == VALUE_STRING);
}

static int test_mapping(struct jinja_eval *ev, const struct value *self,
                        const struct jinja_args *args, struct value *ret)
{
    return answer(ret, self->type == VALUE_DICT);
}

static int test_sequence(struct jinja_eval *ev, const struct value *self,
                         const struct jinja_args *args, struct value *ret)
{
    return answer(ret, self->type == VALUE_UNDEFINED || self->type == VALUE_STRING ||
                           self->type == VALUE_LIST || self->type == VALUE_TUPLE ||
                           self->type == VALUE_DICT || self->type == VALUE_RANGE);
}

static int test_iterable(struct jinja_eval *ev, const struct value *self,
                         const struct jinja_args *args, struct value *ret)
{
    return answer(ret, self->type == VALUE_UNDEFINED ||
                           (self->type >= VALUE_STRING && self->type <= VALUE_RANGE) ||
                           self->type == VALUE_LOOP);
}

static int test_callable(struct jinja_eval *ev, const struct value *self,
                         const struct jinja_args *args, struct value *ret)
{
    return answer(ret, self->type == VALUE_UNDEFINED || self->type == VALUE_MACRO ||
                           self->type == VALUE_FUNCTION || self->type == VALUE_METHOD ||
                           self->type == VALUE_LOOP || self->type == VALUE_JOINER);
}

static int test_escaped(struct jinja_eval *ev, const struct value *self,
                        const struct jinja_args *args, struct value *ret)
{
    return answer(ret, self->type == VALUE_STRING && self->string->markup);
}

static int test_filter(struct jinja_eval *ev, const struct value *self,
                       const struct jinja_args *args, struct value *ret)
{
    return answer(ret, self->type == VALUE_STRING &&
                           jinja_filter_find(self->string->data, self->string->bytes) != NULL);
}

static int test_test(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                     struct value *ret)
{
    return answer(ret, self->type == VALUE_STRING &&
                           jinja_test_find(self->string->data, self->string->bytes) != NULL);
}

/* self % by == wanted */
static int remainder_is(struct jinja_eval *ev, const struct value *self, const struct value *by,
                        int64_t wanted, struct value *ret)
{
    struct value rest;
    const struct value expected = jinja_int(wanted);
    bool equal;
    if (self->type == VALUE_STRING)
        return jinja_fail(ev, -EINVAL, "not all arguments converted during string formatting");
    int r = jinja_binary(ev, OP_MOD, self, by, &rest);
    if (r >= 0)
        r = jinja_equal(ev, &rest, &expected, &equal);
    return r < 0 ? r : answer(ret, equal);
}

static int test_odd(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                    struct value *ret)
{
    const struct value two = jinja_int(2);
    return remainder_is(ev, self, &two, 1, ret);
}

static int test_even(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                     struct value *ret)
{
    const struct value two = jinja_int(2);
    return remainder_is(ev, self, &two, 0, ret);
}

static int test_divisibleby(struct jinja_eval *ev, const struct value *self,
                            const struct jinja_args *args, struct value *ret)
{
    return remainder_is(ev, self, &args->values[0], 0, ret);
}

/* str.isupper, str.islower: all letters that have a case, and at least one. */
static int test_case(struct jinja_eval *ev, const struct value *self, bool upper, struct value *ret)
{
    struct jinja_str *text;
    uint32_t bytes;
    bool any = false;
    int r = jinja_to_str(ev, self, &text);
    if (r < 0 || jinja_charge(ev, text->bytes / 4) < 0)
        return ev->code;
    for (uint32_t at = 0; at < text->bytes; at += bytes) {
        uint32_t c = jinja_utf8_decode(text->data + at, text->data + text->bytes, &bytes);
        if (upper ? jinja_is_lower(c) : jinja_is_upper(c))
            return answer(ret, false);
        any = any || (upper ? jinja_is_upper(c) : jinja_is_lower(c));
    }
    return answer(ret, any);
}

int jinja_test_upper(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                     struct value *ret)
{
    return test_case(ev, self, true, ret);
}

int jinja_test_lower(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                     struct value *ret)
{
    return test_case(ev, self, false, ret);
}

static int test_sameas(struct jinja_eval *ev, const struct value *self,
                       const struct jinja_args *args, struct value *ret)
{
    const struct value *other = &args->values[0];
    bool equal = self->type == other->type;
    int r = 0;
    if (equal && self->type >= VALUE_LIST)
        equal = self->list == other->list;
    else if (equal)
        r = jinja_equal(ev, self, other, &equal);
    return r < 0 ? r : answer(ret, equal);
}

static int test_in(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                   struct value *ret)
{
    bool found;
    int r = jinja_contains(ev, self, &args->values[0], &found);
    return r < 0 ? r : answer(ret, found);
}

static int test_eq(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                   struct value *ret)
{
    bool equal;
    int r = jinja_equal(ev, self, &args->values[0], &equal);
    return r < 0 ? r : answer(ret, equal);
}

static int test_ne(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                   struct value *ret)
{
    bool equal;
    int r = jinja_equal(ev, self, &args->values[0], &equal);
    return r < 0 ? r : answer(ret, !equal);
}

static int test_gt(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                   struct value *ret)
{
    int order;
    int r = jinja_compare(ev, self, &args->values[0], ">", &order);
    return r < 0 ? r : answer(ret, order == 1);
}

static int test_ge(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                   struct value *ret)
{
    int order;
    int r = jinja_compare(ev, self, &args->values[0], ">=", &order);
    return r < 0 ? r : answer(ret, order == 1 || order == 0);
}

static int test_lt(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                   struct value *ret)
{
    int order;
    int r = jinja_compare(ev, self, &args->values[0], "<", &order);
    return r < 0 ? r : answer(ret, order == -1);
}

static int test_le(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                   struct value *ret)
{
    int order;
    int r = jinja_compare(ev, self, &args->values[0], "<=", &order);
    return r < 0 ? r : answer(ret, order == -1 || order == 0);
}

const struct jinja_callable *jinja_test_find(const char *name, size_t bytes)
{
    static const struct jinja_callable tests[] = {
        {"defined", test_defined, 0, 0, 0, {NULL}},
        {"undefined", test_undefined, 0, 0, 0, {NULL}},
        {"none", test_none, 0, 0, 0, {NULL}},
        {"boolean", test_boolean, 0, 0, 0, {NULL}},
        {"true", test_true, 0, 0, 0, {NULL}},
        {"false", test_false, 0, 0, 0, {NULL}},
        {"integer", test_integer, 0, 0, 0, {NULL}},
        {"float", test_float, 0, 0, 0, {NULL}},
        {"number", test_number, 0, 0, 0, {NULL}},
        {"string", test_string, 0, 0, 0, {NULL}},
        {"mapping", test_mapping, 0, 0, 0, {NULL}},
        {"sequence", test_sequence, 0, 0, 0, {NULL}},
        {"iterable", test_iterable, 0, 0, 0, {NULL}},
        {"callable", test_callable, 0, 0, 0, {NULL}},
        {"escaped", test_escaped, 0, 0, 0, {NULL}},
        {"filter", test_filter, 0, 0, 0, {NULL}},
        {"test", test_test, 0, 0, 0, {NULL}},
        {"odd", test_odd, 0, 0, 0, {NULL}},
        {"even", test_even, 0, 0, 0, {NULL}},
        {"divisibleby", test_divisibleby, 0, 1, 1, {"num"}},
        {"upper", jinja_test_upper, 0, 0, 0, {NULL}},
        {"lower", jinja_test_lower, 0, 0, 0, {NULL}},
        {"sameas", test_sameas, 0, 1, 1, {"other"}},
        {"in", test_in, 0, 1, 1, {"seq"}},
        {"==", test_eq, 0, 1, 1, {"b"}},
        {"eq", test_eq, 0, 1, 1, {"b"}},
        {"equalto", test_eq, 0, 1, 1, {"b"}},
        {"!=", test_ne, 0, 1, 1, {"b"}},
        {"ne", test_ne, 0, 1, 1, {"b"}},
        {">", test_gt, 0, 1, 1, {"b"}},
        {"gt", test_gt, 0, 1, 1, {"b"}},
        {"greaterthan", test_gt, 0, 1, 1, {"b"}},
        {">=", test_ge, 0, 1, 1, {"b"}},
        {"ge", test_ge, 0, 1, 1, {"b"}},
        {"<", test_lt, 0, 1, 1, {"b"}},
        {"lt", test_lt, 0, 1, 1, {"b"}},
        {"lessthan", test_lt, 0, 1, 1, {"b"}},
        {"<=", test_le, 0, 1, 1, {"b"}},
        {"le", test_le, 0, 1, 1, {"b"}},
    };
    for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
        if (strlen(tests[i].name) == bytes && memcmp(tests[i].name, name, bytes) == 0)
            return &tests[i];
    }
    return NULL;
}
