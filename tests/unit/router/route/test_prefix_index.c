/* test_prefix_index.c - the index against a naive set, and its bounds. */
#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/rng.h"
#include "router/route/prefix_index.h"

static struct block_hash hash_of(uint64_t n)
{
    return (struct block_hash){.low = n * 0x9e3779b97f4a7c15u, .high = n};
}

static void test_depths_when_workers_hold_different_prefixes_then_each_has_its_own(void **state)
{
    struct prefix_index *index = prefix_index_new(1000);
    struct block_hash chain[6];
    uint32_t depths[PREFIX_INDEX_WORKERS_MAX] = {0};
    (void)state;

    for (uint64_t i = 0; i < 6; i++)
        chain[i] = hash_of(i + 1);
    for (int i = 0; i < 5; i++)
        assert_int_equal(prefix_index_add(index, chain[i], 3), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(prefix_index_add(index, chain[i], 63), 0);
    assert_int_equal(prefix_index_add(index, chain[1], 7), 0); /* without its parent: no prefix */

    prefix_index_depths(index, chain, 6, 1ull << 3 | 1ull << 7 | 1ull << 63, depths);
    assert_int_equal(depths[3], 5);
    assert_int_equal(depths[7], 0);
    assert_int_equal(depths[63], 2);
    prefix_index_free(index);
}

static void test_add_when_full_then_refused_and_nothing_changes(void **state)
{
    struct prefix_index *index = prefix_index_new(10);
    (void)state;

    for (uint64_t i = 1; i <= 10; i++)
        assert_int_equal(prefix_index_add(index, hash_of(i), 0), 0);
    assert_int_equal(prefix_index_add(index, hash_of(11), 0), -ENOSPC);
    assert_int_equal(prefix_index_add(index, hash_of(10), 1), 0); /* known hash: no new entry */
    assert_int_equal(prefix_index_entries(index), 10);
    prefix_index_remove(index, hash_of(1), 0);
    assert_int_equal(prefix_index_add(index, hash_of(11), 0), 0);
    prefix_index_free(index);
}

#define KEYS 3000
#define WORKERS 5

static void test_random_operations_when_compared_to_a_naive_set_then_equal(void **state)
{
    struct prefix_index *index = prefix_index_new(KEYS);
    static bool held[WORKERS][KEYS];
    (void)state;

    memset(held, 0, sizeof(held));
    for (uint64_t step = 0; step < 200000; step++) {
        uint32_t words[4], counter[4] = {(uint32_t)step, 0, 0, 0}, key[2] = {7, 7};
        rng_philox(counter, key, words);
        uint32_t w = words[0] % WORKERS, k = words[1] % KEYS;
        if (words[2] % 20000 == 0) {
            prefix_index_purge(index, w);
            memset(held[w], 0, sizeof(held[w]));
        } else if (words[2] & 1) {
            assert_int_equal(prefix_index_add(index, hash_of(k + 1), w), 0);
            held[w][k] = true;
        } else {
            prefix_index_remove(index, hash_of(k + 1), w);
            held[w][k] = false;
        }
    }
    size_t distinct = 0;
    for (uint32_t k = 0; k < KEYS; k++) {
        bool any = false;
        for (uint32_t w = 0; w < WORKERS; w++) {
            uint32_t depths[PREFIX_INDEX_WORKERS_MAX];
            struct block_hash hash = hash_of(k + 1);
            prefix_index_depths(index, &hash, 1, 1ull << w, depths);
            assert_int_equal(depths[w], held[w][k]);
            any = any || held[w][k];
        }
        distinct += any;
    }
    assert_int_equal(prefix_index_entries(index), distinct);
    for (uint32_t w = 0; w < WORKERS; w++) {
        uint64_t count = 0, digest = 0;
        for (uint32_t k = 0; k < KEYS; k++) {
            count += held[w][k];
            digest ^= held[w][k] ? hash_of(k + 1).low : 0;
        }
        assert_int_equal(prefix_index_count(index, w), count);
        assert_true(prefix_index_digest(index, w) == digest);
    }
    prefix_index_free(index);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_depths_when_workers_hold_different_prefixes_then_each_has_its_own),
        cmocka_unit_test(test_add_when_full_then_refused_and_nothing_changes),
        cmocka_unit_test(test_random_operations_when_compared_to_a_naive_set_then_equal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
