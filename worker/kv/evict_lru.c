/* evict_lru.c - the block that was let go the longest ago.
 *
 *   [ oldest tail ... oldest head | ... | newest tail ... newest head ]
 *     ^ victim                                      just let go ^
 *
 * Why no clock or heap: a sequence gives its blocks back tail first, so list order is age, and
 * within one age children go before parents. A parent is let go no earlier than its children, so
 * the head of the list never has any. Cost: O(1). */
#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "worker/kv/block_pool_internal.h"

static int init(struct block_pool *pool)
{
    struct block_list *list = mem_alloc(sizeof(*list));

    *list = (struct block_list){BLOCK_NONE, BLOCK_NONE};
    pool->eviction_state = list;
    return 0;
}

static void done(struct block_pool *pool)
{
    mem_free(pool->eviction_state);
}

static void on_cached(struct block_pool *pool, uint32_t id)
{
    block_list_push_tail(pool, pool->eviction_state, id);
}

static void leave(struct block_pool *pool, uint32_t id)
{
    block_list_remove(pool, pool->eviction_state, id);
}

static void on_gone(struct block_pool *pool, uint32_t id, enum block_loss why)
{
    (void)why;
    leave(pool, id);
}

static uint32_t victim(struct block_pool *pool, enum block_loss *ret_why)
{
    const struct block_list *list = pool->eviction_state;

    (void)ret_why;
    return list->head;
}

static void check(const struct block_pool *pool)
{
    const struct block_list *list = pool->eviction_state;
    uint32_t at = list->head, before = BLOCK_NONE, count = 0;
    uint32_t *children = mem_calloc(pool->blocks_total, sizeof(*children));

    while (at != BLOCK_NONE) {
        const struct block *block = &pool->blocks[at];
        ASSERT(block->state == BLOCK_CACHED && block->prev == before);
        ASSERT(children[at] == block->children); /* all of them stand before it */
        if (block->parent_id != BLOCK_NONE)
            children[block->parent_id]++;
        ASSERT(count++ < pool->counts.cached);
        before = at;
        at = block->next;
    }
    ASSERT(list->tail == before && count == pool->counts.cached);
    mem_free(children);
}

const struct eviction_policy eviction_lru = {
    .name = "lru",
    .init = init,
    .done = done,
    .on_cached = on_cached,
    .on_held = leave,
    .on_gone = on_gone,
    .victim = victim,
    .check = check,
};
