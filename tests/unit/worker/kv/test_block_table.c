/* test_block_table.c - growing, adopting and giving back, in tokens of 16 a block. */
#include <cmocka.h>
#include <errno.h>

#include "worker/kv/block_table.h"
#include "worker/kv/eviction.h"

static struct block_pool *new_pool(uint32_t blocks_total)
{
    const struct block_pool_settings settings = {
        .blocks_total = blocks_total, .prefix_caching = true, .eviction = &eviction_lru};
    struct block_pool *pool = NULL;

    assert_int_equal(block_pool_new(&settings, &pool, NULL), 0);
    return pool;
}

static void test_grow_adds_whole_blocks_for_tokens(void **state)
{
    struct block_pool *pool = new_pool(4);
    struct block_table table;
    (void)state;
    block_table_init(&table, 4);
    assert_int_equal(block_table_grow(&table, pool, 0), 0);
    assert_int_equal(table.count, 0);
    assert_int_equal(block_table_grow(&table, pool, 1), 0);
    assert_int_equal(table.count, 1);
    assert_int_equal(block_table_grow(&table, pool, 16), 0);
    assert_int_equal(table.count, 1);
    assert_int_equal(block_table_grow(&table, pool, 33), 0);
    assert_int_equal(table.count, 3);
    assert_int_equal(block_table_grow(&table, pool, 5), 0); /* never shrinks */
    assert_int_equal(table.count, 3);
    block_table_drop(&table, pool);
    block_table_done(&table);
    block_pool_check(pool);
    block_pool_free(pool);
}

static void test_grow_beyond_the_pool_takes_nothing(void **state)
{
    struct block_pool *pool = new_pool(2);
    struct block_table table;
    (void)state;
    block_table_init(&table, 8);
    assert_int_equal(block_table_grow(&table, pool, 16), 0);
    assert_int_equal(block_table_grow(&table, pool, 48), -ENOSPC);
    assert_int_equal(table.count, 1);
    assert_int_equal(block_pool_available(pool), 1);
    block_table_drop(&table, pool);
    block_table_done(&table);
    block_pool_free(pool);
}

static void test_adopted_blocks_come_first_and_keep_their_place(void **state)
{
    struct block_pool *pool = new_pool(6);
    struct block_table table;
    uint32_t ids[2];
    (void)state;
    block_table_init(&table, 4);
    assert_int_equal(block_pool_take(pool, 2, ids), 0);
    block_table_adopt(&table, ids, 2); /* the references are the table's now */
    assert_int_equal(block_table_grow(&table, pool, 40), 0);
    assert_int_equal(table.count, 3);
    assert_int_equal(table.ids[0], ids[0]);
    assert_int_equal(table.ids[1], ids[1]);
    block_table_drop(&table, pool);
    assert_int_equal(table.count, 0);
    assert_int_equal(block_pool_available(pool), 6);
    assert_int_equal(block_table_grow(&table, pool, 16), 0); /* it may start again */
    block_table_drop(&table, pool);
    block_table_done(&table);
    block_pool_check(pool);
    block_pool_free(pool);
}

static void test_drop_gives_the_tail_back_first(void **state)
{
    struct block_pool *pool = new_pool(3);
    const struct block_hash root = {.low = 1, .high = 1};
    uint32_t content[3 * BLOCK_TOKENS] = {0}, ids[2], found[3];
    struct block_hash hashes[3];
    struct block_table table;
    (void)state;
    (void)block_hash_chain(root, content, 3 * BLOCK_TOKENS, hashes);
    block_table_init(&table, 3);
    assert_int_equal(block_table_grow(&table, pool, 48), 0);
    for (uint32_t i = 0; i < 3; i++)
        block_pool_seal(pool, table.ids[i], i == 0 ? root : hashes[i - 1], hashes[i], content,
                        i == 0, BLOCK_TOKENS);
    block_table_drop(&table, pool);
    assert_int_equal(block_pool_take(pool, 2, ids), 0);
    assert_int_equal(block_pool_match(pool, hashes, content, 3, found), 1);
    block_pool_unref(pool, ids, 2);
    block_table_done(&table);
    block_pool_check(pool);
    block_pool_free(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grow_adds_whole_blocks_for_tokens),
        cmocka_unit_test(test_grow_beyond_the_pool_takes_nothing),
        cmocka_unit_test(test_adopted_blocks_come_first_and_keep_their_place),
        cmocka_unit_test(test_drop_gives_the_tail_back_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
