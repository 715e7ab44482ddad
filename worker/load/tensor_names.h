/* tensor_names.h - what each tensor of a model is called in a file. */
#ifndef REFRAIN_WORKER_LOAD_TENSOR_NAMES_H
#define REFRAIN_WORKER_LOAD_TENSOR_NAMES_H

#include <stddef.h>

#include "worker/load/model_config.h"

#define TENSOR_NAME_MAX 128

enum tensor_role {
    TENSOR_EMBEDDING = 0,
    TENSOR_FINAL_NORM,
    TENSOR_HEAD,
    TENSOR_ATTENTION_NORM, /* from here on: one per layer */
    TENSOR_POST_ATTENTION_NORM,
    TENSOR_FFN_NORM,
    TENSOR_POST_FFN_NORM,
    TENSOR_Q,
    TENSOR_K,
    TENSOR_V,
    TENSOR_QKV,
    TENSOR_OUTPUT,
    TENSOR_Q_BIAS,
    TENSOR_K_BIAS,
    TENSOR_V_BIAS,
    TENSOR_QKV_BIAS,
    TENSOR_OUTPUT_BIAS,
    TENSOR_Q_NORM,
    TENSOR_K_NORM,
    TENSOR_Q_A,
    TENSOR_Q_A_NORM,
    TENSOR_Q_B,
    TENSOR_KV_A,
    TENSOR_KV_A_NORM,
    TENSOR_KV_B, /* either this one, ... */
    TENSOR_K_B,  /* ... or its halves, one plane a head, the first turned around (GGUF) */
    TENSOR_V_B,
    TENSOR_GATE,
    TENSOR_UP,
    TENSOR_GATE_UP,
    TENSOR_DOWN,
    TENSOR_GATE_BIAS,
    TENSOR_UP_BIAS,
    TENSOR_DOWN_BIAS,
    TENSOR_ROUTER,
    TENSOR_ROUTER_BIAS,
    TENSOR_SHARED_GATE,
    TENSOR_SHARED_UP,
    TENSOR_SHARED_DOWN,
    TENSOR_SHARED_ROUTER,
    TENSOR_EXPERT_GATE, /* one per expert, or all in one (GGUF) */
    TENSOR_EXPERT_UP,
    TENSOR_EXPERT_DOWN,
    TENSOR_ROLES
};

/* The name in this model's files, into `text`. false: tensors of this role have none there. */
bool tensor_name(const struct model_config *config, enum tensor_role role, uint32_t layer,
                 uint32_t expert, char text[TENSOR_NAME_MAX]);
/* Does a forward pass of this model use the role in this layer? */
bool tensor_is_used(const struct model_config *config, enum tensor_role role, uint32_t layer);
/* -ENOTSUP: a tensor that no role and no list of harmless ones explains, *err names it: a bias, a
 * gate or a norm that is silently left out gives a model that talks, and talks nonsense. */
int tensor_refuse_unknown(const struct model_source *source, const struct model_config *config,
                          struct errmsg *err);

#endif
