/* logprobs.h - log probabilities of the model's own distribution, for the client to look at.
 *
 * log softmax over the untouched logits: no penalty, mask, temperature or cut. Rank and list order:
 * logit descending, then id ascending. A probability of 0 is told as LOGPROB_MIN. Thread: any. */
#ifndef REFRAIN_WORKER_SAMPLE_LOGPROBS_H
#define REFRAIN_WORKER_SAMPLE_LOGPROBS_H

#include "worker/sample/sampler.h"
#include "worker/sample/select.h"

#define LOGPROB_MIN (-9999.0f)

/* For result->id: logprob, rank, and the `top` best (at most SAMPLE_LOGPROBS_MAX).
 * weights [vocab_size] and bins are scratch. */
void logprobs_fill(const float *logits, uint32_t vocab_size, float max, uint32_t top,
                   float *weights, struct select_bins *bins, struct sample_result *result);

/* The same with `ids` in place of the best, in their order. */
void logprobs_fill_named(const float *logits, uint32_t vocab_size, float max, const uint32_t *ids,
                         uint32_t count, float *weights, struct sample_result *result);

#endif
