/* merge.c - a doubly linked list of symbols whose pairs have ranks.
 *
 *   symbols  t h e r e      ranks[i] belongs to the pair (i, next of i)
 *            th . e r e     a merge joins the right symbol into the left one and re-ranks the two
 *            th . e re .    pairs that touch it
 *
 * Short words (most) look for the lowest rank by scanning: nothing to keep in order. From SCAN_MAX
 * symbols on merge_order.c keeps the order, which makes it O(n log n).
 *
 * Invariant: a symbol joined into another has rank NONE and is on no list. */
#include "router/text/merge.h"

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "router/text/merge_order.h"

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
    merge->symbols = NULL;
    merge->ranks = NULL;
    merge->capacity = 0;
}

struct merge_symbol *merge_symbols(struct merge *merge, size_t count)
{
    ASSERT(count > 0 && count < MERGE_END);
    if (merge->capacity > CAPACITY_KEPT && count <= CAPACITY_MIN)
        merge_done(merge);
    if (count > merge->capacity) {
        size_t capacity = merge->capacity == 0 ? CAPACITY_MIN : merge->capacity;
        while (capacity < count && capacity < CAPACITY_KEPT)
            capacity *= 2;
        if (capacity < count)
            capacity = count; /* no reserve for what happens once */
        merge_done(merge);
        merge->symbols = mem_alloc(capacity * sizeof(*merge->symbols));
        merge->ranks = mem_alloc(capacity * sizeof(*merge->ranks));
        merge->capacity = capacity;
    }
    return merge->symbols;
}

void merge_set_rank(struct merge *merge, const char *text, uint32_t at)
{
    struct merge_symbol *left = &merge->symbols[at];
    uint32_t rank = MERGE_RANK_NONE;
    merge->work++;
    if (left->next == MERGE_END ||
        !merge->pair(merge->model, text, left, &merge->symbols[left->next], &rank,
                     &left->merged_id))
        rank = MERGE_RANK_NONE;
    merge->ranks[at] = rank;
}

void merge_join(struct merge *merge, const char *text, uint32_t at)
{
    struct merge_symbol *left = &merge->symbols[at];
    struct merge_symbol *right = &merge->symbols[left->next];
    merge->ranks[left->next] = MERGE_RANK_NONE;
    left->bytes += right->bytes;
    left->id = left->merged_id;
    left->next = right->next;
    if (left->next != MERGE_END)
        merge->symbols[left->next].previous = at;
    merge_set_rank(merge, text, at);
    if (left->previous != MERGE_END)
        merge_set_rank(merge, text, left->previous);
}

static void run_by_scan(struct merge *merge, const char *text, uint32_t count)
{
    for (;;) {
        uint32_t best = 0, best_rank = merge->ranks[0];
        merge->work += count;
        for (uint32_t i = 1; i < count; i++) {
            if (merge->ranks[i] < best_rank) {
                best_rank = merge->ranks[i];
                best = i;
            }
        }
        if (best_rank == MERGE_RANK_NONE)
            return;
        merge_join(merge, text, best);
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
        merge_set_rank(merge, text, i);
    if (count <= SCAN_MAX)
        run_by_scan(merge, text, (uint32_t)count);
    else
        merge_run_in_order(merge, text, (uint32_t)count);
}
