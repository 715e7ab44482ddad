/* model_config.h - the numbers and features of a model, checked, whatever file format they came
 * from. What is returned describes a forward pass that the decoder runs completely. */
#ifndef REFRAIN_WORKER_LOAD_MODEL_CONFIG_H
#define REFRAIN_WORKER_LOAD_MODEL_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/errmsg.h"
#include "worker/load/model_source.h"

#define MODEL_LAYERS_MAX 512u
#define MODEL_HEADS_MAX 1024u
#define MODEL_HEAD_DIM_MAX 512u
#define MODEL_ROPE_PAIRS_MAX (MODEL_HEAD_DIM_MAX / 2)
#define MODEL_EXPERTS_MAX 1024u

/* What a forward pass of this model does besides the plain one. */
enum model_feature {
    MODEL_TIED = 1 << 0,        /* lm_head = embedding */
    MODEL_PRE_NORM = 1 << 1,    /* norm before attention and before the FFN */
    MODEL_POST_NORM = 1 << 2,   /* norm of their results, before they are added */
    MODEL_NORM_PLUS_1 = 1 << 3, /* stored norm weights are less 1 */
    MODEL_QKV_BIAS = 1 << 4,    /* bias on q, k and v */
    MODEL_OUTPUT_BIAS = 1 << 5, /* bias on attention's output */
    MODEL_FFN_BIAS = 1 << 6,    /* bias on gate, up and down */
    MODEL_QK_NORM = 1 << 7,     /* norm of every head of q and k */
    MODEL_QK_NORM_ALL = 1 << 8, /* norm over all heads of q, and over all of k */
    MODEL_FUSED_QKV = 1 << 9,   /* q, k and v are one stored matrix */
    MODEL_FUSED_GATE_UP = 1 << 10,
    MODEL_GELU = 1 << 11,        /* gelu (tanh form) gates the FFN, else silu */
    MODEL_INTERLEAVED = 1 << 12, /* rotary pairs (2i, 2i + 1), else halves */
    MODEL_EXPERTS = 1 << 13,     /* some layers have experts */
    MODEL_LATENT = 1 << 14,      /* multi-head latent attention (DeepSeek-V2) */
    MODEL_SHARED_GATE = 1 << 15, /* shared experts are weighed by a gate of their own (Qwen2-MoE) */
    MODEL_SPLIT_KV_B = 1 << 16,  /* MODEL_LATENT: what makes k and v is stored in two */
    MODEL_LAYER_NORM = 1 << 17,  /* norms subtract the mean, else RMS */
    MODEL_QK_NORM_OWN = 1 << 18, /* such a norm of every head of q and k, with weights of its own */
    MODEL_PARALLEL = 1 << 19,    /* the FFN reads what attention reads; x gets both */
};
/* The i-th feature's name, for people; NULL past the last. */
const char *model_feature_name(unsigned i);

enum layer_kind {                         /* bits */
                  LAYER_SLIDING = 1 << 0, /* sees `window` tokens, rotates with rope_local */
                  LAYER_NO_ROPE = 1 << 1,
                  LAYER_EXPERTS = 1 << 2,
};

struct rope_config {
    float theta;
    float
        amplitude; /* cosines and sines are multiplied by it: 1, or yarn's and longrope's factor */
    /* Pair i turns theta^(-2i / rotary_dims) / divisors[i] per position. Contexts longer than
     * long_after tokens take long_divisors instead (longrope); 0: there is one set. */
    uint32_t long_after;
    float divisors[MODEL_ROPE_PAIRS_MAX], long_divisors[MODEL_ROPE_PAIRS_MAX];
};

struct experts_config {
    uint32_t count, chosen, ffn;
    uint32_t shared_ffn; /* columns of the FFN that every token goes through; 0: none */
    uint32_t groups, groups_chosen;
    uint32_t sigmoid, normalise, group_by_two, biased; /* bool */
    float scale;
};

struct latent_config {
    uint32_t q_rank; /* 0: q comes from x directly */
    uint32_t kv_rank, nope_dim, rope_dim;
};

/* No padding: the fingerprint hashes the struct. */
#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wpadded"
struct model_config {
    char architecture[32]; /* "llama": as in the list of supported ones */
    uint32_t features;     /* enum model_feature */
    uint32_t from_gguf;    /* bool */
    uint32_t naming;       /* enum expert_naming */
    uint32_t layers, hidden, ffn, vocab_size, context_tokens;
    uint32_t q_heads, kv_heads, head_dim;
    uint32_t value_dim; /* values of a head that are used: head_dim, less with MODEL_LATENT */
    uint32_t rotary_dims;
    uint32_t window; /* of the sliding layers; 0: none slides */
    float norm_eps;
    float attention_scale;                  /* 1 / sqrt(head_dim) unless the model has its own */
    float attention_softcap, logit_softcap; /* 0: none */
    float embedding_scale, residual_scale, logit_scale; /* multipliers, 1: none */
    struct rope_config rope, rope_local;
    struct experts_config experts;
    struct latent_config latent;
    uint8_t layer_kinds[MODEL_LAYERS_MAX]; /* enum layer_kind */
};
#pragma GCC diagnostic pop

static inline bool model_has(const struct model_config *config, uint32_t feature)
{
    return (config->features & feature) != 0;
}

/* 0; -EINVAL: missing or impossible numbers; -ENOTSUP: an architecture or feature we do not run:
 * *err names it and, for architectures, lists what is supported. */
int model_config_read(const struct model_source *source, struct model_config *ret_config,
                      struct errmsg *err);
/* KV bytes per token etc. are the backend's business (op_kv_block_bytes). */

#endif
