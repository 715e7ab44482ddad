/* supervisor.c - (picture: supervisor.h) poll over pidfds; one place reaps, one place starts. */
#include "deploy/cli/supervisor.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/base/assert.h"
#include "proto/base/clock.h"
#include "proto/base/mem.h"
#include "proto/base/process.h"

#define BACKOFF_FIRST_MS 200u
#define BACKOFF_MAX_MS 5000u
#define HEALTHY_MS 10000u

static const bool may_follow[CHILD_STATES][CHILD_STATES] = {
    [CHILD_STOPPED] = {[CHILD_RUNNING] = true},
    [CHILD_RUNNING] = {[CHILD_BACKOFF] = true, [CHILD_STOPPING] = true},
    [CHILD_BACKOFF] = {[CHILD_RUNNING] = true, [CHILD_STOPPED] = true},
    [CHILD_STOPPING] = {[CHILD_STOPPED] = true},
};

static const char *const state_names[CHILD_STATES] = {"stopped", "running", "backoff", "stopping"};

const char *child_state_name(enum child_state state)
{
    return state_names[state];
}

static void child_set_state(struct child *child, enum child_state next)
{
    ASSERT(may_follow[child->state][next]);
    child->state = next;
}

void supervisor_init(struct supervisor *supervisor)
{
    *supervisor = (struct supervisor){0};
}

void supervisor_done(struct supervisor *supervisor)
{
    for (size_t i = 0; i < supervisor->count; i++) {
        struct child *child = &supervisor->children[i];
        ASSERT(child->state == CHILD_STOPPED);
        for (size_t a = 0; a < child->args_count; a++)
            mem_free(child->args[a]);
    }
    supervisor->count = 0;
}

struct child *supervisor_add(struct supervisor *supervisor, const char *name, const char *path)
{
    ASSERT(supervisor->count < SUPERVISOR_CHILDREN_MAX);
    struct child *child = &supervisor->children[supervisor->count++];
    (void)snprintf(child->name, sizeof(child->name), "%s", name);
    child->pidfd = -1;
    child->backoff_ms = BACKOFF_FIRST_MS;
    child_add_arg(child, path);
    return child;
}

void child_add_arg(struct child *child, const char *arg)
{
    ASSERT(child->args_count < SUPERVISOR_ARGS_MAX);
    child->args[child->args_count++] = mem_strdup(arg);
}

int supervisor_start(struct supervisor *supervisor, struct child *child, int keep_fd,
                     struct errmsg *err)
{
    ASSERT(child >= supervisor->children && child < supervisor->children + SUPERVISOR_CHILDREN_MAX);
    pid_t pid = process_spawn(child->args, &keep_fd, keep_fd >= 0 ? 1 : 0, -1, -1, SIGTERM, err);
    if (pid < 0)
        return pid;
    int pidfd = process_pidfd(pid);
    if (pidfd < 0) {
        (void)kill(pid, SIGKILL);
        (void)waitpid(pid, NULL, 0);
        return errmsg_set(err, pidfd, "watch '%s': %s", child->name, strerror(-pidfd));
    }
    child->pid = pid;
    child->pidfd = pidfd;
    child->started_ms = clock_ms();
    child_set_state(child, CHILD_RUNNING);
    return 0;
}

/* The kernel says it is dead: collect it, and decide what follows. */
static void reap(struct supervisor *supervisor, struct child *child)
{
    uint64_t now = clock_ms();
    bool asked = child->state == CHILD_STOPPING;

    if (waitpid(child->pid, &child->exit_status, WNOHANG) != child->pid)
        return;
    (void)close(child->pidfd);
    child->pidfd = -1;
    child->pid = 0;
    if (asked) {
        child_set_state(child, CHILD_STOPPED);
        return;
    }
    if (now - child->started_ms >= HEALTHY_MS)
        child->backoff_ms = BACKOFF_FIRST_MS;
    child->deaths++;
    child->retry_ms = now + child->backoff_ms;
    child->backoff_ms =
        child->backoff_ms * 2 > BACKOFF_MAX_MS ? BACKOFF_MAX_MS : child->backoff_ms * 2;
    child_set_state(child, CHILD_BACKOFF);
    if (supervisor->on_death)
        supervisor->on_death(supervisor->user, child);
}

static void retry(struct supervisor *supervisor, struct child *child)
{
    struct errmsg err;
    if (supervisor_start(supervisor, child, -1, &err) == 0)
        return;
    fprintf(stderr, "refrain: %s does not start: %s\n", child->name, err.text);
    child->retry_ms = clock_ms() + BACKOFF_MAX_MS;
}

/* Milliseconds until the first retry is due, at most timeout_ms; -1: for ever. */
static int wait_ms(const struct supervisor *supervisor, int timeout_ms, uint64_t now)
{
    for (size_t i = 0; i < supervisor->count; i++) {
        const struct child *child = &supervisor->children[i];
        if (child->state != CHILD_BACKOFF)
            continue;
        int due = child->retry_ms > now ? (int)(child->retry_ms - now) : 0;
        if (timeout_ms < 0 || due < timeout_ms)
            timeout_ms = due;
    }
    return timeout_ms;
}

bool supervisor_wait(struct supervisor *supervisor, int extra_fd, int timeout_ms)
{
    struct pollfd fds[SUPERVISOR_CHILDREN_MAX + 1];
    size_t count = 0;

    for (size_t i = 0; i < supervisor->count; i++)
        fds[count++] = (struct pollfd){supervisor->children[i].pidfd, POLLIN, 0};
    fds[count++] = (struct pollfd){extra_fd, POLLIN, 0}; /* negative fds are skipped */
    int ready = poll(fds, (nfds_t)count, wait_ms(supervisor, timeout_ms, clock_ms()));
    uint64_t now = clock_ms();
    for (size_t i = 0; i < supervisor->count; i++) {
        struct child *child = &supervisor->children[i];
        if (ready > 0 && fds[i].revents)
            reap(supervisor, child);
        if (child->state == CHILD_BACKOFF && now >= child->retry_ms)
            retry(supervisor, child);
    }
    return ready > 0 && fds[count - 1].revents;
}

void supervisor_stop(struct child *child)
{
    if (child->state == CHILD_RUNNING) {
        child_set_state(child, CHILD_STOPPING);
        (void)kill(child->pid, SIGTERM);
    } else if (child->state == CHILD_BACKOFF) {
        child_set_state(child, CHILD_STOPPED);
    }
}

void supervisor_kill(struct child *child)
{
    if (child->state == CHILD_STOPPING)
        (void)kill(child->pid, SIGKILL);
}

void child_describe_death(const struct child *child, char *ret_text, size_t text_max)
{
    if (WIFEXITED(child->exit_status))
        (void)snprintf(ret_text, text_max, "exit code %d", WEXITSTATUS(child->exit_status));
    else
        (void)snprintf(ret_text, text_max, "signal %d (%s)", WTERMSIG(child->exit_status),
                       strsignal(WTERMSIG(child->exit_status)));
}
