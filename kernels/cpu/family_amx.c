/* family_amx.c - the tables of both AMX families.
 *
 *   amx-bf16  all weights that are not f16 or f32 by tiles: faster from two rows on, nearer to f32
 *   amx       bf16 weights by tiles, quantised ones by VNNI, attention by FMA: one row alone runs
 *             at the speed of memory
 *
 * Over int8 KV both attend by FMA, as AVX-512 does: tiles multiply bf16, which would have to be
 * made of the bytes first. Two families, since a row must have the same bits in any number of rows.
 * Why amx does not attend by tiles: scores in bf16 on top of int8 activations were farther from f32
 * than a family may be.
 */
#include "kernels/cpu/amx.h"
#include "kernels/cpu/avx512.h"

#define NEEDS \
    (CPU_AVX2 | CPU_FMA | CPU_F16C | CPU_AVX512 | CPU_VNNI | CPU_VBMI2 | CPU_BF16 | CPU_AMX)

const struct cpu_family amx_family = {
    .name = "amx",
    .kv_format = {[KV_BFLOAT16] = "cpu-amx-5", [KV_INT8] = "cpu-amx-int8-3"},
    .needs = NEEDS,
    .multiply_adds_per_ns = 128,
    .gemm =
        {
            [PANEL_U2] = avx512_gemm_u2,
            [PANEL_U4] = avx512_gemm_u4,
            [PANEL_U5] = avx512_gemm_u5,
            [PANEL_S6] = avx512_gemm_s6,
            [PANEL_S8] = avx512_gemm_s8,
            [PANEL_BF16] = amx_gemm_bf16,
            [PANEL_F16] = avx512_gemm_f16,
            [PANEL_F32] = avx512_gemm_f32,
        },
    .by_output = {[PANEL_BF16] = true},
    .pack_rows = amx_pack_rows,
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

const struct cpu_family amx_bf16_family = {
    .name = "amx-bf16",
    .kv_format = {[KV_BFLOAT16] = "cpu-amx-bf16-3", [KV_INT8] = "cpu-amx-bf16-int8-3"},
    .needs = NEEDS,
    .multiply_adds_per_ns = 400,
    .gemm =
        {
            [PANEL_U2] = amx_gemm_u2,
            [PANEL_U4] = amx_gemm_u4,
            [PANEL_U5] = amx_gemm_u5,
            [PANEL_S6] = amx_gemm_s6,
            [PANEL_S8] = amx_gemm_s8,
            [PANEL_BF16] = amx_gemm_bf16,
            [PANEL_F16] = avx512_gemm_f16,
            [PANEL_F32] = avx512_gemm_f32,
        },
    .by_output = {[PANEL_U2] = true,
                  [PANEL_U4] = true,
                  [PANEL_U5] = true,
                  [PANEL_S6] = true,
                  [PANEL_S8] = true,
                  [PANEL_BF16] = true},
    .pack_rows = amx_pack_rows,
    .attend = {[KV_BFLOAT16] = amx_attend, [KV_INT8] = avx512_attend_int8},
    .attend_merge = {[KV_BFLOAT16] = amx_attend_merge, [KV_INT8] = avx512_attend_merge_int8},
    .rmsnorm_row = avx512_rmsnorm_row,
    .layernorm_row = avx512_layernorm_row,
    .silu_mul_row = avx512_silu_mul_row,
    .gelu_mul_row = avx512_gelu_mul_row,
    .rotate_heads = avx512_rotate_heads,
    .write_kv = {[KV_BFLOAT16] = avx512_write_kv, [KV_INT8] = avx512_write_kv_int8},
    .exp_values = avx512_exp_values,
};
