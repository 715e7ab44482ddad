/* weights.h - model file -> the packed matrices of one rank.
 *
 * Hands each tensor's shard to the backend for packing and drops the mapping's pages afterwards, so
 * that a rank's resident memory is its shard. GGUFs of the Llama kin store q/k rows permuted for
 * interleaved rotation; they are kept so and MODEL_INTERLEAVED says it. */
#ifndef REFRAIN_WORKER_LOAD_WEIGHTS_H
#define REFRAIN_WORKER_LOAD_WEIGHTS_H

#include "kernels/ops.h"
#include "worker/load/model_config.h"

/* A matrix of which a rank holds nothing (more ranks than heads) is NULL, as is what the model does
 * not have. Vectors lie in one allocation. */
struct layer_weights {
    float *attention_norm, *post_attention_norm; /* [hidden] */
    float *ffn_norm, *post_ffn_norm;             /* [hidden] */
    struct weight *qkv;     /* [(q + 2 kv) * head_dim, hidden]: local q heads, then k, then v */
    float *qkv_bias;        /* [(q + 2 kv) * head_dim] */
    float *q_norm, *k_norm; /* [head_dim], or of the local heads (MODEL_QK_NORM_ALL, _OWN) */
    struct weight *output;  /* [hidden, q * value_dim] */
    float *output_bias;     /* [hidden] */
    /* MODEL_LATENT: instead of qkv. Heads as [rotated | not rotated]. */
    struct weight *q_a, *kv_a;   /* whole on every rank: [q_rank], [kv_rank + rope_dim] */
    float *q_a_norm, *kv_a_norm; /* [q_rank], [kv_rank] */
    struct weight *q_b, *kv_b;   /* [q * head_dim, q_rank or hidden], [q * (nope + value)] */
    /* The FFN that every token goes through: of a layer without experts, or the shared ones. */
    struct weight *gate_up;                        /* [2 * count, hidden]: gate rows then up rows */
    struct weight *down;                           /* [hidden, count] */
    float *gate_up_bias;                           /* [2 * count] */
    float *down_bias;                              /* [hidden] */
    struct weight *router, *shared_router;         /* [experts, hidden], [1, hidden] */
    float *router_bias;                            /* [experts] */
    struct weight **expert_gate_up, **expert_down; /* [experts_count] of this rank */
};

struct weights {
    struct layer_weights *layers; /* [config.layers] */
    struct weight *embedding;     /* all rows, on every rank */
    struct weight *head;          /* [vocab_count, hidden]; == embedding when tied and ranks == 1 */
    float *final_norm;            /* [hidden] */
    uint64_t bytes;               /* packed, this rank */
    float *vectors;               /* where all vectors lie */
    size_t vectors_bytes;
    uint32_t experts_count;
};

/* The slice of the model that a rank holds: heads, FFN columns (of plain layers and of shared
 * experts), whole experts, vocabulary rows. Of k and v with fewer heads than ranks, several ranks
 * hold the same. */
struct weights_slice {
    uint32_t q_first, q_count, kv_first, kv_count;
    uint32_t ffn_first, ffn_count, vocab_first, vocab_count;
    uint32_t shared_first, shared_count, experts_first, experts_count;
};

/* 0; -EINVAL: a tensor is missing or has the wrong shape (named); -ENOTSUP: dtype; -ENOMEM. */
int weights_load(const struct model_source *source, const struct model_config *config,
                 const struct weights_slice *slice, struct backend *backend,
                 struct weights **ret_weights, struct errmsg *err);
void weights_free(struct weights *weights, const struct model_config *config,
                  struct backend *backend);

#endif
