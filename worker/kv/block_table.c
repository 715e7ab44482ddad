/* block_table.c - the ordered block ids of one sequence; its references are the table's.
 *
 * Blocks are appended and given back all at once, never replaced. Ranks keep no copy: each
 * step carries its tables whole. The array is sized when the request is added, so growing in a step
 * allocates nothing. Invariant: count <= blocks_max, each id referenced once by this table. */
#include "worker/kv/block_table.h"

#include <errno.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "worker/kv/window_blocks.h"

void block_table_init(struct block_table *table, uint32_t blocks_max)
{
    table->ids = mem_calloc(blocks_max, sizeof(*table->ids));
    table->count = table->window_first = table->window_end = 0;
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

void block_table_adopt_windows(struct block_table *table, struct block_pool *pool, uint32_t first)
{
    ASSERT(table->window_end == 0 && first <= table->count);
    window_hold(pool, table->ids + first, table->count - first);
    table->window_first = first;
    table->window_end = table->count;
}

int block_table_cover(struct block_table *table, struct block_pool *pool, uint32_t end)
{
    uint32_t room = window_available(pool), from = table->window_end;

    ASSERT(end <= table->count);
    if (end <= from)
        return 0;
    uint32_t count = end - from < room ? end - from : room;
    int r = window_take(pool, table->ids + from, count);
    ASSERT(r == 0);
    table->window_end += count;
    return table->window_end == end ? 0 : -ENOSPC;
}

void block_table_slide(struct block_table *table, struct block_pool *pool, uint32_t first)
{
    if (first <= table->window_first)
        return;
    ASSERT(first <= table->window_end);
    window_release(pool, table->ids + table->window_first, first - table->window_first, true);
    table->window_first = first;
}

void block_table_drop(struct block_table *table, struct block_pool *pool)
{
    if (table->window_end > table->window_first)
        window_release(pool, table->ids + table->window_first,
                       table->window_end - table->window_first, false);
    table->window_first = table->window_end = 0;
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
