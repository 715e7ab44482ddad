/* window_blocks.c - see the header.
 *
 *   passed [ oldest ... newest ]   a window moved past them, and no prefix hit ever needed them
 *   kept   [ oldest ... newest ]   ends of prefixes, and what a hit needed
 *
 * Evicted: the oldest of `passed`, then of `kept`. Why two lists: a long prompt leaves many window
 * blocks behind that only a conversation which branches off there could use; they must not push out
 * the ends of other conversations, which their next turns need. Why age and no policy: the window
 * of a prefix is of use as a whole only, and what is let go together is lost together this way.
 *
 * A block whose window block is evicted stays findable as long as something hangs under it. Without
 * a child nothing that ends in it can be used, so it is lost too, and the blocks above it likewise.
 *
 * Invariants (block_pool_check): a CACHED block without children has a window block; a held window
 * block's block is held; an idle one's is published. */
#include "worker/kv/window_blocks.h"

#include <errno.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "worker/kv/block_pool_internal.h"

struct window_block {
    uint32_t owner; /* BLOCK_NONE: EMPTY */
    uint32_t holders;
    uint32_t prev, next;  /* in its list while idle; next: among the EMPTY ones */
    bool passed, was_hit; /* in which list; a prefix hit needed it */
};

struct window_list {
    uint32_t head, tail;
};

struct windows {
    uint32_t tokens;
    uint32_t *of; /* [blocks_total]: the window block of each block, BLOCK_NONE */
    struct window_block *blocks;
    uint32_t empty; /* stack */
    struct window_list passed, kept;
    struct window_counts counts;
};

int windows_new(struct block_pool *pool, uint32_t tokens, uint32_t total)
{
    struct windows *w = mem_zalloc(sizeof(*w));
    void *of = NULL, *blocks = NULL;

    pool->windows = w;
    w->tokens = tokens;
    w->counts.total = w->counts.empty = total;
    w->passed = w->kept = (struct window_list){BLOCK_NONE, BLOCK_NONE};
    w->empty = BLOCK_NONE;
    if (mem_map(pool->blocks_total * sizeof(*w->of), &of) < 0)
        return -ENOMEM;
    w->of = of;
    if (mem_map(total * sizeof(*w->blocks), &blocks) < 0)
        return -ENOMEM;
    w->blocks = blocks;
    for (uint32_t id = 0; id < pool->blocks_total; id++)
        w->of[id] = BLOCK_NONE;
    for (uint32_t at = total; at-- > 0;) {
        w->blocks[at] = (struct window_block){.owner = BLOCK_NONE, .next = w->empty};
        w->empty = at;
    }
    return 0;
}

void windows_free(struct block_pool *pool)
{
    struct windows *w = pool->windows;

    if (w == NULL)
        return;
    if (w->of != NULL)
        mem_unmap(w->of, pool->blocks_total * sizeof(*w->of));
    if (w->blocks != NULL)
        mem_unmap(w->blocks, w->counts.total * sizeof(*w->blocks));
    mem_free(w);
}

static bool is_published(const struct block_pool *pool, uint32_t id)
{
    return pool->blocks[id].tokens > 0;
}

static struct window_list *list_of(struct windows *w, const struct window_block *block)
{
    return block->passed ? &w->passed : &w->kept;
}

static void push_idle(struct windows *w, uint32_t at, bool passed)
{
    struct window_block *block = &w->blocks[at];

    block->passed = passed && !block->was_hit;
    struct window_list *list = list_of(w, block);
    block->next = BLOCK_NONE;
    block->prev = list->tail;
    if (list->tail != BLOCK_NONE)
        w->blocks[list->tail].next = at;
    else
        list->head = at;
    list->tail = at;
    w->counts.cached++;
}

static void remove_idle(struct windows *w, uint32_t at)
{
    struct window_block *block = &w->blocks[at];
    struct window_list *list = list_of(w, block);

    ASSERT(block->holders == 0 && block->owner != BLOCK_NONE);
    if (block->prev != BLOCK_NONE)
        w->blocks[block->prev].next = block->next;
    else
        list->head = block->next;
    if (block->next != BLOCK_NONE)
        w->blocks[block->next].prev = block->prev;
    else
        list->tail = block->prev;
    w->counts.cached--;
}

/* Neither held nor in a list: EMPTY. */
static void set_empty(struct windows *w, uint32_t at)
{
    struct window_block *block = &w->blocks[at];

    w->of[block->owner] = BLOCK_NONE;
    *block = (struct window_block){.owner = BLOCK_NONE, .next = w->empty};
    w->empty = at;
    w->counts.empty++;
}

static uint32_t *held_count(struct block_pool *pool, uint32_t owner)
{
    struct window_counts *counts = &pool->windows->counts;

    return is_published(pool, owner) ? &counts->shared : &counts->private_;
}

static void evict_one(struct block_pool *pool)
{
    struct windows *w = pool->windows;
    uint32_t at = w->passed.head != BLOCK_NONE ? w->passed.head : w->kept.head;
    uint32_t owner = w->blocks[at].owner;

    remove_idle(w, at);
    set_empty(w, at);
    w->counts.lost_total++;
    if (block_is_useless(pool, owner))
        block_lose(pool, owner, BLOCK_LOST_CAPACITY);
}

int window_take(struct block_pool *pool, const uint32_t *ids, uint32_t count)
{
    struct windows *w = pool->windows;

    if (count > window_available(pool))
        return -ENOSPC;
    for (uint32_t i = 0; i < count; i++) {
        ASSERT(w->of[ids[i]] == BLOCK_NONE && pool->blocks[ids[i]].refs > 0);
        if (w->empty == BLOCK_NONE)
            evict_one(pool);
        uint32_t at = w->empty;
        w->empty = w->blocks[at].next;
        w->counts.empty--;
        w->blocks[at] = (struct window_block){.owner = ids[i], .holders = 1};
        w->of[ids[i]] = at;
        ++*held_count(pool, ids[i]);
    }
    return 0;
}

void window_hold(struct block_pool *pool, const uint32_t *ids, uint32_t count)
{
    struct windows *w = pool->windows;

    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = window_of_block(pool, ids[i]);
        ASSERT(at != BLOCK_NONE);
        struct window_block *block = &w->blocks[at];
        if (block->holders == 0) {
            remove_idle(w, at);
            ++*held_count(pool, ids[i]);
        }
        block->holders++;
        block->was_hit = true;
    }
}

void window_release(struct block_pool *pool, const uint32_t *ids, uint32_t count, bool passed)
{
    struct windows *w = pool->windows;

    for (uint32_t i = count; i-- > 0;) {
        uint32_t at = window_of_block(pool, ids[i]);
        ASSERT(at != BLOCK_NONE && w->blocks[at].holders > 0);
        if (--w->blocks[at].holders > 0)
            continue;
        --*held_count(pool, ids[i]);
        if (is_published(pool, ids[i]))
            push_idle(w, at, passed);
        else
            set_empty(w, at);
    }
}

void window_move(struct block_pool *pool, uint32_t from, uint32_t to)
{
    struct windows *w = pool->windows;
    uint32_t at = window_of_block(pool, from);

    ASSERT(at != BLOCK_NONE && w->of[to] == BLOCK_NONE && w->blocks[at].holders == 1);
    ASSERT(!is_published(pool, from) && is_published(pool, to) && pool->blocks[to].refs > 0);
    w->counts.private_--;
    w->counts.shared++;
    w->of[from] = BLOCK_NONE;
    w->of[to] = at;
    w->blocks[at].owner = to;
}

void windows_on_published(struct block_pool *pool, uint32_t id)
{
    struct windows *w = pool->windows;

    if (w->of[id] == BLOCK_NONE)
        return;
    ASSERT(w->blocks[w->of[id]].holders > 0); /* idle and private would have been EMPTY */
    w->counts.private_--;
    w->counts.shared++;
}

void windows_on_unpublished(struct block_pool *pool, uint32_t id)
{
    struct windows *w = pool->windows;
    uint32_t at = w->of[id];

    if (at == BLOCK_NONE)
        return;
    remove_idle(w, at);
    set_empty(w, at);
}

uint32_t window_of_block(const struct block_pool *pool, uint32_t id)
{
    ASSERT(id < pool->blocks_total);
    return pool->windows->of[id];
}

uint32_t window_tokens(const struct block_pool *pool)
{
    return pool->windows != NULL ? pool->windows->tokens : 0;
}

uint32_t window_available(const struct block_pool *pool)
{
    return pool->windows->counts.empty + pool->windows->counts.cached;
}

bool window_is_idle(const struct block_pool *pool, uint32_t id)
{
    uint32_t at = window_of_block(pool, id);

    return at != BLOCK_NONE && pool->windows->blocks[at].holders == 0;
}

uint32_t window_run(const struct block_pool *pool, const uint32_t *ids, uint32_t count)
{
    while (count > 0 && window_of_block(pool, ids[count - 1]) != BLOCK_NONE)
        count--;
    return count;
}

void window_get_counts(const struct block_pool *pool, struct window_counts *ret_counts)
{
    *ret_counts = pool->windows != NULL ? pool->windows->counts : (struct window_counts){0};
}

/* --- check ----------------------------------------------------------------------------------- */

uint64_t window_holders(const struct block_pool *pool)
{
    uint64_t holders = 0;

    for (uint32_t at = 0; at < pool->windows->counts.total; at++)
        holders += pool->windows->blocks[at].holders;
    return holders;
}

uint32_t window_pinned(const struct block_pool *pool)
{
    return pool->pinned_windows;
}

static uint32_t check_list(const struct block_pool *pool, const struct window_list *list,
                           bool passed)
{
    const struct windows *w = pool->windows;
    uint32_t before = BLOCK_NONE, count = 0;

    for (uint32_t at = list->head; at != BLOCK_NONE; at = w->blocks[at].next) {
        const struct window_block *block = &w->blocks[at];
        ASSERT(block->prev == before && block->holders == 0 && block->passed == passed);
        ASSERT(block->owner != BLOCK_NONE && is_published(pool, block->owner));
        ASSERT(count++ < w->counts.cached);
        before = at;
    }
    ASSERT(list->tail == before);
    return count;
}

void windows_check(const struct block_pool *pool)
{
    const struct windows *w = pool->windows;
    uint32_t empty = 0, private_ = 0, shared = 0, owned = 0;

    for (uint32_t at = w->empty; at != BLOCK_NONE; at = w->blocks[at].next) {
        ASSERT(w->blocks[at].owner == BLOCK_NONE);
        ASSERT(empty++ < w->counts.empty);
    }
    for (uint32_t at = 0; at < w->counts.total; at++) {
        const struct window_block *block = &w->blocks[at];
        if (block->owner == BLOCK_NONE) {
            ASSERT(block->holders == 0);
            continue;
        }
        ASSERT(w->of[block->owner] == at);
        owned++;
        if (block->holders == 0)
            continue;
        const struct block *owner = &pool->blocks[block->owner];
        ASSERT(owner->state == BLOCK_PRIVATE || owner->state == BLOCK_SHARED);
        *(is_published(pool, block->owner) ? &shared : &private_) += 1;
    }
    for (uint32_t id = 0; id < pool->blocks_total; id++) {
        owned -= w->of[id] != BLOCK_NONE;
        ASSERT(!block_is_useless(pool, id));
    }
    ASSERT(owned == 0 && empty == w->counts.empty);
    ASSERT(private_ == w->counts.private_ && shared == w->counts.shared);
    ASSERT(check_list(pool, &w->passed, true) + check_list(pool, &w->kept, false) ==
           w->counts.cached);
    ASSERT(empty + private_ + shared + w->counts.cached == w->counts.total);
}
