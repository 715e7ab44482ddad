/* merge_order.c - lowest rank first, leftmost first, for words of thousands of symbols.
 *
 *   buckets  rank -> list of the symbols whose pair has it, in the order they were put in
 *   heap     the ranks that have a bucket; and single symbols that came too late for theirs
 *   active   the symbols of the lowest rank, left to right, being worked off
 *
 * Why not one heap of all pairs: in the words that are long (a megabyte of one letter, of spaces)
 * there are few ranks and very many pairs of each. Here a pair costs a list entry, and only ranks
 * pay for order. In a trained vocabulary a merge makes pairs of higher rank only, so buckets are
 * complete when their turn comes. Where that does not hold (SentencePiece scores), a symbol whose
 * rank is not above the active one goes into the heap by itself, as rank << 32 | symbol; a rank's
 * own entry is rank << 32 | MERGE_END. Both are worked off before the next bucket, so the order is
 * exact.
 *
 * Invariants: a symbol is in at most one bucket, that of its present rank; a heap or active entry
 * whose symbol has another rank by now is stale and skipped. Cost: memory 16 bytes a symbol beside
 * merge.c's 28. */
#include "router/text/merge_order.h"

#include <stdlib.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"

#define IN_NO_BUCKET (MERGE_END - 1)
#define RANK_BEFORE_ALL ((int64_t)-1)

struct bucket_link {
    uint32_t previous; /* IN_NO_BUCKET, or MERGE_END: first of its bucket */
    uint32_t next;
};

struct order {
    struct merge *merge;
    struct bucket_link *links; /* by symbol */
    struct pair_map buckets;   /* rank -> first: first symbol, second: last symbol */
    uint64_t *heap;
    size_t heap_count, heap_max;
    uint32_t *active; /* symbols of the active rank, rising */
    size_t active_count, active_max, active_at;
    int64_t active_rank;
};

/* --- heap ------------------------------------------------------------------------------------ */

static void heap_push(struct order *order, uint64_t item)
{
    if (order->heap_count == order->heap_max) {
        order->heap_max = order->heap_max == 0 ? 64 : order->heap_max * 2;
        order->heap = mem_realloc(order->heap, order->heap_max * sizeof(*order->heap));
    }
    size_t at = order->heap_count++;
    for (; at > 0 && order->heap[(at - 1) / 2] > item; at = (at - 1) / 2) {
        order->heap[at] = order->heap[(at - 1) / 2];
        order->merge->work++;
    }
    order->heap[at] = item;
}

static uint64_t heap_pop(struct order *order)
{
    uint64_t *heap = order->heap, top = heap[0], item = heap[--order->heap_count];
    size_t at = 0;
    for (size_t child; (child = at * 2 + 1) < order->heap_count; at = child) {
        if (child + 1 < order->heap_count && heap[child + 1] < heap[child])
            child++;
        if (heap[child] >= item)
            break;
        heap[at] = heap[child];
        order->merge->work++;
    }
    heap[at] = item;
    return top;
}

/* --- buckets --------------------------------------------------------------------------------- */

static void bucket_append(struct order *order, uint32_t rank, uint32_t symbol)
{
    bool is_new = false;
    struct pair_entry *bucket = pair_map_add(&order->buckets, rank, &is_new);
    struct bucket_link *link = &order->links[symbol];
    ASSERT(link->previous == IN_NO_BUCKET);
    if (is_new || bucket->first == MERGE_END) {
        bucket->first = symbol;
        link->previous = MERGE_END;
    } else {
        order->links[bucket->second].next = symbol;
        link->previous = bucket->second;
    }
    if (is_new)
        heap_push(order, (uint64_t)rank << 32 | MERGE_END);
    bucket->second = symbol;
    link->next = MERGE_END;
}

/* Take a symbol whose pair had this rank out of its bucket, if it is in one. */
static void bucket_remove(struct order *order, uint32_t rank, uint32_t symbol)
{
    struct bucket_link *link = &order->links[symbol];
    if (link->previous == IN_NO_BUCKET)
        return;
    if (link->previous == MERGE_END || link->next == MERGE_END) {
        struct pair_entry *bucket = pair_map_slot(&order->buckets, rank);
        ASSERT(bucket->key == rank);
        if (link->previous == MERGE_END)
            bucket->first = link->next;
        if (link->next == MERGE_END)
            bucket->second = link->previous;
    }
    if (link->previous != MERGE_END)
        order->links[link->previous].next = link->next;
    if (link->next != MERGE_END)
        order->links[link->next].previous = link->previous;
    link->previous = IN_NO_BUCKET;
}

static int by_position(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

/* The bucket's symbols become the active ones. Its rank never gets a bucket again: from now on it
 * is not above the active rank. */
static void bucket_activate(struct order *order, uint32_t rank)
{
    struct pair_entry *bucket = pair_map_slot(&order->buckets, rank);
    bool sorted = true;
    ASSERT(bucket->key == rank && (int64_t)rank > order->active_rank);
    order->active_count = order->active_at = 0;
    order->active_rank = rank;
    for (uint32_t symbol = bucket->first, next; symbol != MERGE_END; symbol = next) {
        next = order->links[symbol].next;
        order->links[symbol].previous = IN_NO_BUCKET;
        if (order->active_count == order->active_max) {
            order->active_max = order->active_max == 0 ? 64 : order->active_max * 2;
            order->active = mem_realloc(order->active, order->active_max * sizeof(uint32_t));
        }
        sorted =
            sorted && (order->active_count == 0 || order->active[order->active_count - 1] < symbol);
        order->active[order->active_count++] = symbol;
    }
    bucket->first = MERGE_END;
    if (!sorted)
        qsort(order->active, order->active_count, sizeof(uint32_t), by_position);
}

/* --- the run --------------------------------------------------------------------------------- */

static void put(struct order *order, uint32_t symbol)
{
    uint32_t rank = order->merge->ranks[symbol];
    if (rank == MERGE_RANK_NONE)
        return;
    if ((int64_t)rank > order->active_rank)
        bucket_append(order, rank, symbol);
    else
        heap_push(order, (uint64_t)rank << 32 | symbol);
}

static void join(struct order *order, const char *text, uint32_t at)
{
    struct merge *merge = order->merge;
    uint32_t right = merge->symbols[at].next, left = merge->symbols[at].previous;
    bucket_remove(order, merge->ranks[right], right);
    if (left != MERGE_END)
        bucket_remove(order, merge->ranks[left], left);
    merge_join(merge, text, at);
    if (left != MERGE_END) /* first, so that a bucket fills from the left */
        put(order, left);
    put(order, at);
}

/* The next symbol to join at, or MERGE_END: nothing is left. */
static uint32_t next_symbol(struct order *order)
{
    const uint32_t *ranks = order->merge->ranks;
    for (;;) {
        bool has_active = order->active_at < order->active_count;
        uint64_t head = !has_active
                            ? UINT64_MAX
                            : (uint64_t)order->active_rank << 32 | order->active[order->active_at];
        if (order->heap_count > 0 && order->heap[0] < head) {
            uint64_t top = heap_pop(order);
            uint32_t rank = (uint32_t)(top >> 32), symbol = (uint32_t)top;
            if (symbol == MERGE_END)
                bucket_activate(order, rank);
            else if (ranks[symbol] == rank)
                return symbol;
        } else if (has_active) {
            uint32_t symbol = order->active[order->active_at++];
            order->merge->work++;
            if (ranks[symbol] == (uint32_t)order->active_rank)
                return symbol;
        } else {
            return MERGE_END;
        }
    }
}

void merge_run_in_order(struct merge *merge, const char *text, uint32_t count)
{
    struct order order = {.merge = merge, .active_rank = RANK_BEFORE_ALL};
    order.links = mem_alloc(count * sizeof(*order.links));
    pair_map_init(&order.buckets, 32);
    for (uint32_t i = 0; i < count; i++)
        order.links[i].previous = IN_NO_BUCKET;
    for (uint32_t i = 0; i < count; i++)
        put(&order, i);
    for (uint32_t at; (at = next_symbol(&order)) != MERGE_END;)
        join(&order, text, at);
    mem_free(order.links);
    mem_free(order.heap);
    mem_free(order.active);
    pair_map_done(&order.buckets);
}
