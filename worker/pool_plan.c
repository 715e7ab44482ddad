/* pool_plan.c - bytes -> blocks -> context length.
 *
 *   blocks  = kv_bytes / block_bytes, but not more than POOL_CONTEXTS_MIN or --max-num-seqs full
 *             contexts: more than all sequences at full length, plus as much cache, is never used
 *   context = the model's or --max-model-len; a default that does not fit is cut
 *
 * Why not cap at max-num-seqs contexts alone: with --max-num-seqs 1 the cache of other chats would
 * have no place, and that cache is the point. */
#include "worker/pool_plan.h"

#include "proto/base/assert.h"
#include "proto/block_hash.h"

#define POOL_BLOCKS_MAX (1u << 30)
#define POOL_CONTEXTS_MIN 64u

uint64_t pool_plan_blocks_for(uint64_t tokens)
{
    uint64_t own = (tokens + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
    return own + own / 64 + 2; /* 1/64 of own >= 1 % of own + watermark + 1 */
}

uint64_t pool_plan_tokens_in(uint64_t blocks)
{
    ASSERT(blocks > 2);
    uint64_t own = (blocks - 2) * 64 / 65;
    return own * BLOCK_TOKENS;
}

struct pool_plan pool_plan_make(const struct pool_request *request)
{
    struct pool_plan plan = {0};
    uint64_t blocks = request->kv_bytes / request->block_bytes;
    uint64_t context = request->context_asked > 0 ? request->context_asked : request->context_model;
    uint64_t sequences =
        request->sequences_max > POOL_CONTEXTS_MIN ? request->sequences_max : POOL_CONTEXTS_MIN;

    ASSERT(context <= request->context_model);
    if (pool_plan_blocks_for(context) > blocks) {
        ASSERT(request->context_asked == 0);
        context = pool_plan_tokens_in(blocks);
        plan.context_cut = true;
    }
    if (blocks > pool_plan_blocks_for(context) * sequences) {
        blocks = pool_plan_blocks_for(context) * sequences;
        plan.blocks_cut = true;
    }
    plan.blocks = (uint32_t)(blocks < POOL_BLOCKS_MAX ? blocks : POOL_BLOCKS_MAX);
    plan.context_tokens = (uint32_t)context;
    plan.sequences_at_full_context = (uint32_t)(plan.blocks / pool_plan_blocks_for(context));
    return plan;
}

double pool_plan_concurrency(const struct pool_plan *plan)
{
    return (double)plan->blocks * BLOCK_TOKENS / plan->context_tokens;
}
