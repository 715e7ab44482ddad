/* real_model.h - a real model against transformers in float32, teacher-forced: prompts with their
 * greedy continuations, and a text.
 *
 * Distances between distributions are taken over 9 buckets (the golden top 8 and the rest), which
 * is never above the full distance. Tolerances: shared/golden/README.md. */
#ifndef REFRAIN_TESTS_GOLDEN_REAL_MODEL_H
#define REFRAIN_TESTS_GOLDEN_REAL_MODEL_H

#include <cmocka.h>

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
    const json_t *golden;
    size_t prompts; /* how many of golden's */
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
    const json_t *prompts = json_object_get(run->golden, "prompts");
    assert_true(json_array_size(prompts) >= run->prompts);
    for (size_t i = 0; i < run->prompts; i++) {
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
    const json_t *text = json_object_get(run->golden, "text");
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
    assert_true(d->rows > 0);
    for (uint32_t i = 0; i < d->rows; i++)
        kl_mean += d->kl[i] / d->rows;
    qsort(d->kl, d->rows, sizeof(d->kl[0]), by_value);
    double kl_99 = d->kl[(size_t)(0.99 * (d->rows - 1))], kl_max = d->kl[d->rows - 1];
    double count = d->nll_count > 0 ? d->nll_count : 1; /* no text: all sums are 0 */
    double mean_difference = (d->nll_sum - d->golden_nll_sum) / count;
    print_message("%s: %u rows, KL mean %.3g, 99%% %.3g, max %.3g; top logits within %.3g\n", what,
                  d->rows, kl_mean, kl_99, kl_max, d->logit_max);
    print_message("%s: argmax equal in %u of %u rows of margin %.3g or more\n", what,
                  d->argmax_equal, d->argmax_compared, run->tolerance.margin);
    print_message("%s: NLL %.6f over %u tokens, %+.2g from golden, one token at most %.3g\n", what,
                  d->nll_sum / count, d->nll_count, mean_difference, d->nll_max);
    assert_true(kl_mean <= run->tolerance.kl_mean);
    assert_true(kl_max <= run->tolerance.kl_max);
    assert_true(fabs(mean_difference) <= run->tolerance.mean_nll);
    assert_int_equal(d->argmax_equal, d->argmax_compared);
    if (run->tolerance.logit > 0)
        assert_true(d->logit_max <= run->tolerance.logit);
    if (run->tolerance.nll > 0)
        assert_true(d->nll_max <= run->tolerance.nll);
}

/* What is run, and what of it. */
struct whole {
    const char *what;
    const json_t *golden;
    size_t prompts;
    uint32_t text_tokens; /* 0: no text */
    uint32_t vocab_size;
    struct tolerance tolerance;
};

/* Rows of prompts that were compared; *ret_argmax (NULL: unasked): of those the clear ones. */
static uint32_t run_model(const struct check_settings *settings, const struct whole *whole,
                          uint32_t *ret_argmax)
{
    struct errmsg err = {""};
    struct run *run = mem_zalloc(sizeof(*run));
    run->golden = whole->golden;
    run->prompts = whole->prompts;
    run->tolerance = whole->tolerance;
    if (check_open(settings, &run->check, &err) < 0)
        fail_msg("%s", err.text);
    run->vocab_size = check_config(run->check)->vocab_size;
    assert_int_equal(run->vocab_size, whole->vocab_size);
    run_prompts(run);
    if (whole->text_tokens > 0)
        run_text(run, whole->text_tokens);
    check_close(run->check);
    judge(run, whole->what);
    uint32_t rows = run->d.rows;
    if (ret_argmax != NULL)
        *ret_argmax = run->d.argmax_compared;
    mem_free(run);
    return rows;
}

#endif
