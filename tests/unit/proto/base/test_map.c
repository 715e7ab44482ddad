/* map.c: against a naive model, at the bound, and with keys of every length. */
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/map.h"
#include "proto/base/mem.h"
#include "proto/base/rng.h"

static void *number(uintptr_t value)
{
    return (void *)value;
}

static size_t count_by_iteration(const struct map *map)
{
    const void *key;
    size_t key_bytes;
    void *value;
    size_t count = 0;

    for (size_t at = 0; map_next(map, &at, &key, &key_bytes, &value);) {
        assert_ptr_equal(map_get(map, key, key_bytes), value); /* what is listed is findable */
        count++;
    }
    return count;
}

static void test_get_when_empty_finds_nothing(void **state)
{
    struct map *map = map_new(0);
    size_t at = 0;

    (void)state;
    assert_null(map_get_text(map, "a"));
    assert_null(map_remove_u64(map, 5));
    assert_int_equal(map_count(map), 0);
    assert_false(map_next(map, &at, NULL, NULL, NULL));
    map_free(map);
    map_free(NULL);
}

static void test_set_when_the_key_is_there_replaces_and_gives_the_old(void **state)
{
    struct map *map = map_new(0);
    void *old = number(99);

    (void)state;
    assert_int_equal(map_set(map, "k", 1, number(1), &old), 0);
    assert_null(old);
    assert_int_equal(map_set(map, "k", 1, number(2), &old), 0);
    assert_ptr_equal(old, number(1));
    assert_int_equal(map_count(map), 1);
    assert_ptr_equal(map_get_text(map, "k"), number(2));
    map_free(map);
}

static void test_set_when_full_refuses_new_keys_only(void **state)
{
    struct map *map = map_new(2);

    (void)state;
    assert_int_equal(map_set_text(map, "a", number(1)), 0);
    assert_int_equal(map_set_text(map, "b", number(2)), 0);
    assert_int_equal(map_set_text(map, "c", number(3)), -ENOSPC);
    assert_int_equal(map_set_text(map, "b", number(4)), 0);
    assert_null(map_get_text(map, "c"));
    assert_ptr_equal(map_remove_text(map, "a"), number(1));
    assert_int_equal(map_set_text(map, "c", number(3)), 0);
    assert_int_equal(count_by_iteration(map), 2);
    map_free(map);
}

static void test_set_when_keys_differ_in_length_only_keeps_them_apart(void **state)
{
    struct map *map = map_new(0);
    char key[64] = {0}; /* all zero bytes: only the length tells */

    (void)state;
    for (size_t bytes = 0; bytes < 64; bytes++)
        assert_int_equal(map_set(map, key, bytes, number(bytes + 1), NULL), 0);
    assert_int_equal(map_count(map), 64);
    for (size_t bytes = 0; bytes < 64; bytes++)
        assert_ptr_equal(map_get(map, key, bytes), number(bytes + 1));
    for (size_t bytes = 0; bytes < 64; bytes += 2)
        assert_ptr_equal(map_remove(map, key, bytes), number(bytes + 1));
    assert_int_equal(count_by_iteration(map), 32);
    map_free(map);
}

static void test_set_when_the_callers_key_changes_keeps_its_copy(void **state)
{
    struct map *map = map_new(0);
    char key[40] = "a key that is longer than sixteen bytes";

    (void)state;
    assert_int_equal(map_set_text(map, key, number(1)), 0);
    key[0] = 'X';
    assert_null(map_get_text(map, key));
    key[0] = 'a';
    assert_ptr_equal(map_get_text(map, key), number(1));
    map_free(map);
}

static void test_set_when_the_value_is_null_counts_the_entry(void **state)
{
    struct map *map = map_new(0);

    (void)state;
    assert_int_equal(map_set_u64(map, 7, NULL), 0);
    assert_int_equal(map_count(map), 1);
    assert_null(map_remove_u64(map, 7));
    assert_int_equal(map_count(map), 0);
    map_free(map);
}

/* 20,000 random sets and removes over 500 keys, short and long, beside a plain array. */
static void test_all_when_random_agree_with_an_array(void **state)
{
    enum { KEYS = 500 };
    struct map *map = map_new(0);
    uintptr_t model[KEYS] = {0};
    size_t model_count = 0;

    (void)state;
    for (uint64_t i = 0; i < 20000; i++) {
        size_t key = (size_t)(rng_uniform(1, 3 * i) * KEYS);
        uintptr_t value = (uintptr_t)i + 1;
        char text[48];

        (void)snprintf(text, sizeof(text), key % 2 ? "%zu" : "a long key, kept on the heap %zu",
                       key);
        if (rng_uniform(1, 3 * i + 1) < 0.6) {
            void *old = NULL;

            assert_int_equal(map_set(map, text, strlen(text), number(value), &old), 0);
            assert_ptr_equal(old, number(model[key]));
            model_count += model[key] == 0;
            model[key] = value;
        } else {
            assert_ptr_equal(map_remove_text(map, text), number(model[key]));
            model_count -= model[key] != 0;
            model[key] = 0;
        }
        assert_int_equal(map_count(map), model_count);
        if (i % 1000 == 0)
            assert_int_equal(count_by_iteration(map), model_count);
    }
    assert_int_equal(count_by_iteration(map), model_count);
    map_free(map);
}

static void test_u64_when_a_hundred_thousand_are_set_finds_each(void **state)
{
    struct map *map = map_new(0);

    (void)state;
    for (uint64_t key = 0; key < 100000; key++)
        assert_int_equal(map_set_u64(map, key << 32, number(key + 1)), 0);
    for (uint64_t key = 0; key < 100000; key += 3)
        assert_ptr_equal(map_remove_u64(map, key << 32), number(key + 1));
    for (uint64_t key = 0; key < 100000; key++)
        assert_ptr_equal(map_get_u64(map, key << 32), key % 3 ? number(key + 1) : NULL);
    assert_int_equal(map_count(map), 66666); /* 100000 - 33334 */
    map_free(map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_get_when_empty_finds_nothing),
        cmocka_unit_test(test_set_when_the_key_is_there_replaces_and_gives_the_old),
        cmocka_unit_test(test_set_when_full_refuses_new_keys_only),
        cmocka_unit_test(test_set_when_keys_differ_in_length_only_keeps_them_apart),
        cmocka_unit_test(test_set_when_the_callers_key_changes_keeps_its_copy),
        cmocka_unit_test(test_set_when_the_value_is_null_counts_the_entry),
        cmocka_unit_test(test_all_when_random_agree_with_an_array),
        cmocka_unit_test(test_u64_when_a_hundred_thousand_are_set_finds_each),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
