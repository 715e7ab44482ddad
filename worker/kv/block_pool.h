/* block_pool.h - the paged KV pool's book-keeping: who holds which 16-token block, what is in it.
 *
 *            take                seal(hash)               last unref
 *   EMPTY ----------> PRIVATE --------------> SHARED <-------------> CACHED
 *     ^                  | last unref                  ref (a hit)      |
 *     +------------------+                                              |
 *     +-------------------------- evict (take, or reset) ---------------+
 *
 * EMPTY: nobody's, no content. PRIVATE: referenced, content not (yet) findable. SHARED: referenced
 * and in the hash index. CACHED: not referenced, in the index, reclaimable. Blocks are ids u32;
 * only books are kept here, the KV itself is the backend's.
 *
 * EMPTY blocks are taken first. When there are none, an eviction policy (eviction.h) names the
 * CACHED block that is lost, always one without published children: child present => parent present
 * (prefix-closed). On a hash hit the stored token ids and the parent are compared too: a collision
 * is a miss. Cost: O(1) per block. Memory: fixed at start. Thread: engine only. */
#ifndef REFRAIN_WORKER_KV_BLOCK_POOL_H
#define REFRAIN_WORKER_KV_BLOCK_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/errmsg.h"
#include "proto/block_hash.h"

#define BLOCK_NONE UINT32_MAX
#define PINS_MAX 256u

enum block_state { BLOCK_EMPTY = 0, BLOCK_PRIVATE, BLOCK_SHARED, BLOCK_CACHED };

struct block_pool;

/* Why a CACHED block lost its content. */
enum block_loss {
    BLOCK_LOST_CAPACITY = 0, /* room was needed */
    BLOCK_LOST_ABANDONED,    /* the same, of a chat that went on without it */
    BLOCK_LOST_ONE_SHOT,     /* the same, of a request that nobody continued */
    BLOCK_LOST_RESET,        /* block_pool_reset_cache */
    BLOCK_LOSSES
};

struct block_counts {
    uint32_t total, empty, private_, shared, cached; /* referenced = private_ + shared */
    uint64_t evictions_total;                        /* all of lost[] but the resets */
    uint64_t lost[BLOCK_LOSSES];
    uint64_t hits_total /* blocks */, lookups_total /* blocks */;
    uint32_t pins, pinned; /* leases; blocks that at least one of them holds (part of shared) */
    uint64_t pins_broken_total;
};

struct block_evicted {
    uint32_t id;
    struct block_hash hash, parent; /* parent: of the block before it, or the root */
    bool first;                     /* parent is the root */
    const uint32_t *ids;            /* [tokens] */
    uint32_t tokens;                /* 16; a tail's 1..15, and then `hash` says nothing */
    enum block_loss why;
};

/* Told of each change of the index, in order: KV events for routers. */
struct block_events {
    void (*on_stored)(void *user, struct block_hash parent, struct block_hash hash,
                      const uint32_t *ids /* 16 */);
    void (*on_removed)(void *user, struct block_hash hash);
    void *user; /* of these two */
    /* Before on_removed: the content of a CACHED block, full or a tail, is about to be lost. It is
     * still there until something is written into the block. For tiers of slower memory. */
    void (*on_evict)(void *tier_user, const struct block_evicted *evicted);
    /* A block, full or a tail, was published (`why` says nothing); the content of a tail is told
     * to be gone, because a longer block has it now. */
    void (*on_publish)(void *tier_user, const struct block_evicted *published);
    void (*on_superseded)(void *tier_user, uint32_t id);
    void *tier_user; /* of these three */
};

/* Full blocks from the root on. */
struct block_chain {
    struct block_hash root;
    const struct block_hash *hashes; /* [count] */
    const uint32_t *ids;             /* [count * BLOCK_TOKENS] */
    uint32_t count;
};

/* A request starts: what it could reuse at best, and what of it was found. */
struct block_admission {
    struct block_hash root;
    const struct block_hash *hashes; /* of the full blocks it could reuse */
    const uint32_t *ids;             /* the tokens that it could reuse */
    const uint32_t *found;           /* ids of the leading blocks that were found */
    uint32_t hashes_count, tokens, found_count;
};

struct eviction_policy; /* worker/kv/eviction.h */

struct block_pool_settings {
    uint32_t blocks_total;
    bool prefix_caching; /* false: seal() keeps blocks PRIVATE, so nothing is ever found */
    const struct eviction_policy *eviction; /* NULL: eviction_policies[0] */
    uint32_t pinned_blocks_max;             /* held by leases at once; 0: nothing can be pinned */
    /* Of the layers that slide, whose KV lies in blocks of its own (window_blocks.h): how far one
     * sees, at least 2, and how many blocks there are. 0 and 0: no layer has. */
    uint32_t window_tokens, window_blocks;
    struct block_events events; /* each may be NULL */
};

/* 0; -EINVAL: too few or too many blocks; -ENOMEM. */
int block_pool_new(const struct block_pool_settings *settings, struct block_pool **ret_pool,
                   struct errmsg *err);
void block_pool_free(struct block_pool *pool);

/* Take `count` blocks (PRIVATE, one reference each): EMPTY ones, then evicted ones. 0, or -ENOSPC:
 * then none was taken. */
int block_pool_take(struct block_pool *pool, uint32_t count, uint32_t *ret_ids);
void block_pool_ref(struct block_pool *pool, uint32_t id);
/* Give references back, last id first (tail of a sequence first). */
void block_pool_unref(struct block_pool *pool, const uint32_t *ids, uint32_t count);

/* The block is full and computed: publish it under `hash`. Its parent must be findable or be
 * `root` (first block): else it stays PRIVATE, as it does when the hash is already there.
 * prompt_tokens: how many of its tokens, from the first on, the request was given; the rest it
 * generated. For eviction policies. */
void block_pool_seal(struct block_pool *pool, uint32_t id, struct block_hash parent,
                     struct block_hash hash, const uint32_t *ids, bool first,
                     uint32_t prompt_tokens);
/* The block holds the last `tokens` (1..15) computed tokens of a sequence that is about to let go:
 * publish it for block_pool_match_partial(). Stays PRIVATE when a sibling holds all of them. */
void block_pool_seal_tail(struct block_pool *pool, uint32_t id, struct block_hash parent,
                          const uint32_t *ids, uint32_t tokens, bool first, uint32_t prompt_tokens);
/* How many leading blocks of the chain are findable; their ids to ret_ids. References nothing.
 * hashes[0..count) chained from the root, ids: count * 16 token ids. */
uint32_t block_pool_match(struct block_pool *pool, const struct block_hash *hashes,
                          const uint32_t *ids, uint32_t count, uint32_t *ret_ids);
/* The same, and the first block must have been sealed under `root`: a salt that was made to collide
 * gets nothing. */
uint32_t block_pool_match_root(struct block_pool *pool, struct block_hash root,
                               const struct block_hash *hashes, const uint32_t *ids, uint32_t count,
                               uint32_t *ret_ids);
/* A findable child of `parent` (or of the root: first) whose leading tokens agree the longest with
 * ids[0..count), and whose window block is there: its id and *ret_tokens (1..15, or 16), BLOCK_NONE
 * when no token agrees. For token-granular reuse: the caller references it, copies the head, and
 * lets go. */
uint32_t block_pool_match_partial(struct block_pool *pool, struct block_hash parent,
                                  const uint32_t *ids, uint32_t count, uint32_t *ret_tokens);
/* Take references on matched blocks (CACHED ones become SHARED). */
void block_pool_ref_all(struct block_pool *pool, const uint32_t *ids, uint32_t count);

/* Leases. Hold the longest findable prefix of the chain until expires_ns, its blocks in
 * *ret_blocks; a lease on the same chain is replaced. scratch: chain->count ids. 0; -ENOENT:
 * nothing of it is findable; -ENOSPC: too many leases or blocks, *err has the numbers, the old
 * lease stays. */
int block_pool_pin(struct block_pool *pool, const struct block_chain *chain, uint64_t expires_ns,
                   uint32_t *scratch, uint32_t *ret_blocks, struct errmsg *err);
/* The same for the findable block of this hash and all before it. scratch: blocks_total ids. */
int block_pool_pin_block(struct block_pool *pool, struct block_hash hash, uint64_t expires_ns,
                         uint32_t *scratch, uint32_t *ret_blocks, struct errmsg *err);
struct pinned_prefix {
    struct block_hash root, last;
    uint64_t expires_ns;
    uint32_t blocks;
};
/* All leases to ret_pins[PINS_MAX]; how many. */
uint32_t block_pool_pins(const struct block_pool *pool, struct pinned_prefix *ret_pins);
/* `last` is the hash of the chain's last block, as it was asked for. 0, or -ENOENT. */
int block_pool_unpin(struct block_pool *pool, struct block_hash root, struct block_hash last);
/* End the leases that are over. Cheap when none is. */
void block_pool_expire_pins(struct block_pool *pool, uint64_t now_ns);
/* Somebody could not run at all: end the lease that ends first. false: there is none. */
bool block_pool_break_pin(struct block_pool *pool);

enum block_state block_pool_state(const struct block_pool *pool, uint32_t id);
uint32_t block_pool_refs(const struct block_pool *pool, uint32_t id);
/* Computed tokens published in the block: 0, a tail's 1..15, or 16. */
uint32_t block_pool_tokens(const struct block_pool *pool, uint32_t id);
/* Is it a full published block behind `parent_id` (BLOCK_NONE: the first, under root `parent`),
 * with these 16 ids? */
bool block_pool_holds(const struct block_pool *pool, uint32_t id, uint32_t parent_id,
                      struct block_hash parent, const uint32_t *ids);
/* The block published under `hash`, or BLOCK_NONE. */
uint32_t block_pool_find(const struct block_pool *pool, struct block_hash hash);
bool block_pool_has_children(const struct block_pool *pool, struct block_hash parent);
/* Was a block of this hash (or a tail under this parent) evicted lately? A guess, for people. */
bool block_pool_evicted(const struct block_pool *pool, struct block_hash hash);
bool block_pool_evicted_tail(const struct block_pool *pool, struct block_hash parent);
bool block_pool_caching(const struct block_pool *pool);
/* Whose the blocks are that are sealed from here on: a number for the events, 0 at first. */
void block_pool_set_owner(struct block_pool *pool, uint32_t owner);
uint32_t block_pool_owner(const struct block_pool *pool);
/* Before found blocks are referenced: one look-up for the counts, and what eviction policies learn
 * from. Matching itself does not count, because a waiting request is matched again in each step. */
void block_pool_note_admission(struct block_pool *pool, const struct block_admission *admission);
/* EMPTY + CACHED: what take() can give. */
uint32_t block_pool_available(const struct block_pool *pool);
void block_pool_counts(const struct block_pool *pool, struct block_counts *ret_counts);
/* Forget every CACHED block. */
void block_pool_reset_cache(struct block_pool *pool);
/* Walk all hashed blocks (snapshot): hash of block id, false when it has none. */
bool block_pool_hash(const struct block_pool *pool, uint32_t id, struct block_hash *ret_hash);
uint64_t block_pool_digest(const struct block_pool *pool); /* xor of hash.low of hashed blocks */
/* Assert every invariant; O(blocks). Test teardowns and the admin `check` command. */
void block_pool_check(const struct block_pool *pool);

#endif
