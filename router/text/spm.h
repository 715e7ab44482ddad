/* spm.h - SentencePiece BPE: one word (or text) -> ids. Thread: one (scratch memory). */
#ifndef REFRAIN_ROUTER_TEXT_SPM_H
#define REFRAIN_ROUTER_TEXT_SPM_H

#include <stddef.h>
#include <stdint.h>

#include "proto/base/errmsg.h"
#include "router/text/tokenizer.h"
#include "router/text/vocabulary.h"

struct spm;

/* 0, or -EINVAL: neither scores nor merges, or a merge of tokens that do not exist. The vocabulary
 * must outlive it. */
int spm_new(const struct vocabulary *vocabulary, struct spm **ret_spm, struct errmsg *err);
void spm_free(struct spm *spm);
/* Append the ids of valid UTF-8 with plain spaces. 0, or -E2BIG. O(n log n). */
int spm_word(struct spm *spm, const char *word, size_t bytes, struct token_ids *out);

/* Steps of merging so far. */
uint64_t spm_work(const struct spm *spm);

/* What has no token: its bytes' tokens if the vocabulary has them, else `unk` once for a run of
 * such characters (*unknown carries that from one to the next). Shared with unigram.c. */
int spm_add_unknown(const struct vocabulary *vocabulary, const char *text, size_t bytes,
                    bool *unknown, struct token_ids *out);

#endif
