/* matmul_quant_avx2.c - matmul with 4- to 8-bit panels and activations quantised by groups of 32.
 *
 *   y[r][n] = sum over groups g, rising, of   scale_r,g * d_n,g * dot(w_n,g, a_r,g)
 *                                           + (scale_r,g * sum a_r,g) * m_n,g        (U4, U5)
 *   U2 and S6: the same for each half of a group, with a scale (and a min) of its own
 *
 *   one group, R rows x 16 outputs:
 *     a vector of panel = 8 outputs x 4 k (U4: and 4 k more in the high nibbles); vpmaddubsw with 4
 * broadcast activations -> 16-bit sums of 2 k; vpaddw over quads; vpmaddwd with ones -> 8 outputs
 * in 32 bits -> float -> FMAs
 *
 * Why weights are unsigned with a min where they can be: vpmaddubsw wants one operand unsigned, and
 *   sums stay in 16 bits as long as they fit:
 *     U2, U4  15 * 127 * 2 * 8 quads = 30480: a whole group
 *     U5   31 * 127 * 2 * 4 quads = 31496: half a group
 *     S6   32 * 127 * 2 * 4 quads = 32512: half a group, which is what a scale of Q6_K covers; the
 *          sign of the weight is moved to the activation (vpsignb)
 *     S8   128 * 127 * 2 = 32512: nothing to add up, every quad is widened; signs as for S6
 *          (two nibbles of w + 128 as two U4 need as many instructions and were not faster)
 * Why any R gives the same bits: integers are exact, and the float steps of a group are the same
 *   instructions in the same order for every row.
 * Why U4 is opened for many rows: taking nibbles apart is an eighth of the vector instructions, and
 *   these are what limits. Two cores of Zen 3, prefill of 512 rows, three alternated runs: 1,074,
 *   938, 948 tokens/s without, 1,217, 1,130, 1,111 with it. At 32 rows it gains nothing, at 48 7 %.
 * Cost (Zen3, one core): U4 and U5 200, S6 120, S8 115 G operations per second, 2 per k. */
#include "kernels/cpu/avx2.h"
#include "kernels/cpu/matmul_panels.h"
#include "kernels/cpu/simd_avx2.h"

#define ROWS 4     /* rows of a micro-kernel */
#define AHEAD 1024 /* bytes of a panel asked for before their turn */
#define OPEN_ROWS 40

enum { HEADER = PANEL * 2 }; /* bytes of one f16 vector */

INLINE void load_header(const uint8_t *header, __m256 ret_v[2])
{
    ret_v[0] = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)header));
    ret_v[1] = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)header + 1));
}

/* Weights of a decode come from memory once, and the processor's own prefetch stops at every 4 KiB.
 * Past the last panel the lines are asked for in vain. */
INLINE void fetch_ahead(const uint8_t *group, const size_t bytes)
{
    UNROLL for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(group + AHEAD + i);
}

INLINE __m256i load_bytes(const uint8_t *bytes)
{
    return _mm256_loadu_si256((const __m256i *)bytes);
}

INLINE __m256i widen(__m256i pairs)
{
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

/* *sum += products, or = for the first; in 16 bits. */
INLINE void add_products(__m256i *sum, __m256i products, bool first)
{
    *sum = first ? products : _mm256_add_epi16(*sum, products);
    pin(sum);
}

/* From y, or 0. Not a masked load: with no lane wanted it still waits for y's line, and the first
 * FMA for it. */
INLINE void start_sums(const int R, const struct block *b, __m256 sum[ROWS][2])
{
    if (!b->add) {
        UNROLL for (int r = 0; r < R; r++) sum[r][0] = sum[r][1] = _mm256_setzero_ps();
        return;
    }
    UNROLL for (int r = 0; r < R; r++)
    {
        const float *y = b->y + (size_t)r * b->y_stride;
        sum[r][0] = _mm256_loadu_ps(y);
        sum[r][1] = _mm256_loadu_ps(y + 8);
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

/* dot products of pairs [first, end) of quads in 32 bits, nibbles. */
INLINE void dot_u4(const int R, const int first, const int end, const uint8_t *quads,
                   const int8_t *q, size_t q_stride, __m256i ret_dot[ROWS][2])
{
    const __m256i low = _mm256_set1_epi8(0xf);
    UNROLL for (int pair = first; pair < end; pair++)
    {
        UNROLL for (int h = 0; h < 2; h++)
        {
            __m256i both = load_bytes(quads + pair * 64 + h * 32);
            __m256i w0 = _mm256_and_si256(both, low);
            __m256i w1 = _mm256_and_si256(_mm256_srli_epi16(both, 4), low);
            UNROLL for (int r = 0; r < R; r++)
            {
                const int8_t *at = q + (size_t)r * q_stride + pair * 8;
                add_products(&ret_dot[r][h], _mm256_maddubs_epi16(w0, broadcast_quad(at)),
                             pair == first);
                add_products(&ret_dot[r][h], _mm256_maddubs_epi16(w1, broadcast_quad(at + 4)),
                             false);
            }
        }
    }
    UNROLL for (int r = 0; r < R; r++)
    {
        ret_dot[r][0] = widen(ret_dot[r][0]);
        ret_dot[r][1] = widen(ret_dot[r][1]);
    }
}

/* Quads [first, end) of a byte per weight; `is_signed`: S6, else U5 or U4 opened. */
INLINE void dot_quads(const int R, const bool is_signed, const int first, const int end,
                      const uint8_t *quads, const int8_t *q, size_t q_stride,
                      __m256i ret_dot[ROWS][2])
{
    UNROLL for (int i = first; i < end; i++)
    {
        __m256i w0 = load_bytes(quads + i * 64);
        __m256i w1 = load_bytes(quads + i * 64 + 32);
        __m256i size0 = is_signed ? _mm256_abs_epi8(w0) : w0;
        __m256i size1 = is_signed ? _mm256_abs_epi8(w1) : w1;
        UNROLL for (int r = 0; r < R; r++)
        {
            __m256i a = broadcast_quad(q + (size_t)r * q_stride + i * 4);
            __m256i a0 = is_signed ? _mm256_sign_epi8(a, w0) : a;
            __m256i a1 = is_signed ? _mm256_sign_epi8(a, w1) : a;
            add_products(&ret_dot[r][0], _mm256_maddubs_epi16(size0, a0), i == first);
            add_products(&ret_dot[r][1], _mm256_maddubs_epi16(size1, a1), i == first);
        }
    }
    UNROLL for (int r = 0; r < R; r++)
    {
        ret_dot[r][0] = widen(ret_dot[r][0]);
        ret_dot[r][1] = widen(ret_dot[r][1]);
    }
}

INLINE void dot_u5(const int R, const uint8_t *quads, const int8_t *q, size_t q_stride,
                   __m256i ret_dot[ROWS][2])
{
    __m256i second[ROWS][2];
    dot_quads(R, false, 0, QUADS / 2, quads, q, q_stride, ret_dot);
    dot_quads(R, false, QUADS / 2, QUADS, quads, q, q_stride, second);
    UNROLL for (int r = 0; r < R; r++)
    {
        ret_dot[r][0] = _mm256_add_epi32(ret_dot[r][0], second[r][0]);
        ret_dot[r][1] = _mm256_add_epi32(ret_dot[r][1], second[r][1]);
    }
}

/* Every quad is widened at once: two products of bytes already fill 16 bits. */
INLINE void dot_s8(const int R, const uint8_t *quads, const int8_t *q, size_t q_stride,
                   __m256i ret_dot[ROWS][2])
{
    UNROLL for (int quad = 0; quad < QUADS; quad++)
    {
        __m256i w[2] = {load_bytes(quads + quad * 64), load_bytes(quads + quad * 64 + 32)};
        __m256i size[2] = {_mm256_abs_epi8(w[0]), _mm256_abs_epi8(w[1])};
        UNROLL for (int r = 0; r < R; r++)
        {
            __m256i a = broadcast_quad(q + (size_t)r * q_stride + quad * 4);
            UNROLL for (int h = 0; h < 2; h++)
            {
                __m256i p = widen(_mm256_maddubs_epi16(size[h], _mm256_sign_epi8(a, w[h])));
                ret_dot[r][h] = quad == 0 ? p : _mm256_add_epi32(ret_dot[r][h], p);
                pin(&ret_dot[r][h]);
            }
        }
    }
}

/* sum += scale * d * dot, for the rows of group g. */
INLINE void add_scaled(const int R, const struct block *b, uint32_t g, __m256i dot[ROWS][2],
                       const __m256 d[2], __m256 sum[ROWS][2])
{
    UNROLL for (int r = 0; r < R; r++)
    {
        __m256 scale =
            _mm256_broadcast_ss(b->quant.scale_sums + ((size_t)r * b->group_stride + g) * 2);
        __m256 dot0 = _mm256_cvtepi32_ps(dot[r][0]), dot1 = _mm256_cvtepi32_ps(dot[r][1]);
        sum[r][0] = _mm256_fmadd_ps(dot0, _mm256_mul_ps(scale, d[0]), sum[r][0]);
        sum[r][1] = _mm256_fmadd_ps(dot1, _mm256_mul_ps(scale, d[1]), sum[r][1]);
    }
}

/* sum += (scale * sum of activations) * m */
INLINE void add_min(const int R, const struct block *b, uint32_t g, const __m256 m[2],
                    __m256 sum[ROWS][2])
{
    UNROLL for (int r = 0; r < R; r++)
    {
        __m256 total =
            _mm256_broadcast_ss(b->quant.scale_sums + ((size_t)r * b->group_stride + g) * 2 + 1);
        sum[r][0] = _mm256_fmadd_ps(total, m[0], sum[r][0]);
        sum[r][1] = _mm256_fmadd_ps(total, m[1], sum[r][1]);
    }
}

/* U4, U5 and S8: one scale per group, and a min but for S8. */
INLINE void multiply_group_scale(enum panel_class class, const int R, const struct block *b)
{
    const size_t headers = class == PANEL_S8 ? HEADER : 2 * HEADER;
    const size_t group_bytes = headers + QUADS * (class == PANEL_U4 ? 32 : 64);
    const uint8_t *group = b->panel;
    __m256 sum[ROWS][2];
    start_sums(R, b, sum);
    for (uint32_t g = 0; g < b->groups; g++, group += group_bytes) {
        const int8_t *q = b->quant.q + (size_t)g * GROUP;
        __m256i dot[ROWS][2];
        __m256 d[2], m[2];
        fetch_ahead(group, group_bytes);
        if (class == PANEL_U4)
            dot_u4(R, 0, QUADS / 2, group + headers, q, b->q_stride, dot);
        else if (class == PANEL_U5)
            dot_u5(R, group + headers, q, b->q_stride, dot);
        else
            dot_s8(R, group + headers, q, b->q_stride, dot);
        load_header(group, d);
        add_scaled(R, b, g, dot, d, sum);
        if (class == PANEL_S8)
            continue;
        load_header(group + HEADER, m);
        add_min(R, b, g, m, sum);
    }
    store_sums(R, b, sum);
}

/* sum += (scale * sum of activations of a half) * m */
INLINE void add_half_min(const int R, const struct block *b, uint32_t g, int half,
                         const __m256 m[2], __m256 sum[ROWS][2])
{
    UNROLL for (int r = 0; r < R; r++)
    {
        size_t at = ((size_t)r * b->group_stride + g) * 2;
        __m256 total =
            _mm256_set1_ps(b->quant.scale_sums[at] * (float)b->quant.half_sums[at + (size_t)half]);
        sum[r][0] = _mm256_fmadd_ps(total, m[0], sum[r][0]);
        sum[r][1] = _mm256_fmadd_ps(total, m[1], sum[r][1]);
    }
}

/* U2: two scales and two mins per group. */
INLINE void multiply_u2(const int R, const struct block *b)
{
    const uint8_t *group = b->panel;
    __m256 sum[ROWS][2];
    start_sums(R, b, sum);
    for (uint32_t g = 0; g < b->groups; g++, group += 4 * HEADER + QUADS * 32) {
        const int8_t *q = b->quant.q + (size_t)g * GROUP;
        fetch_ahead(group, 4 * HEADER + QUADS * 32);
        UNROLL for (int half = 0; half < 2; half++)
        {
            __m256i dot[ROWS][2];
            __m256 d[2], m[2];
            dot_u4(R, half * 2, half * 2 + 2, group + 4 * HEADER, q, b->q_stride, dot);
            load_header(group + half * HEADER, d);
            add_scaled(R, b, g, dot, d, sum);
            load_header(group + (2 + half) * HEADER, m);
            add_half_min(R, b, g, half, m, sum);
        }
    }
    store_sums(R, b, sum);
}

/* S6: two scales per group. */
INLINE void multiply_s6(const int R, const struct block *b)
{
    const uint8_t *group = b->panel;
    __m256 sum[ROWS][2];
    start_sums(R, b, sum);
    for (uint32_t g = 0; g < b->groups; g++, group += 2 * HEADER + QUADS * 64) {
        const int8_t *q = b->quant.q + (size_t)g * GROUP;
        fetch_ahead(group, 2 * HEADER + QUADS * 64);
        UNROLL for (int half = 0; half < 2; half++)
        {
            __m256i dot[ROWS][2];
            __m256 d[2];
            dot_quads(R, true, half * (QUADS / 2), (half + 1) * (QUADS / 2), group + 2 * HEADER, q,
                      b->q_stride, dot);
            load_header(group + half * HEADER, d);
            add_scaled(R, b, g, dot, d, sum);
        }
    }
    store_sums(R, b, sum);
}

INLINE void multiply_rows(enum panel_class class, const int R, const struct block *b)
{
    if (class == PANEL_S6)
        multiply_s6(R, b);
    else if (class == PANEL_U2)
        multiply_u2(R, b);
    else
        multiply_group_scale(class, R, b);
}

/* One panel, some groups, all rows. */
INLINE void multiply_block(enum panel_class class, const struct block *block, uint32_t rows)
{
    struct block b = *block;
    for (; rows >= ROWS; rows -= ROWS) {
        multiply_rows(class, ROWS, &b);
        b = block_rows(&b, ROWS);
    }
    if (rows == 3)
        multiply_rows(class, 3, &b);
    else if (rows == 2)
        multiply_rows(class, 2, &b);
    else if (rows == 1)
        multiply_rows(class, 1, &b);
}

/* --- U4 for many rows ------------------------------------------------------------------------ */

struct open_group {
    float d[PANEL], m[PANEL];
    uint8_t quads[QUADS * 64]; /* a byte per weight, in the order of U5 */
};

/* [b->groups] */
static void open_groups(const struct block *b, struct open_group *to)
{
    const __m256i low = _mm256_set1_epi8(0xf);
    const uint8_t *group = b->panel;
    for (uint32_t g = 0; g < b->groups; g++, group += 2 * HEADER + QUADS * 32, to++) {
        __m256 d[2], m[2];
        fetch_ahead(group, 2 * HEADER + QUADS * 32);
        load_header(group, d);
        load_header(group + HEADER, m);
        UNROLL for (int h = 0; h < 2; h++)
        {
            _mm256_store_ps(to->d + 8 * h, d[h]);
            _mm256_store_ps(to->m + 8 * h, m[h]);
        }
        UNROLL for (int pair = 0; pair < QUADS / 2; pair++)
        {
            UNROLL for (int h = 0; h < 2; h++)
            {
                __m256i both = load_bytes(group + 2 * HEADER + pair * 64 + h * 32);
                __m256i *at = (__m256i *)(to->quads + pair * 128 + h * 32);
                _mm256_store_si256(at, _mm256_and_si256(both, low));
                _mm256_store_si256(at + 2, _mm256_and_si256(_mm256_srli_epi16(both, 4), low));
            }
        }
    }
}

INLINE void multiply_open(const int R, const struct block *b, const struct open_group *group)
{
    __m256 sum[ROWS][2];
    start_sums(R, b, sum);
    for (uint32_t g = 0; g < b->groups; g++, group++) {
        __m256i dot[ROWS][2];
        dot_quads(R, false, 0, QUADS, group->quads, b->quant.q + (size_t)g * GROUP, b->q_stride,
                  dot);
        __m256 d[2] = {_mm256_load_ps(group->d), _mm256_load_ps(group->d + 8)};
        add_scaled(R, b, g, dot, d, sum);
        __m256 m[2] = {_mm256_load_ps(group->m), _mm256_load_ps(group->m + 8)};
        add_min(R, b, g, m, sum);
    }
    store_sums(R, b, sum);
}

static void multiply_u4_open(const struct block *block, uint32_t rows)
{
    _Alignas(64) struct open_group open[GROUP_BLOCK];
    struct block b = *block;
    open_groups(block, open);
    for (; rows >= ROWS; rows -= ROWS) {
        multiply_open(ROWS, &b, open);
        b = block_rows(&b, ROWS);
    }
    for (; rows > 0; rows--) {
        multiply_open(1, &b, open);
        b = block_rows(&b, 1);
    }
}

/* --- blocks ---------------------------------------------------------------------------------- */

static void block_u2(const struct block *block, uint32_t rows)
{
    multiply_block(PANEL_U2, block, rows);
}

static void block_u4(const struct block *block, uint32_t rows)
{
    if (rows >= OPEN_ROWS)
        multiply_u4_open(block, rows);
    else
        multiply_block(PANEL_U4, block, rows);
}

static void block_u5(const struct block *block, uint32_t rows)
{
    multiply_block(PANEL_U5, block, rows);
}

static void block_s6(const struct block *block, uint32_t rows)
{
    multiply_block(PANEL_S6, block, rows);
}

static void block_s8(const struct block *block, uint32_t rows)
{
    multiply_block(PANEL_S8, block, rows);
}

void avx2_gemm_u2(const struct gemm *gemm)
{
    multiply_all(gemm, block_u2);
}

void avx2_gemm_u4(const struct gemm *gemm)
{
    multiply_all(gemm, block_u4);
}

void avx2_gemm_u5(const struct gemm *gemm)
{
    multiply_all(gemm, block_u5);
}

void avx2_gemm_s6(const struct gemm *gemm)
{
    multiply_all(gemm, block_s6);
}

void avx2_gemm_s8(const struct gemm *gemm)
{
    multiply_all(gemm, block_s8);
}
