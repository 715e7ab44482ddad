/* test_gemma3.c - Gemma 3 270M Q4_K_M (real_model.h): Q4_K, Q5_0, Q6_K and Q8_0, windows of 512, a
 * vocabulary of 262144. The reference path on a short prompt (it takes a second for ten rows), the
 * default path on all prompts, of which one is longer than the window, and on 700 tokens of text.
 */
#include <cmocka.h>

#include "kernels/backend.h"
#include "tests/golden/real_model.h"

#define VOCAB 262144
#define PROMPTS 8
#define ROWS (PROMPTS * 49) /* each continuation has 48 tokens */

static const char *model;
static json_t *golden;

static const struct tolerance float32 = {
    .logit = 1e-3, .kl_mean = 1e-6, .kl_max = 1e-5, .margin = 2e-3};
static const struct tolerance int8 = {
    .mean_nll = 0.01, .kl_mean = 1e-2, .kl_max = 0.8, .margin = 1.8};

static void test_default_path_is_within_int8_tolerances(void **state)
{
    const struct check_settings settings = {
        .model = model, .backend = "cpu", .threads = 2, .chunk = 256, .tokens_max = 2048};
    const struct whole whole = {"cpu", golden, PROMPTS, 700, VOCAB, int8};
    uint32_t clear = 0;
    assert_int_equal(run_model(&settings, &whole, &clear), ROWS);
    assert_true(clear > 100);
}

static void test_avx2_on_two_ranks_is_within_int8_tolerances(void **state)
{
    const struct check_settings settings = {.model = model,
                                            .backend = "cpu",
                                            .isa = "avx2",
                                            .ranks = 2,
                                            .chunk = 256,
                                            .tokens_max = 2048};
    const struct whole whole = {"avx2, 2/2 heads on 1", golden, 3, 0, VOCAB, int8};
    assert_int_equal(run_model(&settings, &whole, NULL), 3 * 49);
}

static void test_reference_path_is_within_float32_tolerances(void **state)
{
    const struct check_settings settings = {
        .model = model, .reference = true, .chunk = 256, .tokens_max = 2048};
    const struct whole whole = {"ref", golden, 1, 0, VOCAB, float32};
    assert_int_equal(run_model(&settings, &whole, NULL), 49);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_default_path_is_within_int8_tolerances),
        cmocka_unit_test(test_avx2_on_two_ranks_is_within_int8_tolerances),
        cmocka_unit_test(test_reference_path_is_within_float32_tolerances),
    };
    model = model_path(GEMMA3_FILE);
    if (access(model, R_OK) < 0) {
        (void)fprintf(stderr, "skipped: the model %s is not there\n", model);
        return GOLDEN_SKIPPED;
    }
    golden = golden_read_json(SHARED_DIR "/golden/gemma3-270m-q4_k_m.json");
    if (golden == NULL) {
        (void)fprintf(stderr, "skipped: %s/golden is not there\n", SHARED_DIR);
        return GOLDEN_SKIPPED;
    }
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    json_decref(golden);
    return failures;
}
