/* merge.h - the merging that byte-level BPE and SentencePiece BPE share: of all neighbouring pairs
 * that may merge, the one of the lowest rank first, of equal ranks the leftmost; until none is
 * left.
 *
 * Thread: one; the scratch memory is reused from word to word. */
#ifndef REFRAIN_ROUTER_TEXT_MERGE_H
#define REFRAIN_ROUTER_TEXT_MERGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "router/text/pair_map.h"

#define MERGE_END UINT32_MAX
#define MERGE_RANK_NONE UINT32_MAX

struct merge_symbol {
    uint32_t start, bytes; /* in the text of merge_run */
    uint32_t id;           /* the model's own meaning; after a merge what the pair function said */
    uint32_t merged_id;    /* what it and the next one become */
    uint32_t previous, next;
};

/* May these two become one? Then rank (< MERGE_RANK_NONE) and the id of the result. */
typedef bool (*merge_pair_fn)(const void *model, const char *text, const struct merge_symbol *left,
                              const struct merge_symbol *right, uint32_t *ret_rank,
                              uint32_t *ret_id);

struct merge {
    const void *model;
    merge_pair_fn pair;
    struct merge_symbol *symbols;
    uint32_t *ranks; /* of the pair that begins at a symbol */
    size_t capacity;
    uint64_t work; /* pairs asked for, looked over and moved in a heap, since merge_init */
};

void merge_init(struct merge *merge, const void *model, merge_pair_fn pair);
void merge_done(struct merge *merge);
/* Room for `count` >= 1 symbols; the caller sets start, bytes and id of each. */
struct merge_symbol *merge_symbols(struct merge *merge, size_t count);
/* Afterwards the result is symbols[0] and, by `next`, on to MERGE_END. */
void merge_run(struct merge *merge, const char *text, size_t count);

/* For merge.c and merge_order.c: the rank of the pair at a symbol, and joining it. */
void merge_set_rank(struct merge *merge, const char *text, uint32_t at);
void merge_join(struct merge *merge, const char *text, uint32_t at);

#endif
