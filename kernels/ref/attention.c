/* attention.c - causal attention over KV pages: online softmax (Milakov and Gimelshein 2018) over
 * 16-token tiles at absolute positions, rising.
 *
 *   state of one (row, head):  m = largest score so far, l = sum of exp(score - m), out = sum of
 *   exp(score - m) * v; a tile that raises m first scales l and out by exp(m_old - m_new)
 *
 * Invariant: what stands in slots past the row's position never reaches the result. */
#include <math.h>

#include "kernels/ref/ref.h"
#include "proto/base/assert.h"

struct softmax {
    float max, sum;
};

/* Scores of all 16 slots: the caller uses those that the row sees. */
static void score_tile(const float *q, const float *k_tile, uint32_t head_dim,
                       const struct attention_rule *rule, float scores[KV_BLOCK_TOKENS])
{
    vec4 sum[4] = {{0}};
    for (uint32_t d = 0; d < head_dim; d++) {
        const vec4 *k = (const vec4 *)(k_tile + (size_t)d * KV_BLOCK_TOKENS);
        for (int i = 0; i < 4; i++)
            sum[i] += q[d] * k[i];
    }
    for (uint32_t t = 0; t < KV_BLOCK_TOKENS; t++) {
        scores[t] = sum[t / 4][t % 4] * rule->scale;
        if (rule->softcap > 0)
            scores[t] = rule->softcap * tanhf(scores[t] / rule->softcap);
    }
}

/* out += sum over slots [first, end) of p * v, slot by slot. */
static void add_values(float *out, const float *p, const float *v, uint32_t head_dim,
                       uint32_t first, uint32_t end)
{
    uint32_t d = 0;
    for (; d + 4 <= head_dim; d += 4) {
        vec4 sum = *(const vec4 *)(out + d);
        for (uint32_t t = first; t < end; t++)
            sum += p[t] * *(const vec4 *)(v + (size_t)t * head_dim + d);
        *(vec4 *)(out + d) = sum;
    }
    for (; d < head_dim; d++) {
        for (uint32_t t = first; t < end; t++)
            out[d] += p[t] * v[(size_t)t * head_dim + d];
    }
}

/* Fold slots [first, end) into the state and into out. Scores become weights. */
static void fold_tile(struct softmax *state, float *out, float *scores, const float *v_tile,
                      uint32_t head_dim, uint32_t first, uint32_t end)
{
    float max = state->max;
    for (uint32_t t = first; t < end; t++)
        max = scores[t] > max ? scores[t] : max;
    float keep = expf(state->max - max); /* 0 for the first tile: exp(-inf) */
    state->max = max;
    state->sum *= keep;
    for (uint32_t d = 0; d < head_dim; d++)
        out[d] *= keep;
    for (uint32_t t = first; t < end; t++) {
        scores[t] = expf(scores[t] - max);
        state->sum += scores[t];
    }
    add_values(out, scores, v_tile, head_dim, first, end);
}

struct view { /* what one row sees of one layer */
    const struct kv_pool *kv;
    const uint32_t *table;
    uint32_t layer, first, position;
};

static void attend(const struct view *view, const float *q, float *out, uint32_t kv_head,
                   const struct attention_rule *rule)
{
    uint32_t dim = view->kv->head_dim;
    struct softmax state = {-INFINITY, 0};
    for (uint32_t d = 0; d < dim; d++)
        out[d] = 0;
    for (uint32_t tile = view->first / KV_BLOCK_TOKENS; tile <= view->position / KV_BLOCK_TOKENS;
         tile++) {
        uint32_t begin = tile * KV_BLOCK_TOKENS, block = view->table[tile];
        uint32_t first = view->first > begin ? view->first - begin : 0;
        uint32_t end = view->position - begin + 1;
        float scores[KV_BLOCK_TOKENS];
        ASSERT(block < view->kv->blocks);
        score_tile(q, ref_k_tile(view->kv, block, view->layer, kv_head), dim, rule, scores);
        fold_tile(&state, out, scores, ref_v_tile(view->kv, block, view->layer, kv_head), dim,
                  first, end < KV_BLOCK_TOKENS ? end : KV_BLOCK_TOKENS);
    }
    for (uint32_t d = 0; d < dim; d++)
        out[d] /= state.sum;
}

void ref_attention(struct backend *b, struct tensor *out, const struct tensor *qkv,
                   const struct heads *heads, const struct kv_pool *kv, uint32_t layer,
                   const struct step *step, const struct attention_rule *rule)
{
    for (uint32_t s = 0; s < step->sequences; s++) {
        for (uint32_t r = step->row_first[s]; r < step->row_first[s + 1]; r++) {
            uint32_t position = step->position[r], window = rule->window;
            bool cut = window > 0 && position >= window;
            struct view view = {kv, step->table + (size_t)s * step->table_stride, layer,
                                cut ? position - window + 1 : 0, position};
            for (uint32_t h = 0; h < heads->q_heads; h++) {
                size_t column = (size_t)h * heads->head_dim;
                attend(&view, qkv->data + (size_t)r * qkv->stride + column,
                       out->data + (size_t)r * out->stride + column,
                       (heads->q_offset + h) / heads->group, rule);
            }
        }
    }
}
