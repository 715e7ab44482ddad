/* model_dir.h - what lies beside a tokenizer in a model directory of Hugging Face's kind.
 *
 *   tokenizer_config.json     ids of special tokens, added tokens, add_bos_token, chat_template
 *   special_tokens_map.json   the same ids, where the first does not say
 *   generation_config.json    ends of an answer, defaults of sampling
 *   config.json               rows of the embedding, context, architecture
 *   chat_template.jinja       the template; wins over the one in tokenizer_config.json
 *   chat_template.json        the same, as {"chat_template": ...}
 *   additional_chat_templates/tool_use.jinja   of requests with tools; so is "tool_use" of a list
 * of named templates, where a config has that
 *
 * All of them may be absent. Thread: any. */
#ifndef REFRAIN_PROTO_FILES_MODEL_DIR_H
#define REFRAIN_PROTO_FILES_MODEL_DIR_H

#include "proto/base/json.h"
#include "proto/files/tokenizer_json.h"

struct model_dir {
    json_t *tokenizer_config, *special_tokens_map, *generation_config, *config; /* or NULL */
    char *chat_template, *tool_template;                                        /* or NULL */
    struct added_token *added; /* added_tokens_decoder, views into tokenizer_config */
    size_t added_count;
};

/* 0; -EINVAL, -E2BIG and so on: *err names the file. */
int model_dir_read(const char *folder, struct model_dir *ret_dir, struct errmsg *err);
void model_dir_done(struct model_dir *dir);
/* Ids, ends, template, context, defaults into a card that has its tokens. 0, or -EINVAL. */
int model_dir_fill_card(const struct model_dir *dir, struct model_card *card, struct errmsg *err);

/* The chat template that tokenizer_config.json, chat_template.json or a list of named templates
 * holds ("default" of a list); NULL: none. */
const char *model_dir_template(const json_t *config);

#endif
