/* One Jinja feature at a time: shared/cases/templates/jinja-features.cases.json, exact text. */
#include "template_cases.h"

static json_t *cases;

static bool case_passes(const json_t *entry)
{
    const char *expected = json_string_value(json_object_get(entry, "expected"));
    const char *name = json_string_value(json_object_get(entry, "name"));
    struct errmsg err = {""};
    struct rendered out;
    const struct render_input input = {.kwargs = json_object_get(entry, "vars")};
    int r = render_source(json_string_value(json_object_get(entry, "jinja")), &input, &out, &err);
    if (r < 0) {
        if (expected != NULL)
            printf("FAILED %s: %s\n", name, err.text);
        return expected == NULL && err.text[0] != '\0';
    }
    bool same = expected != NULL && strlen(expected) == out.text.bytes &&
                memcmp(expected, out.text.data, out.text.bytes) == 0;
    if (!same)
        printf("FAILED %s: got \"%s\", expected \"%s\"\n", name, out.text.data,
               expected ? expected : "an error");
    rendered_done(&out);
    return same;
}

static void test_every_feature_case_renders_exactly(void **state)
{
    const json_t *list = json_object_get(cases, "cases");
    size_t passed = 0;
    (void)state;
    for (size_t i = 0; i < json_array_size(list); i++)
        passed += case_passes(json_array_get(list, i));
    printf("jinja-features.cases.json: %zu of %zu\n", passed, json_array_size(list));
    assert_int_equal(json_array_size(list), 200);
    assert_int_equal(passed, 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_feature_case_renders_exactly)};
    cases = load_cases("jinja-features.cases.json");
    if (cases == NULL)
        return TEST_SKIPPED;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    json_decref(cases);
    return failed;
}
