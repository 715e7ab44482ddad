/* weight.c - every stored type becomes f32, in panels of 16 outputs.
 *
 *   panels  [rows / 16][columns][16]     panel p, column k: outputs 16p .. 16p + 15
 *
 * Why panels: matmul then reads weights in one stream and the compiler turns 16 outputs into
 * vector lanes without changing the order of any sum. Cost: 4 bytes per weight. */
#include <errno.h>

#include "kernels/ref/ref.h"
#include "proto/base/mem.h"

static void put_row(struct ref_weight *weight, uint32_t row, const float *values)
{
    uint32_t columns = weight->base.columns;
    float *to = weight->panels + (size_t)(row / REF_PANEL) * columns * REF_PANEL + row % REF_PANEL;
    for (uint32_t k = 0; k < columns; k++)
        to[(size_t)k * REF_PANEL] = values[k];
}

static const void *part_row(const struct weight_part *part, uint32_t row)
{
    const struct dtype_info *info = dtype_info(part->dtype);
    uint32_t stored = part->row_order != NULL ? part->row_order[row] : row;
    return (const char *)part->data + (size_t)stored * part->row_bytes +
           (size_t)(part->column / info->block_values) * info->block_bytes;
}

int ref_weight_new(struct backend *b, enum weight_use use, const struct weight_part *parts,
                   size_t count, uint32_t columns, struct weight **ret_weight, struct errmsg *err)
{
    uint32_t rows = 0;
    for (size_t i = 0; i < count; i++)
        rows += parts[i].rows;
    size_t panels = (rows + REF_PANEL - 1) / REF_PANEL;
    size_t bytes = panels * columns * REF_PANEL * sizeof(float);
    void *memory;
    if (mem_map_as(MEM_WEIGHTS, bytes, &memory) < 0)
        return errmsg_set(err, -ENOMEM, "no memory for %zu bytes of weights", bytes);

    struct ref_weight *weight = mem_zalloc(sizeof(*weight));
    weight->base = (struct weight){.rows = rows, .columns = columns, .bytes = bytes};
    weight->panels = memory;
    float *values = mem_calloc(columns, sizeof(*values));
    uint32_t row = 0;
    for (size_t i = 0; i < count; i++) {
        for (uint32_t r = 0; r < parts[i].rows; r++) {
            dtype_to_f32(parts[i].dtype, part_row(&parts[i], r), values, columns);
            put_row(weight, row++, values);
        }
    }
    mem_free(values);
    *ret_weight = &weight->base;
    return 0;
}

void ref_weight_free(struct backend *b, struct weight *weight)
{
    struct ref_weight *ref = (struct ref_weight *)weight;
    mem_unmap_as(MEM_WEIGHTS, ref->panels, weight->bytes);
    mem_free(ref);
}
