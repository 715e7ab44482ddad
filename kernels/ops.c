/* ops.c - the one place where shapes are checked, before any backend sees them.
 *
 * Shapes come from a checked model and from our own scheduler, so a wrong one is our bug: ASSERT.
 * What comes from a file (dtypes, part sizes) is checked in op_weight_new and answered with an
 * errno. Empty work returns here, so that backends need not think of zero rows. */
#include "kernels/ops.h"

#include <errno.h>

#include "kernels/backend.h"
#include "proto/base/assert.h"

#define HEAD_DIM_MAX 512

static void check_tensor(const struct tensor *t)
{
    ASSERT(t->stride >= t->columns);
    ASSERT(t->data != NULL || t->rows == 0 || t->columns == 0);
}

static bool is_empty(const struct tensor *t)
{
    return t->rows == 0 || t->columns == 0;
}

static void check_heads(const struct heads *heads)
{
    ASSERT(heads->head_dim > 0 && heads->head_dim <= HEAD_DIM_MAX);
    ASSERT(heads->q_heads > 0 && heads->kv_heads > 0 && heads->group > 0);
    ASSERT((heads->q_offset + heads->q_heads - 1) / heads->group < heads->kv_heads);
}

static void check_pool(const struct kv_pool *kv, const struct heads *heads, uint32_t layer)
{
    ASSERT(layer < kv->layers);
    ASSERT(kv->kv_heads == heads->kv_heads && kv->head_dim == heads->head_dim);
}

static int check_part(const struct weight_part *part, uint32_t columns, struct errmsg *err)
{
    const struct dtype_info *info = dtype_info(part->dtype);
    if (info == NULL)
        return errmsg_set(err, -ENOTSUP, "element type %u is not supported", (unsigned)part->dtype);
    if (columns % info->block_values != 0 || part->column % info->block_values != 0)
        return errmsg_set(err, -EINVAL, "%u columns from column %u: %s comes in blocks of %u",
                          columns, part->column, info->name, info->block_values);
    size_t end = ((size_t)part->column + columns) / info->block_values * info->block_bytes;
    if (part->rows > 1 && end > part->row_bytes)
        return errmsg_set(err, -EINVAL, "columns %u..%zu do not fit rows of %zu bytes of %s",
                          part->column, (size_t)part->column + columns, part->row_bytes,
                          info->name);
    return 0;
}

int op_weight_new(struct backend *b, enum weight_use use, const struct weight_part *parts,
                  size_t count, uint32_t columns, struct weight **ret_weight, struct errmsg *err)
{
    size_t rows = 0;
    ASSERT(count > 0);
    for (size_t i = 0; i < count; i++) {
        int r = check_part(&parts[i], columns, err);
        if (r < 0)
            return r;
        rows += parts[i].rows;
    }
    if (rows == 0 || columns == 0 || rows > UINT32_MAX / 2)
        return errmsg_set(err, -EINVAL, "a weight of %zu x %u", rows, columns);
    int r = b->ops->weight_new(b, use, parts, count, columns, ret_weight, err);
    ASSERT(r < 0 || ((*ret_weight)->rows == rows && (*ret_weight)->columns == columns));
    return r;
}

void op_weight_free(struct backend *b, struct weight *weight)
{
    if (weight != NULL)
        b->ops->weight_free(b, weight);
}

uint32_t op_weight_rows(const struct weight *weight)
{
    return weight->rows;
}

uint32_t op_weight_columns(const struct weight *weight)
{
    return weight->columns;
}

size_t op_weight_bytes(const struct weight *weight)
{
    return weight->bytes;
}

void op_embed(struct backend *b, struct tensor *x, const struct weight *weight, const uint32_t *ids)
{
    check_tensor(x);
    ASSERT(x->columns == weight->columns);
    for (uint32_t i = 0; i < x->rows; i++)
        ASSERT(ids[i] < weight->rows);
    if (!is_empty(x))
        b->ops->embed(b, x, weight, ids);
}

void op_rmsnorm(struct backend *b, struct tensor *y, const struct tensor *x, const float *w,
                float eps)
{
    check_tensor(x);
    check_tensor(y);
    ASSERT(y->rows == x->rows && y->columns == x->columns);
    if (!is_empty(x))
        b->ops->rmsnorm(b, y, x, w, eps);
}

void op_layernorm(struct backend *b, struct tensor *y, const struct tensor *x, uint32_t dim,
                  const float *w, float eps)
{
    check_tensor(x);
    check_tensor(y);
    ASSERT(y->rows == x->rows && y->columns == x->columns);
    ASSERT(dim > 0 && x->columns % dim == 0);
    if (!is_empty(x))
        b->ops->layernorm(b, y, x, dim, w, eps);
}

void op_matmul(struct backend *b, struct tensor *y, const struct tensor *x,
               const struct weight *weight, bool accumulate)
{
    check_tensor(x);
    check_tensor(y);
    ASSERT(y->rows == x->rows && y->columns == weight->rows && x->columns == weight->columns);
    if (!is_empty(y))
        b->ops->matmul(b, y, x, weight, accumulate);
}

void op_rope(struct backend *b, struct tensor *qkv, const struct heads *heads,
             const struct rope *rope, struct kv_pool *kv, uint32_t layer, const struct step *step)
{
    check_tensor(qkv);
    check_heads(heads);
    check_pool(kv, heads, layer);
    ASSERT(qkv->rows == step->rows);
    ASSERT(qkv->columns == (heads->q_heads + 2 * heads->kv_heads) * heads->head_dim);
    ASSERT(rope->rotary_dims % 2 == 0 && rope->rotary_dims <= heads->head_dim);
    for (uint32_t i = 0; i < step->rows; i++)
        ASSERT(step->position[i] < rope->positions);
    if (!is_empty(qkv))
        b->ops->rope(b, qkv, heads, rope, kv, layer, step);
}

void op_attention(struct backend *b, struct tensor *out, const struct tensor *qkv,
                  const struct heads *heads, const struct kv_pool *kv, uint32_t layer,
                  const struct step *step, const struct attention_rule *rule)
{
    check_tensor(out);
    check_tensor(qkv);
    check_heads(heads);
    check_pool(kv, heads, layer);
    ASSERT(out->rows == step->rows && qkv->rows == step->rows);
    ASSERT(out->columns == heads->q_heads * heads->head_dim && qkv->columns >= out->columns);
    ASSERT(step->rows == 0 || step->row_first[step->sequences] == step->rows);
    ASSERT(rule->softcap >= 0);
    if (!is_empty(out))
        b->ops->attention(b, out, qkv, heads, kv, layer, step, rule);
}

static void check_gated(const struct tensor *y, const struct tensor *gate_up)
{
    check_tensor(y);
    check_tensor(gate_up);
    ASSERT(y->rows == gate_up->rows && gate_up->columns == 2 * y->columns);
}

void op_silu_mul(struct backend *b, struct tensor *y, const struct tensor *gate_up)
{
    check_gated(y, gate_up);
    if (!is_empty(y))
        b->ops->silu_mul(b, y, gate_up);
}

void op_gelu_mul(struct backend *b, struct tensor *y, const struct tensor *gate_up)
{
    check_gated(y, gate_up);
    if (!is_empty(y))
        b->ops->gelu_mul(b, y, gate_up);
}

void op_add(struct backend *b, struct tensor *x, const struct tensor *y)
{
    check_tensor(x);
    check_tensor(y);
    ASSERT(x->rows == y->rows && x->columns == y->columns);
    if (!is_empty(x))
        b->ops->add(b, x, y);
}

void op_add_bias(struct backend *b, struct tensor *x, const float *bias)
{
    check_tensor(x);
    if (!is_empty(x))
        b->ops->add_bias(b, x, bias);
}

void op_scale(struct backend *b, struct tensor *x, float factor)
{
    check_tensor(x);
    if (!is_empty(x))
        b->ops->scale(b, x, factor);
}

void op_softcap(struct backend *b, struct tensor *x, float cap)
{
    check_tensor(x);
    ASSERT(cap > 0);
    if (!is_empty(x))
        b->ops->softcap(b, x, cap);
}

void op_head_norm(struct backend *b, struct tensor *x, uint32_t dim, const float *w, float eps)
{
    check_tensor(x);
    ASSERT(dim > 0 && x->columns % dim == 0);
    if (!is_empty(x))
        b->ops->head_norm(b, x, dim, w, eps);
}

void op_square_sums(struct backend *b, float *sums, const struct tensor *x)
{
    check_tensor(x);
    b->ops->square_sums(b, sums, x); /* no columns: sums of 0 */
}

void op_norm_by_sums(struct backend *b, struct tensor *x, const float *sums, uint32_t count,
                     const float *w, float eps)
{
    check_tensor(x);
    ASSERT(count >= x->columns);
    if (!is_empty(x))
        b->ops->norm_by_sums(b, x, sums, count, w, eps);
}

void op_copy_heads(struct backend *b, struct tensor *y, const struct tensor *x,
                   const struct head_copy *copy)
{
    check_tensor(x);
    check_tensor(y);
    if (copy->heads == 0 || copy->dim == 0 || y->rows == 0)
        return;
    ASSERT(x->rows == y->rows && (copy->y_step >= copy->dim || copy->heads == 1));
    ASSERT((uint64_t)(copy->heads - 1) * copy->x_step + copy->dim <= x->columns);
    ASSERT((uint64_t)(copy->heads - 1) * copy->y_step + copy->dim <= y->columns);
    b->ops->copy_heads(b, y, x, copy);
}

void op_route(struct backend *b, uint32_t *ret_ids, float *ret_weights, const struct tensor *logits,
              const float *bias, const struct router *router)
{
    check_tensor(logits);
    ASSERT(router->experts > 0 && router->experts <= ROUTER_EXPERTS_MAX);
    ASSERT(logits->columns == router->experts && router->groups > 0);
    ASSERT(router->experts % router->groups == 0);
    ASSERT(router->groups_chosen > 0 && router->groups_chosen <= router->groups);
    ASSERT(router->chosen > 0 &&
           router->chosen <= router->experts / router->groups * router->groups_chosen);
    if (!is_empty(logits))
        b->ops->route(b, ret_ids, ret_weights, logits, bias, router);
}

void op_scatter_add(struct backend *b, struct tensor *y, const struct tensor *x,
                    const uint32_t *rows, const float *scale)
{
    check_tensor(x);
    check_tensor(y);
    ASSERT(y->columns == x->columns);
    for (uint32_t i = 0; i < x->rows; i++)
        ASSERT(rows[i] < y->rows);
    if (!is_empty(x))
        b->ops->scatter_add(b, y, x, rows, scale);
}

void op_gather_rows(struct backend *b, struct tensor *y, const struct tensor *x,
                    const uint32_t *rows)
{
    check_tensor(x);
    check_tensor(y);
    ASSERT(y->columns == x->columns);
    for (uint32_t i = 0; i < y->rows; i++)
        ASSERT(rows[i] < x->rows);
    if (!is_empty(y))
        b->ops->gather_rows(b, y, x, rows);
}

static void check_lora_group(const struct lora_group *group, const struct tensor *y,
                             const struct tensor *low)
{
    uint32_t ranks = 0;
    ASSERT(group->terms_count <= LORA_TERMS_MAX);
    for (uint32_t i = 0; i < group->rows_count; i++)
        ASSERT(group->rows[i] < y->rows && (i == 0 || group->rows[i] > group->rows[i - 1]));
    for (uint32_t i = 0; i < group->terms_count; i++) {
        const struct lora_term *term = &group->terms[i];
        ASSERT(term->rank > 0 && term->rank <= LORA_RANK_MAX && term->columns > 0);
        ASSERT(term->first + term->columns <= y->columns);
        ranks += lora_padded(term->rank);
    }
    ASSERT(ranks <= low->columns);
}

void op_lora_add(struct backend *b, struct tensor *y, const struct tensor *x, struct tensor *low,
                 const struct lora_group *groups, size_t count)
{
    check_tensor(x);
    check_tensor(y);
    check_tensor(low);
    ASSERT(y->rows == x->rows && low->rows >= x->rows);
    for (size_t i = 0; i < count; i++)
        check_lora_group(&groups[i], y, low);
    if (count > 0 && !is_empty(x) && !is_empty(y))
        b->ops->lora_add(b, y, x, low, groups, count);
}

void op_run_pieces(struct backend *b, op_piece_fn fn, void *context, uint32_t count)
{
    if (b->ops->run_pieces != NULL && count > 1) {
        b->ops->run_pieces(b, fn, context, count);
        return;
    }
    for (uint32_t piece = 0; piece < count; piece++)
        fn(context, piece);
}

const char *kv_dtype_name(enum kv_dtype dtype)
{
    static const char *const names[KV_DTYPES] = {"bfloat16", "int8"};
    ASSERT(dtype < KV_DTYPES);
    return names[dtype];
}

int op_kv_pool_new(struct backend *b, uint32_t blocks, uint32_t layers, uint32_t kv_heads,
                   uint32_t head_dim, struct kv_pool **ret_pool, struct errmsg *err)
{
    ASSERT(blocks > 0 && layers > 0 && kv_heads > 0);
    ASSERT(head_dim > 0 && head_dim <= HEAD_DIM_MAX);
    return b->ops->kv_pool_new(b, blocks, layers, kv_heads, head_dim, ret_pool, err);
}

void op_kv_pool_free(struct backend *b, struct kv_pool *pool)
{
    if (pool != NULL)
        b->ops->kv_pool_free(b, pool);
}

size_t op_kv_block_bytes(struct backend *b, uint32_t layers, uint32_t kv_heads, uint32_t head_dim)
{
    return b->ops->kv_block_bytes(b, layers, kv_heads, head_dim);
}

void op_copy_blocks(struct backend *b, struct kv_pool *pool, uint32_t from, uint32_t to,
                    uint32_t tokens)
{
    ASSERT(tokens <= KV_BLOCK_TOKENS && from < pool->blocks && to < pool->blocks);
    if (tokens > 0 && from != to)
        b->ops->copy_blocks(b, pool, from, to, tokens);
}

void op_kv_block_read(struct backend *b, const struct kv_pool *pool, uint32_t block,
                      void *ret_bytes)
{
    ASSERT(block < pool->blocks);
    b->ops->kv_block_read(b, pool, block, ret_bytes);
}

void op_kv_block_write(struct backend *b, struct kv_pool *pool, uint32_t block, const void *bytes)
{
    ASSERT(block < pool->blocks);
    b->ops->kv_block_write(b, pool, block, bytes);
}

int op_alloc(struct backend *b, size_t bytes, void **ret_pointer)
{
    return b->ops->alloc(b, bytes, ret_pointer);
}

void op_free(struct backend *b, void *pointer, size_t bytes)
{
    if (pointer != NULL)
        b->ops->free(b, pointer, bytes);
}
