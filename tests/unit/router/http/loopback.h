/* loopback.h - a real server on a loop, real sockets as its clients, one thread.
 *
 * The test turns the loop itself: every wait is "turn the loop until this holds", with a deadline.
 * Include after cmocka.h. */
#ifndef REFRAIN_TESTS_HTTP_LOOPBACK_H
#define REFRAIN_TESTS_HTTP_LOOPBACK_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#include "proto/base/buffer.h"
#include "proto/base/clock.h"
#include "router/http/server.h"

#define LOOPBACK_DEADLINE_MS 20000

struct loopback {
    uv_loop_t loop;
    struct http_server *server;
    uint16_t port;
    bool closed;
};

struct peer { /* a client's socket and all that it has received */
    struct loopback *loopback;
    int fd;
    struct buffer in;
    bool ended; /* the server closed */
    bool reset; /* ... with an error */
};

static inline void loopback_open(struct loopback *l, const struct http_limits *limits,
                                 const struct http_route *routes, void *user)
{
    memset(l, 0, sizeof(*l));
    assert_int_equal(uv_loop_init(&l->loop), 0);
    assert_int_equal(http_server_new(&l->loop, limits, routes, user, &l->server), 0);
    assert_int_equal(http_server_listen(l->server, "127.0.0.1", 0, &l->port, NULL), 0);
    assert_int_not_equal(l->port, 0);
}

static inline void loopback_on_closed(void *user)
{
    ((struct loopback *)user)->closed = true;
}

/* One turn of the loop, at most a millisecond of sleep. */
static inline void loopback_turn(struct loopback *l, int fd)
{
    struct pollfd look = {.fd = fd, .events = POLLIN};

    (void)uv_run(&l->loop, UV_RUN_NOWAIT);
    (void)poll(&look, 1, 1);
}

#define LOOPBACK_UNTIL(l, fd, condition)                                     \
    do {                                                                     \
        uint64_t until = clock_ms() + LOOPBACK_DEADLINE_MS;                  \
        while (!(condition)) {                                               \
            assert_true(clock_ms() < until); /* condition never came true */ \
            loopback_turn(l, fd);                                            \
        }                                                                    \
    } while (0)

static inline void loopback_close(struct loopback *l)
{
    if (l->server != NULL)
        http_server_close(l->server, loopback_on_closed, l);
    LOOPBACK_UNTIL(l, -1, l->closed);
    assert_int_equal(uv_run(&l->loop, UV_RUN_DEFAULT), 0); /* nothing keeps the loop alive */
    assert_int_equal(uv_loop_close(&l->loop), 0);          /* no handle was left */
}

static inline struct http_counts loopback_counts(struct loopback *l)
{
    struct http_counts counts;

    http_server_counts(l->server, &counts);
    return counts;
}

static inline void peer_open(struct peer *peer, struct loopback *l)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(l->port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1;

    memset(peer, 0, sizeof(*peer));
    peer->loopback = l;
    buffer_init(&peer->in, (size_t)1 << 30);
    peer->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(peer->fd >= 0);
    assert_int_equal(connect(peer->fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(setsockopt(peer->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)), 0);
    assert_int_equal(fcntl(peer->fd, F_SETFL, O_NONBLOCK), 0);
}

static inline void peer_close(struct peer *peer)
{
    if (peer->fd >= 0)
        assert_int_equal(close(peer->fd), 0);
    peer->fd = -1;
    buffer_done(&peer->in);
}

/* Close so that the kernel sends a reset instead of a FIN. */
static inline void peer_reset(struct peer *peer)
{
    struct linger hard = {.l_onoff = 1, .l_linger = 0};

    assert_int_equal(setsockopt(peer->fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard)), 0);
    peer_close(peer);
}

/* Take what has come, without waiting. */
static inline void peer_take(struct peer *peer)
{
    char bytes[65536];
    ssize_t n;

    while (!peer->ended && (n = recv(peer->fd, bytes, sizeof(bytes), 0)) != -1) {
        if (n == 0)
            peer->ended = true;
        buffer_append(&peer->in, bytes, (size_t)n);
    }
    if (!peer->ended && errno != EAGAIN) {
        peer->ended = true;
        peer->reset = true;
    }
    assert_int_equal(buffer_finish(&peer->in), 0);
}

/* Send all of it, turning the loop and taking what comes where the socket is full. Returns false
 * when the server has closed before all was sent. */
static inline bool peer_send(struct peer *peer, const void *data, size_t bytes)
{
    size_t at = 0;
    uint64_t until = clock_ms() + LOOPBACK_DEADLINE_MS;

    while (at < bytes) {
        ssize_t n = send(peer->fd, (const char *)data + at, bytes - at, MSG_NOSIGNAL);

        if (n < 0 && errno != EAGAIN)
            return false;
        if (n < 0) {
            peer_take(peer);
            loopback_turn(peer->loopback, -1);
            assert_true(clock_ms() < until);
        }
        at += n > 0 ? (size_t)n : 0;
    }
    return true;
}

static inline void peer_say(struct peer *peer, const char *text)
{
    assert_true(peer_send(peer, text, strlen(text)));
}

/* Turn the loop until `text` has come. */
static inline void peer_hear(struct peer *peer, const char *text)
{
    LOOPBACK_UNTIL(peer->loopback, peer->fd,
                   (peer_take(peer), strstr(peer->in.data, text) != NULL) || peer->ended);
    if (strstr(peer->in.data, text) == NULL)
        fail_msg("'%s' is not in: %s", text, peer->in.data);
}

/* Turn the loop until the server has closed in good order. */
static inline void peer_hear_end(struct peer *peer)
{
    LOOPBACK_UNTIL(peer->loopback, peer->fd, (peer_take(peer), peer->ended));
    assert_false(peer->reset);
}

static inline void peer_half_close(struct peer *peer)
{
    assert_int_equal(shutdown(peer->fd, SHUT_WR), 0);
}

static inline size_t count_text(const char *text, const char *part)
{
    size_t count = 0;

    for (; (text = strstr(text, part)) != NULL; text += strlen(part))
        count++;
    return count;
}

#endif
