/* matmul_quant_avx2.c - matmul with 4- and 8-bit panels and activations quantised by groups of 32.
 *
 *   y[r][n] = sum over groups g, rising, of   scale_r,g * d_n,g * dot(q_n,g, a_r,g)
 *                                           + (scale_r,g * sum a_r,g) * m_n,g        (with a min)
 *
 *   one group, R rows x 16 outputs:
 *     32 bytes of panel = 4 k x 16 outputs (nibbles) -> two vectors of 8 outputs x 4 k
 *     vpmaddubsw with 4 broadcast activations -> 16-bit sums of 2 k; vpaddw over the 8 quads;
 *     vpmaddwd with ones -> 8 outputs in 32 bits -> float -> 2 FMAs
 *
 * Why nibbles stay unsigned with a min: 15 * 127 * 2 * 8 quads = 30480 fits 16 bits, so a group
 *   needs one widening instead of eight. Bytes do not fit; there every quad is widened, and the
 *   sign of the weight is moved to the activation (vpsignb), because vpmaddubsw wants one operand
 *   unsigned: 128 * 127 * 2 = 32512 still fits.
 * Why any R gives the same bits: integers are exact, and the float steps of a group are the same
 *   instructions in the same order for every row.
 * Cost (Zen3): about 110 G multiply-adds per second and core for nibbles. */
#include "kernels/cpu/matmul_avx2.h"
#include "kernels/cpu/simd_avx2.h"

#define ROWS 4         /* rows of a micro-kernel */
#define GROUP_BLOCK 32 /* groups per block of K: 10 to 18 KiB of a panel */

struct block { /* one panel, some groups, some rows */
    const uint8_t *panel;
    const int8_t *q;
    size_t q_stride;
    const float *scale_sums;
    size_t scale_stride;
    float *y;
    size_t y_stride;
    uint32_t groups;
    bool add; /* start from y, else from 0 */
};

enum { HEADER = PANEL * 2 }; /* bytes of one f16 vector */

INLINE void load_header(const uint8_t *header, __m256 ret_v[2])
{
    ret_v[0] = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)header));
    ret_v[1] = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)header + 1));
}

/* sum += scale * d * dot */
INLINE __m256 add_scaled(__m256 sum, __m256i dot, __m256 d, __m256 scale)
{
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), _mm256_mul_ps(scale, d), sum);
}

/* From y, or 0 without reading y. */
INLINE void start_sums(const int R, const struct block *b, __m256 sum[ROWS][2])
{
    const __m256i start = lanes_mask(b->add ? 8 : 0);
    UNROLL for (int r = 0; r < R; r++)
    {
        const float *y = b->y + (size_t)r * b->y_stride;
        sum[r][0] = _mm256_maskload_ps(y, start);
        sum[r][1] = _mm256_maskload_ps(y + 8, start);
    }
}

INLINE void store_sums(const int R, const struct block *b, __m256 sum[ROWS][2])
{
    UNROLL for (int r = 0; r < R; r++)
    {
        float *y = b->y + (size_t)r * b->y_stride;
        _mm256_storeu_ps(y, sum[r][0]);
        _mm256_storeu_ps(y + 8, sum[r][1]);
    }
}

/* 16-bit sums of one group of nibbles. */
INLINE void dot_u4(const int R, const uint8_t *quads, const int8_t *q, size_t q_stride,
                   __m256i ret_dot[ROWS][2])
{
    const __m256i low = _mm256_set1_epi8(0xf);
    UNROLL for (int quad = 0; quad < QUADS; quad++)
    {
        __m256i both = _mm256_loadu_si256((const __m256i *)(quads + quad * 32));
        __m256i w0 = _mm256_and_si256(both, low);
        __m256i w1 = _mm256_and_si256(_mm256_srli_epi16(both, 4), low);
        UNROLL for (int r = 0; r < R; r++)
        {
            __m256i a = broadcast_quad(q + (size_t)r * q_stride + quad * 4);
            __m256i p0 = _mm256_maddubs_epi16(w0, a), p1 = _mm256_maddubs_epi16(w1, a);
            ret_dot[r][0] = quad == 0 ? p0 : _mm256_add_epi16(ret_dot[r][0], p0);
            ret_dot[r][1] = quad == 0 ? p1 : _mm256_add_epi16(ret_dot[r][1], p1);
            pin(&ret_dot[r][0]);
            pin(&ret_dot[r][1]);
        }
    }
}

INLINE void multiply_u4(const int R, const struct block *b)
{
    const __m256i ones = _mm256_set1_epi16(1);
    const uint8_t *group = b->panel;
    __m256 sum[ROWS][2];
    start_sums(R, b, sum);
    for (uint32_t g = 0; g < b->groups; g++, group += 2 * HEADER + QUADS * 32) {
        __m256i dot[ROWS][2];
        __m256 d[2], m[2];
        dot_u4(R, group + 2 * HEADER, b->q + g * GROUP, b->q_stride, dot);
        load_header(group, d);
        load_header(group + HEADER, m);
        UNROLL for (int r = 0; r < R; r++)
        {
            const float *scale_sum = b->scale_sums + (size_t)r * b->scale_stride + g * 2;
            __m256 scale = _mm256_broadcast_ss(scale_sum);
            __m256 total = _mm256_broadcast_ss(scale_sum + 1);
            UNROLL for (int h = 0; h < 2; h++)
            {
                __m256i wide = _mm256_madd_epi16(dot[r][h], ones);
                sum[r][h] = add_scaled(sum[r][h], wide, d[h], scale);
                sum[r][h] = _mm256_fmadd_ps(total, m[h], sum[r][h]);
            }
        }
    }
    store_sums(R, b, sum);
}

/* 32-bit sums of quads first .. first + count - 1 of a group of bytes. */
INLINE void dot_s8(const int R, const int first, const int count, const uint8_t *quads,
                   const int8_t *q, size_t q_stride, __m256i ret_dot[ROWS][2])
{
    const __m256i ones = _mm256_set1_epi16(1);
    UNROLL for (int i = 0; i < count; i++)
    {
        const uint8_t *from = quads + (first + i) * 64;
        __m256i w[2], size[2];
        UNROLL for (int h = 0; h < 2; h++)
        {
            w[h] = _mm256_loadu_si256((const __m256i *)from + h);
            size[h] = _mm256_abs_epi8(w[h]);
        }
        UNROLL for (int r = 0; r < R; r++)
        {
            __m256i a = broadcast_quad(q + (size_t)r * q_stride + (first + i) * 4);
            UNROLL for (int h = 0; h < 2; h++)
            {
                __m256i pairs = _mm256_maddubs_epi16(size[h], _mm256_sign_epi8(a, w[h]));
                __m256i p = _mm256_madd_epi16(pairs, ones);
                ret_dot[r][h] = i == 0 ? p : _mm256_add_epi32(ret_dot[r][h], p);
                pin(&ret_dot[r][h]);
            }
        }
    }
}

INLINE void multiply_s8(const int R, const bool with_min, const bool halves, const struct block *b)
{
    const size_t headers = with_min || halves ? 2 : 1;
    const int count = halves ? QUADS / 2 : QUADS;
    const uint8_t *group = b->panel;
    __m256 sum[ROWS][2];
    start_sums(R, b, sum);
    for (uint32_t g = 0; g < b->groups; g++, group += headers * HEADER + QUADS * 64) {
        for (int part = 0; part < QUADS / count; part++) {
            __m256i dot[ROWS][2];
            __m256 d[2];
            dot_s8(R, part * count, count, group + headers * HEADER, b->q + g * GROUP, b->q_stride,
                   dot);
            load_header(group + part * HEADER, d);
            UNROLL for (int r = 0; r < R; r++)
            {
                __m256 scale =
                    _mm256_broadcast_ss(b->scale_sums + (size_t)r * b->scale_stride + g * 2);
                sum[r][0] = add_scaled(sum[r][0], dot[r][0], d[0], scale);
                sum[r][1] = add_scaled(sum[r][1], dot[r][1], d[1], scale);
            }
        }
        if (with_min) {
            __m256 m[2];
            load_header(group + HEADER, m);
            UNROLL for (int r = 0; r < R; r++)
            {
                __m256 total =
                    _mm256_broadcast_ss(b->scale_sums + (size_t)r * b->scale_stride + g * 2 + 1);
                sum[r][0] = _mm256_fmadd_ps(total, m[0], sum[r][0]);
                sum[r][1] = _mm256_fmadd_ps(total, m[1], sum[r][1]);
            }
        }
    }
    store_sums(R, b, sum);
}

INLINE void multiply_rows(enum panel_class class, const int R, const struct block *b)
{
    if (class == PANEL_U4)
        multiply_u4(R, b);
    else
        multiply_s8(R, class == PANEL_S8_MIN, class == PANEL_S8_HALF, b);
}

/* One panel, some groups, all rows. */
INLINE void multiply_block(enum panel_class class, struct block b, uint32_t rows)
{
    for (; rows >= ROWS; rows -= ROWS) {
        multiply_rows(class, ROWS, &b);
        b.q += ROWS * b.q_stride;
        b.scale_sums += ROWS * b.scale_stride;
        b.y += ROWS * b.y_stride;
    }
    if (rows == 3)
        multiply_rows(class, 3, &b);
    else if (rows == 2)
        multiply_rows(class, 2, &b);
    else if (rows == 1)
        multiply_rows(class, 1, &b);
}

INLINE struct block block_of(const struct gemm *g, uint32_t panel, uint32_t group)
{
    uint32_t groups = g->columns / GROUP, left = groups - group;
    return (struct block){
        .panel = g->panel + panel * g->panel_bytes + group * (g->panel_bytes / groups),
        .q = g->quant.q + (size_t)group * GROUP,
        .q_stride = g->columns,
        .scale_sums = g->quant.scale_sums + (size_t)group * 2,
        .scale_stride = (size_t)groups * 2,
        .y = g->y + (size_t)panel * PANEL,
        .y_stride = g->y_stride,
        .groups = left < GROUP_BLOCK ? left : GROUP_BLOCK,
        .add = group > 0 || g->accumulate,
    };
}

/* The last panel, wider than y: through a buffer, a few rows at a time. */
INLINE void multiply_tail(enum panel_class class, const struct gemm *g, uint32_t panel)
{
    float buffer[ROWS * PANEL];
    for (uint32_t row = 0; row < g->rows; row += ROWS) {
        uint32_t rows = g->rows - row < ROWS ? g->rows - row : ROWS;
        matmul_tail_load(g, panel, row, rows, buffer);
        for (uint32_t group = 0; group < g->columns / GROUP; group += GROUP_BLOCK) {
            struct block b = block_of(g, panel, group);
            b.q += row * b.q_stride;
            b.scale_sums += row * b.scale_stride;
            b.y = buffer;
            b.y_stride = PANEL;
            multiply_block(class, b, rows);
        }
        matmul_tail_store(g, panel, row, rows, buffer);
    }
}

INLINE void multiply(enum panel_class class, const struct gemm *g)
{
    uint32_t whole = g->outputs / PANEL;
    for (uint32_t panel = 0; panel < whole; panel++) {
        for (uint32_t group = 0; group < g->columns / GROUP; group += GROUP_BLOCK)
            multiply_block(class, block_of(g, panel, group), g->rows);
    }
    if (whole < g->panels)
        multiply_tail(class, g, whole);
}

void avx2_gemm_u4(const struct gemm *gemm)
{
    multiply(PANEL_U4, gemm);
}

void avx2_gemm_s8(const struct gemm *gemm)
{
    multiply(PANEL_S8, gemm);
}

void avx2_gemm_s8_min(const struct gemm *gemm)
{
    multiply(PANEL_S8_MIN, gemm);
}

void avx2_gemm_s8_half(const struct gemm *gemm)
{
    multiply(PANEL_S8_HALF, gemm);
}
