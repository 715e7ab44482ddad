/* sentencepiece.h - the words of a SentencePiece tokenizer.model. Thread: any. */
#ifndef REFRAIN_PROTO_FILES_SENTENCEPIECE_H
#define REFRAIN_PROTO_FILES_SENTENCEPIECE_H

#include <stddef.h>

#include "proto/base/errmsg.h"
#include "proto/model_card.h"

/* Fills tokenizer, vocabulary, scores, charsmap, ids and switches of a new card. 0; -EINVAL: not
 * such a file, or malformed, *err says where; -ENOTSUP: a kind of model or a rule that we do not
 * have, *err names it; -E2BIG. On failure the card is only good for model_card_unref. */
int card_words_from_sentencepiece(const void *data, size_t bytes, struct model_card *card,
                                  struct errmsg *err);

#endif
