/* test_scheduler.c - add, plan, commit, finish, cancel; one behaviour a test. */
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit/worker/sched/fake_engine.h"

#define PROMPT_MAX 1024

static uint32_t prompt[PROMPT_MAX]; /* 0, 1, 2, ... modulo the vocabulary of 100 */

static const struct scheduler_settings usual = {
    .sequences_max = 4,
    .step_tokens_max = 64,
    .context_tokens_max = 200,
    .waiting_max = 3,
    .vocab_size = 100,
};

static int setup(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < PROMPT_MAX; i++)
        prompt[i] = i % 100;
    return 0;
}

static int add(struct fake_engine *engine, const struct sequence_params *params, struct errmsg *err)
{
    struct sequence *seq = NULL;

    return scheduler_add(engine->scheduler, params, &seq, err);
}

static void run_until_idle(struct fake_engine *engine)
{
    for (uint32_t steps = 0; !scheduler_idle(engine->scheduler); steps++) {
        uint32_t items = fake_step(engine);
        for (uint32_t i = 0; i < items; i++)
            if (engine->items[i].finish != SEQ_FINISH_NONE)
                scheduler_release(engine->scheduler, engine->items[i].sequence);
        scheduler_check(engine->scheduler);
        assert_true(steps < 1000);
    }
}

static void test_settings_that_cannot_work_are_refused(void **state)
{
    struct fake_engine engine;
    struct scheduler *scheduler = NULL;
    struct errmsg err = {""};
    (void)state;
    fake_engine_init(&engine, 8, true, &usual);
    for (uint32_t i = 0; i < 4; i++) {
        struct scheduler_settings settings = usual;
        settings.sequences_max = i == 0 ? 0 : 4;
        settings.step_tokens_max = i == 1 ? 15 : 64;
        settings.context_tokens_max = i == 2 ? 1 : 200;
        settings.vocab_size = i == 3 ? 0 : 100;
        assert_int_equal(scheduler_new(&settings, engine.pool, &scheduler, &err), -EINVAL);
        assert_true(strlen(err.text) > 0);
    }
    assert_null(scheduler);
    fake_engine_done(&engine);
}

static void test_add_refuses_bad_requests_by_name(void **state)
{
    static const char *const words[] = {"prompt",  "tokens_max", "tokens_min", "token id 100",
                                        "stop id", "request id", "top_p"};
    struct fake_engine engine;
    struct errmsg err;
    uint32_t outside[] = {1, 100};
    (void)state;
    fake_engine_init(&engine, 8, true, &usual);
    struct sequence_params bad[7];
    for (uint32_t i = 0; i < 7; i++)
        bad[i] = fake_params("a", prompt, 10, 5);
    bad[0].prompt_tokens = 0;
    bad[1].tokens_max = 0;
    bad[2].tokens_min = 6;
    bad[3].prompt = outside;
    bad[3].prompt_tokens = 2;
    bad[4].stop_ids[0] = 100;
    bad[4].stop_ids_count = 1;
    bad[5].request_id[0] = '\0';
    bad[6].sampling.top_p = 0;
    for (uint32_t i = 0; i < 7; i++) {
        assert_int_equal(add(&engine, &bad[i], &err), -EINVAL);
        assert_non_null(strstr(err.text, words[i]));
    }
    assert_true(scheduler_idle(engine.scheduler));
    fake_engine_done(&engine);
}

static void test_add_refuses_a_request_id_in_use_until_it_is_released(void **state)
{
    struct fake_engine engine;
    struct errmsg err;
    (void)state;
    fake_engine_init(&engine, 8, true, &usual);
    struct sequence_params params = fake_params("a", prompt, 10, 1);
    struct sequence *seq = fake_add(&engine, &params);
    assert_ptr_equal(scheduler_find(engine.scheduler, "a"), seq);
    assert_int_equal(add(&engine, &params, &err), -EINVAL);
    assert_int_equal(fake_step(&engine), 1);
    assert_int_equal(engine.items[0].finish, SEQ_FINISH_LENGTH);
    assert_int_equal(add(&engine, &params, &err), -EINVAL);
    scheduler_release(engine.scheduler, seq);
    assert_null(scheduler_find(engine.scheduler, "a"));
    assert_int_equal(add(&engine, &params, &err), 0);
    fake_engine_done(&engine);
}

static void test_add_to_a_full_queue_is_told_to_come_again(void **state)
{
    struct fake_engine engine;
    struct errmsg err;
    (void)state;
    fake_engine_init(&engine, 8, true, &usual);
    for (uint32_t i = 0; i < 4; i++) {
        char name[8];
        (void)snprintf(name, sizeof(name), "r%u", i);
        struct sequence_params params = fake_params(name, prompt, 10, 1);
        assert_int_equal(add(&engine, &params, &err), i < 3 ? 0 : -EAGAIN);
    }
    fake_engine_done(&engine);
}

static void test_step_computes_the_prompt_then_one_token_each(void **state)
{
    struct fake_engine engine;
    uint32_t alone[3];
    enum sequence_finish finish;
    (void)state;
    fake_engine_init(&engine, 8, true, &usual);
    struct sequence_params params = fake_params("a", prompt, 20, 3);
    assert_int_equal(fake_alone(&params, 200, 100, alone, &finish), 3);
    struct sequence *seq = fake_add(&engine, &params);
    for (uint32_t i = 0; i < 3; i++) {
        fake_plan(&engine);
        assert_int_equal(engine.plan.entries_count, 1);
        assert_int_equal(engine.plan.entries[0].first_position, i == 0 ? 0 : 19 + i);
        assert_int_equal(engine.plan.entries[0].rows, i == 0 ? 20 : 1);
        assert_int_equal(engine.plan.rows, engine.plan.entries[0].rows);
        assert_true(engine.plan.entries[0].want_token);
        fake_forward(&engine);
        assert_int_equal(fake_commit(&engine), 1);
        assert_int_equal(engine.items[0].first, i == 0);
        assert_int_equal(engine.items[0].token.id, alone[i]);
        assert_int_equal(engine.items[0].finish, i < 2 ? SEQ_FINISH_NONE : SEQ_FINISH_LENGTH);
        scheduler_check(engine.scheduler);
    }
    assert_int_equal(seq->state, SEQ_FINISHED);
    assert_true(seq->scheduled_ns == 1 && seq->first_token_ns == 1);
    assert_true(scheduler_idle(engine.scheduler));
    fake_engine_done(&engine);
}

static void test_decodes_come_before_prefills_and_cut_their_budget(void **state)
{
    struct fake_engine engine;
    (void)state;
    fake_engine_init(&engine, 20, true, &usual);
    struct sequence_params a = fake_params("a", prompt, 20, 9);
    struct sequence_params b = fake_params("b", prompt + 50, 150, 9);
    struct sequence *first = fake_add(&engine, &a);
    (void)fake_step(&engine);
    struct sequence *second = fake_add(&engine, &b);
    fake_plan(&engine);
    assert_int_equal(engine.plan.entries_count, 2);
    assert_ptr_equal(engine.plan.entries[0].sequence, first);
    assert_ptr_equal(engine.plan.entries[1].sequence, second);
    assert_int_equal(engine.plan.entries[1].rows, 48); /* 63 left, down to a border */
    assert_false(engine.plan.entries[1].want_token);
    fake_forward(&engine);
    assert_int_equal(fake_commit(&engine), 1);
    assert_int_equal(second->state, SEQ_PREFILL);
    assert_int_equal(second->sealed, 3);
    struct scheduler_counts counts;
    scheduler_counts(engine.scheduler, &counts);
    assert_int_equal(counts.running, 2);
    assert_int_equal(counts.pending_prefill_tokens, 102);
    fake_engine_done(&engine);
}

/* A stop id counts only after tokens_min tokens, and is itself the last token. */
static void test_stop_id_ends_it_and_is_reported(void **state)
{
    struct fake_engine engine;
    (void)state;
    fake_engine_init(&engine, 8, true, &usual);
    struct sequence_params params = fake_params("a", prompt, 20, 9);
    params.stop_ids[0] = 42;
    params.stop_ids_count = 1;
    params.tokens_min = 1;
    struct sequence *seq = fake_add(&engine, &params);
    for (uint32_t i = 0; i < 2; i++) {
        fake_plan(&engine);
        fake_forward(&engine);
        engine.results[0].id = 42;
        assert_int_equal(fake_commit(&engine), 1);
        assert_int_equal(engine.items[0].token.id, 42);
        assert_int_equal(engine.items[0].finish, i == 0 ? SEQ_FINISH_NONE : SEQ_FINISH_STOP);
    }
    assert_int_equal(seq->finish, SEQ_FINISH_STOP);
    assert_int_equal(sequence_output_tokens(seq), 2);
    fake_engine_done(&engine);
}

static void test_context_end_finishes_with_length(void **state)
{
    struct scheduler_settings settings = usual;
    struct fake_engine engine;
    (void)state;
    settings.context_tokens_max = 24;
    fake_engine_init(&engine, 8, true, &settings);
    struct sequence_params params = fake_params("a", prompt, 20, 90);
    struct sequence *seq = fake_add(&engine, &params);
    while (seq->state != SEQ_FINISHED)
        (void)fake_step(&engine);
    assert_int_equal(seq->finish, SEQ_FINISH_LENGTH);
    assert_int_equal(sequence_output_tokens(seq), 4);
    fake_engine_done(&engine);
}

static void test_pool_end_finishes_with_length(void **state)
{
    struct fake_engine engine;
    (void)state;
    fake_engine_init(&engine, 3, true, &usual);
    struct sequence_params params = fake_params("a", prompt, 20, 90);
    struct sequence *seq = fake_add(&engine, &params);
    while (seq->state != SEQ_FINISHED)
        (void)fake_step(&engine);
    assert_int_equal(seq->finish, SEQ_FINISH_LENGTH);
    assert_int_equal(seq->ids_count, 48);
    fake_engine_done(&engine);
}

static void test_cancel_while_waiting_is_reported_by_the_next_commit(void **state)
{
    struct fake_engine engine;
    (void)state;
    fake_engine_init(&engine, 8, true, &usual);
    struct sequence_params params = fake_params("a", prompt, 20, 9);
    struct sequence *seq = fake_add(&engine, &params);
    scheduler_cancel(engine.scheduler, seq, SEQ_FINISH_CANCELLED);
    scheduler_cancel(engine.scheduler, seq, SEQ_FINISH_ERROR); /* the first reason stays */
    assert_false(scheduler_idle(engine.scheduler));
    fake_plan(&engine);
    assert_int_equal(engine.plan.rows, 0);
    assert_int_equal(fake_commit(&engine), 1);
    assert_ptr_equal(engine.items[0].sequence, seq);
    assert_false(engine.items[0].has_token);
    assert_int_equal(engine.items[0].finish, SEQ_FINISH_CANCELLED);
    assert_true(scheduler_idle(engine.scheduler));
    scheduler_release(engine.scheduler, seq);
    fake_engine_done(&engine);
}

static void test_cancel_between_steps_gives_blocks_back_at_once(void **state)
{
    struct fake_engine engine;
    struct block_counts counts;
    (void)state;
    fake_engine_init(&engine, 8, true, &usual);
    struct sequence_params params = fake_params("a", prompt, 20, 9);
    struct sequence *seq = fake_add(&engine, &params);
    (void)fake_step(&engine);
    scheduler_cancel(engine.scheduler, seq, SEQ_FINISH_CANCELLED);
    block_pool_counts(engine.pool, &counts);
    assert_int_equal(counts.private_ + counts.shared, 0);
    assert_int_equal(counts.cached, 2); /* a full block and a tail */
    assert_int_equal(fake_step(&engine), 1);
    fake_engine_done(&engine);
}

static void test_cancel_within_the_step_keeps_its_blocks_until_commit(void **state)
{
    struct fake_engine engine;
    struct block_counts counts;
    (void)state;
    fake_engine_init(&engine, 8, true, &usual);
    struct sequence_params params = fake_params("a", prompt, 20, 9);
    struct sequence *seq = fake_add(&engine, &params);
    fake_plan(&engine);
    scheduler_cancel(engine.scheduler, seq, SEQ_FINISH_CANCELLED);
    assert_int_equal(seq->state, SEQ_PREFILL);
    block_pool_counts(engine.pool, &counts);
    assert_int_equal(counts.private_, 2);
    fake_forward(&engine);
    assert_int_equal(fake_commit(&engine), 1);
    assert_false(engine.items[0].has_token); /* nobody wants it any more */
    assert_int_equal(engine.items[0].finish, SEQ_FINISH_CANCELLED);
    block_pool_counts(engine.pool, &counts);
    assert_int_equal(counts.private_ + counts.shared, 0);
    assert_int_equal(counts.cached, 2); /* what was computed is worth keeping */
    fake_engine_done(&engine);
}

static void test_failed_step_is_nobodys_prefix(void **state)
{
    struct fake_engine engine;
    struct block_counts counts;
    (void)state;
    fake_engine_init(&engine, 12, true, &usual);
    struct sequence_params params = fake_params("a", prompt, 100, 9);
    struct sequence *seq = fake_add(&engine, &params);
    (void)fake_step(&engine); /* 64 tokens are good */
    fake_plan(&engine);
    fake_forward(&engine);
    engine.results[0].id = UINT32_MAX; /* the sampler refused the logits */
    scheduler_cancel(engine.scheduler, seq, SEQ_FINISH_ERROR);
    assert_int_equal(fake_commit(&engine), 1);
    assert_int_equal(engine.items[0].finish, SEQ_FINISH_ERROR);
    assert_false(engine.items[0].has_token);
    block_pool_counts(engine.pool, &counts);
    assert_int_equal(counts.cached, 4);
    assert_int_equal(counts.empty, 8);
    fake_engine_done(&engine);
}

static void test_deadline_ends_waiting_and_running_when_it_is_reached(void **state)
{
    struct scheduler_settings settings = usual;
    struct fake_engine engine;
    (void)state;
    settings.sequences_max = 1;
    fake_engine_init(&engine, 8, true, &settings);
    struct sequence_params a = fake_params("a", prompt, 20, 90);
    struct sequence_params b = fake_params("b", prompt, 20, 90);
    a.deadline_ns = 4;
    b.deadline_ns = 3;
    struct sequence *first = fake_add(&engine, &a);
    struct sequence *second = fake_add(&engine, &b);
    (void)fake_step(&engine);                /* now 1 */
    (void)fake_step(&engine);                /* now 2 */
    assert_int_equal(fake_step(&engine), 2); /* now 3: a's token, b's end */
    assert_ptr_equal(engine.items[1].sequence, second);
    assert_int_equal(engine.items[1].finish, SEQ_FINISH_DEADLINE);
    assert_int_equal(first->state, SEQ_DECODE);
    assert_int_equal(fake_step(&engine), 1); /* now 4 */
    assert_int_equal(first->finish, SEQ_FINISH_DEADLINE);
    assert_int_equal(sequence_output_tokens(first), 3);
    fake_engine_done(&engine);
}

static bool count_one(const struct sequence *seq, void *user)
{
    char *names = user;

    (void)strcat(names, seq->params.request_id);
    return strlen(names) < 2;
}

static void test_each_walks_waiting_then_running_until_told_to_stop(void **state)
{
    struct fake_engine engine;
    char names[8] = "";
    (void)state;
    fake_engine_init(&engine, 8, true, &usual);
    struct sequence_params a = fake_params("a", prompt, 20, 9);
    struct sequence_params b = fake_params("b", prompt, 20, 9);
    struct sequence_params c = fake_params("c", prompt, 20, 9);
    (void)fake_add(&engine, &a);
    (void)fake_step(&engine);
    (void)fake_add(&engine, &b);
    scheduler_each(engine.scheduler, count_one, names);
    assert_string_equal(names, "ba");
    (void)fake_add(&engine, &c);
    names[0] = '\0';
    scheduler_each(engine.scheduler, count_one, names);
    assert_string_equal(names, "bc");
    fake_engine_done(&engine);
}

static const struct block_pool_settings pool_settings = {.blocks_total = 8, .prefix_caching = true};

/* Ours are private where another one was first; when that one's are evicted, ours take their place.
 */
static void test_private_copy_is_published_when_the_first_one_is_gone(void **state)
{
    struct block_pool *pool = NULL;
    uint32_t scratch[8], found[4], taken[5];
    (void)state;
    assert_int_equal(block_pool_new(&pool_settings, &pool, NULL), 0);
    struct sequence_params params = fake_params("a", prompt, 60, 4);
    struct sequence *a = sequence_new(&params, 64);
    struct sequence *b = sequence_new(&params, 64);
    struct sequence *both[] = {a, b};
    for (uint32_t i = 0; i < 2; i++) {
        sequence_set_state(both[i], SEQ_PREFILL, "admit");
        assert_int_equal(block_table_grow(&both[i]->table, pool, 48), 0);
        both[i]->computed = 32;
        sequence_seal(both[i], pool, scratch);
    }
    assert_int_equal(block_pool_state(pool, b->table.ids[0]), BLOCK_PRIVATE);
    sequence_let_go(a, pool, scratch);
    assert_int_equal(block_pool_take(pool, 5, taken), 0);
    block_pool_unref(pool, taken, 5); /* evicted both of a's */
    assert_int_equal(block_pool_match(pool, b->hashes, b->ids, 3, found), 0);
    b->computed = 48;
    sequence_seal(b, pool, scratch);
    assert_int_equal(block_pool_match(pool, b->hashes, b->ids, 3, found), 3);
    assert_memory_equal(found, b->table.ids, 3 * sizeof(uint32_t));
    sequence_let_go(b, pool, scratch);
    sequence_set_state(a, SEQ_FINISHED, "test");
    sequence_set_state(b, SEQ_FINISHED, "test");
    sequence_free(a);
    sequence_free(b);
    block_pool_check(pool);
    block_pool_free(pool);
}

/* b's first hash is that of other content: its second block must not hang under a's first. */
static void test_chain_that_collides_gets_no_children_from_us(void **state)
{
    struct block_pool *pool = NULL;
    uint32_t scratch[8], found[4];
    (void)state;
    assert_int_equal(block_pool_new(&pool_settings, &pool, NULL), 0);
    struct sequence_params params = fake_params("a", prompt, 60, 4);
    struct sequence_params other = fake_params("b", prompt + 1, 60, 4);
    struct sequence *a = sequence_new(&params, 64);
    struct sequence *b = sequence_new(&other, 64);
    struct sequence *both[] = {a, b};
    b->hashes[0] = a->hashes[0];
    b->hashes[1] = block_hash_next(b->hashes[0], b->ids + BLOCK_TOKENS);
    for (uint32_t i = 0; i < 2; i++) {
        sequence_set_state(both[i], SEQ_PREFILL, "admit");
        assert_int_equal(block_table_grow(&both[i]->table, pool, 48), 0);
        both[i]->computed = i == 0 ? 16 : 40;
        sequence_seal(both[i], pool, scratch);
    }
    assert_int_equal(block_pool_state(pool, b->table.ids[1]), BLOCK_PRIVATE);
    assert_false(block_pool_has_children(pool, a->hashes[0]));
    for (uint32_t i = 0; i < 2; i++) {
        sequence_let_go(both[i], pool, scratch);
        sequence_set_state(both[i], SEQ_FINISHED, "test");
    }
    assert_int_equal(block_pool_match(pool, b->hashes, b->ids, 2, found), 0);
    assert_false(block_pool_has_children(pool, b->hashes[1]));
    sequence_free(a);
    sequence_free(b);
    block_pool_check(pool);
    block_pool_free(pool);
}

static void test_free_with_requests_in_every_state_leaves_the_pool_whole(void **state)
{
    struct fake_engine engine;
    (void)state;
    fake_engine_init(&engine, 20, true, &usual);
    struct sequence_params a = fake_params("a", prompt, 20, 9);
    struct sequence_params b = fake_params("b", prompt, 150, 9);
    struct sequence_params c = fake_params("c", prompt, 30, 9);
    (void)fake_add(&engine, &a);
    (void)fake_step(&engine);
    (void)fake_add(&engine, &b);
    (void)fake_step(&engine);
    scheduler_cancel(engine.scheduler, fake_add(&engine, &c), SEQ_FINISH_CANCELLED);
    fake_plan(&engine); /* and no commit */
    scheduler_free(engine.scheduler);
    assert_int_equal(block_pool_available(engine.pool), 20);
    struct errmsg err;
    assert_int_equal(scheduler_new(&usual, engine.pool, &engine.scheduler, &err), 0);
    run_until_idle(&engine);
    fake_engine_done(&engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_settings_that_cannot_work_are_refused),
        cmocka_unit_test(test_add_refuses_bad_requests_by_name),
        cmocka_unit_test(test_add_refuses_a_request_id_in_use_until_it_is_released),
        cmocka_unit_test(test_add_to_a_full_queue_is_told_to_come_again),
        cmocka_unit_test(test_step_computes_the_prompt_then_one_token_each),
        cmocka_unit_test(test_decodes_come_before_prefills_and_cut_their_budget),
        cmocka_unit_test(test_stop_id_ends_it_and_is_reported),
        cmocka_unit_test(test_context_end_finishes_with_length),
        cmocka_unit_test(test_pool_end_finishes_with_length),
        cmocka_unit_test(test_cancel_while_waiting_is_reported_by_the_next_commit),
        cmocka_unit_test(test_cancel_between_steps_gives_blocks_back_at_once),
        cmocka_unit_test(test_cancel_within_the_step_keeps_its_blocks_until_commit),
        cmocka_unit_test(test_failed_step_is_nobodys_prefix),
        cmocka_unit_test(test_deadline_ends_waiting_and_running_when_it_is_reached),
        cmocka_unit_test(test_each_walks_waiting_then_running_until_told_to_stop),
        cmocka_unit_test(test_private_copy_is_published_when_the_first_one_is_gone),
        cmocka_unit_test(test_chain_that_collides_gets_no_children_from_us),
        cmocka_unit_test(test_free_with_requests_in_every_state_leaves_the_pool_whole),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
