/* copy_blocks.c - slots [0, tokens) of one block to another, all layers, K and V. */
#include <string.h>

#include "kernels/ref/ref.h"

static void copy_head(struct kv_pool *pool, uint32_t from, uint32_t to, uint32_t tokens,
                      uint32_t layer, uint32_t head)
{
    uint32_t dim = pool->head_dim;
    float *k_to = ref_k_tile(pool, to, layer, head);
    const float *k_from = ref_k_tile(pool, from, layer, head);
    for (uint32_t d = 0; d < dim; d++)
        memcpy(k_to + d * KV_BLOCK_TOKENS, k_from + d * KV_BLOCK_TOKENS, tokens * sizeof(float));
    memcpy(ref_v_tile(pool, to, layer, head), ref_v_tile(pool, from, layer, head),
           (size_t)tokens * dim * sizeof(float));
}

void ref_copy_blocks(struct backend *b, struct kv_pool *pool, uint32_t from, uint32_t to,
                     uint32_t tokens)
{
    for (uint32_t layer = 0; layer < pool->layers; layer++) {
        for (uint32_t head = 0; head < pool->kv_heads; head++)
            copy_head(pool, from, to, tokens, layer, head);
    }
}
