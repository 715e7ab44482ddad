/* sampler.c - logits -> token.
 *
 *   rules -> penalties -> mask -> greedy: the best
 *                              -> weights exp((logit - max) / temperature) -> min-p -> top-k
 *                                 -> top-p -> draw
 *
 * Each filter keeps the best n of one order (logit descending, id ascending), so filters are cuts
 * in that order and their set is the smallest one: nothing is sorted. What is left is a list
 * (candidates.h) as soon as a filter is asked for, and the draw walks its weights in id order until
 * they exceed uniform * their sum. All sums are doubles in one fixed order.
 * Why top-p alone makes a list too: of the n tokens of a vocabulary those that weigh less than
 *   (1 - p) * sum / n are together less than what top-p leaves out, so they are not asked.
 * Cost (49,152 tokens, Zen 3): greedy 5 us, temperature alone 60, top-p 100 to 160, top-k 25, for
 *   then only what is kept needs an exp. */
#include "worker/sample/sampler.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "proto/base/rng.h"
#include "worker/sample/best.h"
#include "worker/sample/candidates.h"
#include "worker/sample/logprobs.h"
#include "worker/sample/mask.h"
#include "worker/sample/penalties.h"
#include "worker/sample/rules.h"
#include "worker/sample/select.h"
#include "worker/sample/weight.h"

#define DRAW_PIECE 512u
#define TEMPERATURE_MIN 1e-6 /* below: greedy */

struct sampler {
    uint32_t vocab_size;
    float *weights;
    double *sums;     /* of the weights before each DRAW_PIECE of them */
    float *untouched; /* copy of the logits, for logprobs */
    uint32_t *counts; /* all 0 between calls */
    struct candidates candidates;
    struct select_bins bins;
};

struct sampler *sampler_new(uint32_t vocab_size)
{
    struct sampler *sampler = mem_zalloc(sizeof(*sampler));

    ASSERT(vocab_size > 0);
    sampler->vocab_size = vocab_size;
    sampler->weights = mem_calloc(vocab_size, sizeof(*sampler->weights));
    sampler->sums = mem_calloc(vocab_size / DRAW_PIECE + 1, sizeof(*sampler->sums));
    sampler->untouched = mem_calloc(vocab_size, sizeof(*sampler->untouched));
    sampler->counts = mem_calloc(vocab_size, sizeof(*sampler->counts));
    candidates_init(&sampler->candidates, vocab_size);
    return sampler;
}

size_t sampler_bytes(uint32_t vocab_size)
{
    const struct sampler *s;
    const struct candidates *c;
    size_t token = sizeof(*s->weights) + sizeof(*s->untouched) + sizeof(*s->counts) +
                   sizeof(*c->ids) + sizeof(*c->logits) + sizeof(*c->weights);

    return sizeof(*s) + vocab_size * token + (vocab_size / DRAW_PIECE + 1) * sizeof(*s->sums);
}

void sampler_free(struct sampler *sampler)
{
    if (sampler == NULL)
        return;
    mem_free(sampler->weights);
    mem_free(sampler->sums);
    mem_free(sampler->untouched);
    mem_free(sampler->counts);
    candidates_done(&sampler->candidates);
    mem_free(sampler);
}

/* The best token, lowest id on ties. -EIO: a NaN or an infinity; `none`: all are -inf. */
static int find_best(const float *logits, uint32_t vocab_size, int none, uint32_t *ret_id)
{
    bool nan;
    uint32_t best = best_find(logits, vocab_size, &nan);

    if (nan || isinf(logits[best]))
        return nan || logits[best] > 0 ? -EIO : none;
    *ret_id = best;
    return 0;
}

/* Of all weights; sums[p]: of those before piece p. */
static double sum_weights(struct sampler *sampler, const float *weights, uint32_t count)
{
    double sum = 0;

    for (uint32_t first = 0; first < count; first += DRAW_PIECE) {
        uint32_t left = count - first;
        sampler->sums[first / DRAW_PIECE] = sum;
        sum += weight_sum(weights + first, left < DRAW_PIECE ? left : DRAW_PIECE);
    }
    return sum;
}

/* The first place at which the sum of weights exceeds its share: the piece by the sums before it,
 * then one by one. Where the two round apart the next weight is the one. */
static uint32_t draw(struct sampler *sampler, const float *weights, uint32_t count, double uniform)
{
    double target = uniform * sum_weights(sampler, weights, count);
    uint32_t at = (count - 1) / DRAW_PIECE;

    while (at > 0 && sampler->sums[at] > target)
        at--;
    double sum = sampler->sums[at];
    for (at *= DRAW_PIECE; at < count; at++) {
        sum += weights[at];
        if (sum > target)
            return at;
    }
    for (at = count - 1; at > 0 && weights[at] <= 0;) /* target rounded up to the sum */
        at--;
    return at;
}

/* All candidates weigh something, but where logits are -inf. */
static void narrow(struct sampler *sampler, const float *logits, const struct sample_params *params,
                   float max, bool best_only)
{
    struct candidates *c = &sampler->candidates;
    const uint32_t vocab_size = sampler->vocab_size;
    float scale = (float)(1 / params->temperature), min_p = (float)params->min_p;
    double total = 0;

    if (best_only) {
        candidates_take_best(c, logits, vocab_size, params->top_k, &sampler->bins);
        weight_fill(c->logits, c->count, max, scale, c->weights);
        if (min_p > 0) /* the best one weighs 1 */
            candidates_drop_light(c, min_p);
    } else {
        weight_fill(logits, vocab_size, max, scale, sampler->weights);
        total = min_p > 0 ? 0 : sum_weights(sampler, sampler->weights, vocab_size);
        float least = min_p > 0 ? min_p : (float)((1 - params->top_p) * total / vocab_size);
        candidates_take_heavy(c, logits, sampler->weights, vocab_size, least);
    }
    if (params->top_p >= 1)
        return;
    if (total == 0)
        total = sum_weights(sampler, c->weights, c->count);
    candidates_keep_mass(c, params->top_p * total, &sampler->bins);
}

static uint32_t sample(struct sampler *sampler, const float *logits, const struct sample_row *row,
                       float max)
{
    const struct sample_params *params = row->params;
    const struct candidates *c = &sampler->candidates;
    double uniform = rng_uniform(params->seed, row->position);
    bool best_only = params->top_k > 0 && params->top_k < sampler->vocab_size;

    if (best_only || params->min_p > 0 || params->top_p < 1) {
        narrow(sampler, logits, params, max, best_only);
        return c->ids[draw(sampler, c->weights, c->count, uniform)];
    }
    weight_fill(logits, sampler->vocab_size, max, (float)(1 / params->temperature),
                sampler->weights);
    return draw(sampler, sampler->weights, sampler->vocab_size, uniform);
}

/* The token, with what the client wants to know of it. */
static void tell(struct sampler *sampler, const struct sample_row *row, float untouched_max,
                 uint32_t id, struct sample_result *ret_result)
{
    const struct sample_params *params = row->params;

    ret_result->id = id;
    ret_result->logprob = 0;
    ret_result->rank = ret_result->top_count = 0;
    if (params->logprobs == 0)
        return;
    if (params->logprob_ids_count > 0)
        logprobs_fill_named(sampler->untouched, sampler->vocab_size, untouched_max,
                            params->logprob_ids, params->logprob_ids_count, sampler->weights,
                            ret_result);
    else
        logprobs_fill(sampler->untouched, sampler->vocab_size, untouched_max, params->logprobs - 1,
                      sampler->weights, &sampler->bins, ret_result);
}

int sampler_sample(struct sampler *sampler, float *logits, const struct sample_row *row,
                   struct sample_result *ret_result)
{
    uint32_t logprobs = row->params->logprobs;
    uint32_t best;

    int r = find_best(logits, sampler->vocab_size, -EIO, &best);
    if (r < 0)
        return r;
    float untouched_max = logits[best];
    if (logprobs > 0)
        memcpy(sampler->untouched, logits, sampler->vocab_size * sizeof(*logits));
    if (row->forced != NULL) {
        ASSERT(*row->forced < sampler->vocab_size);
        tell(sampler, row, untouched_max, *row->forced, ret_result);
        return 0;
    }
    if (row->rules != NULL)
        sample_rules_apply(row->rules, logits, row->output_ids, row->output_count);
    bool changed = row->rules != NULL || row->mask != NULL || row->banned_count > 0;
    changed |= penalties_apply(row, logits, sampler->vocab_size, sampler->counts);
    if (row->mask != NULL)
        sample_mask_apply(row->mask, logits, sampler->vocab_size);
    for (uint32_t i = 0; i < row->banned_count; i++) {
        ASSERT(row->banned[i] < sampler->vocab_size);
        logits[row->banned[i]] = -INFINITY;
    }
    r = changed ? find_best(logits, sampler->vocab_size, -ENODATA, &best) : 0;
    if (r < 0)
        return r;
    uint32_t id = best;
    if (row->params->temperature >= TEMPERATURE_MIN)
        id = sample(sampler, logits, row, logits[best]);
    tell(sampler, row, untouched_max, id, ret_result);
    return 0;
}

int sampler_score(struct sampler *sampler, const float *logits, uint32_t id, uint32_t top,
                  struct sample_result *ret_result)
{
    struct sample_result result = {.id = id};
    uint32_t best;

    int r = find_best(logits, sampler->vocab_size, -EIO, &best);
    if (r < 0)
        return r;
    logprobs_fill(logits, sampler->vocab_size, logits[best], top, sampler->weights, &sampler->bins,
                  &result);
    *ret_result = result;
    return 0;
}
