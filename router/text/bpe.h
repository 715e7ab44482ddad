/* bpe.h - byte-level BPE: one pre-token -> ids. Thread: one (scratch memory). */
#ifndef REFRAIN_ROUTER_TEXT_BPE_H
#define REFRAIN_ROUTER_TEXT_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/errmsg.h"
#include "router/text/pair_map.h"
#include "router/text/tokenizer.h"
#include "router/text/vocabulary.h"

struct bpe;

/* 0, or -EINVAL: a merge names tokens that do not exist. The vocabulary must outlive it. */
int bpe_new(const struct vocabulary *vocabulary, bool ignore_merges, struct bpe **ret_bpe,
            struct errmsg *err);
void bpe_free(struct bpe *bpe);
/* Append the ids of one word; `hash` is vocabulary_hash of it. 0, or -E2BIG. O(n log n). */
int bpe_word(struct bpe *bpe, const char *word, size_t bytes, uint64_t hash, struct token_ids *out);

/* Steps of merging so far. */
uint64_t bpe_work(const struct bpe *bpe);

/* The card's merges as (left id, right id) -> (rank, merged id); also SentencePiece files that
 * have merges. *map is initialised on success only. */
int bpe_load_merges(const struct vocabulary *vocabulary, struct pair_map *map, struct errmsg *err);

#endif
