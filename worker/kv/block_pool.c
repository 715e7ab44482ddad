/* block_pool.c - who holds a block: states, references, what is empty, what is lost.
 *
 *   take:  head of `empty`, else the policy's victim       unhashed blocks come back to that head
 *
 * Why the policy is asked last: a cached block is lost only when nothing empty is left. It is told
 * of blocks in the order in which a sequence lets go, tail first, so its order within one age is
 * children before parents.
 *
 * Why a SHARED block pins its parent: two sequences that computed the same block hold a copy each,
 * but only one is in the index. A child sealed by the other one hangs under the indexed copy, which
 * would otherwise be let go, and evicted, before its child.
 *
 * Invariants (block_pool_check): a published block's parent is published; a SHARED block's parent
 * is SHARED; EMPTY blocks, and only they, are in `empty`. Cost: O(1) per block, pins amortised over
 * the references they follow. */
#include "worker/kv/block_pool.h"

#include <errno.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "worker/kv/block_pool_internal.h"
#include "worker/kv/window_blocks.h"

#define BLOCKS_MAX (UINT32_MAX / 8)

static const bool may_follow[4][4] = {
    [BLOCK_EMPTY] = {[BLOCK_PRIVATE] = true},
    [BLOCK_PRIVATE] = {[BLOCK_SHARED] = true, [BLOCK_EMPTY] = true},
    [BLOCK_SHARED] = {[BLOCK_CACHED] = true},
    [BLOCK_CACHED] = {[BLOCK_SHARED] = true, [BLOCK_EMPTY] = true},
};

static uint32_t *count_of(struct block_pool *pool, enum block_state state)
{
    switch (state) {
    case BLOCK_EMPTY:
        return &pool->counts.empty;
    case BLOCK_PRIVATE:
        return &pool->counts.private_;
    case BLOCK_SHARED:
        return &pool->counts.shared;
    case BLOCK_CACHED:
        break;
    }
    return &pool->counts.cached;
}

void block_set_state(struct block_pool *pool, uint32_t id, enum block_state next)
{
    struct block *block = &pool->blocks[id];

    ASSERT(may_follow[block->state][next]);
    --*count_of(pool, block->state);
    ++*count_of(pool, next);
    block->state = (uint8_t)next;
}

void block_list_push_head(struct block_pool *pool, struct block_list *list, uint32_t id)
{
    struct block *block = &pool->blocks[id];

    block->prev = BLOCK_NONE;
    block->next = list->head;
    if (list->head != BLOCK_NONE)
        pool->blocks[list->head].prev = id;
    else
        list->tail = id;
    list->head = id;
}

void block_list_push_tail(struct block_pool *pool, struct block_list *list, uint32_t id)
{
    struct block *block = &pool->blocks[id];

    block->next = BLOCK_NONE;
    block->prev = list->tail;
    if (list->tail != BLOCK_NONE)
        pool->blocks[list->tail].next = id;
    else
        list->head = id;
    list->tail = id;
}

void block_list_remove(struct block_pool *pool, struct block_list *list, uint32_t id)
{
    struct block *block = &pool->blocks[id];

    if (block->prev != BLOCK_NONE)
        pool->blocks[block->prev].next = block->next;
    else
        list->head = block->next;
    if (block->next != BLOCK_NONE)
        pool->blocks[block->next].prev = block->prev;
    else
        list->tail = block->prev;
    block->prev = block->next = BLOCK_NONE;
}

static int pool_init(struct block_pool *pool, const struct block_pool_settings *settings)
{
    uint32_t blocks_total = settings->blocks_total;
    void *blocks;
    int r = mem_map(blocks_total * sizeof(*pool->blocks), &blocks);

    if (r < 0)
        return r;
    pool->blocks = blocks;
    pool->blocks_total = blocks_total;
    pool->counts.total = pool->counts.empty = blocks_total;
    pool->prefix_caching = settings->prefix_caching;
    pool->events = settings->events;
    pool->pinned_blocks_max = settings->pinned_blocks_max;
    pool->pins_due_ns = UINT64_MAX;
    pool->empty = (struct block_list){BLOCK_NONE, BLOCK_NONE};
    for (uint32_t id = 0; id < blocks_total; id++) {
        pool->blocks[id].parent_id = BLOCK_NONE;
        pool->blocks[id].newer = pool->blocks[id].older = BLOCK_NONE;
        block_list_push_tail(pool, &pool->empty, id);
    }
    r = hash_index_init(&pool->by_hash, blocks_total, &pool->blocks->hash, sizeof(*pool->blocks));
    if (r == 0)
        r = hash_index_init(&pool->by_parent, blocks_total, &pool->blocks->parent,
                            sizeof(*pool->blocks));
    if (r == 0)
        r = evicted_init(&pool->evicted);
    if (r == 0 && settings->window_blocks > 0)
        r = windows_new(pool, settings->window_tokens, settings->window_blocks);
    if (r < 0)
        return r;
    pool->eviction = settings->eviction != NULL ? settings->eviction : eviction_policies[0];
    return pool->eviction->init(pool);
}

int block_pool_new(const struct block_pool_settings *settings, struct block_pool **ret_pool,
                   struct errmsg *err)
{
    if (settings->blocks_total == 0 || settings->blocks_total > BLOCKS_MAX)
        return errmsg_set(err, -EINVAL, "KV pool of %u blocks: must be 1 to %u",
                          settings->blocks_total, BLOCKS_MAX);
    if ((settings->window_blocks > 0) != (settings->window_tokens >= 2) ||
        settings->window_blocks > BLOCKS_MAX)
        return errmsg_set(err, -EINVAL, "%u window blocks of a window of %u tokens",
                          settings->window_blocks, settings->window_tokens);
    struct block_pool *pool = mem_zalloc(sizeof(*pool));
    int r = pool_init(pool, settings);
    if (r < 0) {
        block_pool_free(pool);
        return errmsg_set(err, r, "no memory for the books of %u KV blocks",
                          settings->blocks_total);
    }
    *ret_pool = pool;
    return 0;
}

void block_pool_free(struct block_pool *pool)
{
    if (pool == NULL)
        return;
    if (pool->eviction != NULL)
        pool->eviction->done(pool);
    windows_free(pool);
    evicted_done(&pool->evicted);
    hash_index_done(&pool->by_parent);
    hash_index_done(&pool->by_hash);
    mem_unmap(pool->blocks, pool->blocks_total * sizeof(*pool->blocks));
    mem_free(pool);
}

static void tell_loss(struct block_pool *pool, uint32_t id, enum block_loss why)
{
    const struct block *block = &pool->blocks[id];
    const struct block_evicted evicted = {
        .id = id,
        .hash = block->hash,
        .parent = block->parent,
        .first = block->parent_id == BLOCK_NONE,
        .ids = block->ids,
        .tokens = block->tokens,
        .why = why,
    };

    pool->counts.lost[why]++;
    pool->counts.evictions_total += why != BLOCK_LOST_RESET;
    if (pool->events.on_evict != NULL)
        pool->events.on_evict(pool->events.tier_user, &evicted);
}

bool block_is_useless(const struct block_pool *pool, uint32_t id)
{
    return pool->windows != NULL && id != BLOCK_NONE && pool->blocks[id].state == BLOCK_CACHED &&
           pool->blocks[id].children == 0 && window_of_block(pool, id) == BLOCK_NONE;
}

static void lose_one(struct block_pool *pool, uint32_t id, enum block_loss why)
{
    uint32_t parent_id = pool->blocks[id].parent_id;

    ASSERT(pool->blocks[id].state == BLOCK_CACHED && pool->blocks[id].children == 0);
    if (why != BLOCK_LOSSES)
        tell_loss(pool, id, why);
    else if (pool->events.on_superseded != NULL)
        pool->events.on_superseded(pool->events.tier_user, id);
    pool->eviction->on_gone(pool, id, why);
    block_unpublish(pool, id);
    block_list_push_head(pool, &pool->empty, id);
    if (pool->eviction->on_leaf != NULL && parent_id != BLOCK_NONE &&
        pool->blocks[parent_id].state == BLOCK_CACHED && pool->blocks[parent_id].children == 0)
        pool->eviction->on_leaf(pool, parent_id);
}

void block_lose(struct block_pool *pool, uint32_t id, enum block_loss why)
{
    uint32_t parent_id = pool->blocks[id].parent_id;

    lose_one(pool, id, why);
    if (why == BLOCK_LOSSES)
        return; /* its parent gets another child at once */
    for (id = parent_id; block_is_useless(pool, id); id = parent_id) {
        parent_id = pool->blocks[id].parent_id;
        lose_one(pool, id, why);
    }
}

static void evict_one(struct block_pool *pool)
{
    enum block_loss why = BLOCK_LOST_CAPACITY;
    uint32_t id = pool->eviction->victim(pool, &why);
    const struct block *block = &pool->blocks[id];

    evicted_add(&pool->evicted,
                block->tokens == BLOCK_TOKENS ? block->hash.low : ~block->parent.low);
    block_lose(pool, id, why);
}

/* A block leaves the empty ones, at the cost of a cached one if there are none. */
static uint32_t take_one(struct block_pool *pool)
{
    if (pool->empty.head == BLOCK_NONE)
        evict_one(pool);
    uint32_t id = pool->empty.head;
    struct block *block = &pool->blocks[id];
    block_list_remove(pool, &pool->empty, id);
    ASSERT(block->refs == 0 && block->pins == 0 && block->tokens == 0);
    block_set_state(pool, id, BLOCK_PRIVATE);
    block->refs = 1;
    return id;
}

int block_pool_take(struct block_pool *pool, uint32_t count, uint32_t *ret_ids)
{
    if (count > block_pool_available(pool))
        return -ENOSPC;
    for (uint32_t i = 0; i < count; i++)
        ret_ids[i] = take_one(pool);
    return 0;
}

/* CACHED -> SHARED. */
static void hold(struct block_pool *pool, uint32_t id)
{
    pool->eviction->on_held(pool, id);
    block_set_state(pool, id, BLOCK_SHARED);
}

void block_pin_parent(struct block_pool *pool, uint32_t id)
{
    uint32_t at = pool->blocks[id].parent_id;

    while (at != BLOCK_NONE) {
        struct block *parent = &pool->blocks[at];
        parent->pins++;
        if (parent->state == BLOCK_SHARED)
            return;
        hold(pool, at);
        at = parent->parent_id;
    }
}

void block_pool_ref(struct block_pool *pool, uint32_t id)
{
    ASSERT(id < pool->blocks_total);
    struct block *block = &pool->blocks[id];
    ASSERT(block->state != BLOCK_EMPTY);
    block->refs++;
    if (block->state == BLOCK_CACHED) {
        hold(pool, id);
        block_pin_parent(pool, id);
    }
}

void block_pool_ref_all(struct block_pool *pool, const uint32_t *ids, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        block_pool_ref(pool, ids[i]);
}

/* Nobody holds it any more: PRIVATE -> EMPTY, SHARED -> CACHED, and then perhaps its parent. */
static void let_go(struct block_pool *pool, uint32_t id)
{
    struct block *block = &pool->blocks[id];

    if (block->state == BLOCK_PRIVATE) {
        block_set_state(pool, id, BLOCK_EMPTY);
        block_list_push_head(pool, &pool->empty, id);
        return;
    }
    for (;;) {
        uint32_t parent_id = block->parent_id;
        block_set_state(pool, id, BLOCK_CACHED);
        pool->eviction->on_cached(pool, id); /* before its parent: evicted before it */
        if (block_is_useless(pool, id))
            block_lose(pool, id, BLOCK_LOST_CAPACITY);
        id = parent_id;
        if (id == BLOCK_NONE)
            return;
        block = &pool->blocks[id];
        ASSERT(block->pins > 0);
        block->pins--;
        if (block->refs > 0 || block->pins > 0)
            return;
    }
}

void block_pool_unref(struct block_pool *pool, const uint32_t *ids, uint32_t count)
{
    for (uint32_t i = count; i-- > 0;) {
        ASSERT(ids[i] < pool->blocks_total);
        struct block *block = &pool->blocks[ids[i]];
        ASSERT(block->refs > 0);
        block->refs--;
        if (block->refs == 0 && block->pins == 0)
            let_go(pool, ids[i]);
    }
}

enum block_state block_pool_state(const struct block_pool *pool, uint32_t id)
{
    ASSERT(id < pool->blocks_total);
    return pool->blocks[id].state;
}

uint32_t block_pool_refs(const struct block_pool *pool, uint32_t id)
{
    ASSERT(id < pool->blocks_total);
    return pool->blocks[id].refs;
}

uint32_t block_pool_tokens(const struct block_pool *pool, uint32_t id)
{
    ASSERT(id < pool->blocks_total);
    return pool->blocks[id].tokens;
}

uint32_t block_pool_available(const struct block_pool *pool)
{
    return pool->counts.empty + pool->counts.cached;
}

bool block_pool_caching(const struct block_pool *pool)
{
    return pool->prefix_caching;
}

void block_pool_counts(const struct block_pool *pool, struct block_counts *ret_counts)
{
    *ret_counts = pool->counts;
}

void block_pool_note_admission(struct block_pool *pool, const struct block_admission *admission)
{
    ASSERT(admission->found_count <= admission->hashes_count);
    pool->counts.lookups_total += admission->hashes_count;
    pool->counts.hits_total += admission->found_count;
    if (pool->eviction->on_admission != NULL)
        pool->eviction->on_admission(pool, admission);
}

void block_pool_reset_cache(struct block_pool *pool)
{
    enum block_loss why;

    while (pool->counts.cached > 0)
        block_lose(pool, pool->eviction->victim(pool, &why), BLOCK_LOST_RESET);
}

bool block_pool_hash(const struct block_pool *pool, uint32_t id, struct block_hash *ret_hash)
{
    ASSERT(id < pool->blocks_total);
    if (pool->blocks[id].tokens != BLOCK_TOKENS)
        return false;
    *ret_hash = pool->blocks[id].hash;
    return true;
}

uint64_t block_pool_digest(const struct block_pool *pool)
{
    return pool->digest;
}
