/* kv_pool.c - f32 KV pages, whatever the kv_dtype: of int8 they hold the values that it reads as.
 *
 *   block  [layer][K, V][kv_head][tile]      tile of K: [head_dim][16], tile of V: [16][head_dim]
 *
 * Block-major: a block of all layers is one run of bytes, and blocks that no one used yet cost no
 * memory (mem_map pages come on first touch). */
#include <errno.h>
#include <string.h>

#include "kernels/ref/ref.h"
#include "proto/base/mem.h"

static size_t tile_values(uint32_t head_dim)
{
    return (size_t)KV_BLOCK_TOKENS * head_dim;
}

size_t ref_kv_block_bytes(struct backend *b, uint32_t layers, uint32_t kv_heads, uint32_t head_dim)
{
    return (size_t)layers * 2 * kv_heads * tile_values(head_dim) * sizeof(float);
}

int ref_kv_pool_new(struct backend *b, uint32_t blocks, uint32_t layers, uint32_t kv_heads,
                    uint32_t head_dim, struct kv_pool **ret_pool, struct errmsg *err)
{
    size_t block_bytes = ref_kv_block_bytes(b, layers, kv_heads, head_dim);
    void *data;
    if (blocks > SIZE_MAX / 2 / block_bytes ||
        mem_map_as(MEM_KV_POOL, blocks * block_bytes, &data) < 0)
        return errmsg_set(err, -ENOMEM, "no memory for %u KV blocks of %zu bytes", blocks,
                          block_bytes);
    struct kv_pool *pool = mem_zalloc(sizeof(*pool));
    *pool = (struct kv_pool){blocks, layers, kv_heads, head_dim, b->kv_dtype, block_bytes, data};
    *ret_pool = pool;
    return 0;
}

void ref_kv_pool_free(struct backend *b, struct kv_pool *pool)
{
    mem_unmap_as(MEM_KV_POOL, pool->data, pool->blocks * pool->block_bytes);
    mem_free(pool);
}

float *ref_k_tile(const struct kv_pool *pool, uint32_t block, uint32_t layer, uint32_t head)
{
    float *values = (float *)((char *)pool->data + block * pool->block_bytes);
    return values + ((size_t)layer * 2 * pool->kv_heads + head) * tile_values(pool->head_dim);
}

float *ref_v_tile(const struct kv_pool *pool, uint32_t block, uint32_t layer, uint32_t head)
{
    return ref_k_tile(pool, block, layer, pool->kv_heads + head);
}

void ref_kv_block_read(struct backend *b, const struct kv_pool *pool, uint32_t block,
                       void *ret_bytes)
{
    memcpy(ret_bytes, (const char *)pool->data + block * pool->block_bytes, pool->block_bytes);
}

void ref_kv_block_write(struct backend *b, struct kv_pool *pool, uint32_t block, const void *bytes)
{
    memcpy((char *)pool->data + block * pool->block_bytes, bytes, pool->block_bytes);
}
