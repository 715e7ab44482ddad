/* token_rules.h - what a request says about single tokens: logit_bias, allowed_token_ids,
 * bad_words.
 *
 *   body --read_*--> api_request --token_rules_make, the model's tokenizer--> wire bytes
 *
 * A bad word stands for two token sequences, as in vLLM: as it begins a text, and behind a space.
 * Ownership: everything lives in the request's arena. Thread: any. */
#ifndef REFRAIN_ROUTER_API_TOKEN_RULES_H
#define REFRAIN_ROUTER_API_TOKEN_RULES_H

#include <protobuf-c/protobuf-c.h>

#include "router/api/fields.h"
#include "router/api/request_json.h"
#include "router/text/tokenizer.h"

#define BAD_WORDS_MAX 256u
#define BAD_WORD_BYTES_MAX 256u

struct token_rules {
    ProtobufCBinaryData bias_ids, bias_values, allowed_ids, logprob_ids;
    ProtobufCBinaryData *bad_words;
    size_t bad_words_count;
};

/* Rows of the field table. */
int token_rules_read_bias(struct field_reader *reader, const struct field *field,
                          const json_t *value);
int token_rules_read_allowed(struct field_reader *reader, const struct field *field,
                             const json_t *value);
int token_rules_read_bad_words(struct field_reader *reader, const struct field *field,
                               const json_t *value);
/* A list of token ids into the reader's arena; at most `count_max`. */
int token_rules_read_ids(struct field_reader *reader, const char *name, const json_t *list,
                         size_t count_max, const uint32_t **ret_ids, size_t *ret_count);

/* Against the model: ids in its vocabulary, words as its tokens. -EINVAL: *error is filled. */
int token_rules_make(const struct api_request *request, struct tokenizer *tokenizer,
                     struct arena *arena, struct token_rules *ret_rules, struct api_error *error);

#endif
