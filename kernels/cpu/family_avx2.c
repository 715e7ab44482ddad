/* family_avx2.c - the AVX2 family's table. */
#include "kernels/cpu/avx2.h"

const struct cpu_family avx2_family = {
    .name = "avx2",
    .kv_format = {[KV_BFLOAT16] = "cpu-avx-3", [KV_INT8] = "cpu-avx-int8-3"},
    .needs = CPU_AVX2 | CPU_FMA | CPU_F16C,
    .multiply_adds_per_ns = 64,
    .gemm =
        {
            [PANEL_U2] = avx2_gemm_u2,
            [PANEL_U4] = avx2_gemm_u4,
            [PANEL_U5] = avx2_gemm_u5,
            [PANEL_S6] = avx2_gemm_s6,
            [PANEL_S8] = avx2_gemm_s8,
            [PANEL_BF16] = avx2_gemm_bf16,
            [PANEL_F16] = avx2_gemm_f16,
            [PANEL_F32] = avx2_gemm_f32,
        },
    .quantise_row = avx2_quantise_row,
    .attend = {[KV_BFLOAT16] = avx2_attend, [KV_INT8] = avx2_attend_int8},
    .attend_merge = {[KV_BFLOAT16] = avx2_attend_merge, [KV_INT8] = avx2_attend_merge_int8},
    .rmsnorm_row = avx2_rmsnorm_row,
    .layernorm_row = avx2_layernorm_row,
    .silu_mul_row = avx2_silu_mul_row,
    .gelu_mul_row = avx2_gelu_mul_row,
    .rotate_heads = avx2_rotate_heads,
    .write_kv = {[KV_BFLOAT16] = avx2_write_kv, [KV_INT8] = avx2_write_kv_int8},
    .exp_values = avx2_exp_values,
};
