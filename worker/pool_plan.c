/* pool_plan.c - bytes -> blocks -> context length.
 *
 *   blocks  = kv_bytes / block_bytes, but not more than POOL_CONTEXTS_MIN or --max-num-seqs full
 *             contexts: more than all sequences at full length, plus as much cache, is never used
 *   context = the model's or --max-model-len; a default that does not fit is cut
 *
 * Layers that slide have blocks of their own (worker/kv/window_blocks.h), and the memory is split
 * between both kinds for good. Short conversations need as many of one as of the other, long ones
 * few window blocks. The split is where conversations within a window and those of the full context
 * leave the same share idle; less than half. Where every layer slides there is nothing to split,
 * and blocks are books, enough of them for any mix.
 *
 * Why not cap at max-num-seqs contexts alone: with --max-num-seqs 1 the cache of other chats would
 * have no place, and that cache is the point. */
#include "worker/pool_plan.h"

#include "proto/base/assert.h"
#include "proto/block_hash.h"
#include "worker/kv/window_blocks.h"

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

/* --- layers that slide ----------------------------------------------------------------------- */

/* Window blocks that a lone sequence of `tokens` needs, by the same rule. */
static uint64_t windows_for(const struct pool_request *request, uint64_t tokens)
{
    uint64_t step = (request->step_tokens_max + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
    uint64_t own = window_blocks_of(request->window_tokens) + step;
    uint64_t all = (tokens + BLOCK_TOKENS - 1) / BLOCK_TOKENS + 1;
    own = own < all ? own : all;
    return own + own / 64 + 2;
}

uint64_t pool_plan_bytes_for(const struct pool_request *request, uint64_t tokens)
{
    return pool_plan_blocks_for(tokens) * request->block_bytes +
           windows_for(request, tokens) * request->window_block_bytes;
}

uint64_t pool_plan_tokens_within(const struct pool_request *request)
{
    uint64_t fits = 0, over = request->context_model / BLOCK_TOKENS + 2; /* in blocks */
    while (over - fits > 1) {
        uint64_t middle = (fits + over) / 2;
        if (pool_plan_bytes_for(request, middle * BLOCK_TOKENS) <= request->kv_bytes)
            fits = middle;
        else
            over = middle;
    }
    return fits * BLOCK_TOKENS;
}

/* Share of the memory that blocks of the layers that see everything get: x of it idle where all
 * conversations are short, x where all are of the full context. */
static double full_share(const struct pool_request *request, uint64_t context)
{
    double full = (double)request->block_bytes, window = (double)request->window_block_bytes;
    double shorts = (full + window) / window;
    double longs = 1 + (double)windows_for(request, context) * window /
                           ((double)pool_plan_blocks_for(context) * full);
    return shorts / (shorts + longs);
}

static uint64_t between(uint64_t value, uint64_t least, uint64_t most)
{
    value = value < most ? value : most;
    return value > least ? value : least;
}

/* The context fits. */
static void split(const struct pool_request *request, uint64_t context, uint64_t *ret_blocks,
                  uint64_t *ret_windows)
{
    size_t full = request->block_bytes, window = request->window_block_bytes;
    uint64_t least_blocks = pool_plan_blocks_for(context),
             least_windows = windows_for(request, context);

    if (full == 0) {
        *ret_windows = request->kv_bytes / window;
        *ret_blocks = (*ret_windows / window_blocks_of(request->window_tokens) + 1) * least_blocks;
        return;
    }
    double share = full_share(request, context) * (double)request->kv_bytes;
    *ret_blocks = between((uint64_t)(share / (double)full), least_blocks,
                          (request->kv_bytes - least_windows * window) / full);
    *ret_windows = (request->kv_bytes - *ret_blocks * full) / window;
    if (*ret_windows > *ret_blocks) /* each hangs on a block */
        *ret_blocks = *ret_windows = request->kv_bytes / (full + window);
}

static struct pool_plan plan_windows(const struct pool_request *request, uint64_t sequences,
                                     uint64_t context)
{
    struct pool_plan plan = {0};
    uint64_t blocks, windows;

    if (pool_plan_bytes_for(request, context) > request->kv_bytes) {
        ASSERT(request->context_asked == 0);
        context = pool_plan_tokens_within(request);
        plan.context_cut = true;
    }
    split(request, context, &blocks, &windows);
    uint64_t blocks_max = pool_plan_blocks_for(context) * sequences;
    uint64_t each = windows_for(request, context), windows_max = each * sequences;
    plan.blocks_cut = windows > windows_max || (blocks > blocks_max && request->block_bytes > 0);
    plan.blocks = (uint32_t)between(blocks, 0, between(blocks_max, 0, POOL_BLOCKS_MAX));
    plan.window_blocks = (uint32_t)between(windows, 0, between(windows_max, 0, POOL_BLOCKS_MAX));
    plan.context_tokens = (uint32_t)context;
    plan.sequence_windows = (uint32_t)each;
    plan.sequences_at_full_context = (uint32_t)between(plan.blocks / pool_plan_blocks_for(context),
                                                       0, plan.window_blocks / each);
    return plan;
}

/* --- plan ------------------------------------------------------------------------------------ */

struct pool_plan pool_plan_make(const struct pool_request *request)
{
    struct pool_plan plan = {0};
    uint64_t context = request->context_asked > 0 ? request->context_asked : request->context_model;
    uint64_t sequences =
        request->sequences_max > POOL_CONTEXTS_MIN ? request->sequences_max : POOL_CONTEXTS_MIN;

    ASSERT(context <= request->context_model);
    if (request->window_block_bytes > 0)
        return plan_windows(request, sequences, context);
    uint64_t blocks = request->kv_bytes / request->block_bytes;
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
    double by_blocks = (double)plan->blocks * BLOCK_TOKENS / plan->context_tokens;
    double by_windows =
        plan->window_blocks > 0 ? (double)plan->window_blocks / plan->sequence_windows : by_blocks;
    return by_blocks < by_windows ? by_blocks : by_windows;
}
