/* test_bugs_router.c - cases/bugs.json that show at the router: workers that die, balance, where
 * prompts part, histories that are cut. */
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/buffer.h"
#include "proto/base/mem.h"
#include "tests/e2e/harness_bugs.h"
#include "tests/e2e/harness_fault.h"

#define GROUPS 4
#define REQUESTS 240
#define SHARE_MAX 2.0 /* times the mean; all to one would be 4 */
#define SHARE_MIN 0.25
#define TINY "llama-gguf-f32"

static struct bugs bugs;

static int teardown(void **state)
{
    (void)state;
    bugs_abort(&bugs);
    return 0;
}

static void start_real(const char *groups)
{
    bugs_start(&bugs, e2e_smollm2(),
               (const char *const[]){"--groups", groups, "--kv-cache-memory", "128MiB",
                                     "--max-model-len", "1024", NULL});
}

static void start_tiny(const char *groups)
{
    bugs_start(&bugs, e2e_tiny(TINY),
               (const char *const[]){"--groups", groups, "--kv-cache-memory", "4MiB", NULL});
}

static bool has_three_chunks(void *user)
{
    return ((struct chat *)user)->chunks >= 3;
}

static void test_b47_a_worker_s_death_in_a_stream_is_an_error(void **state)
{
    struct worker_view worker;
    struct chat chat;
    (void)state;

    start_real("1");
    assert_true(cluster_worker(&bugs.cluster, 0, &worker));
    json_t *body = bugs_json(&bugs, "B47", 0);
    json_object_set_new(body, "ignore_eos", json_true());
    chat_init(&chat, bugs.cluster.url, CHAT_PATH, body);
    struct chat_crowd *crowd = chat_crowd_start(&chat, 1, 1);
    assert_true(poll_until(has_three_chunks, &chat, 60000));
    (void)fault_kill_rank(&worker, 0);
    chat_crowd_join(crowd);
    assert_int_equal(chat.status, 200);
    assert_true(chat.error_event || chat.failure[0] != '\0');
    assert_string_equal(chat.finish, "");
    assert_false(chat.done && !chat.error_event);
    chat_done(&chat);
    (void)fault_await_restart(&bugs.cluster, &worker);
    bugs_stop(&bugs);
}

static void test_b79_one_long_system_prompt_does_not_bind_all_to_one_group(void **state)
{
    static struct chat chats[REQUESTS];
    unsigned per_group[GROUPS] = {0};
    struct buffer system;
    (void)state;

    start_tiny("4");
    buffer_init(&system, 4096);
    for (int i = 0; i < 12; i++)
        buffer_append_text(&system, "the answers are the same ");
    for (unsigned i = 0; i < REQUESTS; i++) {
        char user[32];
        (void)snprintf(user, sizeof(user), "%u", i);
        json_t *body = chat_body(bugs.cluster.model, user, 24);
        json_array_insert_new(json_object_get(body, "messages"), 0,
                              json_pack("{s:s, s:s}", "role", "system", "content", system.data));
        json_object_set_new(body, "ignore_eos", json_true());
        chat_init(&chats[i], bugs.cluster.url, CHAT_PATH, body);
    }
    chat_send_all(chats, REQUESTS, 32);
    for (unsigned i = 0; i < REQUESTS; i++) {
        assert_int_equal(chats[i].status, 200);
        int group = atoi(chats[i].group);
        assert_in_range(group, 0, GROUPS - 1);
        per_group[group]++;
        chat_done(&chats[i]);
    }
    print_message("%u %u %u %u of %d requests\n", per_group[0], per_group[1], per_group[2],
                  per_group[3], REQUESTS);
    for (unsigned g = 0; g < GROUPS; g++)
        assert_in_range(per_group[g], (unsigned)(SHARE_MIN * REQUESTS / GROUPS),
                        (unsigned)(SHARE_MAX * REQUESTS / GROUPS));
    buffer_done(&system);
    bugs_stop(&bugs);
}

static int take_turn(unsigned turn, unsigned *ret_cached)
{
    json_t *messages = json_array();
    struct chat chat;

    for (unsigned i = 0; i < 2 * turn + 1; i++)
        json_array_append_new(messages,
                              json_pack("{s:s, s:s}", "role", i % 2 ? "assistant" : "user",
                                        "content", "the answers are the same as the questions"));
    json_t *body = json_pack("{s:o, s:i, s:s}", "messages", messages, "max_tokens", 4, "session_id",
                             "a conversation");
    chat_init(&chat, bugs.cluster.url, CHAT_PATH, body);
    chat_send(&chat);
    if (chat.status != 200)
        fail_msg("turn %u: %d %s%s", turn, chat.status, chat.failure, chat.error_message);
    int group = atoi(chat.group);
    *ret_cached = chat.cached_tokens;
    chat_done(&chat);
    return group;
}

static void test_b80_a_chat_whose_worker_died_goes_on_elsewhere(void **state)
{
    struct worker_view worker;
    unsigned cached;
    (void)state;

    start_tiny("2");
    int group = take_turn(0, &cached);
    assert_int_equal(take_turn(1, &cached), group);
    assert_true(cached > 0);
    assert_true(cluster_worker(&bugs.cluster, group, &worker));
    (void)fault_kill_rank(&worker, 0);
    assert_int_equal(take_turn(2, &cached), 1 - group);
    assert_in_range(cached, 0, 15); /* cold there, but for a head of the template */
    (void)fault_await_restart(&bugs.cluster, &worker);
    bugs_stop(&bugs);
}

static json_t *clock_chat(const char *clock)
{
    json_t *body = bugs_json(&bugs, "B42", 0);
    json_t *system = json_array_get(json_object_get(body, "messages"), 0);
    char *text = mem_printf("Current time is %s. You are a helpful assistant.", clock);
    json_object_set_new(system, "content", json_string(text));
    json_object_set_new(body, "max_tokens", json_integer(4));
    mem_free(text);
    return body;
}

static void test_b42_a_clock_in_the_system_text_is_named_by_its_place(void **state)
{
    (void)state;

    start_real("1");
    json_t *first = bugs_ask(&bugs, CHAT_PATH, clock_chat("15:09:20"), 200);
    json_t *second = bugs_ask(&bugs, CHAT_PATH, clock_chat("23:41:07"), 200);
    const json_t *details =
        json_object_get(json_object_get(second, "usage"), "prompt_tokens_details");
    assert_true(json_integer_value(json_object_get(details, "cached_tokens")) < 16); /* no block */
    json_decref(first);
    json_decref(second);

    json_t *a = clock_chat("15:09:20"), *b = clock_chat("23:41:07");
    json_t *check = bugs_ask(&bugs, "/v1/refrain/prefix_check",
                             json_pack("{s:O, s:O}", "messages", json_object_get(a, "messages"),
                                       "next_messages", json_object_get(b, "messages")),
                             200);
    char *text = json_dumps(check, JSON_COMPACT);
    print_message("%s\n", text);
    assert_non_null(strstr(text, "16"));
    free(text); /* jansson's */
    json_decref(check);
    json_decref(a);
    json_decref(b);
    bugs_stop(&bugs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_b42_a_clock_in_the_system_text_is_named_by_its_place,
                                  teardown),
        cmocka_unit_test_teardown(test_b47_a_worker_s_death_in_a_stream_is_an_error, teardown),
        cmocka_unit_test_teardown(test_b79_one_long_system_prompt_does_not_bind_all_to_one_group,
                                  teardown),
        cmocka_unit_test_teardown(test_b80_a_chat_whose_worker_died_goes_on_elsewhere, teardown),
    };
    e2e_begin();
    (void)e2e_smollm2();
    (void)e2e_tiny(TINY);
    return e2e_finish(cmocka_run_group_tests(tests, NULL, NULL));
}
