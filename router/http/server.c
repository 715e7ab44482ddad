/* server.c - the clients of a loop: end-of-turn flush, time, counts, drain and close.
 *
 *   one turn of the loop:  timers -> PREPARE: flush -> sleep, then callbacks -> CHECK: flush
 *
 * Why flush at the end of a turn: one message from a worker leads to many small writes, one per
 *   stream and often several to one stream; joined they cost one send per client. `awake` keeps
 *   the loop from sleeping on what another prepare callback may have written after ours ran.
 * Why two plain lists with one timer each: all deadlines are coarse, so a look at every client a
 *   few times a second is cheaper than a timer restart per request, and both timers stop when
 *   there is nobody to look at.
 * Invariants: clients_open counts until the handle is closed; a client that is closing is on none
 *   of the lists; the server is freed by the last handle's close callback, nowhere else. */
#define LOG_MODULE "http"
#include "router/http/server.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/log.h"
#include "proto/base/mem.h"
#include "router/http/client.h"
#include "router/http/listener.h"
#include "router/http/server_internal.h"

#define TICK_MS_MIN 5u
#define TICK_MS_MAX 250u

void http_limits_default(struct http_limits *limits)
{
    *limits = (struct http_limits){
        .clients_max = 1024,
        .header_bytes_max = 16 << 10,
        .headers_max = 100,
        .body_bytes_max = 8 << 20,
        .header_timeout_ms = 10000,
        .body_timeout_ms = 30000,
        .idle_timeout_ms = 75000,
        .write_timeout_ms = 60000,
        .write_bytes_max = 4 << 20,
    };
}

/* Each client once; what they add goes on the next turn, so that none can keep the loop. */
static void flush_dirty(struct http_server *server)
{
    struct list batch;
    struct list *link;

    if (list_empty(&server->dirty))
        return;
    batch = server->dirty;
    batch.next->prev = &batch;
    batch.prev->next = &batch;
    list_init(&server->dirty);
    while ((link = list_pop_front(&batch)) != NULL)
        client_flush(LIST_ENTRY(link, struct http_client, dirty_link));
    if (list_empty(&server->dirty))
        (void)uv_idle_stop(&server->awake);
}

static void on_prepare(uv_prepare_t *handle)
{
    flush_dirty(handle->data);
}

static void on_check(uv_check_t *handle)
{
    flush_dirty(handle->data);
}

static void on_awake(uv_idle_t *handle)
{
    ASSERT(handle->data != NULL); /* only there so that the loop polls without sleeping */
}

static void on_tick(uv_timer_t *timer)
{
    struct http_server *server = timer->data;
    uint64_t now = uv_now(server->loop);

    LIST_FOR_SAFE(link, after, &server->clients)
    {
        client_check_time(LIST_ENTRY(link, struct http_client, link), now);
        if (server->closing) /* by an owner that was told its client is gone */
            return;
    }
}

static void on_probe(uv_timer_t *timer)
{
    struct http_server *server = timer->data;
    uint64_t now = uv_now(server->loop);

    LIST_FOR_SAFE(link, after, &server->ended)
    {
        client_probe(LIST_ENTRY(link, struct http_client, ended_link), now);
        if (server->closing)
            return;
    }
    if (list_empty(&server->ended))
        (void)uv_timer_stop(&server->probe);
}

void server_mark_dirty(struct http_server *server, struct list *dirty_link)
{
    if (!list_empty(dirty_link))
        return; /* it is on the list already */
    list_push_back(&server->dirty, dirty_link);
    (void)uv_idle_start(&server->awake, on_awake);
}

void server_mark_ended(struct http_server *server, struct list *ended_link)
{
    ASSERT(list_empty(ended_link));
    if (list_empty(&server->ended))
        (void)uv_timer_start(&server->probe, on_probe, CLIENT_PROBE_EVERY_MS,
                             CLIENT_PROBE_EVERY_MS);
    list_push_back(&server->ended, ended_link);
}

void server_client_opened(struct http_server *server)
{
    server->counts.clients_total++;
    if (server->counts.clients_open++ == 0)
        (void)uv_timer_start(&server->tick, on_tick, server->tick_ms, server->tick_ms);
    server_handle_opened(server);
}

void server_client_closed(struct http_server *server)
{
    ASSERT(server->counts.clients_open > 0);
    if (--server->counts.clients_open == 0 && !server->closing)
        (void)uv_timer_stop(&server->tick);
    LIST_FOR_SAFE(link, after, &server->listeners)
    listener_resume(LIST_ENTRY(link, struct http_listener, link));
    server_handle_closed(server);
}

void server_handle_opened(struct http_server *server)
{
    ASSERT(!server->closing);
    server->handles_open++;
}

void server_handle_closed(struct http_server *server)
{
    void (*on_closed)(void *user) = server->on_closed;
    void *user = server->closed_user;

    ASSERT(server->handles_open > 0);
    if (--server->handles_open > 0)
        return;
    ASSERT(server->closing && server->counts.exchanges_open == 0);
    mem_free(server);
    if (on_closed != NULL)
        on_closed(user);
}

static void on_handle_closed(uv_handle_t *handle)
{
    server_handle_closed(handle->data);
}

/* The server's own handles do not keep the loop alive: its listeners and clients do. */
static void own_handle(struct http_server *server, void *handle)
{
    uv_handle_t *base = handle;

    base->data = server;
    uv_unref(base);
    server_handle_opened(server);
}

/* None of these can fail: they touch memory only. */
static void start_handles(struct http_server *server)
{
    (void)uv_prepare_init(server->loop, &server->prepare);
    (void)uv_check_init(server->loop, &server->check);
    (void)uv_idle_init(server->loop, &server->awake);
    (void)uv_timer_init(server->loop, &server->tick);
    (void)uv_timer_init(server->loop, &server->probe);
    own_handle(server, &server->prepare);
    own_handle(server, &server->check);
    own_handle(server, &server->awake);
    own_handle(server, &server->tick);
    own_handle(server, &server->probe);
    (void)uv_prepare_start(&server->prepare, on_prepare);
    (void)uv_check_start(&server->check, on_check);
}

/* libuv writes without MSG_NOSIGNAL: a client that is gone would end the process. */
static void ignore_sigpipe(void)
{
    struct sigaction action;

    if (sigaction(SIGPIPE, NULL, &action) == 0 && action.sa_handler == SIG_DFL)
        (void)signal(SIGPIPE, SIG_IGN);
}

static uint32_t tick_for(const struct http_limits *limits)
{
    const uint32_t times[] = {limits->header_timeout_ms, limits->body_timeout_ms,
                              limits->idle_timeout_ms, limits->write_timeout_ms};
    uint32_t tick = TICK_MS_MAX;

    for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++)
        tick = times[i] / 4 < tick ? times[i] / 4 : tick;
    return tick > TICK_MS_MIN ? tick : TICK_MS_MIN;
}

int http_server_new(uv_loop_t *loop, const struct http_limits *limits,
                    const struct http_route *routes, void *user, struct http_server **ret_server)
{
    struct http_server *server;

    if (limits->clients_max == 0 || limits->header_bytes_max == 0 || limits->headers_max == 0 ||
        limits->body_bytes_max > (uint64_t)1 << 40)
        return -EINVAL;
    server = mem_zalloc(sizeof(*server));
    server->loop = loop;
    server->limits = *limits;
    server->routes = routes;
    server->user = user;
    server->tick_ms = tick_for(limits);
    list_init(&server->listeners);
    list_init(&server->clients);
    list_init(&server->dirty);
    list_init(&server->ended);
    start_handles(server);
    ignore_sigpipe();
    *ret_server = server;
    return 0;
}

int http_server_listen(struct http_server *server, const char *host, uint16_t port,
                       uint16_t *ret_port, struct errmsg *err)
{
    ASSERT(!server->draining && !server->closing);
    return listener_open(server, host, port, ret_port, err);
}

int http_server_listen_fd(struct http_server *server, int fd, struct errmsg *err)
{
    ASSERT(!server->draining && !server->closing);
    return listener_open_fd(server, fd, err);
}

void http_server_drain(struct http_server *server)
{
    server->draining = true;
    LIST_FOR_SAFE(link, after, &server->listeners)
    listener_close(LIST_ENTRY(link, struct http_listener, link));
    LIST_FOR_SAFE(link, after, &server->clients)
    client_drain(LIST_ENTRY(link, struct http_client, link));
}

void http_server_close(struct http_server *server, void (*on_closed)(void *user), void *user)
{
    ASSERT(!server->closing);
    server->draining = true;
    server->closing = true;
    server->on_closed = on_closed;
    server->closed_user = user;
    LIST_FOR_SAFE(link, after, &server->listeners)
    listener_close(LIST_ENTRY(link, struct http_listener, link));
    while (!list_empty(&server->clients)) /* on_gone may close others, so from the front */
        client_close(LIST_ENTRY(server->clients.next, struct http_client, link), "server closes");
    uv_close((uv_handle_t *)&server->prepare, on_handle_closed);
    uv_close((uv_handle_t *)&server->check, on_handle_closed);
    uv_close((uv_handle_t *)&server->awake, on_handle_closed);
    uv_close((uv_handle_t *)&server->tick, on_handle_closed);
    uv_close((uv_handle_t *)&server->probe, on_handle_closed);
}

void http_server_counts(const struct http_server *server, struct http_counts *ret_counts)
{
    *ret_counts = server->counts;
}
