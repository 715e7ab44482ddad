/* prefix_index.h - which workers hold which block: chained block hash -> mask of workers.
 *
 * Fed by the workers' KV events, so it is exact for a worker whose event stream is unbroken. One
 * open-addressing table of 16-byte entries {hash, mask}, load <= 0.7, doubled as it fills up to
 * entries_max: past that an add is refused and the worker's stream is declared stale (loud), not
 * the memory. 64 bits of the hash are kept: 20 million entries have a chance of about 1e-5 of any
 * collision, which costs a wrong guess; the worker checks its own full hash and tokens.
 * Thread: the loop's. */
#ifndef REFRAIN_ROUTER_ROUTE_PREFIX_INDEX_H
#define REFRAIN_ROUTER_ROUTE_PREFIX_INDEX_H

#include <stddef.h>
#include <stdint.h>

#include "proto/block_hash.h"

#define PREFIX_INDEX_WORKERS_MAX 64u

struct prefix_index;

struct prefix_index *prefix_index_new(size_t entries_max);
void prefix_index_free(struct prefix_index *index);

/* 0 (also when it was there), or -ENOSPC: entries_max reached. worker < 64. */
int prefix_index_add(struct prefix_index *index, struct block_hash hash, uint32_t worker);
void prefix_index_remove(struct prefix_index *index, struct block_hash hash, uint32_t worker);
/* Forget everything of one worker. O(table). */
void prefix_index_purge(struct prefix_index *index, uint32_t worker);

/* How many leading hashes each worker of `workers` (mask) holds: ret_depths[worker] for all of
 * them. Stops at the first block that none holds. */
void prefix_index_depths(const struct prefix_index *index, const struct block_hash *hashes,
                         size_t count, uint64_t workers, uint32_t *ret_depths);

/* What a worker's heartbeat must agree with: its number of blocks and the xor of their hash.low. */
uint64_t prefix_index_count(const struct prefix_index *index, uint32_t worker);
uint64_t prefix_index_digest(const struct prefix_index *index, uint32_t worker);
size_t prefix_index_entries(const struct prefix_index *index);
size_t prefix_index_bytes(const struct prefix_index *index);

#endif
