/* unigram.h - SentencePiece unigram: the most likely way to write a text in tokens. Thread: one. */
#ifndef REFRAIN_ROUTER_TEXT_UNIGRAM_H
#define REFRAIN_ROUTER_TEXT_UNIGRAM_H

#include <stddef.h>
#include <stdint.h>

#include "proto/base/errmsg.h"
#include "router/text/tokenizer.h"
#include "router/text/vocabulary.h"

struct unigram;

/* 0, or -EINVAL: no scores. The vocabulary must outlive it. */
int unigram_new(const struct vocabulary *vocabulary, struct unigram **ret_unigram,
                struct errmsg *err);
void unigram_free(struct unigram *unigram);
/* Append the ids of valid UTF-8 with plain spaces. 0, or -E2BIG. O(n * longest token). */
int unigram_word(struct unigram *unigram, const char *word, size_t bytes, struct token_ids *out);
/* Steps through the trie so far. */
uint64_t unigram_work(const struct unigram *unigram);

#endif
