/* copy_blocks.c - slots [0, tokens) of one block to another, all layers, K and V.
 *
 * Copy on write of a shared tail: rare, so plain loops over the tiles' vectors. */
#include <string.h>

#include "kernels/cpu/cpu.h"

static void copy_k(uint16_t *to, const uint16_t *from, uint32_t head_dim, uint32_t tokens)
{
    for (uint32_t d = 0; d < head_dim; d++) {
        for (uint32_t t = 0; t < tokens; t++)
            to[PAIRED(d, t)] = from[PAIRED(d, t)];
    }
}

static void copy_v(uint16_t *to, const uint16_t *from, uint32_t head_dim, uint32_t tokens)
{
    for (size_t first = 0; first < (size_t)KV_BLOCK_TOKENS * head_dim;
         first += 16 * KV_BLOCK_TOKENS) {
        for (uint32_t t = 0; t < tokens; t++) {
            for (uint32_t d = 0; d < 16; d++)
                to[first + PAIRED(t, d)] = from[first + PAIRED(t, d)];
        }
    }
}

/* Scales of the first tokens, then of every vector the part that is theirs: a byte each of K's
 * vectors of 16 tokens, 16 of V's of 16 tokens x 16 dims. */
static void copy_int8(uint8_t *to, const uint8_t *from, uint32_t vectors, size_t token_bytes,
                      uint32_t tokens)
{
    const size_t vector_bytes = KV_BLOCK_TOKENS * token_bytes;
    memcpy(to, from, tokens * sizeof(float));
    to += KV_INT8_SCALES_BYTES;
    from += KV_INT8_SCALES_BYTES;
    for (; vectors > 0; vectors--, to += vector_bytes, from += vector_bytes)
        memcpy(to, from, tokens * token_bytes);
}

static void copy_tiles(const struct kv_pool *pool, uint8_t *k_to, const uint8_t *k_from,
                       size_t k_bytes, uint32_t tokens)
{
    uint8_t *v_to = k_to + k_bytes;
    const uint8_t *v_from = k_from + k_bytes;
    if (pool->dtype == KV_INT8) {
        copy_int8(k_to, k_from, pool->head_dim, 1, tokens);
        copy_int8(v_to, v_from, (pool->head_dim + 15) / 16, 16, tokens);
    } else {
        copy_k((uint16_t *)k_to, (const uint16_t *)k_from, pool->head_dim, tokens);
        copy_v((uint16_t *)v_to, (const uint16_t *)v_from, pool->head_dim, tokens);
    }
}

void cpu_copy_blocks(struct backend *b, struct kv_pool *pool, uint32_t from, uint32_t to,
                     uint32_t tokens)
{
    const struct kv_tiles tiles = cpu_kv_tiles(pool);
    for (uint32_t head = 0; head < pool->layers * pool->kv_heads; head++)
        copy_tiles(pool, kv_tile(&tiles, to, head), kv_tile(&tiles, from, head), tiles.k_bytes,
                   tokens);
}
