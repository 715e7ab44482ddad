/* publish.c - who finds a block: sealing, the two indexes, matching.
 *
 *   by_hash     hash of a full block -> the block          (how long is the common prefix?)
 *   by_parent   hash of a parent, or a root -> its newest child -> older -> ...   (who goes on
 * alike?)
 *
 * A full block is in both, a tail (1..15 tokens) only in by_parent. On the way down a chain each
 * block must name the block before it as its parent and hold the same ids, so a hash collision is a
 * miss. Why scans over siblings are bounded: a system prompt may have thousands of children; the
 * newest SIBLINGS_MAX are the ones that a conversation's next turn continues. */
#include <string.h>

#include "proto/base/assert.h"
#include "worker/kv/block_pool_internal.h"
#include "worker/kv/window_blocks.h"

#define SIBLINGS_MAX 64

void block_publish(struct block_pool *pool, uint32_t id, uint32_t parent_id,
                   struct block_hash parent, const uint32_t *ids, uint32_t tokens)
{
    struct block *block = &pool->blocks[id];

    ASSERT(block->tokens == 0 && tokens > 0 && tokens <= BLOCK_TOKENS);
    block_set_state(pool, id, BLOCK_SHARED);
    block->parent = parent;
    block->parent_id = parent_id;
    block->tokens = (uint8_t)tokens;
    memcpy(block->ids, ids, tokens * sizeof(*ids));
    block->newer = BLOCK_NONE;
    block->older = hash_index_find(&pool->by_parent, parent);
    if (block->older == BLOCK_NONE) {
        hash_index_insert(&pool->by_parent, id);
    } else {
        hash_index_replace(&pool->by_parent, block->older, id);
        pool->blocks[block->older].newer = id;
    }
    if (parent_id != BLOCK_NONE)
        pool->blocks[parent_id].children++;
    block_pin_parent(pool, id);
    if (pool->windows != NULL)
        windows_on_published(pool, id);
}

static void leave_siblings(struct block_pool *pool, uint32_t id)
{
    struct block *block = &pool->blocks[id];

    if (block->older != BLOCK_NONE)
        pool->blocks[block->older].newer = block->newer;
    if (block->newer != BLOCK_NONE)
        pool->blocks[block->newer].older = block->older;
    else if (block->older != BLOCK_NONE)
        hash_index_replace(&pool->by_parent, id, block->older);
    else
        hash_index_remove(&pool->by_parent, id);
    block->newer = block->older = BLOCK_NONE;
}

void block_unpublish(struct block_pool *pool, uint32_t id)
{
    struct block *block = &pool->blocks[id];

    ASSERT(block->state == BLOCK_CACHED && block->children == 0);
    leave_siblings(pool, id);
    if (block->tokens == BLOCK_TOKENS) {
        hash_index_remove(&pool->by_hash, id);
        pool->digest ^= block->hash.low;
        if (pool->events.on_removed != NULL)
            pool->events.on_removed(pool->events.user, block->hash);
    }
    if (block->parent_id != BLOCK_NONE) {
        ASSERT(pool->blocks[block->parent_id].children > 0);
        pool->blocks[block->parent_id].children--;
    }
    if (pool->windows != NULL)
        windows_on_unpublished(pool, id);
    block->parent_id = BLOCK_NONE;
    block->tokens = 0;
    block_set_state(pool, id, BLOCK_EMPTY);
}

uint32_t block_common_tokens(const struct block *block, const uint32_t *ids, uint32_t count)
{
    uint32_t limit = block->tokens < count ? block->tokens : count;
    uint32_t n = 0;

    while (n < limit && block->ids[n] == ids[n])
        n++;
    return n;
}

/* Tails that nobody holds and whose tokens ids[0..count) has all: their content lives on in a newer
 * block, so they make room. */
static void drop_superseded_tails(struct block_pool *pool, struct block_hash parent,
                                  const uint32_t *ids, uint32_t count)
{
    uint32_t at = hash_index_find(&pool->by_parent, parent);

    for (uint32_t n = 0; at != BLOCK_NONE && n < SIBLINGS_MAX; n++) {
        const struct block *block = &pool->blocks[at];
        uint32_t older = block->older;
        if (block->state == BLOCK_CACHED && block->tokens < BLOCK_TOKENS &&
            block_common_tokens(block, ids, count) == block->tokens)
            block_lose(pool, at, BLOCK_LOSSES);
        at = older;
    }
}

/* The parent's block. false: it cannot be found, so its child must not be either. */
static bool find_parent(const struct block_pool *pool, struct block_hash parent, bool first,
                        uint32_t *ret_id)
{
    uint32_t id = first ? BLOCK_NONE : hash_index_find(&pool->by_hash, parent);

    if (!first && id == BLOCK_NONE)
        return false;
    *ret_id = id;
    return true;
}

void block_pool_set_owner(struct block_pool *pool, uint32_t owner)
{
    pool->owner = owner;
}

uint32_t block_pool_owner(const struct block_pool *pool)
{
    return pool->owner;
}

static void tell_published(struct block_pool *pool, uint32_t id)
{
    const struct block *block = &pool->blocks[id];
    const struct block_evicted published = {
        .id = id,
        .hash = block->hash,
        .parent = block->parent,
        .first = block->parent_id == BLOCK_NONE,
        .ids = block->ids,
        .tokens = block->tokens,
    };

    if (pool->events.on_publish != NULL)
        pool->events.on_publish(pool->events.tier_user, &published);
}

void block_pool_seal(struct block_pool *pool, uint32_t id, struct block_hash parent,
                     struct block_hash hash, const uint32_t *ids, bool first,
                     uint32_t prompt_tokens)
{
    uint32_t parent_id;

    ASSERT(id < pool->blocks_total);
    ASSERT(pool->blocks[id].state == BLOCK_PRIVATE);
    if (!pool->prefix_caching || !find_parent(pool, parent, first, &parent_id))
        return;
    if (hash_index_find(&pool->by_hash, hash) != BLOCK_NONE)
        return; /* computed twice, or a collision: one block per hash */
    drop_superseded_tails(pool, parent, ids, BLOCK_TOKENS);
    pool->blocks[id].hash = hash;
    block_publish(pool, id, parent_id, parent, ids, BLOCK_TOKENS);
    if (pool->eviction->on_published != NULL)
        pool->eviction->on_published(pool, id, prompt_tokens);
    hash_index_insert(&pool->by_hash, id);
    pool->digest ^= hash.low;
    if (pool->events.on_stored != NULL)
        pool->events.on_stored(pool->events.user, parent, hash, ids);
    tell_published(pool, id);
}

void block_pool_seal_tail(struct block_pool *pool, uint32_t id, struct block_hash parent,
                          const uint32_t *ids, uint32_t tokens, bool first, uint32_t prompt_tokens)
{
    uint32_t parent_id;
    uint32_t common = 0;

    ASSERT(id < pool->blocks_total);
    ASSERT(pool->blocks[id].state == BLOCK_PRIVATE);
    ASSERT(tokens > 0 && tokens < BLOCK_TOKENS);
    if (!pool->prefix_caching || !find_parent(pool, parent, first, &parent_id))
        return;
    if (block_pool_match_partial(pool, parent, ids, tokens, &common) != BLOCK_NONE &&
        common == tokens)
        return;
    drop_superseded_tails(pool, parent, ids, tokens);
    block_publish(pool, id, parent_id, parent, ids, tokens);
    if (pool->eviction->on_published != NULL)
        pool->eviction->on_published(pool, id, prompt_tokens);
    tell_published(pool, id);
}

uint32_t block_pool_match(struct block_pool *pool, const struct block_hash *hashes,
                          const uint32_t *ids, uint32_t count, uint32_t *ret_ids)
{
    uint32_t before = BLOCK_NONE;

    for (uint32_t i = 0; i < count; i++) {
        uint32_t id = hash_index_find(&pool->by_hash, hashes[i]);
        if (id == BLOCK_NONE || pool->blocks[id].parent_id != before ||
            memcmp(pool->blocks[id].ids, ids + (size_t)i * BLOCK_TOKENS,
                   sizeof(pool->blocks[id].ids)) != 0)
            return i;
        ret_ids[i] = before = id;
    }
    return count;
}

uint32_t block_pool_match_root(struct block_pool *pool, struct block_hash root,
                               const struct block_hash *hashes, const uint32_t *ids, uint32_t count,
                               uint32_t *ret_ids)
{
    uint32_t matched = block_pool_match(pool, hashes, ids, count, ret_ids);

    if (matched > 0 && !block_hash_equal(pool->blocks[ret_ids[0]].parent, root))
        return 0;
    return matched;
}

uint32_t block_pool_match_partial(struct block_pool *pool, struct block_hash parent,
                                  const uint32_t *ids, uint32_t count, uint32_t *ret_tokens)
{
    uint32_t parent_id = hash_index_find(&pool->by_hash, parent); /* none: a root */
    uint32_t at = hash_index_find(&pool->by_parent, parent);
    uint32_t best = BLOCK_NONE, best_tokens = 0;

    for (uint32_t n = 0; at != BLOCK_NONE && n < SIBLINGS_MAX; n++) {
        const struct block *block = &pool->blocks[at];
        bool usable = pool->windows == NULL || window_of_block(pool, at) != BLOCK_NONE;
        uint32_t common =
            usable && block->parent_id == parent_id ? block_common_tokens(block, ids, count) : 0;
        if (common > best_tokens) { /* a tie goes to the newest */
            best = at;
            best_tokens = common;
        }
        at = block->older;
    }
    if (best != BLOCK_NONE)
        *ret_tokens = best_tokens;
    return best;
}

bool block_pool_holds(const struct block_pool *pool, uint32_t id, uint32_t parent_id,
                      struct block_hash parent, const uint32_t *ids)
{
    const struct block *block = &pool->blocks[id];

    ASSERT(id < pool->blocks_total);
    return block->tokens == BLOCK_TOKENS && block->parent_id == parent_id &&
           block_hash_equal(block->parent, parent) &&
           memcmp(block->ids, ids, sizeof(block->ids)) == 0;
}

uint32_t block_pool_find(const struct block_pool *pool, struct block_hash hash)
{
    return hash_index_find(&pool->by_hash, hash);
}

bool block_pool_has_children(const struct block_pool *pool, struct block_hash parent)
{
    return hash_index_find(&pool->by_parent, parent) != BLOCK_NONE;
}

bool block_pool_evicted(const struct block_pool *pool, struct block_hash hash)
{
    return evicted_has(&pool->evicted, hash.low);
}

bool block_pool_evicted_tail(const struct block_pool *pool, struct block_hash parent)
{
    return evicted_has(&pool->evicted, ~parent.low);
}
