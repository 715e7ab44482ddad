/* block_table.c - the ordered block ids of one sequence; its references are the table's.
 *
 * Blocks are appended and given back all at once, never replaced. Ranks keep no copy: each
 * step carries its tables whole. The array is sized when the request is added, so growing in a step
 * allocates nothing. Invariant: count <= blocks_max, each id referenced once by this table. */
#include "worker/kv/block_table.h"

#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"

void block_table_init(struct block_table *table, uint32_t blocks_max)
{
    table->ids = mem_calloc(blocks_max, sizeof(*table->ids));
    table->count = 0;
    table->blocks_max = blocks_max;
}

int block_table_grow(struct block_table *table, struct block_pool *pool, uint32_t tokens)
{
    uint32_t need = tokens / BLOCK_TOKENS + (tokens % BLOCK_TOKENS != 0);
    int r;

    ASSERT(need <= table->blocks_max);
    if (need <= table->count)
        return 0;
    r = block_pool_take(pool, need - table->count, table->ids + table->count);
    if (r < 0)
        return r;
    table->count = need;
    return 0;
}

void block_table_adopt(struct block_table *table, const uint32_t *ids, uint32_t count)
{
    ASSERT(count <= table->blocks_max - table->count);
    memcpy(table->ids + table->count, ids, count * sizeof(*ids));
    table->count += count;
}

void block_table_drop(struct block_table *table, struct block_pool *pool)
{
    block_pool_unref(pool, table->ids, table->count);
    table->count = 0;
}

void block_table_done(struct block_table *table)
{
    ASSERT(table->count == 0);
    mem_free(table->ids);
    table->ids = NULL;
    table->blocks_max = 0;
}
