/* start_checks.h - do the settings fit together, the model and this machine? All of it is known
 * before anything large is allocated, so a worker refuses in its first second or not at all.
 *
 * Pure arithmetic over facts; the table of checks is in start_checks.c, and in words in README.md.
 * Where vLLM has the same check its key words are kept, because scripts look for them. */
#ifndef REFRAIN_WORKER_START_CHECKS_H
#define REFRAIN_WORKER_START_CHECKS_H

#include "worker/pool_plan.h"

#define START_NOTES_MAX 4u

struct start_facts {
    struct pool_request pool;
    uint32_t step_tokens_max; /* --max-num-batched-tokens */
    uint32_t ranks;
    uint64_t tier_bytes; /* memory of tiers, of one rank */
    /* Of the group: */
    uint64_t weights_bytes; /* as the files store them: what is packed is near it */
    uint64_t logits_bytes;  /* with the scratch of what looks at them */
    uint64_t adapter_bytes;
    uint64_t memory_bytes;    /* this machine's, or the cgroup's limit; 0: not known */
    uint64_t available_bytes; /* of it, now; 0: not known */
};

struct start_plan {
    struct pool_plan pool;
    uint32_t step_tokens_max;             /* whole blocks */
    uint64_t bytes;                       /* what the group may come to: the sum of all of these */
    struct errmsg notes[START_NOTES_MAX]; /* of what was changed, or looks wrong: to be logged */
    uint32_t notes_count;
};

/* 0; -EINVAL: settings that cannot hold together; -ENOMEM: more than there is. */
int start_checks_run(const struct start_facts *facts, struct start_plan *ret_plan,
                     struct errmsg *err);

#endif
