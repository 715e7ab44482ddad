/* tokenizer_json_private.h - shared by tokenizer_json.c (vocabulary), tokenizer_json_steps.c (what
 * happens to text before it) and tokenizer_json_ends.c (what happens after it). */
#ifndef REFRAIN_PROTO_FILES_TOKENIZER_JSON_PRIVATE_H
#define REFRAIN_PROTO_FILES_TOKENIZER_JSON_PRIVATE_H

#include <stdbool.h>

#include "proto/base/json.h"
#include "proto/files/tokenizer_json.h"

/* A tokenizer.json on its way into a card. */
struct tokenizer_json {
    const json_t *root;
    struct model_card *card;
    bool byte_tokens; /* the model falls back to bytes */
    struct errmsg *err;
};

/* The member's text, or NULL: absent or no string. */
const char *json_text(const json_t *object, const char *key);
/* The member as a bool; `otherwise` when it is absent or none. */
bool json_flag(const json_t *object, const char *key, bool otherwise);

/* normalizer and pre_tokenizer -> card->normalizers, pretokenizers, charsmap. *ret_byte_level: text
 * goes through the byte alphabet. */
int tokenizer_json_read_steps(struct tokenizer_json *file, bool *ret_byte_level);
/* post_processor and decoder -> lead and tail ids, decode_strip. The tokens are there. */
int tokenizer_json_read_ends(struct tokenizer_json *file);

#endif
