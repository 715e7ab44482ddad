/* Published chat templates against the real engine: shared/cases/templates/NAME.cases.json.
 * Exact text; a refusal of the template is its own sentence; a type error is any clean error. */
#include "template_cases.h"

static size_t files, total, total_passed;

static bool error_passes(const json_t *entry, const char *name, const char *text)
{
    const char *expected = json_string_value(json_object_get(entry, "error"));
    if (expected == NULL) {
        printf("FAILED %s: %s\n", name, text);
        return false;
    }
    if (json_is_true(json_object_get(entry, "raised_by_template")) && strcmp(expected, text) != 0) {
        printf("FAILED %s: raised \"%s\", expected \"%s\"\n", name, text, expected);
        return false;
    }
    return text[0] != '\0';
}

static bool case_passes(const struct chat_template *template, const json_t *entry)
{
    const char *name = json_string_value(json_object_get(entry, "name"));
    const json_t *expected = json_object_get(entry, "expected");
    const struct render_input input = case_input(entry);
    struct errmsg err = {""};
    struct rendered out;
    int r = chat_template_render(template, &input, &out, NULL, &err);
    if (r < 0)
        return error_passes(entry, name, err.text);
    bool same = json_is_string(expected) && json_string_length(expected) == out.text.bytes &&
                memcmp(json_string_value(expected), out.text.data, out.text.bytes) == 0;
    if (!same)
        printf("FAILED %s: got\n%s\nexpected\n%s\n", name, out.text.data,
               json_is_string(expected) ? json_string_value(expected) : "an error");
    rendered_done(&out);
    return same;
}

static void run_file(const char *file)
{
    char name[200];
    size_t passed = 0;
    json_t *cases = load_cases(file);
    assert_non_null(cases);
    (void)snprintf(name, sizeof(name), "%.*s", (int)strcspn(file, ""), file);
    *strstr(name, ".cases.json") = '\0';
    struct chat_template *template = load_template(name);
    assert_non_null(template);
    for (size_t i = 0; i < json_array_size(cases); i++)
        passed += case_passes(template, json_array_get(cases, i));
    printf("%s: %zu of %zu\n", file, passed, json_array_size(cases));
    files++;
    total += json_array_size(cases);
    total_passed += passed;
    chat_template_free(template);
    json_decref(cases);
}

static void test_published_templates_render_exactly(void **state)
{
    struct dirent **entries;
    (void)state;
    int count = scandir(CASES_DIR, &entries, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        if (strstr(entries[i]->d_name, ".cases.json") != NULL &&
            strncmp(entries[i]->d_name, "jinja-features", 14) != 0)
            run_file(entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
    printf("all templates: %zu of %zu in %zu files\n", total_passed, total, files);
    assert_int_equal(files, 16);
    assert_int_equal(total, 328);
    assert_int_equal(total_passed, total);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_published_templates_render_exactly)};
    DIR *dir = opendir(CASES_DIR);
    if (dir == NULL) {
        printf("skipped: no %s\n", CASES_DIR);
        return TEST_SKIPPED;
    }
    (void)closedir(dir);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
