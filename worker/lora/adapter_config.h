/* adapter_config.h - adapter_config.json of a LoRA adapter in PEFT's format: which modules it is
 * for, and rank and factor of each.
 *
 *   target_modules   list of names or endings, a regular expression, or "all-linear"
 *   r, lora_alpha    of all modules; rank_pattern and alpha_pattern say otherwise by module
 *   use_rslora       factor is alpha / sqrt(r) instead of alpha / r
 *
 * What would change the arithmetic in a way that nobody here obeys (DoRA, biases, whole modules...)
 * is refused by name. Thread: any, one at a time. */
#ifndef REFRAIN_WORKER_LORA_ADAPTER_CONFIG_H
#define REFRAIN_WORKER_LORA_ADAPTER_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/errmsg.h"
#include "proto/base/json.h"

#define ADAPTER_PATTERNS_MAX 512u /* of each kind */
#define ADAPTER_PATTERN_BYTES_MAX 512u

struct adapter_config;

/* 0; -EINVAL: missing or impossible values; -ENOTSUP: a kind of adapter that is not served. */
int adapter_config_read(const json_t *json, struct adapter_config **ret_config, struct errmsg *err);
void adapter_config_free(struct adapter_config *config); /* NULL is fine */
/* Is the adapter for this module ("model.layers.0.self_attn.q_proj")? */
bool adapter_config_targets(struct adapter_config *config, const char *module);
uint32_t adapter_config_rank(struct adapter_config *config, const char *module);
/* What b a x is multiplied by. */
float adapter_config_factor(struct adapter_config *config, const char *module);

#endif
