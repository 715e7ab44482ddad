/* eviction.h - which CACHED block is lost when room is needed: one policy per file.
 *
 *   SHARED --on_cached--> the policy's <--on_leaf-- its last child was lost
 *                            |   |
 *        a hit <--on_held----+   +--victim, on_gone--> EMPTY
 *
 * A policy owns every CACHED block and orders those without published children; a block with
 * children is never lost before them. on_cached comes children first, as a sequence lets go.
 * Everything is O(1) or O(log blocks) per block, in memory taken at init, and depends on the order
 * of calls only. Thread: engine. A new policy: one file and one line in eviction.c. */
#ifndef REFRAIN_WORKER_KV_EVICTION_H
#define REFRAIN_WORKER_KV_EVICTION_H

#include "worker/kv/block_pool.h"

struct eviction_policy {
    const char *name; /* as --eviction-policy has it */
    /* State in pool->eviction_state. 0, or -ENOMEM; done copes with a failed init. */
    int (*init)(struct block_pool *pool);
    void (*done)(struct block_pool *pool);
    /* May be NULL. The block is SHARED and linked to its parent; the first `prompt_tokens` of its
     * tokens were given, the rest generated. */
    void (*on_published)(struct block_pool *pool, uint32_t id, uint32_t prompt_tokens);
    void (*on_cached)(struct block_pool *pool, uint32_t id);
    void (*on_held)(struct block_pool *pool, uint32_t id);
    /* Before it is unpublished. BLOCK_LOSSES: its tokens are in a newer block. */
    void (*on_gone)(struct block_pool *pool, uint32_t id, enum block_loss why);
    void (*on_leaf)(struct block_pool *pool, uint32_t id); /* may be NULL */
    /* May be NULL. A request is admitted, what was found for it is not referenced yet. */
    void (*on_admission)(struct block_pool *pool, const struct block_admission *admission);
    /* At least one block is CACHED. *ret_why is set where it is more than capacity. */
    uint32_t (*victim)(struct block_pool *pool, enum block_loss *ret_why);
    void (*check)(const struct block_pool *pool);
};

extern const struct eviction_policy eviction_lru, eviction_chat;

/* Both end with NULL and have one order: a setting is an index. The first is the default. */
extern const struct eviction_policy *const eviction_policies[];
extern const char *const eviction_policy_names[];

static inline uint32_t eviction_policies_count(void)
{
    uint32_t count = 0;

    while (eviction_policies[count] != NULL)
        count++;
    return count;
}

#endif
