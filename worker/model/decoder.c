/* decoder.c - the forward pass of one rank over one step.
 *
 *   x = embed(ids)                                                                   (* multiplier)
 *   per layer   attention.c      x += sum over ranks of attention(norm(x)) Wo        (norm, * m.)
 *               feed_forward.c   x += sum over ranks of gated(norm(x)) Wd, experts   (norm, * m.)
 *   or both of the same norm(x) (MODEL_PARALLEL): where only sums are made of them, ranks add up
 *               once a layer, attention's part and the FFN's together
 *   logits = norm(x[out_row]) Whead, gathered to rank 0                              (* m., cap)
 *
 * A single rank without a norm or factor behind a sublayer adds straight into x. A rank without
 * heads or columns contributes zeros, but makes every call of the communicator, since all ranks
 * make the same calls in the same order.
 * Why one allocation: qkv and gate_up are never alive together, nor are attention's and the gated
 * outputs, so they share memory; nothing is allocated on the step path. What a model does not use
 * is never touched and costs no memory.
 * Cost: rows_max * (4 hidden + wide + narrow) floats, the head's rows, and the RoPE tables.
 * Invariant: with outputs == 0 no rank touches the head. */
#include "worker/model/decoder.h"

#include <errno.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "worker/model/decoder_private.h"

#define AREA_ALIGN 64u

/* --- making ---------------------------------------------------------------------------------- */

struct area {
    void *place; /* of a float * or a uint32_t * */
    size_t floats;
};

static size_t max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Rows between a sublayer's two halves. Wide: qkv, or gate over up; narrow: attention's output, or
 * the gated columns. */
static void inner_floats(const struct decoder_settings *s, size_t *ret_wide, size_t *ret_narrow)
{
    const struct shard *shard = s->shard;
    size_t dim = s->config->head_dim, q = shard->q_count * dim;
    size_t ffn = max_size(shard->ffn_count, shard->shared_count);
    if (shard->experts_count > 0)
        ffn = max_size(ffn, s->config->experts.ffn);
    *ret_wide = max_size(q + 2 * shard->kv_count * dim, 2 * ffn);
    *ret_narrow = max_size(q, ffn);
}

/* Is a sublayer's result ever more than added to x? */
static bool needs_part(const struct decoder_settings *s)
{
    const uint32_t features = MODEL_POST_NORM | MODEL_OUTPUT_BIAS | MODEL_FFN_BIAS | MODEL_EXPERTS;
    return s->shard->ranks > 1 || model_has(s->config, features) || s->config->residual_scale != 1;
}

static size_t latent_floats(const struct decoder_settings *s)
{
    const struct model_config *c = s->config;
    size_t up = (size_t)s->shard->q_count * (c->latent.nope_dim + c->value_dim);
    if (!model_has(c, MODEL_LATENT))
        return 0;
    return c->latent.q_rank + c->latent.kv_rank + c->latent.rope_dim + up;
}

static bool same_rotation(const struct rope_config *a, const struct rope_config *b)
{
    bool same =
        a->theta == b->theta && a->amplitude == b->amplitude && a->long_after == b->long_after;
    for (uint32_t i = 0; i < MODEL_ROPE_PAIRS_MAX && same; i++)
        same = a->divisors[i] == b->divisors[i] && a->long_divisors[i] == b->long_divisors[i];
    return same;
}

static int alloc_areas(struct decoder *decoder, float **ret_full, float **ret_local,
                       struct errmsg *err)
{
    const struct decoder_settings *s = &decoder->settings;
    const struct shard *shard = s->shard;
    const struct experts_config *e = &s->config->experts;
    size_t rows = s->rows_max, hidden = s->config->hidden, wide = 0, narrow = 0;
    size_t table = (size_t)s->positions_max * s->config->rotary_dims;
    size_t picks = rows * e->chosen, inside = e->count > 0 ? rows * hidden : 0;
    bool many = shard->ranks > 1, shared_sums = many && model_has(s->config, MODEL_QK_NORM_ALL);
    bool local = !same_rotation(&s->config->rope, &s->config->rope_local);
    inner_floats(s, &wide, &narrow);
    const struct area areas[] = {
        {&decoder->x, rows * hidden},
        {&decoder->normed, rows * hidden},
        {&decoder->wide, rows * decoder_inner(NULL, 1, (uint32_t)wide).stride},
        {&decoder->narrow, rows * decoder_inner(NULL, 1, (uint32_t)narrow).stride},
        {&decoder->part, needs_part(s) ? rows * hidden : 0},
        {&decoder->latent, rows * latent_floats(s)},
        {&decoder->sums, shared_sums ? 2 * rows : 0},
        {&decoder->router_out, rows * e->count},
        {&decoder->chosen, picks},
        {&decoder->chosen_scale, picks},
        {&decoder->expert_rows, picks},
        {&decoder->expert_scale, picks},
        {&decoder->expert_in, inside},
        {&decoder->expert_out, inside},
        {&decoder->head_in, (size_t)s->outputs_max * hidden},
        {&decoder->head_out, many ? (size_t)s->outputs_max * shard->vocab_count : 0},
        {ret_full, table},
        {ret_local, local ? table : 0},
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
        memcpy(areas[i].place, &at, sizeof(at));
        at += (areas[i].floats + unit - 1) / unit * unit;
    }
    if (!local)
        *ret_local = *ret_full;
    return 0;
}

static void make_rope(struct decoder *decoder, float *full, float *local)
{
    const struct decoder_settings *s = &decoder->settings;
    const struct model_config *c = s->config;
    rope_table_fill(&c->rope, c->rotary_dims, s->positions_max, full);
    if (local != full)
        rope_table_fill(&c->rope_local, c->rotary_dims, s->positions_max, local);
    for (unsigned i = 0; i < ROPE_TABLES; i++)
        decoder->rope[i] = (struct rope){.cos_sin = i == ROPE_LOCAL ? local : full,
                                         .positions = s->positions_max,
                                         .rotary_dims = i == ROPE_NONE ? 0 : c->rotary_dims,
                                         .interleaved = model_has(c, MODEL_INTERLEAVED)};
}

static int make_pool(struct decoder *decoder, uint32_t blocks, uint32_t layers,
                     struct kv_pool **ret_pool, struct errmsg *err)
{
    const struct decoder_settings *s = &decoder->settings;
    if (layers == 0 || s->shard->kv_count == 0)
        return 0;
    ASSERT(blocks > 0);
    return op_kv_pool_new(s->backend, blocks, layers, s->shard->kv_count, s->config->head_dim,
                          ret_pool, err);
}

static int make_kv(struct decoder *decoder, struct errmsg *err)
{
    struct decoder_settings *s = &decoder->settings;
    uint16_t full = 0, sliding = 0;
    if (s->groups.full_layers + s->groups.window_layers == 0)
        s->groups.full_layers = s->config->layers;
    for (uint32_t layer = 0; layer < s->config->layers; layer++)
        decoder->kv_layer[layer] = decoder_slides(decoder, layer) ? sliding++ : full++;
    ASSERT(full == s->groups.full_layers && sliding == s->groups.window_layers);
    int r = make_pool(decoder, s->kv_blocks, full, &decoder->kv, err);
    return r < 0 ? r : make_pool(decoder, s->window_blocks, sliding, &decoder->window_kv, err);
}

int decoder_new(const struct decoder_settings *settings, struct decoder **ret_decoder,
                struct errmsg *err)
{
    const struct model_config *config = settings->config;
    const struct shard *shard = settings->shard;
    ASSERT(settings->rows_max > 0 && settings->positions_max > 0);
    ASSERT(settings->comm->rank == shard->rank && settings->comm->ranks == shard->ranks);
    struct decoder *decoder = mem_zalloc(sizeof(*decoder));
    float *full = NULL, *local = NULL;
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
    int r = alloc_areas(decoder, &full, &local, err);
    if (r == 0)
        r = make_kv(decoder, err);
    if (r == 0 && settings->lora != NULL)
        r = decoder_adapters_new(settings->lora, settings->rows_max, &decoder->adapters, err);
    if (r < 0) {
        decoder_free(decoder);
        return r;
    }
    make_rope(decoder, full, local);
    *ret_decoder = decoder;
    return 0;
}

void decoder_free(struct decoder *decoder)
{
    if (decoder == NULL)
        return;
    decoder_adapters_free(decoder->adapters);
    op_kv_pool_free(decoder->settings.backend, decoder->kv);
    op_kv_pool_free(decoder->settings.backend, decoder->window_kv);
    op_free(decoder->settings.backend, decoder->memory, decoder->bytes);
    mem_free(decoder);
}

size_t decoder_activation_bytes(const struct decoder *decoder)
{
    return decoder->bytes;
}

/* --- forward --------------------------------------------------------------------------------- */

/* The norm that this model puts before, behind and after layers; y may be x. */
static void norm(const struct decoder *decoder, struct tensor *y, const struct tensor *x,
                 const float *w)
{
    const struct decoder_settings *s = &decoder->settings;
    if (model_has(s->config, MODEL_LAYER_NORM))
        op_layernorm(s->backend, y, x, x->columns, w, s->config->norm_eps);
    else
        op_rmsnorm(s->backend, y, x, w, s->config->norm_eps);
}

struct tensor decoder_normed(struct decoder *decoder, const struct tensor *x, const float *w)
{
    struct tensor normed = tensor_of(decoder->normed, x->rows, x->columns);
    if (w == NULL)
        return *x;
    norm(decoder, &normed, x, w);
    return normed;
}

struct tensor decoder_part(struct decoder *decoder, const struct tensor *x)
{
    return tensor_of(decoder->part, x->rows, x->columns);
}

int decoder_add_part(struct decoder *decoder, struct tensor *x, const struct addition *addition)
{
    const struct decoder_settings *s = &decoder->settings;
    struct tensor part = decoder_part(decoder, x);
    if (s->shard->ranks > 1) {
        int r = comm_all_reduce_sum(s->comm, part.data, (size_t)part.rows * part.columns);
        if (r < 0)
            return r;
    }
    if (addition->bias != NULL)
        op_add_bias(s->backend, &part, addition->bias);
    if (addition->norm != NULL)
        norm(decoder, &part, &part, addition->norm);
    if (s->config->residual_scale != 1)
        op_scale(s->backend, &part, s->config->residual_scale);
    op_add(s->backend, x, &part);
    return 0;
}

int decoder_add_product(struct decoder *decoder, struct tensor *x, const struct tensor *input,
                        const struct weight *weight, const struct addition *addition)
{
    const struct decoder_settings *s = &decoder->settings;
    bool plain = addition->bias == NULL && addition->norm == NULL && s->config->residual_scale == 1;
    bool second = addition->half == HALF_SECOND;
    struct tensor part = decoder_part(decoder, x);
    if (s->shard->ranks == 1 && plain) {
        op_matmul(s->backend, x, input, weight, true);
        decoder_adapt(decoder, addition->layer, addition->site, x, input);
        return 0;
    }
    if (weight != NULL) {
        op_matmul(s->backend, &part, input, weight, second);
        decoder_adapt(decoder, addition->layer, addition->site, &part, input);
    } else if (!second) {
        memset(part.data, 0, (size_t)part.rows * part.columns * sizeof(float));
    }
    return addition->half == HALF_FIRST ? 0 : decoder_add_part(decoder, x, addition);
}

/* x: all rows of the step, or those of step->out_row. */
static int make_logits(struct decoder *decoder, const struct tensor *x, const struct step *step,
                       float *ret_logits)
{
    const struct decoder_settings *s = &decoder->settings;
    uint32_t columns = s->shard->vocab_count;
    bool alone = s->shard->ranks == 1;
    struct tensor in = tensor_of(decoder->head_in, step->outputs, x->columns);
    struct tensor out = tensor_of(alone ? ret_logits : decoder->head_out, step->outputs, columns);
    bool kept = x->rows == step->outputs;
    if (!kept)
        op_gather_rows(s->backend, &in, x, step->out_row);
    norm(decoder, &in, kept ? x : &in, s->weights->final_norm);
    if (s->weights->head != NULL)
        op_matmul(s->backend, &out, &in, s->weights->head, false);
    if (s->config->logit_scale != 1)
        op_scale(s->backend, &out, s->config->logit_scale);
    if (s->config->logit_softcap > 0)
        op_softcap(s->backend, &out, s->config->logit_softcap);
    if (alone)
        return 0;
    return comm_gather_columns(s->comm, decoder->head_out, step->outputs, decoder->vocab_columns,
                               ret_logits);
}

/* Of layers that see `window` tokens, 0: all. */
static void check_table(const struct step *step, const uint32_t *table, uint32_t blocks_max,
                        uint32_t window)
{
    ASSERT(table != NULL);
    for (uint32_t i = 0; i < step->sequences; i++, table += step->table_stride) {
        uint32_t row = step->row_first[i], end = step->row_first[i + 1];
        if (end == row)
            continue;
        uint32_t blocks = step->position[end - 1] / KV_BLOCK_TOKENS + 1;
        ASSERT(blocks <= step->table_stride);
        for (uint32_t k = step_first_block(step->position[row], window); k < blocks; k++)
            ASSERT(table[k] < blocks_max);
    }
}

/* Our scheduler made the step, or step_ring_wait() has checked it. Ids and positions are checked by
 * the ops. */
static void check_step(const struct decoder *decoder, const struct step *step)
{
    const struct decoder_settings *s = &decoder->settings;
    ASSERT(step->rows <= s->rows_max && step->outputs <= s->outputs_max);
    ASSERT(step->row_first[0] == 0 && step->row_first[step->sequences] == step->rows);
    if (s->groups.full_layers > 0)
        check_table(step, step->table, s->kv_blocks, 0);
    if (s->groups.window_layers > 0)
        check_table(step, step->window_table, s->window_blocks, s->groups.window);
}

int decoder_forward(struct decoder *decoder, const struct step *step, float *ret_logits)
{
    const struct decoder_settings *s = &decoder->settings;
    if (step->rows == 0)
        return 0;
    check_step(decoder, step);
    decoder_group_rows(decoder, step);
    struct tensor x = tensor_of(decoder->x, step->rows, s->config->hidden);
    op_embed(s->backend, &x, s->weights->embedding, step->ids);
    if (s->config->embedding_scale != 1)
        op_scale(s->backend, &x, s->config->embedding_scale);
    for (uint32_t layer = 0; layer < s->config->layers; layer++) {
        int r = decoder_attend(decoder, layer, &x, step);
        if (r == 0 && x.rows > 0)
            r = decoder_feed_forward(decoder, layer, &x);
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

void decoder_copy_window_block(struct decoder *decoder, uint32_t from, uint32_t to, uint32_t tokens)
{
    ASSERT(from < decoder->settings.window_blocks && to < decoder->settings.window_blocks);
    if (decoder->window_kv != NULL)
        op_copy_blocks(decoder->settings.backend, decoder->window_kv, from, to, tokens);
}

struct kv_pool *decoder_kv(const struct decoder *decoder)
{
    return decoder->kv;
}
