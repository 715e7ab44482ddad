/* pool_check.c - every invariant of the pool, asserted. O(blocks * siblings in the worst case).
 *
 * Walks the structures one after the other and compares what each says about a block with what the
 * block says: state counts, the empty ones, both indexes, parents, pins, digest; the policy checks
 * its own order. */
#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "worker/kv/block_pool_internal.h"

struct tally {
    uint32_t *pins;     /* SHARED children found */
    uint32_t *children; /* published children found */
};

static void check_empty(const struct block_pool *pool)
{
    uint32_t at = pool->empty.head, before = BLOCK_NONE, count = 0;

    while (at != BLOCK_NONE) {
        const struct block *block = &pool->blocks[at];
        ASSERT(block->prev == before);
        ASSERT(block->state == BLOCK_EMPTY);
        ASSERT(count++ < pool->counts.empty);
        before = at;
        at = block->next;
    }
    ASSERT(pool->empty.tail == before);
    ASSERT(count == pool->counts.empty);
}

static void check_references(const struct block *block)
{
    switch ((enum block_state)block->state) {
    case BLOCK_EMPTY:
        ASSERT(block->refs == 0 && block->pins == 0 && block->tokens == 0);
        break;
    case BLOCK_PRIVATE:
        ASSERT(block->refs > 0 && block->pins == 0 && block->tokens == 0);
        break;
    case BLOCK_SHARED:
        ASSERT(block->refs + block->pins > 0 && block->tokens > 0);
        break;
    case BLOCK_CACHED:
        ASSERT(block->refs == 0 && block->pins == 0 && block->tokens > 0);
        break;
    }
    ASSERT(block->tokens == BLOCK_TOKENS || block->children == 0);
}

static void check_parent(const struct block_pool *pool, struct tally *tally, uint32_t id)
{
    const struct block *block = &pool->blocks[id];

    if (block->parent_id == BLOCK_NONE)
        return;
    const struct block *parent = &pool->blocks[block->parent_id];
    ASSERT(parent->tokens == BLOCK_TOKENS);
    ASSERT(block_hash_equal(parent->hash, block->parent));
    tally->children[block->parent_id]++;
    if (block->state == BLOCK_SHARED) {
        ASSERT(parent->state == BLOCK_SHARED);
        tally->pins[block->parent_id]++;
    }
}

static void check_siblings(const struct block_pool *pool, uint32_t id)
{
    const struct block *block = &pool->blocks[id];

    if (block->newer == BLOCK_NONE)
        ASSERT(hash_index_find(&pool->by_parent, block->parent) == id);
    else
        ASSERT(pool->blocks[block->newer].older == id);
    if (block->older != BLOCK_NONE) {
        ASSERT(pool->blocks[block->older].newer == id);
        ASSERT(block_hash_equal(pool->blocks[block->older].parent, block->parent));
    }
}

static void check_totals(const struct block_pool *pool, const struct tally *tally)
{
    uint32_t states[4] = {0}, full = 0, newest = 0;
    uint64_t digest = 0;

    for (uint32_t id = 0; id < pool->blocks_total; id++) {
        const struct block *block = &pool->blocks[id];
        ASSERT(tally->pins[id] == block->pins);
        ASSERT(tally->children[id] == block->children);
        states[block->state]++;
        newest += block->tokens > 0 && block->newer == BLOCK_NONE;
        if (block->tokens < BLOCK_TOKENS)
            continue;
        ASSERT(hash_index_find(&pool->by_hash, block->hash) == id);
        digest ^= block->hash.low;
        full++;
    }
    ASSERT(states[BLOCK_EMPTY] == pool->counts.empty);
    ASSERT(states[BLOCK_PRIVATE] == pool->counts.private_);
    ASSERT(states[BLOCK_SHARED] == pool->counts.shared);
    ASSERT(states[BLOCK_CACHED] == pool->counts.cached);
    ASSERT(full == pool->by_hash.count && newest == pool->by_parent.count);
    ASSERT(digest == pool->digest);
}

static void check_pins(const struct block_pool *pool)
{
    uint32_t *leases = mem_calloc(pool->blocks_total, sizeof(*leases));
    uint32_t pinned = 0;

    for (uint32_t i = 0; i < pool->counts.pins; i++) {
        ASSERT(pool->pins[i].expires_ns >= pool->pins_due_ns);
        ASSERT(pool->blocks[pool->pins[i].id].refs > 0);
        for (uint32_t at = pool->pins[i].id; at != BLOCK_NONE; at = pool->blocks[at].parent_id)
            leases[at]++;
    }
    for (uint32_t id = 0; id < pool->blocks_total; id++) {
        ASSERT(leases[id] == pool->blocks[id].leases);
        ASSERT(leases[id] == 0 || pool->blocks[id].state == BLOCK_SHARED);
        pinned += leases[id] > 0;
    }
    ASSERT(pinned == pool->counts.pinned && pinned <= pool->pinned_blocks_max);
    mem_free(leases);
}

void block_pool_check(const struct block_pool *pool)
{
    struct tally tally = {
        .pins = mem_calloc(pool->blocks_total, sizeof(uint32_t)),
        .children = mem_calloc(pool->blocks_total, sizeof(uint32_t)),
    };

    check_empty(pool);
    for (uint32_t id = 0; id < pool->blocks_total; id++) {
        check_references(&pool->blocks[id]);
        if (pool->blocks[id].tokens == 0)
            continue;
        check_parent(pool, &tally, id);
        check_siblings(pool, id);
    }
    check_totals(pool, &tally);
    check_pins(pool);
    if (pool->windows != NULL)
        windows_check(pool);
    pool->eviction->check(pool);
    mem_free(tally.pins);
    mem_free(tally.children);
}
