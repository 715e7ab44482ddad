/* logprobs.c - one pass for the normaliser, one for the rank, selection for the best few. */
#include "worker/sample/logprobs.h"

#include <math.h>

#include "proto/base/assert.h"
#include "worker/sample/weight.h"

static float logprob(float logit, float max, double log_sum)
{
    double value = (double)logit - max - log_sum;

    return value < LOGPROB_MIN ? LOGPROB_MIN : (float)value;
}

static uint32_t rank_of(const float *logits, uint32_t vocab_size, uint32_t id)
{
    uint32_t rank = 1;

    for (uint32_t i = 0; i < vocab_size; i++)
        rank += logits[i] > logits[id] || (logits[i] == logits[id] && i < id);
    return rank;
}

/* ids come in ascending order, so a later one goes behind its equals. */
static void insert(struct sample_result *result, const float *logits, uint32_t id)
{
    uint32_t at = result->top_count++;

    while (at > 0 && logits[result->top_ids[at - 1]] < logits[id]) {
        result->top_ids[at] = result->top_ids[at - 1];
        at--;
    }
    result->top_ids[at] = id;
}

/* Of result->id; log of the sum of all weights. */
static double fill_chosen(const float *logits, uint32_t vocab_size, float max, float *weights,
                          struct sample_result *result)
{
    ASSERT(result->id < vocab_size);
    weight_fill(logits, vocab_size, max, 1, weights);
    double log_sum = log(weight_sum(weights, vocab_size));
    result->logprob = logprob(logits[result->id], max, log_sum);
    result->rank = rank_of(logits, vocab_size, result->id);
    return log_sum;
}

void logprobs_fill(const float *logits, uint32_t vocab_size, float max, uint32_t top,
                   float *weights, struct select_bins *bins, struct sample_result *result)
{
    double log_sum = fill_chosen(logits, vocab_size, max, weights, result);

    ASSERT(top <= SAMPLE_LOGPROBS_MAX);
    result->top_count = 0;
    if (top > vocab_size)
        top = vocab_size;
    if (top == 0)
        return;
    uint32_t ids[SAMPLE_LOGPROBS_MAX];
    select_best(logits, vocab_size, top, bins, ids);
    for (uint32_t i = 0; i < top; i++)
        insert(result, logits, ids[i]);
    for (uint32_t i = 0; i < top; i++)
        result->top_logprobs[i] = logprob(logits[result->top_ids[i]], max, log_sum);
}

void logprobs_fill_named(const float *logits, uint32_t vocab_size, float max, const uint32_t *ids,
                         uint32_t count, float *weights, struct sample_result *result)
{
    double log_sum = fill_chosen(logits, vocab_size, max, weights, result);

    ASSERT(count <= SAMPLE_LOGPROBS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        ASSERT(ids[i] < vocab_size);
        result->top_ids[i] = ids[i];
        result->top_logprobs[i] = logprob(logits[ids[i]], max, log_sum);
    }
    result->top_count = count;
}
