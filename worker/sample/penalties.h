/* penalties.h - repetition, presence and frequency penalties, as vLLM has them.
 *
 *   repetition  ids of prompt or output: logit > 0 ? logit / p : logit * p
 *   frequency   logit -= p * (times in the output)
 *   presence    logit -= p, if in the output at all
 *
 * In this order, computed in double. Thread: one per `counts`. */
#ifndef REFRAIN_WORKER_SAMPLE_PENALTIES_H
#define REFRAIN_WORKER_SAMPLE_PENALTIES_H

#include <stdbool.h>
#include <stdint.h>

#include "worker/sample/sampler.h"

/* counts [vocab_size]: all 0 before and after. Cost: O(prompt + output), nothing when all are off:
 * then it answers false, and the logits are as they were. */
bool penalties_apply(const struct sample_row *row, float *logits, uint32_t vocab_size,
                     uint32_t *counts);

#endif
