/* adapter.h - an opened LoRA adapter of a folder in PEFT's format, checked against its model.
 *
 *   adapter_config.json         adapter_config.h
 *   adapter_model.safetensors   base_model.model.model.layers.N.MODULE.lora_{A,B}.weight
 *
 * Modules: q, k, v, o, gate, up and down projections, fused ones where the model has them fused.
 * Everything else is refused by name, as is a file that is not what its config says. Thread: any
 * (read-only). */
#ifndef REFRAIN_WORKER_LORA_ADAPTER_H
#define REFRAIN_WORKER_LORA_ADAPTER_H

#include "worker/load/model_config.h"
#include "worker/load/safetensors.h"

#define ADAPTER_NAME_MAX 128u
#define ADAPTER_KEY_MAX (ADAPTER_NAME_MAX + 33u) /* name, '@', 32 hex digits */
#define ADAPTER_PATH_MAX 4096u

/* What an adapter may be added to, as stored. */
enum adapter_module {
    ADAPTER_Q = 0,
    ADAPTER_K,
    ADAPTER_V,
    ADAPTER_OUTPUT,
    ADAPTER_GATE,
    ADAPTER_UP,
    ADAPTER_DOWN,
    ADAPTER_QKV,
    ADAPTER_GATE_UP,
    ADAPTER_MODULES
};

/* Factor and matrices of one module; a [rank, inputs], b [outputs, rank]. NULL: not adapted. */
struct adapter_pair {
    const struct safetensor *a, *b;
    uint32_t rank;
    float factor;
};

struct adapter {
    struct safetensors *file;
    struct adapter_pair *pairs; /* [layers][ADAPTER_MODULES] */
    uint32_t layers;
    uint32_t rank_max; /* of all pairs */
    char digest[33];   /* of everything that the outcome depends on, 32 hex digits */
};

/* Inputs and outputs of a module of the whole model; false: this layer has none that is served. */
bool adapter_module_shape(const struct model_config *config, enum adapter_module module,
                          uint32_t layer, uint32_t *ret_inputs, uint32_t *ret_outputs);
const char *adapter_module_name(enum adapter_module module); /* "self_attn.q_proj" */

/* 0; -ENOENT...: no such folder or file; -EINVAL: *err names file, tensor and numbers; -ENOTSUP: a
 * kind of adapter that is not served. */
int adapter_open(const char *folder, const struct model_config *config,
                 struct adapter **ret_adapter, struct errmsg *err);
/* Of what is open already; takes the file over (tests, fuzzing). */
int adapter_of(const json_t *json, struct safetensors *file, const struct model_config *model,
               struct adapter **ret_adapter, struct errmsg *err);
void adapter_close(struct adapter *adapter); /* NULL is fine */
static inline const struct adapter_pair *adapter_pair(const struct adapter *adapter, uint32_t layer,
                                                      enum adapter_module module)
{
    return &adapter->pairs[(size_t)layer * ADAPTER_MODULES + module];
}

/* 1 to ADAPTER_NAME_MAX printable ASCII characters but blanks, quotes and backslashes: names stand
 * in logs, JSON and hashes. */
bool adapter_name_is_good(const char *name);

#endif
