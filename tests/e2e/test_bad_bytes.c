/* test_bad_bytes.c - what no HTTP library sends: broken framing, oversized heads, clients that are
 * slow, silent or gone. Small timeouts come from the [router] section of a settings file. */
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/base/clock.h"
#include "proto/base/mem.h"
#include "tests/e2e/harness.h"

#define MODEL "llama-gguf-f32"
#define ANSWER_DEADLINE_MS 10000u

static struct cluster cluster;
static char config_path[64];
static pid_t router_pid;

static int setup(void **state)
{
    (void)state;
    (void)snprintf(config_path, sizeof(config_path), "/tmp/refrain-e2e-conf-XXXXXX");
    int fd = mkstemp(config_path);
    if (fd < 0)
        return -1;
    (void)close(fd);
    file_write(config_path, "[cluster]\nkv-cache-memory = 16MiB\n\n[router]\n"
                            "header-timeout = 0.5\nbody-timeout = 0.5\nidle-timeout = 1\n");
    cluster_start(&cluster, e2e_tiny(MODEL),
                  (const char *const[]){"--groups", "1", "--config", config_path, NULL});
    router_pid = cluster_router_pid(&cluster);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    cluster_abort(&cluster);
    (void)unlink(config_path);
    return 0;
}

static void assert_still_well(void)
{
    struct http_answer answer;
    assert_true(proc_is_alive(router_pid));
    http_get(cluster.url, "/health", &answer);
    assert_int_equal(answer.status, 200);
    http_answer_done(&answer);
}

/* Send, read until the server closes; the status of the first response. */
static int exchange(const char *bytes, size_t count)
{
    bool closed = false;
    int fd = raw_connect(cluster.port);

    assert_true(fd >= 0);
    (void)raw_write(fd, bytes, count);
    char *response = raw_read(fd, NULL, ANSWER_DEADLINE_MS, &closed);
    int status = raw_status(response);
    bool has_object = strstr(response, "{\"error\":{\"message\":") != NULL;
    mem_free(response);
    (void)close(fd);
    assert_true(closed); /* a broken message ends its connection */
    if (status >= 400)
        assert_true(has_object);
    assert_still_well();
    return status;
}

static void test_broken_framing_gets_an_error_object_and_a_close(void **state)
{
    static const struct {
        int status;
        const char *bytes;
    } rows[] = {
        {400, "garbage\r\n\r\n"},
        {400, "GET\r\n\r\n"},
        {400, "GET /health HTTP/1.1\r\n\r\n"}, /* no Host */
        {400, "GET /health HTTP/1.1\r\nHost: a\r\nbad header\r\n\r\n"},
        {400, "GET /health HTTP/1.1\r\nHost: a\r\nX : y\r\n\r\n"},
        {400, "GET /health HTTP/1.1\r\nHost: a\r\n folded: y\r\n\r\n"},
        {400, "GET /health HTTP/1.1\r\nHost: a\r\nX: a\x01z\r\n\r\n"},
        {400, "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n"
              "Content-Length: 6\r\n\r\nhello"},
        {400, "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n"},
        {400, "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n"
              "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
        {400, "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\n"
              "Transfer-Encoding: chunked\r\n\r\nzz\r\n"},
        {501, "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\n"
              "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"},
        {505, "GET /health HTTP/3.0\r\nHost: a\r\n\r\n"},
        {413, "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 3000000000\r\n"
              "Content-Type: application/json\r\n\r\n"},
        {413, "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n"
              "Content-Length: 10485760\r\nContent-Type: application/json\r\n\r\n"},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int status = exchange(rows[i].bytes, strlen(rows[i].bytes));
        if (status != rows[i].status)
            fail_msg("%.100s: wanted %d, got %d", rows[i].bytes, rows[i].status, status);
    }
}

static void test_oversized_heads_get_431_and_414(void **state)
{
    char *filler = mem_zalloc(20001);
    (void)state;

    memset(filler, 'a', 20000);
    char *header = mem_printf("GET /health HTTP/1.1\r\nHost: a\r\nX: %s\r\n\r\n", filler);
    char *target = mem_printf("GET /%s HTTP/1.1\r\nHost: a\r\n\r\n", filler);
    assert_int_equal(exchange(header, strlen(header)), 431);
    assert_int_equal(exchange(target, strlen(target)), 414);
    mem_free(header);
    mem_free(target);
    mem_free(filler);
}

static void test_a_client_that_is_slow_with_its_head_gets_408(void **state)
{
    static const char head[] = "GET /health HTTP/1.1\r\nHost:";
    uint64_t began = clock_ms();
    (void)state;

    assert_int_equal(exchange(head, sizeof(head) - 1), 408);
    print_message("slow head: 408 after %u ms (limit 500 ms)\n", (unsigned)(clock_ms() - began));
}

static void test_a_client_that_is_slow_with_its_body_gets_408(void **state)
{
    static const char head[] = "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\n"
                               "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"mo";
    uint64_t began = clock_ms();
    (void)state;

    assert_int_equal(exchange(head, sizeof(head) - 1), 408);
    print_message("slow body: 408 after %u ms (limit 500 ms)\n", (unsigned)(clock_ms() - began));
}

/* One byte every 100 ms is progress, and still too slow. */
static void test_a_client_that_trickles_its_head_gets_408(void **state)
{
    static const char head[] = "GET /health HTTP/1.1\r\nX-Slow: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    int fd = raw_connect(cluster.port), status = 0;
    (void)state;

    assert_true(fd >= 0);
    for (size_t i = 0; i < sizeof(head) - 1 && status == 0; i++) {
        bool closed;
        (void)raw_write(fd, head + i, 1);
        char *response = raw_read(fd, "\r\n", 100, &closed);
        status = raw_status(response);
        mem_free(response);
    }
    (void)close(fd);
    assert_int_equal(status, 408);
    assert_still_well();
}

static void test_an_idle_connection_is_closed_without_a_word(void **state)
{
    static const char request[] = "GET /health HTTP/1.1\r\nHost: a\r\n\r\n";
    bool closed = false;
    int fd = raw_connect(cluster.port);
    (void)state;

    assert_true(raw_write(fd, request, sizeof(request) - 1));
    char *first = raw_read(fd, "\"ok\"}", ANSWER_DEADLINE_MS, &closed);
    assert_int_equal(raw_status(first), 200);
    char *rest = raw_read(fd, NULL, ANSWER_DEADLINE_MS, &closed);
    assert_true(closed);
    assert_string_equal(rest, "");
    mem_free(first);
    mem_free(rest);
    (void)close(fd);
}

static void test_b61_a_refused_body_is_not_taken_for_the_next_request(void **state)
{
    static const char pair[] = "POST /nope HTTP/1.1\r\nHost: x\r\nContent-Length: 41\r\n\r\n"
                               "GET /smuggled HTTP/1.1\r\nHost: evil.test\r\n\r\n"
                               "GET /health HTTP/1.1\r\nHost: x\r\n\r\n";
    bool closed;
    int fd = raw_connect(cluster.port);
    (void)state;

    assert_true(raw_write(fd, pair, sizeof(pair) - 1));
    char *response = raw_read(fd, "\"ok\"}", ANSWER_DEADLINE_MS, &closed);
    assert_int_equal(raw_status(response), 404);
    assert_null(strstr(response, "smuggled"));
    assert_true(closed || strstr(response, "\"ok\"}"));
    mem_free(response);
    (void)close(fd);
    assert_still_well();
}

static void test_b63_a_chunked_body_in_single_bytes_is_answered(void **state)
{
    static const char body[] = "{\"model\":\"model\",\"messages\":[{\"role\":\"user\",\"content\":"
                               "\"a\"}],\"max_tokens\":2}";
    static const char head[] = "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: "
                               "application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
    bool closed;
    int fd = raw_connect(cluster.port);
    (void)state;

    assert_true(raw_write(fd, head, sizeof(head) - 1));
    for (size_t i = 0; i < sizeof(body) - 1; i++) {
        char chunk[16];
        int bytes = snprintf(chunk, sizeof(chunk), "1\r\n%c\r\n", body[i]);
        assert_true(raw_write(fd, chunk, (size_t)bytes));
    }
    assert_true(raw_write(fd, "0\r\n\r\n", 5));
    char *response = raw_read(fd, "\"usage\"", ANSWER_DEADLINE_MS, &closed);
    assert_int_equal(raw_status(response), 200);
    mem_free(response);
    (void)close(fd);
}

static void test_a_thousand_silent_connections_leave_no_fd(void **state)
{
    int fds[200];
    (void)state;

    for (int round = 0; round < 5; round++) {
        for (size_t i = 0; i < 200; i++) {
            fds[i] = raw_connect(cluster.port);
            assert_true(fds[i] >= 0);
            if (i % 3 == 0)
                assert_true(raw_write(fds[i], "POST /v1/ch", 11));
        }
        for (size_t i = 0; i < 200; i++)
            (void)close(fds[i]);
    }
    assert_still_well();
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
        cmocka_unit_test(test_broken_framing_gets_an_error_object_and_a_close),
        cmocka_unit_test(test_oversized_heads_get_431_and_414),
        cmocka_unit_test(test_a_client_that_is_slow_with_its_head_gets_408),
        cmocka_unit_test(test_a_client_that_is_slow_with_its_body_gets_408),
        cmocka_unit_test(test_a_client_that_trickles_its_head_gets_408),
        cmocka_unit_test(test_an_idle_connection_is_closed_without_a_word),
        cmocka_unit_test(test_b61_a_refused_body_is_not_taken_for_the_next_request),
        cmocka_unit_test(test_b63_a_chunked_body_in_single_bytes_is_answered),
        cmocka_unit_test(test_a_thousand_silent_connections_leave_no_fd),
        cmocka_unit_test(test_the_cluster_stops_and_leaves_nothing),
    };
    e2e_begin();
    (void)e2e_tiny(MODEL);
    return e2e_finish(cmocka_run_group_tests(tests, setup, teardown));
}
