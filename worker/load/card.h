/* card.h - ModelCard of a model file: vocabulary, merges, pre-tokenizer, template, defaults.
 *
 * The fingerprint is XXH3-128 over architecture numbers, every tensor's name, type, shape and a
 * sample of its bytes, vocabulary, merges and template: two groups with one fingerprint compute the
 * same thing. */
#ifndef REFRAIN_WORKER_LOAD_CARD_H
#define REFRAIN_WORKER_LOAD_CARD_H

#include "proto/files/sampling_defaults.h"
#include "proto/model_card.h"
#include "worker/load/model_config.h"

/* Of a folder, the words come from its tokenizer.json and what stands beside it.
 * name: the served model name. rule: NULL: the model's own defaults. 0; -EINVAL, -ENOTSUP
 * (tokenizer kind), *err says what. */
int card_from_source(const struct model_source *source, const struct model_config *config,
                     const char *name, const struct sampling_rule *rule,
                     struct model_card **ret_card, struct errmsg *err);

#endif
