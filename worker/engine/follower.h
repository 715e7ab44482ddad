/* follower.h - the loop of ranks 1..n-1: do what rank 0 publishes, nothing else.
 *
 * No scheduler, no pool, no decisions: step descriptors carry tokens, positions and block tables.
 * Thread: one; follower_steps() from any. */
#ifndef REFRAIN_WORKER_ENGINE_FOLLOWER_H
#define REFRAIN_WORKER_ENGINE_FOLLOWER_H

#include <stdint.h>

#include "worker/engine/rank_model.h"

struct follower {
    struct rank_model *model; /* loaded */
    struct group *group;
    _Atomic uint64_t steps;
};

/* Until rank 0 says stop: 0. Else why the group has ended: -ECANCELED, -ETIMEDOUT, -EPROTO. */
int follower_run(struct follower *follower, struct errmsg *err);
uint64_t follower_steps(const struct follower *follower);

#endif
