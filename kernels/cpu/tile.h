/* tile.h - the float micro-kernel: R rows of x times P panels of 16, sums in registers.
 *
 *   c[r][16 p + j]  (+)=  sum over k of  a[r][k] * panel[p][k][j]
 *
 * Written for v16: include simd_avx2.h or simd_avx512.h first. Matmul with float weights and
 * adapters are this loop. The sum of one c element is one chain of FMAs in the order of k, whatever
 * R and P are: that is the whole argument for promise 2. 8 or more chains hide the FMA's latency,
 * so few rows take more panels. */
#ifndef REFRAIN_KERNELS_CPU_TILE_H
#define REFRAIN_KERNELS_CPU_TILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tile_kind { TILE_BF16, TILE_F16, TILE_F32 };

#define TILE_PANELS 4

struct tile {
    const float *a;
    size_t a_stride;
    const uint8_t *panel; /* the first of them, panel_stride bytes apart */
    size_t panel_stride;
    uint32_t k_end; /* k that are summed */
    float *c;
    size_t c_stride;
    bool add; /* sums start from c, else from 0 */
};

/* Bytes of k values of 16 outputs; a k of BF16 is half of a pair. */
INLINE size_t tile_bytes(enum tile_kind kind, uint32_t k)
{
    return kind == TILE_BF16 ? (size_t)(k / 2) * 64 : (size_t)k * (kind == TILE_F16 ? 32 : 64);
}

enum tile_half { TILE_EVEN, TILE_ODD };

/* One k: `at` is where its vectors stand in the panels. */
INLINE void tile_step(enum tile_kind kind, enum tile_half half, const int R, const int P,
                      const uint8_t *const w[TILE_PANELS], size_t at, const float *a,
                      size_t a_stride, v16 sum[TILE_ROWS][TILE_PANELS])
{
    v16 x[TILE_ROWS];
    UNROLL for (int p = 0; p < P; p++)
    {
        v16 v = kind == TILE_F32   ? v16_load((const float *)(w[p] + at))
                : kind == TILE_F16 ? v16_load_f16(w[p] + at)
                : half == TILE_ODD ? v16_load_odd(w[p] + at)
                                   : v16_load_even(w[p] + at);
        UNROLL for (int r = 0; r < R; r++)
        {
            if (p == 0)
                x[r] = v16_broadcast(a + (size_t)r * a_stride);
            sum[r][p] = v16_fma(x[r], v, sum[r][p]);
        }
    }
}

INLINE void tile_sum(enum tile_kind kind, const int R, const int P, const struct tile *t,
                     const uint8_t *const w[TILE_PANELS], const float *a,
                     v16 sum[TILE_ROWS][TILE_PANELS])
{
    uint32_t k = 0;
    if (kind != TILE_BF16) {
        for (; k < t->k_end; k++)
            tile_step(kind, TILE_EVEN, R, P, w, tile_bytes(kind, k), a + k, t->a_stride, sum);
        return;
    }
    for (; k + 2 <= t->k_end; k += 2) {
        size_t at = tile_bytes(kind, k);
        tile_step(kind, TILE_EVEN, R, P, w, at, a + k, t->a_stride, sum);
        tile_step(kind, TILE_ODD, R, P, w, at, a + k + 1, t->a_stride, sum);
    }
    if (k < t->k_end)
        tile_step(kind, TILE_EVEN, R, P, w, tile_bytes(kind, k), a + k, t->a_stride, sum);
}

/* From c, or 0. Not a masked load: on AVX2 one with no lane wanted still waits for c's line. */
INLINE void tile_start(const int R, const int P, const struct tile *t, const float *c,
                       v16 sum[TILE_ROWS][TILE_PANELS])
{
    if (!t->add) {
        UNROLL for (int r = 0; r < R; r++)
        {
            UNROLL for (int p = 0; p < P; p++) sum[r][p] = v16_zero();
        }
        return;
    }
    UNROLL for (int r = 0; r < R; r++)
    {
        UNROLL for (int p = 0; p < P; p++) sum[r][p] =
            v16_load(c + (size_t)r * t->c_stride + p * 16);
    }
}

/* R and P are constants where this is inlined. */
INLINE void tile_multiply(enum tile_kind kind, const int R, const int P, const struct tile *t,
                          uint32_t row, uint32_t panel)
{
    v16 sum[TILE_ROWS][TILE_PANELS];
    float *c = t->c + row * t->c_stride + panel * 16;
    tile_start(R, P, t, c, sum);
    const uint8_t *w[TILE_PANELS];
    UNROLL for (int p = 0; p < P; p++) w[p] = t->panel + (panel + (uint32_t)p) * t->panel_stride;
    tile_sum(kind, R, P, t, w, t->a + row * t->a_stride, sum);
    UNROLL for (int r = 0; r < R; r++)
    {
        UNROLL for (int p = 0; p < P; p++)
            v16_store(c + (size_t)r * t->c_stride + p * 16, sum[r][p]);
    }
}

/* R rows, all panels, W at a time. */
INLINE void tile_panels(enum tile_kind kind, const int R, const int W, const struct tile *t,
                        uint32_t row, uint32_t panels)
{
    uint32_t p = 0;
    for (; p + (uint32_t)W <= panels; p += (uint32_t)W)
        tile_multiply(kind, R, W, t, row, p);
    for (; W > 1 && p < panels; p++)
        tile_multiply(kind, R, 1, t, row, p);
}

/* All rows and panels: panels outside, so that a panel stays in the first cache for all rows. */
INLINE void tile_run(enum tile_kind kind, const struct tile *t, uint32_t rows, uint32_t panels)
{
    const uint32_t width = TILE_WIDTH_MANY;
    uint32_t row = rows / TILE_ROWS * TILE_ROWS, p = 0;
    for (; p + width <= panels; p += width) {
        for (uint32_t r = 0; r < row; r += TILE_ROWS)
            tile_multiply(kind, TILE_ROWS, TILE_WIDTH_MANY, t, r, p);
    }
    for (; width > 1 && p < panels; p++) {
        for (uint32_t r = 0; r < row; r += TILE_ROWS)
            tile_multiply(kind, TILE_ROWS, 1, t, r, p);
    }
    if (rows - row >= 4) {
        tile_panels(kind, 4, TILE_WIDTH_4, t, row, panels);
        row += 4;
    }
    if (rows - row == 3)
        tile_panels(kind, 3, TILE_WIDTH_3, t, row, panels);
    else if (rows - row == 2)
        tile_panels(kind, 2, TILE_WIDTH_2, t, row, panels);
    else if (rows - row == 1)
        tile_panels(kind, 1, TILE_PANELS, t, row, panels);
}

#endif
