/* test_chain.c - how far two byte strings agree, exactly where it is promised. */
#include <cmocka.h>
#include <string.h>

#include "proto/base/mem.h"
#include "router/session/chain.h"

static void fill(uint8_t *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        data[i] = (uint8_t)(i * 7 + i / 251);
}

static void test_common_is_exact_at_the_end_and_per_unit_before(void **state)
{
    uint8_t data[400], other[400];
    struct chain chain;
    (void)state;
    fill(data, sizeof(data));
    chain_init(&chain);
    for (size_t i = 0; i < 300; i += 25) /* in pieces: 4 units and 44 bytes */
        chain_add(&chain, data + i, 25);
    assert_int_equal(chain.bytes, 300);
    assert_int_equal(chain_common(&chain, data, 400), 300);
    assert_int_equal(chain_common(&chain, data, 300), 300);
    assert_int_equal(chain_common(&chain, data, 290), 290); /* ends in the rest */
    assert_int_equal(chain_common(&chain, data, 200), 192); /* ends before: whole units */
    assert_int_equal(chain_common(&chain, data, 0), 0);
    for (size_t at = 0; at < 300; at++) {
        memcpy(other, data, sizeof(data));
        other[at] ^= 1;
        assert_int_equal(chain_common(&chain, other, 400), at < 256 ? at / 64 * 64 : at);
    }
    chain_done(&chain);
}

static void test_a_short_chain_is_all_rest(void **state)
{
    struct chain chain;
    (void)state;
    chain_init(&chain);
    assert_int_equal(chain_common(&chain, "x", 1), 0);
    chain_add(&chain, "hello", 5);
    assert_int_equal(chain_common(&chain, "hello you", 9), 5);
    assert_int_equal(chain_common(&chain, "help", 4), 3);
    assert_int_equal(chain_memory(&chain), 0);
    chain_done(&chain);
}

static void test_a_long_chain_is_bounded_coarse_and_never_too_high(void **state)
{
    const size_t bytes = 64 * 3000 + 10; /* 3000 units: shift 3, 375 marks */
    uint8_t *data = mem_alloc(bytes);
    struct chain chain;
    (void)state;
    fill(data, bytes);
    chain_init(&chain);
    chain_add(&chain, data, bytes);
    assert_int_equal(chain.shift, 3);
    assert_int_equal(chain.marks_count, 375);
    assert_true(chain_memory(&chain) <= CHAIN_MARKS_MAX * sizeof(uint64_t));
    assert_int_equal(chain_common(&chain, data, bytes), bytes);
    for (size_t at = 100; at < bytes; at += 9973) {
        data[at] ^= 1;
        assert_int_equal(chain_common(&chain, data, bytes), at / 512 * 512);
        data[at] ^= 1;
    }
    chain_done(&chain);
    mem_free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_common_is_exact_at_the_end_and_per_unit_before),
        cmocka_unit_test(test_a_short_chain_is_all_rest),
        cmocka_unit_test(test_a_long_chain_is_bounded_coarse_and_never_too_high),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
