/* rng.c: the published known answers of Philox4x32-10, and what we make of them. */
#include <cmocka.h>

#include <string.h>

#include "proto/base/rng.h"

/* Random123, tests/kat_vectors: philox4x32 10. */
static void test_philox_when_given_the_published_inputs_gives_the_published_words(void **state)
{
    static const struct {
        uint32_t counter[4], key[2], words[4];
    } cases[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint32_t words[4];

        rng_philox(cases[i].counter, cases[i].key, words);
        assert_memory_equal(words, cases[i].words, sizeof(words));
    }
}

static void test_uniform_when_seed_and_position_are_zero_is_the_first_word(void **state)
{
    (void)state;
    assert_true(rng_uniform(0, 0) == 0x6627e8d5 / 4294967296.0);
    assert_true(rng_uniform(0, 0) == rng_uniform(0, 0));
    assert_true(rng_uniform(0, 1) != rng_uniform(1, 0));
    assert_true(rng_uniform((uint64_t)1 << 32, 0) != rng_uniform(0, 0)); /* high halves count */
    assert_true(rng_uniform(0, (uint64_t)1 << 32) != rng_uniform(0, 0));
}

static void test_uniform_when_drawn_often_fills_the_range_evenly(void **state)
{
    int counts[10] = {0};

    (void)state;
    for (uint64_t i = 0; i < 100000; i++) {
        double u = rng_uniform(42, i);

        assert_true(u >= 0 && u < 1);
        counts[(int)(u * 10)]++;
    }
    for (int i = 0; i < 10; i++)
        assert_in_range(counts[i], 9600, 10400); /* 10000 +- 4 sigma of 95 */
}

static void test_hex_id_when_drawn_twice_differs_and_is_hex(void **state)
{
    char a[33];
    char b[33];

    (void)state;
    rng_hex_id(a);
    rng_hex_id(b);
    assert_int_equal(strlen(a), 32);
    assert_int_equal(strspn(a, "0123456789abcdef"), 32);
    assert_string_not_equal(a, b);
}

static void test_system_when_asked_for_much_fills_all_of_it(void **state)
{
    unsigned char bytes[4096] = {0};
    unsigned char any = 0;

    (void)state;
    rng_system(bytes, sizeof(bytes));
    for (size_t i = sizeof(bytes) - 64; i < sizeof(bytes); i++)
        any |= bytes[i];
    assert_int_not_equal(any, 0); /* 64 zero bytes: once in 2^512 */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox_when_given_the_published_inputs_gives_the_published_words),
        cmocka_unit_test(test_uniform_when_seed_and_position_are_zero_is_the_first_word),
        cmocka_unit_test(test_uniform_when_drawn_often_fills_the_range_evenly),
        cmocka_unit_test(test_hex_id_when_drawn_twice_differs_and_is_hex),
        cmocka_unit_test(test_system_when_asked_for_much_fills_all_of_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
