/* sampler.h - logits -> token.
 *
 * A row's token depends on its logits, its parameters, its seed and its position only: the random
 * number is Philox(seed, position of the new token), so batch, preemption and restart of the step
 * cannot change it. Order as in vLLM: the request's rules (rules.h), penalties, logit mask
 * (grammar, tokens_min), temperature, min-p, top-k, top-p, draw. Greedy ties: lowest id. Thread:
 * engine's; scratch is the sampler's. */
#ifndef REFRAIN_WORKER_SAMPLE_SAMPLER_H
#define REFRAIN_WORKER_SAMPLE_SAMPLER_H

#include <stddef.h>
#include <stdint.h>

#include "proto/base/errmsg.h"
#include "proto/sampling_limits.h"

#define SAMPLE_LOGPROBS_MAX LOGPROB_IDS_MAX /* tokens beside the chosen one */

struct sample_mask;
struct sample_rules;

struct sample_params {
    double temperature; /* 0 (below 1e-6): greedy */
    uint32_t top_k;     /* 0: off */
    double top_p;       /* 1: off */
    double min_p;       /* 0: off */
    uint64_t seed;
    double repetition_penalty, presence_penalty, frequency_penalty; /* 1, 0, 0: off */
    uint32_t logprobs;           /* 0: none; n + 1: chosen and n best, n <= LOGPROBS_MAX */
    const uint32_t *logprob_ids; /* these in place of the best, if there are any */
    uint32_t logprob_ids_count;
};

/* What one row needs besides its logits. */
struct sample_row {
    const struct sample_params *params;
    const struct sample_rules *rules; /* NULL: none */
    const struct sample_mask *mask;   /* NULL: every id may come */
    uint32_t position;                /* of the token being sampled: its Philox draw */
    const uint32_t *banned; /* ids that must not be sampled now (stop ids before tokens_min) */
    uint32_t banned_count;
    const uint32_t *prompt_ids; /* for penalties; may be NULL when they are off */
    uint32_t prompt_count;
    const uint32_t *output_ids;
    uint32_t output_count;
    const uint32_t *forced; /* the token, whatever the logits say; NULL: none is */
};

struct sample_result {
    uint32_t id;
    float logprob; /* of the model's own distribution (before temperature), when asked; >= -9999 */
    uint32_t rank; /* 1 = most likely */
    uint32_t top_count;
    uint32_t top_ids[SAMPLE_LOGPROBS_MAX];
    float top_logprobs[SAMPLE_LOGPROBS_MAX];
};

/* What is in use of it: most have no alternatives, and they are a kilobyte. */
static inline void sample_result_copy(struct sample_result *to, const struct sample_result *from)
{
    to->id = from->id;
    to->logprob = from->logprob;
    to->rank = from->rank;
    to->top_count = from->top_count;
    for (uint32_t i = 0; i < from->top_count; i++) {
        to->top_ids[i] = from->top_ids[i];
        to->top_logprobs[i] = from->top_logprobs[i];
    }
}

struct sampler;

struct sampler *sampler_new(uint32_t vocab_size);
size_t sampler_bytes(uint32_t vocab_size); /* that one takes once every way to sample was used */
void sampler_free(struct sampler *sampler);
/* logits [vocab_size] are scribbled on. -EIO: a NaN or +inf among them (a kernel bug or broken
 * weights); -ENODATA: rules and mask leave no token. *ret_result is untouched then. */
int sampler_sample(struct sampler *sampler, float *logits, const struct sample_row *row,
                   struct sample_result *ret_result);
/* How likely was `id` here, and which were the `top` (at most SAMPLE_LOGPROBS_MAX) best? -EIO as
 * above. */
int sampler_score(struct sampler *sampler, const float *logits, uint32_t id, uint32_t top,
                  struct sample_result *ret_result);
/* Every number in range? -EINVAL and a sentence that names the parameter otherwise. NaN is refused.
 */
int sample_params_check(const struct sample_params *params, struct errmsg *err);

#endif
