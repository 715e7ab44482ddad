/* Clients that go away, half or whole, and readers that do not read: who hears it, and when. */
#include <cmocka.h>

#include "router/http/client.h"
#include "tests/unit/router/http/loopback.h"

struct fixture {
    struct loopback l;
    struct http_limits limits;
    struct http_exchange *held;
    unsigned gone_count;
    bool within_a_call; /* on_gone must not run inside a call of ours */
};

static void on_gone(void *owner)
{
    struct fixture *f = owner;

    assert_false(f->within_a_call);
    f->held = NULL;
    f->gone_count++;
}

static void handle_hold(struct http_exchange *exchange, void *user)
{
    struct fixture *f = user;

    http_exchange_on_gone(exchange, on_gone, f);
    f->held = exchange;
}

static void handle_stream(struct http_exchange *exchange, void *user)
{
    handle_hold(exchange, user);
    http_exchange_begin(exchange, 200, "text/event-stream");
}

static const struct http_route routes[] = {
    {"GET", "/hold", handle_hold},
    {"GET", "/stream", handle_stream},
    {NULL, NULL, NULL},
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));

    http_limits_default(&f->limits);
    *state = f;
    return f != NULL ? 0 : -1;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(loopback_counts(&f->l).exchanges_open, 0);
    loopback_close(&f->l);
    free(f);
    return 0;
}

/* A client whose request is in its handler's hands. */
static void open_held(struct fixture *f, struct peer *peer, const char *request)
{
    loopback_open(&f->l, &f->limits, routes, f);
    peer_open(peer, &f->l);
    peer_say(peer, request);
    LOOPBACK_UNTIL(&f->l, -1, f->held != NULL);
}

#define GET(path) "GET " path " HTTP/1.1\r\nHost: h\r\n\r\n"

static void test_reset_when_the_handler_works_then_gone(void **state)
{
    struct fixture *f = *state;
    struct peer peer;

    open_held(f, &peer, GET("/hold"));
    peer_reset(&peer);
    LOOPBACK_UNTIL(&f->l, -1, f->gone_count == 1);
    LOOPBACK_UNTIL(&f->l, -1, loopback_counts(&f->l).clients_open == 0);
}

static void test_close_when_the_handler_works_then_gone_by_the_probe(void **state)
{
    struct fixture *f = *state;
    struct peer peer;

    open_held(f, &peer, GET("/hold"));
    peer_close(&peer); /* a FIN, as from a half-close */
    LOOPBACK_UNTIL(&f->l, -1, f->gone_count == 1);
}

static void test_close_when_a_stream_is_silent_then_gone_by_the_probe(void **state)
{
    struct fixture *f = *state;
    struct peer peer;

    open_held(f, &peer, GET("/stream"));
    peer_hear(&peer, "\r\n\r\n"); /* all is read, so that closing sends a FIN */
    peer_close(&peer);
    LOOPBACK_UNTIL(&f->l, -1, f->gone_count == 1);
}

static void test_close_when_a_stream_is_written_then_gone_after_the_reset(void **state)
{
    struct fixture *f = *state;
    struct peer peer;
    unsigned writes = 0;

    open_held(f, &peer, GET("/stream"));
    peer_hear(&peer, "\r\n\r\n");
    peer_close(&peer);
    while (f->gone_count == 0) {
        f->within_a_call = true;
        http_exchange_write(f->held, "x", 1);
        f->within_a_call = false;
        loopback_turn(&f->l, -1);
        assert_true(++writes < 1000);
    }
}

static void test_half_close_when_the_handler_works_then_probed_and_answered(void **state)
{
    struct fixture *f = *state;
    struct peer peer;

    open_held(f, &peer, GET("/hold"));
    peer_half_close(&peer);
    peer_hear(&peer, "HTTP/1.1 100 Continue\r\n\r\n");
    for (uint64_t end = clock_ms() + 5 * CLIENT_PROBE_EVERY_MS; clock_ms() < end;)
        loopback_turn(&f->l, -1); /* several looks find it alive */
    assert_int_equal(f->gone_count, 0);
    http_exchange_reply(f->held, 200, "text/plain", "late", 4);
    f->held = NULL;
    peer_hear_end(&peer);
    assert_string_equal(peer.in.data + peer.in.bytes - 4, "late");
    peer_close(&peer);
}

static void test_half_close_when_a_stream_is_open_then_probed_within_a_chunk_size(void **state)
{
    struct fixture *f = *state;
    struct peer peer;

    open_held(f, &peer, GET("/stream") GET("/hold"));
    peer_half_close(&peer);
    peer_hear(&peer, "\r\n\r\n0");
    http_exchange_write(f->held, "data", 4);
    http_exchange_end(f->held);
    f->held = NULL;
    LOOPBACK_UNTIL(&f->l, -1, f->held != NULL); /* what was sent before the end is served */
    http_exchange_reply(f->held, 200, "text/plain", "last", 4);
    f->held = NULL;
    peer_hear_end(&peer);
    assert_non_null(strstr(peer.in.data, "\r\n\r\n04\r\ndata\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n"));
    assert_string_equal(peer.in.data + peer.in.bytes - 4, "last");
    assert_int_equal(f->gone_count, 0);
    peer_close(&peer);
}

static void test_half_close_when_answered_soon_then_no_probe_is_sent(void **state)
{
    struct fixture *f = *state;
    struct peer peer;

    open_held(f, &peer, GET("/hold"));
    peer_half_close(&peer);
    loopback_turn(&f->l, -1);
    http_exchange_reply(f->held, 200, "text/plain", "soon", 4);
    f->held = NULL;
    peer_hear_end(&peer);
    assert_int_equal(count_text(peer.in.data, "HTTP/1.1 "), 1);
    peer_close(&peer);
}

static void test_half_close_when_http10_then_grace_and_gone(void **state)
{
    struct fixture *f = *state;
    uint64_t begin = clock_ms();
    struct peer peer;

    open_held(f, &peer, "GET /hold HTTP/1.0\r\n\r\n");
    peer_half_close(&peer);
    LOOPBACK_UNTIL(&f->l, -1, f->gone_count == 1);
    assert_true(clock_ms() - begin >= CLIENT_HALF_CLOSE_GRACE_MS); /* not earlier */
    peer_take(&peer);
    assert_int_equal(peer.in.bytes, 0);
    peer_close(&peer);
}

static void test_end_when_half_a_request_came_then_closed_without_a_word(void **state)
{
    static const char *const halves[] = {
        "", "GET / HT", "GET /hold HTTP/1.1\r\nHost: h\r\n",
        "GET /hold HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nab"};
    struct fixture *f = *state;

    loopback_open(&f->l, &f->limits, routes, f);
    for (size_t i = 0; i < sizeof(halves) / sizeof(halves[0]); i++) {
        struct peer peer;

        peer_open(&peer, &f->l);
        peer_say(&peer, halves[i]);
        peer_half_close(&peer);
        peer_hear_end(&peer);
        assert_int_equal(peer.in.bytes, 0);
        peer_close(&peer);
    }
    assert_int_equal(loopback_counts(&f->l).requests_total, 0);
}

static void test_slow_reader_when_over_the_write_limit_then_gone_after_the_call(void **state)
{
    struct fixture *f = *state;
    static char block[65536];
    struct peer peer;
    uint64_t written = 0;

    f->limits.write_bytes_max = 256 << 10;
    open_held(f, &peer, GET("/stream"));
    while (f->gone_count == 0) { /* the peer never reads */
        f->within_a_call = true;
        http_exchange_write(f->held, block, sizeof(block));
        f->within_a_call = false;
        written += sizeof(block);
        if (written % (1 << 20) == 0)
            loopback_turn(&f->l, -1);
        assert_true(written < (uint64_t)256 << 20); /* socket buffers end somewhere */
    }
    peer_close(&peer);
    LOOPBACK_UNTIL(&f->l, -1, loopback_counts(&f->l).clients_open == 0);
}

static void test_stalled_reader_when_the_time_is_over_then_gone(void **state)
{
    enum { BYTES = 64 << 20 };
    struct fixture *f = *state;
    char *body = calloc(1, BYTES);
    struct peer peer;

    f->limits.write_timeout_ms = 60;
    f->limits.write_bytes_max = (uint64_t)1 << 30;
    open_held(f, &peer, GET("/stream"));
    http_exchange_write(f->held, body, BYTES); /* more than any socket buffer; never read */
    LOOPBACK_UNTIL(&f->l, -1, f->gone_count == 1);
    peer_close(&peer);
    free(body);
}

static void test_pipelining_when_it_floods_an_open_exchange_then_reading_stops(void **state)
{
    enum { BYTES = 32 << 20 };
    struct fixture *f = *state;
    char *flood = malloc(BYTES);
    size_t sent = 0, still = 0;
    struct peer peer;

    memset(flood, '\n', BYTES);
    for (size_t i = 0; i < BYTES; i += 2)
        flood[i] = '\r'; /* empty lines */
    open_held(f, &peer, GET("/hold"));
    while (still < 50) { /* until nothing has been taken for 50 turns */
        ssize_t n = send(peer.fd, flood + sent, BYTES - sent, MSG_NOSIGNAL);

        still = n > 0 ? 0 : still + 1;
        sent += n > 0 ? (size_t)n : 0;
        assert_true(sent < BYTES);
        loopback_turn(&f->l, -1);
    }
    assert_int_equal(f->gone_count, 0);
    peer_reset(&peer);
    http_exchange_reply(f->held, 200, "text/plain", "x", 1); /* unnoticed until now: no harm */
    f->held = NULL;
    LOOPBACK_UNTIL(&f->l, -1, loopback_counts(&f->l).clients_open == 0);
    free(flood);
}

static void test_many_clients_when_all_go_at_once_then_each_owner_hears_it(void **state)
{
    enum { PEERS = 50 };
    struct fixture *f = *state;
    struct peer peers[PEERS];

    loopback_open(&f->l, &f->limits, routes, f);
    for (int i = 0; i < PEERS; i++) {
        peer_open(&peers[i], &f->l);
        peer_say(&peers[i], i % 2 == 0 ? GET("/hold") : GET("/stream"));
    }
    LOOPBACK_UNTIL(&f->l, -1, loopback_counts(&f->l).exchanges_open == PEERS);
    for (int i = 0; i < PEERS; i++) {
        if (i % 3 == 0)
            peer_reset(&peers[i]);
        else
            peer_close(&peers[i]);
    }
    LOOPBACK_UNTIL(&f->l, -1, f->gone_count == PEERS);
    LOOPBACK_UNTIL(&f->l, -1, loopback_counts(&f->l).clients_open == 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_reset_when_the_handler_works_then_gone),
        TEST(test_close_when_the_handler_works_then_gone_by_the_probe),
        TEST(test_close_when_a_stream_is_silent_then_gone_by_the_probe),
        TEST(test_close_when_a_stream_is_written_then_gone_after_the_reset),
        TEST(test_half_close_when_the_handler_works_then_probed_and_answered),
        TEST(test_half_close_when_a_stream_is_open_then_probed_within_a_chunk_size),
        TEST(test_half_close_when_answered_soon_then_no_probe_is_sent),
        TEST(test_half_close_when_http10_then_grace_and_gone),
        TEST(test_end_when_half_a_request_came_then_closed_without_a_word),
        TEST(test_slow_reader_when_over_the_write_limit_then_gone_after_the_call),
        TEST(test_stalled_reader_when_the_time_is_over_then_gone),
        TEST(test_pipelining_when_it_floods_an_open_exchange_then_reading_stops),
        TEST(test_many_clients_when_all_go_at_once_then_each_owner_hears_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
