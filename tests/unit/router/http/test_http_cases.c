/* The outside cases (shared/cases/http): bytes to a new connection, half-close, read. Each whole
 * and once more in one-byte writes, with the same outcome. The rule per class is in
 * shared/cases/README.md; what is asserted for the special ones stands in check_special(). */
#include <cmocka.h>
#include <stdlib.h>
#include <unistd.h>

#include "proto/base/json.h"
#include "tests/unit/router/http/loopback.h"

#define CASES SHARED_DIR "/cases/http/http1.cases.json"

struct fixture {
    struct loopback l;
    struct buffer bodies; /* of all requests of one case, joined */
};

static void handle_any(struct http_exchange *exchange, void *user)
{
    struct fixture *f = user;
    size_t bytes;
    const void *body = http_exchange_body(exchange, &bytes);

    buffer_append(&f->bodies, body, bytes);
    buffer_append_char(&f->bodies, '|');
    http_exchange_reply(exchange, 200, "text/plain", "ok", 2);
}

static const struct http_route routes[] = {
    {"GET", "/", handle_any},
    {"POST", "/", handle_any},
    /* Two paths whose cases have a Host, so that bodies are seen; the others are 404. */
    {"PATCH", "/file.txt", handle_any},
    {"QUERY", "/contacts", handle_any},
    {NULL, NULL, NULL},
};

struct outcome {
    size_t responses;
    int statuses[8];
    bool reset;
};

static size_t decode_base64(const char *text, char *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t bytes = 0;
    unsigned bits = 0, have = 0;

    for (; *text != '\0' && *text != '='; text++) {
        const char *digit = strchr(digits, *text);

        assert_non_null(digit);
        bits = (bits << 6 | (unsigned)(digit - digits)) & 0xffff;
        have += 6;
        if (have >= 8) {
            have -= 8;
            out[bytes++] = (char)(bits >> have);
        }
    }
    return bytes;
}

/* Count responses by their framing: head, then Content-Length bytes. */
static void read_responses(const char *text, struct outcome *outcome)
{
    while (*text != '\0') {
        const char *length = strstr(text, "\r\nContent-Length: ");
        const char *body = strstr(text, "\r\n\r\n");

        assert_int_equal(strncmp(text, "HTTP/1.1 ", 9), 0);
        assert_non_null(body);
        assert_true(length != NULL && length < body);
        assert_true(outcome->responses < 8);
        outcome->statuses[outcome->responses++] = atoi(text + 9);
        text = body + 4 + atoi(length + 18);
    }
}

static void run_case(struct fixture *f, const char *data, size_t bytes, size_t piece,
                     struct outcome *ret_outcome)
{
    struct outcome outcome = {0};
    struct peer peer;

    buffer_clear(&f->bodies);
    peer_open(&peer, &f->l);
    for (size_t at = 0; at < bytes; at += piece) {
        if (!peer_send(&peer, data + at, piece < bytes - at ? piece : bytes - at))
            break;
        if (piece < bytes)
            (void)uv_run(&f->l.loop, UV_RUN_NOWAIT); /* each byte is a read of its own */
    }
    (void)shutdown(peer.fd, SHUT_WR);
    LOOPBACK_UNTIL(&f->l, peer.fd, (peer_take(&peer), peer.ended));
    outcome.reset = peer.reset;
    read_responses(peer.in.data, &outcome);
    peer_close(&peer);
    *ret_outcome = outcome;
}

static bool check_accept(const struct outcome *outcome, size_t messages)
{
    if (outcome->responses != messages)
        return false;
    for (size_t i = 0; i < outcome->responses; i++) {
        if (outcome->statuses[i] == 400)
            return false;
    }
    return true;
}

static bool check_reject(const struct outcome *outcome)
{
    return outcome->responses == 1 && (outcome->statuses[0] == 400 || outcome->statuses[0] == 501);
}

/* Upgrade and data after close: the one message before it is answered and nothing after it.
 * CONNECT, RTSP and the HTTP/2 preface: one refusal. */
static bool check_special(const struct outcome *outcome)
{
    return outcome->responses == 1;
}

/* The body of each message, for the paths that are served; NULL: not looked at. */
static bool check_bodies(const struct fixture *f, const char *raw)
{
    if (strncmp(raw, "PATCH /file.txt ", 16) == 0)
        return strcmp(f->bodies.data, "cccccccccc|") == 0;
    if (strncmp(raw, "QUERY /contacts ", 16) == 0)
        return strcmp(f->bodies.data, "select surname, givenname, email limit 10|") == 0;
    if (strncmp(raw, "POST / ", 7) == 0 && strstr(raw, "\r\n\r\nq=42\r\n\r\nGET") != NULL)
        return strcmp(f->bodies.data, "q=42|") == 0;
    return true;
}

/* Returns whether the case passed, whole and byte by byte. */
static bool check_case(struct fixture *f, json_t *item)
{
    const char *class = json_string_value(json_object_get(item, "class"));
    const char *title = json_string_value(json_object_get(item, "title"));
    const char *raw = json_string_value(json_object_get(item, "raw"));
    size_t messages = (size_t)json_integer_value(json_object_get(item, "messages_complete"));
    static char data[65536];
    size_t bytes;
    bool right = true;

    assert_true(class != NULL && title != NULL && raw != NULL);
    assert_true(strlen(json_string_value(json_object_get(item, "raw_b64"))) < sizeof(data));
    bytes = decode_base64(json_string_value(json_object_get(item, "raw_b64")), data);
    for (int round = 0; round < 2; round++) {
        struct outcome outcome;
        bool good;

        run_case(f, data, bytes, round == 0 ? bytes : 1, &outcome);
        good = strcmp(class, "accept") == 0   ? check_accept(&outcome, messages)
               : strcmp(class, "reject") == 0 ? check_reject(&outcome)
                                              : check_special(&outcome);
        good = good && !outcome.reset && check_bodies(f, raw);
        if (!good)
            print_error("%s '%s' round %d: %zu responses, first %d, reset %d, bodies '%s'\n", class,
                        title, round, outcome.responses, outcome.statuses[0], outcome.reset,
                        f->bodies.data);
        right = right && good;
    }
    return right;
}

static void test_outside_cases_when_sent_then_as_their_class_says(void **state)
{
    struct fixture f;
    struct http_limits limits;
    json_t *file = json_load_file(CASES, 0, NULL);
    json_t *cases = json_object_get(file, "cases");
    size_t passed = 0, i;
    json_t *item;

    (void)state;
    assert_non_null(cases);
    http_limits_default(&limits);
    memset(&f, 0, sizeof(f));
    buffer_init(&f.bodies, 1 << 20);
    loopback_open(&f.l, &limits, routes, &f);
    json_array_foreach(cases, i, item) passed += check_case(&f, item) ? 1 : 0;
    print_message("http1.cases.json: %zu of %zu passed\n", passed, json_array_size(cases));
    assert_int_equal(passed, json_array_size(cases));
    loopback_close(&f.l);
    buffer_done(&f.bodies);
    json_decref(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_outside_cases_when_sent_then_as_their_class_says),
    };

    if (access(CASES, R_OK) != 0) {
        print_message("skipped: %s is not there\n", CASES);
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
