/* window_blocks.h - KV of the layers that slide: blocks of their own, given back behind the window.
 *
 *   block (ids, hash, parent; KV of the layers that see everything)
 *     `- has at most one window block: KV of the same 16 tokens, of the layers that slide
 *
 *          take                      last holder slides on, or lets go of a published block
 *   EMPTY ------> held by sequences <--------------------------------------------> CACHED
 *     ^            | last holder gone, block not published                           |
 *     +------------+------------------------------- evict, or its block is lost -----+
 *
 * A row at position p reads window blocks [window_first_block(p), p / 16] only. So a sequence holds
 * those of the rows to come, and a prefix of L tokens can be used where the blocks from
 * window_first_block(L) on have theirs. Who is found, and by which ids, is the block's business
 * alone: a window block has no hash. Thread: engine only. Cost: O(1) per block. */
#ifndef REFRAIN_WORKER_KV_WINDOW_BLOCKS_H
#define REFRAIN_WORKER_KV_WINDOW_BLOCKS_H

#include "worker/kv/block_pool.h"

struct window_counts {
    uint32_t total, empty;
    uint32_t private_, shared; /* held; of a block that is not, or is published */
    uint32_t cached;           /* held by nobody, of a published block */
    uint64_t lost_total;       /* evicted: room was needed */
};

/* All zero: no layer slides. */
void window_get_counts(const struct block_pool *pool, struct window_counts *ret_counts);
/* How far the layers see; 0: no layer has window blocks. */
uint32_t window_tokens(const struct block_pool *pool);

/* The first block that the row at `position` reads in layers that see `tokens` tokens. */
static inline uint32_t window_first_block(uint32_t tokens, uint32_t position)
{
    return position >= tokens ? (position - tokens + 1) / BLOCK_TOKENS : 0;
}

/* Window blocks of one sequence, at most: of the rows to come, and of the block being filled. */
static inline uint32_t window_blocks_of(uint32_t tokens)
{
    return (tokens + BLOCK_TOKENS - 2) / BLOCK_TOKENS + 1;
}

/* These only where window_tokens() > 0. */

/* Of block `id`, or BLOCK_NONE. */
uint32_t window_of_block(const struct block_pool *pool, uint32_t id);
/* EMPTY + CACHED: what window_take() can give. */
uint32_t window_available(const struct block_pool *pool);
/* Is the block's window block counted by window_available()? */
bool window_is_idle(const struct block_pool *pool, uint32_t id);
/* Of found blocks ids[0..count): the first one from which on all have window blocks. */
uint32_t window_run(const struct block_pool *pool, const uint32_t *ids, uint32_t count);
/* Give each of these blocks, which have none, a window block; one holder. 0; -ENOSPC: none. */
int window_take(struct block_pool *pool, const uint32_t *ids, uint32_t count);
/* One holder more, of window blocks that were found. */
void window_hold(struct block_pool *pool, const uint32_t *ids, uint32_t count);
/* One holder less, last id first: before the block itself is let go. `passed`: the holder's window
 * has moved on. */
void window_release(struct block_pool *pool, const uint32_t *ids, uint32_t count, bool passed);
/* Hand the window block of `from`, private, to `to`, its published twin that has none. */
void window_move(struct block_pool *pool, uint32_t from, uint32_t to);
/* How many holders there are, of all window blocks; and how many of these are leases. O(blocks):
 * for checks. */
uint64_t window_holders(const struct block_pool *pool);
uint32_t window_pinned(const struct block_pool *pool);

#endif
