/* The parser alone: what it says about bytes, whole and byte by byte. */
#include <cmocka.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/buffer.h"
#include "router/http/parser.h"
#include "router/http/target.h"
#include "router/http/token.h"

static const struct http_parser_limits limits = {
    .head_bytes_max = 1024, .headers_max = 4, .body_bytes_max = 100};

/* Parse `text` in pieces of `piece` bytes and write down, in one line, all that came out. */
static void describe(const struct http_parser_limits *with, const char *text, size_t bytes,
                     size_t piece, struct buffer *out)
{
    struct http_parser parser;
    enum http_event event = HTTP_EVENT_MORE;
    size_t at = 0;

    http_parser_init(&parser, with);
    while (at < bytes && event != HTTP_EVENT_FAULT) {
        size_t end = at + piece < bytes ? at + piece : bytes;

        do {
            size_t used;

            event = http_parser_push(&parser, text + at, end - at, &used);
            at += used;
            if (event == HTTP_EVENT_HEAD)
                buffer_printf(out, "%s %s?%s 1.%d%s ", http_parser_method(&parser),
                              http_parser_path(&parser),
                              http_parser_query(&parser) != NULL ? http_parser_query(&parser) : "",
                              parser.version_minor, parser.keep_alive ? " keep" : "");
            if (event == HTTP_EVENT_BODY)
                buffer_append(out, parser.body_data, parser.body_bytes);
            if (event == HTTP_EVENT_FAULT)
                buffer_printf(out, "fault %d", parser.fault.status);
            if (event == HTTP_EVENT_DONE) {
                buffer_append_text(out, ".");
                http_parser_start(&parser);
            }
        } while (event != HTTP_EVENT_MORE && event != HTTP_EVENT_FAULT);
    }
    http_parser_done(&parser);
}

static void expect_bytes_with(const struct http_parser_limits *with, const char *text, size_t bytes,
                              const char *expected)
{
    const size_t pieces[] = {bytes, 1, 2, 3, 5, 7};

    for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
        struct buffer out;

        buffer_init(&out, 1 << 20);
        describe(with, text, bytes, pieces[i], &out);
        assert_string_equal(out.data, expected);
        buffer_done(&out);
    }
}

static void expect(const char *text, const char *expected)
{
    expect_bytes_with(&limits, text, strlen(text), expected);
}

static void test_request_without_body_when_whole_then_done(void **state)
{
    (void)state;
    expect("GET /a/b?x=1 HTTP/1.1\r\nHost: h\r\n\r\n", "GET /a/b?x=1 1.1 keep .");
    expect("\r\n\r\nGET / HTTP/1.0\r\n\r\n", "GET /? 1.0 .");
    expect("GET / HTTP/1.0\r\nConnection: a, Keep-Alive\r\n\r\n", "GET /? 1.0 keep .");
    expect("GET / HTTP/1.1\r\nConnection: a,\tclose\t\r\n\r\n", "GET /? 1.1 .");
    expect("GET / HTTP/1.7\r\n\r\n", "GET /? 1.1 keep .");
}

static void test_body_when_length_or_chunks_then_its_bytes(void **state)
{
    (void)state;
    expect("POST / HTTP/1.1\r\nContent-Length: 003\r\n\r\nabc", "POST /? 1.1 keep abc.");
    expect("POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n", "POST /? 1.1 keep .");
    expect("POST / HTTP/1.1\r\ntransfer-ENCODING: Chunked\r\n\r\n"
           "3\r\nabc\r\n0A ; a=b;c=\"d\\\"\r\"\r\n",
           "POST /? 1.1 keep abcfault 400"); /* a CR within quotes */
    expect("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
           "3;x\r\nabc\r\n0002 ; a=b;c=\"d\\\";\"\r\nde\r\n000\r\nTrailer: dropped\r\n\r\n",
           "POST /? 1.1 keep abcde.");
}

static void test_pipelined_requests_when_one_ends_then_the_next_begins_at_its_byte(void **state)
{
    (void)state;
    expect("POST /1 HTTP/1.1\r\nContent-Length: 2\r\n\r\nab"
           "POST /2 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nc\r\n0\r\n\r\n"
           "\r\nGET /3 HTTP/1.1\r\n\r\n",
           "POST /1? 1.1 keep ab.POST /2? 1.1 keep c.GET /3? 1.1 keep .");
}

static void test_request_line_when_malformed_then_400(void **state)
{
    (void)state;
    expect(" GET / HTTP/1.1\r\n", "fault 400");
    expect("\nGET / HTTP/1.1\r\n", "fault 400");
    expect("\rGET / HTTP/1.1\r\n", "fault 400");
    expect("G@T / HTTP/1.1\r\n", "fault 400");
    expect("GET\t/ HTTP/1.1\r\n", "fault 400");
    expect("GET  / HTTP/1.1\r\n", "fault 400");
    expect("GET /  HTTP/1.1\r\n", "fault 400");
    expect("GET / HTTP/1.1 \r\n", "fault 400");
    expect("GET / HTTP/1.1\n", "fault 400");
    expect("GET / HTTP/1.1\rX", "fault 400");
    expect("GET / http/1.1\r\n", "fault 400");
    expect("GET / HTTP/11.1\r\n", "fault 400");
    expect("GET / HTTP/1.x\r\n", "fault 400");
    expect("GET / HTTP/5.6", "fault 400");
    expect("GET / RTSP/1.0\r\n", "fault 400");
    expect("ANNOUNCE / HTTP/1.0\r\n", "fault 400");
    expect("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA / HTTP/1.1\r\n", "fault 400"); /* 33 */
    expect_bytes_with(&limits, "GET /\0 HTTP/1.1\r\n", 17, "fault 400");
    expect_bytes_with(&limits, "G\0ET / HTTP/1.1\r\n", 17, "fault 400");
}

static void test_other_protocols_when_seen_then_501_or_505(void **state)
{
    (void)state;
    expect("GET /\r\n", "fault 505");
    expect("GET / HTTP/2.0\r\n", "fault 505");
    expect("GET / HTTP/0.9\r\n", "fault 505");
    expect("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "fault 505");
    expect("CONNECT h:1 HTTP/1.1\r\n\r\n", "fault 501");
}

static void test_target_when_malformed_then_400(void **state)
{
    (void)state;
    expect("GET a HTTP/1.1\r\n", "fault 400");
    expect("GET /\xce\xb4 HTTP/1.1\r\n", "fault 400");
    expect("GET /a\"b HTTP/1.1\r\n", "fault 400");
    expect("GET /a%4 HTTP/1.1\r\n", "fault 400");
    expect("GET /a%zz HTTP/1.1\r\n", "fault 400");
    expect("GET /a%00 HTTP/1.1\r\n", "fault 400");
    expect("GET /a%0a HTTP/1.1\r\n", "fault 400");
    expect("GET /a%ff HTTP/1.1\r\n", "fault 400"); /* not UTF-8 */
    expect("GET http:// HTTP/1.1\r\n", "fault 400");
    expect("GET ftp://h/ HTTP/1.1\r\n", "fault 400");
}

static void test_target_when_in_each_form_then_path_segment_and_query(void **state)
{
    static const struct {
        const char *text, *path, *segment, *query;
    } rows[] = {
        {"/", "/", "", NULL},
        {"*", "*", "*", NULL},
        {"/a/b%2Fc?x=%31?#f", "/a/b/c", "b/c", "x=%31?"},
        {"/%C3%A9#a?b", "/\xc3\xa9", "\xc3\xa9", NULL},
        {"http://u:p%12!&*$@h:80/p", "/p", "p", NULL},
        {"HTTPS://h", "/", "", NULL},
        {"http://h?q", "/", "", "q"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[64];
        struct http_target target;

        (void)snprintf(text, sizeof(text), "%s", rows[i].text);
        assert_null(http_target_split(text, &target));
        assert_string_equal(text + target.path, rows[i].path);
        assert_string_equal(text + target.segment, rows[i].segment);
        assert_int_equal(target.has_query, rows[i].query != NULL);
        if (target.has_query)
            assert_string_equal(text + target.query, rows[i].query);
    }
}

static void test_headers_when_malformed_then_400(void **state)
{
    (void)state;
#define LINE "GET / HTTP/1.1\r\n"
    expect(LINE " Host: folded\r\n", "fault 400");
    expect(LINE "Host: h\r\n folded\r\n", "fault 400");
    expect(LINE "Host : h\r\n", "fault 400");
    expect(LINE ": h\r\n", "fault 400");
    expect(LINE "Ho@st: h\r\n", "fault 400");
    expect(LINE "Host\r\n", "fault 400");
    expect(LINE "a: b\nc: d\r\n", "fault 400");
    expect(LINE "a:\nc: d\r\n", "fault 400");
    expect(LINE "a: b\rc: d\r\n", "fault 400");
    expect(LINE "\rX", "fault 400");
    expect(LINE "a: \x01\r\n", "fault 400");
    expect(LINE "a: \x7f\r\n", "fault 400");
    expect_bytes_with(&limits, LINE "a: \0\r\n", 21, "fault 400");
    expect(LINE "Host: a\r\nHost: a\r\n", "fault 400");
    expect(LINE "Host: a/b\r\n", "fault 400");
}

static void test_lengths_when_they_contradict_then_400(void **state)
{
    (void)state;
    expect(LINE "Content-Length: 1\r\nContent-Length: 2\r\n", "fault 400");
    expect(LINE "Content-Length: 1\r\nContent-Length: 1\r\n", "fault 400");
    expect(LINE "Content-Length: 1, 1\r\n", "fault 400");
    expect(LINE "Content-Length: +1\r\n", "fault 400");
    expect(LINE "Content-Length: 0x1\r\n", "fault 400");
    expect(LINE "Content-Length:\r\n", "fault 400");
    expect(LINE "Content-Length: 1000000000000000000000\r\n", "fault 400");
    expect(LINE "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", "fault 400");
    expect(LINE "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n", "fault 400");
    expect(LINE "Transfer-Encoding: chunked, chunked\r\n\r\n", "fault 400");
    expect(LINE "Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip\r\n\r\n", "fault 400");
    expect(LINE "Transfer-Encoding:\r\n\r\n", "fault 400");
    expect(LINE "Transfer-Encoding: gzip, chunked\r\n\r\n", "fault 501");
    expect(LINE "Transfer-Encoding: chunkedchunked\r\n\r\n", "fault 501");
    expect(LINE "Expect: tea\r\n\r\n", "fault 417");
    expect("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", "fault 400");
}

static void test_chunks_when_malformed_then_400(void **state)
{
    (void)state;
#define CHUNKED "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
#define HEAD "POST /? 1.1 keep "
    expect(CHUNKED "\r\n", HEAD "fault 400");
    expect(CHUNKED "g\r\n", HEAD "fault 400");
    expect(CHUNKED "-1\r\n", HEAD "fault 400");
    expect(CHUNKED "0x1\r\n", HEAD "fault 400");
    expect(CHUNKED "1 \r\na\r\n", HEAD "fault 400");
    expect(CHUNKED "1\na\r\n", HEAD "fault 400");
    expect(CHUNKED "1\r\r\n", HEAD "fault 400");
    expect(CHUNKED "1\r\nab\r\n", HEAD "afault 400");
    expect(CHUNKED "1\r\na\n", HEAD "afault 400");
    expect(CHUNKED "1\r\na\rx", HEAD "afault 400");
    expect(CHUNKED "1;a=\"b\"c\r\n", HEAD "fault 400");
    expect(CHUNKED "1;\x01\r\n", HEAD "fault 400");
    expect(CHUNKED "0\r\na b\r\n", HEAD "fault 400"); /* trailers are headers */
    expect(CHUNKED "0\r\na: b\nc", HEAD "fault 400");
    expect(CHUNKED "00000000000000001\r\n", HEAD "fault 400"); /* 17 digits */
    expect_bytes_with(&limits, CHUNKED "1;\0", sizeof(CHUNKED) + 2, HEAD "fault 400");
}

static void test_sizes_when_at_the_limit_then_taken_and_past_it_413_414_431(void **state)
{
    static const struct http_parser_limits wide = {
        .head_bytes_max = 40000, .headers_max = 4, .body_bytes_max = 5};
    struct buffer text;

    (void)state;
    expect_bytes_with(&wide, CHUNKED "5\r\nabcde\r\n0\r\n\r\n", sizeof(CHUNKED) - 1 + 15,
                      HEAD "abcde.");
    expect_bytes_with(&wide, CHUNKED "6\r\n", sizeof(CHUNKED) - 1 + 3, HEAD "fault 413");
    expect_bytes_with(&wide, CHUNKED "4\r\nabcd\r\n2\r\n", sizeof(CHUNKED) - 1 + 12,
                      HEAD "abcdfault 413");
    expect(LINE "Content-Length: 101\r\n\r\n", "fault 413");
    expect(LINE "Content-Length: 99999999999\r\n\r\n", "fault 413");
    expect(LINE "a: 1\r\nb: 2\r\nc: 3\r\nd: 4\r\n\r\n", "GET /? 1.1 keep .");
    expect(LINE "a: 1\r\nb: 2\r\nc: 3\r\nd: 4\r\ne: 5\r\n\r\n", "fault 431");

    buffer_init(&text, 1 << 20);
    buffer_append_text(&text, "GET /");
    while (text.bytes < 4 + HTTP_TARGET_BYTES_MAX)
        buffer_append_char(&text, 'a');
    buffer_append_text(&text, "a");
    expect_bytes_with(&wide, text.data, text.bytes, "fault 414");
    expect_bytes_with(&limits, text.data, text.bytes, "fault 414"); /* the head limit comes first */

    buffer_clear(&text);
    buffer_append_text(&text, LINE "a: ");
    while (text.bytes < limits.head_bytes_max - 4)
        buffer_append_char(&text, 'b');
    buffer_append_text(&text, "\r\n\r\n");
    assert_int_equal(text.bytes, limits.head_bytes_max);
    expect_bytes_with(&limits, text.data, text.bytes, "GET /? 1.1 keep .");
    buffer_clear(&text);
    buffer_append_text(&text, LINE "a: ");
    while (text.bytes < limits.head_bytes_max - 3)
        buffer_append_char(&text, 'b');
    buffer_append_text(&text, "\r\n\r\n");
    expect_bytes_with(&limits, text.data, text.bytes, "fault 431");
    buffer_done(&text);
}

static void test_dropped_bytes_when_past_their_limits_then_refused(void **state)
{
    struct buffer text;

    (void)state;
    buffer_init(&text, 1 << 20);
    buffer_append_text(&text, CHUNKED "1;");
    for (int i = 0; i < HTTP_CHUNK_EXT_BYTES_MAX; i++)
        buffer_append_char(&text, 'x');
    expect_bytes_with(&limits, text.data, text.bytes, HEAD "fault 400");
    buffer_clear(&text);
    buffer_append_text(&text, CHUNKED "0\r\na: ");
    for (uint32_t i = 0; i < limits.head_bytes_max; i++)
        buffer_append_char(&text, 'x');
    expect_bytes_with(&limits, text.data, text.bytes, HEAD "fault 431");
    buffer_clear(&text);
    for (uint32_t i = 0; i <= limits.head_bytes_max / 2; i++)
        buffer_append_text(&text, "\r\n"); /* empty lines without end */
    expect_bytes_with(&limits, text.data, text.bytes, "fault 414");
    buffer_done(&text);
}

static void test_many_small_chunks_when_within_the_limits_then_taken(void **state)
{
    static const struct http_parser_limits wide = {
        .head_bytes_max = 1024, .headers_max = 4, .body_bytes_max = 10000};
    struct buffer text, expected;

    (void)state;
    buffer_init(&text, 1 << 20);
    buffer_init(&expected, 1 << 20);
    buffer_append_text(&text, CHUNKED);
    buffer_append_text(&expected, HEAD);
    for (int i = 0; i < 10000; i++) { /* more than HTTP_CHUNK_EXT_BYTES_MAX chunks */
        buffer_append_text(&text, "1\r\nz\r\n");
        buffer_append_char(&expected, 'z');
    }
    buffer_append_text(&text, "0\r\n\r\n");
    buffer_append_char(&expected, '.');
    expect_bytes_with(&wide, text.data, text.bytes, expected.data);
    buffer_done(&text);
    buffer_done(&expected);
}

static void test_upgrade_when_offered_then_close_except_for_h2c(void **state)
{
    (void)state;
    expect(LINE "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n", "GET /? 1.1 .");
    expect(LINE "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\r\n", "GET /? 1.1 keep .");
    expect(LINE "Upgrade: websocket\r\n\r\n", "GET /? 1.1 keep ."); /* not offered to this hop */
}

static void test_header_when_looked_up_then_any_case_and_trimmed(void **state)
{
    const char *text = "GET / HTTP/1.1\r\nX-Key: \t a\tb \t\r\nx-key: second\r\nEmpty:\r\n\r\n";
    struct http_parser parser;
    size_t used;

    (void)state;
    http_parser_init(&parser, &limits);
    assert_true(http_parser_at_start(&parser));
    assert_int_equal(http_parser_push(&parser, text, strlen(text), &used), HTTP_EVENT_HEAD);
    assert_int_equal(used, strlen(text));
    assert_string_equal(http_parser_header(&parser, "x-KEY"), "a\tb");
    assert_string_equal(http_parser_header(&parser, "empty"), "");
    assert_null(http_parser_header(&parser, "x-ke"));
    assert_int_equal(http_parser_push(&parser, text, 0, &used), HTTP_EVENT_DONE);
    assert_int_equal(used, 0);
    http_parser_done(&parser);
}

/* The table in token.c against the sets of RFC 9110 5.6.2, 5.5 and RFC 3986 2.2, 2.3. */
static void test_token_classes_when_compared_then_they_are_the_sets_of_the_rfcs(void **state)
{
    const char *alnum = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

    (void)state;
    for (int i = 0; i < 256; i++) {
        bool letter = i != 0 && strchr(alnum, i) != NULL;
        bool sub = i != 0 && strchr("!$&'()*+,;=", i) != NULL;
        bool unreserved = letter || (i != 0 && strchr("-._~", i) != NULL);
        bool tchar = letter || (i != 0 && strchr("!#$%&'*+-.^_`|~", i) != NULL);
        char c = (char)i;

        assert_int_equal(token_is(c, TOKEN_TCHAR), tchar);
        assert_int_equal(token_is(c, TOKEN_VALUE), i == '\t' || (i >= ' ' && i != 0x7f));
        assert_int_equal(token_is(c, TOKEN_TARGET), i > ' ' && i < 0x7f);
        assert_int_equal(token_is(c, TOKEN_URI),
                         unreserved || sub || (i != 0 && strchr(":@/?%[]", i) != NULL));
        assert_int_equal(token_is(c, TOKEN_HOST),
                         unreserved || sub || (i != 0 && strchr(":%[]", i) != NULL));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_request_without_body_when_whole_then_done),
        cmocka_unit_test(test_body_when_length_or_chunks_then_its_bytes),
        cmocka_unit_test(test_pipelined_requests_when_one_ends_then_the_next_begins_at_its_byte),
        cmocka_unit_test(test_request_line_when_malformed_then_400),
        cmocka_unit_test(test_other_protocols_when_seen_then_501_or_505),
        cmocka_unit_test(test_target_when_malformed_then_400),
        cmocka_unit_test(test_target_when_in_each_form_then_path_segment_and_query),
        cmocka_unit_test(test_headers_when_malformed_then_400),
        cmocka_unit_test(test_lengths_when_they_contradict_then_400),
        cmocka_unit_test(test_chunks_when_malformed_then_400),
        cmocka_unit_test(test_sizes_when_at_the_limit_then_taken_and_past_it_413_414_431),
        cmocka_unit_test(test_dropped_bytes_when_past_their_limits_then_refused),
        cmocka_unit_test(test_many_small_chunks_when_within_the_limits_then_taken),
        cmocka_unit_test(test_upgrade_when_offered_then_close_except_for_h2c),
        cmocka_unit_test(test_header_when_looked_up_then_any_case_and_trimmed),
        cmocka_unit_test(test_token_classes_when_compared_then_they_are_the_sets_of_the_rfcs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
