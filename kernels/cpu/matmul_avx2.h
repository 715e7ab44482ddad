/* matmul_avx2.h - what the AVX2 files of matmul share; private to the family. */
#ifndef REFRAIN_KERNELS_CPU_MATMUL_AVX2_H
#define REFRAIN_KERNELS_CPU_MATMUL_AVX2_H

#include "kernels/cpu/family.h"

void avx2_gemm_u4(const struct gemm *gemm);
void avx2_gemm_u5(const struct gemm *gemm);
void avx2_gemm_s6(const struct gemm *gemm);
void avx2_gemm_s8(const struct gemm *gemm);
void avx2_gemm_bf16(const struct gemm *gemm);
void avx2_gemm_f16(const struct gemm *gemm);
void avx2_gemm_f32(const struct gemm *gemm);
void avx2_quantise_row(const float *x, uint32_t columns, int8_t *q, float *scale_sums);

/* Columns of y that the last, padded panel has (outputs % 16), in and out of a [rows][16] buffer.
 */
static inline void matmul_tail_load(const struct gemm *g, uint32_t panel, uint32_t row,
                                    uint32_t rows, float *buffer)
{
    uint32_t width = g->outputs - panel * PANEL;
    for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t j = 0; j < PANEL; j++)
            buffer[r * PANEL + j] =
                j < width && g->accumulate ? g->y[(row + r) * g->y_stride + panel * PANEL + j] : 0;
    }
}

static inline void matmul_tail_store(const struct gemm *g, uint32_t panel, uint32_t row,
                                     uint32_t rows, const float *buffer)
{
    uint32_t width = g->outputs - panel * PANEL;
    for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t j = 0; j < width; j++)
            g->y[(row + r) * g->y_stride + panel * PANEL + j] = buffer[r * PANEL + j];
    }
}

#endif
