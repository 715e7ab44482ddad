/* rope_avx512.c - rotation and KV write of the AVX-512 family (rope_simd.h). */
#include "kernels/cpu/avx512.h"
#include "kernels/cpu/rope_simd.h"

void avx512_rotate_heads(float *x, uint32_t heads, uint32_t dim, const float *cos_sin,
                         uint32_t half, bool interleaved)
{
    rotate_heads(x, heads, dim, cos_sin, half, interleaved);
}

void avx512_write_kv(const float *k, const float *v, uint32_t dim, uint32_t slot, uint8_t *k_tile,
                     uint8_t *v_tile)
{
    write_kv(k, v, dim, slot, (uint16_t *)k_tile, (uint16_t *)v_tile);
}

void avx512_write_kv_int8(const float *k, const float *v, uint32_t dim, uint32_t slot,
                          uint8_t *k_tile, uint8_t *v_tile)
{
    write_kv_int8(k, v, dim, slot, k_tile, v_tile);
}
