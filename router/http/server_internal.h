/* server_internal.h - the server's struct. For the files of this folder.
 *
 * Thread: the loop's. */
#ifndef REFRAIN_ROUTER_HTTP_SERVER_INTERNAL_H
#define REFRAIN_ROUTER_HTTP_SERVER_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "proto/base/list.h"
#include "router/http/response.h"
#include "router/http/server.h"

#define SERVER_READ_BYTES 65536

struct http_server {
    uv_loop_t *loop;
    struct http_limits limits;
    const struct http_route *routes;
    void *user;
    struct list listeners; /* struct http_listener */
    struct list clients;   /* struct http_client, not yet closing */
    struct list dirty;     /* clients with something to do at the end of this turn */
    struct list ended;     /* clients whose input ended while their exchange is open */
    struct http_counts counts;
    struct http_date date;
    uv_prepare_t prepare; /* before the loop sleeps: flush what timers wrote */
    uv_check_t check;     /* after the loop woke: flush what reads and messages led to */
    uv_idle_t awake;      /* runs while `dirty` has clients, so that the loop does not sleep */
    uv_timer_t tick;      /* runs while there are clients: deadlines */
    uv_timer_t probe;     /* runs while `ended` has clients */
    uint32_t tick_ms;
    uint32_t handles_open; /* clients and listeners too */
    bool draining;
    bool closing;
    void (*on_closed)(void *user);
    void *closed_user;
    char read_buffer[SERVER_READ_BYTES]; /* of whichever client reads; used within one callback */
};

/* Put the client on the list of the end of this turn. */
void server_mark_dirty(struct http_server *server, struct list *dirty_link);
/* Put the client on the list of those that are probed. */
void server_mark_ended(struct http_server *server, struct list *ended_link);
void server_client_opened(struct http_server *server);
void server_client_closed(struct http_server *server);
void server_handle_opened(struct http_server *server);
void server_handle_closed(struct http_server *server); /* may free the server */

#endif
