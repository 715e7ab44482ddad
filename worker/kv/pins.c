/* pins.c - leases on prefixes: their blocks stay until the lease ends, and the window blocks that a
 * hit on all of the prefix needs.
 *
 *   pin(chain) --> one reference on the last block found; a SHARED block holds its parents
 *   expire, unpin, break --> the reference goes, the blocks are CACHED like any other
 *
 * Why a lease and not a lock: whoever pinned may never come back. Why bounded twice, by number and
 * by blocks: what is pinned is taken from everybody else. A lease gives way, the one that ends
 * first first, when a request could not run at all beside it (the scheduler asks). Leases are few:
 * lists of PINS_MAX are scanned. Cost: O(blocks of the prefix) to pin and to let go, O(1) per step
 * while none is due. Invariants (block_pool_check): block->leases is the number of leases whose
 * chain holds it, counts.pinned the number of blocks with any. */
#include <errno.h>

#include "proto/base/assert.h"
#include "worker/kv/block_pool_internal.h"
#include "worker/kv/window_blocks.h"

/* All of the chain that ends with `id`: one lease more or less. */
static void count_chain(struct block_pool *pool, uint32_t id, bool more)
{
    for (uint32_t at = id; at != BLOCK_NONE; at = pool->blocks[at].parent_id) {
        struct block *block = &pool->blocks[at];
        if (more) {
            pool->counts.pinned += block->leases++ == 0;
        } else {
            ASSERT(block->leases > 0);
            pool->counts.pinned -= --block->leases == 0;
        }
    }
}

static void find_next_expiry(struct block_pool *pool)
{
    pool->pins_due_ns = UINT64_MAX;
    for (uint32_t i = 0; i < pool->counts.pins; i++)
        if (pool->pins[i].expires_ns < pool->pins_due_ns)
            pool->pins_due_ns = pool->pins[i].expires_ns;
}

/* The lease's reference, and its window blocks before. */
static void release(struct block_pool *pool, const struct pin *pin)
{
    uint32_t at = pin->id;

    for (uint32_t i = 0; i < pin->windows; i++, at = pool->blocks[at].parent_id)
        window_release(pool, &at, 1, false);
    pool->pinned_windows -= pin->windows;
    block_pool_unref(pool, &pin->id, 1);
}

/* Cut what was found to what can be used: its last window is there. *ret_windows of it are held. */
static uint32_t usable_blocks(const struct block_pool *pool, const uint32_t *ids, uint32_t found,
                              uint32_t *ret_windows)
{
    uint32_t tokens = window_tokens(pool);

    *ret_windows = 0;
    while (tokens > 0 && found > 0) {
        uint32_t first = window_first_block(tokens, found * BLOCK_TOKENS);
        uint32_t run = window_run(pool, ids, found);
        if (run <= first) {
            *ret_windows = found - first;
            break;
        }
        found = run - 1;
    }
    return found;
}

/* Half of the window blocks at most, each lease's counted apart. `more` may be negative. */
static int check_windows(const struct block_pool *pool, uint32_t more, struct errmsg *err)
{
    struct window_counts counts;

    window_get_counts(pool, &counts);
    if (more == 0 || (int32_t)more < 0 || pool->pinned_windows + more <= counts.total / 2)
        return 0;
    return errmsg_set(err, -ENOSPC,
                      "%u window blocks are pinned and %u more were to be: at most %u of %u",
                      pool->pinned_windows, more, counts.total / 2, counts.total);
}

static void let_go(struct block_pool *pool, uint32_t i)
{
    struct pin pin = pool->pins[i];

    ASSERT(i < pool->counts.pins);
    pool->pins[i] = pool->pins[--pool->counts.pins];
    count_chain(pool, pin.id, false);
    release(pool, &pin);
    find_next_expiry(pool);
}

static struct pin *find(struct block_pool *pool, struct block_hash root, struct block_hash last)
{
    for (uint32_t i = 0; i < pool->counts.pins; i++)
        if (block_hash_equal(pool->pins[i].last, last) &&
            block_hash_equal(pool->pins[i].root, root))
            return &pool->pins[i];
    return NULL;
}

/* Hold the chain of `found` published blocks, as far as a hit on it can be used. */
static int hold(struct block_pool *pool, const struct block_chain *chain, const uint32_t *ids,
                uint32_t found, uint64_t expires_ns, uint32_t *ret_blocks, struct errmsg *err)
{
    struct block_hash last = chain->hashes[chain->count - 1];
    struct pin *pin = find(pool, chain->root, last);
    uint32_t windows;
    int r;
    found = usable_blocks(pool, ids, found, &windows);
    if (found == 0)
        return errmsg_set(err, -ENOENT, "none of the %u blocks is cached", chain->count);
    uint32_t id = ids[found - 1];
    if (pin == NULL && pool->counts.pins == PINS_MAX)
        return errmsg_set(err, -ENOSPC, "%u prefixes are pinned: at most %u", PINS_MAX, PINS_MAX);
    r = check_windows(pool, windows - (pin != NULL ? pin->windows : 0), err);
    if (r < 0)
        return r;
    count_chain(pool, id, true);
    if (pin != NULL)
        count_chain(pool, pin->id, false);
    if (pool->counts.pinned > pool->pinned_blocks_max) {
        if (pin != NULL)
            count_chain(pool, pin->id, true);
        count_chain(pool, id, false);
        return errmsg_set(err, -ENOSPC, "%u blocks are pinned and %u were to be: at most %u of %u",
                          pool->counts.pinned, found, pool->pinned_blocks_max, pool->blocks_total);
    }
    block_pool_ref(pool, id);
    if (windows > 0)
        window_hold(pool, ids + found - windows, windows);
    pool->pinned_windows += windows;
    if (pin != NULL) {
        release(pool, pin);
        *pin = pool->pins[--pool->counts.pins];
    }
    pool->pins[pool->counts.pins++] = (struct pin){chain->root, last, expires_ns, id, windows};
    find_next_expiry(pool);
    *ret_blocks = found;
    return 0;
}

int block_pool_pin(struct block_pool *pool, const struct block_chain *chain, uint64_t expires_ns,
                   uint32_t *scratch, uint32_t *ret_blocks, struct errmsg *err)
{
    if (chain->count == 0)
        return errmsg_set(err, -ENOENT, "less than %d tokens: no block to pin", BLOCK_TOKENS);
    uint32_t found =
        block_pool_match_root(pool, chain->root, chain->hashes, chain->ids, chain->count, scratch);
    return hold(pool, chain, scratch, found, expires_ns, ret_blocks, err);
}

int block_pool_pin_block(struct block_pool *pool, struct block_hash hash, uint64_t expires_ns,
                         uint32_t *scratch, uint32_t *ret_blocks, struct errmsg *err)
{
    struct block_chain chain = {.hashes = &hash, .count = 1};
    uint32_t id = block_pool_find(pool, hash), count = 0;

    if (id == BLOCK_NONE)
        return errmsg_set(err, -ENOENT, "no cached block has this hash");
    for (uint32_t at = id; at != BLOCK_NONE; at = pool->blocks[at].parent_id) {
        chain.root = pool->blocks[at].parent; /* in the end: of the first block */
        count++;
    }
    for (uint32_t at = id, i = count; i > 0; at = pool->blocks[at].parent_id)
        scratch[--i] = at;
    return hold(pool, &chain, scratch, count, expires_ns, ret_blocks, err);
}

uint32_t block_pool_pins(const struct block_pool *pool, struct pinned_prefix *ret_pins)
{
    for (uint32_t i = 0; i < pool->counts.pins; i++) {
        const struct pin *pin = &pool->pins[i];
        ret_pins[i] = (struct pinned_prefix){pin->root, pin->last, pin->expires_ns, 0};
        for (uint32_t at = pin->id; at != BLOCK_NONE; at = pool->blocks[at].parent_id)
            ret_pins[i].blocks++;
    }
    return pool->counts.pins;
}

int block_pool_unpin(struct block_pool *pool, struct block_hash root, struct block_hash last)
{
    struct pin *pin = find(pool, root, last);

    if (pin == NULL)
        return -ENOENT;
    let_go(pool, (uint32_t)(pin - pool->pins));
    return 0;
}

/* The lease that ends first; PINS_MAX: there is none. */
static uint32_t first_to_end(const struct block_pool *pool)
{
    for (uint32_t i = 0; i < pool->counts.pins; i++)
        if (pool->pins[i].expires_ns == pool->pins_due_ns)
            return i;
    return PINS_MAX;
}

void block_pool_expire_pins(struct block_pool *pool, uint64_t now_ns)
{
    while (pool->counts.pins > 0 && pool->pins_due_ns <= now_ns)
        let_go(pool, first_to_end(pool));
}

bool block_pool_break_pin(struct block_pool *pool)
{
    uint32_t i = first_to_end(pool);

    if (i == PINS_MAX)
        return false;
    let_go(pool, i);
    pool->counts.pins_broken_total++;
    return true;
}
