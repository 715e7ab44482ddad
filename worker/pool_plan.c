/* pool_plan.c - bytes -> blocks -> context length.
 *
 *   blocks  = kv_bytes / block_bytes, but not more than POOL_CONTEXTS_MIN or --max-num-seqs full
 *             contexts: more than all sequences at full length, plus as much cache, is never used
 *   context = the model's or --max-model-len; a default that does not fit is cut, a wish refused
 *
 * Why not cap at max-num-seqs contexts alone: with --max-num-seqs 1 the cache of other chats would
 * have no place, and that cache is the point. */
#include "worker/pool_plan.h"

#include <errno.h>

#include "proto/block_hash.h"

#define POOL_BLOCKS_MIN 4u
#define POOL_BLOCKS_MAX (1u << 30)
#define POOL_CONTEXTS_MIN 64u

/* Blocks that a lone sequence of `tokens` needs in the pool: its own, 1 % watermark, one spare. */
static uint64_t blocks_for(uint64_t tokens)
{
    uint64_t own = (tokens + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
    return own + own / 64 + 2; /* 1/64 of own >= 1 % of own + watermark + 1 */
}

/* The longest sequence whose blocks_for() is within `blocks`. */
static uint64_t tokens_in(uint64_t blocks)
{
    uint64_t own = (blocks - 2) * 64 / 65;
    return own * BLOCK_TOKENS;
}

int pool_plan_make(const struct pool_request *request, struct pool_plan *ret_plan,
                   struct errmsg *err)
{
    struct pool_plan plan = {0};
    uint64_t blocks = request->kv_bytes / request->block_bytes;
    uint64_t context = request->context_asked > 0 ? request->context_asked : request->context_model;
    uint64_t sequences =
        request->sequences_max > POOL_CONTEXTS_MIN ? request->sequences_max : POOL_CONTEXTS_MIN;

    uint64_t bytes_needed = blocks_for(context) * request->block_bytes;

    if (context > request->context_model)
        return errmsg_set(err, -EINVAL, "--max-model-len %u: the model was made for %u tokens",
                          request->context_asked, request->context_model);
    if (blocks < POOL_BLOCKS_MIN)
        return errmsg_set(err, -ENOMEM,
                          "--kv-cache-memory of %llu bytes holds %llu blocks of %zu bytes; at "
                          "least %u are needed",
                          (unsigned long long)request->kv_bytes, (unsigned long long)blocks,
                          request->block_bytes, POOL_BLOCKS_MIN);
    if (blocks_for(context) > blocks && request->context_asked > 0)
        return errmsg_set(err, -EINVAL,
                          "--max-model-len %u needs %llu KV blocks, --kv-cache-memory of %llu "
                          "bytes holds %llu: at most %llu tokens fit, or give %llu bytes",
                          request->context_asked, (unsigned long long)blocks_for(context),
                          (unsigned long long)request->kv_bytes, (unsigned long long)blocks,
                          (unsigned long long)tokens_in(blocks), (unsigned long long)bytes_needed);
    if (blocks_for(context) > blocks) {
        context = tokens_in(blocks);
        plan.context_cut = true;
    }
    if (blocks > blocks_for(context) * sequences) {
        blocks = blocks_for(context) * sequences;
        plan.blocks_cut = true;
    }
    plan.blocks = (uint32_t)(blocks < POOL_BLOCKS_MAX ? blocks : POOL_BLOCKS_MAX);
    plan.context_tokens = (uint32_t)context;
    plan.sequences_at_full_context = (uint32_t)(plan.blocks / blocks_for(context));
    *ret_plan = plan;
    return 0;
}
