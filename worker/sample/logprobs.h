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
                   double *weights, struct select_bins *bins, struct sample_result *result);

#endif
