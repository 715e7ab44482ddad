/* weight_stack.h - a matrix being put together from rows of stored ones. Private to weights.c. */
#ifndef REFRAIN_WORKER_LOAD_WEIGHT_STACK_H
#define REFRAIN_WORKER_LOAD_WEIGHT_STACK_H

#include "kernels/ops.h"
#include "worker/load/tensor_names.h"

#define STACK_PARTS_MAX 3

struct weight_stack {
    const struct model_source *source;
    struct weight_part parts[STACK_PARTS_MAX];
    struct model_tensor tensors[STACK_PARTS_MAX]; /* whose pages are given back after packing */
    char name[TENSOR_NAME_MAX];                   /* of the first */
    size_t count;
    uint32_t columns;
    void *converted; /* a slice as f32, or NULL */
    size_t converted_bytes;
    void *halves[STACK_PARTS_MAX]; /* rows of fp8 as bf16, or NULL */
    size_t halves_bytes[STACK_PARTS_MAX];
};

/* Rows [first, first + count) of plane `plane` of a tensor that must be [planes, rows, columns]. */
struct stored_rows {
    const char *name;
    uint64_t planes, rows, columns;
    uint32_t plane, first, count;
    const uint32_t *order; /* NULL, or count entries: row i is stored row first + order[i] */
};

/* Append; 0, -EINVAL: the tensor is missing or has another shape, -ENOTSUP: its type; -ENOMEM. */
int weight_stack_add(struct weight_stack *stack, const struct stored_rows *rows,
                     struct errmsg *err);
/* Tensors with a plane a head: [heads, rows, columns], or turned: [heads, columns, rows]. */
struct stored_heads {
    const char *name;
    bool turned;
    uint32_t rows; /* of a head */
};
struct heads_wanted {
    uint32_t heads, columns;
    uint32_t first, count; /* heads */
};
/* Append the wanted heads, each as its rows of `a` and then its rows of `b`, dequantised to f32. 0;
 * -EINVAL: a tensor is missing or has another shape, -ENOTSUP: its type; -ENOMEM. */
int weight_stack_add_heads(struct weight_stack *stack, const struct stored_heads *a,
                           const struct stored_heads *b, const struct heads_wanted *want,
                           struct errmsg *err);
/* Keep columns [first, first + count) of the one matrix in the stack. 0, -ENOMEM. */
int weight_stack_cut(struct weight_stack *stack, uint32_t first, uint32_t count,
                     struct errmsg *err);
/* Pack; *ret_weight stays as it is where the stack has no rows. 0 or op_weight_new's error. */
int weight_stack_pack(struct weight_stack *stack, struct backend *backend, enum weight_use use,
                      struct weight **ret_weight, struct errmsg *err);
void weight_stack_done(struct weight_stack *stack);

#endif
