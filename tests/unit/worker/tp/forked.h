/* forked.h - a body run by several processes that share a group: rank 0 is the test itself. */
#ifndef REFRAIN_TESTS_FORKED_H
#define REFRAIN_TESTS_FORKED_H

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "worker/tp/group.h"
#include "worker/tp/shard.h"

/* What a follower does; its result is the exit code of its process (0..255). */
typedef int (*rank_fn)(struct group *group, void *user);

struct forked {
    struct group *group; /* rank 0's view */
    uint32_t count;
    pid_t pids[TP_RANKS_MAX];
};

static inline void forked_start(struct forked *ranks, const struct group_limits *limits, rank_fn fn,
                                void *user)
{
    int fd = -1;
    pid_t parent = getpid();
    if (group_create(limits, &ranks->group, &fd, NULL) < 0)
        abort();
    ranks->count = limits->ranks;
    for (uint32_t rank = 1; rank < limits->ranks; rank++) {
        pid_t pid = fork();
        if (pid == 0) {
            struct group *group = NULL;
            (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != parent || group_join(fd, rank, &group, NULL) < 0)
                _exit(200);
            _exit(fn(group, user) & 255);
        }
        if (pid < 0)
            abort();
        ranks->pids[rank] = pid;
    }
    (void)close(fd);
}

/* The follower's exit code; 128 + signal when one ended it. */
static inline int forked_wait(struct forked *ranks, uint32_t rank)
{
    int status = 0;
    if (waitpid(ranks->pids[rank], &status, 0) < 0)
        abort();
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

#endif
