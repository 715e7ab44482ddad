/* sse.c - the event-stream format on top of a streamed response: one event, one chunk. */
#include "router/http/sse.h"

#include <string.h>

#include "proto/base/assert.h"
#include "router/http/exchange.h"

#define PART(text)             \
    {                          \
        text, sizeof(text) - 1 \
    }

void sse_begin(struct http_exchange *exchange)
{
    http_exchange_add_header(exchange, "Cache-Control", "no-cache");
    http_exchange_add_header(exchange, "X-Accel-Buffering", "no"); /* nginx in front: hand on */
    http_exchange_begin(exchange, 200, "text/event-stream; charset=utf-8");
}

void sse_data(struct http_exchange *exchange, const char *json, size_t bytes)
{
    const struct http_part parts[] = {PART("data: "), {json, bytes}, PART("\n\n")};

    ASSERT(memchr(json, '\n', bytes) == NULL);
    exchange_write_parts(exchange, parts, 3);
}

void sse_error(struct http_exchange *exchange, const char *json, size_t bytes)
{
    const struct http_part parts[] = {PART("event: error\ndata: "), {json, bytes}, PART("\n\n")};

    ASSERT(memchr(json, '\n', bytes) == NULL);
    exchange_write_parts(exchange, parts, 3);
    http_exchange_end(exchange);
}

void sse_done(struct http_exchange *exchange)
{
    const struct http_part part = PART("data: [DONE]\n\n");

    exchange_write_parts(exchange, &part, 1);
    http_exchange_end(exchange);
}
