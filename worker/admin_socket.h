/* admin_socket.h - a Unix stream socket for the operator: one command a line, one answer a line.
 *
 * Mode 0600 in a 0700 folder, and the peer must be of our user or root. A command's answer may come
 * later (the engine makes it); until then nothing more is read from that client. Bounded: clients,
 * line length, answer length; a client that is idle or does not read is closed.
 * `table COMMAND` answers with a table for people instead of JSON, ended by an empty line.
 * Thread: one (io). */
#ifndef REFRAIN_WORKER_ADMIN_SOCKET_H
#define REFRAIN_WORKER_ADMIN_SOCKET_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

#include "proto/base/errmsg.h"

#define ADMIN_CLIENTS_MAX 8u
#define ADMIN_LINE_MAX 256u
#define ADMIN_WORDS_MAX 8u
#define ADMIN_IDLE_MS 60000u

struct admin_socket;

struct admin_call {
    uint32_t client; /* never 0, never used again for another client */
    uint32_t words_count;
    const char *words[ADMIN_WORDS_MAX]; /* printable ASCII */
};

/* Answers by admin_socket_answer, now or later, exactly once. */
typedef void (*admin_call_fn)(void *user, const struct admin_call *call);

/* -EADDRINUSE: a process listens at `path`; a stale socket is replaced. */
int admin_socket_new(const char *path, admin_call_fn on_call, void *user,
                     struct admin_socket **ret_admin, struct errmsg *err);
/* Closes everything and removes the socket's file. NULL is fine. */
void admin_socket_free(struct admin_socket *admin);

/* Fill ADMIN_CLIENTS_MAX + 1 pollfds at most; returns their count. */
uint32_t admin_socket_fds(struct admin_socket *admin, struct pollfd *ret_fds);
/* With the same pollfds after poll(). */
void admin_socket_turn(struct admin_socket *admin, const struct pollfd *fds, uint32_t count,
                       uint64_t now_ms);
/* `json`: one line without its end. Ignored when the client is gone. */
void admin_socket_answer(struct admin_socket *admin, uint32_t client, const char *json);

#endif
