/* test_killed_up.c - `refrain up` itself may die by SIGKILL, in the middle of work too: its
 * children end, and the next start removes the folder that was left. */
#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "proto/base/clock.h"
#include "proto/base/mem.h"
#include "tests/e2e/harness.h"

#define MODEL "llama-gguf-f32"
#define GONE_DEADLINE_MS 10000u

static struct cluster first, second;
static char runtime_dir[64];

static int setup(void **state)
{
    (void)state;
    (void)snprintf(runtime_dir, sizeof(runtime_dir), "/tmp/refrain-e2e-xdg-XXXXXX");
    return mkdtemp(runtime_dir) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    cluster_abort(&first);
    cluster_abort(&second);
    folder_remove(runtime_dir);
    return 0;
}

static const char *const flags[] = {"--tp", "2", "--kv-cache-memory", "16MiB", NULL};

static void test_killed_up_takes_its_children_and_the_next_start_cleans(void **state)
{
    struct chat chats[8];
    uint64_t began;
    (void)state;

    cluster_start_in(&first, e2e_tiny(MODEL), flags, runtime_dir);
    assert_true(file_exists(first.run_dir));
    for (size_t i = 0; i < 8; i++) {
        json_t *body = streamed(chat_body(first.model, "the answers", 400));
        json_object_set_new(body, "ignore_eos", json_true());
        chat_init(&chats[i], first.url, CHAT_PATH, body);
    }
    struct chat_crowd *crowd = chat_crowd_start(chats, 8, 8);
    began = clock_ms();
    assert_int_equal(kill(first.pid, SIGKILL), 0);
    assert_int_equal(waitpid(first.pid, NULL, 0), first.pid);
    first.pid = 0;
    cluster_assert_gone(&first, GONE_DEADLINE_MS);
    print_message("kill -9 of refrain up: nothing of it runs after %u ms\n",
                  (unsigned)(clock_ms() - began));
    chat_crowd_join(crowd);
    for (size_t i = 0; i < 8; i++)
        chat_done(&chats[i]);

    char *left = mem_strdup(first.run_dir);
    cluster_start_in(&second, e2e_tiny(MODEL), flags, runtime_dir);
    assert_true(strcmp(left, second.run_dir) != 0);
    assert_false(file_exists(left));
    mem_free(left);
    cluster_stop(&second);
}

static bool router_listens(void *user)
{
    size_t bytes = 0;
    char *log = file_read(((struct cluster *)user)->log_path, &bytes);
    bool listens = log && strstr(log, "router listens");
    mem_free(log);
    return listens;
}

static bool children_run(void *user)
{
    pid_t pids[8];
    return proc_with_text(((struct cluster *)user)->mark, pids, 8) >= 3;
}

static void test_killed_while_it_starts_it_leaves_nothing(void **state)
{
    bool (*const moments[])(void *) = {children_run, router_listens};
    (void)state;

    for (size_t i = 0; i < 2; i++) {
        cluster_launch(&first, e2e_tiny(MODEL), flags);
        assert_true(poll_until(moments[i], &first, GONE_DEADLINE_MS));
        assert_int_equal(kill(first.pid, SIGKILL), 0);
        assert_int_equal(waitpid(first.pid, NULL, 0), first.pid);
        first.pid = 0;
        cluster_assert_gone(&first, GONE_DEADLINE_MS);
        cluster_abort(&first);
    }
}

static void test_signals_while_it_starts_end_it_in_order(void **state)
{
    bool (*const moments[])(void *) = {children_run, router_listens};
    const int signals[] = {SIGTERM, SIGHUP};
    (void)state;

    for (size_t i = 0; i < 2; i++) {
        cluster_launch(&first, e2e_tiny(MODEL), flags);
        assert_true(poll_until(moments[i], &first, GONE_DEADLINE_MS));
        cluster_end(&first, signals[i]);
    }
}

static bool has_begun(void *user)
{
    return ((struct chat *)user)->chunks > 0;
}

/* The router answers what it has and is started again, ranks do not care, and `up` stops. */
static void test_sighup_ends_streams_whole_and_spares_ranks(void **state)
{
    struct worker_view worker;
    struct chat chat;
    (void)state;

    cluster_start(&first, e2e_tiny(MODEL), flags);
    pid_t router = cluster_router_pid(&first);
    assert_true(router > 0 && cluster_worker(&first, 0, &worker));
    json_t *body = streamed(completion_body(first.model, "Once upon a time", 300));
    json_object_set_new(body, "ignore_eos", json_true());
    chat_init(&chat, first.url, COMPLETION_PATH, body);
    struct chat_crowd *crowd = chat_crowd_start(&chat, 1, 1);
    bool begun = poll_until(has_begun, &chat, GONE_DEADLINE_MS);
    int sent = kill(worker.pids[1], SIGHUP) + kill(router, SIGHUP);
    chat_crowd_join(crowd);
    assert_true(begun);
    assert_int_equal(sent, 0);
    assert_true(chat.done && chat.completion_tokens == 300);
    chat_done(&chat);
    cluster_await_ready(&first, 2, GONE_DEADLINE_MS);
    assert_int_not_equal(cluster_router_pid(&first), router);
    struct worker_view now;
    assert_true(cluster_worker(&first, 0, &now));
    assert_int_equal(now.pids[1], worker.pids[1]);
    cluster_end(&first, SIGHUP);
}

static bool says_ready(void *user)
{
    char *text = file_read(user, NULL);
    bool ready = text && strstr(text, "ready http://");
    mem_free(text);
    return ready;
}

/* nohup: it stays. */
static void test_an_ignored_sighup_stays_ignored(void **state)
{
    char path[PATH_MAX];
    struct program program;
    (void)state;

    program_start(&program, (const char *const[]){"/usr/bin/nohup", BUILD_DIR "/refrain", "up",
                                                  "--model", e2e_tiny(MODEL), "--port", "0",
                                                  "--kv-cache-memory", "16MiB", NULL});
    (void)snprintf(path, sizeof(path), "%s/out", program.folder);
    assert_true(poll_until(says_ready, path, GONE_DEADLINE_MS));
    assert_int_equal(kill(program.pid, SIGHUP), 0);
    assert_int_equal(kill(program.pid, SIGHUP), 0); /* two would cut what runs */
    assert_int_equal(kill(program.pid, SIGTERM), 0);
    program_wait(&program, GONE_DEADLINE_MS);
    assert_int_equal(program.code, 0);
    assert_non_null(strstr(program.err, "stopping: "));
    program_done(&program);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed_up_takes_its_children_and_the_next_start_cleans),
        cmocka_unit_test(test_killed_while_it_starts_it_leaves_nothing),
        cmocka_unit_test(test_signals_while_it_starts_end_it_in_order),
        cmocka_unit_test(test_sighup_ends_streams_whole_and_spares_ranks),
        cmocka_unit_test(test_an_ignored_sighup_stays_ignored),
    };
    e2e_begin();
    (void)e2e_tiny(MODEL);
    return e2e_finish(cmocka_run_group_tests(tests, setup, teardown));
}
