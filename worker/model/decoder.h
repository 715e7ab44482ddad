/* decoder.h - one table-driven decoder: the forward pass of a rank over a step.
 *
 *   x = embed(ids)
 *   per layer: x += reduce(attention(norm(x)) Wo);  x += reduce(silu(g) * u Wd)
 *   logits = gather(norm(x[out_row]) Whead)
 *
 * One file for all architectures; differences are switches of struct model_config. The same calls
 * on every backend and every rank count. All activation memory is allocated by decoder_new; forward
 * allocates nothing. Thread: the engine's (or the follower's loop). */
#ifndef REFRAIN_WORKER_MODEL_DECODER_H
#define REFRAIN_WORKER_MODEL_DECODER_H

#include "kernels/backend.h"
#include "kernels/ops.h"
#include "worker/load/weights.h"
#include "worker/lora/lora.h"
#include "worker/model/layer_groups.h"
#include "worker/tp/comm.h"
#include "worker/tp/shard.h"

struct decoder;

struct decoder_settings {
    const struct model_config *config; /* all of these outlive the decoder */
    const struct shard *shard;
    struct weights *weights;
    struct backend *backend;
    struct comm *comm;
    const struct lora *lora;    /* this rank's adapters, NULL: none are served */
    uint32_t rows_max;          /* --max-num-batched-tokens */
    uint32_t outputs_max;       /* rows of logits per step */
    uint32_t positions_max;     /* --max-model-len: length of the RoPE table */
    uint32_t kv_blocks;         /* of the layers that see everything */
    uint32_t window_blocks;     /* of those that slide */
    struct layer_groups groups; /* all zero: every layer is of the first kind */
};

int decoder_new(const struct decoder_settings *settings, struct decoder **ret_decoder,
                struct errmsg *err);
void decoder_free(struct decoder *decoder);

/* step->table, step->window_table: of the groups that have layers.
 * ret_logits [step->outputs, vocab_size] f32 on rank 0, NULL elsewhere. 0, or the communicator's
 * -ECANCELED/-ETIMEDOUT. Writes the KV of every row. */
int decoder_forward(struct decoder *decoder, const struct step *step, float *ret_logits);
void decoder_copy_block(struct decoder *decoder, uint32_t from, uint32_t to, uint32_t tokens);
void decoder_copy_window_block(struct decoder *decoder, uint32_t from, uint32_t to,
                               uint32_t tokens);
/* Of the layers that see everything; NULL: this rank has no KV heads, or no such layer. */
struct kv_pool *decoder_kv(const struct decoder *decoder);
/* Bytes of everything decoder_new allocated, KV pool apart. */
size_t decoder_activation_bytes(const struct decoder *decoder);

#endif
