/* avx2.h - the functions of the AVX2 family; private to kernels/cpu. */
#ifndef REFRAIN_KERNELS_CPU_AVX2_H
#define REFRAIN_KERNELS_CPU_AVX2_H

#include "kernels/cpu/family.h"

void avx2_gemm_u2(const struct gemm *gemm);
void avx2_gemm_u4(const struct gemm *gemm);
void avx2_gemm_u5(const struct gemm *gemm);
void avx2_gemm_s6(const struct gemm *gemm);
void avx2_gemm_s8(const struct gemm *gemm);
void avx2_gemm_bf16(const struct gemm *gemm);
void avx2_gemm_f16(const struct gemm *gemm);
void avx2_gemm_f32(const struct gemm *gemm);
void avx2_quantise_row(const float *x, uint32_t columns, const struct quant_rows *to);
void avx2_attend(const struct attention *attention, const struct attention_unit *unit,
                 float *scratch);
void avx2_attend_int8(const struct attention *attention, const struct attention_unit *unit,
                      float *scratch);
void avx2_attend_merge_int8(const struct attention *attention, const struct attention_unit *unit,
                            float *scratch);
void avx2_attend_merge(const struct attention *attention, const struct attention_unit *unit,
                       float *scratch);
void avx2_rmsnorm_row(const float *x, const float *w, float eps, uint32_t columns, float *y);
void avx2_layernorm_row(const float *x, const float *w, float eps, uint32_t columns, float *y);
void avx2_silu_mul_row(const float *gate, const float *up, uint32_t columns, float *y);
void avx2_gelu_mul_row(const float *gate, const float *up, uint32_t columns, float *y);
void avx2_exp_values(const float *x, float *y, uint32_t count);
void avx2_rotate_heads(float *x, uint32_t heads, uint32_t dim, const float *cos_sin, uint32_t half,
                       bool interleaved);
void avx2_write_kv(const float *k, const float *v, uint32_t dim, uint32_t slot, uint8_t *k_tile,
                   uint8_t *v_tile);
void avx2_write_kv_int8(const float *k, const float *v, uint32_t dim, uint32_t slot,
                        uint8_t *k_tile, uint8_t *v_tile);

#endif
