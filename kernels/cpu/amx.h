/* amx.h - the functions of the AMX family; private to kernels/cpu.
 *
 * Every function that uses tiles configures them first and releases them last: a thread between
 * pieces holds none, so the system has no 8 KiB to save when it switches.
 * The family takes from AVX-512 what tiles do not do: f16 and f32 weights, rows. */
#ifndef REFRAIN_KERNELS_CPU_AMX_H
#define REFRAIN_KERNELS_CPU_AMX_H

#include "kernels/cpu/family.h"

void amx_gemm_u2(const struct gemm *gemm);
void amx_gemm_u4(const struct gemm *gemm);
void amx_gemm_u5(const struct gemm *gemm);
void amx_gemm_s6(const struct gemm *gemm);
void amx_gemm_s8(const struct gemm *gemm);
void amx_gemm_bf16(const struct gemm *gemm);
/* matmul_many_amx.c: rows that are packed by row, panels of any by_output class. */
void amx_gemm_many(const struct gemm *gemm, enum panel_class class);
void amx_pack_rows(const float *x, size_t x_stride, uint32_t rows, uint32_t columns,
                   enum packed_form form, uint16_t *to);
void amx_attend(const struct attention *attention, const struct attention_unit *unit,
                float *scratch);
void amx_attend_merge(const struct attention *attention, const struct attention_unit *unit,
                      float *scratch);

#endif
