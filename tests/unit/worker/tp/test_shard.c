/* test_shard.c - 9 query heads on 3 KV heads over 1 to 8 ranks, worked out by hand; nothing of a
 * model is left out or held twice that need not be. */
#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "worker/tp/shard.h"

static const struct model_config smollm2 = {
    .q_heads = 9, .kv_heads = 3, .ffn = 1536, .vocab_size = 49152};

struct expected {
    uint32_t q_first, q_count, kv_first, kv_count, q_offset;
};

static void expect(uint32_t ranks, const struct expected *expected)
{
    for (uint32_t i = 0; i < ranks; i++) {
        struct shard shard;
        assert_int_equal(shard_compute(&smollm2, i, ranks, &shard, NULL), 0);
        assert_int_equal(shard.q_first, expected[i].q_first);
        assert_int_equal(shard.q_count, expected[i].q_count);
        assert_int_equal(shard.kv_first, expected[i].kv_first);
        assert_int_equal(shard.kv_count, expected[i].kv_count);
        assert_int_equal(shard.q_offset, expected[i].q_offset);
    }
}

static void test_heads_when_ranks_are_at_most_kv_heads_keep_their_groups(void **state)
{
    const struct expected one[] = {{0, 9, 0, 3, 0}};
    const struct expected two[] = {{0, 6, 0, 2, 0}, {6, 3, 2, 1, 0}};
    const struct expected three[] = {{0, 3, 0, 1, 0}, {3, 3, 1, 1, 0}, {6, 3, 2, 1, 0}};
    expect(1, one);
    expect(2, two);
    expect(3, three);
}

static void test_heads_when_ranks_exceed_kv_heads_replicate_them(void **state)
{
    /* Query heads 0-2 read KV head 0, 3-5 read 1, 6-8 read 2. */
    const struct expected four[] = {
        {0, 3, 0, 1, 0}, {3, 2, 1, 1, 0}, {5, 2, 1, 2, 2}, {7, 2, 2, 1, 1}};
    const struct expected five[] = {
        {0, 2, 0, 1, 0}, {2, 2, 0, 2, 2}, {4, 2, 1, 1, 1}, {6, 2, 2, 1, 0}, {8, 1, 2, 1, 2}};
    const struct expected six[] = {{0, 2, 0, 1, 0}, {2, 2, 0, 2, 2}, {4, 2, 1, 1, 1},
                                   {6, 1, 2, 1, 0}, {7, 1, 2, 1, 1}, {8, 1, 2, 1, 2}};
    const struct expected seven[] = {{0, 2, 0, 1, 0}, {2, 2, 0, 2, 2}, {4, 1, 1, 1, 1},
                                     {5, 1, 1, 1, 2}, {6, 1, 2, 1, 0}, {7, 1, 2, 1, 1},
                                     {8, 1, 2, 1, 2}};
    const struct expected eight[] = {{0, 2, 0, 1, 0}, {2, 1, 0, 1, 2}, {3, 1, 1, 1, 0},
                                     {4, 1, 1, 1, 1}, {5, 1, 1, 1, 2}, {6, 1, 2, 1, 0},
                                     {7, 1, 2, 1, 1}, {8, 1, 2, 1, 2}};
    expect(4, four);
    expect(5, five);
    expect(6, six);
    expect(7, seven);
    expect(8, eight);
}

static void test_columns_when_dealt_come_in_units(void **state)
{
    struct shard shard;
    assert_int_equal(shard_compute(&smollm2, 1, 5, &shard, NULL), 0);
    /* 48 units of 32 over 5: 10, 10, 10, 9, 9; 3072 units of 16: 615, 615, 614, 614, 614 */
    assert_int_equal(shard.ffn_first, 320);
    assert_int_equal(shard.ffn_count, 320);
    assert_int_equal(shard.vocab_first, 615 * 16);
    assert_int_equal(shard.vocab_count, 615 * 16);
    const struct model_config odd = {.q_heads = 1, .kv_heads = 1, .ffn = 33, .vocab_size = 50};
    assert_int_equal(shard_compute(&odd, 1, 2, &shard, NULL), 0);
    assert_int_equal(shard.q_count, 0); /* more ranks than heads */
    assert_int_equal(shard.kv_count, 0);
    assert_int_equal(shard.ffn_first, 17); /* 33 is no multiple of 32: units of 1 */
    assert_int_equal(shard.ffn_count, 16);
    assert_int_equal(shard.vocab_first, 32); /* units of 16: 2 and 1.125 */
    assert_int_equal(shard.vocab_count, 18);
}

/* Any model: consecutive, complete, and each query head's KV head is on its rank. */
static void check_cover(const struct model_config *config, uint32_t ranks)
{
    uint32_t q = 0, ffn = 0, vocab = 0, group = config->q_heads / config->kv_heads;
    for (uint32_t i = 0; i < ranks; i++) {
        struct shard shard;
        assert_int_equal(shard_compute(config, i, ranks, &shard, NULL), 0);
        assert_int_equal(shard.ffn_first, ffn);
        assert_int_equal(shard.vocab_first, vocab);
        for (uint32_t k = 0; k < shard.q_count; k++) {
            uint32_t head = shard.q_first + k, local = (shard.q_offset + k) / group;
            assert_int_equal(head, q + k);
            assert_true(local < shard.kv_count);
            assert_int_equal(shard.kv_first + local, head / group);
        }
        assert_true((shard.q_count == 0) == (shard.kv_count == 0));
        q += shard.q_count;
        ffn += shard.ffn_count;
        vocab += shard.vocab_count;
    }
    assert_int_equal(q, config->q_heads);
    assert_int_equal(ffn, config->ffn);
    assert_int_equal(vocab, config->vocab_size);
}

static void test_everything_when_split_is_covered_exactly_once(void **state)
{
    static const uint32_t heads[][2] = {{9, 3},  {4, 2},   {32, 8}, {8, 8},
                                        {14, 2}, {71, 71}, {2, 1},  {12, 4}};
    for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
        for (uint32_t ranks = 1; ranks <= TP_RANKS_MAX; ranks++) {
            const struct model_config config = {.q_heads = heads[i][0],
                                                .kv_heads = heads[i][1],
                                                .ffn = 11008 + (uint32_t)i,
                                                .vocab_size = 1000 + (uint32_t)i};
            check_cover(&config, ranks);
        }
    }
}

static void test_ranks_when_out_of_range_are_refused(void **state)
{
    struct shard shard;
    struct errmsg err = {""};
    assert_int_equal(shard_compute(&smollm2, 0, 0, &shard, &err), -EINVAL);
    assert_int_equal(shard_compute(&smollm2, 0, 9, &shard, &err), -EINVAL);
    assert_non_null(strstr(err.text, "tensor parallel size 9"));
    assert_int_equal(shard_compute(&smollm2, 2, 2, &shard, &err), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_heads_when_ranks_are_at_most_kv_heads_keep_their_groups),
        cmocka_unit_test(test_heads_when_ranks_exceed_kv_heads_replicate_them),
        cmocka_unit_test(test_columns_when_dealt_come_in_units),
        cmocka_unit_test(test_everything_when_split_is_covered_exactly_once),
        cmocka_unit_test(test_ranks_when_out_of_range_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
