/* server.h - HTTP/1.1 on a libuv loop: bytes <-> exchanges (one request and its response).
 *
 *   listener --accept--> client (one per connection) --parser--> exchange --handler--> response
 *
 * The parser is strict (RFC 9112; parser.h): keep-alive, pipelining (one exchange at a time, in
 * order), chunked bodies, limits on every size and on time. Framing faults are answered here with
 * an OpenAI error object and the connection is closed: 400, 408 (slow), 413 (body), 414, 431, 501,
 * 505. Unknown path 404, known path with another method 405 + Allow, HEAD answered as GET without
 * body; OPTIONS is a method like any other, so 405 unless the table has it. Expect: 100-continue is
 * honoured. A path that is not in the table is 404 even without a Host header; one that is there
 * needs it (400).
 *
 * Ownership: the server owns clients and exchanges. A handler may keep the exchange pointer until
 * its on_gone callback ran or it ended the response, whichever is first; after that the pointer is
 * dead. A handler that returns without having ended the response must have set on_gone (asserted).
 * on_gone runs from the loop, never inside an http_exchange_*() call: a write to a client that is
 * gone is dropped, and the callback follows at the end of the turn. Thread: the loop's. */
#ifndef REFRAIN_ROUTER_HTTP_SERVER_H
#define REFRAIN_ROUTER_HTTP_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "proto/base/errmsg.h"

struct http_server;
struct http_exchange;

struct http_limits {
    uint32_t clients_max; /* 1024; past it accept pauses */
    uint32_t
        header_bytes_max;    /* 16 KiB for request line and headers -> 431 (414: target > 8 KiB) */
    uint32_t headers_max;    /* 100 -> 431 */
    uint64_t body_bytes_max; /* 8 MiB -> 413 */
    uint32_t header_timeout_ms; /* 10 s from first byte to end of headers -> 408 */
    uint32_t body_timeout_ms;   /* 30 s for the body -> 408 */
    uint32_t idle_timeout_ms;   /* 75 s between requests -> close */
    uint32_t write_timeout_ms;  /* 60 s without write progress -> close */
    uint64_t write_bytes_max;   /* 4 MiB not yet taken by a slow reader: the next write closes */
};
void http_limits_default(struct http_limits *limits);

typedef void (*http_handler_fn)(struct http_exchange *exchange, void *user);
struct http_route {
    const char *method; /* "GET" */
    /* "/v1/models"; a last part "/{}" takes one segment that is not empty ("%2F" in it is no
     * border), a last part "/{*}" all that is left; see http_exchange_segment. The first row that
     * fits wins. */
    const char *path;
    http_handler_fn handler;
};

struct http_counts { /* for /metrics and tests */
    uint64_t clients_open, clients_total, exchanges_open, requests_total, rejected_total;
};

/* routes end with {NULL}; they and `user` must outlive the server. 0, or -EINVAL: a limit of
 * nothing. SIGPIPE, when it has its default action, is ignored by the process from now on. */
int http_server_new(uv_loop_t *loop, const struct http_limits *limits,
                    const struct http_route *routes, void *user, struct http_server **ret_server);
/* "127.0.0.1", "::1", "0.0.0.0"...; port 0 = any. *ret_port is the bound one. -EADDRINUSE etc. */
int http_server_listen(struct http_server *server, const char *host, uint16_t port,
                       uint16_t *ret_port, struct errmsg *err);
/* Take over a listening socket (systemd socket activation). */
int http_server_listen_fd(struct http_server *server, int fd, struct errmsg *err);
/* Stop accepting; idle connections close now, busy ones after their response (Connection: close).
 * Done when clients_open is 0. */
void http_server_drain(struct http_server *server);
/* Close everything: open exchanges hear on_gone before this returns. on_closed (may be NULL) runs
 * once all handles are gone and the server is freed. */
void http_server_close(struct http_server *server, void (*on_closed)(void *user), void *user);
void http_server_counts(const struct http_server *server, struct http_counts *ret_counts);

/* The request. Texts live as long as the exchange, the body until its handler returns; NULL when
 * absent. */
const char *http_exchange_method(const struct http_exchange *exchange);
const char *http_exchange_path(const struct http_exchange *exchange);    /* percent-decoded */
const char *http_exchange_query(const struct http_exchange *exchange);   /* raw, without '?' */
const char *http_exchange_segment(const struct http_exchange *exchange); /* what "{}" matched */
const char *http_exchange_header(const struct http_exchange *exchange, const char *name);
const void *http_exchange_body(const struct http_exchange *exchange, size_t *ret_bytes);
const char *http_exchange_peer(const struct http_exchange *exchange); /* "127.0.0.1:5312" */

/* Called when the client goes away (or the server closes) before the response ended. */
void http_exchange_on_gone(struct http_exchange *exchange, void (*on_gone)(void *owner),
                           void *owner);

/* Extra header for the response; before begin/reply. Names and values are checked (ASSERT). */
void http_exchange_add_header(struct http_exchange *exchange, const char *name, const char *value);
/* Whole response; the exchange is over. Body is copied. */
void http_exchange_reply(struct http_exchange *exchange, int status, const char *content_type,
                         const void *body, size_t bytes);
/* OpenAI error object {"error":{"message","type","param","code"}}; param/code may be NULL; type is
 * chosen from the status (400 invalid_request_error, 401 authentication_error, 404 not_found_error,
 * 429 rate_limit_error, 5xx server_error). */
void http_exchange_reply_error(struct http_exchange *exchange, int status, const char *code,
                               const char *param, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* Streamed response (chunked; HTTP/1.0: until close). For SSE pass "text/event-stream". */
void http_exchange_begin(struct http_exchange *exchange, int status, const char *content_type);
/* Data is copied and sent at the end of this loop turn (writes of one turn are joined). */
void http_exchange_write(struct http_exchange *exchange, const void *data, size_t bytes);
void http_exchange_end(struct http_exchange *exchange);
bool http_exchange_begun(const struct http_exchange *exchange);

#endif
