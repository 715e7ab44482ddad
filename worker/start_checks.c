/* start_checks.c - one row per constraint, in the order in which a reader would ask.
 *
 * A row refuses (negative errno), or changes the plan and leaves a note. The pool is planned in
 * between: what comes before is about flags and model, what comes after about the machine.
 * Not here: what one value of a flag may be (settings.c), and what a model must be (load/). */
#include "worker/start_checks.h"

#include <errno.h>

#include "proto/base/assert.h"
#include "proto/block_hash.h"

#define POOL_BLOCKS_MIN 4u
#define GIB ((double)(1u << 30))

static struct errmsg *note(struct start_plan *plan)
{
    ASSERT(plan->notes_count < START_NOTES_MAX);
    return &plan->notes[plan->notes_count++];
}

/* Each running sequence has a row in each step. */
static int check_batch(const struct start_facts *facts, struct start_plan *plan, struct errmsg *err)
{
    (void)plan;
    if (facts->step_tokens_max >= facts->pool.sequences_max)
        return 0;
    return errmsg_set(err, -EINVAL,
                      "max_num_batched_tokens (%u) must be greater than or equal to max_num_seqs "
                      "(%u): raise --max-num-batched-tokens or lower --max-num-seqs",
                      facts->step_tokens_max, facts->pool.sequences_max);
}

/* Prompts are cut on block borders: the rest of a budget would never be used by them. */
static int round_chunk(const struct start_facts *facts, struct start_plan *plan, struct errmsg *err)
{
    uint32_t rest = facts->step_tokens_max % BLOCK_TOKENS;
    (void)err;
    plan->step_tokens_max = facts->step_tokens_max - rest;
    if (rest == 0)
        return 0;
    if (plan->step_tokens_max < facts->pool.sequences_max) { /* decodes need all of it */
        plan->step_tokens_max = facts->step_tokens_max;
        return 0;
    }
    (void)errmsg_set(note(plan), -ERANGE,
                     "max_num_batched_tokens (%u) is not dividable by block size: chunk_size (%u) "
                     "%% block_size (%u) = %u; %u are used",
                     facts->step_tokens_max, facts->step_tokens_max, BLOCK_TOKENS, rest,
                     plan->step_tokens_max);
    return 0;
}

static int check_model_context(const struct start_facts *facts, struct start_plan *plan,
                               struct errmsg *err)
{
    const struct pool_request *pool = &facts->pool;
    (void)plan;
    if (pool->context_asked <= pool->context_model)
        return 0;
    return errmsg_set(err, -EINVAL,
                      "--max-model-len: max_model_len (%u) is greater than the derived "
                      "max_model_len (%u), for which the model was made",
                      pool->context_asked, pool->context_model);
}

/* The same two of a model whose layers slide, all or some. */
static int check_window_blocks(const struct pool_request *pool, struct errmsg *err)
{
    const uint32_t least = POOL_BLOCKS_MIN * BLOCK_TOKENS;
    if (pool_plan_tokens_within(pool) >= least)
        return 0;
    return errmsg_set(err, -ENOMEM,
                      "No available memory for the cache blocks: --kv-cache-memory of %llu bytes "
                      "is less than blocks of %zu bytes, and of %zu bytes for a window of %u "
                      "tokens, need: %llu",
                      (unsigned long long)pool->kv_bytes, pool->block_bytes,
                      pool->window_block_bytes, pool->window_tokens,
                      (unsigned long long)pool_plan_bytes_for(pool, least));
}

static int check_window_context(const struct pool_request *pool, struct errmsg *err)
{
    uint64_t needed = pool_plan_bytes_for(pool, pool->context_asked);
    uint64_t fits = pool_plan_tokens_within(pool);
    if (pool->context_asked == 0 || needed <= pool->kv_bytes)
        return 0;
    return errmsg_set(err, -EINVAL,
                      "--max-model-len: max seq len (%u) is larger than the KV cache of %llu bytes "
                      "holds (%llu tokens): lower it to %llu, or give --kv-cache-memory %llu bytes",
                      pool->context_asked, (unsigned long long)pool->kv_bytes,
                      (unsigned long long)fits, (unsigned long long)fits,
                      (unsigned long long)needed);
}

static int check_pool_blocks(const struct start_facts *facts, struct start_plan *plan,
                             struct errmsg *err)
{
    const struct pool_request *pool = &facts->pool;
    (void)plan;
    if (pool->window_block_bytes > 0)
        return check_window_blocks(pool, err);
    uint64_t blocks = pool->kv_bytes / pool->block_bytes;
    if (blocks >= POOL_BLOCKS_MIN)
        return 0;
    return errmsg_set(err, -ENOMEM,
                      "No available memory for the cache blocks: --kv-cache-memory of %llu bytes "
                      "holds %llu blocks of %zu bytes, at least %u are needed: give it %llu bytes",
                      (unsigned long long)pool->kv_bytes, (unsigned long long)blocks,
                      pool->block_bytes, POOL_BLOCKS_MIN,
                      (unsigned long long)POOL_BLOCKS_MIN * pool->block_bytes);
}

/* With the scheduler's watermark of 1 % and a spare block. */
static int check_pool_context(const struct start_facts *facts, struct start_plan *plan,
                              struct errmsg *err)
{
    const struct pool_request *pool = &facts->pool;
    (void)plan;
    if (pool->window_block_bytes > 0)
        return check_window_context(pool, err);
    uint64_t blocks = pool->kv_bytes / pool->block_bytes;
    uint64_t needed = pool_plan_blocks_for(pool->context_asked);
    if (pool->context_asked == 0 || needed <= blocks)
        return 0;
    return errmsg_set(err, -EINVAL,
                      "--max-model-len: max seq len (%u) is larger than the KV cache (%llu tokens "
                      "in %llu blocks): it needs %llu blocks; lower it to %llu, or give "
                      "--kv-cache-memory %llu bytes",
                      pool->context_asked, (unsigned long long)blocks * BLOCK_TOKENS,
                      (unsigned long long)blocks, (unsigned long long)needed,
                      (unsigned long long)pool_plan_tokens_in(blocks),
                      (unsigned long long)needed * pool->block_bytes);
}

static int plan_pool(const struct start_facts *facts, struct start_plan *plan, struct errmsg *err)
{
    (void)err;
    plan->pool = pool_plan_make(&facts->pool);
    if (plan->pool.context_cut)
        (void)errmsg_set(note(plan), -ERANGE,
                         "max_model_len is cut from the model's %u to %u tokens, which fit into "
                         "--kv-cache-memory of %llu bytes",
                         facts->pool.context_model, plan->pool.context_tokens,
                         (unsigned long long)facts->pool.kv_bytes);
    return 0;
}

static int check_memory(const struct start_facts *facts, struct start_plan *plan,
                        struct errmsg *err)
{
    uint64_t pool = ((uint64_t)plan->pool.blocks * facts->pool.block_bytes +
                     (uint64_t)plan->pool.window_blocks * facts->pool.window_block_bytes) *
                    facts->ranks;
    uint64_t tier = facts->tier_bytes * facts->ranks;
    uint64_t other = facts->weights_bytes + facts->logits_bytes + facts->adapter_bytes;

    plan->bytes = pool + tier + other;
    if (facts->memory_bytes > 0 && plan->bytes > facts->memory_bytes)
        return errmsg_set(err, -ENOMEM,
                          "Too large KV cache: %.2f GiB of it, %.2f GiB of tiers and %.2f GiB "
                          "of weights and work space, out of %.2f GiB of memory; lower "
                          "--kv-cache-memory, --host-tier-memory or --disk-tier-buffer",
                          (double)pool / GIB, (double)tier / GIB, (double)other / GIB,
                          (double)facts->memory_bytes / GIB);
    if (facts->available_bytes > 0 && plan->bytes > facts->available_bytes)
        (void)errmsg_set(note(plan), -ERANGE,
                         "Possibly too large KV cache: this group may come to %.2f GiB, and %.2f "
                         "GiB of %.2f GiB are available now",
                         (double)plan->bytes / GIB, (double)facts->available_bytes / GIB,
                         (double)facts->memory_bytes / GIB);
    return 0;
}

static int (*const checks[])(const struct start_facts *, struct start_plan *, struct errmsg *) = {
    check_batch,        round_chunk, check_model_context, check_pool_blocks,
    check_pool_context, plan_pool,   check_memory,
};

int start_checks_run(const struct start_facts *facts, struct start_plan *ret_plan,
                     struct errmsg *err)
{
    struct start_plan plan = {.notes_count = 0};
    int r = 0;

    for (size_t i = 0; r == 0 && i < sizeof(checks) / sizeof(checks[0]); i++)
        r = checks[i](facts, &plan, err);
    if (r == 0)
        *ret_plan = plan;
    return r;
}
