/* model_config.h - the numbers of a model, checked, whatever file format they came from. */
#ifndef REFRAIN_WORKER_LOAD_MODEL_CONFIG_H
#define REFRAIN_WORKER_LOAD_MODEL_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/errmsg.h"
#include "proto/files/gguf.h"

#define MODEL_LAYERS_MAX 512u
#define MODEL_HEADS_MAX 1024u
#define MODEL_HEAD_DIM_MAX 512u

struct model_config {
    char architecture[32]; /* "llama" */
    uint32_t layers, hidden, ffn, vocab_size, context_tokens;
    uint32_t q_heads, kv_heads, head_dim;
    float norm_eps;
    float rope_theta;
    uint32_t rotary_dims;
    bool rope_interleaved; /* stored q/k rows are in interleaved order (llama GGUF) */
    bool tied_embedding;   /* lm_head = embedding */
    uint32_t window;       /* sliding window, 0: none */
    float attention_scale; /* 1 / sqrt(head_dim) unless the model has its own */
    float rope_scale;      /* positions are multiplied by it: 1, or 1 / factor (linear scaling) */
    /* Pair i turns rope_divisors[i] times slower (Llama 3: tensor rope_freqs); 1 otherwise. */
    float rope_divisors[MODEL_HEAD_DIM_MAX / 2];
};

/* 0; -EINVAL: missing or impossible numbers; -ENOTSUP: an architecture we do not run, *err names it
 * and lists what is supported. */
int model_config_from_gguf(const struct gguf *gguf, struct model_config *ret_config,
                           struct errmsg *err);
/* KV bytes per token etc. are the backend's business (op_kv_block_bytes). */

#endif
