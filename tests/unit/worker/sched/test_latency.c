/* test_latency.c - gaps between the tokens of running streams, in simulated time.
 *
 * A step takes a fixed time and more for each row, as on a real backend; the clock is the engine's
 * own. */
#include <cmocka.h>
#include <stdio.h>

#include "tests/unit/worker/sched/fake_engine.h"

#define STREAMS 8u
#define BUDGET 512u
#define PROMPT_TOKENS 4000u
#define STEP_NS 2000000u
#define ROW_NS 50000u
#define ROW_POSITIONS 1000u /* attention to so many costs as much again */
#define FULL_STEP_NS (STEP_NS + BUDGET * ROW_NS)

static const struct scheduler_settings usual = {
    .sequences_max = 32,
    .step_tokens_max = BUDGET,
    .context_tokens_max = 8192,
    .waiting_max = 32,
    .vocab_size = 100000,
};

struct watch {
    uint64_t last_ns[STREAMS], gap_max_ns;
    uint32_t row_positions; /* 0: context costs nothing */
};

static struct sequence *add(struct fake_engine *engine, uint32_t number, uint32_t tokens,
                            uint32_t answer_tokens)
{
    static uint32_t ids[PROMPT_TOKENS];
    char name[16];

    for (uint32_t i = 0; i < tokens; i++)
        ids[i] = number * 5000 + i;
    (void)snprintf(name, sizeof(name), "r%u", number);
    struct sequence_params params = fake_params(name, ids, tokens, answer_tokens);
    params.owner = (void *)(uintptr_t)(number + 1);
    return fake_add(engine, &params);
}

/* Every stream that has begun has its row in this step, before any row of a prompt. */
static void assert_streams_are_in(const struct fake_engine *engine, const struct watch *watch)
{
    uint32_t rows = 0, begun = 0;
    for (uint32_t i = 0; i < STREAMS; i++)
        begun += watch->last_ns[i] != 0;
    for (uint32_t i = 0; i < engine->plan.entries_count; i++) {
        const struct plan_entry *entry = &engine->plan.entries[i];
        uintptr_t number = (uintptr_t)entry->sequence->params.owner - 1;
        if (number >= STREAMS || watch->last_ns[number] == 0)
            continue;
        assert_int_equal(i, rows); /* decodes first */
        assert_int_equal(entry->rows, 1);
        assert_true(entry->want_token);
        rows++;
    }
    assert_int_equal(rows, begun);
}

/* One step; streams are requests 0 to STREAMS - 1. */
static void step(struct fake_engine *engine, struct watch *watch)
{
    fake_plan(engine);
    assert_streams_are_in(engine, watch);
    engine->now_ns += STEP_NS + (uint64_t)engine->plan.rows * ROW_NS;
    for (uint32_t i = 0; watch->row_positions > 0 && i < engine->plan.entries_count; i++) {
        const struct plan_entry *entry = &engine->plan.entries[i];
        uint64_t middle = entry->first_position + entry->rows / 2;
        engine->now_ns += entry->rows * middle * ROW_NS / watch->row_positions;
    }
    fake_forward(engine);
    uint32_t count = fake_commit(engine);
    for (uint32_t i = 0; i < count; i++) {
        const struct commit_item *item = &engine->items[i];
        uintptr_t number = (uintptr_t)item->sequence->params.owner - 1;
        if (!item->has_token || number >= STREAMS)
            continue;
        uint64_t gap = engine->now_ns - watch->last_ns[number];
        if (watch->last_ns[number] != 0 && gap > watch->gap_max_ns)
            watch->gap_max_ns = gap;
        watch->last_ns[number] = engine->now_ns;
    }
}

/* `prompts` of 4,000 tokens at once beside eight streams: steps until the last one has a token. */
static uint32_t steps_of_long_prompts(const struct scheduler_settings *settings, uint32_t prompts,
                                      uint64_t *ret_gap_max_ns)
{
    struct fake_engine engine;
    struct watch watch = {.row_positions = settings->row_positions};
    struct sequence *last = NULL;
    uint32_t steps = 0;

    fake_engine_init(&engine, 2000, true, settings);
    for (uint32_t i = 0; i < STREAMS; i++)
        (void)add(&engine, i, 100, 500);
    for (uint32_t i = 0; i < 20; i++)
        step(&engine, &watch);
    assert_in_range(watch.gap_max_ns, 1, FULL_STEP_NS);
    for (uint32_t i = 0; i < prompts; i++)
        last = add(&engine, STREAMS + i, PROMPT_TOKENS, 3);
    for (; sequence_output_tokens(last) == 0; steps++)
        step(&engine, &watch);
    *ret_gap_max_ns = watch.gap_max_ns;
    fake_engine_done(&engine);
    return steps;
}

static void test_streams_do_not_wait_for_a_long_prompt(void **state)
{
    uint64_t gap_max_ns;
    (void)state;
    /* 496 rows a step beside eight decodes: 4000 / 496 = 8.06 */
    assert_int_equal(steps_of_long_prompts(&usual, 1, &gap_max_ns), 9);
    assert_in_range(gap_max_ns, FULL_STEP_NS / 2, 2 * FULL_STEP_NS); /* what was promised */
    assert_in_range(gap_max_ns, FULL_STEP_NS / 2, FULL_STEP_NS + 1); /* and what is kept */
}

static void test_many_long_prompts_share_the_budget_in_order(void **state)
{
    uint64_t gap_max_ns;
    (void)state;
    uint32_t steps = steps_of_long_prompts(&usual, 5, &gap_max_ns);
    assert_in_range(steps, 40, 45); /* 20,000 rows, 490 to 504 a step */
    assert_in_range(gap_max_ns, FULL_STEP_NS / 2, FULL_STEP_NS + 1);
}

static void test_prompts_beside_streams_take_the_time_they_may(void **state)
{
    /* 2,048 rows would take 104 ms. In 20 ms go, with 2 ms of a step shared among its rows, about
     * 20 / 0.055 = 360 rows: 4000 / 360 = 11.1 steps, and one more for the first of 32. */
    struct scheduler_settings settings = usual;
    uint64_t gap_max_ns;
    (void)state;
    settings.step_tokens_max = 2048;
    settings.step_ms_max = 20;
    assert_in_range(steps_of_long_prompts(&settings, 1, &gap_max_ns), 11, 13);
    assert_in_range(gap_max_ns, 18000000, 22000000);
    settings.step_ms_max = 0;
    assert_int_equal(steps_of_long_prompts(&settings, 1, &gap_max_ns), 2);
}

static void test_rows_deep_in_a_prompt_take_the_time_they_may(void **state)
{
    /* At position p a row takes 0.05 (1 + p / 1000) ms: the prompt 4000 x 0.05 x 3 = 600 ms. 20 ms
     * are 36 rows at its start (2 ms are the step's own, 8 rows the streams'), 8 at its end. */
    struct scheduler_settings settings = usual;
    uint64_t gap_max_ns;
    (void)state;
    settings.step_tokens_max = 2048;
    settings.step_ms_max = 20;
    settings.row_positions = ROW_POSITIONS;
    assert_in_range(steps_of_long_prompts(&settings, 1, &gap_max_ns), 30, 36);
    assert_in_range(gap_max_ns, 18000000, 23000000);
}

/* Four prompts of 80 tokens come at once, to an idle engine that knows what a row takes: how long
 * each waits for its first token. */
static void wait_together(uint32_t step_ms_max, uint64_t ret_waits_ns[4])
{
    struct scheduler_settings settings = usual;
    struct fake_engine engine;
    struct watch watch = {.row_positions = 0};
    struct sequence *seqs[4];
    uint32_t left = 4;

    settings.step_ms_max = step_ms_max;
    fake_engine_init(&engine, 2000, true, &settings);
    (void)add(&engine, STREAMS, 320, 1);
    step(&engine, &watch);
    uint64_t start_ns = engine.now_ns;
    for (uint32_t i = 0; i < 4; i++) {
        seqs[i] = add(&engine, STREAMS + 1 + i, 80, 50);
        ret_waits_ns[i] = 0;
    }
    while (left > 0) {
        step(&engine, &watch);
        for (uint32_t i = 0; i < 4; i++) {
            if (ret_waits_ns[i] > 0 || sequence_output_tokens(seqs[i]) == 0)
                continue;
            ret_waits_ns[i] = engine.now_ns - start_ns;
            left--;
        }
    }
    fake_engine_done(&engine);
}

static void test_prompts_that_come_together_are_answered_one_by_one(void **state)
{
    uint64_t waits_ns[4];
    (void)state;
    wait_together(0, waits_ns); /* no limit: all four by one step, 2 + 320 x 0.05 ms */
    for (uint32_t i = 0; i < 4; i++)
        assert_in_range(waits_ns[i], 18000000, 18000001);
    /* 6 ms are about 106 rows: 80 and 24 of the next, 56 and 48, ... and the decodes of those that
     * were answered. Four steps, 2 ms each, in place of one. */
    wait_together(6, waits_ns);
    print_message("first tokens after %.1f %.1f %.1f %.1f ms\n", waits_ns[0] / 1e6,
                  waits_ns[1] / 1e6, waits_ns[2] / 1e6, waits_ns[3] / 1e6);
    assert_in_range(waits_ns[0], 6000000, 8000000);
    assert_in_range(waits_ns[1], waits_ns[0] + 4000000, 16000000);
    assert_in_range(waits_ns[2], waits_ns[1] + 4000000, 22000000);
    assert_in_range(waits_ns[3], waits_ns[2], 26000000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_streams_do_not_wait_for_a_long_prompt),
        cmocka_unit_test(test_many_long_prompts_share_the_budget_in_order),
        cmocka_unit_test(test_prompts_beside_streams_take_the_time_they_may),
        cmocka_unit_test(test_rows_deep_in_a_prompt_take_the_time_they_may),
        cmocka_unit_test(test_prompts_that_come_together_are_answered_one_by_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
