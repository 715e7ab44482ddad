/* family_avx512.c - the AVX-512 family's table. */
#include "kernels/cpu/avx512.h"

const struct cpu_family avx512_family = {
    .name = "avx512",
    .kv_format = {[KV_BFLOAT16] = "cpu-avx-3", [KV_INT8] = "cpu-avx-int8-3"},
    .needs = CPU_AVX2 | CPU_FMA | CPU_F16C | CPU_AVX512 | CPU_VNNI,
    .multiply_adds_per_ns = 128,
    .gemm =
        {
            [PANEL_U2] = avx512_gemm_u2,
            [PANEL_U4] = avx512_gemm_u4,
            [PANEL_U5] = avx512_gemm_u5,
            [PANEL_S6] = avx512_gemm_s6,
            [PANEL_S8] = avx512_gemm_s8,
            [PANEL_BF16] = avx512_gemm_bf16,
            [PANEL_F16] = avx512_gemm_f16,
            [PANEL_F32] = avx512_gemm_f32,
        },
    .quantise_row = avx512_quantise_row,
    .attend = {[KV_BFLOAT16] = avx512_attend, [KV_INT8] = avx512_attend_int8},
    .attend_merge = {[KV_BFLOAT16] = avx512_attend_merge, [KV_INT8] = avx512_attend_merge_int8},
    .rmsnorm_row = avx512_rmsnorm_row,
    .layernorm_row = avx512_layernorm_row,
    .silu_mul_row = avx512_silu_mul_row,
    .gelu_mul_row = avx512_gelu_mul_row,
    .rotate_heads = avx512_rotate_heads,
    .write_kv = {[KV_BFLOAT16] = avx512_write_kv, [KV_INT8] = avx512_write_kv_int8},
    .exp_values = avx512_exp_values,
};
