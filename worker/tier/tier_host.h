/* tier_host.h - which block is in which slot of the host tier, and which is lost next.
 *
 *            take                      a block of another key needs the slot
 *   FREE ------------> READY ---------------------------------------------> READY
 *     ^                  | forget
 *     +------------------+
 *
 * Books only (rank 0); the bytes are in every rank's tier_slots.h. A full block is found by its
 * hash, a tail by its parent and its first token; parent and token ids are stored and compared, so
 * a collision is a miss. Least recently used goes first; a pinned slot stays. Cost: O(1) per block.
 * Memory: fixed at init. Thread: engine only. */
#ifndef REFRAIN_WORKER_TIER_TIER_HOST_H
#define REFRAIN_WORKER_TIER_TIER_HOST_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/errmsg.h"
#include "proto/block_hash.h"
#include "worker/kv/hash_index.h"

#define TIER_SLOT_NONE UINT32_MAX

/* A block as tiers know it. */
struct tier_block {
    struct block_hash hash;   /* of a full block; a tail: tier_tail_key() */
    struct block_hash parent; /* of the block before it, or the root */
    uint32_t ids[BLOCK_TOKENS];
    uint32_t tokens; /* computed: 1..16 */
    bool first;      /* parent is a root */
};

enum tier_slot_state { TIER_SLOT_FREE = 0, TIER_SLOT_READY };

struct tier_slot {
    struct tier_block block;
    uint32_t prev, next; /* by use; FREE: next only */
    uint32_t pins;
    uint8_t state;
};

struct tier_host {
    struct tier_slot *slots;
    struct hash_index by_hash;
    uint32_t slots_total, used;
    uint32_t oldest, newest, free;
    uint64_t lost_total; /* blocks that made room for others */
};

/* Under what a tail is found: its parent and the token that comes next. */
struct block_hash tier_tail_key(struct block_hash parent, uint32_t first_id);

/* 0, or -ENOMEM. slots_total may be 0: nothing is ever found or taken. */
int tier_host_init(struct tier_host *host, uint32_t slots_total, struct errmsg *err);
void tier_host_done(struct tier_host *host);

/* The slot of a full block under this parent with these 16 ids, or TIER_SLOT_NONE. */
uint32_t tier_host_find(const struct tier_host *host, struct block_hash hash,
                        struct block_hash parent, const uint32_t *ids);
/* The slot whose tail begins as ids[0..count) and for how many tokens, or TIER_SLOT_NONE. */
uint32_t tier_host_find_tail(const struct tier_host *host, struct block_hash parent,
                             const uint32_t *ids, uint32_t count, uint32_t *ret_tokens);
/* Make a place for a block. 0: *ret_slot is to be filled, *ret_lost (may be NULL) was in it (tokens
 * 0: nothing was); -EEXIST: *ret_slot holds it already, and is now the newest; -ENOSPC: every slot
 * is pinned, or (only_free) in use. */
int tier_host_take(struct tier_host *host, const struct tier_block *block, bool only_free,
                   uint32_t *ret_slot, struct tier_block *ret_lost);
/* Most recently used. */
void tier_host_touch(struct tier_host *host, uint32_t slot);
void tier_host_pin(struct tier_host *host, uint32_t slot);
void tier_host_unpin(struct tier_host *host, uint32_t slot);
/* All that is not pinned. Returns how many. */
uint32_t tier_host_forget_all(struct tier_host *host);
/* Assert every invariant; O(slots). */
void tier_host_check(const struct tier_host *host);

#endif
