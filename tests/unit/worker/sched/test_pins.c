/* test_pins.c - prefixes held by a lease: what stays, what counts, when a lease gives way. */
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>

#include "tests/unit/worker/sched/fake_engine.h"

#define PROMPT_MAX 1024u

static uint32_t prompt[PROMPT_MAX]; /* id i is i */

static const struct scheduler_settings usual = {
    .sequences_max = 8,
    .step_tokens_max = 256,
    .context_tokens_max = 400,
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

static void begin(struct fake_engine *engine, uint32_t blocks, uint32_t pinned_max)
{
    const struct block_pool_settings pool = {
        .blocks_total = blocks, .prefix_caching = true, .pinned_blocks_max = pinned_max};

    fake_engine_start(engine, &pool, &usual);
}

/* One request over prompt[first .. first + tokens); how many of its tokens were found. */
static uint32_t ask(struct fake_engine *engine, uint32_t first, uint32_t tokens,
                    uint32_t answer_tokens)
{
    struct sequence_params params = fake_params("r", prompt + first, tokens, answer_tokens);
    struct sequence *seq = fake_add(engine, &params);

    while (seq->state != SEQ_FINISHED) {
        (void)fake_step(engine);
        scheduler_check(engine->scheduler);
    }
    uint32_t found = seq->cached_tokens;
    scheduler_release(engine->scheduler, seq);
    return found;
}

static int pin(struct fake_engine *engine, uint32_t first, uint32_t blocks, uint64_t expires_ns,
               uint32_t *ret_blocks, struct errmsg *err)
{
    struct block_hash hashes[64];
    uint32_t scratch[64];
    struct block_chain chain = {{.low = 7, .high = 9}, hashes, prompt + first, blocks};

    (void)block_hash_chain(chain.root, chain.ids, (size_t)blocks * BLOCK_TOKENS, hashes);
    return block_pool_pin(engine->pool, &chain, expires_ns, scratch, ret_blocks, err);
}

static struct block_counts counts_of(const struct fake_engine *engine)
{
    struct block_counts counts;

    block_pool_counts(engine->pool, &counts);
    return counts;
}

static void test_pinned_prefix_outlives_a_full_pool_until_its_lease_ends(void **state)
{
    struct fake_engine engine;
    uint32_t blocks = 0;
    (void)state;
    begin(&engine, 24, 12);
    (void)ask(&engine, 0, 64, 1);
    assert_int_equal(pin(&engine, 0, 4, engine.now_ns + 100, &blocks, NULL), 0);
    assert_int_equal(blocks, 4);
    assert_int_equal(counts_of(&engine).pinned, 4);
    assert_int_equal(counts_of(&engine).shared, 4);
    for (uint32_t i = 0; i < 4; i++)
        (void)ask(&engine, 100 + 200 * i, 200, 1); /* 13 blocks each */
    assert_int_equal(ask(&engine, 0, 80, 1), 64);
    engine.now_ns += 100;
    (void)ask(&engine, 100, 200, 1);
    assert_int_equal(counts_of(&engine).pinned, 0);
    assert_int_equal(counts_of(&engine).pins, 0);
    assert_int_equal(counts_of(&engine).pins_broken_total, 0);
    (void)ask(&engine, 300, 350, 1); /* 22 of 24 */
    assert_true(ask(&engine, 0, 80, 1) < 64);
    fake_engine_done(&engine);
}

static void test_block_pinned_by_its_hash_holds_all_before_it(void **state)
{
    struct fake_engine engine;
    struct block_hash hashes[5];
    struct pinned_prefix pins[PINS_MAX];
    uint32_t blocks = 0, scratch[24];
    struct errmsg err = {""};
    (void)state;
    begin(&engine, 24, 12);
    (void)ask(&engine, 0, 64, 1);
    (void)block_hash_chain((struct block_hash){.low = 7, .high = 9}, prompt, 80, hashes);
    assert_int_equal(block_pool_pin_block(engine.pool, hashes[4], 100, scratch, &blocks, &err),
                     -ENOENT);
    assert_string_equal(err.text, "no cached block has this hash");
    assert_int_equal(
        block_pool_pin_block(engine.pool, hashes[2], UINT64_MAX, scratch, &blocks, &err), 0);
    assert_int_equal(blocks, 3);
    assert_int_equal(counts_of(&engine).pinned, 3);
    assert_int_equal(pin(&engine, 0, 3, UINT64_MAX, &blocks, NULL), 0); /* the same lease */
    assert_int_equal(block_pool_pins(engine.pool, pins), 1);
    assert_true(block_hash_equal(pins[0].last, hashes[2]));
    assert_int_equal(pins[0].blocks, 3);
    for (uint32_t i = 0; i < 4; i++)
        (void)ask(&engine, 100 + 200 * i, 200, 1);
    assert_int_equal(ask(&engine, 0, 80, 1), 48);
    assert_int_equal(block_pool_unpin(engine.pool, pins[0].root, pins[0].last), 0);
    assert_int_equal(block_pool_pins(engine.pool, pins), 0);
    assert_int_equal(counts_of(&engine).pinned, 0);
    fake_engine_done(&engine);
}

static void test_leases_on_one_prefix_count_its_blocks_once(void **state)
{
    struct fake_engine engine;
    uint32_t blocks = 0;
    (void)state;
    begin(&engine, 24, 24);
    (void)ask(&engine, 0, 96, 1);
    assert_int_equal(pin(&engine, 0, 6, 50, &blocks, NULL), 0);
    assert_int_equal(pin(&engine, 0, 4, 60, &blocks, NULL), 0);
    assert_int_equal(counts_of(&engine).pins, 2);
    assert_int_equal(counts_of(&engine).pinned, 6);
    block_pool_expire_pins(engine.pool, 49);
    assert_int_equal(counts_of(&engine).pins, 2);
    block_pool_expire_pins(engine.pool, 50);
    assert_int_equal(counts_of(&engine).pinned, 4);
    assert_int_equal(pin(&engine, 0, 4, 90, &blocks, NULL), 0); /* renewed */
    assert_int_equal(counts_of(&engine).pins, 1);
    block_pool_expire_pins(engine.pool, 89);
    assert_int_equal(counts_of(&engine).pinned, 4);
    block_pool_expire_pins(engine.pool, 90);
    assert_int_equal(counts_of(&engine).pinned, 0);
    fake_engine_done(&engine);
}

static void test_lease_holds_what_is_there_and_more_when_it_is_renewed(void **state)
{
    struct fake_engine engine;
    uint32_t blocks = 0;
    (void)state;
    begin(&engine, 24, 24);
    assert_int_equal(pin(&engine, 0, 6, 50, &blocks, NULL), -ENOENT);
    (void)ask(&engine, 0, 48, 1);
    assert_int_equal(pin(&engine, 0, 6, 50, &blocks, NULL), 0);
    assert_int_equal(blocks, 3);
    (void)ask(&engine, 0, 97, 1);
    assert_int_equal(pin(&engine, 0, 6, 70, &blocks, NULL), 0);
    assert_int_equal(blocks, 6);
    assert_int_equal(counts_of(&engine).pins, 1);
    assert_int_equal(counts_of(&engine).pinned, 6);
    fake_engine_done(&engine);
}

static void test_leases_are_bounded_by_blocks_and_by_number(void **state)
{
    struct fake_engine engine;
    struct errmsg err = {""};
    uint32_t blocks = 0;
    (void)state;
    begin(&engine, 24, 5);
    (void)ask(&engine, 0, 96, 1);
    assert_int_equal(pin(&engine, 0, 6, 50, &blocks, &err), -ENOSPC);
    assert_non_null(strstr(err.text, "0 blocks are pinned"));
    assert_non_null(strstr(err.text, "at most 5 of 24"));
    assert_int_equal(counts_of(&engine).pinned, 0);
    assert_int_equal(pin(&engine, 0, 5, 50, &blocks, &err), 0);
    fake_engine_done(&engine);

    begin(&engine, PINS_MAX + 8, PINS_MAX + 8);
    for (uint32_t i = 0; i < PINS_MAX + 1; i++) {
        int expected = i < PINS_MAX ? 0 : -ENOSPC;
        (void)ask(&engine, i, 16, 1); /* a block of its own */
        assert_int_equal(pin(&engine, i, 1, 50000 + i, &blocks, &err), expected);
    }
    assert_non_null(strstr(err.text, "at most 256"));
    fake_engine_done(&engine);
}

static void test_lease_gives_way_to_a_request_that_could_not_run_at_all(void **state)
{
    struct fake_engine engine;
    uint32_t blocks = 0;
    (void)state;
    begin(&engine, 24, 24);
    (void)ask(&engine, 0, 96, 1);
    (void)ask(&engine, 500, 96, 1);
    assert_int_equal(pin(&engine, 0, 6, 5000, &blocks, NULL), 0);
    assert_int_equal(pin(&engine, 500, 6, 9000, &blocks, NULL), 0);
    (void)ask(&engine, 100, 250, 1); /* 16 blocks beside 12 pinned ones, of 24 */
    assert_int_equal(counts_of(&engine).pins_broken_total, 1); /* the one that ends first */
    assert_int_equal(counts_of(&engine).pinned, 6);
    assert_int_equal(ask(&engine, 500, 97, 1), 96);
    (void)ask(&engine, 100, 250, 100); /* needs the rest while it decodes */
    assert_int_equal(counts_of(&engine).pins_broken_total, 2);
    assert_int_equal(counts_of(&engine).pinned, 0);
    fake_engine_done(&engine);
}

static void test_lease_does_not_give_way_while_others_will_make_room(void **state)
{
    struct fake_engine engine;
    uint32_t blocks = 0;
    (void)state;
    begin(&engine, 24, 24);
    (void)ask(&engine, 0, 96, 1);
    assert_int_equal(pin(&engine, 0, 6, 5000, &blocks, NULL), 0);
    struct sequence_params a = fake_params("a", prompt + 100, 160, 20);
    struct sequence_params b = fake_params("b", prompt + 300, 160, 20);
    struct sequence *first = fake_add(&engine, &a), *second = fake_add(&engine, &b);
    (void)fake_step(&engine);
    assert_int_equal(first->state, SEQ_DECODE);
    assert_int_equal(second->state, SEQ_WAITING); /* ten blocks more than the 18 */
    while (second->state != SEQ_FINISHED) {
        (void)fake_step(&engine);
        scheduler_check(engine.scheduler);
    }
    assert_int_equal(counts_of(&engine).pins_broken_total, 0);
    assert_int_equal(counts_of(&engine).pinned, 6);
    fake_engine_done(&engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pinned_prefix_outlives_a_full_pool_until_its_lease_ends),
        cmocka_unit_test(test_block_pinned_by_its_hash_holds_all_before_it),
        cmocka_unit_test(test_leases_on_one_prefix_count_its_blocks_once),
        cmocka_unit_test(test_lease_holds_what_is_there_and_more_when_it_is_renewed),
        cmocka_unit_test(test_leases_are_bounded_by_blocks_and_by_number),
        cmocka_unit_test(test_lease_gives_way_to_a_request_that_could_not_run_at_all),
        cmocka_unit_test(test_lease_does_not_give_way_while_others_will_make_room),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
