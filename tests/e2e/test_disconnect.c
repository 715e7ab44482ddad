/* test_disconnect.c - a client that goes away cancels its request within a few steps, wherever it
 * is: in the middle of a stream, before the first token, in the queue, without a stream. Blocks
 * come back, the count of generated tokens stands still. (cases/bugs.json B66, B67, B68) */
#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/buffer.h"
#include "proto/base/clock.h"
#include "proto/base/mem.h"
#include "tests/e2e/harness.h"

#define LONG_TOKENS 4000 /* would take a minute */
#define QUIET_DEADLINE_MS 5000u

static struct cluster cluster;

static int setup(void **state)
{
    (void)state;
    cluster_start(&cluster, e2e_smollm2(),
                  (const char *const[]){"--groups", "1", "--kv-cache-memory", "512MiB",
                                        "--max-num-batched-tokens", "128", "--max-num-seqs", "4",
                                        NULL});
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    cluster_abort(&cluster);
    return 0;
}

static bool nothing_held(void *user)
{
    struct worker_view worker;
    (void)user;
    return cluster_worker(&cluster, 0, &worker) &&
           worker.running + worker.waiting + worker.inflight + worker.blocks_referenced == 0;
}

static bool is_running(void *user)
{
    struct worker_view worker;
    return cluster_worker(&cluster, 0, &worker) && worker.running >= *(const uint32_t *)user;
}

/* Heartbeats are what the status knows, so this is a heartbeat or two behind the worker. */
static uint32_t await_quiet(void)
{
    uint64_t began = clock_ms();
    if (!poll_until(nothing_held, NULL, QUIET_DEADLINE_MS)) {
        struct worker_view worker = {0};
        (void)cluster_worker(&cluster, 0, &worker);
        fail_msg("after %u ms still running %u waiting %u inflight %u referenced %u",
                 QUIET_DEADLINE_MS, worker.running, worker.waiting, worker.inflight,
                 worker.blocks_referenced);
    }
    return (uint32_t)(clock_ms() - began);
}

static json_t *long_body(const char *text)
{
    json_t *body = streamed(chat_body(cluster.model, text, LONG_TOKENS));
    json_object_set_new(body, "ignore_eos", json_true());
    return body;
}

/* The whole request on a socket of its own; the caller closes it. */
static int send_raw(json_t *body)
{
    char *text = json_dumps(body, JSON_COMPACT);
    char *head = mem_printf("POST " CHAT_PATH " HTTP/1.1\r\nHost: a\r\nContent-Type: "
                            "application/json\r\nContent-Length: %zu\r\n\r\n",
                            strlen(text));
    int fd = raw_connect(cluster.port);

    assert_true(fd >= 0);
    assert_true(raw_write(fd, head, strlen(head)) && raw_write(fd, text, strlen(text)));
    free(text); /* jansson's */
    mem_free(head);
    json_decref(body);
    return fd;
}

/* A prompt whose prefill takes many steps of 128 tokens. */
static char *long_prompt(unsigned seed)
{
    struct buffer text;
    buffer_init(&text, 1 << 20);
    for (unsigned i = 0; i < 500; i++)
        buffer_printf(&text, "%u ", (i * 7919 + seed * 104729) % 1000);
    return buffer_take(&text, NULL);
}

static void test_a_drop_in_the_middle_of_a_stream_ends_the_request(void **state)
{
    struct chat chat;
    size_t samples;
    (void)state;

    chat_init(&chat, cluster.url, CHAT_PATH, long_body("Count to a thousand."));
    chat.drop_at = 5;
    chat_send(&chat);
    assert_int_equal(chat.status, 200);
    assert_int_equal(chat.chunks, 5);
    chat_done(&chat);
    print_message("dropped in a stream: nothing held after %u ms\n", await_quiet());
    double generated = cluster_metric(&cluster, "refrain_generated_tokens_total", "", &samples);
    assert_int_equal(samples, 1);
    assert_true(generated < 400);
}

static void test_a_drop_before_the_first_token_ends_the_request(void **state)
{
    char *prompt = long_prompt(1);
    uint32_t one = 1;
    (void)state;

    int fd = send_raw(long_body(prompt));
    assert_true(poll_until(is_running, &one, QUIET_DEADLINE_MS));
    (void)close(fd);
    print_message("dropped in prefill: nothing held after %u ms\n", await_quiet());
    mem_free(prompt);
}

static void test_a_drop_of_a_request_without_stream_ends_it(void **state)
{
    json_t *body = long_body("Count to a thousand.");
    uint32_t one = 1;
    (void)state;

    json_object_del(body, "stream");
    json_object_del(body, "stream_options");
    int fd = send_raw(body);
    assert_true(poll_until(is_running, &one, QUIET_DEADLINE_MS));
    (void)close(fd);
    print_message("dropped without a stream: nothing held after %u ms\n", await_quiet());
}

static bool are_waiting(void *user)
{
    struct worker_view worker;
    return cluster_worker(&cluster, 0, &worker) && worker.waiting >= *(const uint32_t *)user;
}

static json_t *guided_body(int number, bool good)
{
    json_t *body = chat_body(cluster.model, "Go on.", 2);
    struct buffer regex;
    buffer_init(&regex, 1 << 20);
    for (int i = 0; i < 4000; i++)
        buffer_append(&regex, "[^x]", 4);
    buffer_printf(&regex, good ? "%d" : "%d(", number);
    json_object_set_new(body, "guided_regex", json_stringn(regex.data, regex.bytes));
    buffer_done(&regex);
    return body;
}

/* No worker has it yet; every other one is refused when nobody listens any more. */
static void test_drops_while_a_grammar_is_compiled_end_the_requests(void **state)
{
    int fds[24];
    (void)state;
    for (int i = 0; i < 24; i++)
        fds[i] = send_raw(guided_body(i, i % 2 == 0));
    for (int i = 0; i < 24; i++)
        (void)close(fds[i]);
    print_message("dropped with a grammar: nothing held after %u ms\n", await_quiet());
    json_decref(cluster_post(&cluster, CHAT_PATH, guided_body(0, true), 200));
    json_decref(cluster_post(&cluster, CHAT_PATH, guided_body(1, false), 400));
}

static void test_drops_in_the_queue_end_the_requests(void **state)
{
    uint32_t four = 4;
    int fds[8];
    (void)state;

    for (size_t i = 0; i < 8; i++) /* four run, four wait: --max-num-seqs 4 */
        fds[i] = send_raw(long_body("Count to a thousand."));
    assert_true(poll_until(are_waiting, &four, QUIET_DEADLINE_MS));
    for (size_t i = 0; i < 8; i++)
        (void)close(fds[i]);
    print_message("dropped 4 running and 4 waiting: nothing held after %u ms\n", await_quiet());
}

static void test_b66_fifty_dropped_requests_leave_nothing(void **state)
{
    struct chat chats[50];
    (void)state;

    for (size_t i = 0; i < 50; i++) {
        char text[96];
        (void)snprintf(text, sizeof(text), "%zu is where you begin to count.", i);
        chat_init(&chats[i], cluster.url, CHAT_PATH, long_body(text));
        chats[i].drop_at = 1 + (unsigned)i % 4;
    }
    chat_send_all(chats, 50, 10);
    for (size_t i = 0; i < 50; i++) {
        assert_int_equal(chats[i].status, 200);
        assert_int_equal(chats[i].chunks, chats[i].drop_at);
        chat_done(&chats[i]);
    }
    print_message("50 dropped: nothing held after %u ms\n", await_quiet());
    assert_int_equal((int)cluster_metric(&cluster, "refrain_kv_usage_ratio", "", NULL), 0);
    cluster_assert_idle(&cluster);
}

static void test_the_same_request_is_answered_from_cache_after_a_drop(void **state)
{
    struct chat chat;
    char *prompt = long_prompt(2);
    (void)state;

    for (int turn = 0; turn < 2; turn++) {
        json_t *body = long_body(prompt);
        json_object_set_new(body, "max_tokens", json_integer(turn == 0 ? LONG_TOKENS : 2));
        chat_init(&chat, cluster.url, CHAT_PATH, body);
        chat.drop_at = turn == 0 ? 1 : 0;
        chat_send(&chat);
        assert_int_equal(chat.status, 200);
        if (turn == 1)
            assert_in_range(chat.cached_tokens, chat.prompt_tokens - 17, chat.prompt_tokens - 1);
        chat_done(&chat);
        (void)await_quiet();
    }
    mem_free(prompt);
}

static void test_the_pool_s_invariants_hold_and_the_cluster_stops(void **state)
{
    (void)state;
    cluster_assert_pool(&cluster, 0);
    cluster_stop(&cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_drop_in_the_middle_of_a_stream_ends_the_request),
        cmocka_unit_test(test_a_drop_before_the_first_token_ends_the_request),
        cmocka_unit_test(test_a_drop_of_a_request_without_stream_ends_it),
        cmocka_unit_test(test_drops_while_a_grammar_is_compiled_end_the_requests),
        cmocka_unit_test(test_drops_in_the_queue_end_the_requests),
        cmocka_unit_test(test_b66_fifty_dropped_requests_leave_nothing),
        cmocka_unit_test(test_the_same_request_is_answered_from_cache_after_a_drop),
        cmocka_unit_test(test_the_pool_s_invariants_hold_and_the_cluster_stops),
    };
    e2e_begin();
    (void)e2e_smollm2();
    return e2e_finish(cmocka_run_group_tests(tests, setup, teardown));
}
