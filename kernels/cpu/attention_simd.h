/* attention_simd.h - for v16, one unit of attention: rows (positions x query heads) against KV
 * tiles.
 *
 *   partition (512 tokens)   softmax state of its own, started empty; merged in rising order
 *     step (64 tokens)       scores = q * K^T -> weights -> out += p * V, in blocks of 16 tokens:
 *                            attention_fma.h, attention_amx.c
 *
 * Why a row's bits depend on nothing but the row: steps and partitions sit at absolute positions,
 *   and what a step does to a row depends on the row alone.
 * Why partitions: a long decode is split over threads, and merges to the same bits as unsplit. */
#ifndef REFRAIN_KERNELS_CPU_ATTENTION_SIMD_H
#define REFRAIN_KERNELS_CPU_ATTENTION_SIMD_H

#include <math.h>

#include "kernels/cpu/family.h"

#define BLOCK 16
#define LN_2 0.693147181f
#define STEP_BLOCKS (STEP / BLOCK) /* STEP: tokens per softmax step, by who includes this */

struct work {
    const struct attention *attention;
    const struct attention_unit *unit;
    uint32_t rows, row_floats;    /* rows are padded to whole tiles of 16 in the scratch */
    float *q, *out;               /* [rows][row_floats]; out of this partition */
    float *max, *sum;             /* [rows], of this partition; max is a base 2 logarithm */
    float *total;                 /* [rows][row_floats], merged so far, */
    float *total_max, *total_sum; /* and its state */
    float *scores;                /* the rest of the scratch is the family's; here [rows][STEP] */
};

/* Tokens of a step that a position sees: [first, end) from the step's begin; maybe none. */
struct span {
    uint32_t first, end;
};

static uint32_t first_seen(const struct attention *attention, uint32_t position)
{
    uint32_t window = attention->window;
    return window > 0 && position >= window ? position - window + 1 : 0;
}

static struct span span_of(const struct work *w, uint32_t position, uint32_t begin)
{
    uint32_t first = first_seen(w->attention, position), end = position + 1;
    struct span span = {0, 0};
    if (end > begin && first < begin + STEP) {
        span.first = first > begin ? first - begin : 0;
        span.end = end - begin < STEP ? end - begin : STEP;
    }
    return span;
}

static struct work work_of(const struct attention *attention, const struct attention_unit *unit,
                           float *scratch)
{
    struct work w = {
        .attention = attention,
        .unit = unit,
        .rows = (uint32_t)unit->positions * unit->heads,
        .row_floats = (uint32_t)attention_row_floats(attention->head_dim),
    };
    size_t rows = (w.rows + 15u) / 16 * 16, matrix = rows * w.row_floats;
    w.q = scratch;
    w.out = w.q + matrix;
    w.total = w.out + matrix;
    w.max = w.total + matrix;
    w.sum = w.max + rows;
    w.total_max = w.sum + rows;
    w.total_sum = w.total_max + rows;
    w.scores = w.total_sum + rows;
    return w;
}

/* Of block `block` of the unit's sequence. */
static const uint8_t *k_tile(const struct work *w, uint32_t block)
{
    return kv_tile(&w->attention->tiles, w->unit->table[block],
                   w->attention->first_head + w->unit->kv_head);
}

static const uint8_t *v_tile(const struct work *w, uint32_t block)
{
    return k_tile(w, block) + w->attention->tiles.k_bytes;
}

/* The dims of a row's query, as they came. */
static const float *q_of(const struct work *w, uint32_t row)
{
    const struct attention_unit *unit = w->unit;
    return unit->q + row / unit->heads * unit->q_stride +
           (size_t)(row % unit->heads) * w->attention->head_dim;
}

INLINE void scale_row(float *out, uint32_t floats, float factor)
{
    v16 f = v16_set1(factor);
    for (uint32_t d = 0; d < floats; d += 16)
        v16_store(out + d, v16_mul(v16_load(out + d), f));
}

/* cap * tanh(s / cap), as cap - 2 cap / (exp(2 s / cap) + 1): exp of a large one is finite. */
INLINE v16 soften(v16 s, float cap)
{
    v16 e = v16_exp(v16_mul(s, v16_set1(2 / cap)));
    return v16_sub(v16_set1(cap), v16_div(v16_set1(2 * cap), v16_add(e, v16_set1(1))));
}

/* Scores are base 2 logarithms: log2(e) is part of q's scale or, with a cap, comes after it. */
static float q_scale(const struct attention *attention)
{
    return attention->scale * (attention->softcap > 0 ? 1 : LOG2_E);
}

/* Scores of a row in blocks [first, end): cap them, and hide what is not in the span. */
static void cut_scores(const struct attention *attention, float *scores, struct span span,
                       uint32_t first, uint32_t end)
{
    const float cap = attention->softcap;
    for (uint32_t b = first; b < end; b++) {
        int at = (int)(b * BLOCK);
        v16 s = v16_load(scores + at);
        if (cap > 0)
            s = v16_mul(soften(s, cap), v16_set1(LOG2_E));
        v16_store(scores + at, v16_hide(s, (int)span.first - at, (int)span.end - at));
    }
}

/* Blocks of a step that any of the positions low .. high sees, where the high one or the low one
 * does: spans move up with the position, and leave no gap. */
struct step_blocks {
    struct span low, high; /* what the two see */
    uint32_t first, end;
};

static struct step_blocks step_blocks_of(const struct work *w, uint32_t low, uint32_t high,
                                         uint32_t begin)
{
    struct step_blocks s = {span_of(w, low, begin), span_of(w, high, begin), 0, 0};
    s.first = s.low.first / BLOCK; /* 0 where the first position lies before the step */
    s.end = s.high.end > 0 ? (s.high.end + BLOCK - 1) / BLOCK : STEP_BLOCKS;
    return s;
}

/* Steps [begin, end) of a partition, from nothing: fills max, sum and out. */
typedef void (*steps_fn)(const struct work *w, uint32_t begin, uint32_t end);

static void run_partition(const struct work *w, uint32_t partition, steps_fn run_steps)
{
    const struct attention_unit *unit = w->unit;
    uint32_t begin = partition * ATTENTION_PARTITION, end = begin + ATTENTION_PARTITION;
    uint32_t seen = first_seen(w->attention, unit->position);
    uint32_t after = unit->position + unit->positions;
    for (uint32_t row = 0; row < w->rows; row++) {
        w->max[row] = -INFINITY;
        w->sum[row] = 0;
    }
    memset(w->out, 0, (size_t)w->rows * w->row_floats * sizeof(float));
    if (seen > begin)
        begin = seen / STEP * STEP;
    run_steps(w, begin, after < end ? after : end);
}

/* Merge what 16 rows (or what is left) from `row` on have of the next partition into their totals;
 * `out` [row][row_floats], rows out_stride floats apart. A row that saw nothing yet has a maximum
 * of -inf: exp of that, and of the NaN where both have it, is 0. */
static void merge_rows(const struct work *w, uint32_t row, const float *max, const float *sum,
                       const float *out, size_t out_stride)
{
    float keep[16], add[16];
    uint32_t count = w->rows - row < 16 ? w->rows - row : 16;
    v16 before = v16_load(w->total_max + row), now = v16_load(max), unit = v16_set1(LN_2);
    v16 highest = v16_max(before, now);
    v16 k = v16_exp(v16_mul(v16_sub(before, highest), unit));
    v16 a = v16_exp(v16_mul(v16_sub(now, highest), unit));
    v16 kept = v16_mul(v16_load(w->total_sum + row), k);
    v16_store(w->total_sum + row, v16_add(kept, v16_mul(v16_load(sum), a)));
    v16_store(w->total_max + row, highest);
    v16_store(keep, k);
    v16_store(add, a);
    for (uint32_t r = 0; r < count; r++, out += out_stride) {
        float *total = w->total + (size_t)(row + r) * w->row_floats;
        k = v16_set1(keep[r]);
        a = v16_set1(add[r]);
        for (uint32_t d = 0; d < w->row_floats; d += 16)
            v16_store(total + d, v16_fma(v16_load(out + d), a, v16_mul(v16_load(total + d), k)));
    }
}

static void write_out(const struct work *w)
{
    const struct attention_unit *unit = w->unit;
    uint32_t dim = w->attention->head_dim;
    for (uint32_t row = 0; row < w->rows; row++) {
        const float *total = w->total + (size_t)row * w->row_floats;
        float *to =
            unit->out + row / unit->heads * unit->out_stride + (size_t)(row % unit->heads) * dim;
        float inverse = 1 / w->total_sum[row];
        for (uint32_t d = 0; d < dim; d++)
            to[d] = total[d] * inverse;
    }
}

static void save_partial(const struct work *w, float *partial)
{
    for (uint32_t row = 0; row < w->rows; row++, partial += w->row_floats + 2) {
        memcpy(partial, w->out + (size_t)row * w->row_floats, w->row_floats * sizeof(float));
        partial[w->row_floats] = w->max[row];
        partial[w->row_floats + 1] = w->sum[row];
    }
}

/* All partitions of a unit whose q is loaded. The first runs where the totals are. */
INLINE void run_partitions(const struct work *w, steps_fn run_steps)
{
    const struct attention_unit *unit = w->unit;
    struct work first = *w;
    first.out = w->total;
    first.max = w->total_max;
    first.sum = w->total_sum;
    for (uint32_t p = 0; p < unit->partitions; p++) {
        bool direct = p == 0 && unit->partial == NULL;
        run_partition(direct ? &first : w, unit->partition + p, run_steps);
        if (unit->partial != NULL)
            save_partial(w, unit->partial + (size_t)p * w->rows * (w->row_floats + 2));
        for (uint32_t row = 0; row < w->rows && !direct && unit->partial == NULL; row += 16)
            merge_rows(w, row, w->max + row, w->sum + row, w->out + (size_t)row * w->row_floats,
                       w->row_floats);
    }
    if (unit->partial == NULL)
        write_out(w);
}

/* Merge what save_partial left. */
INLINE void merge_partials(const struct work *w)
{
    const size_t stride = w->row_floats + 2;
    const float *partial = w->unit->partial;
    for (uint32_t p = 0; p < w->unit->partitions; p++, partial += w->rows * stride) {
        for (uint32_t row = 0; row < w->rows; row++) {
            float *max = p == 0 ? w->total_max : w->max, *sum = p == 0 ? w->total_sum : w->sum;
            max[row] = partial[row * stride + w->row_floats];
            sum[row] = partial[row * stride + w->row_floats + 1];
            if (p == 0)
                memcpy(w->total + (size_t)row * w->row_floats, partial + row * stride,
                       w->row_floats * sizeof(float));
        }
        for (uint32_t row = 0; row < w->rows && p > 0; row += 16)
            merge_rows(w, row, w->max + row, w->sum + row, partial + row * stride, stride);
    }
    write_out(w);
}

#endif
