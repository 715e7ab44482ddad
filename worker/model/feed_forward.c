/* feed_forward.c - one feed-forward sublayer of one rank: gate, up, down; or experts, of which one
 * may be shared by all tokens. */
#include <string.h>

#include "worker/model/decoder_private.h"

struct tensor decoder_gate(struct decoder *decoder, const struct tensor *normed,
                           const struct weight *gate_up, const float *bias, uint32_t layer)
{
    const struct decoder_settings *s = &decoder->settings;
    uint32_t columns = op_weight_rows(gate_up) / 2;
    struct tensor wide = decoder_inner(decoder->wide, normed->rows, 2 * columns);
    struct tensor gated = decoder_inner(decoder->narrow, normed->rows, columns);
    op_matmul(s->backend, &wide, normed, gate_up, false);
    decoder_adapt(decoder, layer, LORA_GATE_UP, &wide, normed);
    if (bias != NULL)
        op_add_bias(s->backend, &wide, bias);
    if (model_has(s->config, MODEL_GELU))
        op_gelu_mul(s->backend, &gated, &wide);
    else
        op_silu_mul(s->backend, &gated, &wide);
    return gated;
}

/* part = the shared experts' product, weighed by a gate of their own where the model has one; or
 * zeros. */
static void start_part(struct decoder *decoder, const struct layer_weights *w, struct tensor *part,
                       const struct tensor *normed)
{
    const struct decoder_settings *s = &decoder->settings;
    static const struct router gate = {
        .experts = 1, .chosen = 1, .groups = 1, .groups_chosen = 1, .sigmoid = true, .scale = 1};
    bool weighed = w->shared_router != NULL;
    if (w->gate_up == NULL || weighed)
        memset(part->data, 0, (size_t)part->rows * part->columns * sizeof(float));
    if (w->gate_up == NULL)
        return;
    struct tensor gated = decoder_gate(decoder, normed, w->gate_up, NULL, DECODER_NO_LAYER);
    if (!weighed) {
        op_matmul(s->backend, part, &gated, w->down, false);
        return;
    }
    struct tensor logit = tensor_of(decoder->router_out, normed->rows, 1);
    struct tensor out = tensor_of(decoder->expert_out, normed->rows, part->columns);
    op_matmul(s->backend, &out, &gated, w->down, false);
    op_matmul(s->backend, &logit, normed, w->shared_router, false);
    op_route(s->backend, decoder->chosen, decoder->chosen_scale, &logit, NULL, &gate);
    for (uint32_t i = 0; i < normed->rows; i++)
        decoder->chosen[i] = i;
    op_scatter_add(s->backend, part, &out, decoder->chosen, decoder->chosen_scale);
}

int decoder_feed_forward(struct decoder *decoder, uint32_t layer, struct tensor *x)
{
    const struct decoder_settings *s = &decoder->settings;
    const struct layer_weights *w = &s->weights->layers[layer];
    const struct addition addition = {.bias = w->down_bias,
                                      .norm = w->post_ffn_norm,
                                      .half = decoder_joins(decoder) ? HALF_SECOND : HALF_NONE,
                                      .layer = layer,
                                      .site = LORA_DOWN};
    struct tensor normed = model_has(s->config, MODEL_PARALLEL)
                               ? tensor_of(decoder->normed, x->rows, x->columns)
                               : decoder_normed(decoder, x, w->ffn_norm);
    if (w->router == NULL) {
        struct tensor gated = {NULL, x->rows, 0, 0};
        if (w->gate_up != NULL)
            gated = decoder_gate(decoder, &normed, w->gate_up, w->gate_up_bias, layer);
        return decoder_add_product(decoder, x, &gated, w->down, &addition);
    }
    struct tensor part = decoder_part(decoder, x);
    start_part(decoder, w, &part, &normed);
    decoder_add_experts(decoder, w, &part, &normed);
    return decoder_add_part(decoder, x, &addition);
}
