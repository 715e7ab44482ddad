/* copy_blocks.c - slots [0, tokens) of one block to another, all layers, K and V.
 *
 * Copy on write of a shared tail: rare, so plain loops over the tiles' vectors. */
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
    for (size_t first = 0; first < cpu_v_tile_values(head_dim); first += 16 * KV_BLOCK_TOKENS) {
        for (uint32_t t = 0; t < tokens; t++) {
            for (uint32_t d = 0; d < 16; d++)
                to[first + PAIRED(t, d)] = from[first + PAIRED(t, d)];
        }
    }
}

void cpu_copy_blocks(struct backend *b, struct kv_pool *pool, uint32_t from, uint32_t to,
                     uint32_t tokens)
{
    for (uint32_t layer = 0; layer < pool->layers; layer++) {
        for (uint32_t head = 0; head < pool->kv_heads; head++) {
            copy_k(cpu_k_tile(pool, to, layer, head), cpu_k_tile(pool, from, layer, head),
                   pool->head_dim, tokens);
            copy_v(cpu_v_tile(pool, to, layer, head), cpu_v_tile(pool, from, layer, head),
                   pool->head_dim, tokens);
        }
    }
}
