/* attention_int8.h - for v16, the steps of a unit over int8 KV, by FMAs in f32 (tile.h).
 *
 *   scores[t] = (q * K[t]) * scale_k[t]      p[t] = exp(scores[t] - max)
 *   sum += p[t]                              out += (p[t] * scale_v[t]) * V[t]
 *
 * The integers become f32 in registers, which is exact, so that the loop over dims or tokens is
 * bf16's (tile.h) and the scales of a tile are one vector beside it. */
#ifndef REFRAIN_KERNELS_CPU_ATTENTION_INT8_H
#define REFRAIN_KERNELS_CPU_ATTENTION_INT8_H

#define STEP 64
#include "kernels/cpu/attention_simd.h"
#include "kernels/cpu/tile.h"

/* Vectorised exp of one value: the same bits as in the rows. */
INLINE float exp_one(float x)
{
    float y[16];
    v16_store(y, v16_exp(v16_set1(x)));
    return y[0];
}

static void load_q(struct work *w)
{
    const struct attention_unit *unit = w->unit;
    uint32_t dim = w->attention->head_dim;
    for (uint32_t row = 0; row < w->rows; row++) {
        const float *from =
            unit->q + row / unit->heads * unit->q_stride + (size_t)(row % unit->heads) * dim;
        float *to = w->q + (size_t)row * w->row_floats;
        for (uint32_t d = 0; d < dim; d++)
            to[d] = from[d] * w->attention->scale;
    }
}

static void run_tile(const struct tile *t, uint32_t rows, uint32_t panels)
{
    tile_run(TILE_I8, t, rows, panels);
}

/* v times the scales of a tile's tokens. */
INLINE v16 scale_tokens(v16 v, const uint8_t *tile)
{
    return v16_mul(v, v16_load((const float *)tile));
}

/* Scores of blocks [first, end) of the step at `begin`, all rows. */
static void score_blocks(const struct work *w, uint32_t begin, uint32_t first, uint32_t end)
{
    struct tile t = {
        .a = w->q,
        .a_stride = w->row_floats,
        .scattered = true,
        .segments = 1,
        .k_end = w->attention->head_dim,
        .c = w->scores + (size_t)first * BLOCK,
        .c_stride = STEP,
    };
    for (uint32_t b = first; b < end; b++)
        t.panel[b - first] = k_tile(w, begin / BLOCK + b) + KV_INT8_SCALES_BYTES;
    run_tile(&t, w->rows, end - first);
}

/* out += p * V over whole blocks [first, end), all rows. */
static void add_whole_blocks(const struct work *w, uint32_t begin, uint32_t first, uint32_t end)
{
    struct tile t = {
        .a = w->scores + (size_t)first * BLOCK,
        .a_stride = STEP,
        .panel_stride = tile_bytes(TILE_I8, BLOCK),
        .segments = end - first,
        .k_end = BLOCK,
        .c = w->out,
        .c_stride = w->row_floats,
        .add = true,
    };
    for (uint32_t b = first; b < end; b++)
        t.panel[b - first] = v_tile(w, begin / BLOCK + b) + KV_INT8_SCALES_BYTES;
    run_tile(&t, w->rows, w->row_floats / BLOCK);
}

/* The same for a block at an edge: each position adds the tokens that it sees. */
static void add_cut_block(const struct work *w, uint32_t begin, uint32_t block)
{
    const struct attention_unit *unit = w->unit;
    const uint8_t *v = v_tile(w, begin / BLOCK + block) + KV_INT8_SCALES_BYTES;
    uint32_t from = block * BLOCK;
    for (uint32_t i = 0; i < unit->positions; i++) {
        struct span span = span_of(w, unit->position + i, begin);
        uint32_t first = span.first > from ? span.first : from;
        uint32_t end = span.end < from + BLOCK ? span.end : from + BLOCK;
        if (first >= end)
            continue;
        size_t row = (size_t)i * unit->heads;
        struct tile t = {
            .a = w->scores + row * STEP + from,
            .a_stride = STEP,
            .panel = {v},
            .panel_stride = tile_bytes(TILE_I8, BLOCK),
            .segments = 1,
            .k_first = first - from,
            .k_end = end - from,
            .c = w->out + row * w->row_floats,
            .c_stride = w->row_floats,
            .add = true,
        };
        run_tile(&t, unit->heads, w->row_floats / BLOCK);
    }
}

/* Scores of one row become weights, 0 outside the span; state and out move to the new maximum.
 * Weights are left times the scales of V, which the sum has not: those outside the span are never
 * read, whatever a stale slot's scale makes of them. */
INLINE void softmax_row(const struct work *w, uint32_t row, uint32_t begin, struct span span,
                        uint32_t first, uint32_t end)
{
    float *scores = w->scores + (size_t)row * STEP;
    v16 s[STEP_BLOCKS], highest = v16_set1(-INFINITY), total = v16_zero();
    for (uint32_t b = first; b < end; b++) {
        int at = (int)(b * BLOCK);
        s[b] = scale_tokens(v16_load(scores + at), k_tile(w, begin / BLOCK + b));
        if (w->attention->softcap > 0)
            s[b] = soften(s[b], w->attention->softcap);
        if ((int)span.first > at || (int)span.end < at + BLOCK)
            s[b] = v16_hide(s[b], (int)span.first - at, (int)span.end - at);
        highest = v16_max(highest, s[b]);
    }
    float max = v16_max_lanes(highest);
    if (max > w->max[row]) {
        float keep = exp_one(w->max[row] - max);
        w->max[row] = max;
        w->sum[row] *= keep;
        scale_row(w->out + (size_t)row * w->row_floats, w->row_floats, keep);
    }
    v16 base = v16_set1(w->max[row]);
    for (uint32_t b = first; b < end; b++) {
        v16 p = v16_exp(v16_sub(s[b], base));
        v16_store(scores + b * BLOCK, scale_tokens(p, v_tile(w, begin / BLOCK + b)));
        total = v16_add(total, p);
    }
    w->sum[row] += v16_sum_lanes(total);
}

/* Softmax of the rows of each position that sees anything of the step. */
static void softmax_rows(const struct work *w, uint32_t begin, uint32_t first, uint32_t end)
{
    const struct attention_unit *unit = w->unit;
    for (uint32_t i = 0; i < unit->positions; i++) {
        struct span span = span_of(w, unit->position + i, begin);
        if (span.first >= span.end)
            continue;
        for (uint32_t row = i * unit->heads; row < (i + 1) * unit->heads; row++)
            softmax_row(w, row, begin, span, first, end);
    }
}

static void run_step(const struct work *w, uint32_t begin)
{
    uint32_t low = w->unit->position, high = low + w->unit->positions - 1;
    const struct step_blocks s = step_blocks_of(w, low, high, begin);
    score_blocks(w, begin, s.first, s.end);
    softmax_rows(w, begin, s.first, s.end);
    for (uint32_t b = s.first; b < s.end;) {
        uint32_t whole = b;
        while (whole < s.end && s.high.end > 0 && whole * BLOCK >= s.high.first &&
               (whole + 1) * BLOCK <= s.low.end)
            whole++;
        if (whole > b)
            add_whole_blocks(w, begin, b, whole);
        else
            add_cut_block(w, begin, whole++);
        b = whole;
    }
}

static void run_steps(const struct work *w, uint32_t begin, uint32_t end)
{
    for (; begin < end; begin += STEP)
        run_step(w, begin);
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
