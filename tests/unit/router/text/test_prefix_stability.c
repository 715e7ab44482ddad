/* Does turn N stay a prefix of turn N + 1? shared/cases/templates/prefix_stability.json, counted
 * in bytes by the real engine. */
#include "template_cases.h"

static json_t *file;
static size_t turns_checked, turns_right;

static struct render_input turn_input(const json_t *scenario, json_t *messages)
{
    return (struct render_input){.messages = messages,
                                 .tools = not_null(json_object_get(scenario, "tools")),
                                 .add_generation_prompt = true,
                                 .now = 1734597000.0};
}

static json_t *first_messages(const json_t *scenario, size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append(list, json_array_get(json_object_get(scenario, "messages"), i));
    return list;
}

static size_t common_prefix(const struct buffer *a, const char *b, size_t b_bytes)
{
    size_t common = 0;
    while (common < a->bytes && common < b_bytes && a->data[common] == b[common])
        common++;
    return common;
}

static int64_t number(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

/* previous: text of the turn before, or NULL. */
static bool turn_right(const json_t *turn, const struct buffer *text, const char *previous,
                       size_t previous_bytes, const char *answer)
{
    if ((int64_t)text->bytes != number(turn, "prompt_bytes"))
        return false;
    if (previous == NULL)
        return true;
    const json_t *plus_answer = json_object_get(turn, "previous_prompt_plus_answer_is_prefix");
    size_t common = common_prefix(text, previous, previous_bytes);
    bool prefix = common == previous_bytes;
    bool with_answer = prefix && text->bytes >= previous_bytes + strlen(answer) &&
                       memcmp(text->data + previous_bytes, answer, strlen(answer)) == 0;
    return (int64_t)common == number(turn, "common_prefix_bytes_with_previous_prompt") &&
           prefix == json_is_true(json_object_get(turn, "previous_prompt_is_prefix")) &&
           (plus_answer == NULL || with_answer == json_is_true(plus_answer));
}

static void run_result(const json_t *result)
{
    const char *name = json_string_value(json_object_get(result, "template"));
    const char *scenario_name = json_string_value(json_object_get(result, "scenario"));
    const json_t *scenario = json_object_get(json_object_get(file, "scenarios"), scenario_name);
    const json_t *turns = json_object_get(result, "turns");
    struct chat_template *template = load_template(name);
    char *previous = NULL;
    size_t previous_bytes = 0, count_before = 0;
    char path[300];
    (void)snprintf(path, sizeof(path), "%s.cases.json", name);
    json_t *cases = load_cases(path);
    const struct render_input like = case_input(json_array_get(cases, 0)); /* tokens, kwargs */
    for (size_t i = 0; i < json_array_size(turns); i++) {
        const json_t *turn = json_array_get(turns, i);
        struct rendered out;
        struct errmsg err = {""};
        json_t *messages = first_messages(scenario, (size_t)number(turn, "n_messages"));
        struct render_input input = turn_input(scenario, messages);
        input.bos_token = like.bos_token;
        input.eos_token = like.eos_token;
        input.kwargs = like.kwargs;
        const char *answer =
            json_string_value(json_object_get(json_array_get(messages, count_before), "content"));
        int r = chat_template_render(template, &input, &out, NULL, &err);
        bool right =
            r < 0 ? json_object_get(turn, "error") != NULL
                  : turn_right(turn, &out.text, previous, previous_bytes, answer ? answer : "");
        if (!right)
            printf("FAILED %s %s turn %zu: %s, %zu bytes\n", name, scenario_name, i, err.text,
                   r < 0 ? 0 : out.text.bytes);
        turns_checked++;
        turns_right += right;
        mem_free(previous);
        previous = NULL;
        if (r == 0)
            previous = buffer_take(&out.text, &previous_bytes);
        if (r == 0)
            rendered_done(&out);
        count_before = (size_t)number(turn, "n_messages");
        json_decref(messages);
    }
    mem_free(previous);
    json_decref(cases);
    chat_template_free(template);
}

static void test_prefixes_are_as_long_as_the_real_engine_says(void **state)
{
    const json_t *results = json_object_get(file, "results");
    (void)state;
    for (size_t i = 0; i < json_array_size(results); i++)
        run_result(json_array_get(results, i));
    printf("prefix_stability.json: %zu of %zu turns in %zu runs\n", turns_right, turns_checked,
           json_array_size(results));
    assert_int_equal(json_array_size(results), 70);
    assert_int_equal(turns_right, turns_checked);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prefixes_are_as_long_as_the_real_engine_says)};
    file = load_cases("prefix_stability.json");
    if (file == NULL)
        return TEST_SKIPPED;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    json_decref(file);
    return failed;
}
