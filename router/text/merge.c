/* merge.c - a doubly linked list of symbols and, for long words, a heap of candidate pairs.
 *
 *   symbols  t h e r e      ranks[i] belongs to the pair (i, next of i)
 *            th . e r e     a merge joins the right symbol into the left one and re-ranks the two
 *            th . e re .    pairs that touch it
 *
 * Short words (most) look for the lowest rank by scanning: no heap, nothing to keep in order. From
 * SCAN_MAX symbols on, a binary heap makes it O(n log n). Heap entries are never removed: one is
 * stale when its rank is no longer its symbol's rank, and is skipped when it comes up.
 *
 * Invariants: a symbol joined into another has rank NONE; the heap has an entry for every rank that
 * is not NONE; at most 2 entries per symbol are ever alive, because a merge takes one and adds two.
 */
#include "router/text/merge.h"

#include "proto/base/assert.h"
#include "proto/base/mem.h"

#define SCAN_MAX 48
#define CAPACITY_MIN 64
#define CAPACITY_KEPT 65536 /* scratch above this is given back with the next short word */

void merge_init(struct merge *merge, const void *model, merge_pair_fn pair)
{
    *merge = (struct merge){.model = model, .pair = pair};
}

void merge_done(struct merge *merge)
{
    mem_free(merge->symbols);
    mem_free(merge->ranks);
    mem_free(merge->heap);
    *merge = (struct merge){.model = merge->model, .pair = merge->pair};
}

struct merge_symbol *merge_symbols(struct merge *merge, size_t count)
{
    ASSERT(count > 0 && count < MERGE_END);
    if (merge->capacity > CAPACITY_KEPT && count <= CAPACITY_MIN)
        merge_done(merge);
    if (count > merge->capacity) {
        size_t capacity = merge->capacity == 0 ? CAPACITY_MIN : merge->capacity;
        while (capacity < count)
            capacity *= 2;
        merge_done(merge);
        merge->symbols = mem_alloc(capacity * sizeof(*merge->symbols));
        merge->ranks = mem_alloc(capacity * sizeof(*merge->ranks));
        merge->capacity = capacity;
    }
    return merge->symbols;
}

static void set_rank(struct merge *merge, const char *text, uint32_t at)
{
    struct merge_symbol *left = &merge->symbols[at];
    uint32_t rank = MERGE_RANK_NONE;
    if (left->next == MERGE_END ||
        !merge->pair(merge->model, text, left, &merge->symbols[left->next], &rank,
                     &left->merged_id))
        rank = MERGE_RANK_NONE;
    merge->ranks[at] = rank;
}

static void join(struct merge *merge, const char *text, uint32_t at)
{
    struct merge_symbol *left = &merge->symbols[at];
    struct merge_symbol *right = &merge->symbols[left->next];
    merge->ranks[left->next] = MERGE_RANK_NONE;
    left->bytes += right->bytes;
    left->id = left->merged_id;
    left->next = right->next;
    if (left->next != MERGE_END)
        merge->symbols[left->next].previous = at;
    set_rank(merge, text, at);
    if (left->previous != MERGE_END)
        set_rank(merge, text, left->previous);
}

static void run_by_scan(struct merge *merge, const char *text, uint32_t count)
{
    for (;;) {
        uint32_t best = 0, best_rank = merge->ranks[0];
        for (uint32_t i = 1; i < count; i++) {
            if (merge->ranks[i] < best_rank) {
                best_rank = merge->ranks[i];
                best = i;
            }
        }
        if (best_rank == MERGE_RANK_NONE)
            return;
        join(merge, text, best);
    }
}

static void heap_sink(struct merge *merge, size_t at)
{
    uint64_t *heap = merge->heap, item = heap[at];
    for (size_t child; (child = at * 2 + 1) < merge->heap_count; at = child) {
        if (child + 1 < merge->heap_count && heap[child + 1] < heap[child])
            child++;
        if (heap[child] >= item)
            break;
        heap[at] = heap[child];
    }
    heap[at] = item;
}

static void heap_push(struct merge *merge, uint32_t symbol)
{
    if (merge->ranks[symbol] == MERGE_RANK_NONE)
        return;
    ASSERT(merge->heap_count < merge->heap_max);
    uint64_t item = (uint64_t)merge->ranks[symbol] << 32 | symbol;
    size_t at = merge->heap_count++;
    for (; at > 0 && merge->heap[(at - 1) / 2] > item; at = (at - 1) / 2)
        merge->heap[at] = merge->heap[(at - 1) / 2];
    merge->heap[at] = item;
}

static uint64_t heap_pop(struct merge *merge)
{
    uint64_t top = merge->heap[0];
    merge->heap_count--;
    if (merge->heap_count > 0) {
        merge->heap[0] = merge->heap[merge->heap_count];
        heap_sink(merge, 0);
    }
    return top;
}

static void run_by_heap(struct merge *merge, const char *text, uint32_t count)
{
    if (merge->heap_max < (size_t)count * 2) {
        mem_free(merge->heap);
        merge->heap_max = merge->capacity * 2;
        merge->heap = mem_alloc(merge->heap_max * sizeof(*merge->heap));
    }
    merge->heap_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (merge->ranks[i] != MERGE_RANK_NONE)
            merge->heap[merge->heap_count++] = (uint64_t)merge->ranks[i] << 32 | i;
    }
    for (size_t i = merge->heap_count / 2; i-- > 0;)
        heap_sink(merge, i);
    while (merge->heap_count > 0) {
        uint64_t top = heap_pop(merge);
        uint32_t at = (uint32_t)top;
        if (merge->ranks[at] != (uint32_t)(top >> 32))
            continue;
        join(merge, text, at);
        heap_push(merge, at);
        if (merge->symbols[at].previous != MERGE_END)
            heap_push(merge, merge->symbols[at].previous);
    }
}

void merge_run(struct merge *merge, const char *text, size_t count)
{
    ASSERT(count > 0 && count <= merge->capacity);
    uint32_t last = (uint32_t)count - 1;
    for (uint32_t i = 0; i <= last; i++) {
        merge->symbols[i].previous = i == 0 ? MERGE_END : i - 1;
        merge->symbols[i].next = i == last ? MERGE_END : i + 1;
    }
    for (uint32_t i = 0; i <= last; i++)
        set_rank(merge, text, i);
    if (count <= SCAN_MAX)
        run_by_scan(merge, text, (uint32_t)count);
    else
        run_by_heap(merge, text, (uint32_t)count);
}
