/* matmul.c - op_matmul cut into pieces: runs of panels x tiles of rows.
 *
 *   for each 512 rows of x:  quantise or pack them for the classes that need it, over the threads
 *                            pieces = (run of panels) x (tile of 128 rows), from one counter
 *
 *   piece order: all row tiles of a run before the next run, so that weights come from memory once
 *
 * Why small pieces: threads that are late for one leave the others the rest. Why few: taking one
 * costs ~0.1 us. A piece is therefore ~20 us of work, or an eighth of a thread's share.
 * Invariant: a piece computes whole sums over K for its outputs, so no cut changes a bit. */
#include "kernels/cpu/cpu.h"

#define ROW_TILE 128
#define PACKED_ROWS 16 /* of a tile */
#define PIECE_NS 20000
#define PIECES_PER_THREAD 4
#define CALLER_ROWS 4 /* rows that the caller quantises alone */

struct matmul_job {
    const struct cpu_state *state;
    const struct cpu_family *family;
    const struct cpu_weight *weight;
    const struct tensor *x; /* all rows */
    const struct tensor *y;
    struct quant_rows quant; /* of rows first_row .. first_row + rows - 1 */
    uint16_t *packed, *panel_scratch;
    enum packed_form form;
    uint32_t first_row, rows;
    bool accumulate;
    uint32_t run_panels; /* panels per piece */
    uint32_t tile_rows, row_tiles;
};

static uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static struct quant_rows quant_row(const struct quant_rows *quant, size_t row, uint32_t columns)
{
    size_t group = row * (columns / GROUP);
    return (struct quant_rows){quant->q + row * columns, quant->scale_sums + group * 2,
                               quant->half_sums + group * 2};
}

static void quantise_rows(const void *context, uint32_t first, uint32_t end)
{
    const struct matmul_job *job = context;
    uint32_t columns = job->x->columns;
    for (uint32_t i = first; i < end; i++) {
        struct quant_rows to = quant_row(&job->quant, i, columns);
        job->family->quantise_row(job->x->data + (size_t)(job->first_row + i) * job->x->stride,
                                  columns, &to);
    }
}

/* Row tiles [first, end). */
static void pack_tiles(const void *context, uint32_t first, uint32_t end)
{
    const struct matmul_job *job = context;
    size_t tile = packed_tile_values(packed_width(job->form), job->x->columns);
    for (uint32_t i = first; i < end; i++) {
        uint32_t row = i * PACKED_ROWS;
        job->family->pack_rows(job->x->data + (size_t)(job->first_row + row) * job->x->stride,
                               job->x->stride, min_u32(PACKED_ROWS, job->rows - row),
                               job->x->columns, job->form, job->packed + i * tile);
    }
}

static uint32_t runs_of(const struct cpu_segment *segment, uint32_t run_panels)
{
    return (segment->panels + run_panels - 1) / run_panels;
}

static void matmul_piece(void *context, uint32_t piece, unsigned thread)
{
    const struct matmul_job *job = context;
    const struct cpu_segment *segment = job->weight->segment;
    uint32_t run = piece / job->row_tiles, row = piece % job->row_tiles * job->tile_rows;
    while (run >= runs_of(segment, job->run_panels))
        run -= runs_of(segment++, job->run_panels);

    uint32_t panel = run * job->run_panels, columns = job->x->columns;
    size_t absolute_row = job->first_row + row;
    struct gemm gemm = {
        .panel = segment->data + panel * segment->panel_bytes,
        .panel_bytes = segment->panel_bytes,
        .panels = min_u32(job->run_panels, segment->panels - panel),
        .outputs = min_u32(job->run_panels * PANEL, segment->rows - panel * PANEL),
        .columns = columns,
        .x = job->x->data + absolute_row * job->x->stride,
        .x_stride = job->x->stride,
        .y = job->y->data + absolute_row * job->y->stride + segment->row + panel * PANEL,
        .y_stride = job->y->stride,
        .rows = min_u32(job->tile_rows, job->rows - row),
        .accumulate = job->accumulate,
    };
    enum cpu_rows kind = cpu_rows_of(job->state, segment->class);
    if (kind == ROWS_PACKED) {
        gemm.packed =
            job->packed + row / PACKED_ROWS * packed_tile_values(packed_width(job->form), columns);
        gemm.form = job->form;
        gemm.scratch = job->panel_scratch + (size_t)thread * MANY_SCRATCH_VALUES;
    } else if (kind == ROWS_QUANTISED) {
        gemm.quant = quant_row(&job->quant, row, columns);
    }
    job->family->gemm[segment->class](&gemm);
}

/* Panels per piece: about PIECE_NS, unless that leaves threads without a piece. */
static uint32_t choose_run(const struct matmul_job *job, unsigned threads)
{
    const struct cpu_segment *segment = job->weight->segment;
    uint64_t compute_ns = (uint64_t)min_u32(job->rows, job->tile_rows) * PANEL * job->x->columns /
                          job->family->multiply_adds_per_ns;
    uint64_t memory_ns = segment->panel_bytes / 16;
    uint64_t panel_ns = compute_ns > memory_ns ? compute_ns : memory_ns;
    uint64_t run = PIECE_NS / (panel_ns + 1) + 1;
    uint32_t pieces = threads * PIECES_PER_THREAD;
    uint32_t share = (segment->panels * job->row_tiles + pieces - 1) / pieces;
    return run < share ? (uint32_t)run : share;
}

/* Rows packed by row want all rows in a piece, since it makes the panels anew, and panels by twos;
 * rows are split only where threads would go without. */
static void cut_many(struct matmul_job *job, unsigned threads)
{
    uint32_t pairs = 0;
    for (uint32_t s = 0; s < job->weight->segments; s++)
        pairs += runs_of(&job->weight->segment[s], 2);
    job->tile_rows = MANY_ROWS;
    while (job->tile_rows > ROW_TILE &&
           pairs * ((job->rows + job->tile_rows - 1) / job->tile_rows) < threads * 4)
        job->tile_rows /= 2;
    job->run_panels = 2;
}

static void run_pass(struct backend *b, struct matmul_job *job)
{
    const struct cpu_weight *weight = job->weight;
    bool kinds[ROWS_PACKED + 1] = {false};
    uint32_t pieces = 0, tiles = (job->rows + PACKED_ROWS - 1) / PACKED_ROWS;
    for (uint32_t s = 0; s < weight->segments; s++)
        kinds[cpu_rows_of(job->state, weight->segment[s].class)] = true;
    job->form = packed_form(job->rows);
    job->tile_rows = ROW_TILE;
    if (kinds[ROWS_PACKED] && job->form == PACKED_BY_ROW)
        cut_many(job, b->threads);
    job->row_tiles = (job->rows + job->tile_rows - 1) / job->tile_rows;
    if (!kinds[ROWS_PACKED] || job->form != PACKED_BY_ROW)
        job->run_panels = choose_run(job, b->threads);
    for (uint32_t s = 0; s < weight->segments; s++)
        pieces += runs_of(&weight->segment[s], job->run_panels) * job->row_tiles;
    if (kinds[ROWS_PACKED])
        cpu_run_rows(b, pack_tiles, job, tiles, 1 + job->x->columns);
    if (kinds[ROWS_QUANTISED] && job->rows <= CALLER_ROWS)
        quantise_rows(job, 0, job->rows);
    else if (kinds[ROWS_QUANTISED])
        cpu_run_rows(b, quantise_rows, job, job->rows, 1 + job->x->columns / 6);
    thread_pool_run(cpu_state(b)->pool, matmul_piece, job, pieces);
}

void cpu_matmul(struct backend *b, struct tensor *y, const struct tensor *x,
                const struct weight *weight, bool accumulate)
{
    struct cpu_state *state = cpu_state(b);
    struct matmul_job job = {
        .state = state,
        .family = state->family,
        .weight = (const struct cpu_weight *)weight,
        .x = x,
        .y = y,
        .quant = state->quant,
        .packed = state->packed,
        .panel_scratch = state->panel_scratch,
        .accumulate = accumulate,
    };
    for (job.first_row = 0; job.first_row < x->rows; job.first_row += QUANT_ROWS) {
        job.rows = min_u32(QUANT_ROWS, x->rows - job.first_row);
        run_pass(b, &job);
    }
}
