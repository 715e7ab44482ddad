/* matmul_vnni.h - one block of a quantised panel by VNNI (matmul_quant_avx512.c says how). */
#ifndef REFRAIN_KERNELS_CPU_MATMUL_VNNI_H
#define REFRAIN_KERNELS_CPU_MATMUL_VNNI_H

#include "kernels/cpu/matmul_panels.h"
#include "kernels/cpu/simd_avx512.h"

#define VNNI_ROWS 8 /* rows of a micro-kernel: 8 integer and 8 float sums of 32 registers */

enum { HEADER = PANEL * 2 }; /* bytes of one f16 vector */

INLINE size_t group_headers(enum panel_class class)
{
    return panel_headers(class) * (size_t)HEADER;
}

INLINE size_t group_bytes(enum panel_class class)
{
    return group_headers(class) + QUADS * (panel_has_nibbles(class) ? 32 : 64);
}

INLINE __m512i broadcast_quad(const int8_t *q)
{
    int32_t quad;
    memcpy(&quad, q, sizeof(quad));
    return _mm512_set1_epi32(quad);
}

#if !defined(ZMM_REGISTER) /* tests/emulate says where a vector of 64 bytes is without them */
#define ZMM_REGISTER "v"
#endif

/* Keep a sum in its register: see pin() of simd_avx2.h. */
INLINE void pin(__m512i *v)
{
    __asm__("" : "+" ZMM_REGISTER(*v));
}

/* Quads 2 * pair and 2 * pair + 1 as unsigned bytes. */
INLINE void load_quads(enum panel_class class, const uint8_t *quads, int pair, __m512i ret_w[2])
{
    if (panel_has_nibbles(class)) {
        const __m512i low = _mm512_set1_epi8(0xf);
        __m512i both = _mm512_loadu_si512(quads + pair * 64);
        ret_w[0] = _mm512_and_si512(both, low);
        ret_w[1] = _mm512_and_si512(_mm512_srli_epi16(both, 4), low);
        return;
    }
    ret_w[0] = _mm512_loadu_si512(quads + pair * 128);
    ret_w[1] = _mm512_loadu_si512(quads + pair * 128 + 64);
    if (class == PANEL_S8) {
        ret_w[0] = _mm512_xor_si512(ret_w[0], _mm512_set1_epi8(-128));
        ret_w[1] = _mm512_xor_si512(ret_w[1], _mm512_set1_epi8(-128));
    } else if (class == PANEL_S6) {
        ret_w[0] = _mm512_add_epi8(ret_w[0], _mm512_set1_epi8(32));
        ret_w[1] = _mm512_add_epi8(ret_w[1], _mm512_set1_epi8(32));
    }
}

/* What a dot product over the group (S6, U2: over half `half`) starts from. */
INLINE __m512i dot_start(enum panel_class class, const int16_t *half_sums, int half)
{
    if (class == PANEL_S8)
        return _mm512_set1_epi32((half_sums[0] + half_sums[1]) * -128);
    if (class == PANEL_S6)
        return _mm512_set1_epi32(half_sums[half] * -32);
    return _mm512_setzero_si512();
}

/* Pairs [first, end) of quads of one group. */
INLINE void dot_pairs(enum panel_class class, const int R, const int first, const int end,
                      const uint8_t *quads, const struct block *b, uint32_t g,
                      __m512i ret_dot[VNNI_ROWS])
{
    UNROLL for (int r = 0; r < R; r++) ret_dot[r] =
        dot_start(class, b->quant.half_sums + ((size_t)r * b->group_stride + g) * 2, first > 0);
    UNROLL for (int pair = first; pair < end; pair++)
    {
        __m512i w[2];
        load_quads(class, quads, pair, w);
        UNROLL for (int r = 0; r < R; r++)
        {
            const int8_t *q = b->quant.q + (size_t)r * b->q_stride + (size_t)g * GROUP + pair * 8;
            ret_dot[r] = _mm512_dpbusd_epi32(ret_dot[r], w[0], broadcast_quad(q));
            ret_dot[r] = _mm512_dpbusd_epi32(ret_dot[r], w[1], broadcast_quad(q + 4));
            pin(&ret_dot[r]);
        }
    }
}

/* sum += scale * d * dot, then sum += (scale * sum of activations) * m where there is one. */
INLINE __m512 add_scaled(__m512 sum, __m512i dot, __m512 d, const float *scale_sum)
{
    __m512 sd = _mm512_mul_ps(_mm512_set1_ps(scale_sum[0]), d);
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), sd, sum);
}

INLINE __m512 add_min(__m512 sum, __m512 m, const float *scale_sum)
{
    return _mm512_fmadd_ps(_mm512_set1_ps(scale_sum[1]), m, sum);
}

/* S6 and U2: a scale for each half of the group, and of U2 a min too. */
INLINE void vnni_halves(enum panel_class class, const int R, const struct block *b, uint32_t g,
                        const uint8_t *group, __m512 sum[VNNI_ROWS])
{
    const uint8_t *quads = group + group_headers(class);
    const float *scale_sums = b->quant.scale_sums + (size_t)g * 2;
    const int16_t *half_sums = b->quant.half_sums + (size_t)g * 2;
    const size_t stride = b->group_stride * 2;
    UNROLL for (int half = 0; half < 2; half++)
    {
        __m512i dot[VNNI_ROWS];
        __m512 d = v16_load_f16(group + half * HEADER);
        dot_pairs(class, R, half * 2, half * 2 + 2, quads, b, g, dot);
        UNROLL for (int r = 0; r < R; r++) sum[r] =
            add_scaled(sum[r], dot[r], d, scale_sums + (size_t)r * stride);
        if (class == PANEL_S6)
            continue;
        __m512 m = v16_load_f16(group + (2 + half) * HEADER);
        UNROLL for (int r = 0; r < R; r++)
        {
            float total = scale_sums[(size_t)r * stride] *
                          (float)half_sums[(size_t)r * stride + (size_t)half];
            sum[r] = _mm512_fmadd_ps(_mm512_set1_ps(total), m, sum[r]);
        }
    }
}

INLINE void vnni_group(enum panel_class class, const int R, const struct block *b, uint32_t g,
                       const uint8_t *group, __m512 sum[VNNI_ROWS])
{
    const uint8_t *quads = group + group_headers(class);
    const float *scale_sums = b->quant.scale_sums + (size_t)g * 2;
    const size_t stride = b->group_stride * 2;
    __m512 d = v16_load_f16(group);
    __m512i dot[VNNI_ROWS];
    dot_pairs(class, R, 0, 4, quads, b, g, dot);
    UNROLL for (int r = 0; r < R; r++) sum[r] =
        add_scaled(sum[r], dot[r], d, scale_sums + (size_t)r * stride);
    if (class == PANEL_S8)
        return;
    __m512 m = v16_load_f16(group + HEADER);
    UNROLL for (int r = 0; r < R; r++) sum[r] = add_min(sum[r], m, scale_sums + (size_t)r * stride);
}

INLINE void vnni_rows(enum panel_class class, const int R, const struct block *b)
{
    const uint8_t *group = b->panel;
    __m512 sum[VNNI_ROWS];
    UNROLL for (int r = 0; r < R; r++) sum[r] =
        v16_load_some(b->y + (size_t)r * b->y_stride, b->add ? 16 : 0);
    for (uint32_t g = 0; g < b->groups; g++, group += group_bytes(class)) {
        if (class == PANEL_S6 || class == PANEL_U2)
            vnni_halves(class, R, b, g, group, sum);
        else
            vnni_group(class, R, b, g, group, sum);
    }
    UNROLL for (int r = 0; r < R; r++) v16_store(b->y + (size_t)r * b->y_stride, sum[r]);
}

/* One panel, some groups, all rows. */
INLINE void vnni_block(enum panel_class class, const struct block *block, uint32_t rows)
{
    struct block b = *block;
    for (; rows >= VNNI_ROWS; rows -= VNNI_ROWS) {
        vnni_rows(class, VNNI_ROWS, &b);
        b = block_rows(&b, VNNI_ROWS);
    }
    if (rows >= 4) {
        vnni_rows(class, 4, &b);
        b = block_rows(&b, 4);
        rows -= 4;
    }
    if (rows == 3)
        vnni_rows(class, 3, &b);
    else if (rows == 2)
        vnni_rows(class, 2, &b);
    else if (rows == 1)
        vnni_rows(class, 1, &b);
}

#endif
