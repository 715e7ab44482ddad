/* block_table.h - which blocks hold a sequence's tokens, in order.
 *
 *   ids      [ 0 ........................................ count )
 *   windows              [ window_first ..... window_end )         layers that slide
 * (window_blocks.h)
 *
 * Ownership: a table holds one reference on each of its blocks, and is one holder of the window
 *            blocks of that range; the pool owns them.
 * Thread:    engine thread only.
 * Limit:     append-only up to blocks_max; a block once in a table keeps its place. */
#ifndef REFRAIN_WORKER_KV_BLOCK_TABLE_H
#define REFRAIN_WORKER_KV_BLOCK_TABLE_H

#include <stdint.h>

#include "worker/kv/block_pool.h"

struct block_table {
    uint32_t *ids;
    uint32_t count, blocks_max;
    uint32_t window_first, window_end;
};

void block_table_init(struct block_table *table, uint32_t blocks_max);
/* Add blocks until `tokens` tokens in all have a slot. 0, or -ENOSPC: the pool cannot give them
 * all; then none was taken and the scheduler preempts. */
int block_table_grow(struct block_table *table, struct block_pool *pool, uint32_t tokens);
/* Append blocks already referenced (a prefix hit). */
void block_table_adopt(struct block_table *table, const uint32_t *ids, uint32_t count);
/* Hold the window blocks of adopted blocks from `first` on. */
void block_table_adopt_windows(struct block_table *table, struct block_pool *pool, uint32_t first);
/* Take window blocks for blocks up to `end` <= count, as many as there are. 0, or -ENOSPC: some are
 * missing. */
int block_table_cover(struct block_table *table, struct block_pool *pool, uint32_t end);
/* The window has moved: give back the window blocks before block `first`. */
void block_table_slide(struct block_table *table, struct block_pool *pool, uint32_t first);
/* Give every reference back, tail first: the prefix stays cached the longest. The table may grow
 * again afterwards. */
void block_table_drop(struct block_table *table, struct block_pool *pool);
void block_table_done(struct block_table *table); /* frees the array; must be dropped before */

#endif
