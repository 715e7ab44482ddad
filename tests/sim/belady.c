/* belady.c - see the header. Future uses are a list of requests per block hash; a heap holds the
 * CACHED blocks without children, the one used again the latest on top. */
#include "tests/sim/belady.h"

#include <stdlib.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "worker/kv/block_pool_internal.h"

#define NEVER UINT32_MAX
#define NOT_IN_HEAP UINT32_MAX
#define LOOK_AHEAD_MAX 1000u

struct use {
    struct block_hash hash; /* a full block of the prompt */
    uint32_t request, depth;
};

struct oracle {
    const struct sim_trace *trace;
    struct block_hash root;
    struct use *uses; /* sorted by hash, then request */
    size_t uses_count;
    uint32_t now;
};

struct heap {
    uint32_t *ids, *places; /* places: by block */
    uint32_t *next_uses;    /* by block */
    uint32_t count;
    uint32_t refreshed; /* the request at which all next_uses lay ahead */
};

static struct oracle oracle;

static int compare_uses(const void *left, const void *right)
{
    const struct use *a = left, *b = right;

    if (a->hash.low != b->hash.low)
        return a->hash.low < b->hash.low ? -1 : 1;
    if (a->hash.high != b->hash.high)
        return a->hash.high < b->hash.high ? -1 : 1;
    return a->request < b->request ? -1 : a->request > b->request;
}

/* The root counts as a block of every request, at depth 0; block i is at depth i + 1. */
void belady_learn(const struct sim_trace *trace, struct block_hash root)
{
    size_t capacity = 0;

    for (uint32_t i = 0; i < trace->count; i++)
        capacity += trace->requests[i].prompt_tokens / BLOCK_TOKENS + 1;
    oracle = (struct oracle){.trace = trace, .root = root};
    oracle.uses = mem_calloc(capacity, sizeof(*oracle.uses));
    for (uint32_t i = 0; i < trace->count; i++) {
        const struct sim_request *request = &trace->requests[i];
        struct block_hash hash = root;
        for (uint32_t depth = 0;; depth++) {
            oracle.uses[oracle.uses_count++] = (struct use){hash, i, depth};
            if ((depth + 1) * BLOCK_TOKENS > request->prompt_tokens)
                break;
            hash = block_hash_next(hash, request->ids + (size_t)depth * BLOCK_TOKENS);
        }
    }
    qsort(oracle.uses, oracle.uses_count, sizeof(*oracle.uses), compare_uses);
}

void belady_forget(void)
{
    mem_free(oracle.uses);
    oracle = (struct oracle){.trace = NULL};
}

void belady_set_now(uint32_t index)
{
    oracle.now = index;
}

/* The first use of `hash` by a request after now; uses_count: none. */
static size_t first_use(struct block_hash hash)
{
    const struct use key = {hash, oracle.now + 1, 0};
    size_t low = 0, high = oracle.uses_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compare_uses(&oracle.uses[middle], &key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* As things are, would the request copy the head of this block and of no other one? */
static bool lends_head(struct block_pool *pool, uint32_t id, const struct use *use)
{
    const struct sim_request *request = &oracle.trace->requests[use->request];
    const uint32_t *ids = request->ids + (size_t)use->depth * BLOCK_TOKENS;
    uint32_t at = use->depth * BLOCK_TOKENS, tokens = 0;

    if (request->prompt_tokens <= at + 1 || pool->blocks[id].ids[0] != ids[0])
        return false;
    uint32_t limit = request->prompt_tokens - 1 - at;
    return block_pool_match_partial(pool, pool->blocks[id].parent, ids,
                                    limit < BLOCK_TOKENS ? limit : BLOCK_TOKENS, &tokens) == id;
}

static uint32_t next_use(struct block_pool *pool, uint32_t id)
{
    const struct block *block = &pool->blocks[id];
    uint32_t best = NEVER;
    size_t at;

    if (block->tokens == BLOCK_TOKENS) {
        at = first_use(block->hash);
        if (at < oracle.uses_count && block_hash_equal(oracle.uses[at].hash, block->hash))
            best = oracle.uses[at].request;
    }
    if (oracle.trace->blocks_only)
        return best;
    at = first_use(block->parent);
    for (uint32_t n = 0; n < LOOK_AHEAD_MAX && at < oracle.uses_count; n++, at++) {
        const struct use *use = &oracle.uses[at];
        if (!block_hash_equal(use->hash, block->parent) || use->request >= best)
            break;
        if (lends_head(pool, id, use))
            return use->request;
    }
    return best;
}

/* --- the heap --- */

static bool before(const struct heap *heap, uint32_t a, uint32_t b)
{
    if (heap->next_uses[a] != heap->next_uses[b])
        return heap->next_uses[a] > heap->next_uses[b];
    return a < b;
}

static void put(struct heap *heap, uint32_t place, uint32_t id)
{
    heap->ids[place] = id;
    heap->places[id] = place;
}

static uint32_t sift_up(struct heap *heap, uint32_t place)
{
    uint32_t id = heap->ids[place];

    while (place > 0 && before(heap, id, heap->ids[(place - 1) / 2])) {
        put(heap, place, heap->ids[(place - 1) / 2]);
        place = (place - 1) / 2;
    }
    put(heap, place, id);
    return place;
}

static void sift_down(struct heap *heap, uint32_t place)
{
    uint32_t id = heap->ids[place];

    for (;;) {
        uint32_t child = 2 * place + 1;
        if (child >= heap->count)
            break;
        if (child + 1 < heap->count && before(heap, heap->ids[child + 1], heap->ids[child]))
            child++;
        if (!before(heap, heap->ids[child], id))
            break;
        put(heap, place, heap->ids[child]);
        place = child;
    }
    put(heap, place, id);
}

static void heap_add(struct block_pool *pool, uint32_t id)
{
    struct heap *heap = pool->eviction_state;

    heap->next_uses[id] = next_use(pool, id);
    put(heap, heap->count, id);
    (void)sift_up(heap, heap->count++);
}

static void heap_remove(struct block_pool *pool, uint32_t id)
{
    struct heap *heap = pool->eviction_state;
    uint32_t place = heap->places[id];

    if (place == NOT_IN_HEAP)
        return;
    heap->places[id] = NOT_IN_HEAP;
    if (place == --heap->count)
        return;
    put(heap, place, heap->ids[heap->count]);
    sift_down(heap, sift_up(heap, place));
}

/* --- the policy --- */

static int init(struct block_pool *pool)
{
    struct heap *heap = mem_zalloc(sizeof(*heap));

    ASSERT(oracle.trace != NULL);
    heap->ids = mem_calloc(pool->blocks_total, sizeof(uint32_t));
    heap->places = mem_calloc(pool->blocks_total, sizeof(uint32_t));
    heap->next_uses = mem_calloc(pool->blocks_total, sizeof(uint32_t));
    memset(heap->places, 0xff, pool->blocks_total * sizeof(uint32_t));
    pool->eviction_state = heap;
    return 0;
}

static void done(struct block_pool *pool)
{
    struct heap *heap = pool->eviction_state;

    mem_free(heap->ids);
    mem_free(heap->places);
    mem_free(heap->next_uses);
    mem_free(heap);
}

static void on_cached(struct block_pool *pool, uint32_t id)
{
    if (pool->blocks[id].children == 0)
        heap_add(pool, id);
}

/* A block whose use has come and that is not held: the request did without it. */
static void refresh(struct block_pool *pool)
{
    struct heap *heap = pool->eviction_state;

    for (uint32_t i = 0; i < heap->count; i++) {
        uint32_t id = heap->ids[i];
        if (heap->next_uses[id] <= oracle.now)
            heap->next_uses[id] = next_use(pool, id);
    }
    for (uint32_t i = heap->count / 2; i-- > 0;)
        sift_down(heap, i);
}

static uint32_t victim(struct block_pool *pool, enum block_loss *ret_why)
{
    struct heap *heap = pool->eviction_state;

    (void)ret_why;
    if (heap->refreshed != oracle.now)
        refresh(pool);
    heap->refreshed = oracle.now;
    return heap->ids[0];
}

static void on_gone(struct block_pool *pool, uint32_t id, enum block_loss why)
{
    (void)why;
    heap_remove(pool, id);
}

static void check(const struct block_pool *pool)
{
    const struct heap *heap = pool->eviction_state;

    for (uint32_t i = 1; i < heap->count; i++)
        ASSERT(!before(heap, heap->ids[i], heap->ids[(i - 1) / 2]));
}

const struct eviction_policy eviction_belady = {
    .name = "belady",
    .init = init,
    .done = done,
    .on_cached = on_cached,
    .on_held = heap_remove,
    .on_gone = on_gone,
    .on_leaf = on_cached,
    .victim = victim,
    .check = check,
};
