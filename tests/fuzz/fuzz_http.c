/* The HTTP parser: bytes whole and cut at fuzzed points give the same events, and what it promises
 * about them holds. Input: one byte of limits, one of seed for the cuts, then the stream. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/buffer.h"
#include "proto/base/utf8.h"
#include "router/http/parser.h"
#include "router/http/token.h"

/* The properties that callers build on. */
static void check_head(const struct http_parser *p)
{
    const char *path = http_parser_path(p);

    ASSERT(token_is_name(http_parser_method(p)));
    ASSERT(*path == '/' || strcmp(path, "*") == 0);
    ASSERT(utf8_span(path, strlen(path)) == strlen(path));
    ASSERT(http_parser_segment(p) >= path);
    ASSERT(http_parser_segment(p) <= path + strlen(path));
    ASSERT(p->head_used <= p->head_bytes && p->head_bytes <= p->limits.head_bytes_max);
    ASSERT(p->headers_count <= p->limits.headers_max);
    for (uint32_t i = 0; i < p->headers_count; i++) {
        ASSERT(token_is_name(p->head + p->headers[i].name));
        ASSERT(token_is_value(p->head + p->headers[i].value));
    }
    ASSERT(p->body_total <= p->limits.body_bytes_max);
}

static uint32_t next_random(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 16;
}

/* Everything that came out, as bytes; equal streams must give equal bytes. */
static void parse(const struct http_parser_limits *limits, const char *data, size_t bytes,
                  uint32_t seed, bool cut, struct buffer *out)
{
    struct http_parser p;
    enum http_event event = HTTP_EVENT_MORE;
    size_t at = 0;
    uint64_t body = 0;

    http_parser_init(&p, limits);
    while (at < bytes && event != HTTP_EVENT_FAULT) {
        size_t piece = cut ? 1 + next_random(&seed) % 7 : bytes;
        size_t end = piece < bytes - at ? at + piece : bytes;

        do {
            size_t used;

            event = http_parser_push(&p, data + at, end - at, &used);
            ASSERT(used <= end - at);
            at += used;
            if (event == HTTP_EVENT_MORE) {
                ASSERT(at == end);
            } else if (event == HTTP_EVENT_HEAD) {
                check_head(&p);
                body = 0;
                buffer_printf(out, "H%zu %s %s %u %d%d%d;", at, http_parser_method(&p),
                              http_parser_path(&p), p.headers_count, p.keep_alive,
                              p.expect_continue, p.body);
            } else if (event == HTTP_EVENT_BODY) {
                ASSERT(p.body_bytes > 0 && p.body_data >= data && at <= bytes);
                body += p.body_bytes;
                ASSERT(body <= limits->body_bytes_max);
                buffer_append(out, p.body_data, p.body_bytes);
            } else if (event == HTTP_EVENT_DONE) {
                buffer_printf(out, "D%zu;", at);
                http_parser_start(&p);
            } else {
                ASSERT(p.fault.status >= 400 && p.fault.status <= 505);
                buffer_printf(out, "F%zu %d %s;", at, p.fault.status, p.fault.message);
            }
        } while (event != HTTP_EVENT_MORE && event != HTTP_EVENT_FAULT);
    }
    http_parser_done(&p);
    ASSERT(buffer_finish(out) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct http_parser_limits limits;
    struct buffer whole, pieces;

    if (size < 2)
        return 0;
    limits = (struct http_parser_limits){.head_bytes_max = 32u + 8u * data[0],
                                         .headers_max = 1u + data[0] % 8,
                                         .body_bytes_max = data[0]};
    buffer_init(&whole, (size_t)1 << 26);
    buffer_init(&pieces, (size_t)1 << 26);
    parse(&limits, (const char *)data + 2, size - 2, 0, false, &whole);
    parse(&limits, (const char *)data + 2, size - 2, data[1], true, &pieces);
    ASSERT(whole.bytes == pieces.bytes);
    ASSERT(memcmp(whole.data, pieces.data, whole.bytes) == 0);
    buffer_done(&whole);
    buffer_done(&pieces);
    return 0;
}
