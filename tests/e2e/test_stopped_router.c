/* test_stopped_router.c - a router that stands still (SIGSTOP, a debugger, swap) while its workers
 * live: after 5 s they forget it and cancel its requests; it must learn that when it goes on. */
#include <cmocka.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/mem.h"
#include "tests/e2e/harness.h"
#include "tests/e2e/harness_http.h"

#define FORGET_DEADLINE_MS 30000u /* 5 s of silence and much slack */
#define END_DEADLINE_MS 30000u

static struct cluster cluster;

static bool nothing_runs(void *user)
{
    const struct worker_view *worker = user;
    json_t *stats = admin_call(worker->admin_socket, "show stats");
    const json_t *running = json_object_get(stats, "running");
    bool idle = json_is_integer(running) && json_integer_value(running) == 0;
    json_decref(stats);
    return idle;
}

static void test_a_stream_that_the_worker_forgot_ends_with_an_error_event(void **state)
{
    static const char body[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"Count.\"}],"
                               "\"stream\":true,\"ignore_eos\":true,\"max_tokens\":6000}";
    struct worker_view worker;
    pid_t router = cluster_router_pid(&cluster);
    bool closed = false;
    (void)state;

    assert_true(cluster_worker(&cluster, 0, &worker));
    int fd = raw_connect(cluster.port);
    char *head =
        mem_printf("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n"
                   "Content-Type: application/json\r\n\r\n%s",
                   sizeof(body) - 1, body);
    assert_true(raw_write(fd, head, strlen(head)));
    char *first = raw_read(fd, "data: ", END_DEADLINE_MS, &closed);
    assert_non_null(strstr(first, "200 OK"));
    assert_int_equal(kill(router, SIGSTOP), 0);
    assert_true(poll_until(nothing_runs, &worker, FORGET_DEADLINE_MS));
    assert_int_equal(kill(router, SIGCONT), 0);
    char *rest = raw_read(fd, "event: error", END_DEADLINE_MS, &closed);
    assert_non_null(strstr(rest, "event: error"));
    (void)close(fd);
    mem_free(head);
    mem_free(first);
    mem_free(rest);
    cluster_await_ready(&cluster, 1, END_DEADLINE_MS);
    cluster_assert_idle(&cluster);
}

static void test_the_cluster_stops_and_leaves_nothing(void **state)
{
    (void)state;
    cluster_stop(&cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_stream_that_the_worker_forgot_ends_with_an_error_event),
        cmocka_unit_test(test_the_cluster_stops_and_leaves_nothing),
    };
    e2e_begin();
    cluster_start(&cluster, e2e_smollm2(), (const char *const[]){"--groups", "1", NULL});
    return e2e_finish(cmocka_run_group_tests(tests, NULL, NULL));
}
