/* rope_simd.h - rotation and the KV write of one row, in plain loops that each family's compiler
 * options vectorise. No sums and no contraction: the bits are the same in all families. */
#ifndef REFRAIN_KERNELS_CPU_ROPE_SIMD_H
#define REFRAIN_KERNELS_CPU_ROPE_SIMD_H

#include <math.h>
#include <string.h>

#include "kernels/cpu/family.h"
#include "kernels/cpu/simd.h"

#define HALF_MAX 256 /* of 512 dims */

INLINE void rotate_halves(float *restrict x, const float *restrict c, const float *restrict s,
                          uint32_t half)
{
    for (uint32_t i = 0; i < half; i++) {
        float a = x[i], b = x[i + half];
        x[i] = a * c[i] - b * s[i];
        x[i + half] = b * c[i] + a * s[i];
    }
}

INLINE void rotate_pairs(float *restrict x, const float *restrict c, const float *restrict s,
                         uint32_t half)
{
    for (uint32_t i = 0; i < half; i++) {
        float a = x[2 * i], b = x[2 * i + 1];
        x[2 * i] = a * c[i] - b * s[i];
        x[2 * i + 1] = b * c[i] + a * s[i];
    }
}

INLINE void rotate_heads(float *x, uint32_t heads, uint32_t dim, const float *cos_sin,
                         uint32_t half, bool interleaved)
{
    float c[HALF_MAX], s[HALF_MAX];
    for (uint32_t i = 0; i < half; i++) {
        c[i] = cos_sin[2 * i];
        s[i] = cos_sin[2 * i + 1];
    }
    for (uint32_t h = 0; h < heads; h++, x += dim) {
        if (interleaved)
            rotate_pairs(x, c, s, half);
        else
            rotate_halves(x, c, s, half);
    }
}

/* f32_to_bf16 without its branch. */
INLINE uint32_t bf16_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
    return (bits & 0x7fffffffu) > 0x7f800000u ? bits >> 16 | 0x40 : rounded;
}

/* One token's k and v of one head into slot `slot` of their tiles. Single values are stored: the
 * token next to it may be another thread's. */
INLINE void write_kv(const float *restrict k, const float *restrict v, uint32_t dim, uint32_t slot,
                     uint16_t *restrict k_tile, uint16_t *restrict v_tile)
{
    uint32_t values[2 * HALF_MAX];
    for (uint32_t d = 0; d < dim; d++)
        values[d] = bf16_bits(k[d]);
    if (dim % 2 == 0) {
        uint32_t *at = (uint32_t *)k_tile + slot;
        for (uint32_t d = 0; d < dim; d += 2)
            at[d / 2 * PANEL] = values[d] | values[d + 1] << 16;
    } else {
        for (uint32_t d = 0; d < dim; d++)
            k_tile[PAIRED(d, slot)] = (uint16_t)values[d];
    }
    for (uint32_t d = 0; d < dim; d++)
        values[d] = bf16_bits(v[d]);
    for (uint32_t d = 0; d < dim; d++)
        v_tile[d / PANEL * PANEL * PANEL + PAIRED(slot, d % PANEL)] = (uint16_t)values[d];
}

/* x as KV_INT8 keeps it (ops.h): returns the scale. As integers, bits of |x| are ordered as numbers
 * are, with infinity and NaN above them. */
INLINE float quantise_kv(const float *restrict x, uint32_t dim, uint8_t *restrict q)
{
    uint32_t largest_bits = 0;
    float largest;
    for (uint32_t d = 0; d < dim; d++) {
        uint32_t bits;
        memcpy(&bits, &x[d], sizeof(bits));
        bits &= 0x7fffffffu;
        largest_bits = bits > largest_bits ? bits : largest_bits;
    }
    memcpy(&largest, &largest_bits, sizeof(largest));
    bool finite = largest_bits < 0x7f800000u, zeros = largest < KV_INT8_SMALLEST;
    float inverse = zeros || !finite ? 0 : 127 / largest;
    for (uint32_t d = 0; d < dim; d++) {
        float rounded = x[d] * inverse + ROUND_MAGIC; /* of a NaN: any byte, its scale is NaN */
        uint32_t bits;
        memcpy(&bits, &rounded, sizeof(bits));
        q[d] = (uint8_t)bits;
    }
    return !finite ? NAN : zeros ? 0 : largest / 127;
}

/* As write_kv, into int8 tiles. */
INLINE void write_kv_int8(const float *restrict k, const float *restrict v, uint32_t dim,
                          uint32_t slot, uint8_t *restrict k_tile, uint8_t *restrict v_tile)
{
    uint8_t q[2 * HALF_MAX];
    float scale = quantise_kv(k, dim, q);
    memcpy(k_tile + slot * sizeof(scale), &scale, sizeof(scale));
    k_tile += KV_INT8_SCALES_BYTES;
    for (uint32_t d = 0; d < dim; d++)
        k_tile[KV_INT8_K(d, slot)] = q[d];
    scale = quantise_kv(v, dim, q);
    memcpy(v_tile + slot * sizeof(scale), &scale, sizeof(scale));
    v_tile += KV_INT8_SCALES_BYTES;
    for (uint32_t d = 0; d < dim; d++)
        v_tile[KV_INT8_V(d, slot)] = q[d];
}

#endif
