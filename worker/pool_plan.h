/* pool_plan.h - how many KV blocks a group has and how long a sequence may be. Pure arithmetic. */
#ifndef REFRAIN_WORKER_POOL_PLAN_H
#define REFRAIN_WORKER_POOL_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/errmsg.h"

struct pool_request {
    uint64_t kv_bytes;      /* --kv-cache-memory, of one rank */
    size_t block_bytes;     /* of the rank that holds the most KV heads; 0: every layer slides */
    uint32_t context_asked; /* --max-model-len, 0: the model's */
    uint32_t context_model;
    uint32_t sequences_max;
    /* Of the layers that slide; all 0: none does. */
    size_t window_block_bytes;
    uint32_t window_tokens, step_tokens_max;
};

struct pool_plan {
    uint32_t blocks;           /* where every layer slides: books only */
    uint32_t window_blocks;    /* 0: no layer slides */
    uint32_t sequence_windows; /* that a sequence of context_tokens needs */
    uint32_t context_tokens;
    uint32_t sequences_at_full_context;
    bool context_cut; /* the default did not fit: context_tokens is less than the model's */
    bool blocks_cut;  /* fewer than kv_bytes would hold: more could never be used */
};

/* Blocks that a lone sequence of `tokens` needs in the pool: its own, 1 % watermark, one spare. */
uint64_t pool_plan_blocks_for(uint64_t tokens);
/* The longest sequence whose blocks are within `blocks`, of which there are at least 3. */
uint64_t pool_plan_tokens_in(uint64_t blocks);
/* The same in bytes of blocks and window blocks, for a request with window blocks. */
uint64_t pool_plan_bytes_for(const struct pool_request *request, uint64_t tokens);
uint64_t pool_plan_tokens_within(const struct pool_request *request);
/* One sequence of context_tokens always fits. Of a request that start_checks.h lets pass: some
 * blocks fit, and context_asked is neither over the model's nor over what they hold. */
struct pool_plan pool_plan_make(const struct pool_request *request);
/* How many sequences of context_tokens the blocks hold: vLLM's "Maximum concurrency". */
double pool_plan_concurrency(const struct pool_plan *plan);

#endif
