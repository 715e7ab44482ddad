/* weight_stack.c - parts of stored matrices -> one packed weight.
 *
 * Why f32 for some slices: a row-parallel slice may cut a quantisation block in two (a head of 16
 * columns, blocks of 32). Such a slice is dequantised here, exactly, and packed as f32.
 * F8_E4M3 becomes bf16 here (fp8.h). Cost: every byte of the slice is read once. */
#include "worker/load/weight_stack.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "worker/load/fp8.h"

static size_t row_bytes(const struct model_tensor *tensor)
{
    const struct dtype_info *info = dtype_info(tensor->dtype);
    if (tensor->fp8)
        return tensor->columns;
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

/* The part's rows as bf16. */
static int convert_fp8(struct weight_stack *stack, const struct model_tensor *tensor,
                       const struct stored_rows *rows, struct errmsg *err)
{
    struct weight_part *part = &stack->parts[stack->count];
    size_t bytes = (size_t)rows->count * tensor->columns * sizeof(uint16_t);
    void *memory = NULL;
    if (bytes == 0)
        return 0;
    if (mem_map(bytes, &memory) < 0)
        return errmsg_set(err, -ENOMEM, "no memory for %zu bytes of '%s' as bf16", bytes,
                          rows->name);
    fp8_to_bf16(tensor, rows->first, rows->count, memory);
    stack->halves[stack->count] = memory;
    stack->halves_bytes[stack->count] = bytes;
    part->dtype = DTYPE_BF16;
    part->data = memory;
    part->row_bytes = tensor->columns * sizeof(uint16_t);
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
    if (tensor.fp8)
        r = convert_fp8(stack, &tensor, rows, err);
    tensor.data = (const char *)tensor.data + row * bytes;
    tensor.bytes = rows->count * bytes;
    stack->tensors[stack->count] = tensor;
    if (stack->count == 0)
        (void)snprintf(stack->name, sizeof(stack->name), "%s", rows->name);
    stack->columns = (uint32_t)tensor.columns;
    stack->count++;
    return r;
}

/* Head `head` of a tensor into rows of `to`. scratch holds one plane. */
static void copy_head(const struct model_tensor *tensor, const struct stored_heads *heads,
                      uint32_t head, uint32_t columns, float *scratch, float *to)
{
    size_t values = (size_t)heads->rows * columns, bytes = tensor->rows * row_bytes(tensor);
    dtype_to_f32(tensor->dtype, (const char *)tensor->data + head * bytes, scratch, values);
    if (!heads->turned) {
        memcpy(to, scratch, values * sizeof(*to));
        return;
    }
    for (uint32_t row = 0; row < heads->rows; row++) {
        for (uint32_t k = 0; k < columns; k++)
            to[(size_t)row * columns + k] = scratch[(size_t)k * heads->rows + row];
    }
}

static int find_heads(const struct weight_stack *stack, const struct stored_heads *heads,
                      const struct heads_wanted *want, struct model_tensor *ret_tensor,
                      struct errmsg *err)
{
    const struct stored_rows rows = {.name = heads->name,
                                     .planes = want->heads,
                                     .rows = heads->turned ? want->columns : heads->rows,
                                     .columns = heads->turned ? heads->rows : want->columns};
    int r = find(stack->source, &rows, ret_tensor, err);
    if (r == 0 && ret_tensor->fp8)
        r = errmsg_set(err, -ENOTSUP, "tensor '%s' is of type F8_E4M3", heads->name);
    return r;
}

int weight_stack_add_heads(struct weight_stack *stack, const struct stored_heads *a,
                           const struct stored_heads *b, const struct heads_wanted *want,
                           struct errmsg *err)
{
    struct model_tensor tensors[2];
    ASSERT(stack->count == 0 && stack->converted == NULL);
    int r = find_heads(stack, a, want, &tensors[0], err);
    if (r == 0)
        r = find_heads(stack, b, want, &tensors[1], err);
    size_t rows = (size_t)want->count * (a->rows + b->rows);
    size_t bytes = rows * want->columns * sizeof(float);
    if (r < 0 || bytes == 0)
        return r;
    if (mem_map(bytes, &stack->converted) < 0)
        return errmsg_set(err, -ENOMEM, "no memory for %zu bytes of '%s' as f32", bytes, a->name);
    stack->converted_bytes = bytes;
    uint32_t most = a->rows > b->rows ? a->rows : b->rows;
    float *scratch = mem_calloc((size_t)most * want->columns, sizeof(*scratch));
    float *to = stack->converted;
    for (uint32_t i = 0; i < want->count; i++) {
        copy_head(&tensors[0], a, want->first + i, want->columns, scratch, to);
        to += (size_t)a->rows * want->columns;
        copy_head(&tensors[1], b, want->first + i, want->columns, scratch, to);
        to += (size_t)b->rows * want->columns;
    }
    mem_free(scratch);
    stack->parts[0] = (struct weight_part){.dtype = DTYPE_F32,
                                           .data = stack->converted,
                                           .row_bytes = want->columns * sizeof(float),
                                           .rows = (uint32_t)rows};
    stack->tensors[0] = tensors[0];
    (void)snprintf(stack->name, sizeof(stack->name), "%s", a->name);
    stack->columns = want->columns;
    stack->count = 1;
    model_source_drop_pages(stack->source, &tensors[1]);
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
    for (size_t i = 0; i < stack->count; i++) {
        if (stack->halves[i] != NULL)
            mem_unmap(stack->halves[i], stack->halves_bytes[i]);
    }
}
