/* tokenizer_json.h - the words of a Hugging Face tokenizer.json.
 *
 * What we cannot do exactly as the tokenizers library does is refused by name. Thread: any. */
#ifndef REFRAIN_PROTO_FILES_TOKENIZER_JSON_H
#define REFRAIN_PROTO_FILES_TOKENIZER_JSON_H

#include <stddef.h>

#include "proto/base/errmsg.h"
#include "proto/model_card.h"

#define TOKENIZER_JSON_BYTES_MAX (256u << 20)

/* An added token as tokenizer.json (or tokenizer_config.json's added_tokens_decoder) states it. */
struct added_token {
    uint32_t id;
    const char *text;
    size_t bytes;
    uint8_t type;  /* TOKEN_CONTROL or TOKEN_USER_DEFINED */
    uint8_t flags; /* enum token_flag */
};

/* Fills tokenizer, steps, vocabulary, merges, lead and tail ids, switches and unk of a new card.
 * more: added tokens that another file states; one whose id or text is there already is left out.
 * 0; -EINVAL: malformed, *err says what; -ENOTSUP: something we do not have, *err names it and
 * lists what is supported; -E2BIG. On failure the card is only good for model_card_unref. */
int card_words_from_tokenizer_json(const char *text, size_t bytes, const struct added_token *more,
                                   size_t more_count, struct model_card *card, struct errmsg *err);

#endif
