/* weight.c - parts of a weight -> segments of panels, packed by all threads.
 *
 *   parts     q (Q4_K) | k (Q4_K) | v (Q6_K)
 *   segments  U4: rows of q and k           | S8_HALF: rows of v       each padded to 16 outputs
 *
 * Why segments: files mix types within what one matmul wants (v is often finer than q and k), and
 * one layout for both would lose precision or speed. Parts of one class share panels across their
 * border, so the usual weight is a single segment. */
#include <errno.h>

#include "kernels/cpu/cpu.h"
#include "proto/base/assert.h"
#include "proto/base/mem.h"

#define DATA_ALIGN 64

static size_t segment_bytes(const struct cpu_segment *segment)
{
    size_t bytes = segment->panels * segment->panel_bytes;
    return (bytes + DATA_ALIGN - 1) / DATA_ALIGN * DATA_ALIGN;
}

/* Fill weight->segment from the parts' classes. */
static void plan_segments(struct cpu_weight *weight, const struct cpu_family *family,
                          const struct weight_part *parts, size_t count)
{
    uint32_t row = 0;
    weight->segment = mem_calloc(count, sizeof(*weight->segment));
    for (size_t i = 0; i < count; i++) {
        enum panel_class class = pack_class(parts[i].dtype);
        struct cpu_segment *last = NULL;
        if (parts[i].rows == 0)
            continue;
        if (weight->segments > 0)
            last = &weight->segment[weight->segments - 1];
        if (last == NULL || last->class != class) {
            last = &weight->segment[weight->segments++];
            last->class = class;
            last->row = row;
        }
        last->rows += parts[i].rows;
        row += parts[i].rows;
    }
    weight->base.rows = row;
    for (uint32_t s = 0; s < weight->segments; s++) {
        struct cpu_segment *segment = &weight->segment[s];
        segment->panels = (segment->rows + PANEL - 1) / PANEL;
        segment->by_output = family->by_output[segment->class];
        segment->panel_bytes =
            pack_panel_bytes(segment->class, segment->by_output, weight->base.columns);
        weight->base.bytes += segment_bytes(segment);
    }
}

static void place_segments(struct cpu_weight *weight, uint8_t *memory)
{
    for (uint32_t s = 0; s < weight->segments; s++) {
        weight->segment[s].data = memory;
        memory += segment_bytes(&weight->segment[s]);
    }
}

static struct pack_source *list_sources(const struct weight_part *parts, size_t count,
                                        uint32_t rows)
{
    struct pack_source *sources = mem_calloc(rows, sizeof(*sources));
    uint32_t row = 0;
    for (size_t i = 0; i < count; i++) {
        const struct weight_part *part = &parts[i];
        const struct dtype_info *info = dtype_info(part->dtype);
        size_t offset = (size_t)(part->column / info->block_values) * info->block_bytes;
        for (uint32_t r = 0; r < part->rows; r++) {
            size_t stored = part->row_order != NULL ? part->row_order[r] : r;
            sources[row++] = (struct pack_source){
                part->dtype, (const char *)part->data + stored * part->row_bytes + offset};
        }
    }
    ASSERT(row == rows);
    return sources;
}

struct pack_job {
    const struct cpu_segment *segment;
    const struct pack_source *sources;
    uint32_t columns;
};

static void pack_piece(void *context, uint32_t piece, unsigned thread)
{
    const struct pack_job *job = context;
    pack_panel(job->segment, piece, job->sources, job->columns);
}

/* The scratch that holds quantised or packed rows must fit the widest weight. */
static int grow_quant(struct cpu_state *state, unsigned threads, uint32_t columns)
{
    if (columns <= state->quant_columns)
        return 0;
    bool packs = state->family->pack_rows != NULL;
    size_t values = (size_t)QUANT_ROWS * packed_tile_values(1, columns), sums = values / GROUP * 2;
    size_t quant = values + sums * (sizeof(float) + sizeof(int16_t));
    size_t scratch = (size_t)threads * MANY_SCRATCH_VALUES;
    size_t bytes = quant + (packs ? (values + scratch) * sizeof(uint16_t) : 0);
    void *memory;
    if (mem_map(bytes, &memory) < 0)
        return -ENOMEM;
    if (state->quant_memory != NULL)
        mem_unmap(state->quant_memory, state->quant_bytes);
    state->quant.q = memory;
    state->quant.scale_sums = (float *)((char *)memory + values);
    state->quant.half_sums = (int16_t *)(state->quant.scale_sums + sums);
    if (packs) { /* sums * 6 is a multiple of 64: rows are 512 */
        state->packed = (uint16_t *)((char *)memory + quant);
        state->panel_scratch = state->packed + values;
    }
    state->quant_memory = memory;
    state->quant_bytes = bytes;
    state->quant_columns = columns;
    return 0;
}

enum cpu_rows cpu_rows_of(const struct cpu_state *state, enum panel_class class)
{
    if (state->family->by_output[class])
        return ROWS_PACKED;
    return panel_is_quantised(class) ? ROWS_QUANTISED : ROWS_PLAIN;
}

static bool has_quantised(const struct cpu_state *state, const struct cpu_weight *weight)
{
    for (uint32_t s = 0; s < weight->segments; s++) {
        if (cpu_rows_of(state, weight->segment[s].class) != ROWS_PLAIN)
            return true;
    }
    return false;
}

int cpu_weight_new(struct backend *b, enum weight_use use, const struct weight_part *parts,
                   size_t count, uint32_t columns, struct weight **ret_weight, struct errmsg *err)
{
    struct cpu_state *state = cpu_state(b);
    struct cpu_weight *weight = mem_zalloc(sizeof(*weight));
    weight->base.columns = columns;
    plan_segments(weight, state->family, parts, count);
    void *memory;
    if ((has_quantised(state, weight) && grow_quant(state, b->threads, columns) < 0) ||
        slab_take(&state->slab, weight->base.bytes, &weight->slab, &memory) < 0) {
        size_t bytes = weight->base.bytes;
        mem_free(weight->segment);
        mem_free(weight);
        return errmsg_set(err, -ENOMEM, "no memory for %zu bytes of weights", bytes);
    }
    place_segments(weight, memory);

    struct pack_source *sources = list_sources(parts, count, weight->base.rows);
    for (uint32_t s = 0; s < weight->segments; s++) {
        const struct cpu_segment *segment = &weight->segment[s];
        struct pack_job job = {segment, sources + segment->row, columns};
        thread_pool_run(state->pool, pack_piece, &job, segment->panels);
    }
    mem_free(sources);
    *ret_weight = &weight->base;
    return 0;
}

void cpu_weight_free(struct backend *b, struct weight *weight)
{
    struct cpu_weight *cpu = (struct cpu_weight *)weight;
    slab_unref(cpu->slab);
    mem_free(cpu->segment);
    mem_free(cpu);
}
