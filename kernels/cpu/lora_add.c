/* lora_add.c - op_lora_add as two passes of the family's f32 matmul over rows of one adapter.
 *
 *   pass 1   low[r, term] = a x[r]           pieces = (group, tile of its rows, 4 panels of a term)
 *   pass 2   y[r] += b low[r, term]          the same over b's panels
 *
 * Why tiles of rows of one adapter: its panels come from memory once for the whole tile. Rows that
 * follow each other go through the micro-kernel together. Why f32 panels on every family: ranks are
 * small, memory is what they cost.
 * Invariant: a piece computes whole sums for its outputs, so neither tiles nor threads show. */
#include "kernels/cpu/cpu.h"

#define ROW_TILE 64u
#define PIECE_PANELS 4u
#define CALLER_MULTIPLIES 40000u /* fewer are done before another thread wakes */

struct lora_job {
    const struct cpu_family *family;
    struct tensor *y, *low;
    const struct tensor *x;
    const struct lora_group *groups;
    bool second; /* pass */
};

/* One matrix of a pass. */
struct matrix {
    const float *panels;
    const struct tensor *in, *out;
    uint32_t in_first, inputs, out_first, outputs;
};

static uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static struct matrix matrix_of(const struct lora_job *job, const struct lora_group *group,
                               uint32_t term)
{
    const struct lora_term *t = &group->terms[term];
    uint32_t low_first = 0;
    for (uint32_t i = 0; i < term; i++)
        low_first += lora_padded(group->terms[i].rank);
    if (job->second)
        return (struct matrix){t->b, job->low, job->y, low_first, t->rank, t->first, t->columns};
    return (struct matrix){
        t->a, job->x, job->low, 0, job->x->columns, low_first, lora_padded(t->rank)};
}

static uint32_t tiles_of(const struct lora_group *group)
{
    return (group->rows_count + ROW_TILE - 1) / ROW_TILE;
}

static uint32_t blocks_of(const struct matrix *m)
{
    return (m->outputs + PIECE_PANELS * LORA_PANEL - 1) / (PIECE_PANELS * LORA_PANEL);
}

/* Panels of block `block` for rows [first, end) of the group's list. */
static void run_block(const struct lora_job *job, const struct matrix *m, uint32_t block,
                      const uint32_t *rows, uint32_t count)
{
    uint32_t first = block * PIECE_PANELS * LORA_PANEL;
    uint32_t outputs = min_u32(PIECE_PANELS * LORA_PANEL, m->outputs - first);
    for (uint32_t i = 0, run; i < count; i += run) {
        for (run = 1; i + run < count && rows[i + run] == rows[i] + run;)
            run++;
        const struct gemm gemm = {
            .panel = (const uint8_t *)(m->panels + (size_t)first * m->inputs),
            .panel_bytes = (size_t)m->inputs * LORA_PANEL * sizeof(float),
            .panels = lora_padded(outputs) / LORA_PANEL,
            .outputs = outputs,
            .columns = m->inputs,
            .x = m->in->data + (size_t)rows[i] * m->in->stride + m->in_first,
            .x_stride = m->in->stride,
            .y = m->out->data + (size_t)rows[i] * m->out->stride + m->out_first + first,
            .y_stride = m->out->stride,
            .rows = run,
            .accumulate = job->second,
        };
        job->family->gemm[PANEL_F32](&gemm);
    }
}

/* Pieces are numbered group by group, tile by tile, term by term, block by block. */
static void run_piece(void *context, uint32_t piece, unsigned thread)
{
    const struct lora_job *job = context;
    for (const struct lora_group *group = job->groups;; group++) {
        for (uint32_t tile = 0; tile < tiles_of(group); tile++) {
            for (uint32_t t = 0; t < group->terms_count; t++) {
                const struct matrix m = matrix_of(job, group, t);
                uint32_t row = tile * ROW_TILE;
                if (piece < blocks_of(&m)) {
                    run_block(job, &m, piece, group->rows + row,
                              min_u32(ROW_TILE, group->rows_count - row));
                    return;
                }
                piece -= blocks_of(&m);
            }
        }
    }
}

static void run_pass(struct backend *b, struct lora_job *job, size_t count)
{
    uint32_t pieces = 0;
    uint64_t multiplies = 0;
    for (const struct lora_group *group = job->groups; group < job->groups + count; group++) {
        for (uint32_t t = 0; t < group->terms_count; t++) {
            const struct matrix m = matrix_of(job, group, t);
            pieces += tiles_of(group) * blocks_of(&m);
            multiplies += (uint64_t)group->rows_count * m.inputs * m.outputs;
        }
    }
    if (b->threads > 1 && multiplies > CALLER_MULTIPLIES) {
        thread_pool_run(cpu_state(b)->pool, run_piece, job, pieces);
        return;
    }
    for (uint32_t piece = 0; piece < pieces; piece++)
        run_piece(job, piece, 0);
}

void cpu_lora_add(struct backend *b, struct tensor *y, const struct tensor *x, struct tensor *low,
                  const struct lora_group *groups, size_t count)
{
    struct lora_job job = {
        .family = cpu_state(b)->family, .y = y, .low = low, .x = x, .groups = groups};
    run_pass(b, &job, count);
    job.second = true;
    run_pass(b, &job, count);
}
