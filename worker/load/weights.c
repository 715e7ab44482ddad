/* weights.c - the tensors of a model file -> one rank's packed matrices.
 *
 *   qkv      rows of q, k, v of the rank's heads, stacked         column-parallel
 *   output   the columns that the rank's query heads produce      row-parallel
 *   gate_up  the rank's FFN rows of gate over those of up         column-parallel
 *   down     the rank's FFN columns                               row-parallel
 *   head     the rank's rows of the vocabulary
 *
 * A rank may hold no heads or no FFN columns (more ranks than heads): those matrices are NULL and
 * the decoder leaves their terms out.
 * Why f32 for some slices: a row-parallel slice may cut a quantisation block in two (a head of 16
 * columns, blocks of 32). Such a slice is dequantised here, exactly, and packed as f32.
 * Cost: every byte of the shard is read once; pages of the file leave memory tensor by tensor, so
 * that the peak is the shard plus one matrix. Invariant: the file may be closed afterwards. */
#include "worker/load/weights.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"

#define PARTS_MAX 3
#define NAME_MAX_BYTES 64

struct loader {
    const struct gguf *gguf;
    const struct model_config *config;
    const struct weights_slice *slice;
    struct backend *backend;
    struct weights *weights;
    struct errmsg *err;
};

/* A matrix being put together. */
struct stack {
    struct weight_part parts[PARTS_MAX];
    const struct gguf_tensor *tensors[PARTS_MAX];
    char names[PARTS_MAX][NAME_MAX_BYTES];
    size_t count;
    uint32_t columns;
    void *converted; /* a slice as f32, or NULL */
    size_t converted_bytes;
};

static size_t row_bytes(const struct gguf_tensor *tensor)
{
    const struct dtype_info *info = dtype_info(tensor->dtype);
    return tensor->dims[0] / info->block_values * info->block_bytes;
}

static int find(const struct loader *loader, const char *name, uint64_t rows, uint64_t columns,
                const struct gguf_tensor **ret_tensor)
{
    const struct gguf_tensor *tensor = gguf_tensor(loader->gguf, name);
    if (tensor == NULL)
        return errmsg_set(loader->err, -EINVAL, "tensor '%s' is missing", name);
    if (tensor->dims[0] != columns || tensor->dims[1] != rows || tensor->dims[2] != 1 ||
        tensor->dims[3] != 1)
        return errmsg_set(loader->err, -EINVAL, "tensor '%s' is %llu x %llu instead of %llu x %llu",
                          name, (unsigned long long)tensor->dims[1],
                          (unsigned long long)tensor->dims[0], (unsigned long long)rows,
                          (unsigned long long)columns);
    *ret_tensor = tensor;
    return 0;
}

/* --- stacking -------------------------------------------------------------------------------- */

/* Append rows [first, first + count) of `name`, which is [rows, columns] in the file. */
static int stack_rows(const struct loader *loader, struct stack *stack, const char *name,
                      uint32_t rows, uint32_t columns, uint32_t first, uint32_t count)
{
    const struct gguf_tensor *tensor = NULL;
    ASSERT(stack->count < PARTS_MAX && first + count <= rows);
    int r = find(loader, name, rows, columns, &tensor);
    if (r < 0)
        return r;
    ASSERT(tensor != NULL);
    stack->parts[stack->count] = (struct weight_part){
        .dtype = tensor->dtype,
        .data = (const char *)tensor->data + first * row_bytes(tensor),
        .row_bytes = row_bytes(tensor),
        .rows = count,
    };
    stack->tensors[stack->count] = tensor;
    (void)snprintf(stack->names[stack->count], NAME_MAX_BYTES, "%s", name);
    stack->columns = columns;
    stack->count++;
    return 0;
}

/* Columns [first, first + count) of every row, as f32. */
static int convert_columns(const struct loader *loader, struct stack *stack, uint32_t first,
                           uint32_t count)
{
    struct weight_part *part = &stack->parts[0];
    size_t bytes = (size_t)part->rows * count * sizeof(float);
    if (mem_map(bytes, &stack->converted) < 0)
        return errmsg_set(loader->err, -ENOMEM, "no memory for %zu bytes of '%s' as f32", bytes,
                          stack->names[0]);
    stack->converted_bytes = bytes;
    uint32_t columns = (uint32_t)stack->tensors[0]->dims[0];
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

/* Keep columns [first, first + count) of the one matrix in the stack. */
static int stack_cut_columns(const struct loader *loader, struct stack *stack, uint32_t first,
                             uint32_t count)
{
    ASSERT(stack->count == 1 && first + count <= stack->columns);
    uint32_t block = dtype_info(stack->parts[0].dtype)->block_values;
    stack->columns = count;
    stack->parts[0].column = first;
    if (first % block == 0 && count % block == 0)
        return 0;
    return convert_columns(loader, stack, first, count);
}

static int stack_pack(const struct loader *loader, struct stack *stack, enum weight_use use,
                      struct weight **ret_weight)
{
    int r = op_weight_new(loader->backend, use, stack->parts, stack->count, stack->columns,
                          ret_weight, loader->err);
    if (r < 0)
        r = errmsg_prefix(loader->err, r, "tensor '%s'", stack->names[0]);
    else
        loader->weights->bytes += op_weight_bytes(*ret_weight);
    for (size_t i = 0; i < stack->count; i++)
        gguf_drop_pages(loader->gguf, stack->tensors[i]->data, stack->tensors[i]->bytes);
    return r;
}

static void stack_done(struct stack *stack)
{
    if (stack->converted != NULL)
        mem_unmap(stack->converted, stack->converted_bytes);
}

/* --- matrices -------------------------------------------------------------------------------- */

static int load_qkv(const struct loader *loader, uint32_t layer, struct weight **ret_weight)
{
    const struct model_config *config = loader->config;
    const struct weights_slice *slice = loader->slice;
    static const char *const names[] = {"q", "k", "v"};
    struct stack stack = {.count = 0};
    uint32_t dim = config->head_dim;
    int r = 0;
    for (uint32_t i = 0; i < 3 && r == 0; i++) {
        char name[NAME_MAX_BYTES];
        uint32_t heads = i == 0 ? config->q_heads : config->kv_heads;
        uint32_t first = i == 0 ? slice->q_first : slice->kv_first;
        uint32_t count = i == 0 ? slice->q_count : slice->kv_count;
        (void)snprintf(name, sizeof(name), "blk.%u.attn_%s.weight", layer, names[i]);
        r = stack_rows(loader, &stack, name, heads * dim, config->hidden, first * dim, count * dim);
    }
    if (r == 0 && slice->q_count > 0)
        r = stack_pack(loader, &stack, WEIGHT_MATMUL, ret_weight);
    stack_done(&stack);
    return r;
}

static int load_gate_up(const struct loader *loader, uint32_t layer, struct weight **ret_weight)
{
    const struct model_config *config = loader->config;
    const struct weights_slice *slice = loader->slice;
    static const char *const names[] = {"gate", "up"};
    struct stack stack = {.count = 0};
    int r = 0;
    for (uint32_t i = 0; i < 2 && r == 0; i++) {
        char name[NAME_MAX_BYTES];
        (void)snprintf(name, sizeof(name), "blk.%u.ffn_%s.weight", layer, names[i]);
        r = stack_rows(loader, &stack, name, config->ffn, config->hidden, slice->ffn_first,
                       slice->ffn_count);
    }
    if (r == 0 && slice->ffn_count > 0)
        r = stack_pack(loader, &stack, WEIGHT_MATMUL, ret_weight);
    stack_done(&stack);
    return r;
}

/* A row-parallel matrix [hidden, columns]: this rank's columns. */
static int load_columns(const struct loader *loader, uint32_t layer, const char *kind,
                        uint32_t columns, uint32_t first, uint32_t count,
                        struct weight **ret_weight)
{
    char name[NAME_MAX_BYTES];
    struct stack stack = {.count = 0};
    uint32_t hidden = loader->config->hidden;
    (void)snprintf(name, sizeof(name), "blk.%u.%s.weight", layer, kind);
    int r = stack_rows(loader, &stack, name, hidden, columns, 0, hidden);
    if (r == 0 && count > 0)
        r = stack_cut_columns(loader, &stack, first, count);
    if (r == 0 && count > 0)
        r = stack_pack(loader, &stack, WEIGHT_MATMUL, ret_weight);
    stack_done(&stack);
    return r;
}

static int load_vocabulary_rows(const struct loader *loader, const char *name, uint32_t first,
                                uint32_t count, enum weight_use use, struct weight **ret_weight)
{
    struct stack stack = {.count = 0};
    int r = stack_rows(loader, &stack, name, loader->config->vocab_size, loader->config->hidden,
                       first, count);
    if (r == 0 && count > 0)
        r = stack_pack(loader, &stack, use, ret_weight);
    stack_done(&stack);
    return r;
}

static int load_norm(const struct loader *loader, const char *name, float *ret_values)
{
    const struct gguf_tensor *tensor = NULL;
    uint32_t hidden = loader->config->hidden;
    int r = find(loader, name, 1, hidden, &tensor);
    if (r < 0)
        return r;
    ASSERT(tensor != NULL);
    dtype_to_f32(tensor->dtype, tensor->data, ret_values, hidden);
    return 0;
}

static int load_layer(const struct loader *loader, uint32_t i)
{
    const struct model_config *config = loader->config;
    const struct weights_slice *slice = loader->slice;
    struct layer_weights *layer = &loader->weights->layers[i];
    uint32_t dim = config->head_dim;
    char name[NAME_MAX_BYTES];
    (void)snprintf(name, sizeof(name), "blk.%u.attn_norm.weight", i);
    int r = load_norm(loader, name, layer->attention_norm);
    (void)snprintf(name, sizeof(name), "blk.%u.ffn_norm.weight", i);
    if (r == 0)
        r = load_norm(loader, name, layer->ffn_norm);
    if (r == 0)
        r = load_qkv(loader, i, &layer->qkv);
    if (r == 0)
        r = load_columns(loader, i, "attn_output", config->q_heads * dim, slice->q_first * dim,
                         slice->q_count * dim, &layer->output);
    if (r == 0)
        r = load_gate_up(loader, i, &layer->gate_up);
    if (r == 0)
        r = load_columns(loader, i, "ffn_down", config->ffn, slice->ffn_first, slice->ffn_count,
                         &layer->down);
    return r;
}

static int load_vocabulary(const struct loader *loader)
{
    const struct model_config *config = loader->config;
    const struct weights_slice *slice = loader->slice;
    struct weights *weights = loader->weights;
    bool whole = slice->vocab_count == config->vocab_size;
    int r = load_vocabulary_rows(loader, "token_embd.weight", 0, config->vocab_size, WEIGHT_EMBED,
                                 &weights->embedding);
    if (r < 0)
        return r;
    if (config->tied_embedding && whole) {
        weights->head = weights->embedding;
        return 0;
    }
    return load_vocabulary_rows(
        loader, config->tied_embedding ? "token_embd.weight" : "output.weight", slice->vocab_first,
        slice->vocab_count, WEIGHT_MATMUL, &weights->head);
}

/* --- all of it ------------------------------------------------------------------------------- */

/* Norms lie back to back: attention and FFN norm of each layer, then the final one. */
static size_t norm_bytes(const struct model_config *config)
{
    return ((size_t)config->layers * 2 + 1) * config->hidden * sizeof(float);
}

static int alloc_norms(const struct loader *loader)
{
    const struct model_config *config = loader->config;
    struct weights *weights = loader->weights;
    void *memory = NULL;
    int r = op_alloc(loader->backend, norm_bytes(config), &memory);
    if (r < 0)
        return errmsg_set(loader->err, -ENOMEM, "no memory for %zu bytes of norms",
                          norm_bytes(config));
    float *norms = memory;
    for (uint32_t i = 0; i < config->layers; i++) {
        weights->layers[i].attention_norm = norms + (size_t)2 * i * config->hidden;
        weights->layers[i].ffn_norm = norms + ((size_t)2 * i + 1) * config->hidden;
    }
    weights->final_norm = norms + (size_t)2 * config->layers * config->hidden;
    weights->bytes += norm_bytes(config);
    return 0;
}

int weights_load(const struct gguf *gguf, const struct model_config *config,
                 const struct weights_slice *slice, struct backend *backend,
                 struct weights **ret_weights, struct errmsg *err)
{
    ASSERT(slice->q_first + slice->q_count <= config->q_heads);
    ASSERT(slice->kv_first + slice->kv_count <= config->kv_heads);
    ASSERT(slice->ffn_first + slice->ffn_count <= config->ffn);
    ASSERT(slice->vocab_first + slice->vocab_count <= config->vocab_size);
    struct weights *weights = mem_zalloc(sizeof(*weights));
    weights->layers = mem_calloc(config->layers, sizeof(*weights->layers));
    const struct loader loader = {.gguf = gguf,
                                  .config = config,
                                  .slice = slice,
                                  .backend = backend,
                                  .weights = weights,
                                  .err = err};
    int r = alloc_norms(&loader);
    if (r == 0)
        r = load_norm(&loader, "output_norm.weight", weights->final_norm);
    if (r == 0)
        r = load_vocabulary(&loader);
    for (uint32_t i = 0; i < config->layers && r == 0; i++)
        r = load_layer(&loader, i);
    if (r < 0) {
        weights_free(weights, config, backend);
        return r;
    }
    *ret_weights = weights;
    return 0;
}

void weights_free(struct weights *weights, const struct model_config *config,
                  struct backend *backend)
{
    if (weights == NULL)
        return;
    for (uint32_t i = 0; i < config->layers; i++) {
        op_weight_free(backend, weights->layers[i].qkv);
        op_weight_free(backend, weights->layers[i].output);
        op_weight_free(backend, weights->layers[i].gate_up);
        op_weight_free(backend, weights->layers[i].down);
    }
    if (weights->head != weights->embedding)
        op_weight_free(backend, weights->head);
    op_weight_free(backend, weights->embedding);
    op_free(backend, weights->layers[0].attention_norm, norm_bytes(config));
    mem_free(weights->layers);
    mem_free(weights);
}
