/* attention_amx.c - the steps of a unit by bf16 tiles.
 *
 *   step (128 tokens)     V of its blocks to tiles of 32 tokens, once for all rows
 *     row tile (16 rows)  scores [16][128]   = q [16][dims] * K tiles
 *                         p      [16][128]   = 2^(score - base of the row), as bf16
 *                         out    [16][dims] += p * V tiles
 *
 * Scores are base 2 logarithms: log2(e) is part of q's scale. A row's base is the highest score of
 *   the step that set it. It moves only when a later step's weights sum to more than 256 times it
 *   in one of their 16 lanes, so most steps neither look for a maximum nor rescale; bf16 and f32
 *   round large weights as they round small ones.
 * Why a row's bits depend on nothing but the row: a product does the same to each of its rows, in
 *   the order of dims or tokens; when a base moves depends on the row's own scores. Tokens that a
 *   row does not see weigh exactly 0, which adds nothing to a sum; slots behind the unit's last
 *   position may hold anything, even NaN, and are taken as 0.
 * Why vectors and tiles are not interleaved: while tiles are multiplied, vector instructions run at
 *   half their rate, so there is nothing to gain.
 * Heads of an odd number of dims go through AVX-512. */
#include "kernels/cpu/amx.h"
#include "kernels/cpu/amx_tiles.h"
#include "kernels/cpu/avx512.h"
#include "kernels/cpu/simd_avx512.h"

#define STEP 64
#include "kernels/cpu/attention_simd.h"

#define REBASE_ABOVE 256.0f
#define FLUSH_TO_ZERO 0x8040u /* of MXCSR: denormal weights cost hundreds of cycles each */
#define TILE_VALUES (TILE_MAX_ROWS * TILE_ROW_BYTES / 2) /* bf16 */

/* The family's part of the scratch. */
struct step_scratch {
    float *scores;    /* [16][STEP] */
    uint16_t *p;      /* [16][STEP] */
    float *lane_sums; /* [rows][16]: the sum of a row's weights in 16 parts */
    uint16_t *v;      /* [STEP / 32][row_floats / 16] tiles of 16 pairs of tokens x 16 dims */
};

static struct step_scratch step_scratch_of(const struct work *w)
{
    struct step_scratch s = {.scores = w->scores};
    s.p = (uint16_t *)(s.scores + TILE_MAX_ROWS * STEP);
    s.lane_sums = s.scores + TILE_MAX_ROWS * STEP * 3 / 2;
    s.v = (uint16_t *)(s.lane_sums + (w->rows + 15) / 16 * 16 * 16);
    return s;
}

INLINE uint16_t *q_row(const struct work *w, uint32_t row)
{
    return (uint16_t *)w->q + (size_t)row * w->row_floats;
}

/* q * scale as bf16; zeros in rows and dims that pad. */
static void round_q(const struct work *w)
{
    uint32_t dim = w->attention->head_dim, padded = (w->rows + 15) / 16 * 16;
    const __m512 scale = _mm512_set1_ps(q_scale(w->attention));
    for (uint32_t row = 0; row < padded; row++) {
        const float *from = q_of(w, row);
        for (uint32_t d = 0; d < dim; d += 16) {
            uint32_t count = row >= w->rows ? 0 : dim - d < 16 ? dim - d : 16;
            __m512 q = _mm512_mul_ps(v16_load_some(count > 0 ? from + d : from, count), scale);
            _mm256_storeu_si256((__m256i *)(q_row(w, row) + d), (__m256i)_mm512_cvtneps_pbh(q));
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

/* Tiles: sums 0..3, q 4, p 5, K 6, V 7. */
static void configure(const struct work *w)
{
    struct tile_config config = {0};
    uint32_t rows = w->rows < TILE_MAX_ROWS ? w->rows : TILE_MAX_ROWS;
    uint32_t chunk = chunk_of(w->attention->head_dim);
    for (int c = 0; c < 4; c++)
        tile_shape(&config, c, rows, TILE_ROW_BYTES);
    tile_shape(&config, 4, rows, chunk * 2);
    tile_shape(&config, 5, rows, TILE_ROW_BYTES);
    tile_shape(&config, 6, chunk / 2, TILE_ROW_BYTES);
    tile_shape(&config, 7, TILE_MAX_ROWS, TILE_ROW_BYTES);
    tile_configure(&config);
}

/* --- scores ---------------------------------------------------------------------------------- */

/* Scores of 16 rows against `count` blocks, 1..4. */
INLINE void score_blocks(const struct work *w, const int count, const uint16_t *q,
                         const uint8_t *const k[4], float *scores)
{
    const uint32_t dim = w->attention->head_dim, chunk = chunk_of(dim);
    const size_t q_stride = w->row_floats * sizeof(uint16_t), stride = STEP * sizeof(float);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (uint32_t d = 0; d < dim; d += chunk) {
        const size_t at = (size_t)d / 2 * TILE_ROW_BYTES;
        _tile_loadd(4, q + d, q_stride);
        _tile_loadd(6, k[0] + at, TILE_ROW_BYTES);
        _tile_dpbf16ps(0, 4, 6);
        if (count > 1) {
            _tile_loadd(6, k[1] + at, TILE_ROW_BYTES);
            _tile_dpbf16ps(1, 4, 6);
        }
        if (count > 2) {
            _tile_loadd(6, k[2] + at, TILE_ROW_BYTES);
            _tile_dpbf16ps(2, 4, 6);
        }
        if (count > 3) {
            _tile_loadd(6, k[3] + at, TILE_ROW_BYTES);
            _tile_dpbf16ps(3, 4, 6);
        }
    }
    _tile_stored(0, scores, stride);
    if (count > 1)
        _tile_stored(1, scores + BLOCK, stride);
    if (count > 2)
        _tile_stored(2, scores + 2 * BLOCK, stride);
    if (count > 3)
        _tile_stored(3, scores + 3 * BLOCK, stride);
}

/* Scores of a row tile against blocks [first, end) of the step. */
static void score_tile(const struct work *w, const uint16_t *q, const uint8_t *const k[STEP_BLOCKS],
                       uint32_t first, uint32_t end, float *scores)
{
    uint32_t b = first;
    for (; b + 4 <= end; b += 4)
        score_blocks(w, 4, q, k + b, scores + (size_t)b * BLOCK);
    if (end - b == 3)
        score_blocks(w, 3, q, k + b, scores + (size_t)b * BLOCK);
    else if (end - b == 2)
        score_blocks(w, 2, q, k + b, scores + (size_t)b * BLOCK);
    else if (end - b == 1)
        score_blocks(w, 1, q, k + b, scores + (size_t)b * BLOCK);
}

/* --- weights --------------------------------------------------------------------------------- */

/* 2^x, to 3e-6 of it: 2^floor(x) times a polynomial of the rest (own fit, exact at 0). -inf: 0. */
INLINE __m512 exp2_vector(__m512 x)
{
    const __m512 rest = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    __m512 y = _mm512_set1_ps(0.0134266843f);
    y = _mm512_fmadd_ps(y, rest, _mm512_set1_ps(0.0522424742f));
    y = _mm512_fmadd_ps(y, rest, _mm512_set1_ps(0.2412802048f));
    y = _mm512_fmadd_ps(y, rest, _mm512_set1_ps(0.6930448449f));
    y = _mm512_fmadd_ps(y, rest, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(y, x);
}

/* A row's scores of blocks [first, end), which are even, to p; the sums of its lanes. */
INLINE __m512 weigh(const float *scores, __m512 base, uint32_t first, uint32_t end, uint16_t *p)
{
    __m512 sum = _mm512_setzero_ps();
    for (uint32_t b = first; b < end; b += 2) {
        __m512 x = exp2_vector(_mm512_sub_ps(v16_load(scores + b * BLOCK), base));
        __m512 y = exp2_vector(_mm512_sub_ps(v16_load(scores + (b + 1) * BLOCK), base));
        sum = _mm512_add_ps(_mm512_add_ps(sum, x), y);
        _mm512_storeu_si512(p + b * BLOCK, (__m512i)_mm512_cvtne2ps_pbh(y, x));
    }
    return sum;
}

/* The row's base becomes its highest score in blocks [first, end). */
static __attribute__((noinline)) void rebase(const struct work *w, uint32_t row,
                                             const float *scores, uint32_t first, uint32_t end,
                                             float *lane_sums)
{
    __m512 highest = v16_load(scores + first * BLOCK);
    for (uint32_t b = first + 1; b < end; b++)
        highest = v16_max(highest, v16_load(scores + b * BLOCK));
    float base = v16_max_lanes(highest);
    float keep =
        _mm512_cvtss_f32(exp2_vector(_mm512_sub_ps(v16_set1(w->max[row]), v16_set1(base))));
    w->max[row] = base;
    scale_row(w->out + (size_t)row * w->row_floats, w->row_floats, keep);
    scale_row(lane_sums, 16, keep);
}

INLINE void weigh_row(const struct work *w, const struct step_scratch *s, uint32_t row,
                      uint32_t first, uint32_t end)
{
    const float *scores = s->scores + (size_t)(row % TILE_MAX_ROWS) * STEP;
    uint16_t *p = s->p + (size_t)(row % TILE_MAX_ROWS) * STEP;
    float *lane_sums = s->lane_sums + (size_t)row * 16;
    __m512 sum = weigh(scores, v16_set1(w->max[row]), first, end, p);
    /* Not <=: also where a base of -inf made a NaN of a hidden token. */
    if (_mm512_cmp_ps_mask(sum, _mm512_set1_ps(REBASE_ABOVE), _CMP_NLE_UQ) != 0) {
        rebase(w, row, scores, first, end, lane_sums);
        sum = weigh(scores, v16_set1(w->max[row]), first, end, p);
    }
    v16_store(lane_sums, v16_add(v16_load(lane_sums), sum));
}

/* The same for rows that do not see all of the step, or whose scores are capped. */
static void weigh_edge_row(const struct work *w, const struct step_scratch *s, uint32_t row,
                           uint32_t begin, uint32_t first, uint32_t end)
{
    const struct span span = span_of(w, w->unit->position + row / w->unit->heads, begin);
    float *scores = s->scores + (size_t)(row % TILE_MAX_ROWS) * STEP;
    if (span.first >= span.end) {
        memset(s->p + (size_t)(row % TILE_MAX_ROWS) * STEP, 0, STEP * sizeof(*s->p));
        return;
    }
    cut_scores(w->attention, scores, span, first, end);
    weigh_row(w, s, row, first, end);
}

/* --- outputs --------------------------------------------------------------------------------- */

/* 16 tokens x 16 dims, 0 from the token `count` on. */
INLINE void copy_v(uint16_t *to, const uint8_t *from, uint32_t count)
{
    for (uint32_t i = 0; i < BLOCK / 2; i++) {
        int keep = 2 * i + 1 < count ? -1 : 2 * i < count ? 0xffff : 0;
        __m512i v = _mm512_loadu_si512(from + i * 64);
        _mm512_storeu_si512(to + i * 32, _mm512_and_si512(v, _mm512_set1_epi32(keep)));
    }
}

/* The V tiles of the blocks that the unit sees of a step, each two of them together; zeros for what
 * is not there or lies behind the unit. */
static void gather_v(const struct work *w, const struct step_scratch *s, uint32_t begin)
{
    const struct attention_unit *unit = w->unit;
    const uint32_t after = unit->position + unit->positions, tiles = w->row_floats / 16;
    const struct step_blocks blocks = step_blocks_of(w, unit->position, after - 1, begin);
    for (uint32_t b = blocks.first / 2 * 2; b < (blocks.end + 1) / 2 * 2; b++) {
        uint16_t *to = s->v + (size_t)(b / 2) * tiles * TILE_VALUES + b % 2 * (TILE_VALUES / 2);
        uint32_t token = begin + b * BLOCK, count = after - token;
        const uint8_t *from = (const uint8_t *)to; /* anything: nothing is kept */
        if (b >= blocks.first && b < blocks.end)
            from = v_tile(w, token / BLOCK);
        else
            count = 0;
        for (uint32_t t = 0; t < tiles; t++, to += TILE_VALUES, from += BLOCK / 2 * 64) {
            if (count >= BLOCK)
                copy_v(to, from, BLOCK);
            else
                copy_v(to, from, count);
        }
    }
}

/* out += p * V of blocks [first, end), which are even, for `count` (1 or 4) times 16 dims. */
INLINE void add_dims(const struct work *w, const struct step_scratch *s, const int count,
                     float *out, uint32_t tile, uint32_t first, uint32_t end)
{
    const size_t stride = (size_t)w->row_floats * sizeof(float);
    const size_t pair = (size_t)w->row_floats / 16 * TILE_VALUES;
    _tile_loadd(0, out, stride);
    if (count > 1) {
        _tile_loadd(1, out + 16, stride);
        _tile_loadd(2, out + 32, stride);
        _tile_loadd(3, out + 48, stride);
    }
    for (uint32_t b = first; b < end; b += 2) {
        const uint16_t *v = s->v + b / 2 * pair + (size_t)tile * TILE_VALUES;
        _tile_loadd(5, s->p + (size_t)b * BLOCK, STEP * sizeof(uint16_t));
        _tile_loadd(7, v, TILE_ROW_BYTES);
        _tile_dpbf16ps(0, 5, 7);
        if (count > 1) {
            _tile_loadd(7, v + TILE_VALUES, TILE_ROW_BYTES);
            _tile_dpbf16ps(1, 5, 7);
            _tile_loadd(7, v + 2 * TILE_VALUES, TILE_ROW_BYTES);
            _tile_dpbf16ps(2, 5, 7);
            _tile_loadd(7, v + 3 * TILE_VALUES, TILE_ROW_BYTES);
            _tile_dpbf16ps(3, 5, 7);
        }
    }
    _tile_stored(0, out, stride);
    if (count > 1) {
        _tile_stored(1, out + 16, stride);
        _tile_stored(2, out + 32, stride);
        _tile_stored(3, out + 48, stride);
    }
}

static void add_tile(const struct work *w, const struct step_scratch *s, uint32_t row,
                     uint32_t first, uint32_t end)
{
    float *out = w->out + (size_t)row * w->row_floats;
    uint32_t tile = 0, tiles = w->row_floats / 16;
    for (; tile + 4 <= tiles; tile += 4)
        add_dims(w, s, 4, out + (size_t)tile * 16, tile, first, end);
    for (; tile < tiles; tile++)
        add_dims(w, s, 1, out + (size_t)tile * 16, tile, first, end);
}

/* --- steps ----------------------------------------------------------------------------------- */

/* A row tile and a step of which it sees something. */
struct item {
    uint32_t begin;        /* of the step */
    uint32_t row, row_end; /* 16 rows, or what is left */
    uint32_t first, end;   /* blocks of the step that any of them sees */
    bool whole;            /* all see all of the step */
};

/* Move `item` on to the first one from its begin and row on, steps before `end`; false: none. */
static bool find_item(const struct work *w, struct item *item, uint32_t end)
{
    const struct attention_unit *unit = w->unit;
    for (; item->begin < end; item->begin += STEP, item->row = 0) {
        for (; item->row < w->rows; item->row += TILE_MAX_ROWS) {
            uint32_t left = w->rows - item->row;
            item->row_end = item->row + (left < TILE_MAX_ROWS ? left : TILE_MAX_ROWS);
            uint32_t low = unit->position + item->row / unit->heads;
            uint32_t high = unit->position + (item->row_end - 1) / unit->heads;
            if (high < item->begin || first_seen(w->attention, low) >= item->begin + STEP)
                continue;
            const struct step_blocks s = step_blocks_of(w, low, high, item->begin);
            item->first = s.first;
            item->end = s.end;
            item->whole = s.high.end > 0 && s.high.first == 0 && s.low.end == STEP;
            return true;
        }
    }
    return false;
}

static void score_item(const struct work *w, const struct step_scratch *s, const struct item *item)
{
    const uint8_t *k[STEP_BLOCKS];
    for (uint32_t b = item->first; b < item->end; b++)
        k[b] = k_tile(w, item->begin / BLOCK + b);
    score_tile(w, q_row(w, item->row), k, item->first, item->end, s->scores);
}

/* The bases that weigh_row would come to, all at once, where rows start with a whole step. */
static void set_bases(const struct work *w, const struct step_scratch *s, const struct item *item)
{
    for (uint32_t row = item->row; row < item->row_end; row++) {
        const float *scores = s->scores + (size_t)(row % TILE_MAX_ROWS) * STEP;
        __m512 highest = v16_load(scores);
        for (uint32_t b = 1; b < STEP_BLOCKS; b++)
            highest = v16_max(highest, v16_load(scores + (size_t)b * BLOCK));
        w->max[row] = v16_max_lanes(highest);
    }
}

static void weigh_item(const struct work *w, const struct step_scratch *s, const struct item *item)
{
    if (item->whole && w->attention->softcap <= 0) {
        for (uint32_t row = item->row; row < item->row_end; row++)
            weigh_row(w, s, row, 0, STEP_BLOCKS);
        return;
    }
    for (uint32_t row = item->row; row < item->row_end; row++)
        weigh_edge_row(w, s, row, item->begin, item->first / 2 * 2, (item->end + 1) / 2 * 2);
}

/* Scores of the next item are computed before the outputs of this one: what tiles store reaches
 * vectors, and the reverse, only after a hundred cycles. */
static void run_items(const struct work *w, const struct step_scratch *s, uint32_t begin,
                      uint32_t end)
{
    struct item item = {.begin = begin}, next;
    bool more = find_item(w, &item, end);
    uint32_t gathered = UINT32_MAX;
    if (more)
        score_item(w, s, &item);
    for (; more; item = next) {
        if (item.begin != gathered)
            gather_v(w, s, gathered = item.begin);
        if (item.begin == begin && item.whole && w->attention->softcap <= 0)
            set_bases(w, s, &item);
        weigh_item(w, s, &item);
        next = item;
        next.row += TILE_MAX_ROWS;
        more = find_item(w, &next, end);
        if (more)
            score_item(w, s, &next);
        tile_fence();
        add_tile(w, s, item.row, item.first / 2 * 2, (item.end + 1) / 2 * 2);
    }
}

static void run_steps(const struct work *w, uint32_t begin, uint32_t end)
{
    const struct step_scratch s = step_scratch_of(w);
    memset(s.lane_sums, 0, w->rows * 16 * sizeof(float));
    run_items(w, &s, begin, end);
    for (uint32_t row = 0; row < w->rows; row++)
        w->sum[row] = v16_sum_lanes(v16_load(s.lane_sums + (size_t)row * 16));
}

void amx_attend(const struct attention *attention, const struct attention_unit *unit,
                float *scratch)
{
    if (attention->head_dim % 2 != 0) {
        avx512_attend(attention, unit, scratch);
        return;
    }
    const struct work w = work_of(attention, unit, scratch);
    unsigned mode = _mm_getcsr();
    _mm_setcsr(mode | FLUSH_TO_ZERO);
    round_q(&w);
    configure(&w);
    run_partitions(&w, run_steps);
    _tile_release();
    _mm_setcsr(mode);
}

void amx_attend_merge(const struct attention *attention, const struct attention_unit *unit,
                      float *scratch)
{
    if (attention->head_dim % 2 != 0) {
        avx512_attend_merge(attention, unit, scratch);
        return;
    }
    const struct work w = work_of(attention, unit, scratch);
    unsigned mode = _mm_getcsr();
    _mm_setcsr(mode | FLUSH_TO_ZERO);
    merge_partials(&w);
    _mm_setcsr(mode);
}
