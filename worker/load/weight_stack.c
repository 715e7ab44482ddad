/* weight_stack.c - parts of stored matrices -> one packed weight.
 *
 * Why f32 for some slices: a row-parallel slice may cut a quantisation block in two (a head of 16
 * columns, blocks of 32). Such a slice is dequantised here, exactly, and packed as f32.
 * Cost: every byte of the slice is read once. */
#include "worker/load/weight_stack.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"

static size_t row_bytes(const struct model_tensor *tensor)
{
    const struct dtype_info *info = dtype_info(tensor->dtype);
    return tensor->columns / info->block_values * info->block_bytes;
}

static int find(const struct model_source *source, const struct stored_rows *rows,
                struct model_tensor *ret_tensor, struct errmsg *err)
{
    int r = model_source_tensor(source, rows->name, ret_tensor, err);
    if (r == -ENOENT)
        return errmsg_set(err, -EINVAL, "tensor '%s' is missing", rows->name);
    if (r < 0)
        return r;
    if (ret_tensor->planes == 1 && rows->planes == 1 &&
        (ret_tensor->columns != rows->columns || ret_tensor->rows != rows->rows))
        return errmsg_set(err, -EINVAL, "tensor '%s' is %llu x %llu instead of %llu x %llu",
                          rows->name, (unsigned long long)ret_tensor->rows,
                          (unsigned long long)ret_tensor->columns, (unsigned long long)rows->rows,
                          (unsigned long long)rows->columns);
    if (ret_tensor->columns != rows->columns || ret_tensor->rows != rows->rows ||
        ret_tensor->planes != rows->planes)
        return errmsg_set(err, -EINVAL,
                          "tensor '%s' is %llu x %llu x %llu instead of %llu x %llu x %llu",
                          rows->name, (unsigned long long)ret_tensor->planes,
                          (unsigned long long)ret_tensor->rows,
                          (unsigned long long)ret_tensor->columns, (unsigned long long)rows->planes,
                          (unsigned long long)rows->rows, (unsigned long long)rows->columns);
    return 0;
}

int weight_stack_add(struct weight_stack *stack, const struct stored_rows *rows, struct errmsg *err)
{
    struct model_tensor tensor;
    ASSERT(stack->count < STACK_PARTS_MAX && (uint64_t)rows->first + rows->count <= rows->rows);
    ASSERT(rows->plane < rows->planes);
    int r = find(stack->source, rows, &tensor, err);
    if (r < 0)
        return r;
    size_t bytes = row_bytes(&tensor);
    size_t row = (size_t)rows->plane * tensor.rows + rows->first;
    stack->parts[stack->count] =
        (struct weight_part){.dtype = tensor.dtype,
                             .data = (const char *)tensor.data + row * bytes,
                             .row_bytes = bytes,
                             .rows = rows->count,
                             .row_order = rows->order};
    tensor.data = (const char *)tensor.data + row * bytes;
    tensor.bytes = rows->count * bytes;
    stack->tensors[stack->count] = tensor;
    if (stack->count == 0)
        (void)snprintf(stack->name, sizeof(stack->name), "%s", rows->name);
    stack->columns = (uint32_t)tensor.columns;
    stack->count++;
    return 0;
}

/* Columns [first, first + count) of every row, as f32. */
static int convert_columns(struct weight_stack *stack, uint32_t first, uint32_t count,
                           struct errmsg *err)
{
    struct weight_part *part = &stack->parts[0];
    size_t bytes = (size_t)part->rows * count * sizeof(float);
    if (mem_map(bytes, &stack->converted) < 0)
        return errmsg_set(err, -ENOMEM, "no memory for %zu bytes of '%s' as f32", bytes,
                          stack->name);
    stack->converted_bytes = bytes;
    uint32_t columns = (uint32_t)stack->tensors[0].columns;
    float *values = mem_calloc(columns, sizeof(*values));
    for (uint32_t i = 0; i < part->rows; i++) {
        dtype_to_f32(part->dtype, (const char *)part->data + i * part->row_bytes, values, columns);
        memcpy((float *)stack->converted + (size_t)i * count, values + first,
               count * sizeof(float));
    }
    mem_free(values);
    part->dtype = DTYPE_F32;
    part->data = stack->converted;
    part->row_bytes = count * sizeof(float);
    part->column = 0;
    return 0;
}

int weight_stack_cut(struct weight_stack *stack, uint32_t first, uint32_t count, struct errmsg *err)
{
    ASSERT(stack->count == 1 && first + count <= stack->columns);
    uint32_t block = dtype_info(stack->parts[0].dtype)->block_values;
    stack->columns = count;
    stack->parts[0].column = first;
    if (first % block == 0 && count % block == 0)
        return 0;
    return convert_columns(stack, first, count, err);
}

int weight_stack_pack(struct weight_stack *stack, struct backend *backend, enum weight_use use,
                      struct weight **ret_weight, struct errmsg *err)
{
    size_t rows = 0;
    for (size_t i = 0; i < stack->count; i++)
        rows += stack->parts[i].rows;
    if (rows == 0 || stack->columns == 0)
        return 0;
    int r =
        op_weight_new(backend, use, stack->parts, stack->count, stack->columns, ret_weight, err);
    if (r < 0)
        r = errmsg_prefix(err, r, "tensor '%s'", stack->name);
    for (size_t i = 0; i < stack->count; i++)
        model_source_drop_pages(stack->source, &stack->tensors[i]);
    return r;
}

void weight_stack_done(struct weight_stack *stack)
{
    if (stack->converted != NULL)
        mem_unmap(stack->converted, stack->converted_bytes);
}
