/* replay.c - see the header. Chats go through the scheduler, with the trace's answers in place of
 * sampled tokens; block traces go to the pool block by block, as their published results do. */
#include "tests/sim/replay.h"

#include <stdio.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "tests/sim/belady.h"
#include "worker/sched/scheduler.h"

#define TRACE_BLOCK_TOKENS 512u

static const struct block_hash root = {.low = 1, .high = 2};

static void note_peak(const struct block_pool *pool, struct sim_result *result)
{
    struct block_counts counts;

    block_pool_counts(pool, &counts);
    if (counts.total - counts.empty > result->blocks_peak)
        result->blocks_peak = counts.total - counts.empty;
}

/* --- block traces --- */

static void replay_blocks(struct block_pool *pool, const struct sim_request *request,
                          uint32_t *table, struct block_hash *hashes, struct sim_result *result)
{
    uint32_t count = (uint32_t)block_hash_chain(root, request->ids, request->prompt_tokens, hashes);
    uint32_t hits = block_pool_match_root(pool, root, hashes, request->ids, count, table);
    uint64_t hit_tokens = (uint64_t)hits * TRACE_BLOCK_TOKENS;

    result->total_blocks += count;
    result->hit_blocks += hits;
    result->hit_tokens += hit_tokens < request->trace_tokens ? hit_tokens : request->trace_tokens;
    result->prompt_tokens += request->trace_tokens;
    const struct block_admission admission = {.root = root,
                                              .hashes = hashes,
                                              .ids = request->ids,
                                              .found = table,
                                              .hashes_count = count,
                                              .tokens = request->prompt_tokens,
                                              .found_count = hits};
    block_pool_note_admission(pool, &admission);
    block_pool_ref_all(pool, table, hits);
    int r = block_pool_take(pool, count - hits, table + hits);
    ASSERT(r == 0);
    for (uint32_t i = hits; i < count; i++)
        block_pool_seal(pool, table[i], i == 0 ? root : hashes[i - 1], hashes[i],
                        request->ids + (size_t)i * BLOCK_TOKENS, i == 0, BLOCK_TOKENS);
    note_peak(pool, result);
    block_pool_unref(pool, table, count);
}

/* --- chats --- */

static void replay_chat(struct scheduler *scheduler, const struct sim_request *request,
                        uint32_t index)
{
    struct sequence_params params = {
        .prompt = request->ids,
        .prompt_tokens = request->prompt_tokens,
        .sampling = {.top_p = 1, .repetition_penalty = 1},
        .tokens_max = request->answer_tokens,
        .root = root,
    };
    struct sequence *seq = NULL;
    struct commit_item item;
    struct errmsg err;

    (void)snprintf(params.request_id, sizeof(params.request_id), "r%u", index);
    int r = scheduler_add(scheduler, &params, &seq, &err);
    ASSERT(r == 0);
    for (;;) {
        struct step_plan plan;
        scheduler_plan(scheduler, 1, &plan);
        ASSERT(seq->ids_count < request->prompt_tokens + request->answer_tokens);
        const struct sample_result result = {.id = request->ids[seq->ids_count]};
        if (scheduler_commit(scheduler, &plan, &result, 1, &item) == 1 &&
            item.finish != SEQ_FINISH_NONE)
            break;
    }
    scheduler_release(scheduler, seq);
}

static void replay_chats(const struct sim_trace *trace, struct block_pool *pool,
                         struct sim_result *result)
{
    const struct scheduler_settings settings = {
        .sequences_max = 1,
        .step_tokens_max = 2048,
        .context_tokens_max = 1u << 20,
        .waiting_max = 1,
        .vocab_size = UINT32_MAX,
    };
    struct scheduler *scheduler = NULL;
    struct scheduler_counts counts;

    int r = scheduler_new(&settings, pool, &scheduler, NULL);
    ASSERT(r == 0);
    for (uint32_t i = 0; i < trace->count; i++) {
        belady_set_now(i);
        replay_chat(scheduler, &trace->requests[i], i);
        note_peak(pool, result);
    }
    scheduler_counts(scheduler, &counts);
    result->prompt_tokens = counts.prompt_tokens_total;
    result->hit_tokens = counts.cached_tokens_total;
    scheduler_free(scheduler);
}

static uint32_t longest_blocks(const struct sim_trace *trace)
{
    uint32_t longest = 0;

    for (uint32_t i = 0; i < trace->count; i++) {
        const struct sim_request *request = &trace->requests[i];
        uint32_t tokens = request->prompt_tokens + request->answer_tokens;
        longest = tokens > longest ? tokens : longest;
    }
    return longest / BLOCK_TOKENS + 1;
}

void sim_replay(const struct sim_trace *trace, const struct eviction_policy *policy,
                uint32_t blocks_total, struct sim_result *ret_result)
{
    const struct block_pool_settings settings = {
        .blocks_total = blocks_total, .prefix_caching = true, .eviction = policy};
    struct sim_result result = {.prompt_tokens = 0};
    struct block_pool *pool = NULL;

    int r = block_pool_new(&settings, &pool, NULL);
    ASSERT(r == 0);
    if (!trace->blocks_only) {
        replay_chats(trace, pool, &result);
    } else {
        uint32_t longest = longest_blocks(trace);
        uint32_t *table = mem_calloc(longest, sizeof(*table));
        struct block_hash *hashes = mem_calloc(longest, sizeof(*hashes));
        for (uint32_t i = 0; i < trace->count; i++) {
            belady_set_now(i);
            replay_blocks(pool, &trace->requests[i], table, hashes, &result);
        }
        mem_free(hashes);
        mem_free(table);
    }
    result.computed_tokens = result.prompt_tokens - result.hit_tokens;
    block_pool_counts(pool, &result.counts);
    block_pool_check(pool);
    block_pool_free(pool);
    *ret_result = result;
}

uint32_t sim_blocks_enough(const struct sim_trace *trace)
{
    uint32_t blocks = 0;

    for (uint32_t i = 0; i < trace->count; i++)
        blocks +=
            (trace->requests[i].prompt_tokens + trace->requests[i].answer_tokens) / BLOCK_TOKENS +
            2;
    return blocks;
}
