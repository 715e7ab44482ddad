/* exchange.h - one request and its response. For the files of this folder; users see server.h.
 *
 * Ownership: embedded in its client, one at a time; its texts are the parser's and the client's.
 * Thread: the loop's. */
#ifndef REFRAIN_ROUTER_HTTP_EXCHANGE_H
#define REFRAIN_ROUTER_HTTP_EXCHANGE_H

#include <stdbool.h>
#include <stddef.h>

#include "proto/base/buffer.h"
#include "router/http/response.h"
#include "router/http/server.h"

#define EXCHANGE_EXTRA_BYTES_MAX 16384 /* header lines added by a handler */

struct http_client;

struct http_part {
    const void *data;
    size_t bytes;
};

struct http_exchange {
    struct http_client *client;
    bool active; /* between the handler's call and the end of the response, or gone */
    bool begun;
    bool head_only; /* HEAD: the body is counted, not sent */
    enum http_framing framing;
    const char *segment;
    struct buffer extra; /* header lines */
    void (*on_gone)(void *owner);
    void *owner;
};

void exchange_init(struct http_exchange *exchange, struct http_client *client);
void exchange_done(struct http_exchange *exchange);
/* A request is whole: find its route and call the handler, or answer 400, 404 or 405. */
void exchange_start(struct http_exchange *exchange);
/* The client is gone: tell the owner, unless the response has ended. Harmless the second time. */
void exchange_gone(struct http_exchange *exchange);
/* As http_exchange_write() of the parts joined: one chunk. */
void exchange_write_parts(struct http_exchange *exchange, const struct http_part *parts,
                          size_t count);

#endif
