/* attention_fma.h - for v16, the steps of a unit by FMAs in f32 (attention_tile.h).
 *
 *   step (64 tokens)   scores [rows][64]    = q * K^T
 *                      p      [rows][64]    = 2^(score - base of the row), 0 where it does not see
 *                      out    [rows][dims] += p * V
 *
 * Scores are base 2 logarithms: log2(e) is part of q's scale. A row's base is the highest score of
 *   the step that set it, and moves only when a later step has one that is REBASE_ABOVE above it:
 *   most steps rescale nothing, and weights stay below 2^REBASE_ABOVE.
 * Why a row's bits depend on nothing but the row: chains over dims and tokens in rising order
 *   (attention_tile.h), and the base by the row's own scores. A token that a row does not see
 *   weighs exactly 0, which adds nothing to a sum; slots behind the unit's last position may hold
 *   anything, even NaN, and are not part of any chain.
 * q lies by groups of TILE_ROWS rows, the last one smaller: [dims][rows of the group].
 * Int8 values stay integers in the products: K's scale of a token multiplies its score, V's its
 *   weight, which is 16 values a time where a tile has hundreds.
 * Who includes this defines INT8_KV, a bool. */
#ifndef REFRAIN_KERNELS_CPU_ATTENTION_FMA_H
#define REFRAIN_KERNELS_CPU_ATTENTION_FMA_H

#define STEP 64
#include "kernels/cpu/attention_simd.h"
#include "kernels/cpu/attention_tile.h"

#define REBASE_ABOVE 8.0f
#define V_PANEL_BYTES (INT8_KV ? (size_t)BLOCK * PANEL : BLOCK / 2 * PAIR_BYTES)
#define SCALES_BYTES (INT8_KV ? KV_INT8_SCALES_BYTES : 0) /* in front of a tile's values */
#define DIMS_AT_ONCE (INT8_KV ? BYTES_AT_ONCE : 2)

/* The family's part of the scratch. */
INLINE float *lane_sums_of(const struct work *w) /* [rows][16]: a row's sum in 16 parts */
{
    return w->scores + (size_t)ATTENTION_ROWS * STEP;
}

INLINE float *wide_of(const struct work *w) /* [64][row_floats] at most: K or V as f32 */
{
    return lane_sums_of(w) + (size_t)ATTENTION_ROWS * BLOCK;
}

/* Blocks of a step, and where K and V of them and of the same blocks one step on are. */
struct kv_step {
    uint32_t begin, first, end; /* blocks [first, end) are seen by some row */
    uint32_t tokens;            /* of the step, up to the unit's last position */
    const uint8_t *k[STEP_BLOCKS], *v[STEP_BLOCKS];
    const uint8_t *k_ahead[STEP_BLOCKS], *v_ahead[STEP_BLOCKS];
};

static struct kv_step step_of(const struct work *w, uint32_t begin)
{
    const struct attention_unit *unit = w->unit;
    uint32_t low = unit->position, high = low + unit->positions - 1;
    uint32_t last = (unit->partition + unit->partitions) * (ATTENTION_PARTITION / BLOCK) - 1;
    const struct step_blocks blocks = step_blocks_of(w, low, high, begin);
    struct kv_step s = {.begin = begin, .first = blocks.first, .end = blocks.end};
    s.tokens = high + 1 - begin < STEP ? high + 1 - begin : STEP;
    last = high / BLOCK < last ? high / BLOCK : last;
    for (uint32_t b = s.first; b < s.end; b++) {
        uint32_t block = begin / BLOCK + b, ahead = block + STEP_BLOCKS;
        ahead = ahead <= last ? ahead : block;
        s.k[b] = k_tile(w, block);
        s.v[b] = v_tile(w, block);
        s.k_ahead[b] = k_tile(w, ahead);
        s.v_ahead[b] = v_tile(w, ahead);
    }
    return s;
}

/* Of the group that begins at `row`. */
INLINE uint32_t group_rows(const struct work *w, uint32_t row)
{
    return w->rows - row < TILE_ROWS ? w->rows - row : TILE_ROWS;
}

static void load_q(struct work *w)
{
    const uint32_t dim = w->attention->head_dim;
    const float scale = q_scale(w->attention);
    for (uint32_t row = 0; row < w->rows; row++) {
        const float *from = q_of(w, row);
        uint32_t first = row / TILE_ROWS * TILE_ROWS, rows = group_rows(w, first);
        float *to = w->q + (size_t)first * dim + (row - first);
        for (uint32_t d = 0; d < dim; d++)
            to[(size_t)d * rows] = from[d] * scale;
    }
}

/* K of a block to [dims][16 tokens] f32, `panel` of V to [16 tokens][16 dims]. */
INLINE void widen_k(const uint8_t *from, const uint8_t *ahead, uint32_t dims, float *to)
{
    if (INT8_KV)
        widen_bytes(from + SCALES_BYTES, ahead + SCALES_BYTES, dims, to);
    else
        widen_pairs(from, ahead, (dims + 1) / 2, to);
}

INLINE void widen_v(const uint8_t *from, const uint8_t *ahead, uint32_t panel, float *to)
{
    const size_t at = SCALES_BYTES + panel * V_PANEL_BYTES;
    if (INT8_KV)
        widen_bytes(from + at, ahead + at, BLOCK, to);
    else
        widen_pairs(from + at, ahead + at, BLOCK / 2, to);
}

/* Scores of int8 K: times their tokens' scales, which stand in front of the tiles. */
INLINE void scale_scores(const int R, const int P, const uint8_t *const tiles[WIDTH_MAX],
                         v16 sum[TILE_ROWS][WIDTH_MAX])
{
    UNROLL for (int p = 0; p < P; p++)
    {
        const v16 scales = v16_load((const float *)tiles[p]);
        UNROLL for (int r = 0; r < R; r++) sum[r][p] = v16_mul(sum[r][p], scales);
    }
}

/* --- few rows: one group, straight from the pages --------------------------------------------- */

/* sum += a * the values `at` behind each tile's scales, `count` k. */
INLINE void add_values(const int R, const int P, const uint8_t *const tiles[WIDTH_MAX],
                       const uint8_t *const ahead[WIDTH_MAX], size_t at, uint32_t count,
                       const float *a, const size_t row, const size_t step,
                       v16 sum[TILE_ROWS][WIDTH_MAX])
{
    const uint8_t *from[WIDTH_MAX], *next[WIDTH_MAX];
    UNROLL for (int p = 0; p < P; p++)
    {
        from[p] = tiles[p] + SCALES_BYTES + at;
        next[p] = ahead[p] + SCALES_BYTES + at;
    }
    if (INT8_KV)
        add_bytes(R, P, from, next, count, a, row, step, sum);
    else
        add_pairs(R, P, from, next, count / 2, a, row, step, sum);
}

INLINE void score_blocks(const int R, const int P, const struct work *w, const struct kv_step *s,
                         uint32_t block)
{
    v16 sum[TILE_ROWS][WIDTH_MAX];
    clear_sums(R, P, sum);
    add_values(R, P, s->k + block, s->k_ahead + block, 0, w->attention->head_dim, w->q, 1,
               (size_t)R, sum);
    if (INT8_KV)
        scale_scores(R, P, s->k + block, sum);
    store_sums(R, P, w->scores + (size_t)block * BLOCK, STEP, sum);
}

INLINE void score_few(const int R, const struct work *w, const struct kv_step *s)
{
    const int P = width_of(R);
    uint32_t b = s->first;
    for (; b + (uint32_t)P <= s->end; b += (uint32_t)P)
        score_blocks(R, P, w, s, b);
    for (; P > 1 && b < s->end; b++)
        score_blocks(R, 1, w, s, b);
}

/* Blocks [s->first, end), `panel` = 16 dims. */
INLINE void add_v_panels(const int R, const int P, const struct work *w, const struct kv_step *s,
                         uint32_t end, uint32_t panel)
{
    v16 sum[TILE_ROWS][WIDTH_MAX];
    float *out = w->out + (size_t)panel * PANEL;
    load_sums(R, P, out, w->row_floats, sum);
    for (uint32_t b = s->first; b < end; b++) {
        const uint8_t *from[WIDTH_MAX], *ahead[WIDTH_MAX];
        UNROLL for (int p = 0; p < P; p++)
        {
            from[p] = s->v[b] + (size_t)p * V_PANEL_BYTES;
            ahead[p] = s->v_ahead[b] + (size_t)p * V_PANEL_BYTES;
        }
        add_values(R, P, from, ahead, panel * V_PANEL_BYTES, BLOCK, w->scores + (size_t)b * BLOCK,
                   STEP, 1, sum);
    }
    store_sums(R, P, out, w->row_floats, sum);
}

INLINE void add_few(const int R, const struct work *w, const struct kv_step *s, uint32_t end)
{
    const uint32_t panels = w->row_floats / PANEL;
    const int P = width_of(R);
    uint32_t p = 0;
    for (; p + (uint32_t)P <= panels; p += (uint32_t)P)
        add_v_panels(R, P, w, s, end, p);
    for (; P > 1 && p < panels; p++)
        add_v_panels(R, 1, w, s, end, p);
}

/* --- more rows, odd dims, cut blocks: by groups, from f32 ------------------------------------ */

/* Scores of the group at `row` against P blocks whose K is wide. */
INLINE void score_wide(const int R, const int P, const struct work *w, const struct kv_step *s,
                       uint32_t row, uint32_t block)
{
    const uint32_t dim = w->attention->head_dim;
    v16 sum[TILE_ROWS][WIDTH_MAX];
    clear_sums(R, P, sum);
    add_wide(R, P, wide_of(w), (size_t)w->row_floats * PANEL, dim, w->q + (size_t)row * dim, 1,
             (size_t)R, sum);
    if (INT8_KV)
        scale_scores(R, P, s->k + block, sum);
    store_sums(R, P, w->scores + (size_t)row * STEP + (size_t)block * BLOCK, STEP, sum);
}

/* out of the group at `row` += p * V of `count` tokens from `token` on, P panels that are wide. */
INLINE void add_v_wide(const int R, const int P, const struct work *w, uint32_t row, uint32_t token,
                       uint32_t count, uint32_t panel)
{
    v16 sum[TILE_ROWS][WIDTH_MAX];
    float *out = w->out + (size_t)row * w->row_floats + (size_t)panel * PANEL;
    load_sums(R, P, out, w->row_floats, sum);
    add_wide(R, P, wide_of(w), STEP * PANEL, count, w->scores + (size_t)row * STEP + token, STEP, 1,
             sum);
    store_sums(R, P, out, w->row_floats, sum);
}

/* f(R, ...) for R = rows, 1 .. TILE_ROWS, a constant. */
#define FOR_ROWS(rows, f, ...)                 \
    switch (rows) {                            \
    case 1:                                    \
        f(1, __VA_ARGS__);                     \
        break;                                 \
    case 2:                                    \
        f(2, __VA_ARGS__);                     \
        break;                                 \
    case 3:                                    \
        f(3, __VA_ARGS__);                     \
        break;                                 \
    case 4:                                    \
        f(4, __VA_ARGS__);                     \
        break;                                 \
    case 5:                                    \
        f(5, __VA_ARGS__);                     \
        break;                                 \
    case 6:                                    \
        f(6, __VA_ARGS__);                     \
        break;                                 \
    case 7:                                    \
        f(TILE_ROWS < 7 ? 1 : 7, __VA_ARGS__); \
        break;                                 \
    default:                                   \
        f(TILE_ROWS, __VA_ARGS__);             \
    }

/* All groups against `panels` blocks, one or TILE_WIDTH_MANY. */
static void score_groups(const struct work *w, const struct kv_step *s, uint32_t block,
                         uint32_t panels)
{
    for (uint32_t row = 0; row < w->rows; row += TILE_ROWS) {
        if (panels > 1)
            FOR_ROWS(group_rows(w, row), score_wide, TILE_WIDTH_MANY, w, s, row, block)
        else
            FOR_ROWS(group_rows(w, row), score_wide, 1, w, s, row, block)
    }
}

static void score_many(const struct work *w, const struct kv_step *s)
{
    const uint32_t dims = w->attention->head_dim;
    for (uint32_t b = s->first, count; b < s->end; b += count) {
        count = s->end - b < TILE_WIDTH_MANY ? 1 : TILE_WIDTH_MANY;
        for (uint32_t p = 0; p < count; p++)
            widen_k(s->k[b + p], s->k_ahead[b + p], dims,
                    wide_of(w) + (size_t)p * w->row_floats * PANEL);
        score_groups(w, s, b, count);
    }
}

/* All groups, `panels` of V from `panel` on: one or TILE_WIDTH_MANY. */
static void add_groups(const struct work *w, uint32_t token, uint32_t count, uint32_t panel,
                       uint32_t panels)
{
    for (uint32_t row = 0; row < w->rows; row += TILE_ROWS) {
        if (panels > 1)
            FOR_ROWS(group_rows(w, row), add_v_wide, TILE_WIDTH_MANY, w, row, token, count, panel)
        else
            FOR_ROWS(group_rows(w, row), add_v_wide, 1, w, row, token, count, panel)
    }
}

/* Blocks [first, s->end), as far as the unit's last position. */
static void add_many(const struct work *w, const struct kv_step *s, uint32_t first)
{
    const uint32_t panels = w->row_floats / PANEL, token = first * BLOCK;
    for (uint32_t panel = 0, width; panel < panels; panel += width) {
        width = panels - panel < TILE_WIDTH_MANY ? 1 : TILE_WIDTH_MANY;
        for (uint32_t p = 0; p < width; p++) {
            float *to = wide_of(w) + (size_t)p * STEP * PANEL;
            for (uint32_t b = first; b < s->end; b++, to += (size_t)BLOCK * PANEL)
                widen_v(s->v[b], s->v_ahead[b], panel + p, to);
        }
        add_groups(w, token, s->tokens - token, panel, width);
    }
}

/* --- weights --------------------------------------------------------------------------------- */

/* The row's base becomes its highest score. */
static __attribute__((noinline)) void rebase(const struct work *w, uint32_t row, v16 highest)
{
    float base = v16_max_lanes(highest);
    float keep[16];
    v16_store(keep, v16_exp2(v16_set1(w->max[row] - base)));
    w->max[row] = base;
    scale_row(w->out + (size_t)row * w->row_floats, w->row_floats, keep[0]);
    scale_row(lane_sums_of(w) + (size_t)row * BLOCK, BLOCK, keep[0]);
}

/* Scores of blocks [first, end) of one row become weights, those of int8 V times its scales. */
INLINE void weigh_row(const struct work *w, const struct kv_step *s, uint32_t row, uint32_t first,
                      uint32_t end)
{
    float *scores = w->scores + (size_t)row * STEP, *sums = lane_sums_of(w) + (size_t)row * BLOCK;
    v16 highest = v16_load(scores + (size_t)first * BLOCK);
    for (uint32_t b = first + 1; b < end; b++)
        highest = v16_max(highest, v16_load(scores + (size_t)b * BLOCK));
    if (v16_any_above(highest, v16_set1(w->max[row] + REBASE_ABOVE)))
        rebase(w, row, highest);
    const v16 base = v16_set1(w->max[row]);
    v16 total = v16_load(sums);
    for (uint32_t b = first; b < end; b++) {
        v16 p = v16_exp2(v16_sub(v16_load(scores + (size_t)b * BLOCK), base));
        total = v16_add(total, p);
        if (INT8_KV)
            p = v16_mul(p, v16_load((const float *)s->v[b]));
        v16_store(scores + (size_t)b * BLOCK, p);
    }
    v16_store(sums, total);
}

static void weigh_rows(const struct work *w, const struct kv_step *s)
{
    const struct attention_unit *unit = w->unit;
    for (uint32_t i = 0; i < unit->positions; i++) {
        const struct span span = span_of(w, unit->position + i, s->begin);
        bool whole = span.first <= s->first * BLOCK && span.end >= s->end * BLOCK;
        for (uint32_t row = i * unit->heads; row < (i + 1) * unit->heads; row++) {
            if (span.first >= span.end) {
                memset(w->scores + (size_t)row * STEP, 0, STEP * sizeof(float));
                continue;
            }
            if (!whole || w->attention->softcap > 0)
                cut_scores(w->attention, w->scores + (size_t)row * STEP, span, s->first, s->end);
            if (s->end - s->first == STEP_BLOCKS)
                weigh_row(w, s, row, 0, STEP_BLOCKS);
            else
                weigh_row(w, s, row, s->first, s->end);
        }
    }
}

/* --- steps ----------------------------------------------------------------------------------- */

static void run_step(const struct work *w, uint32_t begin)
{
    const struct kv_step s = step_of(w, begin);
    if (w->rows > TILE_ROWS || w->attention->head_dim % DIMS_AT_ONCE != 0) {
        score_many(w, &s);
        weigh_rows(w, &s);
        add_many(w, &s, s.first);
        return;
    }
    const uint32_t whole = s.tokens / BLOCK; /* blocks up to the unit's last position */
    FOR_ROWS(w->rows, score_few, w, &s)
    weigh_rows(w, &s);
    if (s.first < whole)
        FOR_ROWS(w->rows, add_few, w, &s, whole)
    if (whole < s.end)
        add_many(w, &s, whole > s.first ? whole : s.first);
}

static void run_steps(const struct work *w, uint32_t begin, uint32_t end)
{
    memset(lane_sums_of(w), 0, (size_t)w->rows * BLOCK * sizeof(float));
    for (; begin < end; begin += STEP)
        run_step(w, begin);
    for (uint32_t row = 0; row < w->rows; row++)
        w->sum[row] = v16_sum_lanes(v16_load(lane_sums_of(w) + (size_t)row * BLOCK));
}

INLINE void attend_unit(const struct attention *attention, const struct attention_unit *unit,
                        float *scratch)
{
    struct work w = work_of(attention, unit, scratch);
    load_q(&w);
    run_partitions(&w, run_steps);
}

INLINE void merge_unit(const struct attention *attention, const struct attention_unit *unit,
                       float *scratch)
{
    const struct work w = work_of(attention, unit, scratch);
    merge_partials(&w);
}

#endif
