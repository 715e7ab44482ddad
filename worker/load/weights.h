/* weights.h - model file -> the packed matrices of one rank.
 *
 * Maps the file, hands each tensor's shard to the backend for packing, drops the mapping's pages
 * afterwards, so that a rank's resident memory is its shard. Llama GGUF stores q/k rows permuted
 * for interleaved RoPE; they are kept so and config.rope_interleaved says it. */
#ifndef REFRAIN_WORKER_LOAD_WEIGHTS_H
#define REFRAIN_WORKER_LOAD_WEIGHTS_H

#include "kernels/ops.h"
#include "proto/files/gguf.h"
#include "worker/load/model_config.h"

/* A matrix of which a rank holds nothing (more ranks than heads) is NULL. */
struct layer_weights {
    float *attention_norm;  /* [hidden] */
    float *ffn_norm;        /* [hidden] */
    struct weight *qkv;     /* [(q + 2 kv) * head_dim, hidden]: local q heads, then k, then v */
    struct weight *output;  /* [hidden, q * head_dim] */
    struct weight *gate_up; /* [2 * ffn_count, hidden]: gate rows then up rows */
    struct weight *down;    /* [hidden, ffn_count] */
};

struct weights {
    struct layer_weights *layers; /* [config.layers] */
    struct weight *embedding;     /* all rows, on every rank */
    struct weight *head;          /* [vocab_count, hidden]; == embedding when tied and ranks == 1 */
    float *final_norm;            /* [hidden] */
    uint64_t bytes;               /* packed, this rank */
};

/* The slice of the model that a rank holds, in heads, FFN columns and vocabulary rows (the fields
 * of worker/tp/shard.h that loading needs, so that load/ does not depend on tp/). */
struct weights_slice {
    uint32_t q_first, q_count, kv_first, kv_count;
    uint32_t ffn_first, ffn_count, vocab_first, vocab_count;
};

/* 0; -EINVAL: a tensor is missing or has the wrong shape (named); -ENOTSUP: dtype; -ENOMEM. */
int weights_load(const struct gguf *gguf, const struct model_config *config,
                 const struct weights_slice *slice, struct backend *backend,
                 struct weights **ret_weights, struct errmsg *err);
void weights_free(struct weights *weights, const struct model_config *config,
                  struct backend *backend);

#endif
