/* test_tier.c - pool, scheduler and host tier together, on an engine whose KV is a hash chain: a
 * block that comes back wrong, too late or to the wrong place changes the output. */
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/worker/sched/fake_engine.h"
#include "worker/tier/tier.h"

#define PROMPT_MAX 1024

struct world {
    struct fake_engine engine;
    struct tier *tier;
    uint64_t *slots; /* [host_slots * BLOCK_TOKENS] */
    uint64_t stores, loads;
};

static uint32_t prompt[PROMPT_MAX];

static const struct scheduler_settings usual = {
    .sequences_max = 8,
    .step_tokens_max = 64,
    .context_tokens_max = 600,
    .waiting_max = 32,
    .vocab_size = 1000,
};

static void world_init(struct world *w, uint32_t blocks, uint32_t host_slots)
{
    struct scheduler_settings settings = usual;
    const struct tier_settings tier = {.host_slots = host_slots, .sequence_blocks = 600 / 16 + 1};
    *w = (struct world){.slots = mem_calloc(host_slots * BLOCK_TOKENS, sizeof(uint64_t))};
    assert_int_equal(tier_new(&tier, &w->tier, NULL), 0);
    settings.tiers = tier_lookup_of(w->tier);
    struct block_pool_settings pool = {.blocks_total = blocks, .prefix_caching = true};
    tier_watch_pool(w->tier, &pool.events);
    fake_engine_start(&w->engine, &pool, &settings);
    for (uint32_t i = 0; i < PROMPT_MAX; i++)
        prompt[i] = i % 1000;
}

static void world_done(struct world *w)
{
    tier_check(w->tier);
    fake_engine_done(&w->engine);
    tier_free(w->tier);
    mem_free(w->slots);
}

static void apply(struct world *w)
{
    uint32_t count;
    const struct step_tier_op *ops = tier_ops(w->tier, &count);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t *kv = w->engine.kv + (size_t)ops[i].block * BLOCK_TOKENS;
        uint64_t *slot = w->slots + (size_t)ops[i].slot * BLOCK_TOKENS;
        bool store = ops[i].kind == STEP_TIER_STORE;
        memcpy(store ? slot : kv, store ? kv : slot, BLOCK_TOKENS * sizeof(*kv));
        w->stores += store;
        w->loads += !store;
    }
}

static uint32_t step(struct world *w)
{
    fake_plan(&w->engine);
    apply(w);
    fake_forward(&w->engine);
    tier_step_done(w->tier);
    uint32_t count = fake_commit(&w->engine);
    scheduler_check(w->engine.scheduler);
    return count;
}

/* Its output must be that of its run alone. */
static void assert_exact(const struct world *w, const struct sequence *seq)
{
    uint32_t alone[PROMPT_MAX];
    enum sequence_finish why;
    uint32_t count = fake_alone(&seq->params, seq->ids_max, w->engine.vocab_size, alone, &why);
    assert_int_equal(sequence_output_tokens(seq), count);
    assert_memory_equal(seq->ids + seq->prompt_tokens, alone, count * sizeof(uint32_t));
}

static struct sequence *run(struct world *w, const char *name, const uint32_t *ids, uint32_t count,
                            uint32_t tokens_max)
{
    struct sequence_params params = fake_params(name, ids, count, tokens_max);
    struct sequence *seq = fake_add(&w->engine, &params);
    for (uint32_t steps = 0; seq->state != SEQ_FINISHED; steps++) {
        (void)step(w);
        assert_true(steps < 1000);
    }
    assert_exact(w, seq);
    return seq;
}

static void test_prompt_when_evicted_to_host_is_computed_no_more(void **state)
{
    struct world w;
    struct tier_counts counts;
    (void)state;
    world_init(&w, 20, 40);
    struct sequence *seq = run(&w, "first", prompt, 200, 9); /* 208 tokens with KV: 13 blocks */
    assert_int_equal(seq->cached_tokens, 0);
    (void)run(&w, "other", prompt + 500, 300, 2); /* 19 blocks of 20: nothing of it is left */
    assert_true(w.stores >= 12);
    seq = run(&w, "again", prompt, 200, 9);
    assert_int_equal(seq->cached_tokens, 12 * BLOCK_TOKENS);
    assert_int_equal(seq->cached_host_tokens, 11 * BLOCK_TOKENS); /* the pool kept the first */
    assert_int_equal(seq->cached_disk_tokens, 0);
    tier_get_counts(w.tier, &counts);
    assert_int_equal(counts.hits_total, 11);
    assert_int_equal(counts.lost_total, 0);
    world_done(&w);
}

static void test_next_turn_when_all_was_evicted_reuses_the_tail_too(void **state)
{
    struct world w;
    uint32_t turn[400];
    (void)state;
    world_init(&w, 20, 60);
    struct sequence *seq = run(&w, "first", prompt, 100, 8); /* KV of 107: 6 blocks and 11 tokens */
    memcpy(turn, seq->ids, seq->ids_count * sizeof(*turn));
    for (uint32_t i = seq->ids_count; i < 200; i++)
        turn[i] = 7 * i % 1000;
    (void)run(&w, "other", prompt + 500, 300, 2);
    seq = run(&w, "second", turn, 200, 4);
    assert_int_equal(seq->cached_tokens, 107);
    assert_int_equal(seq->cached_host_tokens, 107 - BLOCK_TOKENS); /* the pool kept the first */
    world_done(&w);
}

static void test_first_turn_when_salted_finds_nothing_of_others(void **state)
{
    struct world w;
    (void)state;
    world_init(&w, 20, 60);
    (void)run(&w, "first", prompt, 100, 8);
    (void)run(&w, "other", prompt + 500, 300, 2);
    struct sequence_params params = fake_params("salted", prompt, 100, 8);
    params.root.low++;
    struct sequence *seq = fake_add(&w.engine, &params);
    while (seq->state != SEQ_FINISHED)
        (void)step(&w);
    assert_exact(&w, seq);
    assert_int_equal(seq->cached_tokens, 0);
    world_done(&w);
}

static void test_reset_when_called_forgets_the_tier_and_stores_nothing(void **state)
{
    struct world w;
    struct tier_counts counts;
    (void)state;
    world_init(&w, 20, 60);
    (void)run(&w, "first", prompt, 100, 8);
    (void)run(&w, "other", prompt + 500, 300, 2);
    tier_get_counts(w.tier, &counts);
    uint64_t stores = counts.stores_total;
    block_pool_reset_cache(w.engine.pool);
    assert_int_equal(tier_reset(w.tier), counts.host_used);
    tier_get_counts(w.tier, &counts);
    assert_int_equal(counts.stores_total, stores);
    assert_int_equal(counts.host_used, 0);
    struct sequence *seq = run(&w, "again", prompt, 100, 8);
    assert_int_equal(seq->cached_tokens, 0);
    world_done(&w);
}

/* Chats that come back in any order, several at once, with little pool and little tier. */
static void random_chats(uint32_t seed, uint32_t blocks, uint32_t host_slots)
{
    enum { CHATS = 6, STEPS = 1500 };
    struct world w;
    struct sequence *live[CHATS] = {NULL};
    uint32_t ids[CHATS][PROMPT_MAX], count[CHATS], number = 0, done = 0;
    world_init(&w, blocks, host_slots);
    srandom(seed);
    for (uint32_t c = 0; c < CHATS; c++) {
        count[c] = 40; /* a shared system prompt */
        memcpy(ids[c], prompt, 40 * sizeof(uint32_t));
    }
    for (uint32_t s = 0; s < STEPS; s++) {
        uint32_t c = (uint32_t)random() % CHATS;
        if (live[c] == NULL) {
            char name[16];
            uint32_t add = 1 + (uint32_t)random() % 50;
            if (count[c] + add > 400 || random() % 12 == 0)
                count[c] = 40;
            for (uint32_t i = 0; i < add; i++)
                ids[c][count[c]++] = (uint32_t)random() % 1000;
            (void)snprintf(name, sizeof(name), "%u", number++);
            struct sequence_params params =
                fake_params(name, ids[c], count[c], 1 + (uint32_t)random() % 20);
            live[c] = fake_add(&w.engine, &params);
        }
        (void)step(&w);
        for (c = 0; c < CHATS; c++) {
            if (live[c] == NULL || live[c]->state != SEQ_FINISHED || !live[c]->reported)
                continue;
            assert_exact(&w, live[c]);
            count[c] = live[c]->ids_count;
            memcpy(ids[c], live[c]->ids, count[c] * sizeof(uint32_t));
            scheduler_release(w.engine.scheduler, live[c]);
            live[c] = NULL;
            done++;
        }
        if (s % 64 == 0)
            tier_check(w.tier);
    }
    assert_true(done > 100);
    assert_true(w.stores > 100);
    assert_true(host_slots < 20 || w.loads > 100);
    world_done(&w);
}

static void test_random_chats_when_pool_and_tier_are_small_are_exact(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 12; seed++)
        random_chats(seed, 36 + seed % 5 * 10, 3 + seed % 4 * 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prompt_when_evicted_to_host_is_computed_no_more),
        cmocka_unit_test(test_next_turn_when_all_was_evicted_reuses_the_tail_too),
        cmocka_unit_test(test_first_turn_when_salted_finds_nothing_of_others),
        cmocka_unit_test(test_reset_when_called_forgets_the_tier_and_stores_nothing),
        cmocka_unit_test(test_random_chats_when_pool_and_tier_are_small_are_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
