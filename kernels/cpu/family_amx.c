/* family_amx.c - the AMX family's table, and the system's permission to use tiles. */
#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernels/cpu/amx.h"
#include "kernels/cpu/avx512.h"

#define ARCH_REQ_XCOMP_PERM 0x1023
#define XFEATURE_XTILEDATA 18

/* For the whole process, once; asking again is harmless. Threads started later inherit it. */
static int ask_for_tiles(void)
{
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0 ? 0 : -errno;
}

const struct cpu_family amx_family = {
    .name = "amx",
    .kv_format = "cpu-amx-bf16-1",
    .needs = CPU_AVX2 | CPU_FMA | CPU_F16C | CPU_AVX512 | CPU_VNNI | CPU_VBMI2 | CPU_BF16 | CPU_AMX,
    .prepare = ask_for_tiles,
    .prepare_name = "the system's permission for AMX tiles",
    .multiply_adds_per_ns = 400,
    .gemm =
        {
            [PANEL_U4] = amx_gemm_u4,
            [PANEL_U5] = amx_gemm_u5,
            [PANEL_S6] = amx_gemm_s6,
            [PANEL_S8] = amx_gemm_s8,
            [PANEL_BF16] = amx_gemm_bf16,
            [PANEL_F16] = avx512_gemm_f16,
            [PANEL_F32] = avx512_gemm_f32,
        },
    .pack_rows = amx_pack_rows,
    .attend = amx_attend,
    .attend_merge = avx512_attend_merge,
    .rmsnorm_row = avx512_rmsnorm_row,
    .silu_mul_row = avx512_silu_mul_row,
    .exp_values = avx512_exp_values,
};
