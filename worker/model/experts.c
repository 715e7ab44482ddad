/* experts.c - the chosen experts of every row (Shazeer et al. 2017), those that this rank holds.
 *
 *   route   every rank alike: rows -> `chosen` experts with weights
 *   sort    by expert, rows rising: one gather, three matmuls, one scatter per expert
 *
 * Why experts in rising order: a row's sum then has one order, whatever else is in the step.
 * Cost: each expert's weights are read once per step. */
#include "worker/model/decoder_private.h"

#include <string.h>

#include "proto/base/assert.h"

/* Rows and weights of each local expert behind each other; first[e] is where expert e begins. */
static void sort_by_expert(struct decoder *decoder, uint32_t rows, uint32_t *first)
{
    const struct shard *shard = decoder->settings.shard;
    uint32_t chosen = decoder->settings.config->experts.chosen, count = shard->experts_count;
    uint32_t at[MODEL_EXPERTS_MAX + 1];
    memset(first, 0, (count + 1) * sizeof(*first));
    for (uint32_t i = 0; i < rows * chosen; i++) {
        uint32_t expert = decoder->chosen[i] - shard->experts_first; /* wraps for those below */
        if (expert < count)
            first[expert + 1]++;
    }
    for (uint32_t e = 0; e < count; e++)
        first[e + 1] += first[e];
    memcpy(at, first, (count + 1) * sizeof(*at));
    for (uint32_t i = 0; i < rows * chosen; i++) {
        uint32_t expert = decoder->chosen[i] - shard->experts_first;
        if (expert >= count)
            continue;
        decoder->expert_rows[at[expert]] = i / chosen;
        decoder->expert_scale[at[expert]++] = decoder->chosen_scale[i];
    }
}

static void run_expert(struct decoder *decoder, const struct layer_weights *w, uint32_t expert,
                       uint32_t first, uint32_t count, struct tensor *part,
                       const struct tensor *normed)
{
    struct backend *backend = decoder->settings.backend;
    ASSERT(count <= normed->rows); /* an expert gets a row once: what the buffers hold */
    struct tensor in = tensor_of(decoder->expert_in, count, normed->columns);
    struct tensor out = tensor_of(decoder->expert_out, count, part->columns);
    op_gather_rows(backend, &in, normed, decoder->expert_rows + first);
    struct tensor gated =
        decoder_gate(decoder, &in, w->expert_gate_up[expert], NULL, DECODER_NO_LAYER);
    op_matmul(backend, &out, &gated, w->expert_down[expert], false);
    op_scatter_add(backend, part, &out, decoder->expert_rows + first,
                   decoder->expert_scale + first);
}

void decoder_add_experts(struct decoder *decoder, const struct layer_weights *w,
                         struct tensor *part, const struct tensor *normed)
{
    const struct decoder_settings *s = &decoder->settings;
    const struct experts_config *e = &s->config->experts;
    uint32_t first[MODEL_EXPERTS_MAX + 1];
    const struct router router = {.experts = e->count,
                                  .chosen = e->chosen,
                                  .groups = e->groups,
                                  .groups_chosen = e->groups_chosen,
                                  .sigmoid = e->sigmoid,
                                  .normalise = e->normalise,
                                  .group_by_two = e->group_by_two,
                                  .scale = e->scale};
    struct tensor logits = tensor_of(decoder->router_out, normed->rows, e->count);
    op_matmul(s->backend, &logits, normed, w->router, false);
    op_route(s->backend, decoder->chosen, decoder->chosen_scale, &logits, w->router_bias, &router);
    sort_by_expert(decoder, normed->rows, first);
    for (uint32_t i = 0; i < s->shard->experts_count; i++) {
        if (first[i + 1] > first[i])
            run_expert(decoder, w, i, first[i], first[i + 1] - first[i], part, normed);
    }
}
