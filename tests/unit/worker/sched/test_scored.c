/* test_scored.c - prompts whose log probabilities are wanted: chunks, budget, turn, reuse. */
#include <stdio.h>

#include "tests/unit/worker/sched/fake_engine.h"

static const struct scheduler_settings usual = {
    .sequences_max = 4,
    .step_tokens_max = 512,
    .context_tokens_max = 400,
    .waiting_max = 32,
    .vocab_size = 1000,
};

static uint32_t prompt[400];

static int setup(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 400; i++)
        prompt[i] = i;
    return 0;
}

static struct sequence *add(struct fake_engine *engine, const char *name, uint32_t tokens,
                            bool scored)
{
    struct sequence_params params = fake_params(name, prompt, tokens, 1);
    params.prompt_logprobs = scored;
    return fake_add(engine, &params);
}

static void test_a_scored_prompt_is_cut_and_its_last_row_is_sampled(void **state)
{
    static const struct {
        uint32_t first, rows, scored;
    } steps[] = {{0, 64, 64}, {64, 64, 64}, {128, 22, 21}};
    struct fake_engine engine;
    (void)state;

    fake_engine_init(&engine, 32, true, &usual);
    struct sequence *seq = add(&engine, "a", 150, true);
    for (uint32_t i = 0; i < 3; i++) {
        fake_plan(&engine);
        assert_int_equal(engine.plan.entries_count, 1);
        assert_int_equal(engine.plan.entries[0].first_position, steps[i].first);
        assert_int_equal(engine.plan.entries[0].rows, steps[i].rows);
        assert_int_equal(engine.plan.entries[0].score_rows, steps[i].scored);
        assert_int_equal(engine.plan.entries[0].want_token, i == 2);
        fake_forward(&engine);
        assert_int_equal(fake_commit(&engine), i == 2);
    }
    assert_int_equal(seq->scored, 149);
    scheduler_release(engine.scheduler, seq);
    fake_engine_done(&engine);
}

static void test_it_reuses_nothing_and_leaves_its_blocks_for_others(void **state)
{
    struct fake_engine engine;
    (void)state;

    fake_engine_init(&engine, 32, true, &usual);
    for (uint32_t round = 0; round < 2; round++) {
        struct sequence *seq = add(&engine, "a", 48, true);
        assert_int_equal(fake_step(&engine), 1);
        assert_int_equal(seq->cached_tokens, 0);
        assert_string_equal(seq->miss, "off");
        scheduler_release(engine.scheduler, seq);
    }
    struct sequence *plain = add(&engine, "b", 48, false);
    assert_int_equal(fake_step(&engine), 1);
    assert_int_equal(plain->cached_tokens, 47);
    scheduler_release(engine.scheduler, plain);
    fake_engine_done(&engine);
}

static void test_one_token_has_nothing_to_score(void **state)
{
    struct fake_engine engine;
    (void)state;

    fake_engine_init(&engine, 32, true, &usual);
    struct sequence *seq = add(&engine, "a", 1, true);
    fake_plan(&engine);
    assert_int_equal(engine.plan.scored_rows, 0);
    fake_forward(&engine);
    assert_int_equal(fake_commit(&engine), 1);
    scheduler_release(engine.scheduler, seq);
    fake_engine_done(&engine);
}

/* The budget of scored rows is one for all; those without do not wait for it. */
static void test_several_share_the_budget_and_plain_ones_pass(void **state)
{
    struct fake_engine engine;
    (void)state;

    fake_engine_init(&engine, 64, false, &usual);
    struct sequence *first = add(&engine, "a", 100, true);
    struct sequence *second = add(&engine, "b", 100, true);
    struct sequence *plain = add(&engine, "c", 100, false);
    fake_plan(&engine);
    assert_int_equal(engine.plan.entries_count, 2);
    assert_ptr_equal(engine.plan.entries[0].sequence, first);
    assert_int_equal(engine.plan.entries[0].rows, 64);
    assert_ptr_equal(engine.plan.entries[1].sequence, plain);
    assert_int_equal(engine.plan.entries[1].rows, 100);
    fake_forward(&engine);
    assert_int_equal(fake_commit(&engine), 1);
    scheduler_release(engine.scheduler, plain);

    fake_plan(&engine); /* 36 rows of the first end it, 35 are scored: 29 are left, one block */
    assert_int_equal(engine.plan.entries_count, 2);
    assert_int_equal(engine.plan.entries[0].score_rows, 35);
    assert_ptr_equal(engine.plan.entries[1].sequence, second);
    assert_int_equal(engine.plan.entries[1].rows, 16);
    assert_int_equal(engine.plan.scored_rows, 51);
    fake_forward(&engine);
    assert_int_equal(fake_commit(&engine), 1);
    scheduler_release(engine.scheduler, first);
    while (!scheduler_idle(engine.scheduler))
        (void)fake_step(&engine);
    assert_int_equal(second->scored, 99);
    scheduler_release(engine.scheduler, second);
    fake_engine_done(&engine);
}

static void release_items(struct fake_engine *engine, uint32_t items)
{
    for (uint32_t i = 0; i < items; i++)
        scheduler_release(engine->scheduler, engine->items[i].sequence);
}

/* Plain requests without end must not keep a scored one waiting: eight pass it, then it is next. */
static void test_a_scored_one_is_passed_eight_times_at_most(void **state)
{
    struct fake_engine engine;
    struct scheduler_settings settings = usual;
    (void)state;

    settings.sequences_max = 32;
    fake_engine_init(&engine, 400, false, &settings);
    (void)add(&engine, "a", 399, true); /* seven steps of the budget, */
    (void)add(&engine, "b", 399, true); /* seven more, */
    struct sequence *last = add(&engine, "c", 399, true);
    for (uint32_t step = 0; last->state == SEQ_WAITING; step++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "p%u", step);
        (void)add(&engine, name, 20, false);
        release_items(&engine, fake_step(&engine));
        assert_true(last->bypassed <= 8);
        assert_true(step < 20);
    }
    assert_int_equal(last->bypassed, 8);
    while (!scheduler_idle(engine.scheduler))
        release_items(&engine, fake_step(&engine));
    fake_engine_done(&engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_scored_prompt_is_cut_and_its_last_row_is_sampled),
        cmocka_unit_test(test_it_reuses_nothing_and_leaves_its_blocks_for_others),
        cmocka_unit_test(test_one_token_has_nothing_to_score),
        cmocka_unit_test(test_several_share_the_budget_and_plain_ones_pass),
        cmocka_unit_test(test_a_scored_one_is_passed_eight_times_at_most),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
