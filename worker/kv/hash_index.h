/* hash_index.h - block hash -> block id, over keys that lie in the caller's own array.
 *
 * Open addressing, linear probing, at most half full, memory fixed at init. A slot is an id only;
 * its key is read from `keys + id * stride`, so a key must not change while its id is in the index.
 * Removing moves the rest of the run back: no tombstones, weeks of churn cost nothing.
 * The start of a probe is salted per index: clients choose token ids and so the hashes.
 * Thread: one. */
#ifndef REFRAIN_WORKER_KV_HASH_INDEX_H
#define REFRAIN_WORKER_KV_HASH_INDEX_H

#include <stddef.h>
#include <stdint.h>

#include "proto/block_hash.h"

#define HASH_INDEX_NONE UINT32_MAX

struct hash_index {
    uint32_t *slots; /* id + 1; 0: free */
    const char *keys;
    size_t stride;
    size_t bytes;
    uint64_t salt_low, salt_high;
    uint32_t mask, count;
    unsigned shift;
};

/* 0, or -ENOMEM. */
int hash_index_init(struct hash_index *index, uint32_t entries_max, const struct block_hash *keys,
                    size_t stride);
void hash_index_done(struct hash_index *index);
uint32_t hash_index_find(const struct hash_index *index, struct block_hash key); /* or NONE */
void hash_index_insert(struct hash_index *index, uint32_t id); /* its key must be absent */
void hash_index_remove(struct hash_index *index, uint32_t id); /* must be present */
/* `id` takes the slot of `old`: both have the same key. */
void hash_index_replace(struct hash_index *index, uint32_t old, uint32_t id);

#endif
