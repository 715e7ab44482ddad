/* fake_engine.h - an engine without a model, whose KV is a hash chain.
 *
 *   kv(position) = mix(kv(position - 1) as it lies in the previous slot, id, position)
 *   token        = fold of kv(0..last) as they lie in the slots of the block table
 *
 * So a token depends on every slot that the scheduler and the pool say holds its prefix, as it does
 * in a transformer: a wrong block, a missed copy or a block taken too early changes the output.
 * What a run alone gives is a plain function of the ids (fake_alone). Slots that hold nothing are
 * overwritten after each step. */
#ifndef REFRAIN_TESTS_FAKE_ENGINE_H
#define REFRAIN_TESTS_FAKE_ENGINE_H

#include <cmocka.h>
#include <string.h>

#include "proto/base/mem.h"
#include "worker/sched/scheduler.h"

struct fake_engine {
    struct scheduler *scheduler;
    struct block_pool *pool;
    uint64_t *kv; /* [blocks * BLOCK_TOKENS] */
    uint32_t blocks, vocab_size;
    uint64_t now_ns;
    uint64_t rows_total, steps_total;
    struct sample_result *results;
    struct commit_item *items;
    struct step_plan plan;
};

static inline uint64_t fake_mix(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t x = a ^ (b * 0x9e3779b97f4a7c15u) ^ (c * 0xc2b2ae3d27d4eb4fu);
    x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93u;
    x = (x ^ (x >> 29)) * 0xd6e8feb86659fd93u;
    return x ^ (x >> 32);
}

/* As the engine does it with `banned`: no stop id before tokens_min. */
static inline uint32_t fake_token(uint64_t fold, const struct sequence_params *params,
                                  uint32_t output, uint32_t vocab_size)
{
    uint32_t id = (uint32_t)(fold % vocab_size);
    bool again = output < params->tokens_min;

    while (again) {
        again = false;
        for (uint32_t i = 0; i < params->stop_ids_count; i++) {
            if (params->stop_ids[i] != id)
                continue;
            id = (id + 1) % vocab_size;
            again = true;
        }
    }
    return id;
}

/* The run alone: output to ret_ids (room for tokens_max), its length returned, why it ended. */
static inline uint32_t fake_alone(const struct sequence_params *params, uint32_t ids_max,
                                  uint32_t vocab_size, uint32_t *ret_ids,
                                  enum sequence_finish *ret_finish)
{
    uint64_t kv = params->root.low, fold = 0;
    uint32_t output = 0;

    for (uint32_t position = 0;; position++) {
        uint32_t id = position < params->prompt_tokens ? params->prompt[position]
                                                       : ret_ids[position - params->prompt_tokens];
        kv = fake_mix(kv, id, position);
        fold = fake_mix(fold, kv, 1);
        if (position + 1 < params->prompt_tokens)
            continue;
        id = fake_token(fold, params, output, vocab_size);
        ret_ids[output++] = id;
        for (uint32_t i = 0; i < params->stop_ids_count; i++) {
            if (params->stop_ids[i] != id || output <= params->tokens_min)
                continue;
            *ret_finish = SEQ_FINISH_STOP;
            return output;
        }
        if (output == params->tokens_max || params->prompt_tokens + output == ids_max) {
            *ret_finish = SEQ_FINISH_LENGTH;
            return output;
        }
    }
}

static inline void fake_engine_start(struct fake_engine *engine,
                                     const struct block_pool_settings *pool,
                                     const struct scheduler_settings *settings)
{
    uint32_t blocks = pool->blocks_total;
    struct errmsg err;

    memset(engine, 0, sizeof(*engine));
    assert_int_equal(block_pool_new(pool, &engine->pool, &err), 0);
    assert_int_equal(scheduler_new(settings, engine->pool, &engine->scheduler, &err), 0);
    engine->blocks = blocks;
    engine->vocab_size = settings->vocab_size;
    engine->kv = mem_calloc((size_t)blocks * BLOCK_TOKENS, sizeof(*engine->kv));
    engine->results = mem_calloc(settings->sequences_max, sizeof(*engine->results));
    engine->items =
        mem_calloc(settings->sequences_max + settings->waiting_max, sizeof(*engine->items));
    engine->now_ns = 1;
}

static inline void fake_engine_init(struct fake_engine *engine, uint32_t blocks, bool caching,
                                    const struct scheduler_settings *settings)
{
    const struct block_pool_settings pool = {.blocks_total = blocks, .prefix_caching = caching};

    fake_engine_start(engine, &pool, settings);
}

static inline void fake_engine_init_with(struct fake_engine *engine, uint32_t blocks,
                                         const struct eviction_policy *eviction,
                                         const struct scheduler_settings *settings)
{
    const struct block_pool_settings pool = {
        .blocks_total = blocks, .prefix_caching = true, .eviction = eviction};

    fake_engine_start(engine, &pool, settings);
}

static inline void fake_engine_done(struct fake_engine *engine)
{
    scheduler_check(engine->scheduler);
    scheduler_free(engine->scheduler);
    block_pool_check(engine->pool);
    block_pool_free(engine->pool);
    mem_free(engine->kv);
    mem_free(engine->results);
    mem_free(engine->items);
}

static inline uint64_t *fake_slot(struct fake_engine *engine, const struct sequence *seq,
                                  uint32_t position)
{
    uint32_t block = seq->table.ids[position / BLOCK_TOKENS];
    return &engine->kv[(size_t)block * BLOCK_TOKENS + position % BLOCK_TOKENS];
}

static inline void fake_plan(struct fake_engine *engine)
{
    scheduler_plan(engine->scheduler, engine->now_ns, &engine->plan);
}

static inline void fake_copies(struct fake_engine *engine)
{
    for (uint32_t i = 0; i < engine->plan.copies_count; i++) {
        const struct plan_copy *copy = &engine->plan.copies[i];
        assert_true(copy->tokens > 0 && copy->tokens < BLOCK_TOKENS);
        assert_true(block_pool_refs(engine->pool, copy->from) > 0);
        assert_int_equal(block_pool_state(engine->pool, copy->to), BLOCK_PRIVATE);
        memcpy(engine->kv + (size_t)copy->to * BLOCK_TOKENS,
               engine->kv + (size_t)copy->from * BLOCK_TOKENS, copy->tokens * sizeof(uint64_t));
    }
}

/* Copies and forward pass of the plan; results for the rows that want a token. */
static inline void fake_forward(struct fake_engine *engine)
{
    uint32_t tokens = 0;

    fake_copies(engine);
    for (uint32_t i = 0; i < engine->plan.entries_count; i++) {
        const struct plan_entry *entry = &engine->plan.entries[i];
        const struct sequence *seq = entry->sequence;
        for (uint32_t p = entry->first_position; p < entry->first_position + entry->rows; p++) {
            uint64_t before = p > 0 ? *fake_slot(engine, seq, p - 1) : seq->params.root.low;
            *fake_slot(engine, seq, p) = fake_mix(before, seq->ids[p], p);
        }
        engine->rows_total += entry->rows;
        if (!entry->want_token)
            continue;
        uint64_t fold = 0;
        for (uint32_t p = 0; p < entry->first_position + entry->rows; p++)
            fold = fake_mix(fold, *fake_slot(engine, seq, p), 1);
        engine->results[tokens++].id =
            fake_token(fold, &seq->params, sequence_output_tokens(seq), engine->vocab_size);
    }
    engine->steps_total++;
}

/* Overwrite what nobody may read again. */
static inline void fake_forget(struct fake_engine *engine)
{
    for (uint32_t id = 0; id < engine->blocks; id++) {
        enum block_state state = block_pool_state(engine->pool, id);
        uint32_t keep = state == BLOCK_PRIVATE ? BLOCK_TOKENS : block_pool_tokens(engine->pool, id);
        for (uint32_t i = keep; i < BLOCK_TOKENS; i++)
            engine->kv[(size_t)id * BLOCK_TOKENS + i] = 0xdead0000u + id;
    }
}

/* Items are in engine->items until the next call; their count. */
static inline uint32_t fake_commit(struct fake_engine *engine)
{
    uint32_t count = scheduler_commit(engine->scheduler, &engine->plan, engine->results,
                                      engine->now_ns, engine->items);
    fake_forget(engine);
    engine->now_ns++;
    return count;
}

static inline uint32_t fake_step(struct fake_engine *engine)
{
    fake_plan(engine);
    fake_forward(engine);
    return fake_commit(engine);
}

/* A request with prompt ids base, base + 1, ...; no stop ids. */
static inline struct sequence_params fake_params(const char *request_id, const uint32_t *prompt,
                                                 uint32_t prompt_tokens, uint32_t tokens_max)
{
    struct sequence_params params = {
        .prompt = prompt,
        .prompt_tokens = prompt_tokens,
        .sampling = {.top_p = 1, .repetition_penalty = 1},
        .tokens_max = tokens_max,
        .root = {.low = 7, .high = 9},
    };

    assert_true(strlen(request_id) <= REQUEST_ID_MAX);
    memcpy(params.request_id, request_id, strlen(request_id) + 1);
    return params;
}

static inline struct sequence *fake_add(struct fake_engine *engine,
                                        const struct sequence_params *params)
{
    struct sequence *seq = NULL;
    struct errmsg err = {""};

    assert_int_equal(scheduler_add(engine->scheduler, params, &seq, &err), 0);
    return seq;
}

#endif
