/* listener.c - accept until clients_max are open, then leave the rest to the kernel's queue.
 *
 *   ACCEPTING --clients_max open--> WAITING --a client has gone--> ACCEPTING
 *        +-----------------------------+------close-------> closed
 *
 * Why so: libuv stops polling a listening socket while a connection is not taken with uv_accept(),
 *   so "not accepting" is the whole back-pressure; newcomers wait in the backlog. */
#define LOG_MODULE "http"
#include "router/http/listener.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "proto/base/assert.h"
#include "proto/base/log.h"
#include "proto/base/mem.h"
#include "router/http/client.h"
#include "router/http/server_internal.h"

#define BACKLOG 1024

static void on_closed(uv_handle_t *handle)
{
    struct http_listener *listener = handle->data;
    struct http_server *server = listener->server;

    mem_free(listener);
    server_handle_closed(server);
}

void listener_close(struct http_listener *listener)
{
    if (listener->closing)
        return;
    listener->closing = true;
    list_remove(&listener->link);
    uv_close((uv_handle_t *)&listener->tcp, on_closed);
}

static void accept_one(struct http_listener *listener)
{
    struct http_server *server = listener->server;
    int r;

    listener->waiting = server->counts.clients_open >= server->limits.clients_max;
    if (listener->waiting) {
        log_debug("accept_paused", "clients=%u", server->limits.clients_max);
        return;
    }
    r = client_accept(server, (uv_stream_t *)&listener->tcp);
    if (r < 0)
        log_warn("accept_failed", "error=%s", uv_err_name(r));
}

static void on_connection(uv_stream_t *stream, int status)
{
    struct http_listener *listener = stream->data;

    if (status < 0) {
        log_warn("accept_failed", "error=%s", uv_err_name(status));
        return;
    }
    accept_one(listener);
}

void listener_resume(struct http_listener *listener)
{
    if (listener->waiting && !listener->closing)
        accept_one(listener);
}

static struct http_listener *listener_new(struct http_server *server)
{
    struct http_listener *listener = mem_zalloc(sizeof(*listener));

    listener->server = server;
    (void)uv_tcp_init(server->loop, &listener->tcp); /* makes no socket yet, so cannot fail */
    listener->tcp.data = listener;
    list_push_back(&server->listeners, &listener->link);
    server_handle_opened(server);
    return listener;
}

static int parse_address(const char *host, uint16_t port, struct sockaddr_storage *ret_address)
{
    if (uv_ip4_addr(host, port, (struct sockaddr_in *)ret_address) == 0)
        return 0;
    return uv_ip6_addr(host, port, (struct sockaddr_in6 *)ret_address);
}

static int bound_port(const uv_tcp_t *tcp, uint16_t *ret_port)
{
    struct sockaddr_storage address;
    int bytes = sizeof(address);
    int r = uv_tcp_getsockname(tcp, (struct sockaddr *)&address, &bytes);

    if (r < 0)
        return r;
    *ret_port = ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&address)->sin6_port
                                                    : ((struct sockaddr_in *)&address)->sin_port);
    return 0;
}

int listener_open(struct http_server *server, const char *host, uint16_t port, uint16_t *ret_port,
                  struct errmsg *err)
{
    struct http_listener *listener = NULL;
    struct sockaddr_storage address;
    uint16_t bound = 0;
    int r = parse_address(host, port, &address);

    if (r < 0)
        return errmsg_set(err, -EINVAL, "'%s' is not an IP address", host);
    listener = listener_new(server);
    r = uv_tcp_bind(&listener->tcp, (struct sockaddr *)&address, 0);
    if (r == 0)
        r = uv_listen((uv_stream_t *)&listener->tcp, BACKLOG, on_connection);
    if (r == 0)
        r = bound_port(&listener->tcp, &bound);
    if (r < 0) {
        listener_close(listener);
        return errmsg_set(err, r, "listen on %s port %u: %s", host, port, uv_strerror(r));
    }
    log_info("listening", "host=%s port=%u", host, bound);
    if (ret_port != NULL)
        *ret_port = bound;
    return 0;
}

int listener_open_fd(struct http_server *server, int fd, struct errmsg *err)
{
    struct http_listener *listener;
    struct sockaddr_storage address = {0};
    socklen_t bytes = sizeof(address);
    int r;

    if (getsockname(fd, (struct sockaddr *)&address, &bytes) < 0)
        return errmsg_errno(err, "look at socket %d", fd);
    if (address.ss_family != AF_INET && address.ss_family != AF_INET6)
        return errmsg_set(err, -ENOTSUP, "socket %d is not a TCP socket", fd);
    listener = listener_new(server);
    r = uv_tcp_open(&listener->tcp, fd);
    if (r == 0)
        r = uv_listen((uv_stream_t *)&listener->tcp, BACKLOG, on_connection);
    if (r < 0) {
        listener_close(listener);
        return errmsg_set(err, r, "listen on socket %d: %s", fd, uv_strerror(r));
    }
    log_info("listening", "fd=%d", fd);
    return 0;
}
