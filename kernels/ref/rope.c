/* rope.c - rotary embedding (Su et al. 2021) of q in place; rotated k and v go to their KV slots.
 */
#include <math.h>

#include "kernels/ref/ref.h"
#include "proto/base/assert.h"

static void rotate(const float *from, float *to, const struct rope *rope, uint32_t head_dim,
                   uint32_t position)
{
    uint32_t half = rope->rotary_dims / 2;
    const float *table = rope->cos_sin + (size_t)position * rope->rotary_dims;
    for (uint32_t i = 0; i < half; i++) {
        uint32_t first = rope->interleaved ? 2 * i : i;
        uint32_t second = rope->interleaved ? 2 * i + 1 : i + half;
        float c = table[2 * i], s = table[2 * i + 1];
        float a = from[first], b = from[second];
        to[first] = a * c - b * s;
        to[second] = b * c + a * s;
    }
    for (uint32_t d = rope->rotary_dims; d < head_dim; d++)
        to[d] = from[d];
}

/* What KV_INT8 (ops.h) keeps of the row x, at every stride-th place of y. */
static void write_int8(const float *x, uint32_t head_dim, float *y, size_t stride)
{
    float largest = 0;
    bool finite = true;
    for (uint32_t d = 0; d < head_dim; d++) {
        finite = finite && isfinite(x[d]);
        largest = fmaxf(largest, fabsf(x[d]));
    }
    bool zeros = largest < KV_INT8_SMALLEST;
    float scale = zeros ? 0 : largest / 127, inverse = zeros ? 0 : 127 / largest;
    for (uint32_t d = 0; d < head_dim; d++)
        y[d * stride] = finite ? scale * rintf(x[d] * inverse) : NAN;
}

static void write_kv(const float *k, const float *v, struct kv_pool *kv, uint32_t slot,
                     float *k_tile, float *v_tile)
{
    uint32_t head_dim = kv->head_dim;
    if (kv->dtype == KV_INT8) {
        write_int8(k, head_dim, k_tile + slot, KV_BLOCK_TOKENS);
        write_int8(v, head_dim, v_tile + slot * head_dim, 1);
        return;
    }
    for (uint32_t d = 0; d < head_dim; d++) {
        k_tile[d * KV_BLOCK_TOKENS + slot] = k[d];
        v_tile[slot * head_dim + d] = v[d];
    }
}

static void rope_row(float *row, const struct heads *heads, const struct rope *rope,
                     struct kv_pool *kv, uint32_t layer, uint32_t position, uint32_t block)
{
    uint32_t dim = heads->head_dim;
    for (uint32_t h = 0; h < heads->q_heads + heads->kv_heads; h++)
        rotate(row + (size_t)h * dim, row + (size_t)h * dim, rope, dim, position);
    const float *k = row + (size_t)heads->q_heads * dim;
    const float *v = k + (size_t)heads->kv_heads * dim;
    for (uint32_t h = 0; h < heads->kv_heads; h++)
        write_kv(k + (size_t)h * dim, v + (size_t)h * dim, kv, position % KV_BLOCK_TOKENS,
                 ref_k_tile(kv, block, layer, h), ref_v_tile(kv, block, layer, h));
}

void ref_rope(struct backend *b, struct tensor *qkv, const struct heads *heads,
              const struct rope *rope, struct kv_pool *kv, uint32_t layer, const struct step *step)
{
    for (uint32_t s = 0; s < step->sequences; s++) {
        const uint32_t *table = step->table + (size_t)s * step->table_stride;
        for (uint32_t r = step->row_first[s]; r < step->row_first[s + 1]; r++) {
            uint32_t position = step->position[r];
            uint32_t block = table[position / KV_BLOCK_TOKENS];
            ASSERT(block < kv->blocks);
            rope_row(qkv->data + (size_t)r * qkv->stride, heads, rope, kv, layer, position, block);
        }
    }
}
