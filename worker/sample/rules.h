/* rules.h - what a request says about single tokens: only these, not these words, more of those.
 *
 *   allowed ids   every other one is out
 *   bad words     token sequences; the last token of one is out when the ids before it are the tail
 *                 of the output
 *   logit bias    added to the logit
 *
 * In this order, as in vLLM, before min_tokens and the penalties; log probabilities do not see
 * them. Ownership: made of checked wire bytes, then read only. Thread: any. */
#ifndef REFRAIN_WORKER_SAMPLE_RULES_H
#define REFRAIN_WORKER_SAMPLE_RULES_H

#include <stddef.h>
#include <stdint.h>

#include "proto/base/errmsg.h"

/* Packed little-endian, as they came. */
struct sample_rules_bytes {
    const uint8_t *data;
    size_t bytes;
};

struct sample_rules_input {
    struct sample_rules_bytes allowed, bias_ids, bias_values;
    const struct sample_rules_bytes *bad_words;
    size_t bad_words_count;
};

struct sample_rules;

/* *ret_rules is NULL when the input says nothing. -EINVAL: a sentence that names the field. */
int sample_rules_new(const struct sample_rules_input *input, uint32_t vocab_size,
                     struct sample_rules **ret_rules, struct errmsg *err);
void sample_rules_free(struct sample_rules *rules); /* NULL is fine */
/* Cost: allowed O(vocabulary), bad words O(their tokens), bias O(entries). */
void sample_rules_apply(const struct sample_rules *rules, float *logits, const uint32_t *output_ids,
                        uint32_t output_count);

#endif
