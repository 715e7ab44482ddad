/* test_start_checks.c - one test per row of the table in worker/README.md: 1,000 bytes a block of
 * 16 tokens, sentences with their numbers. */
#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "worker/start_checks.h"

#define GIB (1ull << 30)

static const struct start_facts usual = {
    .pool = {.kv_bytes = 1000 * 1000,
             .block_bytes = 1000,
             .context_model = 1600,
             .sequences_max = 256},
    .step_tokens_max = 2048,
    .ranks = 2,
    .tier_bytes = 500 * 1000,
    .weights_bytes = 4000,
    .logits_bytes = 2000,
    .adapter_bytes = 1000,
    .memory_bytes = GIB,
    .available_bytes = GIB,
};

static void refuse(const struct start_facts *facts, int code, const char *text)
{
    struct start_plan plan;
    struct errmsg err = {""};
    assert_int_equal(start_checks_run(facts, &plan, &err), code);
    assert_string_equal(err.text, text);
}

static struct start_plan pass(const struct start_facts *facts)
{
    struct start_plan plan = {.notes_count = 9};
    struct errmsg err = {""};
    if (start_checks_run(facts, &plan, &err) < 0)
        fail_msg("%s", err.text);
    return plan;
}

static void test_settings_that_fit_together_leave_no_note(void **state)
{
    struct start_plan plan = pass(&usual);
    (void)state;
    assert_int_equal(plan.notes_count, 0);
    assert_int_equal(plan.pool.blocks, 1000);
    assert_int_equal(plan.pool.context_tokens, 1600);
    assert_int_equal(plan.step_tokens_max, 2048);
    assert_int_equal(plan.bytes, 2 * 1000 * 1000 + 2 * 500 * 1000 + 7000);
}

static void test_fewer_tokens_per_step_than_sequences_is_refused(void **state)
{
    struct start_facts facts = usual;
    (void)state;
    facts.step_tokens_max = 255;
    refuse(
        &facts, -EINVAL,
        "max_num_batched_tokens (255) must be greater than or equal to max_num_seqs (256): raise "
        "--max-num-batched-tokens or lower --max-num-seqs");
    facts.step_tokens_max = 256;
    assert_int_equal(pass(&facts).step_tokens_max, 256);
}

static void test_chunk_that_is_no_whole_blocks_is_rounded_down_with_a_note(void **state)
{
    struct start_facts facts = usual;
    struct start_plan plan;
    (void)state;
    facts.step_tokens_max = 300;
    plan = pass(&facts);
    assert_int_equal(plan.step_tokens_max, 288);
    assert_int_equal(plan.notes_count, 1);
    assert_string_equal(plan.notes[0].text,
                        "max_num_batched_tokens (300) is not dividable by block size: chunk_size "
                        "(300) % block_size (16) = 12; 288 are used");
    facts.step_tokens_max = 258; /* 256 + 2: still a row for each sequence */
    assert_int_equal(pass(&facts).step_tokens_max, 256);
    facts.pool.sequences_max = 257; /* all of it is for decodes */
    assert_int_equal(pass(&facts).step_tokens_max, 258);
    assert_int_equal(pass(&facts).notes_count, 0);
}

static void test_context_over_the_models_is_refused(void **state)
{
    struct start_facts facts = usual;
    (void)state;
    facts.pool.context_asked = 1601;
    refuse(
        &facts, -EINVAL,
        "--max-model-len: max_model_len (1601) is greater than the derived max_model_len (1600), "
        "for which the model was made");
    facts.pool.context_asked = 1600;
    assert_int_equal(pass(&facts).pool.context_tokens, 1600);
}

static void test_pool_of_hardly_any_blocks_is_refused(void **state)
{
    struct start_facts facts = usual;
    (void)state;
    facts.pool.kv_bytes = 3999;
    refuse(&facts, -ENOMEM,
           "No available memory for the cache blocks: --kv-cache-memory of 3999 bytes holds 3 "
           "blocks of 1000 bytes, at least 4 are needed: give it 4000 bytes");
    facts.pool.kv_bytes = 4000;
    assert_int_equal(pass(&facts).pool.context_tokens, 16);
}

static void test_context_asked_for_that_the_pool_cannot_hold_is_refused(void **state)
{
    struct start_facts facts = usual;
    (void)state;
    facts.pool.kv_bytes = 67999;
    facts.pool.context_asked = 1600;
    refuse(&facts, -EINVAL,
           "--max-model-len: max seq len (1600) is larger than the KV cache (1072 tokens in 67 "
           "blocks): it needs 103 blocks; lower it to 1024, or give --kv-cache-memory 103000 "
           "bytes");
    facts.pool.context_asked = 1024;
    assert_int_equal(pass(&facts).pool.context_tokens, 1024);
    assert_int_equal(pass(&facts).notes_count, 0);
}

/* Window blocks of 600 bytes besides those of 1000: 100 + 1 + 2 blocks and 11 + 4 + 2 windows for
 * 1600 tokens. */
static void test_a_model_whose_layers_slide_is_told_in_bytes_of_both_kinds(void **state)
{
    struct start_facts facts = usual;
    (void)state;
    facts.pool.window_block_bytes = 600;
    facts.pool.window_tokens = 160;
    facts.pool.step_tokens_max = 64;
    facts.pool.kv_bytes = 4000;
    refuse(&facts, -ENOMEM,
           "No available memory for the cache blocks: --kv-cache-memory of 4000 bytes is less than "
           "blocks of 1000 bytes, and of 600 bytes for a window of 160 tokens, need: 10200");
    facts.pool.kv_bytes = 103 * 1000 + 17 * 600;
    facts.pool.context_asked = 1600;
    assert_int_equal(pass(&facts).pool.window_blocks, 17);
    facts.pool.kv_bytes--;
    refuse(&facts, -EINVAL,
           "--max-model-len: max seq len (1600) is larger than the KV cache of 113199 bytes holds "
           "(1584 tokens): lower it to 1584, or give --kv-cache-memory 113200 bytes");
}

static void test_models_context_that_the_pool_cannot_hold_is_cut_with_a_note(void **state)
{
    struct start_facts facts = usual;
    struct start_plan plan;
    (void)state;
    facts.pool.kv_bytes = 67999;
    plan = pass(&facts);
    assert_int_equal(plan.pool.context_tokens, 1024);
    assert_int_equal(plan.notes_count, 1);
    assert_string_equal(plan.notes[0].text,
                        "max_model_len is cut from the model's 1600 to 1024 tokens, which fit into "
                        "--kv-cache-memory of 67999 bytes");
}

static void test_more_than_the_machines_memory_is_refused(void **state)
{
    struct start_facts facts = usual;
    (void)state;
    facts.pool = (struct pool_request){
        .kv_bytes = GIB, .block_bytes = 1u << 20, .context_model = 8192, .sequences_max = 256};
    facts.tier_bytes = GIB / 4;
    facts.weights_bytes = GIB / 4;
    facts.logits_bytes = GIB / 8;
    facts.adapter_bytes = GIB / 8;
    facts.memory_bytes = 3 * GIB - 1;
    refuse(&facts, -ENOMEM,
           "Too large KV cache: 2.00 GiB of it, 0.50 GiB of tiers and 0.50 GiB of weights and "
           "work space, out of 3.00 GiB of memory; lower --kv-cache-memory, "
           "--host-tier-memory or --disk-tier-buffer");
    facts.memory_bytes = facts.available_bytes = 3 * GIB;
    assert_int_equal(pass(&facts).notes_count, 0);
    facts.memory_bytes = facts.available_bytes = 0; /* not known */
    assert_int_equal(pass(&facts).notes_count, 0);
}

static void test_more_than_is_available_now_leaves_a_note(void **state)
{
    struct start_facts facts = usual;
    struct start_plan plan;
    (void)state;
    facts.available_bytes = 3006999;
    plan = pass(&facts);
    assert_int_equal(plan.notes_count, 1);
    assert_string_equal(
        plan.notes[0].text,
        "Possibly too large KV cache: this group may come to 0.00 GiB, and 0.00 GiB "
        "of 1.00 GiB are available now");
    facts.available_bytes = 3007000;
    assert_int_equal(pass(&facts).notes_count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_settings_that_fit_together_leave_no_note),
        cmocka_unit_test(test_fewer_tokens_per_step_than_sequences_is_refused),
        cmocka_unit_test(test_chunk_that_is_no_whole_blocks_is_rounded_down_with_a_note),
        cmocka_unit_test(test_context_over_the_models_is_refused),
        cmocka_unit_test(test_pool_of_hardly_any_blocks_is_refused),
        cmocka_unit_test(test_context_asked_for_that_the_pool_cannot_hold_is_refused),
        cmocka_unit_test(test_a_model_whose_layers_slide_is_told_in_bytes_of_both_kinds),
        cmocka_unit_test(test_models_context_that_the_pool_cannot_hold_is_cut_with_a_note),
        cmocka_unit_test(test_more_than_the_machines_memory_is_refused),
        cmocka_unit_test(test_more_than_is_available_now_leaves_a_note),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
