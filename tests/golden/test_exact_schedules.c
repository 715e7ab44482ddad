/* test_exact_schedules.c - reuse never changes an answer: 200 random schedules over
 * SmolLM2-135M-Instruct Q4_1 on 1, 2 and 3 ranks (tests/exact/exact.h), some of them over int8 KV.
 * bench/exact_soak plays as many as one likes, and one of these again. */
#include <cmocka.h>

#include "proto/base/log.h"
#include "tests/exact/exact.h"
#include "tests/golden/golden.h"

#define SEED 1u

static const char *model;

static void play(uint32_t ranks, uint32_t threads, enum kv_dtype kv_dtype, uint32_t schedules,
                 struct exact_counts *totals)
{
    const struct exact_settings settings = {
        .model = model, .ranks = ranks, .threads = threads, .seed = SEED, .kv_dtype = kv_dtype};
    struct exact *exact = NULL;
    struct errmsg err = {""};
    if (exact_open(&settings, &exact, &err) < 0)
        fail_msg("%u ranks: %s", ranks, err.text);
    for (uint32_t k = 0; k < schedules; k++) {
        if (exact_run(exact, k, &err) != 0)
            fail_msg("%u ranks: %s", ranks, err.text);
    }
    exact_counts_add(totals, exact_counts(exact));
    exact_close(exact);
}

static void test_each_logit_of_200_schedules_has_the_bits_of_the_run_alone(void **state)
{
    struct exact_counts totals = {0}, int8 = {0};
    (void)state;
    play(1, 2, KV_BFLOAT16, 120, &totals);
    play(2, 1, KV_BFLOAT16, 30, &totals);
    play(3, 1, KV_BFLOAT16, 20, &totals);
    play(2, 1, KV_INT8, 30, &int8);
    exact_counts_print(&int8, 0, stdout);
    assert_true(int8.hits > 0 && int8.copies > 0 && int8.evictions > 0);
    assert_true(int8.tier_loads + int8.disk_loads > 0);
    exact_counts_add(&totals, &int8);
    exact_counts_print(&totals, 0, stdout);
    assert_int_equal(totals.schedules, 200);
    assert_true(totals.positions > 20 * totals.schedules && totals.scored > totals.schedules);
    /* The schedules reach what they are meant to reach. */
    assert_true(totals.preemptions > 0 && totals.evictions > 0);
    assert_true(totals.hits > 0 && totals.copies > totals.forks && totals.forks > 0);
    assert_true(totals.holds > 0 && totals.chunks > 0 && totals.cancels > 0);
    assert_true(totals.tier_stores > 0 && totals.tier_loads > 0);
    assert_true(totals.disk_stores > 0 && totals.disk_loads > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_logit_of_200_schedules_has_the_bits_of_the_run_alone),
    };
    model = model_path(SMOLLM2_FILE);
    if (access(model, R_OK) < 0) {
        (void)fprintf(stderr, "skipped: the model %s is not there\n", model);
        return GOLDEN_SKIPPED;
    }
    log_init("test", LOG_WARN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
