/* The server over real loopback sockets: exchanges, limits, faults, drain and close. */
#include <cmocka.h>

#include "proto/base/json.h"
#include "tests/unit/router/http/loopback.h"

#include "router/http/sse.h"

struct fixture {
    struct loopback l;
    struct http_limits limits;
    struct http_exchange *held; /* by /hold; NULL once gone */
    unsigned held_count, gone_count;
};

static void on_gone(void *owner)
{
    struct fixture *f = owner;

    f->held = NULL;
    f->gone_count++;
}

static void handle_hello(struct http_exchange *exchange, void *user)
{
    (void)user;
    http_exchange_reply(exchange, 200, "text/plain", "hello", 5);
}

/* Answers with all that it was given. */
static void handle_echo(struct http_exchange *exchange, void *user)
{
    const char *query = http_exchange_query(exchange);
    const char *segment = http_exchange_segment(exchange);
    const char *header = http_exchange_header(exchange, "x-test");
    struct buffer text;
    const void *body;
    size_t bytes;

    (void)user;
    body = http_exchange_body(exchange, &bytes);
    buffer_init(&text, (size_t)1 << 24);
    buffer_printf(&text, "%s %s q=%s s=%s h=%s b=", http_exchange_method(exchange),
                  http_exchange_path(exchange), query != NULL ? query : "-",
                  segment != NULL ? segment : "-", header != NULL ? header : "-");
    buffer_append(&text, body, bytes);
    buffer_append_text(&text, ";");
    http_exchange_reply(exchange, 200, "text/plain", text.data, text.bytes);
    buffer_done(&text);
}

static void handle_hold(struct http_exchange *exchange, void *user)
{
    struct fixture *f = user;

    http_exchange_on_gone(exchange, on_gone, f);
    f->held = exchange;
    f->held_count++;
}

static void handle_error(struct http_exchange *exchange, void *user)
{
    (void)user;
    http_exchange_add_header(exchange, "Retry-After", "3");
    http_exchange_reply_error(exchange, 429, "overloaded", "messages[0]", "bad \"%s\" \n\xff\xc3",
                              "\xc3\xa9");
}

static void handle_stream(struct http_exchange *exchange, void *user)
{
    (void)user;
    sse_begin(exchange);
    for (int i = 0; i < 100; i++)
        sse_data(exchange, "{\"a\":1}", 7);
    sse_done(exchange);
}

static const struct http_route routes[] = {
    {"GET", "/", handle_hello},
    {"GET", "/hello", handle_hello},
    {"GET", "/echo", handle_echo},
    {"POST", "/echo", handle_echo},
    {"GET", "/echo/{}", handle_echo},
    {"GET", "/tree/{*}", handle_echo},
    {"GET", "/hold", handle_hold},
    {"POST", "/hold", handle_hold},
    {"GET", "/error", handle_error},
    {"GET", "/stream", handle_stream},
    {"DELETE", "/hello", handle_hello},
    {"GET", "/v1/thing", handle_hello},
    {NULL, NULL, NULL},
};

static void open_fixture(struct fixture *f)
{
    loopback_open(&f->l, &f->limits, routes, f);
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));

    http_limits_default(&f->limits);
    *state = f;
    return f != NULL ? 0 : -1;
}

/* Every test ends with everything given back. */
static int teardown(void **state)
{
    struct fixture *f = *state;

    if (f->l.server != NULL)
        loopback_close(&f->l);
    assert_null(f->held);
    free(f);
    return 0;
}

#define GET(path) "GET " path " HTTP/1.1\r\nHost: h\r\n\r\n"

static void test_get_when_answered_then_the_connection_serves_the_next(void **state)
{
    struct fixture *f = *state;
    struct peer peer;

    open_fixture(f);
    peer_open(&peer, &f->l);
    for (int i = 0; i < 3; i++) {
        peer_say(&peer, GET("/hello"));
        peer_hear(&peer, "\r\n\r\nhello");
        assert_int_equal(strncmp(peer.in.data, "HTTP/1.1 200 OK\r\nDate: ", 23), 0);
        assert_non_null(strstr(peer.in.data, " GMT\r\nServer: refrain\r\n"));
        assert_non_null(strstr(peer.in.data, "\r\nContent-Type: text/plain\r\n"));
        assert_non_null(strstr(peer.in.data, "\r\nContent-Length: 5\r\n"));
        assert_null(strstr(peer.in.data, "Connection:"));
        buffer_clear(&peer.in);
    }
    assert_int_equal(loopback_counts(&f->l).requests_total, 3);
    assert_int_equal(loopback_counts(&f->l).clients_total, 1);
    assert_int_equal(loopback_counts(&f->l).exchanges_open, 0);
    peer_close(&peer);
    LOOPBACK_UNTIL(&f->l, -1, loopback_counts(&f->l).clients_open == 0);
}

static void test_head_when_asked_then_the_length_without_the_body(void **state)
{
    struct fixture *f = *state;
    struct peer peer;

    open_fixture(f);
    peer_open(&peer, &f->l);
    peer_say(&peer, "HEAD /hello HTTP/1.1\r\nHost: h\r\n\r\n"
                    "HEAD /stream HTTP/1.1\r\nHost: h\r\n\r\n"
                    "GET /echo HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    peer_hear_end(&peer);
    assert_non_null(strstr(peer.in.data, "Content-Length: 5\r\n\r\nHTTP/1.1 200 OK"));
    assert_non_null(strstr(peer.in.data, "no\r\n\r\nHTTP/1.1 200 OK")); /* no chunk between */
    assert_null(strstr(peer.in.data, "hello"));
    assert_non_null(strstr(peer.in.data, "Connection: close\r\n\r\nGET /echo q=- s=- h=- b=;"));
    peer_close(&peer);
}

static void test_paths_when_matched_then_segments_decoded_and_404_405_otherwise(void **state)
{
    static const struct {
        const char *request, *answer;
    } rows[] = {
        {GET("/echo?a=%20b"), "GET /echo q=a=%20b s=- h=- b=;"},
        {GET("/echo/x%2Fy%20z"), "GET /echo/x/y z q=- s=x/y z h=- b=;"},
        {GET("/tree/a/b%2fc"), "GET /tree/a/b/c q=- s=a/b/c h=- b=;"},
        {GET("/echo/"), "HTTP/1.1 404 Not Found"},
        {GET("/echo/x/y"), "HTTP/1.1 404 Not Found"},
        {GET("/hello/"), "There is no path '/hello/' here; '/hello' is."},
        {GET("//hello//"), "There is no path '//hello//' here; '/hello' is."},
        {GET("/v1/hello"), "There is no path '/v1/hello' here; '/hello' is."},
        {GET("/v1/v1/thing"), "There is no path '/v1/v1/thing' here; '/v1/thing' is."},
        {GET("/thing"), "There is no path '/thing' here; '/v1/thing' is."},
        {GET("/a%22b"), "There is no path '/a\\\"b' here.\""},
        {"GET /hello HTTP/1.1\r\nHost: h\r\nContent-Encoding: identity\r\n\r\n", "\r\n\r\nhello"},
        {"GET /hello HTTP/1.1\r\nHost: h\r\nContent-Encoding: gzip\r\n\r\n",
         "HTTP/1.1 415 Unsupported Media Type"},
        {"GET /nope HTTP/1.1\r\n\r\n", "HTTP/1.1 404 Not Found"},
        {"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", "HTTP/1.1 404 Not Found"},
        {"PUT /hello HTTP/1.1\r\nHost: h\r\n\r\n", "\r\nAllow: GET, HEAD, DELETE\r\n"},
        {"OPTIONS /hold HTTP/1.1\r\nHost: h\r\n\r\n", "HTTP/1.1 405 Method Not Allowed"},
        {"get /hello HTTP/1.1\r\nHost: h\r\n\r\n", "HTTP/1.1 405 Method Not Allowed"},
        {"GET /hello HTTP/1.1\r\n\r\n", "HTTP/1.1 400 Bad Request"},
        {"GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK"},
        {"GET http://other/hello HTTP/1.1\r\nHost: h\r\n\r\n", "\r\n\r\nhello"},
    };
    struct fixture *f = *state;
    struct peer peer;

    open_fixture(f);
    peer_open(&peer, &f->l);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        peer_say(&peer, rows[i].request);
        peer_hear(&peer, rows[i].answer);
        buffer_clear(&peer.in);
    }
    assert_int_equal(loopback_counts(&f->l).clients_total, 1); /* none of these closes */
    assert_int_equal(loopback_counts(&f->l).rejected_total, 0);
    peer_close(&peer);
}

/* Answers take minutes, of many clients at once. */
static void test_body_when_its_handler_has_returned_then_not_kept(void **state)
{
    struct fixture *f = *state;
    struct peer peer;
    size_t bytes = 1;
    char piece[1000];

    open_fixture(f);
    peer_open(&peer, &f->l);
    memset(piece, 'x', sizeof(piece) - 1);
    piece[sizeof(piece) - 1] = '\0';
    peer_say(&peer, "POST /hold HTTP/1.1\r\nHost: h\r\nContent-Length: 99900\r\n\r\n");
    for (int i = 0; i < 100; i++)
        peer_say(&peer, piece);
    LOOPBACK_UNTIL(&f->l, -1, f->held != NULL);
    assert_string_equal(http_exchange_method(f->held), "POST");
    (void)http_exchange_body(f->held, &bytes);
    assert_int_equal(bytes, 0);
    http_exchange_reply(f->held, 200, "text/plain", "late", 4);
    f->held = NULL;
    peer_hear(&peer, "\r\n\r\nlate");
    peer_close(&peer);
}

static void test_post_when_body_comes_in_pieces_then_joined(void **state)
{
    struct fixture *f = *state;
    struct peer peer;

    open_fixture(f);
    peer_open(&peer, &f->l);
    peer_say(&peer, "POST /echo HTTP/1.1\r\nHost: h\r\nX-Test: v\r\nContent-Length: 6\r\n\r\nabc");
    for (int i = 0; i < 5; i++)
        loopback_turn(&f->l, -1);
    peer_say(&peer, "def");
    peer_hear(&peer, "POST /echo q=- s=- h=v b=abcdef;");
    peer_say(&peer, "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
                    "3;ext=1\r\nghi\r\n");
    peer_say(&peer, "1\r\nj\r\n0\r\nTrailer: t\r\n\r\n");
    peer_hear(&peer, "POST /echo q=- s=- h=- b=ghij;");
    peer_close(&peer);
}

static void test_body_of_a_refused_path_when_read_then_the_next_request_is_its_own(void **state)
{
    struct fixture *f = *state;
    struct peer peer;

    open_fixture(f);
    peer_open(&peer, &f->l);
    peer_say(&peer, "POST /nope HTTP/1.1\r\nHost: x\r\nContent-Length: 17\r\n\r\n"
                    "GET /x HTTP/1.1\r\n" GET("/hello")); /* B61 */
    peer_hear(&peer, "\r\n\r\nhello");
    assert_int_equal(count_text(peer.in.data, "HTTP/1.1 "), 2);
    assert_int_equal(loopback_counts(&f->l).requests_total, 2);
    peer_close(&peer);
}

static void test_pipelined_when_the_first_is_held_then_the_second_waits(void **state)
{
    struct fixture *f = *state;
    struct peer peer;

    open_fixture(f);
    peer_open(&peer, &f->l);
    peer_say(&peer, GET("/hold") GET("/hello") GET("/hold") GET("/echo"));
    LOOPBACK_UNTIL(&f->l, -1, f->held != NULL);
    for (int i = 0; i < 5; i++)
        loopback_turn(&f->l, -1);
    assert_int_equal(loopback_counts(&f->l).requests_total, 1);
    http_exchange_reply(f->held, 200, "text/plain", "first", 5);
    f->held = NULL;
    assert_int_equal(loopback_counts(&f->l).requests_total, 1); /* not within the call */
    LOOPBACK_UNTIL(&f->l, -1, f->held != NULL);
    assert_int_equal(loopback_counts(&f->l).requests_total, 3);
    http_exchange_reply(f->held, 200, "text/plain", "third", 5);
    f->held = NULL;
    peer_hear(&peer, "GET /echo");
    assert_true(strstr(peer.in.data, "first") < strstr(peer.in.data, "hello"));
    assert_true(strstr(peer.in.data, "hello") < strstr(peer.in.data, "third"));
    peer_close(&peer);
    assert_int_equal(f->gone_count, 0);
}

static void test_pipelined_when_more_than_a_buffer_then_all_are_answered_in_order(void **state)
{
    enum { REQUESTS = 4000 }; /* 4000 * 46 bytes: over both buffers */
    struct fixture *f = *state;
    struct peer peer;
    struct buffer text;
    const char *at;

    open_fixture(f);
    peer_open(&peer, &f->l);
    buffer_init(&text, 1 << 20);
    for (int i = 0; i < REQUESTS; i++)
        buffer_printf(&text, "GET /echo?%06d HTTP/1.1\r\nHost: h\r\nA: b\r\n\r\n", i);
    assert_true(peer_send(&peer, text.data, text.bytes));
    peer_half_close(&peer);
    peer_hear_end(&peer);
    assert_int_equal(count_text(peer.in.data, "HTTP/1.1 200 OK"), REQUESTS);
    at = peer.in.data;
    for (int i = 0; i < REQUESTS; i++) {
        char expected[32];

        (void)snprintf(expected, sizeof(expected), "q=%06d ", i);
        at = strstr(at, expected);
        assert_non_null(at);
    }
    buffer_done(&text);
    peer_close(&peer);
}

static void test_expect_when_body_is_awaited_then_100_and_over_the_limit_413_at_once(void **state)
{
    struct fixture *f = *state;
    struct peer peer;

    open_fixture(f);
    peer_open(&peer, &f->l);
    peer_say(&peer, "POST /echo HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n"
                    "Content-Length: 2\r\n\r\n");
    peer_hear(&peer, "HTTP/1.1 100 Continue\r\n\r\n");
    peer_say(&peer, "ok");
    peer_hear(&peer, "b=ok;");
    buffer_clear(&peer.in);
    peer_say(&peer, "POST /echo HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n"
                    "Content-Length: 2\r\n\r\nno"); /* the body is here: nobody waits */
    peer_hear(&peer, "b=no;");
    assert_null(strstr(peer.in.data, "100 Continue"));
    buffer_clear(&peer.in);
    peer_say(&peer, "POST /echo HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n"
                    "Content-Length: 99999999999\r\n\r\n"); /* B60 */
    peer_hear_end(&peer);
    assert_int_equal(strncmp(peer.in.data, "HTTP/1.1 413 Content Too Large\r\n", 32), 0);
    assert_non_null(strstr(peer.in.data, "Connection: close\r\n"));
    peer_close(&peer);
}

static void test_body_over_the_limit_when_sent_anyway_then_the_client_still_reads_413(void **state)
{
    enum { BYTES = 20 << 20 };
    struct fixture *f = *state;
    char *body = calloc(1, BYTES);
    struct peer peer;

    open_fixture(f);
    peer_open(&peer, &f->l);
    peer_say(&peer, "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 20971520\r\n\r\n");
    assert_true(peer_send(&peer, body, BYTES)); /* not reset half-way */
    peer_hear_end(&peer);
    assert_int_equal(strncmp(peer.in.data, "HTTP/1.1 413 ", 13), 0);
    assert_int_equal(count_text(peer.in.data, "HTTP/1.1 "), 1);
    assert_int_equal(loopback_counts(&f->l).rejected_total, 1);
    peer_close(&peer);
    free(body);
}

static void test_faults_when_sent_then_an_error_object_and_close(void **state)
{
    static const struct {
        const char *request;
        int status;
        const char *type, *code;
    } rows[] = {
        {"GET / HTTP/1.1\n", 400, "invalid_request_error", "bad_request"},
        {"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
         400, "invalid_request_error", "bad_request"},
        {"GET / HTTP/1.1\r\nHost : h\r\n", 400, "invalid_request_error", "bad_request"},
        {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n", 400,
         "invalid_request_error", "bad_request"},
        {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n", 501, "server_error",
         "unsupported_transfer_coding"},
        {"GET / HTTP/2.0\r\n", 505, "server_error", "unsupported_version"},
        {"GET / HTTP/1.1\r\nExpect: x\r\n\r\n", 417, "invalid_request_error",
         "unsupported_expectation"},
        {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n800001\r\n", 413,
         "invalid_request_error", "body_too_large"},
    };
    struct fixture *f = *state;

    open_fixture(f);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *type, *code, *message, *body;
        struct peer peer;
        json_t *value;
        char line[16];

        peer_open(&peer, &f->l);
        peer_say(&peer, rows[i].request);
        peer_say(&peer, GET("/hello")); /* never an answer to what follows */
        peer_hear_end(&peer);
        (void)snprintf(line, sizeof(line), "HTTP/1.1 %d ", rows[i].status);
        assert_int_equal(strncmp(peer.in.data, line, strlen(line)), 0);
        assert_int_equal(count_text(peer.in.data, "\r\nDate: "), 1);
        assert_non_null(strstr(peer.in.data, "\r\nConnection: close\r\n"));
        assert_non_null(strstr(peer.in.data, "\r\nContent-Type: application/json\r\n"));
        body = strstr(peer.in.data, "\r\n\r\n") + 4;
        assert_int_equal(json_parse(body, strlen(body), 4096, &value, NULL), 0);
        assert_int_equal(json_unpack(value, "{s:{s:s,s:s,s:n,s:s}}", "error", "message", &message,
                                     "type", &type, "param", "code", &code),
                         0);
        assert_string_equal(type, rows[i].type);
        assert_string_equal(code, rows[i].code);
        assert_true(strlen(message) > 10);
        json_decref(value);
        peer_close(&peer);
    }
    assert_int_equal(loopback_counts(&f->l).rejected_total, sizeof(rows) / sizeof(rows[0]));
    assert_int_equal(loopback_counts(&f->l).requests_total, 0);
}

static void test_sizes_of_the_head_when_over_the_limits_then_414_and_431(void **state)
{
    struct fixture *f = *state;
    struct buffer text;
    struct peer peer;

    open_fixture(f);
    buffer_init(&text, 1 << 20);
    buffer_append_text(&text, "GET /");
    while (text.bytes < 9000)
        buffer_append_char(&text, 'a');
    peer_open(&peer, &f->l);
    peer_say(&peer, text.data);
    peer_hear_end(&peer);
    assert_int_equal(strncmp(peer.in.data, "HTTP/1.1 414 URI Too Long\r\n", 27), 0);
    peer_close(&peer);

    buffer_clear(&text);
    buffer_append_text(&text, "GET / HTTP/1.1\r\nHost: h\r\nX-Request-Id: ");
    while (text.bytes < 1000000) /* B64 */
        buffer_append_char(&text, 'a');
    peer_open(&peer, &f->l);
    assert_true(peer_send(&peer, text.data, text.bytes));
    peer_hear_end(&peer);
    assert_int_equal(strncmp(peer.in.data, "HTTP/1.1 431 ", 13), 0);
    peer_close(&peer);

    buffer_clear(&text);
    buffer_append_text(&text, "GET / HTTP/1.1\r\n");
    for (int i = 0; i < 101; i++)
        buffer_append_text(&text, "a: b\r\n");
    peer_open(&peer, &f->l);
    peer_say(&peer, text.data);
    peer_hear_end(&peer);
    assert_int_equal(strncmp(peer.in.data, "HTTP/1.1 431 ", 13), 0);
    peer_close(&peer);
    buffer_done(&text);
}

static void test_slow_client_when_head_or_body_is_late_then_408(void **state)
{
    struct fixture *f = *state;
    struct peer head, body;

    f->limits.header_timeout_ms = 40;
    f->limits.body_timeout_ms = 60;
    open_fixture(f);
    peer_open(&head, &f->l);
    peer_open(&body, &f->l);
    peer_say(&head, "GET / HT");
    peer_say(&body, "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nabc");
    peer_hear_end(&head);
    peer_hear_end(&body);
    assert_int_equal(strncmp(head.in.data, "HTTP/1.1 408 Request Timeout\r\n", 30), 0);
    assert_int_equal(strncmp(body.in.data, "HTTP/1.1 408 Request Timeout\r\n", 30), 0);
    assert_non_null(strstr(body.in.data, "body did not arrive"));
    assert_int_equal(loopback_counts(&f->l).rejected_total, 2);
    peer_close(&head);
    peer_close(&body);
}

static void test_idle_client_when_the_time_is_over_then_closed_without_a_word(void **state)
{
    struct fixture *f = *state;
    struct peer fresh, used;

    f->limits.idle_timeout_ms = 40;
    open_fixture(f);
    peer_open(&fresh, &f->l);
    peer_open(&used, &f->l);
    peer_say(&used, GET("/hello"));
    peer_hear(&used, "\r\n\r\nhello");
    peer_hear_end(&used);
    peer_hear_end(&fresh);
    assert_int_equal(fresh.in.bytes, 0);
    assert_int_equal(count_text(used.in.data, "HTTP/1.1 "), 1);
    assert_int_equal(loopback_counts(&f->l).rejected_total, 0);
    peer_close(&fresh);
    peer_close(&used);
}

static void test_error_when_text_is_not_utf8_then_still_json(void **state)
{
    struct fixture *f = *state;
    const char *message, *type, *param, *code, *body;
    struct peer peer;
    json_t *value;

    open_fixture(f);
    peer_open(&peer, &f->l);
    peer_say(&peer, GET("/error"));
    peer_hear(&peer, "}}");
    assert_non_null(strstr(peer.in.data, "HTTP/1.1 429 Too Many Requests\r\n"));
    assert_non_null(strstr(peer.in.data, "\r\nRetry-After: 3\r\n"));
    body = strstr(peer.in.data, "\r\n\r\n") + 4;
    assert_int_equal(json_parse(body, strlen(body), 4096, &value, NULL), 0);
    assert_int_equal(json_unpack(value, "{s:{s:s,s:s,s:s,s:s}}", "error", "message", &message,
                                 "type", &type, "param", &param, "code", &code),
                     0);
    assert_string_equal(message, "bad \"\xc3\xa9\" \n??");
    assert_string_equal(type, "rate_limit_error");
    assert_string_equal(param, "messages[0]");
    assert_string_equal(code, "overloaded");
    json_decref(value);
    peer_close(&peer);
}

static void test_stream_when_written_in_one_turn_then_events_in_chunks(void **state)
{
    struct fixture *f = *state;
    struct peer peer;

    open_fixture(f);
    peer_open(&peer, &f->l);
    peer_say(&peer, GET("/stream") GET("/hello"));
    peer_hear(&peer, "\r\n\r\nhello");
    assert_non_null(strstr(peer.in.data, "\r\nContent-Type: text/event-stream; charset=utf-8\r\n"));
    assert_non_null(strstr(peer.in.data, "\r\nTransfer-Encoding: chunked\r\n"));
    assert_non_null(strstr(peer.in.data, "\r\nCache-Control: no-cache\r\n"));
    assert_null(strstr(peer.in.data, "\r\nContent-Length: 0"));
    /* "data: {"a":1}\n\n" is 15 bytes: one chunk each */
    assert_int_equal(count_text(peer.in.data, "f\r\ndata: {\"a\":1}\n\n\r\n"), 100);
    assert_non_null(strstr(peer.in.data, "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\nHTTP/1.1 200"));
    peer_close(&peer);
}

static void test_writes_when_made_outside_a_callback_then_sent_at_the_end_of_the_turn(void **state)
{
    struct fixture *f = *state;
    struct peer peer;

    open_fixture(f);
    peer_open(&peer, &f->l);
    peer_say(&peer, GET("/hold"));
    LOOPBACK_UNTIL(&f->l, -1, f->held != NULL);
    assert_false(http_exchange_begun(f->held));
    sse_begin(f->held);
    assert_true(http_exchange_begun(f->held));
    for (int i = 0; i < 3; i++)
        http_exchange_write(f->held, "ab", 2);
    http_exchange_write(f->held, "", 0); /* must not end the body */
    peer_take(&peer);
    assert_int_equal(peer.in.bytes, 0);
    (void)uv_run(&f->l.loop, UV_RUN_NOWAIT);
    peer_hear(&peer, "\r\n\r\n2\r\nab\r\n2\r\nab\r\n2\r\nab\r\n");
    sse_error(f->held, "{}", 2);
    f->held = NULL;
    peer_hear(&peer, "17\r\nevent: error\ndata: {}\n\n\r\n0\r\n\r\n");
    assert_null(strstr(peer.in.data, "[DONE]"));
    peer_close(&peer);
}

static void test_http10_when_streamed_then_until_close_and_keep_alive_when_asked(void **state)
{
    struct fixture *f = *state;
    struct peer peer;

    open_fixture(f);
    peer_open(&peer, &f->l);
    peer_say(&peer, "GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    peer_hear(&peer, "\r\n\r\nhello");
    assert_non_null(strstr(peer.in.data, "\r\nConnection: keep-alive\r\n"));
    buffer_clear(&peer.in);
    peer_say(&peer, "GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    peer_hear_end(&peer);
    assert_null(strstr(peer.in.data, "chunked"));
    assert_non_null(strstr(peer.in.data, "\r\nConnection: close\r\n"));
    assert_int_equal(count_text(peer.in.data, "data: {\"a\":1}\n\n"), 100);
    assert_string_equal(peer.in.data + peer.in.bytes - 14, "data: [DONE]\n\n");
    peer_close(&peer);
}

static void test_big_answer_when_the_reader_is_slow_then_all_of_it_arrives(void **state)
{
    enum { BYTES = 32 << 20 };
    struct fixture *f = *state;
    char *body = malloc(BYTES);
    struct peer peer;

    for (int i = 0; i < BYTES; i++)
        body[i] = (char)('a' + i % 23);
    open_fixture(f);
    peer_open(&peer, &f->l);
    peer_say(&peer, GET("/hold") GET("/hello"));
    LOOPBACK_UNTIL(&f->l, -1, f->held != NULL);
    http_exchange_reply(f->held, 200, "text/plain", body, BYTES);
    f->held = NULL;
    for (int i = 0; i < 5; i++)
        loopback_turn(&f->l, -1);
    assert_int_equal(loopback_counts(&f->l).requests_total, 1); /* the next waits for the reader */
    LOOPBACK_UNTIL(&f->l, peer.fd,
                   (peer_take(&peer), peer.in.bytes > BYTES) &&
                       strcmp(peer.in.data + peer.in.bytes - 5, "hello") == 0);
    assert_memory_equal(strstr(peer.in.data, "\r\n\r\n") + 4, body, BYTES);
    peer_close(&peer);
    free(body);
}

static void test_clients_when_over_the_maximum_then_the_next_waits(void **state)
{
    struct fixture *f = *state;
    struct peer peers[4];

    f->limits.clients_max = 2;
    open_fixture(f);
    for (int i = 0; i < 4; i++) {
        peer_open(&peers[i], &f->l);
        peer_say(&peers[i], GET("/hello"));
    }
    peer_hear(&peers[0], "hello");
    peer_hear(&peers[1], "hello");
    for (int i = 0; i < 5; i++)
        loopback_turn(&f->l, -1);
    assert_int_equal(loopback_counts(&f->l).clients_open, 2);
    peer_take(&peers[2]);
    assert_int_equal(peers[2].in.bytes, 0);
    peer_close(&peers[0]);
    peer_hear(&peers[2], "hello");
    peer_close(&peers[1]);
    peer_hear(&peers[3], "hello");
    assert_int_equal(loopback_counts(&f->l).clients_total, 4);
    peer_close(&peers[2]);
    peer_close(&peers[3]);
}

static void test_drain_when_called_then_idle_closes_busy_finishes_and_nobody_enters(void **state)
{
    struct fixture *f = *state;
    struct peer idle, busy, half;
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(f->l.port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd;

    open_fixture(f);
    peer_open(&idle, &f->l);
    peer_open(&busy, &f->l);
    peer_open(&half, &f->l);
    peer_say(&idle, GET("/hello"));
    peer_hear(&idle, "hello");
    peer_say(&half, "GET /hel");
    peer_say(&busy, GET("/hold") GET("/hello"));
    LOOPBACK_UNTIL(&f->l, -1, f->held != NULL);
    http_server_drain(f->l.server);
    peer_hear_end(&idle);
    address.sin_port = htons(f->l.port);
    LOOPBACK_UNTIL(&f->l, -1, loopback_counts(&f->l).clients_open == 2);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), -1);
    assert_int_equal(errno, ECONNREFUSED);
    assert_int_equal(close(fd), 0);
    peer_say(&half, "lo HTTP/1.1\r\nHost: h\r\n\r\n");
    peer_hear_end(&half);
    assert_non_null(strstr(half.in.data, "\r\nConnection: close\r\n\r\nhello"));
    http_exchange_reply(f->held, 200, "text/plain", "held", 4);
    f->held = NULL;
    peer_hear_end(&busy);
    assert_non_null(strstr(busy.in.data, "\r\nConnection: close\r\n\r\nheld"));
    assert_int_equal(count_text(busy.in.data, "HTTP/1.1 "), 1);
    peer_close(&idle);
    peer_close(&busy);
    peer_close(&half);
    LOOPBACK_UNTIL(&f->l, -1, loopback_counts(&f->l).clients_open == 0);
}

static void test_close_when_an_exchange_is_open_then_its_owner_hears_it(void **state)
{
    struct fixture *f = *state;
    struct peer peer, idle;

    open_fixture(f);
    peer_open(&peer, &f->l);
    peer_open(&idle, &f->l);
    peer_say(&peer, GET("/hold"));
    LOOPBACK_UNTIL(&f->l, -1, f->held != NULL);
    http_server_close(f->l.server, loopback_on_closed, &f->l);
    assert_int_equal(f->gone_count, 1);
    assert_null(f->held);
    LOOPBACK_UNTIL(&f->l, -1, f->l.closed);
    f->l.server = NULL;
    assert_int_equal(uv_run(&f->l.loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(uv_loop_close(&f->l.loop), 0);
    peer_close(&peer);
    peer_close(&idle);
}

static void test_listen_when_the_address_is_bad_or_taken_then_an_error(void **state)
{
    struct fixture *f = *state;
    struct errmsg err;
    uint16_t port = 1;

    open_fixture(f);
    assert_int_equal(http_server_listen(f->l.server, "localhost", 0, &port, &err), -EINVAL);
    assert_string_equal(err.text, "'localhost' is not an IP address");
    assert_int_equal(http_server_listen(f->l.server, "127.0.0.1", f->l.port, &port, &err),
                     -EADDRINUSE);
    assert_int_equal(port, 1); /* untouched */
    assert_int_equal(http_server_listen_fd(f->l.server, 9999, &err), -EBADF);
}

static void test_listen_when_given_a_socket_or_ipv6_then_served(void **state)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(address);
    struct fixture *f = *state;
    struct peer peer;
    uint16_t port;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    open_fixture(f);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(fd, 8), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &bytes), 0);
    assert_int_equal(http_server_listen_fd(f->l.server, fd, NULL), 0);
    f->l.port = ntohs(address.sin_port);
    peer_open(&peer, &f->l);
    peer_say(&peer, GET("/hello"));
    peer_hear(&peer, "hello");
    peer_close(&peer);
    if (http_server_listen(f->l.server, "::1", 0, &port, NULL) == 0) /* where there is IPv6 */
        assert_int_not_equal(port, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_get_when_answered_then_the_connection_serves_the_next),
        TEST(test_head_when_asked_then_the_length_without_the_body),
        TEST(test_paths_when_matched_then_segments_decoded_and_404_405_otherwise),
        TEST(test_body_when_its_handler_has_returned_then_not_kept),
        TEST(test_post_when_body_comes_in_pieces_then_joined),
        TEST(test_body_of_a_refused_path_when_read_then_the_next_request_is_its_own),
        TEST(test_pipelined_when_the_first_is_held_then_the_second_waits),
        TEST(test_pipelined_when_more_than_a_buffer_then_all_are_answered_in_order),
        TEST(test_expect_when_body_is_awaited_then_100_and_over_the_limit_413_at_once),
        TEST(test_body_over_the_limit_when_sent_anyway_then_the_client_still_reads_413),
        TEST(test_faults_when_sent_then_an_error_object_and_close),
        TEST(test_sizes_of_the_head_when_over_the_limits_then_414_and_431),
        TEST(test_slow_client_when_head_or_body_is_late_then_408),
        TEST(test_idle_client_when_the_time_is_over_then_closed_without_a_word),
        TEST(test_error_when_text_is_not_utf8_then_still_json),
        TEST(test_stream_when_written_in_one_turn_then_events_in_chunks),
        TEST(test_writes_when_made_outside_a_callback_then_sent_at_the_end_of_the_turn),
        TEST(test_http10_when_streamed_then_until_close_and_keep_alive_when_asked),
        TEST(test_big_answer_when_the_reader_is_slow_then_all_of_it_arrives),
        TEST(test_clients_when_over_the_maximum_then_the_next_waits),
        TEST(test_drain_when_called_then_idle_closes_busy_finishes_and_nobody_enters),
        TEST(test_close_when_an_exchange_is_open_then_its_owner_hears_it),
        TEST(test_listen_when_the_address_is_bad_or_taken_then_an_error),
        TEST(test_listen_when_given_a_socket_or_ipv6_then_served),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
