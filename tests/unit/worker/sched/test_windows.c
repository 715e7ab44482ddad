/* test_windows.c - window blocks of running sequences: how many, which prefixes can be used, what
 * happens when they run out. Numbers by hand: a window of 32 tokens lies in 3 blocks at most. */
#include <cmocka.h>
#include <errno.h>

#include "tests/unit/worker/sched/fake_engine.h"

#define PROMPT_MAX 1024u
#define WINDOW 32u

static uint32_t prompt[PROMPT_MAX]; /* id i is i, but for what a test says */

static const struct scheduler_settings usual = {
    .sequences_max = 8,
    .step_tokens_max = 64,
    .context_tokens_max = 1100,
    .waiting_max = 8,
    .vocab_size = 2000,
};

static int setup(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < PROMPT_MAX; i++)
        prompt[i] = i;
    return 0;
}

static void begin(struct fake_engine *engine, uint32_t blocks, uint32_t window_blocks)
{
    const struct block_pool_settings pool = {.blocks_total = blocks,
                                             .prefix_caching = true,
                                             .pinned_blocks_max = blocks / 2,
                                             .window_tokens = WINDOW,
                                             .window_blocks = window_blocks};

    fake_engine_start(engine, &pool, &usual);
}

static struct window_counts windows_of(const struct fake_engine *engine)
{
    struct window_counts counts;

    window_get_counts(engine->pool, &counts);
    return counts;
}

/* To its end; the most window blocks that were held at any time. Its first token is that of the run
 * alone. */
static uint32_t run(struct fake_engine *engine, struct sequence *seq, uint32_t *ret_cached)
{
    uint32_t most = 0, expected[PROMPT_MAX];
    enum sequence_finish finish;

    while (seq->state != SEQ_FINISHED) {
        (void)fake_step(engine);
        scheduler_check(engine->scheduler);
        const struct window_counts counts = windows_of(engine);
        uint32_t held = counts.private_ + counts.shared;
        most = held > most ? held : most;
    }
    if (seq->ids_count < FAKE_WINDOWED_MAX) {
        uint32_t count = fake_alone_windowed(&seq->params, WINDOW, seq->ids_max, usual.vocab_size,
                                             expected, &finish);
        assert_int_equal(count, sequence_output_tokens(seq));
        assert_memory_equal(expected, seq->ids + seq->prompt_tokens, count * sizeof(uint32_t));
    }
    *ret_cached = seq->cached_tokens;
    scheduler_release(engine->scheduler, seq);
    return most;
}

static uint32_t ask(struct fake_engine *engine, uint32_t tokens, uint32_t answer,
                    uint32_t *ret_cached)
{
    struct sequence_params params = fake_params("r", prompt, tokens, answer);

    return run(engine, fake_add(engine, &params), ret_cached);
}

static void test_a_long_sequence_holds_a_window_and_a_step(void **state)
{
    struct fake_engine engine;
    uint32_t cached;
    (void)state;
    begin(&engine, 80, 70);
    /* 1,000 tokens and 60 more lie in 67 blocks; 3 of the window, 4 of a step. */
    assert_int_equal(ask(&engine, 1000, 60, &cached), 3 + 4);
    assert_int_equal(windows_of(&engine).lost_total, 0);
    assert_int_equal(windows_of(&engine).cached, 67); /* all of it can still be branched off */
    fake_engine_done(&engine);
    begin(&engine, 80, 8); /* and in no more memory than that */
    assert_int_equal(ask(&engine, 1000, 60, &cached), 3 + 4);
    assert_int_equal(windows_of(&engine).cached, 8);
    fake_engine_done(&engine);
}

static void test_a_hit_needs_the_blocks_of_its_window_only(void **state)
{
    struct fake_engine engine;
    uint32_t cached;
    (void)state;
    begin(&engine, 40, 12);
    (void)ask(&engine, 320, 1, &cached);
    assert_int_equal(cached, 0);
    assert_true(windows_of(&engine).lost_total > 0); /* the first ones are gone */
    (void)ask(&engine, 330, 1, &cached);
    assert_int_equal(cached, 320);
    fake_engine_done(&engine);
}

static void test_a_prefix_without_its_window_is_computed_again_and_found_from_then_on(void **state)
{
    struct fake_engine engine;
    uint32_t cached;
    struct sequence *seq;
    struct sequence_params branch = fake_params("b", prompt, 100, 1);
    (void)state;
    begin(&engine, 60, 12);
    struct sequence_params params = fake_params("r", prompt, 320, 20);
    seq = fake_add(&engine, &params);
    while (seq->state != SEQ_DECODE)
        (void)fake_step(&engine);
    /* It runs and holds all of its blocks, but window blocks of the end only. */
    struct sequence *other = fake_add(&engine, &branch);
    while (other->state != SEQ_FINISHED)
        (void)fake_step(&engine);
    assert_int_equal(other->cached_tokens, 0);
    assert_string_equal(other->miss, "evicted");
    scheduler_release(engine.scheduler, other);
    branch.request_id[0] = 'c';
    other = fake_add(&engine, &branch);
    while (other->state != SEQ_FINISHED)
        (void)fake_step(&engine);
    assert_int_equal(other->cached_tokens, 99); /* six blocks, and three tokens of one more */
    scheduler_release(engine.scheduler, other);
    (void)run(&engine, seq, &cached);
    fake_engine_done(&engine);
}

/* Two prompts of 20 blocks, window blocks for one and a half prefills: both get to their end. */
static void test_prefills_that_share_too_few_window_blocks_end(void **state)
{
    struct fake_engine engine;
    struct sequence *seqs[2];
    uint32_t cached;
    (void)state;
    begin(&engine, 80, 10);
    for (uint32_t i = 0; i < 2; i++) {
        struct sequence_params params = fake_params(i == 0 ? "a" : "b", prompt + i, 320, 40);
        seqs[i] = fake_add(&engine, &params);
    }
    (void)run(&engine, seqs[0], &cached);
    (void)run(&engine, seqs[1], &cached);
    fake_engine_done(&engine);
}

static void test_too_few_window_blocks_to_run_at_all_are_refused(void **state)
{
    const struct block_pool_settings pool = {
        .blocks_total = 20, .prefix_caching = true, .window_tokens = WINDOW, .window_blocks = 4};
    struct block_pool *books = NULL;
    struct scheduler *scheduler = NULL;
    struct errmsg err;
    (void)state;
    assert_int_equal(block_pool_new(&pool, &books, NULL), 0);
    assert_int_equal(scheduler_new(&usual, books, &scheduler, &err), -EINVAL);
    assert_string_equal(err.text, "4 window blocks: a window of 32 tokens needs at least 5");
    block_pool_free(books);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_a_long_sequence_holds_a_window_and_a_step, setup),
        cmocka_unit_test_setup(test_a_hit_needs_the_blocks_of_its_window_only, setup),
        cmocka_unit_test_setup(
            test_a_prefix_without_its_window_is_computed_again_and_found_from_then_on, setup),
        cmocka_unit_test_setup(test_prefills_that_share_too_few_window_blocks_end, setup),
        cmocka_unit_test_setup(test_too_few_window_blocks_to_run_at_all_are_refused, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
