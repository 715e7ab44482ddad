/* elementwise_avx2.h - row functions of the AVX2 family; private to the family and its test. */
#ifndef REFRAIN_KERNELS_CPU_ELEMENTWISE_AVX2_H
#define REFRAIN_KERNELS_CPU_ELEMENTWISE_AVX2_H

#include <stdint.h>

void avx2_rmsnorm_row(const float *x, const float *w, float eps, uint32_t columns, float *y);
void avx2_silu_mul_row(const float *gate, const float *up, uint32_t columns, float *y);
/* exp_ps over an array: what attention and silu use, made callable for its error test. */
void avx2_exp(const float *x, float *y, uint32_t count);

#endif
