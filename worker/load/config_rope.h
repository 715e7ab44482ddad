/* config_rope.h - rotary scaling of all kinds -> one divisor per pair. */
#ifndef REFRAIN_WORKER_LOAD_CONFIG_ROPE_H
#define REFRAIN_WORKER_LOAD_CONFIG_ROPE_H

#include "worker/load/config_keys.h"
#include "worker/load/model_config.h"

/* Fill config->rope and config->rope_local from the keys: rotary_dims, context_tokens and head_dim
 * are set. May correct config->attention_scale (DeepSeek's yarn). Errors: keys->result. */
void config_rope_read(struct config_keys *keys, const struct model_source *source,
                      struct model_config *config);

#endif
