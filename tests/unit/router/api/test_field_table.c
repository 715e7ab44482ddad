/* test_field_table.c - every row of the field table, whichever there are: a wrong type, a number
 * below and above its range, null. A new row is tried without a line here. */
#include <cmocka.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/number.h"
#include "router/api/fields.h"
#include "router/api/request_json.h"

struct kind {
    enum api_kind kind;
    const char *body;  /* of a request that is fine, without the braces */
    const char *owner; /* the field in it */
};

static const struct kind kinds[] = {
    {API_CHAT, "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]", "messages"},
    {API_COMPLETIONS, "\"prompt\":\"hi\"", "prompt"},
    {API_TOKENIZE, "\"prompt\":\"hi\"", "prompt"},
    {API_DETOKENIZE, "\"tokens\":[5]", "tokens"},
};
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

static const char *const values[] = {"true", "7.5", "\"x\"", "[true]", "{\"a\":[]}"};
#define VALUES (sizeof(values) / sizeof(values[0]))

/* 0; else the error's param is in `param`. */
static int try_value(const struct kind *kind, const char *name, const char *value, char *param,
                     size_t param_max)
{
    struct api_request request;
    struct api_error error = {.status = 0};
    struct arena arena;
    char body[1600];

    bool own = strcmp(name, kind->owner) == 0;
    (void)snprintf(body, sizeof(body), "{%s%s\"%s\":%s}", own ? "" : kind->body, own ? "" : ",",
                   name, value);
    arena_init(&arena, 1 << 20);
    int r = request_json_parse(kind->kind, body, strlen(body), &arena, &request, &error);
    if (r < 0) {
        assert_int_equal(error.status, 400);
        assert_true(strlen(error.message) > 10);
        (void)snprintf(param, param_max, "%s", error.param);
    }
    api_request_done(&request);
    arena_done(&arena);
    return r;
}

static void assert_refused(const struct kind *kind, const struct field *field, const char *value)
{
    char param[API_PARAM_MAX] = "";
    if (try_value(kind, field->name, value, param, sizeof(param)) == 0)
        fail_msg("'%s': %s was taken", field->name, value);
    if (strcmp(param, field->name) != 0)
        fail_msg("'%s': %s was refused as '%s'", field->name, value, param);
}

/* Of which types is it? A bit per entry of `values`; what is refused must be refused by name. */
static unsigned taken_types(const struct kind *kind, const struct field *field)
{
    unsigned taken = 0;
    for (size_t i = 0; i < VALUES; i++) {
        char param[API_PARAM_MAX] = "";
        if (try_value(kind, field->name, values[i], param, sizeof(param)) == 0)
            taken |= 1u << i;
        else if (strncmp(param, field->name, strlen(field->name)) != 0)
            fail_msg("'%s': %s was refused as '%s'", field->name, values[i], param);
    }
    return taken;
}

static void check_types(const struct kind *kind, const struct field *field)
{
    unsigned taken = taken_types(kind, field);

    switch (field->type) {
    case FIELD_DOUBLE:
        assert_int_equal(taken & ~2u, 0);
        break;
    case FIELD_U32:
    case FIELD_I64:
        assert_int_equal(taken, 0);
        break;
    case FIELD_BOOL:
        assert_int_equal(taken & ~1u, 0);
        break;
    case FIELD_TEXT:
        assert_int_equal(taken, 1u << 2);
        break;
    case FIELD_VALUE:
    case FIELD_IGNORED:
        assert_int_equal(taken, (1u << VALUES) - 1);
        break;
    case FIELD_REFUSED:
        assert_int_equal(taken, 0);
        break;
    case FIELD_CUSTOM:
        if (taken == (1u << VALUES) - 1)
            fail_msg("'%s' takes everything", field->name);
    }
}

/* The numbers next to the range's ends, for rows that have one. */
static bool check_range(const struct kind *kind, const struct field *field)
{
    double step = field->type == FIELD_DOUBLE ? 0.5 : 1;
    char number[NUMBER_TEXT_MAX];

    if (field->type == FIELD_TEXT || field->min >= field->max)
        return false;
    if (field->max >= 9e18) { /* past int64 there is no JSON integer */
        assert_refused(kind, field, "1e300");
        assert_refused(kind, field, "-1e300");
        return true;
    }
    number_format(field->min - step, number);
    assert_refused(kind, field, number);
    number_format(field->max + step, number);
    assert_refused(kind, field, number);
    assert_refused(kind, field, "1e300");
    assert_refused(kind, field, "-1e300");
    if (field->above_min) {
        number_format(field->min, number);
        assert_refused(kind, field, number);
    }
    return true;
}

static void check_text(const struct kind *kind, const struct field *field)
{
    char value[1200];
    size_t bytes = (size_t)field->max + 1;

    assert_true(bytes + 3 < sizeof(value));
    assert_refused(kind, field, "\"a\\u0000b\"");
    (void)snprintf(value, sizeof(value), "\"%0*d\"", (int)bytes, 0);
    assert_refused(kind, field, value);
    (void)snprintf(value, sizeof(value), "\"%0*d\"", (int)bytes - 1, 0);
    assert_int_equal(try_value(kind, field->name, value, value, sizeof(value)), 0);
}

static void test_every_row_refuses_what_is_not_its_own(void **state)
{
    unsigned rows = 0, ranges = 0;
    (void)state;

    for (const struct field *field = request_json_table(); field->name; field++) {
        for (size_t k = 0; k < KINDS; k++) {
            if (!(field->kinds & 1u << kinds[k].kind))
                continue;
            check_types(&kinds[k], field);
            if (field->type == FIELD_TEXT)
                check_text(&kinds[k], field);
            ranges += check_range(&kinds[k], field);
            rows++;
        }
    }
    assert_true(rows > 100 && ranges > 25);
    print_message("%u rows by endpoint, %u ranges\n", rows, ranges);
}

static void test_null_is_absent_in_every_row_that_may_be(void **state)
{
    (void)state;
    for (const struct field *field = request_json_table(); field->name; field++) {
        for (size_t k = 0; k < KINDS; k++) {
            char param[API_PARAM_MAX];
            if (!(field->kinds & 1u << kinds[k].kind) || strcmp(field->name, kinds[k].owner) == 0)
                continue;
            if (try_value(&kinds[k], field->name, "null", param, sizeof(param)) < 0)
                fail_msg("'%s' null was refused as '%s'", field->name, param);
        }
    }
}

static void test_no_name_stands_twice_for_an_endpoint(void **state)
{
    (void)state;
    for (const struct field *a = request_json_table(); a->name; a++) {
        for (const struct field *b = a + 1; b->name; b++) {
            if (strcmp(a->name, b->name) == 0)
                assert_int_equal(a->kinds & b->kinds, 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_row_refuses_what_is_not_its_own),
        cmocka_unit_test(test_null_is_absent_in_every_row_that_may_be),
        cmocka_unit_test(test_no_name_stands_twice_for_an_endpoint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
