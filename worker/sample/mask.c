/* mask.c - words of 64 ids: all stay, none stays, or one by one. */
#include "worker/sample/mask.h"

#include <math.h>

#include "proto/base/assert.h"

void sample_mask_apply(const struct sample_mask *mask, float *logits, uint32_t vocab_size)
{
    float kept[SAMPLE_ENDS_MAX];

    ASSERT(mask->ends_count <= SAMPLE_ENDS_MAX);
    for (uint32_t i = 0; i < mask->ends_count; i++) {
        ASSERT(mask->ends[i] < vocab_size);
        kept[i] = logits[mask->ends[i]];
    }
    for (uint32_t first = 0; first < vocab_size; first += 64) {
        uint64_t bits = mask->bits[first / 64];
        uint32_t count = vocab_size - first < 64 ? vocab_size - first : 64;
        if (bits == UINT64_MAX)
            continue;
        for (uint32_t i = 0; i < count; i++)
            logits[first + i] = (bits >> i & 1) != 0 ? logits[first + i] : -INFINITY;
    }
    for (uint32_t i = 0; i < mask->ends_count; i++)
        logits[mask->ends[i]] = kept[i];
}
