/* test_batch.c - a plan of two sequences laid end to end; numbers by hand. */
#include <cmocka.h>
#include <string.h>

#include "worker/engine/batch.h"
#include "worker/kv/window_blocks.h"

static struct sequence sequence_of(uint32_t *ids, uint32_t count, uint32_t *table, uint32_t blocks)
{
    struct sequence seq = {.ids = ids, .ids_count = count};
    seq.table.ids = table;
    seq.table.count = blocks;
    return seq;
}

static void test_rows_tables_and_outputs_of_a_mixed_step(void **state)
{
    uint32_t long_ids[40], long_table[3] = {7, 8, 9};
    uint32_t short_ids[18], short_table[2] = {4, 5};
    struct batch batch;
    (void)state;
    for (uint32_t i = 0; i < 40; i++)
        long_ids[i] = 100 + i;
    for (uint32_t i = 0; i < 18; i++)
        short_ids[i] = 200 + i;
    struct sequence decode = sequence_of(short_ids, 18, short_table, 2);
    struct sequence prefill = sequence_of(long_ids, 40, long_table, 3);
    struct plan_entry entries[2] = {{&decode, 17, 1, true, 0, 0}, {&prefill, 16, 16, false, 0, 0}};
    struct plan_copy copies[1] = {{.from = 3, .to = 9, .tokens = 5}};
    const struct step_plan plan = {entries, 2, copies, 1, 17, 0};

    assert_int_equal(batch_prefill_rows(&plan), 16);
    assert_int_equal(batch_init(&batch, 32, 4, 8, NULL), 0);
    batch_build(&batch, &plan);
    const struct step *step = &batch.descriptor.step;
    assert_int_equal(batch.descriptor.kind, STEP_FORWARD);
    assert_int_equal(batch.descriptor.number, 1);
    assert_int_equal(step->rows, 17);
    assert_int_equal(step->sequences, 2);
    assert_int_equal(step->ids[0], 217);
    assert_int_equal(step->position[0], 17);
    assert_int_equal(step->ids[1], 116);
    assert_int_equal(step->ids[16], 131);
    assert_int_equal(step->position[16], 31);
    assert_int_equal(step->row_first[0], 0);
    assert_int_equal(step->row_first[1], 1);
    assert_int_equal(step->row_first[2], 17);
    assert_int_equal(step->table_stride, 2); /* positions up to 31 */
    assert_int_equal(step->table[0], 4);
    assert_int_equal(step->table[1], 5);
    assert_int_equal(step->table[2], 7);
    assert_int_equal(step->table[3], 8);
    assert_int_equal(step->outputs, 1);
    assert_int_equal(step->out_row[0], 0);
    assert_int_equal(batch.out_entry[0], 0);
    assert_int_equal(batch.descriptor.copies_count, 1);
    assert_int_equal(batch.descriptor.copies[0].from, 3);
    assert_int_equal(batch.descriptor.copies[0].tokens, 5);

    entries[1] = (struct plan_entry){&prefill, 32, 8, true, 0, 0}; /* the prompt's end */
    const struct step_plan next = {entries + 1, 1, copies, 0, 8, 0};
    batch_build(&batch, &next);
    assert_int_equal(batch.descriptor.number, 2);
    assert_int_equal(step->table_stride, 3);
    assert_int_equal(step->table[2], 9);
    assert_int_equal(step->out_row[0], 7);
    assert_int_equal(batch.descriptor.copies_count, 0);
    batch_done(&batch);
}

static void test_scored_rows_come_in_order_before_the_sampled_one(void **state)
{
    uint32_t ids[40] = {0}, table[3] = {7, 8, 9}, other_ids[20] = {0}, other_table[2] = {4, 5};
    static const uint32_t rows[] = {0, 1, 2, 8, 9};
    static const bool scored[] = {true, true, false, true, false};
    static const uint32_t places[] = {0, 0, 0, 1, 2};
    struct batch batch;
    (void)state;
    struct sequence scored_seq = sequence_of(ids, 40, table, 3);
    struct sequence late = sequence_of(ids, 40, table, 3);
    struct sequence decode = sequence_of(other_ids, 20, other_table, 2);
    struct plan_entry entries[] = {{&scored_seq, 37, 3, true, 0, 2},
                                   {&late, 0, 6, false, 5, 1}, /* five were told before */
                                   {&decode, 19, 1, true, 0, 0}};
    const struct step_plan plan = {entries, 3, NULL, 0, 10, 3};

    assert_int_equal(batch_init(&batch, 32, 4, 8, NULL), 0);
    batch_build(&batch, &plan);
    assert_int_equal(batch.descriptor.step.outputs, 5);
    for (uint32_t i = 0; i < 5; i++) {
        assert_int_equal(batch.out_row[i], rows[i]);
        assert_int_equal(batch.out_score[i], scored[i]);
        assert_int_equal(batch.out_entry[i], places[i]);
    }
    batch_done(&batch);
}

static void test_warm_up_is_one_sequence_from_position_0(void **state)
{
    struct batch batch;
    (void)state;
    assert_int_equal(batch_init(&batch, 32, 4, 8, NULL), 0);
    batch_build_warm_up(&batch, 20);
    const struct step *step = &batch.descriptor.step;
    assert_int_equal(step->rows, 20);
    assert_int_equal(step->table_stride, 2);
    assert_int_equal(step->position[19], 19);
    assert_int_equal(step->out_row[0], 19);
    assert_int_equal(step->outputs, 1);
    batch_done(&batch);
}

/* Five blocks are taken; those from `first` on have window blocks. */
static struct block_pool *pool_with_windows(uint32_t *ids, uint32_t first)
{
    const struct block_pool_settings settings = {
        .blocks_total = 8, .prefix_caching = true, .window_tokens = 20, .window_blocks = 6};
    struct block_pool *pool = NULL;
    assert_int_equal(block_pool_new(&settings, &pool, NULL), 0);
    assert_int_equal(block_pool_take(pool, 5, ids), 0);
    assert_int_equal(window_take(pool, ids + first, 5 - first), 0);
    return pool;
}

/* Positions 60..: the first row sees 41..60, so blocks 2 and 3. */
static void check_windows(bool all)
{
    uint32_t ids[66] = {0}, table[5];
    struct block_pool *pool = pool_with_windows(table, 2);
    struct sequence seq = sequence_of(ids, 66, table, 5);
    struct plan_entry entries[1] = {{&seq, 60, 6, true, 0, 0}};
    struct plan_copy copies[1] = {
        {.from = 3, .to = 4, .tokens = 5, .window_from = 1, .window_to = 2}};
    const struct step_plan plan = {entries, 1, copies, 1, 6, 0};
    struct batch batch;

    seq.table.window_first = 2;
    seq.table.window_end = 5;
    assert_int_equal(batch_init(&batch, 32, 4, 8, NULL), 0);
    assert_int_equal(batch_add_windows(&batch, pool, all, NULL), 0);
    batch_build(&batch, &plan);
    const struct step *step = &batch.descriptor.step;
    assert_int_equal(step->table_stride, 5);
    assert_int_equal(step->table == NULL, all);
    for (uint32_t i = 0; i < 5; i++) {
        assert_true(all || step->table[i] == table[i]);
        assert_int_equal(step->window_table[i],
                         i < 2 ? BLOCK_NONE : window_of_block(pool, table[i]));
    }
    const struct step_copy *copy = &batch.descriptor.copies[batch.descriptor.copies_count - 1];
    assert_int_equal(batch.descriptor.copies_count, all ? 1 : 2);
    assert_int_equal(copy->window, 1);
    assert_int_equal(copy->from, 1);
    assert_int_equal(copy->to, 2);
    assert_int_equal(copy->tokens, 5);
    batch_done(&batch);
    window_release(pool, table + 2, 3, false);
    block_pool_unref(pool, table, 5);
    block_pool_free(pool);
}

static void test_window_tables_name_blocks_from_the_first_that_is_seen(void **state)
{
    (void)state;
    check_windows(false);
    check_windows(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_window_tables_name_blocks_from_the_first_that_is_seen),
        cmocka_unit_test(test_scored_rows_come_in_order_before_the_sampled_one),
        cmocka_unit_test(test_rows_tables_and_outputs_of_a_mixed_step),
        cmocka_unit_test(test_warm_up_is_one_sequence_from_position_0),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
