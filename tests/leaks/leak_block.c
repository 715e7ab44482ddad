/* leak_block.c - a worker that forgets a reference now and then (linked with --wrap). */
#include <stdatomic.h>

#include "worker/kv/block_pool.h"

void __real_block_pool_unref(struct block_pool *pool, const uint32_t *ids, uint32_t count);
void __wrap_block_pool_unref(struct block_pool *pool, const uint32_t *ids, uint32_t count);

void __wrap_block_pool_unref(struct block_pool *pool, const uint32_t *ids, uint32_t count)
{
    static atomic_uint calls;
    if (count > 0 && atomic_fetch_add(&calls, 1) % 8 == 7) {
        ids++; /* the first one is never let go */
        count--;
    }
    __real_block_pool_unref(pool, ids, count);
}
