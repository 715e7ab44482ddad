/* pool_plan.h - how many KV blocks a group has and how long a sequence may be. Pure arithmetic. */
#ifndef REFRAIN_WORKER_POOL_PLAN_H
#define REFRAIN_WORKER_POOL_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/errmsg.h"

struct pool_request {
    uint64_t kv_bytes;      /* --kv-cache-memory, of one rank */
    size_t block_bytes;     /* of the rank that holds the most KV heads */
    uint32_t context_asked; /* --max-model-len, 0: the model's */
    uint32_t context_model;
    uint32_t sequences_max;
};

struct pool_plan {
    uint32_t blocks;
    uint32_t context_tokens;
    uint32_t sequences_at_full_context;
    bool context_cut; /* the default did not fit: context_tokens is less than the model's */
    bool blocks_cut;  /* fewer than kv_bytes would hold: more could never be used */
};

/* One sequence of context_tokens always fits, with the scheduler's watermark and a spare block.
 * -EINVAL: --max-model-len over the model's, or it does not fit; -ENOMEM: not even a small one. */
int pool_plan_make(const struct pool_request *request, struct pool_plan *ret_plan,
                   struct errmsg *err);

#endif
