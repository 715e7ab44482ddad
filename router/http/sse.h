/* sse.h - server-sent events over an exchange: `data: {...}\n\n`, and the final `data: [DONE]`. */
#ifndef REFRAIN_ROUTER_HTTP_SSE_H
#define REFRAIN_ROUTER_HTTP_SSE_H

#include <stddef.h>

struct http_exchange;

/* 200 text/event-stream, no buffering, no caching. */
void sse_begin(struct http_exchange *exchange);
/* `json` has no newline. */
void sse_data(struct http_exchange *exchange, const char *json, size_t bytes);
/* `event: error` with an OpenAI error object as data, then the stream ends without [DONE]. */
void sse_error(struct http_exchange *exchange, const char *json, size_t bytes);
/* data: [DONE], then the stream ends. */
void sse_done(struct http_exchange *exchange);

#endif
