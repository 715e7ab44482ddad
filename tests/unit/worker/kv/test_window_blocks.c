/* test_window_blocks.c - each promise of window_blocks.h once, by hand; then all of it against a
 * naive model, two million operations (200,000 under a sanitizer). */
#include <cmocka.h>
#include <errno.h>

#include "tests/sanitized.h"
#include "tests/unit/worker/kv/window_model.h"

#define OPERATIONS (SANITIZED ? 200000u : 2000000u)
#define RUNS 100u

static const struct block_hash root = {.low = 1, .high = 2};

static struct block_pool *pool_of(uint32_t blocks, uint32_t tokens, uint32_t windows)
{
    const struct block_pool_settings settings = {.blocks_total = blocks,
                                                 .prefix_caching = true,
                                                 .eviction = &eviction_lru,
                                                 .pinned_blocks_max = blocks,
                                                 .window_tokens = tokens,
                                                 .window_blocks = windows};
    struct block_pool *pool = NULL;
    assert_int_equal(block_pool_new(&settings, &pool, NULL), 0);
    return pool;
}

/* A chain of whole blocks: block i holds sixteen times the id i + first. */
struct chain {
    uint32_t ids[8 * BLOCK_TOKENS];
    struct block_hash hashes[8];
    struct block_table table;
};

static void begin_chain(struct chain *chain, uint32_t first)
{
    for (uint32_t i = 0; i < 8 * BLOCK_TOKENS; i++)
        chain->ids[i] = i / BLOCK_TOKENS + first;
    (void)block_hash_chain(root, chain->ids, 8 * BLOCK_TOKENS, chain->hashes);
    block_table_init(&chain->table, 8);
}

/* Compute and seal blocks up to `end`; the window has moved to its end. */
static void compute(struct chain *chain, struct block_pool *pool, uint32_t end)
{
    uint32_t from = chain->table.count;
    assert_int_equal(block_table_grow(&chain->table, pool, end * BLOCK_TOKENS), 0);
    assert_int_equal(block_table_cover(&chain->table, pool, end), 0);
    for (uint32_t i = from; i < end; i++)
        block_pool_seal(pool, chain->table.ids[i], i == 0 ? root : chain->hashes[i - 1],
                        chain->hashes[i], chain->ids + (size_t)i * BLOCK_TOKENS, i == 0, 16);
    block_table_slide(&chain->table, pool,
                      window_first_block(window_tokens(pool), end * BLOCK_TOKENS));
}

static void end_chain(struct chain *chain, struct block_pool *pool)
{
    block_table_drop(&chain->table, pool);
    block_table_done(&chain->table);
}

static struct window_counts counts_of(const struct block_pool *pool)
{
    struct window_counts counts;
    block_pool_check(pool);
    window_get_counts(pool, &counts);
    return counts;
}

static void test_first_block_when_the_window_ends_inside_a_block_is_that_block(void **state)
{
    (void)state;
    assert_int_equal(window_first_block(32, 0), 0);
    assert_int_equal(window_first_block(32, 31), 0);
    assert_int_equal(window_first_block(32, 46), 0); /* sees 15..46 */
    assert_int_equal(window_first_block(32, 47), 1); /* sees 16..47 */
    assert_int_equal(window_first_block(2, 17), 1);
    assert_int_equal(window_blocks_of(32), 3); /* 15..46 lies in three */
    assert_int_equal(window_blocks_of(2), 2);
    assert_int_equal(window_blocks_of(33), 3);
    assert_int_equal(window_blocks_of(34), 4);
}

static void test_windows_without_tokens_or_blocks_are_refused(void **state)
{
    struct block_pool_settings settings = {.blocks_total = 4, .window_blocks = 2};
    struct block_pool *pool = NULL;
    struct errmsg err;
    (void)state;
    assert_int_equal(block_pool_new(&settings, &pool, &err), -EINVAL);
    settings.window_tokens = 1;
    assert_int_equal(block_pool_new(&settings, &pool, &err), -EINVAL);
    settings.window_tokens = 32;
    settings.window_blocks = 0;
    assert_int_equal(block_pool_new(&settings, &pool, &err), -EINVAL);
}

static void test_blocks_behind_the_window_are_given_back_and_stay_until_room_is_needed(void **state)
{
    struct block_pool *pool = pool_of(16, 32, 6);
    struct chain a, b;
    (void)state;
    begin_chain(&a, 0);
    begin_chain(&b, 100);
    compute(&a, pool, 5); /* the next row, 80, sees 49..80: blocks 3 and 4 */
    assert_int_equal(a.table.window_first, 3);
    assert_int_equal(counts_of(pool).shared, 2);
    assert_int_equal(counts_of(pool).cached, 3);
    assert_int_equal(window_run(pool, a.table.ids, 5), 0);
    compute(&b, pool, 3); /* one is EMPTY, two of a's must go: 2 was let go before 1 and 0 */
    assert_int_equal(counts_of(pool).lost_total, 2);
    assert_int_equal(window_of_block(pool, a.table.ids[2]), BLOCK_NONE);
    assert_int_equal(window_of_block(pool, a.table.ids[1]), BLOCK_NONE);
    assert_int_not_equal(window_of_block(pool, a.table.ids[0]), BLOCK_NONE);
    assert_int_equal(block_pool_state(pool, a.table.ids[1]), BLOCK_SHARED); /* the block stays */
    end_chain(&a, pool);
    end_chain(&b, pool);
    block_pool_free(pool);
}

static void test_blocks_of_a_window_that_are_all_held_are_refused(void **state)
{
    struct block_pool *pool = pool_of(16, 32, 3);
    struct chain a;
    (void)state;
    begin_chain(&a, 0);
    assert_int_equal(block_table_grow(&a.table, pool, 64), 0);
    assert_int_equal(block_table_cover(&a.table, pool, 4), -ENOSPC);
    assert_int_equal(a.table.window_end, 3); /* as many as there are */
    assert_int_equal(window_available(pool), 0);
    assert_int_equal(window_take(pool, a.table.ids + 3, 1), -ENOSPC);
    end_chain(&a, pool);
    assert_int_equal(counts_of(pool).empty, 3); /* nothing of it was published */
    block_pool_free(pool);
}

static void test_a_leaf_that_loses_its_window_block_is_lost_upwards(void **state)
{
    struct block_pool *pool = pool_of(16, 32, 6);
    struct block_counts blocks;
    struct chain a, b, c;
    (void)state;
    begin_chain(&a, 0);
    begin_chain(&b, 100);
    compute(&a, pool, 4);
    end_chain(&a, pool); /* 2 and 3 were held; 1, 0 are behind the window */
    compute(&b, pool, 2);
    compute(&b, pool, 4); /* takes the two EMPTY ones, then a's 1 and 0 */
    block_pool_counts(pool, &blocks);
    assert_int_equal(counts_of(pool).lost_total, 2);
    assert_int_equal(blocks.cached, 4); /* a: 0 and 1 are needed by what hangs under them */
    compute(&b, pool, 6);               /* b's own behind its window go before a's end */
    assert_int_equal(counts_of(pool).lost_total, 4);
    block_pool_counts(pool, &blocks);
    assert_int_equal(blocks.cached, 4);
    assert_int_equal(block_table_grow(&b.table, pool, 8 * BLOCK_TOKENS), 0);
    assert_int_equal(block_table_cover(&b.table, pool, 8), 0);
    assert_int_equal(counts_of(pool).lost_total, 6); /* b holds four, a's end has two */
    begin_chain(&c, 200);
    compute(&c, pool, 1);
    assert_int_equal(counts_of(pool).lost_total, 7);
    block_pool_counts(pool, &blocks);
    assert_int_equal(blocks.cached, 3); /* a: 3 is gone, nothing hung under it */
    compute(&c, pool, 2);
    block_pool_counts(pool, &blocks);
    assert_int_equal(counts_of(pool).lost_total, 8);
    assert_int_equal(blocks.cached, 0); /* 2 is gone, then 1 and 0 are of no use */
    end_chain(&b, pool);
    end_chain(&c, pool);
    block_pool_free(pool);
}

static void test_a_lease_keeps_the_window_of_its_prefix(void **state)
{
    struct block_pool *pool = pool_of(20, 32, 8);
    uint32_t scratch[8], blocks = 0;
    struct chain a, b;
    (void)state;
    begin_chain(&a, 0);
    begin_chain(&b, 100);
    compute(&a, pool, 5);
    block_table_drop(&a.table, pool);
    const struct block_chain chain = {root, a.hashes, a.ids, 5};
    assert_int_equal(block_pool_pin(pool, &chain, 1000, scratch, &blocks, NULL), 0);
    assert_int_equal(blocks, 5);
    assert_int_equal(window_pinned(pool), 2); /* 49..79 of the prefix */
    for (uint32_t end = 2; end <= 8; end += 2)
        compute(&b, pool, end);
    assert_int_equal(window_run(pool, scratch, 5), 3); /* the rest was taken */
    assert_int_equal(block_pool_unpin(pool, root, a.hashes[4]), 0);
    assert_int_equal(window_pinned(pool), 0);
    assert_int_equal(counts_of(pool).shared, 2); /* b's */
    block_table_done(&a.table);
    end_chain(&b, pool);
    block_pool_free(pool);
}

/* --- against the model ----------------------------------------------------------------------- */

static uint32_t draw_random(void *user, uint32_t below)
{
    uint64_t *random = user;

    *random = *random * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX */
    return (uint32_t)((*random >> 33) % below);
}

static void run(uint64_t seed, uint64_t reached[4])
{
    static struct window_model model;
    uint64_t random = seed;
    const struct block_pool_settings settings = {
        .blocks_total = 2 + draw_random(&random, WM_BLOCKS_MAX - 1),
        .prefix_caching = true,
        .pinned_blocks_max = WM_BLOCKS_MAX,
        .eviction = eviction_policies[seed % eviction_policies_count()],
        .window_tokens = 2 + draw_random(&random, 100),
        .window_blocks = 1 + draw_random(&random, 24),
    };
    wm_init(&model, &settings, draw_random, &random);
    for (uint32_t i = 0; i < OPERATIONS / RUNS; i++) {
        wm_op(&model);
        wm_compare(&model);
        if (i % 16 == 0)
            block_pool_check(model.pool);
    }
    reached[0] += model.hits;
    reached[1] += model.cut;
    reached[2] += model.moved;
    reached[3] += model.slid;
    wm_done(&model);
}

static void test_random_operations_agree_with_the_naive_model(void **state)
{
    uint64_t reached[4] = {0};
    (void)state;
    for (uint64_t seed = 1; seed <= RUNS; seed++)
        run(seed, reached);
    assert_true(reached[0] > OPERATIONS / 50); /* prefix hits */
    assert_true(reached[1] > OPERATIONS / 500 && reached[2] > OPERATIONS / 2000);
    assert_true(reached[3] > OPERATIONS / 20);
    print_message("hits %llu, cut %llu, handed over %llu, behind the window %llu\n",
                  (unsigned long long)reached[0], (unsigned long long)reached[1],
                  (unsigned long long)reached[2], (unsigned long long)reached[3]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_block_when_the_window_ends_inside_a_block_is_that_block),
        cmocka_unit_test(test_windows_without_tokens_or_blocks_are_refused),
        cmocka_unit_test(
            test_blocks_behind_the_window_are_given_back_and_stay_until_room_is_needed),
        cmocka_unit_test(test_blocks_of_a_window_that_are_all_held_are_refused),
        cmocka_unit_test(test_a_leaf_that_loses_its_window_block_is_lost_upwards),
        cmocka_unit_test(test_a_lease_keeps_the_window_of_its_prefix),
        cmocka_unit_test(test_random_operations_agree_with_the_naive_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
