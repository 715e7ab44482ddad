/* ranks.h - rank 0's view of the processes that it starts for ranks 1..n-1.
 *
 * A rank is this program again, with the flags of ranks_start() behind `--rank R --group-fd FD
 * --kv-blocks N --window-blocks N`. It is killed by the kernel when the starting thread ends,
 * whatever way it ends. Thread: the one that calls ranks_start(), which must live as long as the
 * process. */
#ifndef REFRAIN_WORKER_TP_RANKS_H
#define REFRAIN_WORKER_TP_RANKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/base/errmsg.h"

struct ranks;

/* What a rank process is told before the usual flags. */
struct rank_arguments {
    uint32_t rank;
    int group_fd;
    uint32_t kv_blocks, window_blocks; /* one of them may be 0 */
};

struct ranks_settings {
    uint32_t ranks;
    int group_fd; /* inherited by all */
    uint32_t kv_blocks, window_blocks;
    char *const *flags; /* NULL-terminated, without argv[0] */
};

/* Start ranks 1..ranks-1. On failure none is left. */
int ranks_start(const struct ranks_settings *settings, struct ranks **ret_ranks,
                struct errmsg *err);
/* Kills and reaps what is left. NULL is fine. */
void ranks_free(struct ranks *ranks);

pid_t ranks_pid(const struct ranks *ranks, uint32_t rank);
/* For poll(POLLIN): readable once the rank has ended; -1 when it was reaped. */
int ranks_fd(const struct ranks *ranks, uint32_t rank);
/* Reap one rank that has ended: true, its number and wait status; false: none has. */
bool ranks_reap(struct ranks *ranks, uint32_t *ret_rank, int *ret_status);
uint32_t ranks_running(const struct ranks *ranks);
/* Wait until all have ended by themselves. 0; -ETIMEDOUT: some had not and were killed; -EIO: one
 * ended with another status than 0. */
int ranks_wait(struct ranks *ranks, int timeout_ms);
/* SIGKILL to all, and reap. */
void ranks_kill(struct ranks *ranks);

/* In the rank process: take the arguments off argv (argv[0] stays). 0: this is a rank; -ENOENT:
 * this is no rank process, nothing was changed; -EINVAL: bad numbers. */
int rank_arguments_take(int *argc, char ***argv, struct rank_arguments *ret_arguments);

#endif
