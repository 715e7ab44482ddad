/* test_step_ring.c - steps arrive whole and in order; a descriptor with any number out of range is
 * refused before it is used. */
#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "proto/base/clock.h"
#include "tests/unit/worker/tp/forked.h"
#include "worker/tp/group_private.h"
#include "worker/tp/step_ring.h"

/* Two sequences: a decode row at position 16 (2 blocks) and 3 prefill rows from 0. */
static const uint32_t ids[] = {9, 1, 2, 3}, position[] = {16, 0, 1, 2}, row_first[] = {0, 1, 4};
static const uint32_t table[] = {5, 6, 77, 8, 77, 77}, out_row[] = {0, 3};
static const struct step_copy copies[] = {{1, 2, 16, 0}};
static const struct step_tier_op tier_ops[] = {{STEP_TIER_STORE, 9, 0}, {STEP_TIER_LOAD, 2, 3}};
static const struct step_disk_op disk_ops[] = {
    {STEP_DISK_WRITE, 1, 7, 3, 1, {1, 2, 3, 4}, {5, 6, 7, 8}, {9, 10, 11}},
    {STEP_DISK_CLEAR, 2, 8, 0, 0, {0}, {0}, {0}}};
static const struct step_descriptor sample = {
    .kind = STEP_FORWARD,
    .number = 41,
    .step = {.rows = 4,
             .sequences = 2,
             .ids = ids,
             .position = position,
             .row_first = row_first,
             .table = table,
             .table_stride = 3,
             .out_row = out_row,
             .outputs = 2},
    .copies = copies,
    .copies_count = 1,
    .tier_ops = tier_ops,
    .tier_ops_count = 2,
    .disk_ops = disk_ops,
    .disk_ops_count = 2,
};

struct pair {
    struct group *first, *second;
};

static struct pair pair_under(const struct group_limits *limits)
{
    struct pair pair;
    int fd = -1;
    assert_int_equal(group_create(limits, &pair.first, &fd, NULL), 0);
    assert_int_equal(group_attach(pair.first, 1, &pair.second, NULL), 0);
    (void)close(fd);
    return pair;
}

static struct pair pair_of(size_t step_bytes)
{
    const struct group_limits limits = {.ranks = 2,
                                        .step_bytes_max = step_bytes,
                                        .ids_max = 10,
                                        .blocks_max = 10,
                                        .tier_slots = 4,
                                        .tier_buffers = 2};
    return pair_under(&limits);
}

static void pair_free(struct pair *pair)
{
    group_free(pair->second);
    group_free(pair->first);
}

static void test_step_when_published_arrives_whole_with_its_table_narrowed(void **state)
{
    struct pair pair = pair_of(step_ring_bytes_max(&(struct step_sizes){4, 2, 3, 1, 2, 1, 2}));
    struct step_descriptor got;
    assert_int_equal(step_ring_publish(pair.first, &sample), 0);
    assert_int_equal(step_ring_wait(pair.second, &got), 0);
    assert_int_equal(got.kind, STEP_FORWARD);
    assert_int_equal(got.number, 41);
    assert_int_equal(got.step.rows, 4);
    assert_int_equal(got.step.sequences, 2);
    assert_memory_equal(got.step.ids, ids, sizeof(ids));
    assert_memory_equal(got.step.position, position, sizeof(position));
    assert_memory_equal(got.step.row_first, row_first, sizeof(row_first));
    assert_int_equal(got.step.table_stride, 2); /* position 16 is in the second block */
    assert_int_equal(got.step.table[0], 5);
    assert_int_equal(got.step.table[1], 6);
    assert_int_equal(got.step.table[2], 8);
    assert_int_equal(got.step.outputs, 2);
    assert_memory_equal(got.step.out_row, out_row, sizeof(out_row));
    assert_int_equal(got.copies_count, 1);
    assert_memory_equal(got.copies, copies, sizeof(copies));
    assert_int_equal(got.tier_ops_count, 2);
    assert_memory_equal(got.tier_ops, tier_ops, sizeof(tier_ops));
    assert_int_equal(got.disk_ops_count, 2);
    assert_memory_equal(got.disk_ops, disk_ops, sizeof(disk_ops));
    step_ring_done(pair.second);
    pair_free(&pair);
}

static void test_step_when_larger_than_a_slot_is_refused(void **state)
{
    struct pair pair = pair_of(1);
    struct step_descriptor big = sample;
    static uint32_t many[4096];
    const uint32_t all[] = {0, 4096};
    big.step.rows = 4096;
    big.step.sequences = 1;
    big.step.ids = big.step.position = many;
    big.step.row_first = all;
    assert_int_equal(step_ring_publish(pair.first, &big), -EMSGSIZE);
    pair_free(&pair);
}

static void test_bytes_max_when_computed_fits_the_largest_step(void **state)
{
    /* header 48; 4 ids, 4 positions, 3 row_first, 2 * 3 table, 4 out_row, 1 * 4 copies, 2 * 3 tier
     * ops, 2 * 29 disk ops, 2 adapters */
    assert_int_equal(step_ring_bytes_max(&(struct step_sizes){4, 2, 3, 1, 2, 1, 2}),
                     48 + 4 * (4 + 4 + 3 + 6 + 4 + 4 + 2 * 3 + 2 * 29 + 2));
    assert_int_equal(step_ring_bytes_max(&(struct step_sizes){4, 2, 3, 1, 2, 2, 2}),
                     48 + 4 * (4 + 4 + 3 + 2 * 6 + 4 + 4 + 2 * 3 + 2 * 29 + 2));
}

/* --- hostile --------------------------------------------------------------------------------- */

enum {
    AT_NUMBER = 0,
    AT_KIND = 2,
    AT_ROWS,
    AT_SEQUENCES,
    AT_STRIDE,
    AT_OUTPUTS,
    AT_COPIES,
    AT_OPS,
    AT_TABLES,
    AT_DISK_OPS
};
enum {
    AT_IDS = 12,
    AT_POSITION = 16,
    AT_ROW_FIRST = 20,
    AT_TABLE = 23,
    AT_OUT = 27,
    AT_COPY = 29,
    AT_OP = 33,
    AT_DISK_OP = 39, /* kind, token, ticket, tokens, ... */
    AT_SECOND_DISK_OP = 39 + 29
};

/* The sample with one 32-bit word of its slot overwritten. */
static void refuse_word(uint32_t at, uint32_t value)
{
    struct pair pair = pair_of(step_ring_bytes_max(&(struct step_sizes){4, 2, 3, 1, 2, 1, 2}));
    struct step_descriptor got = {.number = 7};
    assert_int_equal(step_ring_publish(pair.first, &sample), 0);
    uint32_t *words = group_step_slot(pair.first, 1);
    words[at] = value;
    assert_int_equal(step_ring_wait(pair.second, &got), -EPROTO);
    assert_int_equal(got.number, 7); /* untouched */
    assert_non_null(group_aborted(pair.first));
    pair_free(&pair);
}

static void test_counts_when_out_of_range_are_refused(void **state)
{
    refuse_word(AT_KIND, 0);
    refuse_word(AT_KIND, 3);
    static const uint32_t counts[] = {AT_ROWS,   AT_SEQUENCES, AT_STRIDE,  AT_OUTPUTS,
                                      AT_COPIES, AT_OPS,       AT_DISK_OPS};
    for (size_t i = 0; i < 7; i++) {
        refuse_word(counts[i], UINT32_MAX);
        refuse_word(counts[i], 1u << 30);
        refuse_word(counts[i], 1020); /* within a page of words, but not together */
    }
    refuse_word(AT_STRIDE, 1); /* too narrow for position 16, and all after it moves */
    refuse_word(AT_ROWS, 3);
    refuse_word(AT_SEQUENCES, 0);
    refuse_word(AT_TABLES, 0); /* none, 1 is there */
    refuse_word(AT_TABLES, 2);
    refuse_word(AT_TABLES, 3);
    refuse_word(AT_TABLES, 4);
}

static void test_arrays_when_out_of_range_are_refused(void **state)
{
    refuse_word(AT_IDS, 10);
    refuse_word(AT_POSITION, 48);    /* block 3 of 2 */
    refuse_word(AT_POSITION + 2, 5); /* does not rise by one */
    refuse_word(AT_POSITION + 1, UINT32_MAX);
    refuse_word(AT_ROW_FIRST, 1);     /* begins late */
    refuse_word(AT_ROW_FIRST + 1, 5); /* past the rows, and falls */
    refuse_word(AT_ROW_FIRST + 2, 3); /* ends early */
    refuse_word(AT_TABLE + 1, 10);    /* no such block */
    refuse_word(AT_OUT + 1, 4);       /* no such row */
    refuse_word(AT_OUT + 1, 0);       /* does not rise */
    refuse_word(AT_COPY, 10);
    refuse_word(AT_COPY + 1, UINT32_MAX);
    refuse_word(AT_COPY + 2, 17);
    refuse_word(AT_OP, 0); /* no such kind */
    refuse_word(AT_OP, 3);
    refuse_word(AT_OP + 1, 10);
    refuse_word(AT_OP + 2, 4); /* no such slot */
    refuse_word(AT_OP + 5, UINT32_MAX);
    refuse_word(AT_DISK_OP, 0); /* no such kind */
    refuse_word(AT_DISK_OP, 5);
    refuse_word(AT_DISK_OP + 1, 2); /* no such buffer */
    refuse_word(AT_DISK_OP + 3, 0); /* a block of nothing */
    refuse_word(AT_DISK_OP + 3, 17);
    refuse_word(AT_SECOND_DISK_OP + 1, 3); /* 2 is for what needs no buffer */
    refuse_word(AT_SECOND_DISK_OP, STEP_DISK_READ);
}

/* A row at position 40 in layers that see 20 tokens: 21..40, blocks 1 and 2. */
static int publish_windows(const uint32_t window_table[3], const struct step_copy *copy, bool both,
                           struct step_descriptor *ret_got)
{
    const struct group_limits limits = {
        .ranks = 2,
        .step_bytes_max = step_ring_bytes_max(&(struct step_sizes){1, 1, 3, 1, 0, 2, 0}),
        .blocks_max = both ? 10 : 0,
        .window_tokens = 20,
        .window_blocks_max = 5};
    static const uint32_t id[] = {1}, at[] = {40}, rows[] = {0, 1}, full[] = {7, 8, 9};
    static const uint32_t out[] = {0};
    const struct step_descriptor step = {.kind = STEP_FORWARD,
                                         .number = 1,
                                         .step = {.rows = 1,
                                                  .sequences = 1,
                                                  .ids = id,
                                                  .position = at,
                                                  .row_first = rows,
                                                  .table = both ? full : NULL,
                                                  .window_table = window_table,
                                                  .table_stride = 3,
                                                  .out_row = out,
                                                  .outputs = 1},
                                         .copies = copy,
                                         .copies_count = 1};
    struct pair pair = pair_under(&limits);
    assert_int_equal(step_ring_publish(pair.first, &step), 0);
    int r = step_ring_wait(pair.second, ret_got);
    if (r == 0) {
        assert_int_equal(ret_got->step.table != NULL, both);
        assert_true(!both || ret_got->step.table[2] == 9);
        assert_memory_equal(ret_got->step.window_table, window_table, 3 * sizeof(uint32_t));
        assert_int_equal(ret_got->step.out_row[0], 0);
        assert_memory_equal(ret_got->copies, copy, sizeof(*copy));
    }
    pair_free(&pair);
    return r;
}

static void test_window_tables_are_checked_from_the_first_block_that_is_seen(void **state)
{
    static const uint32_t good[] = {UINT32_MAX, 4, 0}, bad[] = {UINT32_MAX, 5, 0};
    static const uint32_t gone[] = {0, 4, UINT32_MAX};
    static const struct step_copy copy = {4, 0, 3, 1}, past = {4, 5, 3, 1}, odd = {1, 2, 3, 2};
    struct step_descriptor got;
    (void)state;
    for (int both = 0; both < 2; both++) {
        assert_int_equal(publish_windows(good, &copy, both, &got), 0);
        assert_int_equal(publish_windows(bad, &copy, both, &got), -EPROTO);
        assert_int_equal(publish_windows(gone, &copy, both, &got), -EPROTO);
        assert_int_equal(publish_windows(good, &past, both, &got), -EPROTO);
        assert_int_equal(publish_windows(good, &odd, both, &got), -EPROTO);
    }
}

static void test_numbers_when_they_do_not_rise_by_one_are_refused(void **state)
{
    struct pair pair = pair_of(step_ring_bytes_max(&(struct step_sizes){4, 2, 3, 1, 2, 1, 2}));
    struct step_descriptor got, again = sample;
    assert_int_equal(step_ring_publish(pair.first, &sample), 0);
    assert_int_equal(step_ring_wait(pair.second, &got), 0);
    step_ring_done(pair.second);
    again.number = 43;
    assert_int_equal(step_ring_publish(pair.first, &again), 0);
    assert_int_equal(step_ring_wait(pair.second, &got), -EPROTO);
    assert_int_equal(step_ring_publish(pair.first, &again), -ECANCELED); /* the group is over */
    pair_free(&pair);
}

/* --- flow ------------------------------------------------------------------------------------ */

#define STEPS 500u

/* Takes STEPS steps and STEP_STOP; the position tells which step it is. */
static int take_steps(struct group *group, void *user)
{
    for (uint32_t i = 0; i < STEPS; i++) {
        struct step_descriptor got;
        if (step_ring_wait(group, &got) < 0)
            return 1;
        if (got.number != i + 1 || got.step.rows != 1 + i % 3 || got.step.position[0] != i ||
            got.step.ids[0] != i % 10)
            return 2;
        step_ring_done(group);
    }
    struct step_descriptor stop;
    return step_ring_wait(group, &stop) == 0 && stop.kind == STEP_STOP ? 0 : 3;
}

static int publish_steps(struct group *group)
{
    uint32_t blocks[STEPS] = {0};
    for (uint32_t i = 0; i < STEPS; i++) {
        const uint32_t step_ids[] = {i % 10, 0, 0}, positions[] = {i, i + 1, i + 2};
        const uint32_t rows[] = {0, 1 + i % 3};
        const struct step_descriptor step = {.kind = STEP_FORWARD,
                                             .number = i + 1,
                                             .step = {.rows = 1 + i % 3,
                                                      .sequences = 1,
                                                      .ids = step_ids,
                                                      .position = positions,
                                                      .row_first = rows,
                                                      .table = blocks,
                                                      .table_stride = STEPS}};
        int r = step_ring_publish(group, &step);
        if (r < 0)
            return r;
    }
    const struct step_descriptor stop = {.kind = STEP_STOP, .number = STEPS + 1};
    return step_ring_publish(group, &stop);
}

static void test_steps_when_many_arrive_in_order_at_every_follower(void **state)
{
    for (uint32_t count = 1; count <= TP_RANKS_MAX; count += count < 3 ? 1 : 5) {
        const struct group_limits limits = {
            .ranks = count,
            .step_bytes_max = step_ring_bytes_max(&(struct step_sizes){3, 1, STEPS, 0, 0, 1, 0}),
            .ids_max = 10,
            .blocks_max = 1};
        struct forked ranks;
        forked_start(&ranks, &limits, take_steps, NULL);
        assert_int_equal(publish_steps(ranks.group), 0);
        for (uint32_t rank = 1; rank < count; rank++)
            assert_int_equal(forked_wait(&ranks, rank), 0);
        group_free(ranks.group);
    }
}

static void *take_in_a_thread(void *group)
{
    return take_steps(group, NULL) == 0 ? NULL : group;
}

static void test_steps_when_taken_by_threads_arrive_in_order(void **state)
{
    struct pair pair = pair_of(step_ring_bytes_max(&(struct step_sizes){3, 1, STEPS, 0, 0, 1, 0}));
    pthread_t thread;
    void *failed = NULL;
    assert_int_equal(pthread_create(&thread, NULL, take_in_a_thread, pair.second), 0);
    assert_int_equal(publish_steps(pair.first), 0);
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
    pair_free(&pair);
}

static int die_at_once(struct group *group, void *user)
{
    return 9;
}

static void test_publish_when_the_follower_died_is_told(void **state)
{
    const struct group_limits limits = {
        .ranks = 2,
        .step_bytes_max = step_ring_bytes_max(&(struct step_sizes){4, 2, 3, 1, 2, 1, 2})};
    struct forked ranks;
    struct step_descriptor step = sample;
    forked_start(&ranks, &limits, die_at_once, NULL);
    assert_int_equal(forked_wait(&ranks, 1), 9);
    uint64_t begin = clock_ms();
    for (uint32_t i = 0; i < STEP_RING_SLOTS; i++, step.number++)
        assert_int_equal(step_ring_publish(ranks.group, &step), 0); /* room for these */
    assert_int_equal(step_ring_publish(ranks.group, &step), -ECANCELED);
    assert_true(clock_ms() - begin < 8000);
    assert_string_equal(group_aborted(ranks.group), "rank 1 has died (step ring)");
    group_free(ranks.group);
}

static void test_publish_when_the_follower_is_slow_ends_by_the_configured_deadline(void **state)
{
    const struct group_limits limits = {
        .ranks = 2,
        .step_bytes_max = step_ring_bytes_max(&(struct step_sizes){4, 2, 3, 1, 2, 1, 2}),
        .step_deadline_ms = 200};
    struct pair pair = pair_under(&limits);
    struct step_descriptor step = sample;
    uint64_t begin = clock_ms();
    for (uint32_t i = 0; i < STEP_RING_SLOTS; i++, step.number++)
        assert_int_equal(step_ring_publish(pair.first, &step), 0);
    assert_int_equal(step_ring_publish(pair.first, &step), -ETIMEDOUT);
    assert_in_range(clock_ms() - begin, 200, 5000);
    pair_free(&pair);
}

/* Slots 1 and 2 are there; 0 is no adapter. */
static void publish_adapters(const uint32_t *adapters, int expected)
{
    const struct group_limits limits = {
        .ranks = 2,
        .step_bytes_max = step_ring_bytes_max(&(struct step_sizes){4, 2, 3, 1, 2, 1, 2}),
        .ids_max = 10,
        .blocks_max = 10,
        .tier_slots = 4,
        .tier_buffers = 2,
        .adapter_slots = 2,
        .adapter_bytes = 5000};
    struct pair pair = pair_under(&limits);
    struct step_descriptor got = {.number = 0}, with = sample;
    with.step.adapters = adapters;
    assert_int_equal(step_ring_publish(pair.first, &with), 0);
    assert_int_equal(step_ring_wait(pair.second, &got), expected);
    if (expected == 0) {
        assert_memory_equal(got.step.adapters, adapters, 2 * sizeof(*adapters));
        assert_memory_equal(got.tier_ops, tier_ops, sizeof(tier_ops));
        step_ring_done(pair.second);
    }
    char *first = group_adapters(pair.first, 0), *second = group_adapters(pair.first, 1);
    assert_true(second - first >= 5000);
    first[4999] = 1;
    second[4999] = 2;
    assert_int_equal(((char *)group_adapters(pair.second, 0))[4999], 1);
    assert_int_equal(((char *)group_adapters(pair.second, 1))[4999], 2);
    pair_free(&pair);
}

static void test_adapters_when_in_a_step_arrive_or_are_refused(void **state)
{
    static const uint32_t good[2] = {0, 2}, bad[2] = {3, 0};
    struct pair none = pair_of(4096);
    assert_null(group_adapters(none.first, 1));
    pair_free(&none);
    publish_adapters(good, 0);
    publish_adapters(bad, -EPROTO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_adapters_when_in_a_step_arrive_or_are_refused),
        cmocka_unit_test(test_step_when_published_arrives_whole_with_its_table_narrowed),
        cmocka_unit_test(test_step_when_larger_than_a_slot_is_refused),
        cmocka_unit_test(test_bytes_max_when_computed_fits_the_largest_step),
        cmocka_unit_test(test_counts_when_out_of_range_are_refused),
        cmocka_unit_test(test_arrays_when_out_of_range_are_refused),
        cmocka_unit_test(test_window_tables_are_checked_from_the_first_block_that_is_seen),
        cmocka_unit_test(test_numbers_when_they_do_not_rise_by_one_are_refused),
        cmocka_unit_test(test_steps_when_many_arrive_in_order_at_every_follower),
        cmocka_unit_test(test_steps_when_taken_by_threads_arrive_in_order),
        cmocka_unit_test(test_publish_when_the_follower_died_is_told),
        cmocka_unit_test(test_publish_when_the_follower_is_slow_ends_by_the_configured_deadline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
