/* test_preempt.c - who gives way, what it keeps, and that nobody notices in the tokens. */
#include <cmocka.h>
#include <string.h>

#include "tests/unit/worker/sched/fake_engine.h"

#define IDS_MAX 300

static uint32_t prompt[IDS_MAX];

static const struct scheduler_settings usual = {
    .sequences_max = 4,
    .step_tokens_max = 64,
    .context_tokens_max = 200,
    .waiting_max = 8,
    .vocab_size = 300,
};

static int setup(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < IDS_MAX; i++)
        prompt[i] = i;
    return 0;
}

static struct sequence *add(struct fake_engine *engine, const char *name, uint32_t from,
                            uint32_t count, int32_t priority)
{
    struct sequence_params params = fake_params(name, prompt + from, count, 40);

    params.priority = priority;
    return fake_add(engine, &params);
}

static void assert_output_as_alone(struct fake_engine *engine, const struct sequence *seq)
{
    uint32_t alone[IDS_MAX];
    enum sequence_finish why;
    uint32_t count = fake_alone(&seq->params, seq->ids_max, engine->vocab_size, alone, &why);

    assert_int_equal(seq->finish, why);
    assert_int_equal(sequence_output_tokens(seq), count);
    assert_memory_equal(seq->ids + seq->prompt_tokens, alone, count * sizeof(uint32_t));
}

static void step_until_preempted(struct fake_engine *engine, const struct sequence *seq)
{
    for (uint32_t steps = 0; seq->preemptions == 0; steps++) {
        fake_plan(engine);
        scheduler_check(engine->scheduler);
        if (seq->preemptions > 0)
            return; /* planned, not committed */
        fake_forward(engine);
        (void)fake_commit(engine);
        assert_true(steps < 200);
    }
}

static void run_all(struct fake_engine *engine)
{
    for (uint32_t steps = 0; !scheduler_idle(engine->scheduler); steps++) {
        (void)fake_step(engine);
        scheduler_check(engine->scheduler);
        assert_true(steps < 1000);
    }
}

static void test_newest_gives_way_and_goes_to_the_front(void **state)
{
    struct fake_engine engine;
    (void)state;
    fake_engine_init(&engine, 6, true, &usual);
    struct sequence *a = add(&engine, "a", 0, 30, 0); /* two blocks, four in the end */
    (void)fake_step(&engine);
    struct sequence *c = add(&engine, "c", 200, 80, 0); /* does not fit */
    struct sequence *b = add(&engine, "b", 100, 10, 0); /* passes it; soon two blocks */
    while (b->table.count < 2)
        (void)fake_step(&engine);
    struct sequence *d = add(&engine, "d", 150, 5, 0); /* fits into what b gives back */
    step_until_preempted(&engine, b);
    assert_int_equal(b->state, SEQ_WAITING);
    assert_int_equal(b->table.count, 0);
    assert_ptr_equal(LIST_ENTRY(c->link.prev, struct sequence, link), b); /* before c */
    assert_int_equal(d->state, SEQ_WAITING); /* nobody is admitted instead */
    assert_int_equal(engine.plan.entries_count, 1);
    assert_ptr_equal(engine.plan.entries[0].sequence, a);
    fake_forward(&engine);
    (void)fake_commit(&engine);
    run_all(&engine);
    assert_int_equal(a->preemptions, 0);
    assert_output_as_alone(&engine, a);
    assert_output_as_alone(&engine, b);
    assert_output_as_alone(&engine, c);
    assert_output_as_alone(&engine, d);
    fake_engine_done(&engine);
}

static void test_lowest_priority_gives_way_though_it_is_older(void **state)
{
    struct fake_engine engine;
    (void)state;
    fake_engine_init(&engine, 5, true, &usual);
    struct sequence *old = add(&engine, "old", 0, 30, 1);
    struct sequence *urgent = add(&engine, "urgent", 100, 10, -1);
    (void)fake_step(&engine);
    step_until_preempted(&engine, old);
    assert_int_equal(urgent->preemptions, 0);
    fake_forward(&engine);
    (void)fake_commit(&engine);
    run_all(&engine);
    assert_int_equal(urgent->preemptions, 0);
    assert_output_as_alone(&engine, old);
    assert_output_as_alone(&engine, urgent);
    fake_engine_done(&engine);
}

/* Its blocks stay cached, the head of the last one too: while nobody takes them, coming back costs
 * one row, the newest token. */
static void test_return_computes_only_what_was_evicted(void **state)
{
    struct fake_engine engine;
    (void)state;
    fake_engine_init(&engine, 7, true, &usual);
    struct sequence *a = add(&engine, "a", 0, 30, 0);
    struct sequence *b = add(&engine, "b", 100, 40, 0);
    step_until_preempted(&engine, b);
    uint32_t computed = b->ids_count - 1;
    assert_true(computed > 40);
    fake_forward(&engine);
    (void)fake_commit(&engine);
    scheduler_cancel(engine.scheduler, a, SEQ_FINISH_CANCELLED);
    fake_plan(&engine);
    assert_int_equal(b->state, SEQ_PREFILL);
    assert_int_equal(engine.plan.entries_count, 1);
    /* a took one block: the oldest of b's, which is the last in its chain */
    assert_true(engine.plan.rows <= 1 + BLOCK_TOKENS);
    assert_true(engine.plan.entries[0].want_token);
    assert_int_equal(engine.plan.entries[0].first_position + engine.plan.rows, b->ids_count);
    fake_forward(&engine);
    (void)fake_commit(&engine);
    run_all(&engine);
    assert_output_as_alone(&engine, b);
    assert_int_equal(b->cached_tokens, 0); /* the first admission's, not the return's */
    fake_engine_done(&engine);
}

static void test_last_in_rank_preempts_itself(void **state)
{
    struct fake_engine engine;
    (void)state;
    fake_engine_init(&engine, 4, false, &usual);
    struct sequence *a = add(&engine, "a", 0, 17, 0);   /* two blocks with room for 15 */
    struct sequence *b = add(&engine, "b", 100, 14, 0); /* one, soon two */
    step_until_preempted(&engine, b);
    assert_int_equal(a->preemptions, 0);
    assert_int_equal(engine.plan.entries_count, 1);
    fake_forward(&engine);
    (void)fake_commit(&engine);
    run_all(&engine);
    assert_output_as_alone(&engine, a);
    assert_output_as_alone(&engine, b);
    struct scheduler_counts counts;
    scheduler_counts(engine.scheduler, &counts);
    assert_int_equal(counts.preemptions_total, b->preemptions);
    assert_int_equal(counts.admitted_total, 2); /* a return is not an admission */
    assert_int_equal(counts.generated_tokens_total, 80);
    fake_engine_done(&engine);
}

static void test_prefill_under_way_gives_way_too(void **state)
{
    struct fake_engine engine;
    struct scheduler_settings settings = usual;
    (void)state;
    settings.step_tokens_max = 17;
    fake_engine_init(&engine, 8, true, &settings);
    struct sequence *a = add(&engine, "a", 0, 12, 0);
    (void)fake_step(&engine);
    struct sequence *b = add(&engine, "b", 100, 90, 0); /* six blocks; one stays free for a */
    step_until_preempted(&engine, b);
    assert_int_equal(a->preemptions, 0);
    fake_forward(&engine);
    (void)fake_commit(&engine);
    run_all(&engine);
    assert_output_as_alone(&engine, a);
    assert_output_as_alone(&engine, b);
    fake_engine_done(&engine);
}

static void test_cancel_of_a_preempted_one_ends_it(void **state)
{
    struct fake_engine engine;
    (void)state;
    fake_engine_init(&engine, 5, true, &usual);
    struct sequence *a = add(&engine, "a", 0, 30, 0);
    struct sequence *b = add(&engine, "b", 100, 10, 0);
    step_until_preempted(&engine, b);
    scheduler_cancel(engine.scheduler, b, SEQ_FINISH_CANCELLED);
    fake_forward(&engine);
    assert_int_equal(fake_commit(&engine), 2);
    assert_ptr_equal(engine.items[1].sequence, b);
    assert_int_equal(engine.items[1].finish, SEQ_FINISH_CANCELLED);
    run_all(&engine);
    assert_output_as_alone(&engine, a);
    fake_engine_done(&engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_newest_gives_way_and_goes_to_the_front),
        cmocka_unit_test(test_lowest_priority_gives_way_though_it_is_older),
        cmocka_unit_test(test_return_computes_only_what_was_evicted),
        cmocka_unit_test(test_last_in_rank_preempts_itself),
        cmocka_unit_test(test_prefill_under_way_gives_way_too),
        cmocka_unit_test(test_cancel_of_a_preempted_one_ends_it),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
