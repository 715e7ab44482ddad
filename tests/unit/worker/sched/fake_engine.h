/* fake_engine.h - an engine without a model, whose KV is a hash chain.
 *
 *   kv(position) = mix(kv(position - 1) as it lies in the previous slot, id, position)
 *   token        = fold of kv(0..last) as they lie in the slots of the block table
 *
 * So a token depends on every slot that the scheduler and the pool say holds its prefix, as it does
 * in a transformer: a wrong block, a missed copy or a block taken too early changes the output.
 * What a run alone gives is a plain function of the ids (fake_alone). Slots that hold nothing are
 * overwritten after each step.
 *
 * With a window of W tokens in the pool's settings there is a second KV, in window blocks:
 *   kv_window(position) = mix(fold of kv_window(position - W + 1 .. position - 1), id, position)
 * and tokens depend on its last W slots too. */
#ifndef REFRAIN_TESTS_FAKE_ENGINE_H
#define REFRAIN_TESTS_FAKE_ENGINE_H

#include <cmocka.h>
#include <string.h>

#include "proto/base/mem.h"
#include "worker/kv/window_blocks.h"
#include "worker/sched/scheduler.h"

struct fake_engine {
    struct scheduler *scheduler;
    struct block_pool *pool;
    uint64_t *kv;        /* [blocks * BLOCK_TOKENS] */
    uint64_t *kv_window; /* [window_blocks * BLOCK_TOKENS] */
    uint32_t blocks, window_blocks, window, vocab_size;
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

static inline uint32_t fake_window_first(uint32_t window, uint32_t position)
{
    return position >= window ? position - window + 1 : 0;
}

#define FAKE_WINDOWED_MAX 512u /* longest sequence with a window */

/* The run alone: output to ret_ids (room for tokens_max), its length returned, why it ended.
 * window 0: none. */
static inline uint32_t fake_alone_windowed(const struct sequence_params *params, uint32_t window,
                                           uint32_t ids_max, uint32_t vocab_size, uint32_t *ret_ids,
                                           enum sequence_finish *ret_finish)
{
    uint64_t kv = params->root.low, all = 0, last[FAKE_WINDOWED_MAX];
    uint32_t output = 0;

    for (uint32_t position = 0;; position++) {
        uint32_t id = position < params->prompt_tokens ? params->prompt[position]
                                                       : ret_ids[position - params->prompt_tokens];
        uint64_t seen = 0, fold;
        kv = fake_mix(kv, id, position);
        fold = all = fake_mix(all, kv, 1);
        assert_true(window == 0 || position < FAKE_WINDOWED_MAX);
        for (uint32_t q = fake_window_first(window, position); window > 0 && q < position; q++)
            seen = fake_mix(seen, last[q], 2);
        if (window > 0) {
            last[position] = fake_mix(seen, id, position);
            fold = fake_mix(fold, fake_mix(seen, last[position], 2), 3);
        }
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

static inline uint32_t fake_alone(const struct sequence_params *params, uint32_t ids_max,
                                  uint32_t vocab_size, uint32_t *ret_ids,
                                  enum sequence_finish *ret_finish)
{
    return fake_alone_windowed(params, 0, ids_max, vocab_size, ret_ids, ret_finish);
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
    engine->window = pool->window_tokens;
    engine->window_blocks = pool->window_blocks;
    engine->kv = mem_calloc((size_t)blocks * BLOCK_TOKENS, sizeof(*engine->kv));
    engine->kv_window =
        mem_calloc((size_t)pool->window_blocks * BLOCK_TOKENS + 1, sizeof(*engine->kv_window));
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
    mem_free(engine->kv_window);
    mem_free(engine->results);
    mem_free(engine->items);
}

static inline uint64_t *fake_slot(struct fake_engine *engine, const struct sequence *seq,
                                  uint32_t position)
{
    uint32_t block = seq->table.ids[position / BLOCK_TOKENS];
    return &engine->kv[(size_t)block * BLOCK_TOKENS + position % BLOCK_TOKENS];
}

static inline uint64_t *fake_window_slot(struct fake_engine *engine, const struct sequence *seq,
                                         uint32_t position)
{
    uint32_t block = position / BLOCK_TOKENS;
    assert_true(block >= seq->table.window_first && block < seq->table.window_end);
    uint32_t window = window_of_block(engine->pool, seq->table.ids[block]);
    assert_true(window < engine->window_blocks);
    return &engine->kv_window[(size_t)window * BLOCK_TOKENS + position % BLOCK_TOKENS];
}

/* What the window layers see before `position`. */
static inline uint64_t fake_seen(struct fake_engine *engine, const struct sequence *seq,
                                 uint32_t position)
{
    uint64_t seen = 0;

    for (uint32_t q = fake_window_first(engine->window, position); q < position; q++)
        seen = fake_mix(seen, *fake_window_slot(engine, seq, q), 2);
    return seen;
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
        assert_true((copy->window_from != BLOCK_NONE) == (engine->window > 0));
        if (engine->window > 0)
            memcpy(engine->kv_window + (size_t)copy->window_to * BLOCK_TOKENS,
                   engine->kv_window + (size_t)copy->window_from * BLOCK_TOKENS,
                   copy->tokens * sizeof(uint64_t));
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
            if (engine->window > 0)
                *fake_window_slot(engine, seq, p) =
                    fake_mix(fake_seen(engine, seq, p), seq->ids[p], p);
        }
        engine->rows_total += entry->rows;
        if (!entry->want_token)
            continue;
        uint64_t fold = 0;
        for (uint32_t p = 0; p < entry->first_position + entry->rows; p++)
            fold = fake_mix(fold, *fake_slot(engine, seq, p), 1);
        uint32_t last = entry->first_position + entry->rows - 1;
        if (engine->window > 0)
            fold = fake_mix(
                fold,
                fake_mix(fake_seen(engine, seq, last), *fake_window_slot(engine, seq, last), 2), 3);
        engine->results[tokens++].id =
            fake_token(fold, &seq->params, sequence_output_tokens(seq), engine->vocab_size);
    }
    engine->steps_total++;
}

/* Window blocks that no block has. */
static inline void fake_forget_windows(struct fake_engine *engine)
{
    bool *kept = mem_calloc(engine->window_blocks, sizeof(*kept));

    for (uint32_t id = 0; id < engine->blocks; id++) {
        uint32_t window = window_of_block(engine->pool, id);
        if (window != BLOCK_NONE)
            kept[window] = true;
    }
    for (uint32_t i = 0; i < engine->window_blocks * BLOCK_TOKENS; i++) {
        if (!kept[i / BLOCK_TOKENS])
            engine->kv_window[i] = 0xbeef0000u + i;
    }
    mem_free(kept);
}

/* Overwrite what nobody may read again. */
static inline void fake_forget(struct fake_engine *engine)
{
    if (engine->window > 0)
        fake_forget_windows(engine);
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
