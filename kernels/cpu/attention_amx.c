/* attention_amx.c - the steps of a unit by bf16 tiles.
 *
 *   scores [16 rows][16 tokens] = q [16 rows][dims] * K tile       q as two bf16: high + low
 *   out [16 rows][16 dims]     += p [16 rows][16 tokens] * V tile   p rounded to bf16
 *
 * KV tiles are in the order that tiles of the processor want (family.h), so nothing is moved.
 * Why a row's bits depend on nothing but the row: a product does the same to each of its rows, in
 *   the order of dims or tokens. Tokens that a row does not see weigh exactly 0, which adds nothing
 *   to a sum; slots behind the unit's last position may hold anything, even NaN, and are taken as
 * 0. Why q in two parts: a score is an exponent, where 2^-9 of it would show. p is not. Heads of an
 * odd number of dims go through AVX-512. */
#include "kernels/cpu/amx.h"
#include "kernels/cpu/amx_tiles.h"
#include "kernels/cpu/avx512.h"
#include "kernels/cpu/simd_avx512.h"

#include "kernels/cpu/attention_simd.h"

#define HEAD_DIM_MAX 512
#define ROW_TILES 3           /* ATTENTION_ROWS / 16 */
#define V_VECTORS (BLOCK / 2) /* of 64 bytes, per 16 dims of a V tile */

INLINE uint16_t *q_high(const struct work *w, uint32_t row)
{
    return (uint16_t *)w->q + (size_t)row * 2 * w->row_floats;
}

INLINE uint16_t *q_low(const struct work *w, uint32_t row)
{
    return q_high(w, row) + w->row_floats;
}

/* q * scale = high + low, both bf16; zeros in rows and dims that pad. */
static void split_q(const struct work *w)
{
    const struct attention_unit *unit = w->unit;
    uint32_t dim = w->attention->head_dim, padded = (w->rows + 15) / 16 * 16;
    const __m512 scale = _mm512_set1_ps(w->attention->scale);
    for (uint32_t row = 0; row < padded; row++) {
        const float *from =
            unit->q + row / unit->heads * unit->q_stride + (size_t)(row % unit->heads) * dim;
        for (uint32_t d = 0; d < dim; d += 16) {
            uint32_t count = row >= w->rows ? 0 : dim - d < 16 ? dim - d : 16;
            __m512 q = _mm512_mul_ps(v16_load_some(count > 0 ? from + d : from, count), scale);
            __m256i high = (__m256i)_mm512_cvtneps_pbh(q);
            __m512 back = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16));
            __m256i low = (__m256i)_mm512_cvtneps_pbh(_mm512_sub_ps(q, back));
            _mm256_storeu_si256((__m256i *)(q_high(w, row) + d), high);
            _mm256_storeu_si256((__m256i *)(q_low(w, row) + d), low);
        }
    }
}

/* Dims per product: the largest even divisor that a tile can take. */
static uint32_t chunk_of(uint32_t head_dim)
{
    uint32_t chunk = 32;
    while (head_dim % chunk != 0)
        chunk -= 2;
    return chunk;
}

/* Tiles: C 0..2 (row tiles), K 3, q high 4 and low 5, p 6, V 7. */
static void configure(const struct work *w)
{
    struct tile_config config = {0};
    uint32_t rows = w->rows < TILE_MAX_ROWS ? w->rows : TILE_MAX_ROWS;
    uint32_t chunk = chunk_of(w->attention->head_dim);
    for (int c = 0; c < ROW_TILES; c++)
        tile_shape(&config, c, rows, TILE_ROW_BYTES);
    tile_shape(&config, 3, chunk / 2, TILE_ROW_BYTES);
    tile_shape(&config, 4, rows, chunk * 2);
    tile_shape(&config, 5, rows, chunk * 2);
    tile_shape(&config, 6, rows, BLOCK * 2);
    tile_shape(&config, 7, V_VECTORS, TILE_ROW_BYTES);
    tile_configure(&config);
}

#define SCORE(c)                                     \
    _tile_loadd(4, q_high(w, (c)*16) + d, q_stride); \
    _tile_dpbf16ps(c, 4, 3);                         \
    _tile_loadd(5, q_low(w, (c)*16) + d, q_stride);  \
    _tile_dpbf16ps(c, 5, 3);

INLINE void score_block(const struct work *w, const int tiles, const uint8_t *k, float *scores)
{
    const uint32_t dim = w->attention->head_dim, chunk = chunk_of(dim);
    const size_t q_stride = (size_t)w->row_floats * 2 * sizeof(uint16_t);
    const size_t stride = ATTENTION_TILE * sizeof(float);
    _tile_zero(0);
    if (tiles > 1)
        _tile_zero(1);
    if (tiles > 2)
        _tile_zero(2);
    for (uint32_t d = 0; d < dim; d += chunk) {
        _tile_loadd(3, k + (size_t)d / 2 * TILE_ROW_BYTES, TILE_ROW_BYTES);
        SCORE(0)
        if (tiles > 1) {
            SCORE(1)
        }
        if (tiles > 2) {
            SCORE(2)
        }
    }
    _tile_stored(0, scores, stride);
    if (tiles > 1)
        _tile_stored(1, scores + 16 * ATTENTION_TILE, stride);
    if (tiles > 2)
        _tile_stored(2, scores + 32 * ATTENTION_TILE, stride);
}

/* p of all rows to bf16; 0 where a row sees nothing of the step, or pads. */
INLINE void round_p(const struct work *w, uint32_t begin)
{
    const struct attention_unit *unit = w->unit;
    for (uint32_t row = 0; row < (w->rows + 15) / 16 * 16; row++) {
        struct span span = {0, 0};
        if (row < w->rows)
            span = span_of(w, unit->position + row / unit->heads, begin);
        for (uint32_t b = 0; b < STEP_BLOCKS; b += 2) {
            const float *from = w->scores + (size_t)row * ATTENTION_TILE + b * BLOCK;
            __m512i p = (__m512i)_mm512_cvtne2ps_pbh(v16_load(from + BLOCK), v16_load(from));
            if (span.first >= span.end)
                p = _mm512_setzero_si512();
            _mm512_storeu_si512(w->p + (size_t)row * ATTENTION_TILE + b * BLOCK, p);
        }
    }
}

#define ADD(c)                                                         \
    _tile_loadd(6, w->p + (size_t)(c)*16 * ATTENTION_TILE + b * BLOCK, \
                ATTENTION_TILE * sizeof(uint16_t));                    \
    _tile_dpbf16ps(c, 6, 7);

/* out += p * V, dims d .. d + 15, blocks [first, end). */
INLINE void add_dims(const struct work *w, const int tiles, const uint8_t *const v[STEP_BLOCKS],
                     uint32_t d, uint32_t first, uint32_t end)
{
    const size_t stride = (size_t)w->row_floats * sizeof(float);
    float *out = w->out + d, *out1 = out + 16 * w->row_floats, *out2 = out1 + 16 * w->row_floats;
    _tile_loadd(0, out, stride);
    if (tiles > 1)
        _tile_loadd(1, out1, stride);
    if (tiles > 2)
        _tile_loadd(2, out2, stride);
    for (uint32_t b = first; b < end; b++) {
        _tile_loadd(7, v[b] + (size_t)d / 16 * V_VECTORS * 64, TILE_ROW_BYTES);
        ADD(0)
        if (tiles > 1) {
            ADD(1)
        }
        if (tiles > 2) {
            ADD(2)
        }
    }
    _tile_stored(0, out, stride);
    if (tiles > 1)
        _tile_stored(1, out1, stride);
    if (tiles > 2)
        _tile_stored(2, out2, stride);
}

/* A V tile with zeros behind its first `tokens` (1..15). */
static void copy_v_tile(uint8_t *to, const uint8_t *from, uint32_t row_floats, uint32_t tokens)
{
    for (uint32_t i = 0; i < row_floats / 16 * V_VECTORS; i++, to += 64, from += 64) {
        uint32_t token = i % V_VECTORS * 2;
        __m512i keep = _mm512_set1_epi32(token + 1 < tokens ? -1 : token < tokens ? 0xffff : 0);
        _mm512_storeu_si512(to, _mm512_and_si512(_mm512_loadu_si512(from), keep));
    }
}

INLINE void tiled_step(const struct work *w, const int tiles, uint32_t begin)
{
    _Alignas(64) uint8_t copy[HEAD_DIM_MAX * BLOCK * sizeof(uint16_t)];
    const struct step_blocks s = step_blocks_of(w, begin);
    const uint32_t after = w->unit->position + w->unit->positions;
    const uint8_t *v[STEP_BLOCKS];
    for (uint32_t b = s.first; b < s.end; b++)
        score_block(w, tiles, k_tile(w, begin / BLOCK + b), w->scores + (size_t)b * BLOCK);
    softmax_rows(w, begin, s.first, s.end);
    round_p(w, begin);
    for (uint32_t b = s.first; b < s.end; b++) {
        uint32_t token = begin + b * BLOCK;
        v[b] = v_tile(w, begin / BLOCK + b);
        if (token + BLOCK > after) {
            copy_v_tile(copy, v[b], w->row_floats, after - token);
            v[b] = copy;
        }
    }
    for (uint32_t d = 0; d < w->row_floats; d += 16)
        add_dims(w, tiles, v, d, s.first, s.end);
}

static void step_1(const struct work *w, uint32_t begin)
{
    tiled_step(w, 1, begin);
}

static void step_2(const struct work *w, uint32_t begin)
{
    tiled_step(w, 2, begin);
}

static void step_3(const struct work *w, uint32_t begin)
{
    tiled_step(w, 3, begin);
}

void amx_attend(const struct attention *attention, const struct attention_unit *unit,
                float *scratch)
{
    static const step_fn steps[ROW_TILES] = {step_1, step_2, step_3};
    if (attention->head_dim % 2 != 0) {
        avx512_attend(attention, unit, scratch);
        return;
    }
    struct work w = work_of(attention, unit, scratch);
    split_q(&w);
    configure(&w);
    run_partitions(&w, steps[(w.rows - 1) / 16]);
    _tile_release();
}
