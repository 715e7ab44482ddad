/* tile_avx2.h - the float micro-kernel: R rows of x times P panels of 16, sums in registers.
 *
 *   c[r][16 p + j]  (+)=  sum over k of  a[r][k] * panel[p][k][j]
 *
 * Matmul with float weights, K * q and p * V are all this loop. The sum of one c element is one
 * chain of FMAs in the order of k, whatever R, P and the cut of k into segments are: that is the
 * whole argument for promise 2. R * P * 2 registers hold sums; 8 or more chains hide the FMA's
 * latency, so few rows take more panels. */
#ifndef REFRAIN_KERNELS_CPU_TILE_AVX2_H
#define REFRAIN_KERNELS_CPU_TILE_AVX2_H

#include <stdbool.h>
#include <stddef.h>

#include "kernels/cpu/simd_avx2.h"

enum tile_kind { TILE_BF16, TILE_F16, TILE_F32 };

#define TILE_ROWS 6
#define TILE_PANELS 4

struct tile {
    const float *a; /* k of segment s starts at column s * k_end */
    size_t a_stride;
    /* Panel p of segment s starts at panel[s] + p * panel_stride; or, where panels lie anywhere
     * (`scattered`, one segment), at panel[p]. */
    const uint8_t *panel[TILE_PANELS];
    size_t panel_stride;
    bool scattered;
    uint32_t segments; /* <= TILE_PANELS */
    uint32_t k_end;    /* k per segment */
    float *c;
    size_t c_stride;
    bool add; /* sums start from c, else from 0 */
};

INLINE size_t tile_vector_bytes(enum tile_kind kind)
{
    return kind == TILE_F32 ? 64 : 32;
}

INLINE void tile_load(enum tile_kind kind, const uint8_t *vector, __m256 ret_w[2])
{
    if (kind == TILE_F32) {
        ret_w[0] = _mm256_loadu_ps((const float *)vector);
        ret_w[1] = _mm256_loadu_ps((const float *)vector + 8);
    } else if (kind == TILE_F16) {
        ret_w[0] = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)vector));
        ret_w[1] = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)vector + 1));
    } else {
        __m256i pairs = _mm256_loadu_si256((const __m256i *)vector);
        ret_w[0] = _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
        ret_w[1] =
            _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32((int)0xffff0000u)));
    }
}

INLINE const uint8_t *tile_panel(const struct tile *t, uint32_t segment, uint32_t panel)
{
    return t->scattered ? t->panel[panel] : t->panel[segment] + panel * t->panel_stride;
}

/* R and P are constants where this is inlined. */
INLINE void tile_multiply(enum tile_kind kind, const int R, const int P, const struct tile *t,
                          uint32_t row, uint32_t panel)
{
    __m256 sum[TILE_ROWS][TILE_PANELS][2];
    float *c = t->c + row * t->c_stride + panel * 16;
    const __m256i start = lanes_mask(t->add ? 8 : 0); /* c, or 0 without reading c */
    UNROLL for (int r = 0; r < R; r++)
    {
        UNROLL for (int p = 0; p < P; p++)
        {
            const float *from = c + (size_t)r * t->c_stride + p * 16;
            sum[r][p][0] = _mm256_maskload_ps(from, start);
            sum[r][p][1] = _mm256_maskload_ps(from + 8, start);
        }
    }
    const float *a = t->a + row * t->a_stride;
    for (uint32_t s = 0; s < t->segments; s++) {
        const uint8_t *w[TILE_PANELS];
        UNROLL for (int p = 0; p < P; p++) w[p] = tile_panel(t, s, panel + (uint32_t)p);
        size_t end = t->k_end * tile_vector_bytes(kind);
        for (size_t at = 0; at < end; at += tile_vector_bytes(kind), a++) {
            __m256 x[TILE_ROWS];
            UNROLL for (int p = 0; p < P; p++)
            {
                __m256 v[2];
                tile_load(kind, w[p] + at, v);
                UNROLL for (int r = 0; r < R; r++)
                {
                    if (p == 0)
                        x[r] = _mm256_broadcast_ss(a + (size_t)r * t->a_stride);
                    sum[r][p][0] = _mm256_fmadd_ps(x[r], v[0], sum[r][p][0]);
                    sum[r][p][1] = _mm256_fmadd_ps(x[r], v[1], sum[r][p][1]);
                }
            }
        }
    }
    UNROLL for (int r = 0; r < R; r++)
    {
        UNROLL for (int p = 0; p < P; p++)
        {
            float *to = c + (size_t)r * t->c_stride + p * 16;
            _mm256_storeu_ps(to, sum[r][p][0]);
            _mm256_storeu_ps(to + 8, sum[r][p][1]);
        }
    }
}

/* The last 1..5 rows. */
INLINE void tile_few_rows(enum tile_kind kind, const struct tile *t, uint32_t row, uint32_t rows,
                          uint32_t panel, uint32_t panels)
{
    uint32_t p = 0;
    switch (rows) {
    case 1:
        for (; p + 4 <= panels; p += 4)
            tile_multiply(kind, 1, 4, t, row, panel + p);
        for (; p < panels; p++)
            tile_multiply(kind, 1, 1, t, row, panel + p);
        return;
    case 2:
        for (; p + 2 <= panels; p += 2)
            tile_multiply(kind, 2, 2, t, row, panel + p);
        for (; p < panels; p++)
            tile_multiply(kind, 2, 1, t, row, panel + p);
        return;
    case 3: /* two panels would not leave registers for the expanded weights */
        for (; p < panels; p++)
            tile_multiply(kind, 3, 1, t, row, panel + p);
        return;
    case 4:
        for (; p < panels; p++)
            tile_multiply(kind, 4, 1, t, row, panel + p);
        return;
    case 5:
        for (; p < panels; p++)
            tile_multiply(kind, 5, 1, t, row, panel + p);
        return;
    default:
        return;
    }
}

/* All rows and panels: panels outside, so that a panel stays in the first cache for all rows. */
INLINE void tile_run(enum tile_kind kind, const struct tile *t, uint32_t rows, uint32_t panels)
{
    uint32_t whole = rows / TILE_ROWS * TILE_ROWS;
    for (uint32_t p = 0; p < panels; p++) {
        for (uint32_t r = 0; r < whole; r += TILE_ROWS)
            tile_multiply(kind, TILE_ROWS, 1, t, r, p);
    }
    tile_few_rows(kind, t, whole, rows - whole, 0, panels);
}

#endif
