/* test_smollm2.c - SmolLM2-135M-Instruct Q4_1 against transformers in float32, teacher-forced: the
 * reference path within float32's tolerances, the default path within those of int8 activations.
 *
 * Distances between distributions are taken over 9 buckets (the golden top 8 and the rest), which
 * is never above the full distance. Tolerances: shared/golden/README.md. */
#include <cmocka.h>

#include "kernels/backend.h"
#include "tests/golden/golden.h"
#include "worker/check.h"

#define TOP 8
#define ROWS_MAX 4096

struct tolerance {
    double logit;         /* of the top logits and logsumexp; 0: not compared */
    double nll, mean_nll; /* nll 0: not compared */
    double kl_mean, kl_max;
    double margin; /* argmax is equal from this margin on */
};

struct distances {
    double kl[ROWS_MAX];
    uint32_t rows, argmax_equal, argmax_compared;
    double logit_max;
    double nll_sum, golden_nll_sum, nll_max;
    uint32_t nll_count;
};

struct run {
    struct check *check;
    uint32_t vocab_size;
    struct tolerance tolerance;
    struct distances d;
    /* What the rows of the current sequence are compared with. */
    const json_t *prompt;
    uint32_t prompt_ids;
    const uint32_t *text_ids;
    uint32_t text_count;
    const json_t *text_nll;
};

static const char *model;
static json_t *golden;

/* --- rows ------------------------------------------------------------------------------------ */

static double bucket_kl(const json_t *top_ids, const json_t *top_logits, double golden_lse,
                        const float *logits, double lse)
{
    double kl = 0, p_rest = 1, q_rest = 1;
    for (size_t k = 0; k < TOP; k++) {
        size_t id = (size_t)json_integer_value(json_array_get(top_ids, k));
        double log_p = golden_number(top_logits, k) - golden_lse, log_q = (double)logits[id] - lse;
        kl += exp(log_p) * (log_p - log_q);
        p_rest -= exp(log_p);
        q_rest -= exp(log_q);
    }
    if (p_rest > 1e-12 && q_rest > 1e-12)
        kl += p_rest * log(p_rest / q_rest);
    return kl;
}

static void on_prompt_row(void *user, uint32_t position, const float *logits)
{
    struct run *run = user;
    struct distances *d = &run->d;
    if (position + 1 < run->prompt_ids)
        return;
    size_t row = position + 1 - run->prompt_ids;
    const json_t *top_ids = json_array_get(json_object_get(run->prompt, "top_ids"), row);
    const json_t *top_logits = json_array_get(json_object_get(run->prompt, "top_logits"), row);
    double golden_lse = golden_number(json_object_get(run->prompt, "logsumexp"), row);
    double lse = golden_logsumexp(logits, run->vocab_size);
    assert_int_equal(json_array_size(top_ids), TOP);
    for (size_t k = 0; k < TOP; k++) {
        size_t id = (size_t)json_integer_value(json_array_get(top_ids, k));
        d->logit_max = fmax(d->logit_max, fabs((double)logits[id] - golden_number(top_logits, k)));
    }
    d->logit_max = fmax(d->logit_max, fabs(lse - golden_lse));
    assert_true(d->rows < ROWS_MAX);
    d->kl[d->rows++] = bucket_kl(top_ids, top_logits, golden_lse, logits, lse);
    bool equal = golden_argmax(logits, run->vocab_size) ==
                 (uint32_t)json_integer_value(json_array_get(top_ids, 0));
    if (golden_number(json_object_get(run->prompt, "margin"), row) < run->tolerance.margin)
        return;
    d->argmax_compared++;
    d->argmax_equal += equal;
}

static void on_text_row(void *user, uint32_t position, const float *logits)
{
    struct run *run = user;
    struct distances *d = &run->d;
    if (position + 1 >= run->text_count)
        return;
    double nll =
        golden_logsumexp(logits, run->vocab_size) - (double)logits[run->text_ids[position + 1]];
    double expected = golden_number(run->text_nll, position);
    d->nll_sum += nll;
    d->golden_nll_sum += expected;
    d->nll_max = fmax(d->nll_max, fabs(nll - expected));
    d->nll_count++;
}

/* --- runs ------------------------------------------------------------------------------------ */

static void run_prompts(struct run *run)
{
    struct errmsg err = {""};
    const json_t *prompts = json_object_get(golden, "prompts");
    assert_int_equal(json_array_size(prompts), 16);
    for (size_t i = 0; i < json_array_size(prompts); i++) {
        uint32_t greedy_count = 0;
        run->prompt = json_array_get(prompts, i);
        uint32_t *ids = golden_ids(json_object_get(run->prompt, "ids"), &run->prompt_ids);
        uint32_t *greedy = golden_ids(json_object_get(run->prompt, "greedy"), &greedy_count);
        uint32_t count = run->prompt_ids + greedy_count;
        ids = mem_realloc(ids, count * sizeof(*ids));
        memcpy(ids + run->prompt_ids, greedy, greedy_count * sizeof(*ids));
        if (check_sequence(run->check, ids, count, on_prompt_row, run, &err) < 0)
            fail_msg("%s", err.text);
        mem_free(ids);
        mem_free(greedy);
    }
}

static void run_text(struct run *run, uint32_t tokens_max)
{
    struct errmsg err = {""};
    const json_t *text = json_object_get(golden, "text");
    uint32_t count = 0;
    uint32_t *ids = golden_ids(json_object_get(text, "ids"), &count);
    run->text_ids = ids;
    run->text_count = count < tokens_max ? count : tokens_max;
    run->text_nll = json_object_get(text, "nll");
    if (check_sequence(run->check, ids, run->text_count, on_text_row, run, &err) < 0)
        fail_msg("%s", err.text);
    mem_free(ids);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void judge(struct run *run, const char *what)
{
    struct distances *d = &run->d;
    double kl_mean = 0;
    for (uint32_t i = 0; i < d->rows; i++)
        kl_mean += d->kl[i] / d->rows;
    qsort(d->kl, d->rows, sizeof(d->kl[0]), by_value);
    double kl_99 = d->kl[(size_t)(0.99 * (d->rows - 1))], kl_max = d->kl[d->rows - 1];
    double mean_difference = (d->nll_sum - d->golden_nll_sum) / d->nll_count;
    print_message("%s: %u rows, KL mean %.3g, 99%% %.3g, max %.3g; top logits within %.3g\n", what,
                  d->rows, kl_mean, kl_99, kl_max, d->logit_max);
    print_message("%s: argmax equal in %u of %u rows of margin %.3g or more\n", what,
                  d->argmax_equal, d->argmax_compared, run->tolerance.margin);
    print_message("%s: NLL %.6f over %u tokens, %+.2g from golden, one token at most %.3g\n", what,
                  d->nll_sum / d->nll_count, d->nll_count, mean_difference, d->nll_max);
    assert_int_equal(d->rows, 712);
    assert_true(kl_mean <= run->tolerance.kl_mean);
    assert_true(kl_max <= run->tolerance.kl_max);
    assert_true(fabs(mean_difference) <= run->tolerance.mean_nll);
    assert_int_equal(d->argmax_equal, d->argmax_compared);
    assert_true(d->argmax_compared > 300);
    if (run->tolerance.logit > 0)
        assert_true(d->logit_max <= run->tolerance.logit);
    if (run->tolerance.nll > 0)
        assert_true(d->nll_max <= run->tolerance.nll);
}

static void run_model(const struct check_settings *settings, struct tolerance tolerance,
                      uint32_t text_tokens, const char *what)
{
    struct errmsg err = {""};
    struct run *run = mem_zalloc(sizeof(*run));
    run->tolerance = tolerance;
    if (check_open(settings, &run->check, &err) < 0)
        fail_msg("%s", err.text);
    run->vocab_size = check_config(run->check)->vocab_size;
    assert_int_equal(run->vocab_size, 49152);
    run_prompts(run);
    run_text(run, text_tokens);
    check_close(run->check);
    judge(run, what);
    mem_free(run);
}

static const struct tolerance float32 = {
    .logit = 1e-3, .nll = 1e-3, .mean_nll = 1e-4, .kl_mean = 1e-6, .kl_max = 1e-5, .margin = 2e-3};
static const struct tolerance int8 = {
    .mean_nll = 0.01, .kl_mean = 5e-3, .kl_max = 0.05, .margin = 0.5};

static void test_default_path_of_each_family_is_within_int8_tolerances(void **state)
{
    const char *family, *missing;
    for (size_t i = 0; (family = backend_cpu_family(i, &missing)) != NULL; i++) {
        const struct check_settings settings = {.model = model,
                                                .backend = "cpu",
                                                .isa = family,
                                                .threads = 2,
                                                .chunk = 256,
                                                .tokens_max = 2048};
        if (missing == NULL)
            run_model(&settings, int8, UINT32_MAX, family);
        else
            print_message("skipped: no %s, which family %s needs\n", missing, family);
    }
}

static void test_default_path_on_two_ranks_is_within_int8_tolerances(void **state)
{
    const struct check_settings settings = {
        .model = model, .backend = "cpu", .ranks = 2, .chunk = 256, .tokens_max = 2048};
    run_model(&settings, int8, UINT32_MAX, "cpu, 6/2 and 3/1 heads");
}

static void test_reference_path_on_prompts_and_text_is_within_float32_tolerances(void **state)
{
    const struct check_settings settings = {
        .model = model, .reference = true, .chunk = 256, .tokens_max = 2048};
    run_model(&settings, float32, 384, "ref");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_default_path_of_each_family_is_within_int8_tolerances),
        cmocka_unit_test(test_default_path_on_two_ranks_is_within_int8_tolerances),
        cmocka_unit_test(test_reference_path_on_prompts_and_text_is_within_float32_tolerances),
    };
    model = model_path(SMOLLM2_FILE);
    if (access(model, R_OK) < 0) {
        (void)fprintf(stderr, "skipped: the model %s is not there\n", model);
        return GOLDEN_SKIPPED;
    }
    golden = golden_read_json(SHARED_DIR "/golden/smollm2-135m-q4_1.json");
    if (golden == NULL) {
        (void)fprintf(stderr, "skipped: %s/golden is not there\n", SHARED_DIR);
        return GOLDEN_SKIPPED;
    }
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    json_decref(golden);
    return failures;
}
