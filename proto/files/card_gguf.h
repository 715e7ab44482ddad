/* card_gguf.h - the words of a GGUF file: vocabulary, merges, pre-tokenizer, template, defaults. */
#ifndef REFRAIN_PROTO_FILES_CARD_GGUF_H
#define REFRAIN_PROTO_FILES_CARD_GGUF_H

#include "proto/files/gguf.h"
#include "proto/model_card.h"

/* Fills everything of a new card but name, architecture, context, vocab_size and fingerprint; what
 * it sets is a copy. 0; -EINVAL, -ENOTSUP (tokenizer kind), *err names the key. On failure the card
 * is only good for model_card_unref. */
int card_words_from_gguf(const struct gguf *gguf, struct model_card *card, struct errmsg *err);

#endif
