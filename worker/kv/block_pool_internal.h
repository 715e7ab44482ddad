/* block_pool_internal.h - the pool's books, shared by block_pool.c (who holds a block), publish.c
 * (who finds it), pins.c (who may not lose it), the eviction policies and pool_check.c. Not for
 * other folders. */
#ifndef REFRAIN_WORKER_KV_BLOCK_POOL_INTERNAL_H
#define REFRAIN_WORKER_KV_BLOCK_POOL_INTERNAL_H

#include "worker/kv/block_pool.h"
#include "worker/kv/evicted.h"
#include "worker/kv/eviction.h"
#include "worker/kv/hash_index.h"

struct block {
    struct block_hash hash;   /* when tokens == BLOCK_TOKENS */
    struct block_hash parent; /* of the block before it, or the root; when tokens > 0 */
    uint32_t ids[BLOCK_TOKENS];
    uint32_t refs;         /* tables and copies that hold it */
    uint32_t pins;         /* SHARED children */
    uint32_t children;     /* published children; evicted only with none */
    uint32_t parent_id;    /* BLOCK_NONE: first block of a chain */
    uint32_t newer, older; /* siblings under one parent hash */
    uint32_t prev, next;   /* among the EMPTY ones; CACHED: the policy's */
    uint16_t leases;       /* pins whose chain holds it */
    uint8_t state;
    uint8_t tokens; /* published: 0, a tail's 1..15, or BLOCK_TOKENS */
};

/* A list through block->prev and next. */
struct block_list {
    uint32_t head, tail; /* BLOCK_NONE: no block */
};

struct pin {
    struct block_hash root, last; /* of the chain that was asked for */
    uint64_t expires_ns;
    uint32_t id;      /* the last block that was found: one reference */
    uint32_t windows; /* from it up: so many window blocks are held */
};

struct windows; /* window_blocks.c */

struct block_pool {
    struct block *blocks;
    uint32_t blocks_total;
    bool prefix_caching;
    struct block_list empty; /* taken from and given back to its head */
    const struct eviction_policy *eviction;
    void *eviction_state;        /* the policy's */
    struct hash_index by_hash;   /* full published blocks */
    struct hash_index by_parent; /* the newest child of each parent hash */
    struct evicted evicted;
    struct windows *windows; /* NULL: no layer slides */
    struct block_events events;
    uint32_t owner;            /* of blocks being sealed */
    struct pin pins[PINS_MAX]; /* counts.pins of them, in no order */
    uint64_t pins_due_ns;      /* the first to end */
    uint32_t pinned_blocks_max, pinned_windows;
    struct block_counts counts;
    uint64_t digest;
};

/* Find it from now on: PRIVATE -> SHARED, the parent held. tokens BLOCK_TOKENS: block->hash is set.
 */
void block_publish(struct block_pool *pool, uint32_t id, uint32_t parent_id,
                   struct block_hash parent, const uint32_t *ids, uint32_t tokens);
/* Find it no more: CACHED and without children -> EMPTY; the free list is the caller's. */
void block_unpublish(struct block_pool *pool, uint32_t id);
/* One more SHARED child: the parent is held, and its parent, up to the first that was held. */
void block_pin_parent(struct block_pool *pool, uint32_t id);
void block_set_state(struct block_pool *pool, uint32_t id, enum block_state next);
/* A CACHED block without children becomes EMPTY and is no longer the policy's. `why` BLOCK_LOSSES:
 * nothing is lost, its tokens are in a newer block. */
void block_lose(struct block_pool *pool, uint32_t id, enum block_loss why);

/* window_blocks.c; all but the first only where pool->windows is not NULL. */
int windows_new(struct block_pool *pool, uint32_t tokens, uint32_t total);
void windows_free(struct block_pool *pool);
void windows_on_published(struct block_pool *pool, uint32_t id);
void windows_on_unpublished(struct block_pool *pool, uint32_t id);
void windows_check(const struct block_pool *pool);
/* CACHED, and no prefix that ends in it could be used: it has no child and no window block. */
bool block_is_useless(const struct block_pool *pool, uint32_t id);

/* How many leading ids[0..count) are the block's published ones. */
uint32_t block_common_tokens(const struct block *block, const uint32_t *ids, uint32_t count);
void block_list_push_head(struct block_pool *pool, struct block_list *list, uint32_t id);
void block_list_push_tail(struct block_pool *pool, struct block_list *list, uint32_t id);
void block_list_remove(struct block_pool *pool, struct block_list *list, uint32_t id);

#endif
