/* test_exact_schedules.c - reuse never changes an answer: 200 random schedules over
 * SmolLM2-135M-Instruct Q4_1 on 1, 2 and 3 ranks (tests/exact/exact.h). bench/exact_soak plays as
 * many as one likes, and one of these again. */
#include <cmocka.h>

#include "proto/base/log.h"
#include "tests/exact/exact.h"
#include "tests/golden/golden.h"

#define MODEL_FILE "SmolLM2-135M-Instruct.Q4_1.gguf"
#define SEED 1u

static char model_path[1024];

static void play(uint32_t ranks, uint32_t threads, uint32_t schedules, struct exact_counts *totals)
{
    const struct exact_settings settings = {
        .model = model_path, .ranks = ranks, .threads = threads, .seed = SEED};
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
    struct exact_counts totals = {0};
    (void)state;
    play(1, 2, 140, &totals);
    play(2, 1, 40, &totals);
    play(3, 1, 20, &totals);
    exact_counts_print(&totals, 0, stdout);
    assert_int_equal(totals.schedules, 200);
    assert_true(totals.positions > 20 * totals.schedules && totals.scored > totals.schedules);
    /* The schedules reach what they are meant to reach. */
    assert_true(totals.preemptions > 0 && totals.evictions > 0);
    assert_true(totals.hits > 0 && totals.copies > totals.forks && totals.forks > 0);
    assert_true(totals.holds > 0 && totals.chunks > 0 && totals.cancels > 0);
    assert_true(totals.tier_stores > 0 && totals.tier_loads > 0);
}

/* ${XDG_CACHE_HOME:-~/.cache}/refrain/models, where tests look for models. */
static bool find_model(void)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (cache != NULL && cache[0] != '\0')
        (void)snprintf(model_path, sizeof(model_path), "%s/refrain/models/%s", cache, MODEL_FILE);
    else
        (void)snprintf(model_path, sizeof(model_path), "%s/.cache/refrain/models/%s",
                       home == NULL ? "" : home, MODEL_FILE);
    FILE *file = fopen(model_path, "rb");
    if (file == NULL)
        return false;
    (void)fclose(file);
    return true;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_logit_of_200_schedules_has_the_bits_of_the_run_alone),
    };
    if (!find_model()) {
        (void)fprintf(stderr, "skipped: the model %s is not there\n", model_path);
        return GOLDEN_SKIPPED;
    }
    log_init("test", LOG_WARN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
