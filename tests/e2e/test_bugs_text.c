/* test_bugs_text.c - cases/bugs.json against the real model: text, stop strings, limits. */
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/buffer.h"
#include "proto/base/mem.h"
#include "tests/e2e/harness_bugs.h"

#define CONTEXT 256

static struct bugs bugs;

static int setup(void **state)
{
    *state = &bugs;
    bugs_start_real(&bugs);
    return 0;
}

/* Deltas of a streamed chat joined; ids too, when asked for. mem_free() it. */
static char *stream_text(json_t *body, json_t *ret_ids)
{
    struct http_answer answer;
    struct buffer text;

    json_object_set_new(body, "stream", json_true());
    http_post_json(bugs.cluster.url, CHAT_PATH, body, &answer);
    assert_int_equal(answer.status, 200);
    buffer_init(&text, 1 << 20);
    for (const char *at = answer.body; (at = strstr(at, "data: {")) != NULL; at += 6) {
        json_t *chunk = json_loads(at + 6, JSON_DISABLE_EOF_CHECK, NULL);
        json_t *choice = bugs_choice(chunk);
        const char *piece =
            json_string_value(json_object_get(json_object_get(choice, "delta"), "content"));
        buffer_append_text(&text, piece ? piece : "");
        if (ret_ids)
            json_array_extend(ret_ids, json_object_get(choice, "token_ids"));
        json_decref(chunk);
    }
    assert_non_null(strstr(answer.body, "data: [DONE]"));
    http_answer_done(&answer);
    return buffer_take(&text, NULL);
}

static void test_b05_joined_deltas_are_the_ids_decoded(void **state)
{
    json_t *body = bugs_json(&bugs, "B05", 0), *ids = json_array();
    (void)state;

    json_object_set_new(body, "return_token_ids", json_true());
    json_object_set_new(body, "ignore_eos", json_true());
    json_object_set_new(body, "max_tokens", json_integer(64));
    char *text = stream_text(body, ids);
    assert_int_equal(json_array_size(ids), 64);
    json_t *answer = bugs_ask(&bugs, "/detokenize", json_pack("{s:o}", "tokens", ids), 200);
    struct buffer visible; /* control tokens among the ids have no text */
    buffer_init(&visible, 1 << 16);
    for (const char *at = json_string_value(json_object_get(answer, "prompt")); *at;) {
        size_t skip = strncmp(at, "<|im_end|>", 10) == 0     ? 10
                      : strncmp(at, "<|im_start|>", 12) == 0 ? 12
                                                             : 0;
        if (!skip)
            buffer_append_char(&visible, *at);
        at += skip ? skip : 1;
    }
    assert_string_equal(text, visible.data);
    assert_non_null(strchr(text, ' '));
    buffer_done(&visible);
    json_decref(answer);
    mem_free(text);
}

/* What the entry answers without its stop strings. */
static char *unstopped(const char *id)
{
    json_t *body = bugs_json(&bugs, id, 0);
    json_object_del(body, "stop");
    json_object_del(body, "stream");
    json_t *answer = bugs_ask(&bugs, CHAT_PATH, body, 200);
    char *text = mem_strdup(bugs_text(answer));
    json_decref(answer);
    return text;
}

/* The answer with these stop strings is the whole one up to the first of them. */
static void check_stops(const char *id, const char *whole, json_t *stops)
{
    size_t end = strlen(whole), i;
    json_t *stop, *body = bugs_json(&bugs, id, 0);

    json_array_foreach(stops, i, stop)
    {
        const char *found = strstr(whole, json_string_value(stop));
        if (found && (size_t)(found - whole) < end)
            end = (size_t)(found - whole);
    }
    json_object_set(body, "stop", stops);
    json_object_del(body, "stream");
    json_t *answer = bugs_ask(&bugs, CHAT_PATH, json_deep_copy(body), 200);
    assert_int_equal(strlen(bugs_text(answer)), end);
    assert_int_equal(strncmp(bugs_text(answer), whole, end), 0);
    assert_string_equal(bugs_finish(answer), "stop");
    char *streamed_text = stream_text(body, NULL);
    assert_string_equal(streamed_text, bugs_text(answer));
    mem_free(streamed_text);
    json_decref(answer);
    json_decref(stops);
}

static void test_b08_a_stop_string_ends_the_text_whatever_the_token_borders(void **state)
{
    char *whole = unstopped("B08"), stop[8];
    size_t bytes = strlen(whole);
    (void)state;

    assert_true(bytes > 24);
    check_stops("B08", whole, json_pack("[s]", "beta gamma"));
    for (size_t at = 3; at < 12; at++) { /* seven bytes: inside tokens, and across them */
        (void)snprintf(stop, sizeof(stop), "%s", whole + at);
        check_stops("B08", whole, json_pack("[s]", stop));
    }
    mem_free(whole);
}

static void test_b10_the_earliest_match_wins_whatever_the_order(void **state)
{
    char *whole = unstopped("B10"), early[6], late[6];
    (void)state;

    assert_true(strlen(whole) > 30);
    check_stops("B10", whole, json_pack("[s, s]", "charlie", "bravo"));
    (void)snprintf(early, sizeof(early), "%s", whole + 6);
    (void)snprintf(late, sizeof(late), "%s", whole + 20);
    check_stops("B10", whole, json_pack("[s, s]", early, late));
    check_stops("B10", whole, json_pack("[s, s]", late, early));
    check_stops("B10", whole, json_pack("[s, s]", "\xe4\xbd\xa0", late)); /* and no match at all */
    mem_free(whole);
}

static void test_b11_an_empty_stop_string_never_ends_an_answer(void **state)
{
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        json_t *body = bugs_json(&bugs, "B11", i);
        bool none = i >= 2; /* [] and null */
        json_object_set_new(body, "max_tokens", json_integer(8));
        json_t *answer = bugs_ask(&bugs, CHAT_PATH, body, none ? 200 : 400);
        if (none)
            assert_true(strlen(bugs_text(answer)) > 0);
        json_decref(answer);
    }
}

static void test_b12_the_end_token_s_text_is_no_content(void **state)
{
    char *text = stream_text(bugs_json(&bugs, "B12", 0), NULL);
    (void)state;
    assert_true(strlen(text) > 0);
    assert_null(strstr(text, "<|im"));
    assert_null(strstr(text, "im_end"));
    mem_free(text);
}

static void test_b13_max_tokens_0_is_no_missing_one(void **state)
{
    (void)state;
    json_decref(bugs_ask_own(&bugs, "B13", 0, 400));
}

static void test_b14_an_echoed_prompt_is_scored_and_the_next_works(void **state)
{
    json_t *answer = bugs_ask(&bugs, COMPLETION_PATH, bugs_json(&bugs, "B14", 0), 200);
    (void)state;
    assert_string_equal(bugs_text(answer), "Your answer: Yes");
    assert_int_equal(bugs_usage(answer, "completion_tokens"), 0);
    json_decref(answer);
}

static void test_b16_without_max_tokens_the_context_is_the_limit(void **state)
{
    json_t *body = bugs_json(&bugs, "B16", 0);
    (void)state;
    json_decref(bugs_ask(&bugs, CHAT_PATH, json_deep_copy(body), 200));
    json_object_set_new(body, "ignore_eos", json_true());
    json_t *answer = bugs_ask(&bugs, CHAT_PATH, body, 200);
    assert_string_equal(bugs_finish(answer), "length");
    assert_int_equal(bugs_usage(answer, "total_tokens"), CONTEXT);
    json_decref(answer);
}

static void test_b17_max_tokens_past_every_integer_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        json_t *answer = bugs_ask_own(&bugs, "B17", i, 400);
        json_t *error = json_object_get(answer, "error");
        assert_string_equal(json_string_value(json_object_get(error, "param")), "max_tokens");
        json_decref(answer);
    }
}

static void test_b18_prompts_that_are_too_long_hold_nothing(void **state)
{
    struct buffer text;
    (void)state;

    buffer_init(&text, 1 << 16);
    for (int i = 0; i < 400; i++)
        buffer_append_text(&text, "x ");
    for (int i = 0; i < 300; i++) { /* more than run at once */
        json_t *answer =
            bugs_ask(&bugs, CHAT_PATH, chat_body(bugs.cluster.model, text.data, 16), 400);
        json_t *error = json_object_get(answer, "error");
        assert_string_equal(json_string_value(json_object_get(error, "code")),
                            "context_length_exceeded");
        assert_non_null(strstr(json_string_value(json_object_get(error, "message")), "256"));
        json_decref(answer);
    }
    buffer_done(&text);
}

static void test_b19_the_last_token_of_the_context_counts(void **state)
{
    (void)state;
    for (int tokens = CONTEXT - 1; tokens <= CONTEXT + 1; tokens++) {
        json_t *ids = json_array();
        for (int i = 0; i < tokens; i++)
            json_array_append_new(ids, json_integer(500 + i));
        json_decref(bugs_ask(&bugs, COMPLETION_PATH,
                             json_pack("{s:o, s:i}", "prompt", ids, "max_tokens", 1),
                             tokens < CONTEXT ? 200 : 400));
    }
}

static void test_afterwards_the_cluster_stops_and_leaves_nothing(void **state)
{
    (void)state;
    bugs_stop(&bugs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_b05_joined_deltas_are_the_ids_decoded, bugs_after),
        cmocka_unit_test_teardown(test_b08_a_stop_string_ends_the_text_whatever_the_token_borders,
                                  bugs_after),
        cmocka_unit_test_teardown(test_b10_the_earliest_match_wins_whatever_the_order, bugs_after),
        cmocka_unit_test_teardown(test_b11_an_empty_stop_string_never_ends_an_answer, bugs_after),
        cmocka_unit_test_teardown(test_b12_the_end_token_s_text_is_no_content, bugs_after),
        cmocka_unit_test_teardown(test_b13_max_tokens_0_is_no_missing_one, bugs_after),
        cmocka_unit_test_teardown(test_b14_an_echoed_prompt_is_scored_and_the_next_works,
                                  bugs_after),
        cmocka_unit_test_teardown(test_b16_without_max_tokens_the_context_is_the_limit, bugs_after),
        cmocka_unit_test_teardown(test_b17_max_tokens_past_every_integer_is_refused, bugs_after),
        cmocka_unit_test_teardown(test_b18_prompts_that_are_too_long_hold_nothing, bugs_after),
        cmocka_unit_test_teardown(test_b19_the_last_token_of_the_context_counts, bugs_after),
        cmocka_unit_test(test_afterwards_the_cluster_stops_and_leaves_nothing),
    };
    e2e_begin();
    (void)e2e_smollm2();
    return e2e_finish(cmocka_run_group_tests(tests, setup, bugs_teardown));
}
