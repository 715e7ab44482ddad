/* decoder.c - the forward pass of one rank over one step.
 *
 *   x = embed(ids)
 *   per layer   normed = norm(x)   qkv = normed Wqkv   rope, KV write   attention   part = a Wo
 *               x += sum over ranks of part
 *               normed = norm(x)   gate_up = normed Wgu   silu(gate) * up   part = s Wd
 *               x += sum over ranks of part
 *   logits = norm(x[out_row]) Whead, gathered to rank 0
 *
 * A single rank adds straight into x. A rank without heads or FFN columns contributes zeros, but
 * makes every call of the communicator, since all ranks make the same calls in the same order.
 * Why one allocation: qkv and gate_up are never alive together, nor are attention and silu outputs,
 * so they share memory; nothing is allocated on the step path.
 * Cost: rows_max * (3 hidden + wide + narrow) floats, the head's rows, and the RoPE table.
 * Invariant: with outputs == 0 no rank touches the head. */
#include "worker/model/decoder.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"

#define AREA_ALIGN 64u

struct decoder {
    struct decoder_settings settings;
    struct heads heads;
    struct rope rope;
    struct kv_pool *kv; /* NULL: this rank has no heads */
    uint32_t vocab_columns[TP_RANKS_MAX];
    void *memory;
    size_t bytes;
    float *x, *normed, *wide, *narrow, *part, *head_in, *head_out; /* areas of `memory` */
};

/* --- making ---------------------------------------------------------------------------------- */

/* Cosine and sine of every position and pair; double, so that position 100,000 is still exact. */
static void fill_rope(const struct model_config *config, uint32_t positions, float *cos_sin)
{
    uint32_t pairs = config->rotary_dims / 2;
    double *turns = mem_calloc(pairs, sizeof(*turns));
    for (uint32_t i = 0; i < pairs; i++)
        turns[i] = pow((double)config->rope_theta, -2.0 * i / config->rotary_dims) *
                   (double)config->rope_scale / (double)config->rope_divisors[i];
    for (uint32_t p = 0; p < positions; p++) {
        for (uint32_t i = 0; i < pairs; i++) {
            float *to = cos_sin + ((size_t)p * pairs + i) * 2;
            to[0] = (float)cos(p * turns[i]);
            to[1] = (float)sin(p * turns[i]);
        }
    }
    mem_free(turns);
}

struct area {
    float **place;
    size_t floats;
};

static int alloc_areas(struct decoder *decoder, float **ret_cos_sin, struct errmsg *err)
{
    const struct decoder_settings *s = &decoder->settings;
    const struct shard *shard = s->shard;
    size_t rows = s->rows_max, hidden = s->config->hidden, dim = s->config->head_dim;
    size_t qkv = (shard->q_count + 2 * (size_t)shard->kv_count) * dim;
    size_t gate_up = 2 * (size_t)shard->ffn_count;
    size_t attended = shard->q_count * dim, act = shard->ffn_count;
    bool many = shard->ranks > 1;
    const struct area areas[] = {
        {&decoder->x, rows * hidden},
        {&decoder->normed, rows * hidden},
        {&decoder->wide, rows * (qkv > gate_up ? qkv : gate_up)},
        {&decoder->narrow, rows * (attended > act ? attended : act)},
        {&decoder->part, many ? rows * hidden : 0},
        {&decoder->head_in, (size_t)s->outputs_max * hidden},
        {&decoder->head_out, many ? (size_t)s->outputs_max * shard->vocab_count : 0},
        {ret_cos_sin, (size_t)s->positions_max * s->config->rotary_dims},
    };
    size_t count = sizeof(areas) / sizeof(areas[0]), floats = 0;
    const size_t unit = AREA_ALIGN / sizeof(float);
    for (size_t i = 0; i < count; i++)
        floats += (areas[i].floats + unit - 1) / unit * unit;
    if (op_alloc(s->backend, floats * sizeof(float), &decoder->memory) < 0)
        return errmsg_set(err, -ENOMEM, "no memory for %zu bytes of activations",
                          floats * sizeof(float));
    decoder->bytes = floats * sizeof(float);
    float *at = decoder->memory;
    for (size_t i = 0; i < count; i++) {
        *areas[i].place = at;
        at += (areas[i].floats + unit - 1) / unit * unit;
    }
    return 0;
}

static int make_kv(struct decoder *decoder, struct errmsg *err)
{
    const struct decoder_settings *s = &decoder->settings;
    if (s->shard->kv_count == 0)
        return 0;
    return op_kv_pool_new(s->backend, s->kv_blocks, s->config->layers, s->shard->kv_count,
                          s->config->head_dim, &decoder->kv, err);
}

int decoder_new(const struct decoder_settings *settings, struct decoder **ret_decoder,
                struct errmsg *err)
{
    const struct model_config *config = settings->config;
    const struct shard *shard = settings->shard;
    ASSERT(settings->rows_max > 0 && settings->kv_blocks > 0 && settings->positions_max > 0);
    ASSERT(settings->comm->rank == shard->rank && settings->comm->ranks == shard->ranks);
    struct decoder *decoder = mem_zalloc(sizeof(*decoder));
    float *cos_sin = NULL;
    decoder->settings = *settings;
    decoder->heads = (struct heads){.q_heads = shard->q_count,
                                    .kv_heads = shard->kv_count,
                                    .head_dim = config->head_dim,
                                    .group = config->q_heads / config->kv_heads,
                                    .q_offset = shard->q_offset};
    for (uint32_t i = 0; i < shard->ranks; i++) {
        struct shard other;
        int r = shard_compute(config, i, shard->ranks, &other, NULL);
        ASSERT(r == 0);
        decoder->vocab_columns[i] = other.vocab_count;
    }
    int r = alloc_areas(decoder, &cos_sin, err);
    if (r == 0)
        r = make_kv(decoder, err);
    if (r < 0) {
        decoder_free(decoder);
        return r;
    }
    fill_rope(config, settings->positions_max, cos_sin);
    decoder->rope = (struct rope){.cos_sin = cos_sin,
                                  .positions = settings->positions_max,
                                  .rotary_dims = config->rotary_dims,
                                  .interleaved = config->rope_interleaved};
    *ret_decoder = decoder;
    return 0;
}

void decoder_free(struct decoder *decoder)
{
    if (decoder == NULL)
        return;
    op_kv_pool_free(decoder->settings.backend, decoder->kv);
    op_free(decoder->settings.backend, decoder->memory, decoder->bytes);
    mem_free(decoder);
}

size_t decoder_activation_bytes(const struct decoder *decoder)
{
    return decoder->bytes;
}

/* --- forward --------------------------------------------------------------------------------- */

/* x += sum over ranks of input * weight^T; NULL: this rank has no columns of it. */
static int add_reduced(struct decoder *decoder, struct tensor *x, const struct tensor *input,
                       const struct weight *weight)
{
    const struct decoder_settings *s = &decoder->settings;
    if (s->shard->ranks == 1) {
        op_matmul(s->backend, x, input, weight, true);
        return 0;
    }
    struct tensor part = tensor_of(decoder->part, x->rows, x->columns);
    size_t count = (size_t)x->rows * x->columns;
    if (weight != NULL)
        op_matmul(s->backend, &part, input, weight, false);
    else
        memset(decoder->part, 0, count * sizeof(float));
    int r = comm_all_reduce_sum(s->comm, decoder->part, count);
    if (r < 0)
        return r;
    op_add(s->backend, x, &part);
    return 0;
}

static int attend(struct decoder *decoder, uint32_t layer, struct tensor *x,
                  const struct step *step)
{
    const struct decoder_settings *s = &decoder->settings;
    const struct layer_weights *w = &s->weights->layers[layer];
    const struct heads *heads = &decoder->heads;
    uint32_t q_columns = heads->q_heads * heads->head_dim;
    struct tensor normed = tensor_of(decoder->normed, x->rows, x->columns);
    struct tensor out = tensor_of(decoder->narrow, x->rows, q_columns);
    if (heads->q_heads > 0) {
        struct tensor qkv =
            tensor_of(decoder->wide, x->rows, q_columns + 2 * heads->kv_heads * heads->head_dim);
        op_rmsnorm(s->backend, &normed, x, w->attention_norm, s->config->norm_eps);
        op_matmul(s->backend, &qkv, &normed, w->qkv, false);
        op_rope(s->backend, &qkv, heads, &decoder->rope, decoder->kv, layer, step);
        op_attention(s->backend, &out, &qkv, heads, decoder->kv, layer, step,
                     &(struct attention_rule){.scale = s->config->attention_scale,
                                              .window = s->config->window});
    }
    return add_reduced(decoder, x, &out, w->output);
}

static int feed_forward(struct decoder *decoder, uint32_t layer, struct tensor *x)
{
    const struct decoder_settings *s = &decoder->settings;
    const struct layer_weights *w = &s->weights->layers[layer];
    uint32_t columns = s->shard->ffn_count;
    struct tensor normed = tensor_of(decoder->normed, x->rows, x->columns);
    struct tensor act = tensor_of(decoder->narrow, x->rows, columns);
    if (columns > 0) {
        struct tensor gate_up = tensor_of(decoder->wide, x->rows, 2 * columns);
        op_rmsnorm(s->backend, &normed, x, w->ffn_norm, s->config->norm_eps);
        op_matmul(s->backend, &gate_up, &normed, w->gate_up, false);
        op_silu_mul(s->backend, &act, &gate_up);
    }
    return add_reduced(decoder, x, &act, w->down);
}

static int make_logits(struct decoder *decoder, const struct tensor *x, const struct step *step,
                       float *ret_logits)
{
    const struct decoder_settings *s = &decoder->settings;
    uint32_t columns = s->shard->vocab_count;
    bool alone = s->shard->ranks == 1;
    struct tensor in = tensor_of(decoder->head_in, step->outputs, x->columns);
    struct tensor out = tensor_of(alone ? ret_logits : decoder->head_out, step->outputs, columns);
    op_gather_rows(s->backend, &in, x, step->out_row);
    op_rmsnorm(s->backend, &in, &in, s->weights->final_norm, s->config->norm_eps);
    if (s->weights->head != NULL)
        op_matmul(s->backend, &out, &in, s->weights->head, false);
    if (alone)
        return 0;
    return comm_gather_columns(s->comm, decoder->head_out, step->outputs, decoder->vocab_columns,
                               ret_logits);
}

/* Our scheduler made the step, or step_ring_wait() has checked it. Ids and positions are checked by
 * the ops. */
static void check_step(const struct decoder *decoder, const struct step *step)
{
    const struct decoder_settings *s = &decoder->settings;
    ASSERT(step->rows <= s->rows_max && step->outputs <= s->outputs_max);
    ASSERT(step->row_first[0] == 0 && step->row_first[step->sequences] == step->rows);
    for (uint32_t i = 0; i < step->sequences; i++) {
        const uint32_t *table = step->table + (size_t)i * step->table_stride;
        uint32_t end = step->row_first[i + 1];
        if (end == step->row_first[i])
            continue;
        uint32_t blocks = step->position[end - 1] / KV_BLOCK_TOKENS + 1;
        ASSERT(blocks <= step->table_stride);
        for (uint32_t k = 0; k < blocks; k++)
            ASSERT(table[k] < s->kv_blocks);
    }
}

int decoder_forward(struct decoder *decoder, const struct step *step, float *ret_logits)
{
    const struct decoder_settings *s = &decoder->settings;
    if (step->rows == 0)
        return 0;
    check_step(decoder, step);
    struct tensor x = tensor_of(decoder->x, step->rows, s->config->hidden);
    op_embed(s->backend, &x, s->weights->embedding, step->ids);
    for (uint32_t layer = 0; layer < s->config->layers; layer++) {
        int r = attend(decoder, layer, &x, step);
        if (r == 0)
            r = feed_forward(decoder, layer, &x);
        if (r < 0)
            return r;
    }
    return step->outputs == 0 ? 0 : make_logits(decoder, &x, step, ret_logits);
}

void decoder_copy_block(struct decoder *decoder, uint32_t from, uint32_t to, uint32_t tokens)
{
    ASSERT(from < decoder->settings.kv_blocks && to < decoder->settings.kv_blocks);
    if (decoder->kv != NULL)
        op_copy_blocks(decoder->settings.backend, decoder->kv, from, to, tokens);
}

struct kv_pool *decoder_kv(const struct decoder *decoder)
{
    return decoder->kv;
}
