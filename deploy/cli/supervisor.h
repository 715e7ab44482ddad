/* supervisor.h - child processes that are started again when they die, and stopped in order.
 *
 *   STOPPED --start--> RUNNING --died--> BACKOFF --time--> RUNNING
 *                         |                 |
 *                         +--stop--> STOPPING --died, or killed at the deadline--> STOPPED
 *
 * Backoff: 200 ms, doubled to 5 s, back to 200 ms after 10 s of life. Death is noticed through a
 * pidfd, so no SIGCHLD handler. Children die with us (PR_SET_PDEATHSIG SIGTERM). Thread: main only,
 * since that is the thread whose end the children notice. */
#ifndef REFRAIN_DEPLOY_CLI_SUPERVISOR_H
#define REFRAIN_DEPLOY_CLI_SUPERVISOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/base/errmsg.h"

#define SUPERVISOR_CHILDREN_MAX 65u /* a router and 64 groups */
#define SUPERVISOR_ARGS_MAX 128u

enum child_state { CHILD_STOPPED = 0, CHILD_RUNNING, CHILD_BACKOFF, CHILD_STOPPING, CHILD_STATES };

struct child {
    char name[32];
    char *args[SUPERVISOR_ARGS_MAX + 1]; /* owned, NULL-terminated */
    size_t args_count;
    enum child_state state;
    pid_t pid;
    int pidfd;
    int exit_status; /* of the last death, as from waitpid */
    uint32_t deaths;
    uint64_t started_ms, retry_ms;
    uint32_t backoff_ms;
};

struct supervisor {
    struct child children[SUPERVISOR_CHILDREN_MAX];
    size_t count;
    /* Told of each death that was not asked for, after the state changed. May be NULL. */
    void (*on_death)(void *user, struct child *child);
    void *user;
};

void supervisor_init(struct supervisor *supervisor);
void supervisor_done(struct supervisor *supervisor); /* every child must be STOPPED */
/* A stopped child; path is its program. */
struct child *supervisor_add(struct supervisor *supervisor, const char *name, const char *path);
void child_add_arg(struct child *child, const char *arg);
/* keep_fd: -1, or an fd the child inherits this once. 0 or process_spawn's errors. */
int supervisor_start(struct supervisor *supervisor, struct child *child, int keep_fd,
                     struct errmsg *err);
/* Wait until a child died, a retry is due, `extra_fd` (-1: none) is readable or timeout_ms (-1:
 * none) passed; handle deaths and retries. True when extra_fd is readable. */
bool supervisor_wait(struct supervisor *supervisor, int extra_fd, int timeout_ms);
/* SIGTERM and no more restarts; supervisor_wait notices the end. Harmless when stopped. */
void supervisor_stop(struct child *child);
void supervisor_kill(struct child *child); /* SIGKILL a STOPPING one */
const char *child_state_name(enum child_state state);
/* "exit code 3", "signal 9 (Killed)" of the last death. */
void child_describe_death(const struct child *child, char *ret_text, size_t text_max);

#endif
