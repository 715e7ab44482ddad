/* mask.h - which ids may come next, on a row of logits. Thread: any. */
#ifndef REFRAIN_WORKER_SAMPLE_MASK_H
#define REFRAIN_WORKER_SAMPLE_MASK_H

#include <stdint.h>

struct sample_mask {
    const uint64_t *bits; /* one per id; bits from vocab_size on are not looked at */
    const uint32_t *ends; /* ids that may come besides: the ends of the answer */
    uint32_t ends_count;  /* at most SAMPLE_ENDS_MAX */
};

#define SAMPLE_ENDS_MAX 128u

/* Everything else is -inf. Cost: a pass over the bits, and over what they take away. */
void sample_mask_apply(const struct sample_mask *mask, float *logits, uint32_t vocab_size);

#endif
