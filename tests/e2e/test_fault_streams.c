/* test_fault_streams.c - 32 streams while a process dies, and a Ctrl-C in the middle: whoever is
 * not hit ends whole, whoever is hit hears an error event or is answered by another group, and no
 * ticket, block or fd is lost. */
#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/clock.h"
#include "tests/e2e/harness_fault.h"

#define STREAMS 32
#define TOKENS 64
#define ALL_BEGIN_MS 30000u

static struct cluster cluster;
static struct chat chats[STREAMS];

static int teardown(void **state)
{
    (void)state;
    cluster_abort(&cluster);
    return 0;
}

static void prepare(size_t count, unsigned tokens)
{
    for (size_t i = 0; i < count; i++) {
        char text[96];
        (void)snprintf(text, sizeof(text), "%zu. Count upwards from %zu, one number a line.", i,
                       i * 7);
        json_t *body = streamed(chat_body(cluster.model, text, tokens));
        json_object_set_new(body, "ignore_eos", json_true());
        chat_init(&chats[i], cluster.url, CHAT_PATH, body);
    }
}

static bool all_have_begun(void *user)
{
    size_t count = *(size_t *)user, begun = 0;
    for (size_t i = 0; i < count; i++)
        begun += chats[i].chunks > 0;
    return begun == count;
}

/* Each stream ended in one of the two allowed ways. Returns how many are whole. */
static size_t count_whole(unsigned tokens, size_t *ret_errors)
{
    size_t whole = 0;

    *ret_errors = 0;
    for (size_t i = 0; i < STREAMS; i++) {
        const struct chat *chat = &chats[i];
        assert_int_equal(chat->status, 200);
        assert_string_equal(chat->failure, "");
        if (chat->error_event) {
            assert_string_equal(chat->finish, "");
            assert_true(strlen(chat->error_message) > 0);
            (*ret_errors)++;
        } else {
            assert_string_equal(chat->finish, "length");
            assert_true(chat->done);
            assert_int_equal(chat->completion_tokens, tokens);
            whole++;
        }
    }
    return whole;
}

static void kill_under_streams(uint32_t rank)
{
    struct worker_view victim, other;
    size_t all = STREAMS, errors, others = 0;

    prepare(STREAMS, TOKENS);
    struct chat_crowd *crowd = chat_crowd_start(chats, STREAMS, STREAMS);
    bool begun = poll_until(all_have_begun, &all, ALL_BEGIN_MS);
    bool known = cluster_worker(&cluster, 0, &victim) && cluster_worker(&cluster, 1, &other);
    uint32_t gone_ms = begun && known ? fault_kill_rank(&victim, rank) : 0;
    uint32_t back_ms = begun && known ? fault_await_restart(&cluster, &victim) : 0;
    chat_crowd_join(crowd);
    assert_true(begun);
    assert_true(known);
    for (size_t i = 0; i < STREAMS; i++)
        others += strcmp(chats[i].group, "1") == 0;
    size_t whole = count_whole(TOKENS, &errors);
    print_message("kill -9 of rank %u under %d streams: group gone after %u ms, back %u ms later; "
                  "%zu streams whole, %zu with an error event; group 1 had %zu\n",
                  rank, STREAMS, gone_ms, back_ms, whole, errors, others);
    assert_true(others > 0 && others < STREAMS);
    assert_true(whole >= others);
    assert_true(errors > 0); /* they had begun and were not finished: no silent end */
    for (size_t i = 0; i < STREAMS; i++)
        chat_done(&chats[i]);
    cluster_await_ready(&cluster, 2, RESTART_DEADLINE_MS);
    cluster_assert_idle(&cluster);
}

static void test_streams_of_the_other_group_end_whole_when_a_rank_is_killed(void **state)
{
    (void)state;
    cluster_start(&cluster, e2e_smollm2(),
                  (const char *const[]){"--tp", "2", "--kv-cache-memory", "256MiB", NULL});
    kill_under_streams(1);
    cluster_stop(&cluster);
}

static void test_streams_of_the_other_group_end_whole_when_a_worker_is_killed(void **state)
{
    (void)state;
    cluster_start(&cluster, e2e_smollm2(),
                  (const char *const[]){"--kv-cache-memory", "256MiB", NULL});
    kill_under_streams(0);
    cluster_stop(&cluster);
}

static void test_requests_not_yet_answered_move_to_the_other_group(void **state)
{
    struct worker_view victim;
    size_t errors;
    (void)state;

    cluster_start(&cluster, e2e_smollm2(),
                  (const char *const[]){"--kv-cache-memory", "256MiB", NULL});
    prepare(STREAMS, 8);
    for (size_t i = 0; i < STREAMS; i++) {
        json_object_del(chats[i].body, "stream");
        json_object_del(chats[i].body, "stream_options");
    }
    struct chat_crowd *crowd = chat_crowd_start(chats, STREAMS, STREAMS);
    assert_true(cluster_worker(&cluster, 0, &victim));
    uint32_t gone_ms = fault_kill_rank(&victim, 0);
    chat_crowd_join(crowd);
    for (size_t i = 0; i < STREAMS; i++)
        chats[i].done = true; /* no stream: nothing to mark its end */
    size_t whole = count_whole(8, &errors);
    print_message("kill -9 under %d whole requests: group gone after %u ms, %zu answered\n",
                  STREAMS, gone_ms, whole);
    assert_int_equal(whole, STREAMS);
    for (size_t i = 0; i < STREAMS; i++)
        chat_done(&chats[i]);
    (void)fault_await_restart(&cluster, &victim);
    cluster_await_ready(&cluster, 2, RESTART_DEADLINE_MS);
    cluster_stop(&cluster);
}

struct router_watch {
    pid_t before;
};

static bool has_new_router(void *user)
{
    pid_t now = cluster_router_pid(&cluster);
    return now > 0 && now != ((struct router_watch *)user)->before;
}

static void test_workers_forget_the_streams_of_a_router_that_was_killed(void **state)
{
    struct router_watch watch;
    size_t count = 8;
    (void)state;

    cluster_start(&cluster, e2e_smollm2(),
                  (const char *const[]){"--kv-cache-memory", "512MiB", NULL});
    prepare(count, 4000); /* would run for minutes */
    watch.before = cluster_router_pid(&cluster);
    struct chat_crowd *crowd = chat_crowd_start(chats, count, count);
    bool begun = poll_until(all_have_begun, &count, ALL_BEGIN_MS);
    uint64_t killed_ms = clock_ms();
    int killed = kill(watch.before, SIGKILL);
    chat_crowd_join(crowd);
    assert_true(begun);
    assert_int_equal(killed, 0);
    for (size_t i = 0; i < count; i++) {
        assert_false(chats[i].done); /* nobody is told that his answer is whole */
        assert_true(chats[i].failure[0]);
        chat_done(&chats[i]);
    }
    assert_true(poll_until(has_new_router, &watch, RESTART_DEADLINE_MS));
    cluster_await_ready(&cluster, 2, RESTART_DEADLINE_MS);
    cluster_assert_idle(&cluster);
    print_message("kill -9 of the router under %zu streams: ready and idle after %u ms\n", count,
                  (unsigned)(clock_ms() - killed_ms));
    cluster_stop(&cluster);
}

static void test_ctrl_c_lets_streams_end_and_leaves_nothing(void **state)
{
    size_t count = 8, whole = 0;
    (void)state;

    cluster_start(&cluster, e2e_smollm2(),
                  (const char *const[]){"--kv-cache-memory", "256MiB", NULL});
    prepare(count, TOKENS);
    struct chat_crowd *crowd = chat_crowd_start(chats, count, count);
    bool begun = poll_until(all_have_begun, &count, ALL_BEGIN_MS);
    int sent = kill(-cluster.pid, SIGINT); /* what a terminal does */
    chat_crowd_join(crowd);
    assert_true(begun);
    assert_int_equal(sent, 0);
    for (size_t i = 0; i < count; i++) {
        whole += chats[i].done && chats[i].completion_tokens == TOKENS && !chats[i].error_event;
        chat_done(&chats[i]);
    }
    assert_int_equal(whole, count);
    cluster_end(&cluster, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_streams_of_the_other_group_end_whole_when_a_rank_is_killed,
                                  teardown),
        cmocka_unit_test_teardown(test_streams_of_the_other_group_end_whole_when_a_worker_is_killed,
                                  teardown),
        cmocka_unit_test_teardown(test_requests_not_yet_answered_move_to_the_other_group, teardown),
        cmocka_unit_test_teardown(test_workers_forget_the_streams_of_a_router_that_was_killed,
                                  teardown),
        cmocka_unit_test_teardown(test_ctrl_c_lets_streams_end_and_leaves_nothing, teardown),
    };
    e2e_begin();
    (void)e2e_smollm2();
    return e2e_finish(cmocka_run_group_tests(tests, NULL, NULL));
}
