/* attention.c - one attention sublayer of one rank.
 *
 *   plain    qkv = normed Wqkv + bias      norm of q and k      rope, KV write      attention   Wo
 *   latent   q = norm(normed Wqa) Wqb      c, k_rope = normed Wkva     k, v = norm(c) Wkvb
 *            qkv = q | k_rope and k per head | v padded to a key's length         then as above
 *
 * Why latent attention is spelt out: keys and values per head are what op_attention knows, and
 * every promise about its bits holds at once. The price is cache: heads * dims instead of kv_rank.
 * Invariant: all ranks make the same calls of the communicator. */
#include <string.h>

#include "proto/base/assert.h"
#include "worker/model/decoder_private.h"

/* Columns [first, first + count) of t. */
static struct tensor columns_of(const struct tensor *t, uint32_t first, uint32_t count)
{
    ASSERT(first + count <= t->columns);
    return (struct tensor){t->data + first, t->rows, count, t->stride};
}

/* OLMo2: one norm over all heads of q, one over all of k. Ranks sum their squares; a KV head that
 * several ranks hold counts on the first of them. */
static int norm_all(struct decoder *decoder, const struct layer_weights *w, struct tensor *q,
                    struct tensor *k)
{
    const struct decoder_settings *s = &decoder->settings;
    float eps = s->config->norm_eps;
    if (s->shard->ranks == 1) {
        op_rmsnorm(s->backend, q, q, w->q_norm, eps);
        op_rmsnorm(s->backend, k, k, w->k_norm, eps);
        return 0;
    }
    float *q_sums = decoder->sums, *k_sums = decoder->sums + q->rows;
    uint32_t dim = s->config->head_dim, repeated = s->shard->q_offset > 0 ? dim : 0;
    memset(decoder->sums, 0, 2 * (size_t)q->rows * sizeof(float));
    if (q->columns > 0) {
        struct tensor own = columns_of(k, repeated, k->columns - repeated);
        op_square_sums(s->backend, q_sums, q);
        op_square_sums(s->backend, k_sums, &own);
    }
    int r = comm_all_reduce_sum(s->comm, decoder->sums, 2 * (size_t)q->rows);
    if (r < 0)
        return r;
    op_norm_by_sums(s->backend, q, q_sums, s->config->q_heads * dim, w->q_norm, eps);
    op_norm_by_sums(s->backend, k, k_sums, s->config->kv_heads * dim, w->k_norm, eps);
    return 0;
}

static int make_plain(struct decoder *decoder, uint32_t layer, const struct tensor *normed,
                      struct tensor *qkv)
{
    const struct layer_weights *w = &decoder->settings.weights->layers[layer];
    const struct decoder_settings *s = &decoder->settings;
    const struct model_config *c = s->config;
    uint32_t dim = c->head_dim, q_columns = decoder->heads.q_heads * dim;
    uint32_t kv_columns = decoder->heads.kv_heads * dim;
    struct tensor q = columns_of(qkv, 0, q_columns), k = columns_of(qkv, q_columns, kv_columns);
    if (w->qkv != NULL)
        op_matmul(s->backend, qkv, normed, w->qkv, false);
    decoder_adapt(decoder, layer, LORA_QKV, qkv, normed);
    if (w->qkv_bias != NULL)
        op_add_bias(s->backend, qkv, w->qkv_bias);
    if (model_has(c, MODEL_QK_NORM_ALL))
        return norm_all(decoder, w, &q, &k);
    if (model_has(c, MODEL_QK_NORM_OWN)) {
        op_layernorm(s->backend, &q, &q, dim, w->q_norm, c->norm_eps);
        op_layernorm(s->backend, &k, &k, dim, w->k_norm, c->norm_eps);
    }
    if (model_has(c, MODEL_QK_NORM)) {
        op_head_norm(s->backend, &q, dim, w->q_norm, c->norm_eps);
        op_head_norm(s->backend, &k, dim, w->k_norm, c->norm_eps);
    }
    return 0;
}

/* Head by head: [rotated | not rotated] of k, and v with zeros behind it. */
static void place_latent(struct decoder *decoder, struct tensor *qkv, const struct tensor *down,
                         const struct tensor *up)
{
    const struct model_config *c = decoder->settings.config;
    struct backend *backend = decoder->settings.backend;
    uint32_t heads = decoder->heads.q_heads, dim = c->head_dim;
    uint32_t rope_dim = c->latent.rope_dim, nope = c->latent.nope_dim;
    struct tensor k = columns_of(qkv, heads * dim, heads * dim);
    struct tensor k_plain = columns_of(&k, rope_dim, k.columns - rope_dim);
    struct tensor v = columns_of(qkv, 2 * heads * dim, heads * dim);
    struct tensor shared = columns_of(down, c->latent.kv_rank, rope_dim);
    struct tensor up_v = columns_of(up, nope, up->columns - nope);
    const struct head_copy rotated = {heads, rope_dim, 0, dim};
    const struct head_copy plain = {heads, nope, nope + c->value_dim, dim};
    const struct head_copy value = {heads, c->value_dim, nope + c->value_dim, dim};
    for (uint32_t i = 0; i < v.rows && c->value_dim < dim; i++)
        memset(v.data + (size_t)i * v.stride, 0, v.columns * sizeof(float));
    op_copy_heads(backend, &k, &shared, &rotated);
    op_copy_heads(backend, &k_plain, up, &plain);
    op_copy_heads(backend, &v, &up_v, &value);
}

static void make_latent(struct decoder *decoder, const struct layer_weights *w,
                        const struct tensor *normed, struct tensor *qkv)
{
    const struct decoder_settings *s = &decoder->settings;
    const struct latent_config *l = &s->config->latent;
    float eps = s->config->norm_eps;
    uint32_t heads = decoder->heads.q_heads, rows = normed->rows;
    struct tensor q = columns_of(qkv, 0, heads * s->config->head_dim);
    struct tensor down = tensor_of(decoder->latent, rows, l->kv_rank + l->rope_dim);
    struct tensor up = tensor_of(down.data + (size_t)rows * down.columns, rows,
                                 heads * (l->nope_dim + s->config->value_dim));
    struct tensor q_low = tensor_of(up.data + (size_t)rows * up.columns, rows, l->q_rank);
    struct tensor c = columns_of(&down, 0, l->kv_rank);
    if (l->q_rank > 0) {
        op_matmul(s->backend, &q_low, normed, w->q_a, false);
        op_rmsnorm(s->backend, &q_low, &q_low, w->q_a_norm, eps);
    }
    op_matmul(s->backend, &q, l->q_rank > 0 ? &q_low : normed, w->q_b, false);
    op_matmul(s->backend, &down, normed, w->kv_a, false);
    op_rmsnorm(s->backend, &c, &c, w->kv_a_norm, eps);
    op_matmul(s->backend, &up, &c, w->kv_b, false);
    place_latent(decoder, qkv, &down, &up);
}

/* Values of a latent head are shorter than its keys: close the gaps. */
static struct tensor close_gaps(struct decoder *decoder, const struct tensor *out)
{
    const struct model_config *c = decoder->settings.config;
    uint32_t heads = decoder->heads.q_heads;
    struct tensor closed = tensor_of(decoder->latent, out->rows, heads * c->value_dim);
    const struct head_copy copy = {heads, c->value_dim, c->head_dim, c->value_dim};
    op_copy_heads(decoder->settings.backend, &closed, out, &copy);
    return closed;
}

/* Rows of x and of attention's output whose logits are wanted; x then stands in decoder->head_in.
 * norm: what a parallel block's FFN reads x by, NULL: none. */
static void keep_outputs(struct decoder *decoder, struct tensor *x, struct tensor *out,
                         const float *norm, const struct step *step)
{
    struct backend *backend = decoder->settings.backend;
    struct tensor rows = tensor_of(decoder->head_in, step->outputs, x->columns);
    struct tensor kept = decoder_inner(decoder->wide, step->outputs, out->columns);
    if (step->outputs == step->rows)
        return;
    op_gather_rows(backend, &rows, x, step->out_row);
    op_gather_rows(backend, &kept, out, step->out_row);
    *x = rows;
    *out = kept;
    (void)decoder_normed(decoder, x, norm);
}

int decoder_attend(struct decoder *decoder, uint32_t layer, struct tensor *x,
                   const struct step *step)
{
    const struct decoder_settings *s = &decoder->settings;
    const struct model_config *c = s->config;
    const struct layer_weights *w = &s->weights->layers[layer];
    const struct heads *heads = &decoder->heads;
    uint8_t kind = c->layer_kinds[layer];
    uint32_t q_columns = heads->q_heads * heads->head_dim;
    struct tensor qkv =
        decoder_inner(decoder->wide, x->rows, q_columns + 2 * heads->kv_heads * heads->head_dim);
    struct tensor out = decoder_inner(decoder->narrow, x->rows, q_columns);
    const struct attention_rule rule = {.scale = c->attention_scale,
                                        .softcap = c->attention_softcap,
                                        .window = (kind & LAYER_SLIDING) != 0 ? c->window : 0};
    const struct rope *rope = &decoder->rope[(kind & LAYER_NO_ROPE) != 0   ? ROPE_NONE
                                             : (kind & LAYER_SLIDING) != 0 ? ROPE_LOCAL
                                                                           : ROPE_FULL];
    struct tensor normed = decoder_normed(decoder, x, w->attention_norm);
    bool last = layer + 1 == c->layers && !decoder_adapts(decoder);
    bool wanted = !last || step->outputs > 0;
    int r = 0;
    if (!model_has(c, MODEL_LATENT))
        r = make_plain(decoder, layer, &normed, &qkv);
    else if (heads->q_heads > 0)
        make_latent(decoder, w, &normed, &qkv);
    if (r < 0)
        return r;
    if (heads->q_heads > 0) {
        bool slides = decoder_slides(decoder, layer);
        struct kv_pool *kv = slides ? decoder->window_kv : decoder->kv;
        struct step own = *step;
        own.table = slides ? step->window_table : step->table;
        op_rope(s->backend, &qkv, heads, rope, kv, decoder->kv_layer[layer], &own);
        if (wanted)
            op_attention(s->backend, &out, &qkv, heads, kv, decoder->kv_layer[layer], &own, &rule);
        if (wanted && c->value_dim < c->head_dim)
            out = close_gaps(decoder, &out);
    }
    if (last)
        keep_outputs(decoder, x, &out, model_has(c, MODEL_PARALLEL) ? w->attention_norm : NULL,
                     step);
    const struct addition addition = {.bias = w->output_bias,
                                      .norm = w->post_attention_norm,
                                      .half = decoder_joins(decoder) ? HALF_FIRST : HALF_NONE,
                                      .layer = layer,
                                      .site = LORA_OUTPUT};
    return wanted ? decoder_add_product(decoder, x, &out, w->output, &addition) : 0;
}
