/* test_bugs_fields.c - cases/bugs.json against the real model: numbers of requests, and what an
 * answer's members say. */
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/mem.h"
#include "tests/e2e/harness_bugs.h"

static struct bugs bugs;

static int setup(void **state)
{
    *state = &bugs;
    bugs_start_real(&bugs);
    return 0;
}

static void test_b21_what_is_no_finite_number_is_refused_in_valid_json(void **state)
{
    struct http_answer answer;
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        bugs_send(&bugs, "B21", i, CHAT_PATH, &answer);
        assert_int_equal(answer.status, 400);
        assert_true(json_is_object(json_object_get(answer.json, "error")));
        http_answer_done(&answer);
    }
}

static void test_b23_top_p_at_its_ends_leaves_a_token(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        json_t *body = bugs_json(&bugs, "B23", i);
        json_object_set_new(body, "max_tokens", json_integer(8));
        json_t *answer = bugs_ask(&bugs, CHAT_PATH, body, 200);
        assert_true(strlen(bugs_text(answer)) > 0);
        json_decref(answer);
    }
}

static void test_b24_null_is_a_missing_parameter(void **state)
{
    (void)state;
    json_decref(bugs_ask_own(&bugs, "B24", 0, 200));
}

static void test_b26_seeds_past_64_bits_are_refused_and_minus_one_is_taken(void **state)
{
    struct http_answer answer;
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        bugs_send(&bugs, "B26", i, CHAT_PATH, &answer);
        assert_int_equal(answer.status, i < 3 ? 400 : 200);
        http_answer_done(&answer);
    }
}

static char *invent(int seed)
{
    json_t *body = bugs_json(&bugs, "B27", 0);
    json_object_set_new(body, "seed", json_integer(seed));
    json_t *answer = bugs_ask(&bugs, CHAT_PATH, body, 200);
    char *text = mem_strdup(bugs_text(answer));
    json_decref(answer);
    return text;
}

static void test_b27_a_seed_reaches_the_sampler(void **state)
{
    char *first = invent(42), *again = invent(42);
    unsigned others = 0;
    (void)state;

    assert_string_equal(first, again);
    mem_free(again);
    again = invent(1);
    for (int seed = 2; seed <= 5; seed++) {
        char *other = invent(seed);
        others += strcmp(other, again) != 0;
        mem_free(other);
    }
    assert_true(others > 0);
    mem_free(again);
    mem_free(first);
}

/* The answer of a stream, as it came. */
static char *stream_of(json_t *body)
{
    struct http_answer answer;
    http_post_json(bugs.cluster.url, CHAT_PATH, body, &answer);
    assert_int_equal(answer.status, 200);
    char *text = mem_strdup(answer.body);
    http_answer_done(&answer);
    return text;
}

static void test_b43_nobody_gets_usage_who_did_not_ask(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        json_t *body = bugs_json(&bugs, "B43", i);
        json_object_set_new(body, "max_tokens", json_integer(8));
        char *text = stream_of(body);
        assert_null(strstr(text, "\"usage\":{"));
        assert_non_null(strstr(text, "data: [DONE]"));
        mem_free(text);
    }
}

static void test_b44_usage_is_one_chunk_before_the_end(void **state)
{
    json_t *body = bugs_json(&bugs, "B44", 0);
    (void)state;

    json_object_set_new(body, "temperature", json_integer(0));
    char *text = stream_of(json_deep_copy(body));
    const char *usage = strstr(text, "\"usage\":{"), *chunk = usage;
    assert_non_null(usage);
    assert_null(strstr(usage + 1, "\"usage\":{"));
    while (strncmp(chunk, "data: ", 6) != 0)
        chunk--;
    json_t *last = json_loads(chunk + 6, JSON_DISABLE_EOF_CHECK, NULL);
    assert_int_equal(json_array_size(json_object_get(last, "choices")), 0);
    assert_true(json_is_array(json_object_get(last, "choices")));
    assert_string_equal(strstr(usage, "\n\n"), "\n\ndata: [DONE]\n\n");
    const char *finish = strstr(text, "\"finish_reason\":\"");
    assert_true(finish && finish < chunk);

    json_object_del(body, "stream");
    json_object_del(body, "stream_options");
    json_t *whole = bugs_ask(&bugs, CHAT_PATH, body, 200);
    static const char *const members[] = {"prompt_tokens", "completion_tokens", "total_tokens"};
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(bugs_usage(whole, members[i]), bugs_usage(last, members[i]));
    assert_int_equal(bugs_usage(whole, "total_tokens"),
                     bugs_usage(whole, "prompt_tokens") + bugs_usage(whole, "completion_tokens"));
    json_decref(whole);
    json_decref(last);
    mem_free(text);
}

static void test_b48_members_say_what_happened(void **state)
{
    json_t *whole = bugs_ask_own(&bugs, "B48", 0, 200);
    (void)state;
    assert_string_equal(bugs_finish(whole), "length");
    assert_string_equal(json_string_value(json_object_get(whole, "object")), "chat.completion");
    assert_int_equal(bugs_usage(whole, "completion_tokens"), 1);
    assert_true(bugs_usage(whole, "prompt_tokens") > 1);
    json_decref(whole);

    char *text = stream_of(bugs_json(&bugs, "B48", 1)), *id = NULL;
    unsigned chunks = 0;
    for (const char *at = text; (at = strstr(at, "data: {")) != NULL; at += 6, chunks++) {
        json_t *chunk = json_loads(at + 6, JSON_DISABLE_EOF_CHECK, NULL);
        const char *chunk_id = json_string_value(json_object_get(chunk, "id"));
        id = id ? id : mem_strdup(chunk_id);
        assert_string_equal(chunk_id, id);
        assert_string_equal(json_string_value(json_object_get(chunk, "object")),
                            "chat.completion.chunk");
        json_decref(chunk);
    }
    assert_true(chunks >= 3);
    assert_non_null(strstr(text, "\"finish_reason\":\"length\""));
    mem_free(id);
    mem_free(text);
}

static void check_finite(const json_t *value)
{
    const char *key;
    json_t *inner;
    size_t i;

    if (json_is_number(value))
        assert_true(isfinite(json_number_value(value)));
    json_array_foreach((json_t *)value, i, inner) check_finite(inner);
    json_object_foreach((json_t *)value, key, inner) check_finite(inner);
}

static void test_b49_every_log_probability_is_finite(void **state)
{
    json_t *body = bugs_json(&bugs, "B49", 0);
    json_t *answer = bugs_ask(&bugs, COMPLETION_PATH, json_deep_copy(body), 200);
    (void)state;

    assert_int_equal(json_array_size(json_object_get(
                         json_object_get(bugs_choice(answer), "logprobs"), "token_logprobs")),
                     2);
    check_finite(answer);
    json_decref(answer);
    json_object_set_new(body, "allowed_token_ids", json_pack("[i]", 500)); /* all others: -inf */
    answer = bugs_ask(&bugs, COMPLETION_PATH, body, 200);
    check_finite(answer);
    json_decref(answer);
}

static void test_afterwards_the_cluster_stops_and_leaves_nothing(void **state)
{
    (void)state;
    bugs_stop(&bugs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_b21_what_is_no_finite_number_is_refused_in_valid_json,
                                  bugs_after),
        cmocka_unit_test_teardown(test_b23_top_p_at_its_ends_leaves_a_token, bugs_after),
        cmocka_unit_test_teardown(test_b24_null_is_a_missing_parameter, bugs_after),
        cmocka_unit_test_teardown(test_b26_seeds_past_64_bits_are_refused_and_minus_one_is_taken,
                                  bugs_after),
        cmocka_unit_test_teardown(test_b27_a_seed_reaches_the_sampler, bugs_after),
        cmocka_unit_test_teardown(test_b43_nobody_gets_usage_who_did_not_ask, bugs_after),
        cmocka_unit_test_teardown(test_b44_usage_is_one_chunk_before_the_end, bugs_after),
        cmocka_unit_test_teardown(test_b48_members_say_what_happened, bugs_after),
        cmocka_unit_test_teardown(test_b49_every_log_probability_is_finite, bugs_after),
        cmocka_unit_test(test_afterwards_the_cluster_stops_and_leaves_nothing),
    };
    e2e_begin();
    (void)e2e_smollm2();
    return e2e_finish(cmocka_run_group_tests(tests, setup, bugs_teardown));
}
