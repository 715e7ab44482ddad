/* best.h - the best of a row of logits. */
#ifndef REFRAIN_WORKER_SAMPLE_BEST_H
#define REFRAIN_WORKER_SAMPLE_BEST_H

#include <stdbool.h>
#include <stdint.h>

/* Index of the largest, the lowest on ties; *ret_nan: there is a NaN (then the index is of no use).
 * count > 0. Thread: any. */
uint32_t best_find(const float *logits, uint32_t count, bool *ret_nan);
/* ret_max[i] = the largest of values [i * piece, (i + 1) * piece); the last piece may be shorter.
 * No NaN. Thread: any. */
void best_of_pieces(const float *values, uint32_t count, uint32_t piece, float *ret_max);

#endif
