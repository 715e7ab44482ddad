/* test_faults.c - any process may die by SIGKILL: its group ends, the rest serves on, all comes
 * back, and nothing is left. (Streams under fault: test_fault_streams.c) */
#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/base/clock.h"
#include "proto/base/mem.h"
#include "tests/e2e/harness_fault.h"

#define MODEL "llama-gguf-f32"

static struct cluster cluster;

static int setup(void **state)
{
    (void)state;
    cluster_start(&cluster, e2e_tiny(MODEL),
                  (const char *const[]){"--tp", "2", "--kv-cache-memory", "16MiB", NULL});
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    cluster_abort(&cluster);
    return 0;
}

/* One answer; returns its group. */
static int ask(unsigned tokens)
{
    struct chat chat;
    chat_init(&chat, cluster.url, CHAT_PATH, chat_body(cluster.model, "the answers", tokens));
    chat_send(&chat);
    if (chat.status != 200)
        fail_msg("status %d %s%s", chat.status, chat.failure, chat.error_message);
    int group = (int)strtol(chat.group, NULL, 10);
    chat_done(&chat);
    return group;
}

static void kill_rank_and_expect_recovery(uint32_t rank)
{
    struct worker_view victim, other, now;

    assert_true(cluster_worker(&cluster, 0, &victim));
    assert_true(cluster_worker(&cluster, 1, &other));
    uint32_t gone_ms = fault_kill_rank(&victim, rank);
    for (int i = 0; i < 8; i++)
        (void)ask(4); /* some may be sent to the dead group: they are retried on the other */
    uint32_t back_ms = fault_await_restart(&cluster, &victim);
    print_message("kill -9 of rank %u: group gone after %u ms, served again after %u ms more\n",
                  rank, gone_ms, back_ms);
    cluster_await_ready(&cluster, 2, RESTART_DEADLINE_MS);
    assert_true(cluster_worker(&cluster, 1, &now));
    assert_int_equal(now.pids[0], other.pids[0]); /* the other group did not notice */
    assert_int_equal(now.pids[1], other.pids[1]);
    (void)ask(4);
    cluster_assert_idle(&cluster);
}

static void test_kill_of_rank_one_ends_its_group_and_it_comes_back(void **state)
{
    (void)state;
    kill_rank_and_expect_recovery(1);
}

static void test_kill_of_rank_zero_ends_its_group_and_it_comes_back(void **state)
{
    (void)state;
    kill_rank_and_expect_recovery(0);
}

static void test_requests_right_after_a_kill_are_answered_by_the_other_group(void **state)
{
    struct worker_view victim;
    struct chat chats[16];
    (void)state;

    assert_true(cluster_worker(&cluster, 0, &victim));
    assert_int_equal(kill(victim.pids[0], SIGKILL), 0);
    for (size_t i = 0; i < 16; i++)
        chat_init(&chats[i], cluster.url, CHAT_PATH, chat_body(cluster.model, "th e answ", 4));
    chat_send_all(chats, 16, 16);
    for (size_t i = 0; i < 16; i++) {
        if (chats[i].status != 200)
            fail_msg("request %zu: status %d %s%s", i, chats[i].status, chats[i].failure,
                     chats[i].error_message);
        assert_string_equal(chats[i].group, "1");
        chat_done(&chats[i]);
    }
    (void)fault_await_restart(&cluster, &victim);
    cluster_await_ready(&cluster, 2, RESTART_DEADLINE_MS);
    cluster_assert_idle(&cluster);
}

static bool is_busy(void *user)
{
    struct worker_view *busy = user, workers[WORKERS_MAX];
    size_t count = cluster_workers(&cluster, workers);

    for (size_t i = 0; i < count; i++) {
        *busy = workers[i];
        if (workers[i].inflight > 0)
            return true;
    }
    return false;
}

static json_t *beam_body(void)
{
    json_t *body = completion_body(cluster.model, "th e answ", 300);
    json_object_set_new(body, "use_beam_search", json_true());
    json_object_set_new(body, "ignore_eos", json_true());
    json_object_set_new(body, "n", json_integer(4));
    return body;
}

static bool holds_requests(void *user)
{
    struct worker_view *victim = user;

    assert_true(cluster_worker(&cluster, victim->group, victim));
    return victim->inflight > 0;
}

/* Each step is a request of its own: those that were lost are asked again at the other group.
 * The group is stopped first: killed between two steps it would have had none to lose. */
static void test_beams_go_on_when_their_group_dies(void **state)
{
    struct chat alone, hurt;
    struct worker_view victim;
    (void)state;

    chat_init(&alone, cluster.url, COMPLETION_PATH, beam_body());
    chat_send(&alone);
    assert_int_equal(alone.status, 200);
    chat_init(&hurt, cluster.url, COMPLETION_PATH, beam_body());
    struct chat_crowd *crowd = chat_crowd_start(&hurt, 1, 1);
    assert_true(poll_until(is_busy, &victim, 20000));
    assert_int_equal(kill(victim.pids[0], SIGSTOP), 0);
    assert_true(poll_until(holds_requests, &victim, 20000));
    assert_int_equal(kill(victim.pids[0], SIGKILL), 0);
    chat_crowd_join(crowd);
    if (hurt.status != 200)
        fail_msg("status %d %s%s", hurt.status, hurt.failure, hurt.error_message);
    assert_string_equal(hurt.text, alone.text);
    assert_int_equal(hurt.completion_tokens, 4 * 300);
    assert_true(cluster_metric(&cluster, "refrain_router_retries_total", "", NULL) >= 1);
    chat_done(&alone);
    chat_done(&hurt);
    (void)fault_await_restart(&cluster, &victim);
    cluster_await_ready(&cluster, 2, RESTART_DEADLINE_MS);
    cluster_assert_idle(&cluster);
}

struct router_watch {
    pid_t before;
};

static bool has_new_router(void *user)
{
    const struct router_watch *watch = user;
    pid_t now = cluster_router_pid(&cluster);
    return now > 0 && now != watch->before;
}

static void test_kill_of_the_router_keeps_the_port_and_the_workers(void **state)
{
    struct router_watch watch = {cluster_router_pid(&cluster)};
    struct worker_view before[WORKERS_MAX], after[WORKERS_MAX];
    uint64_t began = clock_ms();
    (void)state;

    assert_int_equal(cluster_workers(&cluster, before), 2);
    assert_true(watch.before > 0);
    assert_int_equal(kill(watch.before, SIGKILL), 0);
    assert_true(poll_until(has_new_router, &watch, RESTART_DEADLINE_MS));
    cluster_await_ready(&cluster, 2, RESTART_DEADLINE_MS);
    print_message("kill -9 of the router: same port, both groups ready after %u ms\n",
                  (unsigned)(clock_ms() - began));
    assert_int_equal(cluster_workers(&cluster, after), 2);
    for (int i = 0; i < 2; i++)
        assert_int_equal(before[i].pids[0], after[i].pids[0]);
    (void)ask(4);
    cluster_assert_idle(&cluster);
}

static void test_a_stopped_worker_is_called_silent_and_taken_back(void **state)
{
    struct worker_view victim;
    uint64_t began = clock_ms(), silent_ms;
    (void)state;

    assert_true(cluster_worker(&cluster, 0, &victim));
    for (uint32_t rank = 0; rank < victim.ranks; rank++)
        assert_int_equal(kill(victim.pids[rank], SIGSTOP), 0);
    cluster_await_ready(&cluster, 1, 15000);
    silent_ms = clock_ms() - began;
    for (int i = 0; i < 4; i++)
        assert_int_equal(ask(4), 1);
    for (uint32_t rank = 0; rank < victim.ranks; rank++) {
        assert_true(proc_is_stopped(victim.pids[rank]));
        assert_int_equal(kill(victim.pids[rank], SIGCONT), 0);
    }
    began = clock_ms();
    cluster_await_ready(&cluster, 2, RESTART_DEADLINE_MS);
    print_message("SIGSTOP: called silent after %u ms; ready %u ms after SIGCONT\n",
                  (unsigned)silent_ms, (unsigned)(clock_ms() - began));
    cluster_assert_idle(&cluster);
}

static void test_a_second_up_in_the_same_folder_is_refused_and_takes_nothing_away(void **state)
{
    struct program program;
    char *socket = mem_printf("%s/router.sock", cluster.run_dir);
    (void)state;

    program_run(&program, 30000,
                (const char *const[]){"refrain", "up", "--model", e2e_tiny(MODEL), "--port", "0",
                                      "--run-dir", cluster.run_dir, NULL});
    assert_int_equal(program.code, 1);
    assert_non_null(strstr(program.err, "another `refrain up` runs in"));
    assert_true(file_exists(socket));
    (void)ask(4);
    program_done(&program);
    mem_free(socket);
}

static void test_a_folder_of_others_loses_nothing_of_theirs(void **state)
{
    struct program program;
    char folder[] = "/tmp/refrain-e2e-own-XXXXXX";
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    (void)state;

    assert_non_null(mkdtemp(folder));
    (void)snprintf(name.sun_path, sizeof(name.sun_path), "%s/bus", folder);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&name, sizeof(name)), 0);
    program_run(&program, 30000,
                (const char *const[]){"refrain", "up", "--model", "/dev/null", "--port", "0",
                                      "--run-dir", folder, NULL});
    assert_int_equal(program.code, 1);
    assert_true(file_exists(name.sun_path));
    program_done(&program);
    (void)close(fd);
    folder_remove(folder);
}

static void test_the_cluster_stops_and_leaves_nothing(void **state)
{
    (void)state;
    cluster_stop(&cluster);
}

static void test_a_worker_that_dies_at_start_ends_refrain_up_with_a_sentence(void **state)
{
    struct program program;
    char folder[] = "/tmp/refrain-e2e-bad-XXXXXX";
    (void)state;

    assert_non_null(mkdtemp(folder));
    char *model = mem_printf("%s/broken.gguf", folder);
    char *run_dir = mem_printf("%s/run", folder);
    file_write(model, "GGUF but not really");
    program_run(&program, 30000,
                (const char *const[]){"refrain", "up", "--model", model, "--port", "0", "--run-dir",
                                      run_dir, NULL});
    assert_int_equal(program.code, 1);
    assert_string_equal(program.out, "");
    assert_non_null(strstr(program.err, "broken.gguf"));
    assert_false(file_exists(run_dir));
    pid_t pids[4];
    assert_int_equal(proc_with_text(run_dir, pids, 4), 0);
    program_done(&program);
    mem_free(model);
    mem_free(run_dir);
    folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kill_of_rank_one_ends_its_group_and_it_comes_back),
        cmocka_unit_test(test_kill_of_rank_zero_ends_its_group_and_it_comes_back),
        cmocka_unit_test(test_requests_right_after_a_kill_are_answered_by_the_other_group),
        cmocka_unit_test(test_beams_go_on_when_their_group_dies),
        cmocka_unit_test(test_kill_of_the_router_keeps_the_port_and_the_workers),
        cmocka_unit_test(test_a_stopped_worker_is_called_silent_and_taken_back),
        cmocka_unit_test(test_a_second_up_in_the_same_folder_is_refused_and_takes_nothing_away),
        cmocka_unit_test(test_a_folder_of_others_loses_nothing_of_theirs),
        cmocka_unit_test(test_the_cluster_stops_and_leaves_nothing),
        cmocka_unit_test(test_a_worker_that_dies_at_start_ends_refrain_up_with_a_sentence),
    };
    e2e_begin();
    (void)e2e_tiny(MODEL);
    return e2e_finish(cmocka_run_group_tests(tests, setup, teardown));
}
