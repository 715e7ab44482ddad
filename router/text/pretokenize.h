/* pretokenize.h - text -> the words that BPE merges within.
 *
 * A pre-tokenizer is a list of steps. Each cuts every piece of the one before, mostly by a pattern
 * into its matches and what lies between them. Which steps is the card's word (model_card.h):
 * explicit ones first, else its GGUF name; SentencePiece models have none. Thread: one. */
#ifndef REFRAIN_ROUTER_TEXT_PRETOKENIZE_H
#define REFRAIN_ROUTER_TEXT_PRETOKENIZE_H

#include <stdbool.h>
#include <stddef.h>

#include "proto/base/errmsg.h"
#include "proto/model_card.h"
#include "router/text/unicode.h"

struct pretokenizer;

/* One word; what it returns other than 0 ends the split and is its result. */
typedef int (*pretokenize_word_fn)(void *owner, const char *word, size_t bytes);

/* What a GGUF name says besides the patterns. */
struct pretokenize_traits {
    bool ignore_merges;
    bool normalize_nfc;
};

/* 0; -ENOTSUP: unknown name or step, *err lists the known ones, or a pattern that PCRE2 would read
 * differently; -EINVAL: a pattern that it refuses. `unicode` must outlive it. */
int pretokenizer_new(const struct model_card *card, struct unicode *unicode,
                     struct pretokenizer **ret_pretokenizer, struct pretokenize_traits *ret_traits,
                     struct errmsg *err);
void pretokenizer_free(struct pretokenizer *pretokenizer);
/* Never use a hand-written scanner where PCRE2 could do: for tests that compare the two. */
void pretokenizer_use_regex_only(struct pretokenizer *pretokenizer);
/* No step: the text is one word. */
bool pretokenizer_is_whole(const struct pretokenizer *pretokenizer);
/* Words come in the byte alphabet (token_text.h) instead of as bytes. */
bool pretokenizer_gives_alphabet(const struct pretokenizer *pretokenizer);
/* text: valid UTF-8; at_start: it is the very beginning. The words in order. */
int pretokenizer_split(struct pretokenizer *pretokenizer, const char *text, size_t bytes,
                       bool at_start, pretokenize_word_fn word, void *owner);

#endif
