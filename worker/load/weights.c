/* weights.c - the tensors of a model file -> one rank's packed matrices and vectors.
 *
 *   qkv      rows of q, k, v of the rank's heads, stacked         column-parallel
 *   output   the columns that the rank's query heads produce      row-parallel
 *   gate_up  the rank's FFN rows of gate over those of up         column-parallel
 *   down     the rank's FFN columns                               row-parallel
 *   experts  whole ones; their router on every rank
 *   latent   q_a and kv_a on every rank, rows of q_b and kv_b of the rank's heads
 *   head     the rank's rows of the vocabulary
 *
 * A rank may hold no heads, columns or experts: those matrices are NULL and the decoder leaves
 * their terms out.
 * Why latent heads are turned around: stored as [not rotated | rotated], they are packed as
 * [rotated | not rotated], so that op_rope, which turns the first dims of a head, serves them too.
 * Cost: every byte of the shard is read once; pages of the file leave memory tensor by tensor, so
 * that the peak is the shard plus one matrix. Invariant: the file may be closed afterwards. */
#include "worker/load/weights.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "worker/load/weight_stack.h"

#define VECTOR_UNIT 16u /* floats: 64 bytes */

struct loader {
    const struct model_source *source;
    const struct model_config *config;
    const struct weights_slice *slice;
    struct backend *backend;
    struct weights *weights;
    struct errmsg *err;
    size_t vectors_used; /* floats */
    uint32_t layer;      /* being loaded */
};

/* --- vectors --------------------------------------------------------------------------------- */

static size_t padded(size_t floats)
{
    return (floats + VECTOR_UNIT - 1) / VECTOR_UNIT * VECTOR_UNIT;
}

/* At least what all vectors of a rank take. */
static size_t vector_floats(const struct model_config *c)
{
    size_t heads = c->q_heads + 2 * (size_t)c->kv_heads;
    size_t wide = c->ffn > c->experts.shared_ffn ? c->ffn : c->experts.shared_ffn;
    size_t layer = 6 * padded(c->hidden) + 3 * padded(heads * c->head_dim) + 2 * padded(wide) +
                   padded(c->experts.count) + padded(c->latent.q_rank) + padded(c->latent.kv_rank);
    return c->layers * layer + padded(c->hidden);
}

static int alloc_vectors(struct loader *loader)
{
    struct weights *weights = loader->weights;
    size_t bytes = vector_floats(loader->config) * sizeof(float);
    void *memory = NULL;
    if (op_alloc(loader->backend, bytes, &memory) < 0)
        return errmsg_set(loader->err, -ENOMEM, "no memory for %zu bytes of norms and biases",
                          bytes);
    weights->vectors = memory;
    weights->vectors_bytes = bytes;
    return 0;
}

static float *take_vector(struct loader *loader, size_t floats)
{
    float *vector = loader->weights->vectors + loader->vectors_used;
    loader->vectors_used += padded(floats);
    ASSERT(loader->vectors_used * sizeof(float) <= loader->weights->vectors_bytes);
    loader->weights->bytes += floats * sizeof(float);
    return vector;
}

/* Values [first, first + count) of a stored vector of `total`, plus `offset`, into `to`. */
static int read_vector(const struct loader *loader, enum tensor_role role, uint32_t total,
                       uint32_t first, uint32_t count, float offset, float *to)
{
    char name[TENSOR_NAME_MAX];
    struct model_tensor tensor;
    bool named = tensor_name(loader->config, role, loader->layer, 0, name);
    ASSERT(named);
    int r = model_source_tensor(loader->source, name, &tensor, loader->err);
    if (r == -ENOENT)
        return errmsg_set(loader->err, -EINVAL, "tensor '%s' is missing", name);
    if (r < 0)
        return r;
    bool heads = (role == TENSOR_Q_NORM || role == TENSOR_K_NORM) && /* a row each */
                 model_has(loader->config, MODEL_QK_NORM_OWN) &&
                 tensor.columns == loader->config->head_dim;
    if (tensor.columns * (heads ? tensor.rows : 1) != total || (tensor.rows != 1 && !heads) ||
        tensor.planes != 1 || tensor.fp8 || dtype_is_quantised(tensor.dtype))
        return errmsg_set(loader->err, -EINVAL, "tensor '%s' is not %u unquantised values", name,
                          total);
    const char *data = tensor.data;
    dtype_to_f32(tensor.dtype, data + (size_t)first * (tensor.bytes / total), to, count);
    for (uint32_t i = 0; i < count; i++)
        to[i] += offset;
    return 0;
}

/* A whole or sliced vector, if the model has it in this layer. */
static int load_vector(struct loader *loader, enum tensor_role role, uint32_t total, uint32_t first,
                       uint32_t count, float **ret_vector)
{
    bool norm = role == TENSOR_FINAL_NORM ||
                (role >= TENSOR_ATTENTION_NORM && role <= TENSOR_POST_FFN_NORM) ||
                role == TENSOR_Q_NORM || role == TENSOR_K_NORM;
    float offset = norm && model_has(loader->config, MODEL_NORM_PLUS_1) ? 1 : 0;
    if (!tensor_is_used(loader->config, role, loader->layer))
        return 0;
    *ret_vector = take_vector(loader, count);
    return read_vector(loader, role, total, first, count, offset, *ret_vector);
}

/* --- matrices -------------------------------------------------------------------------------- */

struct rows_wanted {
    enum tensor_role role;
    uint32_t expert, rows, columns; /* as stored */
    uint32_t first, count;
    const uint32_t *order;
};

static int add_rows(const struct loader *loader, struct weight_stack *stack,
                    const struct rows_wanted *want)
{
    char name[TENSOR_NAME_MAX];
    const struct model_config *c = loader->config;
    bool expert = want->role >= TENSOR_EXPERT_GATE, planes = expert && c->from_gguf;
    bool named = tensor_name(c, want->role, loader->layer, want->expert, name);
    ASSERT(named);
    const struct stored_rows rows = {.name = name,
                                     .planes = planes ? c->experts.count : 1,
                                     .plane = planes ? want->expert : 0,
                                     .rows = want->rows,
                                     .columns = want->columns,
                                     .first = want->first,
                                     .count = want->count,
                                     .order = want->order};
    stack->source = loader->source;
    return weight_stack_add(stack, &rows, loader->err);
}

static int pack(const struct loader *loader, struct weight_stack *stack, enum weight_use use,
                struct weight **ret_weight)
{
    int r = weight_stack_pack(stack, loader->backend, use, ret_weight, loader->err);
    if (r == 0 && *ret_weight != NULL)
        loader->weights->bytes += op_weight_bytes(*ret_weight);
    return r;
}

/* `parts` matrices' rows, stacked. */
static int load_rows(const struct loader *loader, const struct rows_wanted *want, size_t parts,
                     enum weight_use use, struct weight **ret_weight)
{
    struct weight_stack stack = {.count = 0};
    int r = 0;
    for (size_t i = 0; i < parts && r == 0; i++)
        r = add_rows(loader, &stack, &want[i]);
    if (r == 0)
        r = pack(loader, &stack, use, ret_weight);
    weight_stack_done(&stack);
    return r;
}

/* A row-parallel matrix [hidden, columns]: this rank's columns. */
static int load_columns(const struct loader *loader, enum tensor_role role, uint32_t expert,
                        uint32_t columns, uint32_t first, uint32_t count,
                        struct weight **ret_weight)
{
    struct weight_stack stack = {.count = 0};
    uint32_t hidden = loader->config->hidden;
    const struct rows_wanted want = {
        .role = role, .expert = expert, .rows = hidden, .columns = columns, .count = hidden};
    int r = add_rows(loader, &stack, &want);
    if (r == 0 && count > 0) {
        r = weight_stack_cut(&stack, first, count, loader->err);
        if (r == 0)
            r = pack(loader, &stack, WEIGHT_MATMUL, ret_weight);
    }
    weight_stack_done(&stack);
    return r;
}

/* --- attention ------------------------------------------------------------------------------- */

static int load_qkv(struct loader *loader, struct layer_weights *layer)
{
    const struct model_config *c = loader->config;
    const struct weights_slice *s = loader->slice;
    uint32_t dim = c->head_dim, q = c->q_heads * dim, kv = c->kv_heads * dim;
    bool fused = model_has(c, MODEL_FUSED_QKV), bias = model_has(c, MODEL_QKV_BIAS);
    uint32_t all = q + 2 * kv;
    const struct rows_wanted want[] = {
        {.role = fused ? TENSOR_QKV : TENSOR_Q,
         .rows = fused ? all : q,
         .columns = c->hidden,
         .first = s->q_first * dim,
         .count = s->q_count * dim},
        {.role = fused ? TENSOR_QKV : TENSOR_K,
         .rows = fused ? all : kv,
         .columns = c->hidden,
         .first = (fused ? q : 0) + s->kv_first * dim,
         .count = s->kv_count * dim},
        {.role = fused ? TENSOR_QKV : TENSOR_V,
         .rows = fused ? all : kv,
         .columns = c->hidden,
         .first = (fused ? q + kv : 0) + s->kv_first * dim,
         .count = s->kv_count * dim},
    };
    static const enum tensor_role biases[] = {TENSOR_Q_BIAS, TENSOR_K_BIAS, TENSOR_V_BIAS};
    int r = load_rows(loader, want, 3, WEIGHT_MATMUL, &layer->qkv);
    if (!bias)
        return r;
    layer->qkv_bias = take_vector(loader, want[0].count + 2 * (size_t)want[1].count);
    float *to = layer->qkv_bias;
    for (unsigned i = 0; i < 3 && r == 0; to += want[i++].count)
        r = read_vector(loader, fused ? TENSOR_QKV_BIAS : biases[i], want[i].rows, want[i].first,
                        want[i].count, 0, to);
    return r;
}

/* Where the rows of the rank's latent query heads are stored, rotated part first. */
static uint32_t *latent_order(const struct model_config *c, uint32_t heads)
{
    uint32_t *order = mem_calloc((size_t)heads * c->head_dim + 1, sizeof(*order));
    for (uint32_t h = 0; h < heads; h++) {
        for (uint32_t d = 0; d < c->head_dim; d++)
            order[h * c->head_dim + d] =
                h * c->head_dim +
                (d < c->latent.rope_dim ? c->latent.nope_dim + d : d - c->latent.rope_dim);
    }
    return order;
}

/* kv_b out of its halves: of each head the rows of k, which are stored turned around, and of v. */
static int load_split_kv_b(const struct loader *loader, struct layer_weights *layer)
{
    const struct model_config *c = loader->config;
    const struct latent_config *l = &c->latent;
    struct weight_stack stack = {.source = loader->source};
    char k_name[TENSOR_NAME_MAX], v_name[TENSOR_NAME_MAX];
    (void)tensor_name(c, TENSOR_K_B, loader->layer, 0, k_name);
    (void)tensor_name(c, TENSOR_V_B, loader->layer, 0, v_name);
    const struct stored_heads k = {.name = k_name, .turned = true, .rows = l->nope_dim};
    const struct stored_heads v = {.name = v_name, .rows = c->value_dim};
    int r = weight_stack_add_heads(&stack, &k, &v,
                                   &(struct heads_wanted){.heads = c->q_heads,
                                                          .columns = l->kv_rank,
                                                          .first = loader->slice->q_first,
                                                          .count = loader->slice->q_count},
                                   loader->err);
    if (r == 0)
        r = pack(loader, &stack, WEIGHT_MATMUL, &layer->kv_b);
    weight_stack_done(&stack);
    return r;
}

static int load_latent(struct loader *loader, struct layer_weights *layer)
{
    const struct model_config *c = loader->config;
    const struct weights_slice *s = loader->slice;
    const struct latent_config *l = &c->latent;
    uint32_t up = l->nope_dim + c->value_dim, down = l->kv_rank + l->rope_dim;
    uint32_t *order = latent_order(c, s->q_count);
    const struct rows_wanted q_a = {
        .role = TENSOR_Q_A, .rows = l->q_rank, .columns = c->hidden, .count = l->q_rank};
    const struct rows_wanted q_b = {.role = l->q_rank > 0 ? TENSOR_Q_B : TENSOR_Q,
                                    .rows = c->q_heads * c->head_dim,
                                    .columns = l->q_rank > 0 ? l->q_rank : c->hidden,
                                    .first = s->q_first * c->head_dim,
                                    .count = s->q_count * c->head_dim,
                                    .order = order};
    const struct rows_wanted kv_a = {
        .role = TENSOR_KV_A, .rows = down, .columns = c->hidden, .count = down};
    const struct rows_wanted kv_b = {.role = TENSOR_KV_B,
                                     .rows = c->q_heads * up,
                                     .columns = l->kv_rank,
                                     .first = s->q_first * up,
                                     .count = s->q_count * up};
    int r = load_vector(loader, TENSOR_Q_A_NORM, l->q_rank, 0, l->q_rank, &layer->q_a_norm);
    if (r == 0)
        r = load_vector(loader, TENSOR_KV_A_NORM, l->kv_rank, 0, l->kv_rank, &layer->kv_a_norm);
    if (r == 0 && l->q_rank > 0)
        r = load_rows(loader, &q_a, 1, WEIGHT_MATMUL, &layer->q_a);
    if (r == 0)
        r = load_rows(loader, &q_b, 1, WEIGHT_MATMUL, &layer->q_b);
    if (r == 0)
        r = load_rows(loader, &kv_a, 1, WEIGHT_MATMUL, &layer->kv_a);
    if (r == 0)
        r = model_has(c, MODEL_SPLIT_KV_B)
                ? load_split_kv_b(loader, layer)
                : load_rows(loader, &kv_b, 1, WEIGHT_MATMUL, &layer->kv_b);
    mem_free(order);
    return r;
}

static int load_attention(struct loader *loader, struct layer_weights *layer)
{
    const struct model_config *c = loader->config;
    const struct weights_slice *s = loader->slice;
    uint32_t dim = c->head_dim, hidden = c->hidden;
    bool all = model_has(c, MODEL_QK_NORM_ALL | MODEL_QK_NORM_OWN);
    int r = load_vector(loader, TENSOR_ATTENTION_NORM, hidden, 0, hidden, &layer->attention_norm);
    if (r == 0)
        r = load_vector(loader, TENSOR_POST_ATTENTION_NORM, hidden, 0, hidden,
                        &layer->post_attention_norm);
    if (r == 0)
        r = load_vector(loader, TENSOR_Q_NORM, all ? c->q_heads * dim : dim,
                        all ? s->q_first * dim : 0, all ? s->q_count * dim : dim, &layer->q_norm);
    if (r == 0)
        r = load_vector(loader, TENSOR_K_NORM, all ? c->kv_heads * dim : dim,
                        all ? s->kv_first * dim : 0, all ? s->kv_count * dim : dim, &layer->k_norm);
    if (r == 0)
        r = load_vector(loader, TENSOR_OUTPUT_BIAS, hidden, 0, hidden, &layer->output_bias);
    if (r == 0)
        r = model_has(c, MODEL_LATENT) ? load_latent(loader, layer) : load_qkv(loader, layer);
    if (r == 0)
        r = load_columns(loader, TENSOR_OUTPUT, 0, c->q_heads * c->value_dim,
                         s->q_first * c->value_dim, s->q_count * c->value_dim, &layer->output);
    return r;
}

/* --- FFN ------------------------------------------------------------------------------------- */

/* Gate over up of one FFN, and down: columns [first, first + count) of `ffn`. */
struct ffn_wanted {
    enum tensor_role gate, up, down;
    uint32_t expert, ffn, first, count;
};

static int load_ffn(const struct loader *loader, const struct ffn_wanted *f,
                    struct weight **ret_gate_up, struct weight **ret_down)
{
    bool fused = f->gate == TENSOR_GATE_UP;
    uint32_t rows = fused ? 2 * f->ffn : f->ffn, hidden = loader->config->hidden;
    const struct rows_wanted want[] = {
        {f->gate, f->expert, rows, hidden, f->first, f->count, NULL},
        {f->up, f->expert, rows, hidden, (fused ? f->ffn : 0) + f->first, f->count, NULL},
    };
    int r = load_rows(loader, want, 2, WEIGHT_MATMUL, ret_gate_up);
    if (r < 0)
        return r;
    return load_columns(loader, f->down, f->expert, f->ffn, f->first, f->count, ret_down);
}

static int load_ffn_biases(struct loader *loader, struct layer_weights *layer)
{
    const struct model_config *c = loader->config;
    const struct weights_slice *s = loader->slice;
    if (!tensor_is_used(c, TENSOR_DOWN_BIAS, loader->layer))
        return 0;
    layer->gate_up_bias = take_vector(loader, 2 * (size_t)s->ffn_count);
    int r = read_vector(loader, TENSOR_GATE_BIAS, c->ffn, s->ffn_first, s->ffn_count, 0,
                        layer->gate_up_bias);
    if (r == 0)
        r = read_vector(loader, TENSOR_UP_BIAS, c->ffn, s->ffn_first, s->ffn_count, 0,
                        layer->gate_up_bias + s->ffn_count);
    if (r == 0)
        r = load_vector(loader, TENSOR_DOWN_BIAS, c->hidden, 0, c->hidden, &layer->down_bias);
    return r;
}

static int load_experts(struct loader *loader, struct layer_weights *layer)
{
    const struct model_config *c = loader->config;
    const struct weights_slice *s = loader->slice;
    const struct experts_config *e = &c->experts;
    const struct rows_wanted router = {
        .role = TENSOR_ROUTER, .rows = e->count, .columns = c->hidden, .count = e->count};
    const struct rows_wanted shared = {
        .role = TENSOR_SHARED_ROUTER, .rows = 1, .columns = c->hidden, .count = 1};
    layer->expert_gate_up = mem_calloc(s->experts_count + 1, sizeof(struct weight *));
    layer->expert_down = mem_calloc(s->experts_count + 1, sizeof(struct weight *));
    int r = load_rows(loader, &router, 1, WEIGHT_MATMUL, &layer->router);
    if (r == 0)
        r = load_vector(loader, TENSOR_ROUTER_BIAS, e->count, 0, e->count, &layer->router_bias);
    if (r == 0 && tensor_is_used(c, TENSOR_SHARED_ROUTER, loader->layer))
        r = load_rows(loader, &shared, 1, WEIGHT_MATMUL, &layer->shared_router);
    for (uint32_t i = 0; i < s->experts_count && r == 0; i++) {
        const struct ffn_wanted f = {.gate = TENSOR_EXPERT_GATE,
                                     .up = TENSOR_EXPERT_UP,
                                     .down = TENSOR_EXPERT_DOWN,
                                     .expert = s->experts_first + i,
                                     .ffn = e->ffn,
                                     .count = e->ffn};
        r = load_ffn(loader, &f, &layer->expert_gate_up[i], &layer->expert_down[i]);
    }
    return r;
}

static int load_feed_forward(struct loader *loader, struct layer_weights *layer)
{
    const struct model_config *c = loader->config;
    const struct weights_slice *s = loader->slice;
    bool experts = (c->layer_kinds[loader->layer] & LAYER_EXPERTS) != 0;
    bool fused = model_has(c, MODEL_FUSED_GATE_UP) && !experts;
    struct ffn_wanted f = {.gate = fused ? TENSOR_GATE_UP : TENSOR_GATE,
                           .up = fused ? TENSOR_GATE_UP : TENSOR_UP,
                           .down = TENSOR_DOWN,
                           .ffn = c->ffn,
                           .first = s->ffn_first,
                           .count = s->ffn_count};
    if (experts)
        f = (struct ffn_wanted){.gate = TENSOR_SHARED_GATE,
                                .up = TENSOR_SHARED_UP,
                                .down = TENSOR_SHARED_DOWN,
                                .ffn = c->experts.shared_ffn,
                                .first = s->shared_first,
                                .count = s->shared_count};
    int r = load_vector(loader, TENSOR_FFN_NORM, c->hidden, 0, c->hidden, &layer->ffn_norm);
    if (r == 0)
        r = load_vector(loader, TENSOR_POST_FFN_NORM, c->hidden, 0, c->hidden,
                        &layer->post_ffn_norm);
    if (r == 0 && f.ffn > 0)
        r = load_ffn(loader, &f, &layer->gate_up, &layer->down);
    if (r == 0)
        r = load_ffn_biases(loader, layer);
    if (r == 0 && experts)
        r = load_experts(loader, layer);
    return r;
}

/* --- all of it ------------------------------------------------------------------------------- */

static int load_vocabulary(const struct loader *loader)
{
    const struct model_config *c = loader->config;
    const struct weights_slice *s = loader->slice;
    struct weights *weights = loader->weights;
    bool tied = model_has(c, MODEL_TIED);
    const struct rows_wanted embedding = {.role = TENSOR_EMBEDDING,
                                          .rows = c->vocab_size,
                                          .columns = c->hidden,
                                          .count = c->vocab_size};
    const struct rows_wanted head = {.role = tied ? TENSOR_EMBEDDING : TENSOR_HEAD,
                                     .rows = c->vocab_size,
                                     .columns = c->hidden,
                                     .first = s->vocab_first,
                                     .count = s->vocab_count};
    int r = load_rows(loader, &embedding, 1, WEIGHT_EMBED, &weights->embedding);
    if (r < 0)
        return r;
    if (tied && s->vocab_count == c->vocab_size) {
        weights->head = weights->embedding;
        return 0;
    }
    return load_rows(loader, &head, 1, WEIGHT_MATMUL, &weights->head);
}

static void check_slice(const struct model_config *c, const struct weights_slice *s)
{
    ASSERT(s->q_first + s->q_count <= c->q_heads);
    ASSERT(s->kv_first + s->kv_count <= c->kv_heads);
    ASSERT(s->ffn_first + s->ffn_count <= c->ffn);
    ASSERT(s->shared_first + s->shared_count <= c->experts.shared_ffn);
    ASSERT(s->experts_first + s->experts_count <= c->experts.count);
    ASSERT(s->vocab_first + s->vocab_count <= c->vocab_size);
}

int weights_load(const struct model_source *source, const struct model_config *config,
                 const struct weights_slice *slice, struct backend *backend,
                 struct weights **ret_weights, struct errmsg *err)
{
    check_slice(config, slice);
    struct weights *weights = mem_zalloc(sizeof(*weights));
    weights->layers = mem_calloc(config->layers, sizeof(*weights->layers));
    weights->experts_count = slice->experts_count;
    struct loader loader = {.source = source,
                            .config = config,
                            .slice = slice,
                            .backend = backend,
                            .weights = weights,
                            .err = err};
    int r = alloc_vectors(&loader);
    if (r == 0)
        r = load_vector(&loader, TENSOR_FINAL_NORM, config->hidden, 0, config->hidden,
                        &weights->final_norm);
    if (r == 0)
        r = load_vocabulary(&loader);
    for (; loader.layer < config->layers && r == 0; loader.layer++) {
        r = load_attention(&loader, &weights->layers[loader.layer]);
        if (r == 0)
            r = load_feed_forward(&loader, &weights->layers[loader.layer]);
    }
    if (r < 0) {
        weights_free(weights, config, backend);
        return r;
    }
    *ret_weights = weights;
    return 0;
}

static void free_layer(struct layer_weights *layer, uint32_t experts, struct backend *backend)
{
    struct weight *const all[] = {layer->qkv,    layer->output,       layer->q_a,     layer->q_b,
                                  layer->kv_a,   layer->kv_b,         layer->gate_up, layer->down,
                                  layer->router, layer->shared_router};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        op_weight_free(backend, all[i]);
    for (uint32_t i = 0; i < experts && layer->expert_gate_up != NULL; i++) {
        op_weight_free(backend, layer->expert_gate_up[i]);
        op_weight_free(backend, layer->expert_down[i]);
    }
    mem_free(layer->expert_gate_up);
    mem_free(layer->expert_down);
}

void weights_free(struct weights *weights, const struct model_config *config,
                  struct backend *backend)
{
    if (weights == NULL)
        return;
    for (uint32_t i = 0; i < config->layers; i++)
        free_layer(&weights->layers[i], weights->experts_count, backend);
    if (weights->head != weights->embedding)
        op_weight_free(backend, weights->head);
    op_weight_free(backend, weights->embedding);
    op_free(backend, weights->vectors, weights->vectors_bytes);
    mem_free(weights->layers);
    mem_free(weights);
}
