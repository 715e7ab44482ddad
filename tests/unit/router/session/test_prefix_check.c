/* test_prefix_check.c - shared/cases/templates/prefix_stability.json through the code that answers
 * /v1/refrain/prefix_check, and the verdicts on turns made by hand. */
#include "router/session/prefix_check.h"
#include "tests/unit/router/text/template_cases.h"

static json_t *file;

struct made {
    struct rendered rendered;
    json_t *messages;
    struct prefix_turn turn;
    bool refused;
};

static void make(struct made *m, const struct chat_template *template,
                 const struct render_input *like, const json_t *messages, size_t count)
{
    struct render_input input = *like;
    struct errmsg err;
    memset(m, 0, sizeof(*m));
    m->messages = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append(m->messages, json_array_get(messages, i));
    input.messages = m->messages;
    m->refused = chat_template_render(template, &input, &m->rendered, NULL, &err) < 0;
    if (!m->refused)
        m->turn = (struct prefix_turn){.messages = m->messages,
                                       .text = m->rendered.text.data,
                                       .text_bytes = m->rendered.text.bytes,
                                       .spans = m->rendered.spans,
                                       .spans_count = m->rendered.spans_count};
}

static void drop(struct made *m)
{
    if (!m->refused)
        rendered_done(&m->rendered);
    json_decref(m->messages);
}

static size_t number(const json_t *object, const char *key)
{
    return (size_t)json_integer_value(json_object_get(object, key));
}

static bool same(bool is, const json_t *want)
{
    return !want || is == json_is_true(want);
}

/* Tools, tokens and kwargs as the file's makers passed them. */
static struct render_input input_of(const char *name, const json_t *scenario, json_t **ret_cases)
{
    char path[300];
    (void)snprintf(path, sizeof(path), "%s.cases.json", name);
    *ret_cases = load_cases(path);
    struct render_input input = case_input(json_array_get(*ret_cases, 0));
    input.tools = not_null(json_object_get(scenario, "tools"));
    input.documents = NULL;
    input.add_generation_prompt = true;
    return input;
}

/* 1: stable, 0: not, -1: a turn cannot be rendered. */
static int run(const json_t *result, struct prefix_verdict *first_break, size_t *wrong)
{
    const char *name = json_string_value(json_object_get(result, "template"));
    const char *scenario_name = json_string_value(json_object_get(result, "scenario"));
    const json_t *scenario = json_object_get(json_object_get(file, "scenarios"), scenario_name);
    const json_t *messages = json_object_get(scenario, "messages");
    const json_t *turns = json_object_get(result, "turns");
    struct chat_template *template = load_template(name);
    struct made before = {.refused = true, .messages = NULL}, now;
    json_t *cases;
    const struct render_input like = input_of(name, scenario, &cases);
    int stable = 1;

    for (size_t i = 0; i < json_array_size(turns); i++) {
        const json_t *turn = json_array_get(turns, i);
        struct prefix_verdict v = {.stable = true};
        make(&now, template, &like, messages, number(turn, "n_messages"));
        bool right = now.refused == (json_object_get(turn, "error") != NULL);
        if (now.refused)
            stable = -1;
        if (i > 0 && !now.refused && !before.refused) {
            prefix_compare(&before.turn, &now.turn, &v);
            right = right &&
                    v.common_bytes == number(turn, "common_prefix_bytes_with_previous_prompt") &&
                    v.bytes[1] == number(turn, "prompt_bytes") &&
                    same(v.stable, json_object_get(turn, "previous_prompt_is_prefix")) &&
                    same(v.answer_stable,
                         json_object_get(turn, "previous_prompt_plus_answer_is_prefix"));
        }
        if (!v.stable && stable == 1) {
            stable = 0;
            *first_break = v;
        }
        *wrong += !right;
        drop(&before);
        before = now;
    }
    drop(&before);
    json_decref(cases);
    chat_template_free(template);
    return stable;
}

static void test_every_expectation_of_the_real_engine_is_met(void **state)
{
    const json_t *results = json_object_get(file, "results");
    size_t wrong = 0, counts[3] = {0};
    (void)state;
    assert_int_equal(json_array_size(results), 70);
    for (size_t i = 0; i < 70; i++) {
        const json_t *result = json_array_get(results, i);
        const json_t *want = json_object_get(result, "stable");
        struct prefix_verdict v;
        int stable = run(result, &v, &wrong);
        assert_int_equal(stable, json_is_null(want) ? -1 : json_is_true(want));
        counts[stable + 1]++;
        if (stable == 0)
            assert_int_equal(v.cause, MISS_TEMPLATE_UNSTABLE);
    }
    assert_int_equal(wrong, 0);
    assert_int_equal(counts[0], 5);
    assert_int_equal(counts[1], 7);
    assert_int_equal(counts[2], 58);
}

static struct prefix_verdict break_of(const char *name, const char *scenario)
{
    const json_t *results = json_object_get(file, "results");
    struct prefix_verdict v = {.place = {.message = -2}};
    size_t wrong = 0;
    for (size_t i = 0; i < json_array_size(results); i++) {
        const json_t *result = json_array_get(results, i);
        if (strcmp(json_string_value(json_object_get(result, "template")), name) == 0 &&
            strcmp(json_string_value(json_object_get(result, "scenario")), scenario) == 0)
            assert_int_equal(run(result, &v, &wrong), 0);
    }
    return v;
}

static void test_the_place_of_a_break_is_named(void **state)
{
    (void)state;
    /* The opening of the answer, "<think>\n", is gone once the answer is history. */
    struct prefix_verdict v = break_of("deepseek-r1-distill-llama-8b", "plain");
    assert_int_equal(v.place.message, 1);
    assert_string_equal(v.place.field, "content");
    assert_int_equal(v.text_offset, 0);
    /* The tools are written in front of the last user message, wherever that is. */
    v = break_of("mistral-small-3.2-2506", "tools");
    assert_int_equal(v.common_bytes, 63);
    assert_string_equal(v.place.field, "template");
    assert_int_equal(v.place.message, 1);
}

/* ---- by hand ---- */

static json_t *list(const char *text)
{
    json_t *json = json_loads(text, 0, NULL);
    assert_non_null(json);
    return json;
}

static struct prefix_verdict compare(const char *template_text, const char *a, const char *b)
{
    struct errmsg err;
    struct chat_template *template = NULL;
    const struct render_input input = {.add_generation_prompt = true};
    json_t *first = list(a), *second = list(b);
    struct made turn, next;
    struct prefix_verdict v;
    assert_int_equal(chat_template_new(template_text, strlen(template_text), &template, &err), 0);
    make(&turn, template, &input, first, json_array_size(first));
    make(&next, template, &input, second, json_array_size(second));
    prefix_compare(&turn.turn, &next.turn, &v);
    drop(&turn);
    drop(&next);
    json_decref(first);
    json_decref(second);
    chat_template_free(template);
    return v;
}

#define PLAIN "{% for m in messages %}<{{ m.role }}>{{ m.content }}|{% endfor %}<assistant>"

static void test_b42_a_clock_in_the_system_text_is_named_to_the_byte(void **state)
{
    (void)state;
    struct prefix_verdict v =
        compare(PLAIN,
                "[{\"role\":\"system\",\"content\":\"Current time is 15:09:20. You are kind.\"},"
                "{\"role\":\"user\",\"content\":\"hi\"}]",
                "[{\"role\":\"system\",\"content\":\"Current time is 16:10:20. You are kind.\"},"
                "{\"role\":\"user\",\"content\":\"hi\"}]");
    assert_false(v.stable);
    assert_int_equal(v.cause, MISS_SYSTEM_CHANGED);
    assert_int_equal(v.place.message, 0);
    assert_int_equal(v.text_offset, 17);
    assert_int_equal(v.common_bytes, 8 + 17);
}

static void test_an_edited_message_is_not_the_templates_fault(void **state)
{
    (void)state;
    struct prefix_verdict v =
        compare(PLAIN, "[{\"role\":\"user\",\"content\":\"hello\"}]",
                "[{\"role\":\"user\",\"content\":\"help\"},{\"role\":\"assistant\",\"content\":"
                "\"x\"},{\"role\":\"user\",\"content\":\"y\"}]");
    assert_int_equal(v.cause, MISS_MESSAGE_EDITED);
    assert_int_equal(v.place.message, 0);
    assert_int_equal(v.text_offset, 3);
    assert_true(v.has_answer);
    assert_false(v.answer_stable);
}

static void test_a_shorter_next_turn_parts_where_it_ends(void **state)
{
    (void)state;
    struct prefix_verdict v = compare(
        PLAIN, "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"user\",\"content\":\"b\"}]",
        "[{\"role\":\"user\",\"content\":\"a\"}]");
    assert_false(v.stable);
    assert_int_equal(v.cause, MISS_MESSAGE_EDITED); /* message 1 is gone */
    assert_false(v.has_answer);
}

static void test_ids_that_part_are_retokenized(void **state)
{
    const uint32_t a[] = {1, 2, 3}, b[] = {1, 2, 4, 5};
    const struct prefix_turn turn = {.text = "ab", .text_bytes = 2, .ids = a, .ids_count = 3};
    const struct prefix_turn next = {.text = "abc", .text_bytes = 3, .ids = b, .ids_count = 4};
    struct prefix_verdict v;
    struct buffer out;
    (void)state;
    prefix_compare(&turn, &next, &v);
    assert_true(v.text_stable);
    assert_false(v.stable);
    assert_int_equal(v.common_tokens, 2);
    assert_int_equal(v.cause, MISS_RETOKENIZED);
    buffer_init(&out, 4096);
    prefix_write(&v, &out);
    assert_string_equal(out.data, "\"stable\":false,\"common_tokens\":2,\"tokens\":[3,4],"
                                  "\"common_bytes\":2,\"bytes\":[2,3],\"answer_stable\":null,"
                                  "\"breaks_at\":{\"text_offset\":2,\"token\":2},"
                                  "\"cause\":\"retokenized\"");
    buffer_done(&out);
}

static void test_probes_are_whole_conversations(void **state)
{
    size_t count = 0;
    (void)state;
    for (const struct prefix_probe *probe = prefix_probes; probe->name; probe++, count++) {
        json_t *messages = list(probe->messages);
        size_t turns = 0, last = 0;
        if (probe->tools)
            json_decref(list(probe->tools));
        for (; probe->turns[turns]; turns++) {
            const json_t *asked = json_array_get(messages, probe->turns[turns] - 1);
            const char *role = json_string_value(json_object_get(asked, "role"));
            assert_true(strcmp(role, "user") == 0 || strcmp(role, "tool") == 0);
            assert_true(probe->turns[turns] > last);
            last = probe->turns[turns];
        }
        assert_true(turns >= 2);
        assert_int_equal(last, json_array_size(messages));
        json_decref(messages);
    }
    assert_int_equal(count, 6);
}

int main(void)
{
    const struct CMUnitTest by_hand[] = {
        cmocka_unit_test(test_b42_a_clock_in_the_system_text_is_named_to_the_byte),
        cmocka_unit_test(test_an_edited_message_is_not_the_templates_fault),
        cmocka_unit_test(test_a_shorter_next_turn_parts_where_it_ends),
        cmocka_unit_test(test_ids_that_part_are_retokenized),
        cmocka_unit_test(test_probes_are_whole_conversations),
    };
    const struct CMUnitTest by_file[] = {
        cmocka_unit_test(test_every_expectation_of_the_real_engine_is_met),
        cmocka_unit_test(test_the_place_of_a_break_is_named),
    };
    int failed = cmocka_run_group_tests(by_hand, NULL, NULL);
    file = load_cases("prefix_stability.json");
    if (!file)
        return failed ? failed : TEST_SKIPPED;
    failed += cmocka_run_group_tests(by_file, NULL, NULL);
    json_decref(file);
    return failed;
}
