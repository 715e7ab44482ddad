/* listener.h - one listening socket. For the files of this folder. Thread: the loop's. */
#ifndef REFRAIN_ROUTER_HTTP_LISTENER_H
#define REFRAIN_ROUTER_HTTP_LISTENER_H

#include <stdint.h>
#include <uv.h>

#include "proto/base/errmsg.h"
#include "proto/base/list.h"

struct http_server;

struct http_listener {
    uv_tcp_t tcp;
    struct http_server *server;
    struct list link; /* in server->listeners */
    bool waiting;     /* a connection is there, but clients_max are open */
    bool closing;
};

/* 0 and a listener in server->listeners; -EINVAL: `host` is no IP address; or libuv's error. */
int listener_open(struct http_server *server, const char *host, uint16_t port, uint16_t *ret_port,
                  struct errmsg *err);
/* The same for a socket that listens already; it is the listener's from now on. -ENOTSUP: no TCP.
 */
int listener_open_fd(struct http_server *server, int fd, struct errmsg *err);
void listener_close(struct http_listener *listener); /* harmless the second time */
/* A client has gone: take the connection that waited, if one did. */
void listener_resume(struct http_listener *listener);

#endif
