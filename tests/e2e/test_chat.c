/* test_chat.c - the demo's four turns: turn N computes only what turn N brought, on the group that
 * holds the history, streamed and whole alike. */
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "tests/e2e/harness.h"

#define TURNS 4
#define ANSWER_TOKENS_MAX 80
#define WASTE_TOKENS_MAX 16 /* a block: what is left when only full blocks are reused */

static struct cluster cluster;

/* deploy/demo.py's words. */
static const char *const questions[TURNS] = {
    "Hello! I have one free day in Paris. What should I see in the morning?",
    "Nice. And where could I have lunch near there?",
    "What would you do in the afternoon if it rains?",
    "Thank you. Now sum up the whole day in one sentence.",
};

static int setup(void **state)
{
    (void)state;
    cluster_start(&cluster, e2e_smollm2(),
                  (const char *const[]){"--kv-cache-memory", "512MiB", NULL});
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    cluster_abort(&cluster);
    return 0;
}

/* Tokens of the rendered chat; `open`: the last message goes on, nothing stands behind its text. */
static int rendered_tokens(const json_t *messages, bool open)
{
    struct http_answer answer;
    json_t *body = json_pack("{s:s, s:O, s:b, s:b}", "model", cluster.model, "messages", messages,
                             "add_generation_prompt", !open, "continue_final_message", open);
    http_post_json(cluster.url, "/tokenize", body, &answer);
    assert_int_equal(answer.status, 200);
    int count = (int)json_integer_value(json_object_get(answer.json, "count"));
    http_answer_done(&answer);
    return count;
}

static void add_message(json_t *messages, const char *role, const char *content)
{
    json_array_append_new(messages, json_pack("{s:s, s:s}", "role", role, "content", content));
}

static void check_turn(int turn, const struct chat *chat, int fresh_tokens, const char *first_group)
{
    uint32_t computed = chat->prompt_tokens - chat->cached_tokens;

    if (turn == 1) {
        assert_int_equal(chat->cached_tokens, 0);
        return;
    }
    assert_string_equal(chat->group, first_group);
    assert_true(chat->cached_tokens > 0);
    assert_in_range(computed, 1, (unsigned)fresh_tokens + WASTE_TOKENS_MAX);
}

static void play(bool stream, char texts[TURNS][4096])
{
    json_t *messages = json_array();
    char group[16] = "";

    for (int turn = 1; turn <= TURNS; turn++) {
        int before = turn > 1 ? rendered_tokens(messages, true) : 0;
        struct chat chat;
        add_message(messages, "user", questions[turn - 1]);
        int prompt = rendered_tokens(messages, false);
        json_t *body = json_pack("{s:s, s:O, s:i, s:i, s:s}", "model", cluster.model, "messages",
                                 messages, "max_tokens", ANSWER_TOKENS_MAX, "temperature", 0,
                                 "cache_salt", stream ? "streamed" : "whole");
        chat_init(&chat, cluster.url, CHAT_PATH, stream ? streamed(body) : body);
        chat_send(&chat);
        print_message("turn %d (%s): prompt %u = reused %u + computed %u; new text and glue %d; "
                      "group %s; first text %.0f ms; %u tokens in %.2f s\n",
                      turn, stream ? "streamed" : "whole", chat.prompt_tokens, chat.cached_tokens,
                      chat.prompt_tokens - chat.cached_tokens, prompt - before, chat.group,
                      chat.first_s * 1e3, chat.completion_tokens, chat.total_s);
        assert_int_equal(chat.status, 200);
        assert_string_equal(chat.failure, "");
        assert_int_equal(chat.prompt_tokens, prompt);
        assert_in_range(chat.completion_tokens, 1, ANSWER_TOKENS_MAX);
        assert_true(strlen(chat.text) > 0);
        assert_true(strcmp(chat.finish, "stop") == 0 || strcmp(chat.finish, "length") == 0);
        assert_true(chat.group[0] == '0' || chat.group[0] == '1');
        check_turn(turn, &chat, prompt - before, group);
        if (stream) {
            assert_true(chat.done && chat.one_id && chat.usage_last);
            assert_int_equal(chat.usage_chunks, 1);
        }
        (void)snprintf(group, sizeof(group), "%s", chat.group);
        (void)snprintf(texts[turn - 1], 4096, "%s", chat.text);
        add_message(messages, "assistant", chat.text);
        chat_done(&chat);
    }
    json_decref(messages);
}

static void test_four_turns_streamed_and_whole_compute_only_what_is_new(void **state)
{
    static char streamed_texts[TURNS][4096], whole_texts[TURNS][4096];
    (void)state;
    play(true, streamed_texts);
    play(false, whole_texts);
    for (int turn = 0; turn < TURNS; turn++)
        assert_string_equal(streamed_texts[turn], whole_texts[turn]);
}

static void test_a_stream_without_include_usage_has_no_usage(void **state)
{
    struct chat chat;
    json_t *body = chat_body(cluster.model, "Say hello.", 8);
    (void)state;
    json_object_set_new(body, "stream", json_true());
    chat_init(&chat, cluster.url, CHAT_PATH, body);
    chat_send(&chat);
    assert_int_equal(chat.status, 200);
    assert_true(chat.done);
    assert_int_equal(chat.usage_chunks, 0);
    chat_done(&chat);
}

static void test_models_health_and_ready_answer(void **state)
{
    struct http_answer answer;
    (void)state;
    http_get(cluster.url, "/v1/models", &answer);
    assert_int_equal(answer.status, 200);
    const json_t *first = json_array_get(json_object_get(answer.json, "data"), 0);
    assert_string_equal(json_string_value(json_object_get(first, "id")), SMOLLM2_NAME);
    http_answer_done(&answer);
    http_get(cluster.url, "/v1/models/" SMOLLM2_NAME, &answer);
    assert_int_equal(answer.status, 200);
    http_answer_done(&answer);
    http_get(cluster.url, "/v1/models/nobody", &answer);
    assert_int_equal(answer.status, 404);
    http_answer_done(&answer);
    http_get(cluster.url, "/health", &answer);
    assert_int_equal(answer.status, 200);
    http_answer_done(&answer);
    http_get(cluster.url, "/ready", &answer);
    assert_int_equal(answer.status, 200);
    http_answer_done(&answer);
}

static void test_the_cluster_stops_and_leaves_nothing(void **state)
{
    (void)state;
    cluster_stop(&cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_four_turns_streamed_and_whole_compute_only_what_is_new),
        cmocka_unit_test(test_a_stream_without_include_usage_has_no_usage),
        cmocka_unit_test(test_models_health_and_ready_answer),
        cmocka_unit_test(test_the_cluster_stops_and_leaves_nothing),
    };
    e2e_begin();
    (void)e2e_smollm2();
    return e2e_finish(cmocka_run_group_tests(tests, setup, teardown));
}
