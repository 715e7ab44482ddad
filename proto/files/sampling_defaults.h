/* sampling_defaults.h - what an answer is sampled with where a request does not say: the makers'
 * recommendations (generation_config.json) and what the operator makes of them.
 *
 *   rule (vLLM's)        card
 *   auto                 what the model's own files say
 *   vllm                 nothing: 1 for temperature, top_p and penalties, 0 for top_k and min_p
 *   FOLDER               what FOLDER/generation_config.json says
 *   + overrides          a JSON object whose values win over all of these
 *
 * Thread: any. */
#ifndef REFRAIN_PROTO_FILES_SAMPLING_DEFAULTS_H
#define REFRAIN_PROTO_FILES_SAMPLING_DEFAULTS_H

#include "proto/base/json.h"
#include "proto/model_card.h"

struct sampling_rule {
    const char *source;    /* "auto", "vllm" or a folder; NULL: auto */
    const char *overrides; /* {"temperature": 0.5, ...}; NULL: none */
};

/* temperature, top_p, min_p, top_k, repetition_penalty and max_new_tokens of a
 * generation_config.json. What is out of range counts as not stated. */
void sampling_defaults_read(const json_t *config, struct model_card *card);
/* 0; -ENOENT...: the folder's file; -EINVAL: no JSON, an unknown name or a value out of range. */
int sampling_rule_apply(const struct sampling_rule *rule, struct model_card *card,
                        struct errmsg *err);

#endif
