/* block_table.h - which blocks hold a sequence's tokens, in order.
 *
 * Ownership: a table holds one reference on each of its blocks; the pool owns them.
 * Thread:    engine thread only.
 * Limit:     append-only up to blocks_max; a block once in a table keeps its place. */
#ifndef REFRAIN_WORKER_KV_BLOCK_TABLE_H
#define REFRAIN_WORKER_KV_BLOCK_TABLE_H

#include <stdint.h>

#include "worker/kv/block_pool.h"

struct block_table {
    uint32_t *ids;
    uint32_t count, blocks_max;
};

void block_table_init(struct block_table *table, uint32_t blocks_max);
/* Add blocks until `tokens` tokens in all have a slot. 0, or -ENOSPC: the pool cannot give them
 * all; then none was taken and the scheduler preempts. */
int block_table_grow(struct block_table *table, struct block_pool *pool, uint32_t tokens);
/* Append blocks already referenced (a prefix hit). */
void block_table_adopt(struct block_table *table, const uint32_t *ids, uint32_t count);
/* Give every reference back, tail first: the prefix stays cached the longest. The table may grow
 * again afterwards. */
void block_table_drop(struct block_table *table, struct block_pool *pool);
void block_table_done(struct block_table *table); /* frees the array; must be dropped before */

#endif
