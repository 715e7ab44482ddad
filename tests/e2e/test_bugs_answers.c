/* test_bugs_answers.c - cases/bugs.json about characters of several bytes, tool calls and histories
 * that are cut. Grammars make the model say what an entry needs. */
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/buffer.h"
#include "proto/base/mem.h"
#include "tests/e2e/harness_bugs.h"

static struct bugs bugs;

static int setup(void **state)
{
    *state = &bugs;
    bugs_start(&bugs, e2e_smollm2(),
               (const char *const[]){"--groups", "1", "--kv-cache-memory", "128MiB",
                                     "--max-model-len", "512", "--tool-call-parser", "hermes",
                                     NULL});
    return 0;
}

/* Each chunk of a streamed chat. */
static void each_chunk(json_t *body, void (*take)(json_t *choice, void *user), void *user)
{
    struct http_answer answer;

    json_object_set_new(body, "stream", json_true());
    http_post_json(bugs.cluster.url, CHAT_PATH, body, &answer);
    if (answer.status != 200)
        fail_msg("%d %.400s", answer.status, answer.body);
    for (const char *at = answer.body; (at = strstr(at, "data: {")) != NULL; at += 6) {
        json_t *chunk = json_loads(at + 6, JSON_DISABLE_EOF_CHECK, NULL);
        assert_non_null(chunk); /* strict UTF-8, too */
        if (bugs_choice(chunk))
            take(bugs_choice(chunk), user);
        json_decref(chunk);
    }
    http_answer_done(&answer);
}

static void join_content(json_t *choice, void *user)
{
    const char *piece =
        json_string_value(json_object_get(json_object_get(choice, "delta"), "content"));
    buffer_append_text(user, piece ? piece : "");
}

/* No SSE comes into this router: the same text is split by the tokens that it is made of. */
static void test_b03_characters_that_tokens_split_arrive_whole(void **state)
{
    static const char want[] = "\xe4\xbd\xa0\xe5\xa5\xbd\xf0\x9f\x8c\x8d\xf0\x9f\xa6\x80";
    json_t *body = chat_body(bugs.cluster.model, "Say it.", 60);
    struct buffer text;
    (void)state;

    json_t *entry = bugs_json(&bugs, "B03", 0);
    assert_non_null(strstr(json_string_value(json_object_get(entry, "worker_body")), want));
    json_decref(entry);
    json_object_set_new(body, "guided_choice", json_pack("[s]", want));
    json_object_set_new(body, "return_token_ids", json_true());
    json_t *whole = bugs_ask(&bugs, CHAT_PATH, json_deep_copy(body), 200);
    assert_string_equal(bugs_text(whole), want);
    assert_true(json_array_size(json_object_get(bugs_choice(whole), "token_ids")) > 4);
    json_decref(whole);
    buffer_init(&text, 4096);
    each_chunk(body, join_content, &text);
    assert_string_equal(text.data, want);
    buffer_done(&text);
}

struct calls {
    unsigned count, heads;
    struct buffer arguments;
    char finish[32];
};

static void take_calls(json_t *choice, void *user)
{
    struct calls *calls = user;
    const json_t *list = json_object_get(json_object_get(choice, "delta"), "tool_calls");
    const char *finish = json_string_value(json_object_get(choice, "finish_reason"));
    json_t *call;
    size_t i;

    if (finish)
        (void)snprintf(calls->finish, sizeof(calls->finish), "%s", finish);
    json_array_foreach((json_t *)list, i, call)
    {
        const json_t *function = json_object_get(call, "function");
        json_int_t index = json_integer_value(json_object_get(call, "index"));
        const char *piece = json_string_value(json_object_get(function, "arguments"));
        assert_true(json_is_integer(json_object_get(call, "index")));
        if (json_object_get(call, "id")) { /* the first fragment has all of the head */
            assert_int_equal(index, calls->heads);
            assert_string_equal(json_string_value(json_object_get(call, "type")), "function");
            assert_non_null(json_object_get(function, "name"));
            calls->heads++;
        } else {
            assert_true(index < calls->heads);
            assert_null(json_object_get(function, "name"));
        }
        buffer_append_text(&calls->arguments, piece ? piece : "");
        calls->count++;
    }
}

/* A call that the model is made to write, as its format has it. */
static json_t *with_call(json_t *body)
{
    json_object_set_new(body, "max_tokens", json_integer(60));
    json_object_set_new(body, "temperature", json_integer(0));
    json_object_set_new(body, "guided_choice",
                        json_pack("[s]",
                                  "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 17}}\n"
                                  "</tool_call>"));
    return body;
}

static void test_b50_a_streamed_call_has_index_and_one_head(void **state)
{
    struct calls calls = {.count = 0};
    json_t *body = bugs_json(&bugs, "B50", 0);
    (void)state;

    buffer_init(&calls.arguments, 1 << 16);
    json_object_set_new(body, "max_tokens", json_integer(8));
    each_chunk(json_deep_copy(body), take_calls, &calls); /* whatever it says by itself */
    buffer_clear(&calls.arguments);
    calls.count = calls.heads = 0;
    each_chunk(with_call(body), take_calls, &calls);
    assert_int_equal(calls.heads, 1);
    assert_true(calls.count >= 2);
    assert_string_equal(calls.arguments.data, "{\"a\": 17}");
    buffer_done(&calls.arguments);
}

static void test_b51_both_modes_end_for_the_same_reason(void **state)
{
    (void)state;
    for (int called = 0; called < 2; called++) {
        struct calls calls = {.count = 0};
        json_t *body = bugs_json(&bugs, called ? "B50" : "B51", 0);
        json_object_del(body, "stream");
        json_object_set_new(body, "temperature", json_integer(0));
        json_object_set_new(body, "max_tokens", json_integer(16));
        if (called)
            body = with_call(body);
        json_t *whole = bugs_ask(&bugs, CHAT_PATH, json_deep_copy(body), 200);
        buffer_init(&calls.arguments, 1 << 16);
        each_chunk(body, take_calls, &calls);
        assert_string_equal(calls.finish, bugs_finish(whole));
        if (called)
            assert_string_equal(calls.finish, "tool_calls");
        buffer_done(&calls.arguments);
        json_decref(whole);
    }
}

static char *words(const char *word, int count)
{
    struct buffer text;
    buffer_init(&text, 1 << 16);
    for (int i = 0; i < count; i++)
        buffer_append_text(&text, word);
    return buffer_take(&text, NULL);
}

static json_t *message(const json_t *body, size_t i)
{
    return json_array_get(json_object_get(body, "messages"), i);
}

/* The body's messages with turns in front that a policy may cut. */
static json_t *trimmed_body(const char *system, const char *result)
{
    json_t *body = bugs_json(&bugs, "B81", 0), *messages = json_object_get(body, "messages");

    json_object_set_new(message(body, 0), "content", json_string(system));
    json_object_set_new(message(body, 3), "content", json_string(result));
    for (int i = 0; i < 6; i++)
        json_array_insert_new(messages, 1 + (size_t)i,
                              json_pack("{s:s, s:s}", "role", i % 2 ? "assistant" : "user",
                                        "content", "An old turn about nothing in particular."));
    json_object_set_new(body, "refrain", json_pack("{s:{s:i}}", "history", "token_budget", 120));
    json_object_set_new(body, "max_tokens", json_integer(4));
    return body;
}

static void test_b81_a_cut_keeps_the_last_user_turn_and_what_follows(void **state)
{
    json_t *body = trimmed_body("You are a shell.", "On branch main, nothing to commit");
    json_t *ids = bugs_prompt_ids(&bugs, body);
    json_t *answer = bugs_ask(&bugs, "/detokenize", json_pack("{s:o}", "tokens", ids), 200);
    const char *text = json_string_value(json_object_get(answer, "prompt"));
    (void)state;

    assert_non_null(strstr(text, "You are a shell."));
    assert_non_null(strstr(text, "Run git status"));
    assert_non_null(strstr(text, "On branch main"));
    size_t old = 0;
    for (const char *at = text; (at = strstr(at, "An old turn")) != NULL; at++)
        old++;
    assert_true(old < 6);
    json_decref(answer);
    json_decref(body);

    char *result = words("On branch main ", 60); /* what must stay does not fit */
    json_decref(bugs_ask(&bugs, CHAT_PATH, trimmed_body("You are a shell.", result), 400));
    mem_free(result);
}

static void test_b82_a_message_that_does_not_fit_drops_no_system_text(void **state)
{
    char *text = words("Guten Tag. ", 600);
    (void)state;

    for (int budget = 0; budget < 2; budget++) {
        json_t *body = bugs_json(&bugs, "B82", 0);
        json_object_set_new(message(body, 1), "content", json_string(text));
        if (budget)
            json_object_set_new(body, "refrain",
                                json_pack("{s:{s:i}}", "history", "token_budget", 200));
        json_t *answer = bugs_ask(&bugs, CHAT_PATH, body, 400);
        json_t *error = json_object_get(answer, "error");
        assert_string_equal(json_string_value(json_object_get(error, "code")),
                            "context_length_exceeded");
        json_decref(answer);
    }
    mem_free(text);
}

static void test_afterwards_the_cluster_stops_and_leaves_nothing(void **state)
{
    (void)state;
    bugs_stop(&bugs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_b03_characters_that_tokens_split_arrive_whole, bugs_after),
        cmocka_unit_test_teardown(test_b50_a_streamed_call_has_index_and_one_head, bugs_after),
        cmocka_unit_test_teardown(test_b51_both_modes_end_for_the_same_reason, bugs_after),
        cmocka_unit_test_teardown(test_b81_a_cut_keeps_the_last_user_turn_and_what_follows,
                                  bugs_after),
        cmocka_unit_test_teardown(test_b82_a_message_that_does_not_fit_drops_no_system_text,
                                  bugs_after),
        cmocka_unit_test(test_afterwards_the_cluster_stops_and_leaves_nothing),
    };
    e2e_begin();
    (void)e2e_smollm2();
    return e2e_finish(cmocka_run_group_tests(tests, setup, bugs_teardown));
}
