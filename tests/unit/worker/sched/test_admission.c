/* test_admission.c - reuse, hold, fit, bypass, priority and miss words, one at a time. */
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit/worker/sched/fake_engine.h"

#define PROMPT_MAX 1024

static uint32_t prompt[PROMPT_MAX]; /* id i is i modulo 1000 */

static const struct scheduler_settings usual = {
    .sequences_max = 16,
    .step_tokens_max = 64,
    .context_tokens_max = 600,
    .waiting_max = 32,
    .vocab_size = 1000,
};

static int setup(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < PROMPT_MAX; i++)
        prompt[i] = i % 1000;
    return 0;
}

static struct sequence *add(struct fake_engine *engine, const char *name, const uint32_t *ids,
                            uint32_t count, uint32_t tokens_max)
{
    struct sequence_params params = fake_params(name, ids, count, tokens_max);

    return fake_add(engine, &params);
}

/* Run until it is finished; its output must be that of its run alone. */
static void finish(struct fake_engine *engine, struct sequence *seq)
{
    uint32_t alone[PROMPT_MAX];
    enum sequence_finish why;

    for (uint32_t steps = 0; seq->state != SEQ_FINISHED; steps++) {
        (void)fake_step(engine);
        scheduler_check(engine->scheduler);
        assert_true(steps < 1000);
    }
    uint32_t count = fake_alone(&seq->params, seq->ids_max, engine->vocab_size, alone, &why);
    assert_int_equal(sequence_output_tokens(seq), count);
    assert_memory_equal(seq->ids + seq->prompt_tokens, alone, count * sizeof(uint32_t));
    scheduler_cancel(engine->scheduler, seq, SEQ_FINISH_CANCELLED); /* too late: no effect */
    assert_int_equal(seq->finish, why);
}

static void run_once(struct fake_engine *engine, const char *name, const uint32_t *ids,
                     uint32_t count, uint32_t tokens_max)
{
    struct sequence *seq = add(engine, name, ids, count, tokens_max);

    finish(engine, seq);
    scheduler_release(engine->scheduler, seq);
}

static void test_exact_repeat_computes_one_token(void **state)
{
    struct fake_engine engine;
    (void)state;
    fake_engine_init(&engine, 20, true, &usual);
    run_once(&engine, "a", prompt, 48, 1);
    struct sequence *again = add(&engine, "b", prompt, 48, 1);
    fake_plan(&engine);
    assert_int_equal(engine.plan.rows, 1);
    assert_int_equal(engine.plan.entries[0].first_position, 47);
    assert_int_equal(engine.plan.copies_count, 1);
    assert_int_equal(engine.plan.copies[0].tokens, 15);
    assert_int_equal(engine.plan.copies[0].to, again->table.ids[2]);
    fake_forward(&engine);
    (void)fake_commit(&engine);
    assert_int_equal(again->cached_tokens, 47);
    assert_string_equal(again->miss, "");
    finish(&engine, again);
    fake_engine_done(&engine);
}

/* Turn N costs only turn N: what was computed in turn one, answer included, is all reused, whatever
 * the length; only the answer's last token has no KV yet. */
static void test_next_turn_computes_its_own_tokens_only(void **state)
{
    (void)state;
    for (uint32_t length = 30; length < 50; length++) {
        struct fake_engine engine;
        uint32_t ids[PROMPT_MAX];
        fake_engine_init(&engine, 20, true, &usual);
        struct sequence *first = add(&engine, "a", prompt, length, 21);
        finish(&engine, first);
        memcpy(ids, first->ids, first->ids_count * sizeof(*ids));
        memcpy(ids + first->ids_count, prompt + 500, 10 * sizeof(*ids));
        struct sequence *second = add(&engine, "b", ids, first->ids_count + 10, 5);
        fake_plan(&engine);
        assert_int_equal(second->cached_tokens, first->ids_count - 1);
        assert_int_equal(engine.plan.rows, 11);
        assert_string_equal(second->miss, "");
        fake_forward(&engine);
        (void)fake_commit(&engine);
        finish(&engine, second);
        fake_engine_done(&engine);
    }
}

/* Turn 1 leaves a tail, turn 2 copies it and fills its place: nobody keeps the tail. */
static void test_tail_that_was_copied_and_filled_is_not_kept(void **state)
{
    struct fake_engine engine;
    struct block_counts counts;
    uint32_t ids[PROMPT_MAX];
    (void)state;
    fake_engine_init(&engine, 20, true, &usual);
    struct sequence *first = add(&engine, "a", prompt, 36, 5); /* 40 computed: two blocks and 8 */
    finish(&engine, first);
    block_pool_counts(engine.pool, &counts);
    assert_int_equal(counts.cached, 3);
    memcpy(ids, first->ids, first->ids_count * sizeof(*ids));
    memcpy(ids + first->ids_count, prompt + 500, 39 * sizeof(*ids));
    run_once(&engine, "b", ids, first->ids_count + 39, 1); /* 80: five blocks */
    block_pool_counts(engine.pool, &counts);
    assert_int_equal(counts.cached, 5);
    assert_int_equal(counts.evictions_total, 0);
    fake_engine_done(&engine);
}

static void test_reuse_can_be_refused_by_request_and_by_salt(void **state)
{
    struct fake_engine engine;
    (void)state;
    fake_engine_init(&engine, 20, true, &usual);
    run_once(&engine, "a", prompt, 40, 1);
    struct sequence_params off = fake_params("b", prompt, 40, 1);
    struct sequence_params salted = fake_params("c", prompt, 40, 1);
    off.no_prefix_reuse = true;
    salted.root.high++;
    struct sequence *b = fake_add(&engine, &off);
    struct sequence *c = fake_add(&engine, &salted);
    finish(&engine, b);
    finish(&engine, c);
    assert_int_equal(b->cached_tokens, 0);
    assert_string_equal(b->miss, "off");
    assert_int_equal(c->cached_tokens, 0);
    assert_string_equal(c->miss, "first");
    fake_engine_done(&engine);
}

static uint32_t deferred(const struct fake_engine *engine)
{
    struct scheduler_counts counts;
    scheduler_counts(engine->scheduler, &counts);
    return counts.waiting_deferred;
}

static void test_same_prefix_is_computed_once(void **state)
{
    struct fake_engine engine;
    uint32_t other[150];
    (void)state;
    fake_engine_init(&engine, 60, true, &usual);
    memcpy(other, prompt, sizeof(other));
    other[130] = 7; /* 128 tokens in common, and two more within the block */
    struct sequence *a = add(&engine, "a", prompt, 150, 5);
    struct sequence *b = add(&engine, "b", other, 150, 5);
    struct sequence *stranger = add(&engine, "c", prompt + 300, 4, 5);
    (void)fake_step(&engine);
    assert_int_equal(a->state, SEQ_PREFILL);
    assert_int_equal(b->state, SEQ_WAITING);
    assert_int_equal(deferred(&engine), 1);
    (void)fake_step(&engine);
    assert_int_equal(b->state, SEQ_WAITING); /* 128 computed, but not yet looked up */
    (void)fake_step(&engine);
    assert_int_not_equal(b->state, SEQ_WAITING);
    assert_int_equal(deferred(&engine), 0);
    assert_int_not_equal(stranger->state, SEQ_WAITING); /* it had not to wait for a hold */
    finish(&engine, b);
    assert_int_equal(b->cached_tokens, 128);
    assert_int_equal(b->bypassed, 0);
    finish(&engine, a);
    fake_engine_done(&engine);
}

static void test_hold_ends_when_the_computing_one_is_cancelled(void **state)
{
    struct fake_engine engine;
    (void)state;
    fake_engine_init(&engine, 60, true, &usual);
    struct sequence *a = add(&engine, "a", prompt, 150, 5);
    struct sequence *b = add(&engine, "b", prompt, 150, 5);
    (void)fake_step(&engine);
    scheduler_cancel(engine.scheduler, a, SEQ_FINISH_CANCELLED);
    (void)fake_step(&engine);
    assert_int_equal(b->state, SEQ_PREFILL);
    assert_int_equal(b->cached_tokens, 64); /* what a had computed */
    finish(&engine, b);
    fake_engine_done(&engine);
}

static void test_hold_is_bounded(void **state)
{
    (void)state;
    for (uint32_t held = 511; held <= 512; held++) {
        struct fake_engine engine;
        fake_engine_init(&engine, 60, true, &usual);
        (void)add(&engine, "a", prompt, 20, 5);
        struct sequence *b = add(&engine, "b", prompt, 40, 5);
        b->held_plans = held;
        (void)fake_step(&engine);
        assert_int_equal(b->state, held < 512 ? SEQ_WAITING : SEQ_DECODE);
        assert_int_equal(b->held_plans, 512);
        finish(&engine, b);
        assert_int_equal(b->cached_tokens, held < 512 ? 20 : 0);
        fake_engine_done(&engine);
    }
}

/* n = 4: the prompt's full blocks are the same ones, of the last one each has its copy, and of the
 * prompt three tokens are computed again: the last, for each one's own logits. */
static void test_parallel_samples_compute_their_prompt_once(void **state)
{
    struct fake_engine engine;
    struct sequence *samples[4];
    (void)state;
    fake_engine_init(&engine, 60, true, &usual);
    for (uint32_t i = 0; i < 4; i++) {
        struct sequence_params params = fake_params((char[]){(char)('a' + i), 0}, prompt, 40, 30);
        params.sampling.seed = i;
        samples[i] = fake_add(&engine, &params);
    }
    fake_plan(&engine);
    assert_int_equal(engine.plan.rows, 40);
    fake_forward(&engine);
    (void)fake_commit(&engine);
    fake_plan(&engine);
    assert_int_equal(engine.plan.rows, 4);
    assert_int_equal(engine.plan.copies_count, 3);
    for (uint32_t i = 1; i < 4; i++) {
        assert_int_equal(samples[i]->cached_tokens, 39);
        assert_memory_equal(samples[i]->table.ids, samples[0]->table.ids, 2 * sizeof(uint32_t));
        assert_int_equal(engine.plan.copies[i - 1].from, samples[0]->table.ids[2]);
        assert_int_equal(engine.plan.copies[i - 1].to, samples[i]->table.ids[2]);
        assert_int_equal(engine.plan.copies[i - 1].tokens, 7);
    }
    scheduler_check(engine.scheduler);
    fake_forward(&engine);
    (void)fake_commit(&engine);
    for (uint32_t i = 0; i < 4; i++)
        finish(&engine, samples[i]);
    fake_engine_done(&engine);
}

/* Another salt, another token, or one that is not computed yet: nothing is copied from it. */
static void test_head_of_a_running_block_is_copied_only_where_it_is_ours(void **state)
{
    struct fake_engine engine;
    uint32_t other[40];
    (void)state;
    fake_engine_init(&engine, 60, true, &usual);
    struct sequence *a = add(&engine, "a", prompt, 40, 30);
    (void)fake_step(&engine);
    struct sequence_params salted = fake_params("b", prompt, 40, 1);
    salted.root.high++;
    struct sequence *b = fake_add(&engine, &salted);
    memcpy(other, prompt, sizeof(other));
    other[35] = 7;
    struct sequence *c = add(&engine, "c", other, 40, 1);
    finish(&engine, b);
    assert_int_equal(b->cached_tokens, 0);
    finish(&engine, c);
    assert_int_equal(c->cached_tokens, 35);
    finish(&engine, a);
    fake_engine_done(&engine);
}

static void test_held_one_is_passed_by_eight_at_most(void **state)
{
    struct scheduler_settings settings = usual;
    struct sequence *strangers[12];
    struct fake_engine engine;
    (void)state;
    settings.step_tokens_max = 71; /* 64 of a long prompt leave 7 */
    settings.sequences_max = 32;
    fake_engine_init(&engine, 80, true, &settings);
    struct sequence *a = add(&engine, "a", prompt, 599, 1); /* ten steps */
    struct sequence *b = add(&engine, "b", prompt, 599, 1);
    for (uint32_t i = 0; i < 12; i++)
        strangers[i] = add(&engine, (char[]){(char)('c' + i), 0}, prompt + 600 + i, 4, 1);
    for (uint32_t steps = 0; b->state == SEQ_WAITING; steps++) {
        assert_true(steps < 12);
        (void)fake_step(&engine);
    }
    assert_int_equal(b->bypassed, 8);
    assert_int_equal(b->cached_tokens, 592 + 6);
    assert_int_not_equal(strangers[7]->scheduled_ns, 0);
    for (uint32_t i = 8; i < 12; i++)
        assert_true(strangers[i]->scheduled_ns == 0 ||
                    strangers[i]->scheduled_ns >= b->scheduled_ns);
    finish(&engine, strangers[11]);
    assert_int_equal(a->state, SEQ_FINISHED);
    fake_engine_done(&engine);
}

/* Steps of 20 tokens: more than five decodes would leave too little for a prompt's next block. */
static void test_small_steps_starve_neither_decodes_nor_prompts(void **state)
{
    struct scheduler_settings settings = usual;
    struct scheduler_counts counts;
    struct fake_engine engine;
    (void)state;
    settings.step_tokens_max = 20;
    fake_engine_init(&engine, 80, true, &settings);
    for (uint32_t i = 0; i < 8; i++)
        (void)add(&engine, (char[]){(char)('a' + i), 0}, prompt + 20 * i, 4, 300);
    for (uint32_t i = 0; i < 8; i++)
        (void)fake_step(&engine);
    scheduler_counts(engine.scheduler, &counts);
    assert_int_equal(counts.running, 5);
    scheduler_cancel(engine.scheduler, scheduler_find(engine.scheduler, "a"), SEQ_FINISH_CANCELLED);
    struct sequence_params urgent = fake_params("z", prompt + 400, 100, 1);
    urgent.priority = -1;
    struct sequence *z = fake_add(&engine, &urgent);
    for (uint32_t i = 0; i < 7; i++) { /* 16 a step beside four decodes */
        fake_plan(&engine);
        assert_int_equal(engine.plan.entries_count, 5);
        fake_forward(&engine);
        (void)fake_commit(&engine);
    }
    assert_int_equal(z->state, SEQ_FINISHED);
    fake_engine_done(&engine);
}

static void test_prompt_that_can_never_fit_is_refused_with_numbers(void **state)
{
    struct fake_engine engine;
    struct sequence *seq = NULL;
    struct errmsg err;
    (void)state;
    fake_engine_init(&engine, 4, true, &usual);
    struct sequence_params params = fake_params("a", prompt, 49, 1); /* 4 blocks and one more */
    assert_int_equal(scheduler_add(engine.scheduler, &params, &seq, &err), -E2BIG);
    assert_non_null(strstr(err.text, "49 tokens"));
    assert_non_null(strstr(err.text, "max_model_len is 600"));
    assert_non_null(strstr(err.text, "64 tokens in 4 blocks"));
    params.prompt_tokens = 48;
    assert_int_equal(scheduler_add(engine.scheduler, &params, &seq, &err), 0);
    fake_engine_done(&engine);
    fake_engine_init(&engine, 100, true, &usual);
    params.prompt_tokens = 600; /* no room for a token of output */
    assert_int_equal(scheduler_add(engine.scheduler, &params, &seq, &err), -E2BIG);
    params.prompt_tokens = 599;
    assert_int_equal(scheduler_add(engine.scheduler, &params, &seq, &err), 0);
    fake_engine_done(&engine);
}

static void test_whole_prompt_and_the_watermark_must_fit(void **state)
{
    (void)state;
    for (uint32_t blocks = 7; blocks <= 8; blocks++) { /* of ten, two are taken, one stays free */
        struct fake_engine engine;
        fake_engine_init(&engine, 10, true, &usual);
        struct sequence *a = add(&engine, "a", prompt + 500, 20, 9);
        (void)fake_step(&engine);
        struct sequence *b = add(&engine, "b", prompt, blocks * 16, 1);
        (void)fake_step(&engine);
        assert_int_equal(b->state, blocks == 7 ? SEQ_PREFILL : SEQ_WAITING);
        assert_int_equal(b->table.count, blocks == 7 ? 7 : 0);
        assert_int_equal(deferred(&engine), 0); /* it waits for room */
        finish(&engine, a);
        (void)fake_step(&engine); /* alone it needs no watermark */
        assert_int_not_equal(b->state, SEQ_WAITING);
        finish(&engine, b);
        fake_engine_done(&engine);
    }
}

static void test_found_blocks_do_not_count_as_needed_twice(void **state)
{
    struct fake_engine engine;
    (void)state;
    fake_engine_init(&engine, 10, true, &usual);
    struct sequence *a = add(&engine, "a", prompt, 16 * 6, 40); /* 7 blocks with its answer */
    for (uint32_t i = 0; i < 4; i++)
        (void)fake_step(&engine);
    assert_int_equal(a->table.count, 7);
    struct sequence *b = add(&engine, "b", prompt, 16 * 6 + 5, 4); /* six shared, one new */
    (void)fake_step(&engine);
    assert_int_equal(b->state, SEQ_DECODE);
    assert_int_equal(b->cached_tokens, 96);
    finish(&engine, b);
    finish(&engine, a);
    fake_engine_done(&engine);
}

/* Of eight blocks two are running, two full ones and a tail are cached: five blocks for b leave the
 * watermark only if the tail itself may be taken. */
static void test_copy_is_dropped_where_only_its_source_is_in_the_way(void **state)
{
    (void)state;
    for (uint32_t blocks = 4; blocks <= 5; blocks++) {
        struct fake_engine engine;
        fake_engine_init(&engine, 8, true, &usual);
        run_once(&engine, "x", prompt, 40, 1);
        struct sequence *a = add(&engine, "a", prompt + 500, 20, 9);
        (void)fake_step(&engine);
        struct sequence *b = add(&engine, "b", prompt, blocks * 16, 1);
        fake_plan(&engine);
        assert_int_equal(b->state, SEQ_PREFILL);
        assert_int_equal(engine.plan.copies_count, blocks == 4 ? 1 : 0);
        assert_int_equal(b->cached_tokens, blocks == 4 ? 40 : 32);
        fake_forward(&engine);
        (void)fake_commit(&engine);
        finish(&engine, b);
        finish(&engine, a);
        fake_engine_done(&engine);
    }
}

static void test_at_most_eight_pass_one_that_does_not_fit(void **state)
{
    struct fake_engine engine;
    struct sequence *small[12];
    uint32_t admitted = 0;
    (void)state;
    fake_engine_init(&engine, 40, false, &usual);
    struct sequence *a = add(&engine, "a", prompt, 10 * 16, 3);
    (void)fake_step(&engine);
    struct sequence *big = add(&engine, "big", prompt, 35 * 16, 1);
    for (uint32_t i = 0; i < 12; i++) {
        char name[8];
        (void)snprintf(name, sizeof(name), "s%u", i);
        small[i] = add(&engine, name, prompt + i, 5, 30);
    }
    for (uint32_t i = 0; i < 5; i++)
        (void)fake_step(&engine);
    for (uint32_t i = 0; i < 12; i++)
        admitted += small[i]->state != SEQ_WAITING;
    assert_int_equal(admitted, 8);
    assert_int_equal(big->state, SEQ_WAITING);
    assert_int_equal(big->bypassed, 8);
    assert_int_equal(small[8]->state, SEQ_WAITING); /* in order */
    finish(&engine, big);
    for (uint32_t i = 0; i < 12; i++)
        finish(&engine, small[i]);
    assert_int_equal(a->state, SEQ_FINISHED);
    fake_engine_done(&engine);
}

static void test_lower_priority_number_is_admitted_first(void **state)
{
    struct scheduler_settings settings = usual;
    struct fake_engine engine;
    struct sequence *seqs[4];
    const int32_t priorities[] = {1, 0, -5, 0};
    (void)state;
    settings.sequences_max = 1;
    fake_engine_init(&engine, 40, true, &settings);
    for (uint32_t i = 0; i < 4; i++) {
        char name[8];
        (void)snprintf(name, sizeof(name), "p%u", i);
        struct sequence_params params = fake_params(name, prompt + 50 * i, 20, 2);
        params.priority = priorities[i];
        seqs[i] = fake_add(&engine, &params);
    }
    for (uint32_t i = 0; i < 4; i++) {
        static const uint32_t order[] = {2, 1, 3, 0};
        (void)fake_step(&engine);
        assert_int_equal(seqs[order[i]]->state, SEQ_DECODE);
        (void)fake_step(&engine);
        assert_int_equal(seqs[order[i]]->state, SEQ_FINISHED);
    }
    fake_engine_done(&engine);
}

static void test_miss_says_why_in_one_word(void **state)
{
    struct fake_engine engine;
    uint32_t ids[64];
    (void)state;
    fake_engine_init(&engine, 12, true, &usual);
    struct sequence *a = add(&engine, "a", prompt, 64, 1);
    finish(&engine, a);
    assert_string_equal(a->miss, "first");
    memcpy(ids, prompt, sizeof(ids));
    ids[40] = 999; /* in the third block */
    struct sequence *b = add(&engine, "b", ids, 64, 1);
    finish(&engine, b);
    assert_string_equal(b->miss, "diverged");
    assert_int_equal(b->cached_tokens, 40);
    ids[32] = 998; /* no head of the third block at all */
    struct sequence *c = add(&engine, "c", ids, 64, 1);
    finish(&engine, c);
    assert_string_equal(c->miss, "diverged");
    assert_int_equal(c->cached_tokens, 32);
    run_once(&engine, "d", prompt + 200, 11 * 16, 1); /* evicts nearly all */
    struct sequence *e = add(&engine, "e", prompt, 64, 1);
    finish(&engine, e);
    assert_string_equal(e->miss, "evicted");
    fake_engine_done(&engine);
    fake_engine_init(&engine, 12, false, &usual);
    run_once(&engine, "a", prompt, 64, 1);
    b = add(&engine, "b", prompt, 64, 1);
    finish(&engine, b);
    assert_string_equal(b->miss, "off");
    fake_engine_done(&engine);
}

static void test_counts_are_of_first_admissions(void **state)
{
    struct fake_engine engine;
    struct scheduler_counts counts;
    struct block_counts blocks;
    (void)state;
    fake_engine_init(&engine, 20, true, &usual);
    run_once(&engine, "a", prompt, 48, 3);
    run_once(&engine, "b", prompt, 48, 3);
    scheduler_counts(engine.scheduler, &counts);
    assert_int_equal(counts.admitted_total, 2);
    assert_int_equal(counts.finished_total, 2);
    assert_int_equal(counts.prompt_tokens_total, 96);
    assert_int_equal(counts.cached_tokens_total, 47);
    assert_int_equal(counts.generated_tokens_total, 6);
    block_pool_counts(engine.pool, &blocks);
    assert_int_equal(blocks.lookups_total, 4); /* 47 tokens: two full blocks, twice */
    assert_int_equal(blocks.hits_total, 2);
    fake_engine_done(&engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact_repeat_computes_one_token),
        cmocka_unit_test(test_next_turn_computes_its_own_tokens_only),
        cmocka_unit_test(test_tail_that_was_copied_and_filled_is_not_kept),
        cmocka_unit_test(test_reuse_can_be_refused_by_request_and_by_salt),
        cmocka_unit_test(test_same_prefix_is_computed_once),
        cmocka_unit_test(test_hold_ends_when_the_computing_one_is_cancelled),
        cmocka_unit_test(test_hold_is_bounded),
        cmocka_unit_test(test_parallel_samples_compute_their_prompt_once),
        cmocka_unit_test(test_head_of_a_running_block_is_copied_only_where_it_is_ours),
        cmocka_unit_test(test_held_one_is_passed_by_eight_at_most),
        cmocka_unit_test(test_small_steps_starve_neither_decodes_nor_prompts),
        cmocka_unit_test(test_prompt_that_can_never_fit_is_refused_with_numbers),
        cmocka_unit_test(test_whole_prompt_and_the_watermark_must_fit),
        cmocka_unit_test(test_found_blocks_do_not_count_as_needed_twice),
        cmocka_unit_test(test_copy_is_dropped_where_only_its_source_is_in_the_way),
        cmocka_unit_test(test_at_most_eight_pass_one_that_does_not_fit),
        cmocka_unit_test(test_lower_priority_number_is_admitted_first),
        cmocka_unit_test(test_miss_says_why_in_one_word),
        cmocka_unit_test(test_counts_are_of_first_admissions),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
