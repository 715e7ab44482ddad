/* test_sampler.c - exact cases by hand, random ones against a naive sampler that sorts, and the
 * distribution by chi-square. Everything is seeded: a run is the same run each time. */
#include <cmocka.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/mem.h"
#include "proto/base/rng.h"
#include "worker/sample/penalties.h"
#include "worker/sample/sampler.h"
#include "worker/sample/select.h"
#include "worker/sample/weight.h"

#define VOCAB_MAX 3000

static const struct sample_params greedy = {.top_p = 1, .repetition_penalty = 1};

static struct sample_result sample_of(const float *logits, uint32_t vocab_size,
                                      const struct sample_row *row)
{
    struct sampler *sampler = sampler_new(vocab_size);
    struct sample_result result;
    float scribbled[VOCAB_MAX];

    assert_true(vocab_size <= VOCAB_MAX);
    memcpy(scribbled, logits, vocab_size * sizeof(*logits));
    assert_int_equal(sampler_sample(sampler, scribbled, row, &result), 0);
    sampler_free(sampler);
    return result;
}

static void test_greedy_takes_the_lowest_id_of_the_best(void **state)
{
    const float logits[] = {1, 3, -2, 3, 0};
    const float zeros[] = {-1, -0.0f, 0.0f, -2};
    const struct sample_row row = {.params = &greedy};
    (void)state;
    assert_int_equal(sample_of(logits, 5, &row).id, 1);
    assert_int_equal(sample_of(zeros, 4, &row).id, 1); /* -0.0 is not less than 0.0 */
}

static void test_broken_logits_are_refused_and_leave_the_result_alone(void **state)
{
    const float broken[][3] = {
        {0, NAN, 1}, {NAN, 0, 0}, {0, INFINITY, 1}, {-INFINITY, -INFINITY, -INFINITY}};
    struct sampler *sampler = sampler_new(3);
    const struct sample_row row = {.params = &greedy};
    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        struct sample_result result = {.id = 77};
        float logits[3];
        memcpy(logits, broken[i], sizeof(logits));
        assert_int_equal(sampler_sample(sampler, logits, &row, &result), -EIO);
        assert_int_equal(result.id, 77);
    }
    sampler_free(sampler);
}

static void test_banned_ids_are_never_taken(void **state)
{
    const float logits[] = {1, 5, 4, 0};
    const uint32_t banned[] = {1, 2};
    const uint32_t all[] = {0, 1, 2, 3};
    struct sample_row row = {.params = &greedy, .banned = banned, .banned_count = 2};
    struct sample_result result;
    float scribbled[4];
    (void)state;
    assert_int_equal(sample_of(logits, 4, &row).id, 0);
    struct sampler *sampler = sampler_new(4);
    row.banned = all;
    row.banned_count = 4;
    memcpy(scribbled, logits, sizeof(scribbled));
    assert_int_equal(sampler_sample(sampler, scribbled, &row, &result), -ENODATA);
    sampler_free(sampler);
}

static void test_penalties_by_hand(void **state)
{
    struct sample_params params = greedy;
    const uint32_t prompt[] = {0, 1, 0};
    const uint32_t output[] = {2, 2, 1};
    uint32_t counts[5] = {0};
    float logits[] = {2, -2, 6, 1, -1};
    const struct sample_row row = {.params = &params,
                                   .prompt_ids = prompt,
                                   .prompt_count = 3,
                                   .output_ids = output,
                                   .output_count = 3};
    (void)state;
    params.repetition_penalty = 2;
    params.frequency_penalty = 0.5;
    params.presence_penalty = 0.25;
    penalties_apply(&row, logits, 5, counts);
    assert_true(logits[0] == 1);      /* 2 / 2, prompt only */
    assert_true(logits[1] == -4.75f); /* -2 * 2 - 0.5 * 1 - 0.25 */
    assert_true(logits[2] == 1.75f);  /* 6 / 2 - 0.5 * 2 - 0.25 */
    assert_true(logits[3] == 1 && logits[4] == -1);
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(counts[i], 0);
    logits[0] = 2;
    params.repetition_penalty = 1; /* the prompt is not asked for then */
    penalties_apply(&row, logits, 5, counts);
    assert_true(logits[0] == 2);
}

/* Which ids come out at all in 2000 positions, as a bit set. */
static uint32_t support(const float *logits, uint32_t vocab_size,
                        const struct sample_params *params)
{
    struct sample_row row = {.params = params};
    uint32_t seen = 0;

    for (row.position = 0; row.position < 2000; row.position++)
        seen |= 1u << sample_of(logits, vocab_size, &row).id;
    return seen;
}

static void test_filters_keep_what_they_should(void **state)
{
    /* Probabilities 0.4 0.3 0.2 0.1, and two ids with none. */
    const float logits[] = {logf(0.2f), logf(0.4f), -INFINITY, logf(0.1f), logf(0.3f), -INFINITY};
    struct sample_params params = {.temperature = 1, .top_p = 1, .repetition_penalty = 1};
    (void)state;
    assert_int_equal(support(logits, 6, &params), 0x1b);
    params.top_k = 2;
    assert_int_equal(support(logits, 6, &params), 1 << 1 | 1 << 4);
    params.top_k = 100;
    assert_int_equal(support(logits, 6, &params), 0x1b);
    params.top_k = 0;
    params.top_p = 0.69; /* 0.4 is short of it, 0.4 + 0.3 is not */
    assert_int_equal(support(logits, 6, &params), 1 << 1 | 1 << 4);
    params.top_p = 0.71;
    assert_int_equal(support(logits, 6, &params), 1 << 0 | 1 << 1 | 1 << 4);
    params.top_p = 1e-9; /* always at least one */
    assert_int_equal(support(logits, 6, &params), 1 << 1);
    params.top_p = 1;
    params.min_p = 0.6; /* 0.6 * 0.4 = 0.24 */
    assert_int_equal(support(logits, 6, &params), 1 << 1 | 1 << 4);
    params.top_p = 0.5; /* 0.4 of the 0.7 left is enough */
    assert_int_equal(support(logits, 6, &params), 1 << 1);
}

static void test_ties_at_a_cut_go_to_the_lowest_ids(void **state)
{
    const float logits[] = {0, 1, 0, 1, 1, 0};
    struct sample_params params = {
        .temperature = 0.7, .top_p = 1, .top_k = 2, .repetition_penalty = 1};
    (void)state;
    assert_int_equal(support(logits, 6, &params), 1 << 1 | 1 << 3);
    params.top_k = 4;
    assert_int_equal(support(logits, 6, &params), 1 << 0 | 1 << 1 | 1 << 3 | 1 << 4);
    params.top_k = 3;
    params.top_p = 0.6; /* of three equals, two */
    assert_int_equal(support(logits, 6, &params), 1 << 1 | 1 << 3);
}

static void test_a_token_depends_on_seed_and_position_only(void **state)
{
    float logits[64];
    struct sample_params params = {
        .temperature = 1, .top_p = 0.95, .repetition_penalty = 1, .seed = 5};
    struct sample_row row = {.params = &params, .position = 9};
    uint32_t differ = 0;
    (void)state;
    for (uint32_t i = 0; i < 64; i++)
        logits[i] = (float)(i % 7);
    uint32_t id = sample_of(logits, 64, &row).id;
    for (uint32_t other = 10; other < 40; other++) {
        row.position = other;
        differ += sample_of(logits, 64, &row).id != id;
    }
    row.position = 9;
    assert_int_equal(sample_of(logits, 64, &row).id, id);
    assert_true(differ > 20);
}

/* The naive sampler: sort all, cut, draw in id order; libm's exp. */
struct ranked {
    float logit;
    uint32_t id;
    double weight;
};

static int by_rank(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->logit != y->logit)
        return x->logit > y->logit ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

static int by_id(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    return x->id < y->id ? -1 : 1;
}

static uint32_t cut_naively(struct ranked *ranked, uint32_t count, const struct sample_params *p)
{
    uint32_t kept = 0;
    double total = 0, sum = 0;

    while (kept < count && ranked[kept].weight >= p->min_p && ranked[kept].weight > 0)
        kept++;
    if (p->top_k > 0 && kept > p->top_k)
        kept = p->top_k;
    if (p->top_p >= 1)
        return kept;
    for (uint32_t i = 0; i < kept; i++)
        total += ranked[i].weight;
    for (uint32_t i = 0; i < kept; i++) {
        sum += ranked[i].weight;
        if (sum >= p->top_p * total)
            return i + 1;
    }
    return kept;
}

static uint32_t sample_naively(const float *logits, uint32_t vocab_size,
                               const struct sample_row *row)
{
    static struct ranked ranked[VOCAB_MAX];
    const struct sample_params *p = row->params;
    double total = 0, sum = 0;

    for (uint32_t i = 0; i < vocab_size; i++)
        ranked[i] = (struct ranked){.logit = logits[i], .id = i};
    qsort(ranked, vocab_size, sizeof(*ranked), by_rank);
    for (uint32_t i = 0; i < vocab_size; i++)
        ranked[i].weight = exp(((double)ranked[i].logit - ranked[0].logit) / p->temperature);
    uint32_t kept = cut_naively(ranked, vocab_size, p);
    qsort(ranked, kept, sizeof(*ranked), by_id);
    for (uint32_t i = 0; i < kept; i++)
        total += ranked[i].weight;
    for (uint32_t i = 0; i < kept; i++) {
        sum += ranked[i].weight;
        if (sum > rng_uniform(p->seed, row->position) * total)
            return ranked[i].id;
    }
    return ranked[kept - 1].id;
}

static double uniform(uint64_t *at)
{
    return rng_uniform(4711, (*at)++);
}

static void test_random_rows_agree_with_a_naive_sampler(void **state)
{
    static float logits[VOCAB_MAX];
    uint64_t at = 0;
    (void)state;
    for (uint32_t trial = 0; trial < 3000; trial++) {
        uint32_t vocab_size = 1 + (uint32_t)(uniform(&at) * (trial % 10 ? 60 : VOCAB_MAX - 1));
        bool coarse = uniform(&at) < 0.5; /* many ties */
        double spread = uniform(&at) * 20;
        for (uint32_t i = 0; i < vocab_size; i++) {
            double value = (uniform(&at) - 0.5) * spread;
            logits[i] = coarse ? (float)round(value) : (float)value;
            if (i > 0 && uniform(&at) < 0.05)
                logits[i] = -INFINITY;
        }
        struct sample_params params = {
            .temperature = 0.05 + uniform(&at) * 2,
            .top_k = uniform(&at) < 0.5 ? 0 : (uint32_t)(uniform(&at) * 80),
            .top_p = uniform(&at) < 0.5 ? 1 : 0.001 + uniform(&at) * 0.998,
            .min_p = uniform(&at) < 0.5 ? 0 : uniform(&at) * uniform(&at),
            .seed = trial,
            .repetition_penalty = 1,
        };
        struct sample_row row = {.params = &params};
        for (row.position = 0; row.position < 5; row.position++)
            assert_int_equal(sample_of(logits, vocab_size, &row).id,
                             sample_naively(logits, vocab_size, &row));
    }
}

static void test_draws_follow_the_distribution(void **state)
{
    const double p[] = {0.30, 0.05, 0.20, 0.01, 0.15, 0.09, 0.12, 0.08};
    const uint32_t draws = 100000;
    struct sample_params params = {
        .temperature = 0.5, .top_p = 1, .repetition_penalty = 1, .seed = 12345};
    struct sample_row row = {.params = &params};
    struct sampler *sampler = sampler_new(8);
    uint32_t seen[8] = {0};
    double chi_square = 0;
    (void)state;
    for (row.position = 0; row.position < draws; row.position++) {
        struct sample_result result;
        float logits[8];
        for (uint32_t i = 0; i < 8; i++)
            logits[i] = (float)(0.5 * log(p[i]));
        assert_int_equal(sampler_sample(sampler, logits, &row, &result), 0);
        seen[result.id]++;
    }
    for (uint32_t i = 0; i < 8; i++)
        chi_square += pow(seen[i] - draws * p[i], 2) / (draws * p[i]);
    assert_true(chi_square < 24.3); /* 7 degrees of freedom, 0.1 % */
    sampler_free(sampler);
}

static void test_seeds_are_independent_of_each_other(void **state)
{
    uint32_t seen[4] = {0};
    double chi_square = 0;
    (void)state;
    for (uint64_t seed = 0; seed < 20000; seed++) {
        const float logits[] = {0, 0, 0, 0};
        struct sample_params params = {
            .temperature = 1, .top_p = 1, .repetition_penalty = 1, .seed = seed};
        const struct sample_row row = {.params = &params, .position = 3};
        seen[sample_of(logits, 4, &row).id]++;
    }
    for (uint32_t i = 0; i < 4; i++)
        chi_square += pow(seen[i] - 5000.0, 2) / 5000;
    assert_true(chi_square < 16.3); /* 3 degrees of freedom, 0.1 % */
}

static void test_logprobs_are_of_the_untouched_distribution(void **state)
{
    /* Probabilities 0.25 0.5 0.25 before the mask takes the best one away. */
    const float logits[] = {0, logf(2), 0, -INFINITY};
    const uint32_t banned[] = {1};
    struct sample_params params = greedy;
    const struct sample_row row = {.params = &params, .banned = banned, .banned_count = 1};
    (void)state;
    params.logprobs = 5; /* four best */
    struct sample_result result = sample_of(logits, 4, &row);
    assert_int_equal(result.id, 0);
    assert_true(fabs(result.logprob - log(0.25)) < 1e-6);
    assert_int_equal(result.rank, 2);
    assert_int_equal(result.top_count, 4);
    const uint32_t ids[] = {1, 0, 2, 3};
    assert_memory_equal(result.top_ids, ids, sizeof(ids));
    assert_true(fabs(result.top_logprobs[0] - log(0.5)) < 1e-6);
    assert_true(fabs(result.top_logprobs[2] - log(0.25)) < 1e-6);
    assert_true(result.top_logprobs[3] == -9999);
    params.logprobs = 1; /* the chosen one alone */
    result = sample_of(logits, 4, &row);
    assert_int_equal(result.top_count, 0);
    assert_true(fabs(result.logprob - log(0.25)) < 1e-6);
}

static void test_twenty_logprobs_are_the_twenty_best_in_order(void **state)
{
    static float logits[VOCAB_MAX];
    struct sample_params params = greedy;
    const struct sample_row row = {.params = &params};
    uint64_t at = 0;
    (void)state;
    for (uint32_t i = 0; i < VOCAB_MAX; i++)
        logits[i] = (float)round(uniform(&at) * 500);
    params.logprobs = 21;
    struct sample_result result = sample_of(logits, VOCAB_MAX, &row);
    assert_int_equal(result.top_count, 20);
    assert_int_equal(result.rank, 1);
    assert_int_equal(result.top_ids[0], result.id);
    for (uint32_t n = 0; n < 20; n++) {
        uint32_t before = 0, id = result.top_ids[n];
        for (uint32_t i = 0; i < VOCAB_MAX; i++)
            before += logits[i] > logits[id] || (logits[i] == logits[id] && i < id);
        assert_int_equal(before, n);
    }
}

static void test_named_logprobs_stand_in_the_order_of_their_names(void **state)
{
    const float logits[] = {0, logf(2), 0, -INFINITY};
    const uint32_t ids[] = {3, 1, 0};
    struct sample_params params = greedy;
    const struct sample_row row = {.params = &params};
    (void)state;
    params.logprobs = 3;
    params.logprob_ids = ids;
    params.logprob_ids_count = 3;
    struct sample_result result = sample_of(logits, 4, &row);
    assert_int_equal(result.id, 1);
    assert_int_equal(result.rank, 1);
    assert_int_equal(result.top_count, 3);
    assert_memory_equal(result.top_ids, ids, sizeof(ids));
    assert_true(result.top_logprobs[0] == -9999);
    assert_true(result.top_logprobs[1] == result.logprob);
    assert_true(fabs(result.top_logprobs[2] - log(0.25)) < 1e-6);
}

/* Past rules, bans and the draw; its numbers are the model's. */
static void test_a_forced_token_comes_whatever_the_logits_say(void **state)
{
    const float logits[] = {0, 9, 0, -INFINITY};
    const uint32_t forced[] = {0, 3}, banned[] = {0, 3};
    struct sample_params params = {
        .temperature = 1, .top_p = 1, .repetition_penalty = 1, .logprobs = 2};
    struct sample_row row = {
        .params = &params, .banned = banned, .banned_count = 2, .forced = &forced[0]};
    (void)state;
    struct sample_result result = sample_of(logits, 4, &row);
    assert_int_equal(result.id, 0);
    assert_int_equal(result.rank, 2);
    assert_int_equal(result.top_ids[0], 1);
    row.forced = &forced[1];
    result = sample_of(logits, 4, &row);
    assert_int_equal(result.id, 3);
    assert_true(result.logprob == -9999);
}

static void test_weights_are_exp_to_a_few_roundings(void **state)
{
    uint64_t at = 0;
    (void)state;
    assert_true(weight_exp(0) == 1);
    assert_true(weight_exp(-INFINITY) == 0);
    assert_true(weight_exp(-87.5f) == 0);
    for (uint32_t i = 0; i < 100000; i++) {
        float x = (float)(-87 * uniform(&at) * uniform(&at));
        assert_true(fabs(weight_exp(x) / exp(x) - 1) < 2e-7);
    }
}

static void test_weights_of_a_row_have_the_bits_of_single_ones(void **state)
{
    float values[103], weights[103];
    uint64_t at = 0;
    (void)state;
    for (uint32_t i = 0; i < 103; i++)
        values[i] = i % 10 == 9 ? -INFINITY : (float)(3 - 400 * uniform(&at) * uniform(&at));
    for (uint32_t count = 0; count <= 103; count++) {
        weight_fill(values, count, 3, 1.7f, weights);
        for (uint32_t i = 0; i < count; i++)
            assert_true(weights[i] == weight_exp((values[i] - 3) * 1.7f));
    }
}

static void test_numbers_out_of_range_are_refused_by_name(void **state)
{
    const struct sample_params good = {
        .temperature = 1, .top_p = 1, .repetition_penalty = 1, .logprobs = 33};
    struct sample_params bad[9];
    static const char *const names[9] = {
        "temperature",      "temperature",       "top_p",   "top_p", "min_p", "repetition_penalty",
        "presence_penalty", "frequency_penalty", "logprobs"};
    struct errmsg err;
    (void)state;
    assert_int_equal(sample_params_check(&good, &err), 0);
    assert_int_equal(sample_params_check(&greedy, NULL), 0);
    for (uint32_t i = 0; i < 9; i++)
        bad[i] = good;
    bad[0].temperature = -0.1;
    bad[1].temperature = NAN;
    bad[2].top_p = 0;
    bad[3].top_p = 1.01;
    bad[4].min_p = -1;
    bad[5].repetition_penalty = 0;
    bad[6].presence_penalty = INFINITY;
    bad[7].frequency_penalty = NAN;
    bad[8].logprobs = 34;
    for (uint32_t i = 0; i < 9; i++) {
        assert_int_equal(sample_params_check(&bad[i], &err), -EINVAL);
        assert_non_null(strstr(err.text, names[i]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_greedy_takes_the_lowest_id_of_the_best),
        cmocka_unit_test(test_broken_logits_are_refused_and_leave_the_result_alone),
        cmocka_unit_test(test_banned_ids_are_never_taken),
        cmocka_unit_test(test_penalties_by_hand),
        cmocka_unit_test(test_filters_keep_what_they_should),
        cmocka_unit_test(test_ties_at_a_cut_go_to_the_lowest_ids),
        cmocka_unit_test(test_a_token_depends_on_seed_and_position_only),
        cmocka_unit_test(test_random_rows_agree_with_a_naive_sampler),
        cmocka_unit_test(test_draws_follow_the_distribution),
        cmocka_unit_test(test_seeds_are_independent_of_each_other),
        cmocka_unit_test(test_logprobs_are_of_the_untouched_distribution),
        cmocka_unit_test(test_twenty_logprobs_are_the_twenty_best_in_order),
        cmocka_unit_test(test_named_logprobs_stand_in_the_order_of_their_names),
        cmocka_unit_test(test_a_forced_token_comes_whatever_the_logits_say),
        cmocka_unit_test(test_weights_are_exp_to_a_few_roundings),
        cmocka_unit_test(test_weights_of_a_row_have_the_bits_of_single_ones),
        cmocka_unit_test(test_numbers_out_of_range_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
