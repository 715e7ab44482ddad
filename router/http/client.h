/* client.h - one connection. For the files of this folder.
 *
 * Ownership: the server owns clients; a client frees itself when its handle is closed.
 * Thread: the loop's. Limits: see the constants; all other bounds are the server's http_limits. */
#ifndef REFRAIN_ROUTER_HTTP_CLIENT_H
#define REFRAIN_ROUTER_HTTP_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "proto/base/buffer.h"
#include "proto/base/list.h"
#include "router/http/exchange.h"
#include "router/http/parser.h"

#define CLIENT_IN_BYTES_MAX 65536       /* pipelined bytes kept while an exchange is open */
#define CLIENT_KEEP_BYTES_MAX 65536     /* buffers over this are freed between requests */
#define CLIENT_SEND_EARLY_BYTES 65536   /* sent within the turn, not at its end */
#define CLIENT_PROBE_AFTER_MS 50        /* end of input, still working: is anybody there? */
#define CLIENT_PROBE_EVERY_MS 20        /* look for the answer */
#define CLIENT_HALF_CLOSE_GRACE_MS 2000 /* the same for HTTP/1.0, which cannot be probed */
#define CLIENT_LINGER_MS 5000           /* read and drop after the last answer */
#define CLIENT_LINGER_BYTES_MAX (64u << 20)

struct http_server;

enum client_state {
    CLIENT_IDLE = 0, /* between requests */
    CLIENT_HEAD,     /* reading request line and headers */
    CLIENT_BODY,     /* reading the body */
    CLIENT_HANDLER,  /* the exchange is open, nothing of the response is out */
    CLIENT_STREAM,   /* the exchange is open, the response has begun */
    CLIENT_FLUSH,    /* no more requests; the last bytes go out */
    CLIENT_LINGER,   /* our side is shut; input is dropped until the client closes */
    CLIENT_CLOSING,
    CLIENT_STATES,
};

struct http_client {
    uv_tcp_t tcp;
    uv_write_t write;
    uv_shutdown_t shutdown;
    struct http_server *server;
    struct list link;       /* in server->clients */
    struct list dirty_link; /* in server->dirty: something to do at the end of the turn */
    struct list ended_link; /* in server->ended: input has ended, the exchange is open */
    enum client_state state;
    struct http_parser parser;
    struct http_exchange exchange;
    struct buffer body;
    struct buffer in;      /* read, not parsed yet */
    struct buffer out;     /* written, not given to the socket */
    struct buffer sending; /* given to uv_write, must not move */
    size_t sending_left;   /* bytes of it that were given */
    bool writing;          /* `write` is under way */
    bool reading;
    bool ended; /* the client has shut its side */
    bool probed;
    bool close_after; /* the response says Connection: close */
    const char *doom; /* why the client has to go at the end of the turn; NULL: it stays */
    uint64_t ended_ms;
    uint64_t deadline_ms;   /* of the state; 0: none */
    uint64_t sent_total;    /* bytes that the socket took ... */
    uint64_t sent_seen;     /* ... at the last look ... */
    uint64_t stalled_ms;    /* ... which was the last with progress */
    uint64_t dropped_bytes; /* FLUSH, LINGER */
    char peer[64];
};

/* Accept from `listener`. 0, or libuv's error; then nothing is left of it but a closing handle. */
int client_accept(struct http_server *server, uv_stream_t *listener);
/* Harmless the second time. Calls on_gone if an exchange is open. */
void client_close(struct http_client *client, const char *why);
/* No further request: close now when idle, else after the response. */
void client_drain(struct http_client *client);
/* End of the loop turn: send, then go on with what is waiting. */
void client_flush(struct http_client *client);
/* Every tick: deadlines and writes without progress. */
void client_check_time(struct http_client *client, uint64_t now_ms);
/* While input has ended and an exchange is open: has the client gone for good? */
void client_probe(struct http_client *client, uint64_t now_ms);

/* For exchange.c. */
struct buffer *client_out(struct http_client *client);
bool client_may_stay(const struct http_client *client); /* keep-alive after this response? */
bool client_may_write(struct http_client *client);      /* false: doomed, drop it */
void client_on_begun(struct http_client *client);
void client_on_written(struct http_client *client);
void client_on_answered(struct http_client *client);

#endif
