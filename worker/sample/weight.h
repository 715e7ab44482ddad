/* weight.h - exp() for weights, the same bits on every machine.
 *
 * libm picks an implementation by CPU, and they differ in the last bit: enough for another token.
 * This one is plain IEEE arithmetic without contraction and vectorises; error below 2e-7 relative,
 * and 1e-7 |x| of x = (value - max) * scale. Sums are doubles. Thread: any. */
#ifndef REFRAIN_WORKER_SAMPLE_WEIGHT_H
#define REFRAIN_WORKER_SAMPLE_WEIGHT_H

#include <stdint.h>

/* exp(x) for x <= 0, -inf included; 0 below -87. */
float weight_exp(float x);
/* ret_weights[i] = exp((values[i] - max) * scale), max being the largest value and finite. */
void weight_fill(const float *values, uint32_t count, float max, float scale, float *ret_weights);
/* In one fixed order: eight chains through them, then the chains. */
double weight_sum(const float *weights, uint32_t count);

#endif
