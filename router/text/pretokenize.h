/* pretokenize.h - text -> the words that BPE merges within.
 *
 * A pre-tokenizer is a list of patterns. Each cuts every piece of the one before into its matches
 * and what lies between them (Hugging Face: Split, behaviour Isolated; llama.cpp: the same). Which
 * patterns is the card's word: explicit ones first, else its GGUF name. Thread: one. */
#ifndef REFRAIN_ROUTER_TEXT_PRETOKENIZE_H
#define REFRAIN_ROUTER_TEXT_PRETOKENIZE_H

#include <stdbool.h>
#include <stddef.h>

#include "proto/base/errmsg.h"
#include "proto/model_card.h"
#include "router/text/unicode.h"

#define PRETOKENIZE_PATTERNS_MAX 64u

struct pretokenizer;

/* One word; what it returns other than 0 ends the split and is its result. */
typedef int (*pretokenize_word_fn)(void *owner, const char *word, size_t bytes);

/* What a GGUF name says besides the patterns. */
struct pretokenize_traits {
    bool ignore_merges;
    bool normalize_nfc;
};

/* 0; -ENOTSUP: unknown name, *err lists the known ones; -EINVAL: a pattern that PCRE2 refuses.
 * `unicode` must outlive it. */
int pretokenizer_new(const struct model_card *card, struct unicode *unicode,
                     struct pretokenizer **ret_pretokenizer, struct pretokenize_traits *ret_traits,
                     struct errmsg *err);
void pretokenizer_free(struct pretokenizer *pretokenizer);
/* Never use a hand-written scanner where PCRE2 could do: for tests that compare the two. */
void pretokenizer_use_regex_only(struct pretokenizer *pretokenizer);
/* text: valid UTF-8. The words in order; joined they are the text. */
int pretokenizer_split(struct pretokenizer *pretokenizer, const char *text, size_t bytes,
                       pretokenize_word_fn word, void *owner);

#endif
