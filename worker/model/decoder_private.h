/* decoder_private.h - what the files of the decoder share. */
#ifndef REFRAIN_WORKER_MODEL_DECODER_PRIVATE_H
#define REFRAIN_WORKER_MODEL_DECODER_PRIVATE_H

#include "worker/model/decoder.h"

enum rope_table { ROPE_FULL = 0, ROPE_LOCAL, ROPE_NONE, ROPE_TABLES };

struct decoder {
    struct decoder_settings settings;
    struct heads heads;
    struct rope rope[ROPE_TABLES];
    struct kv_pool *kv, *window_kv;      /* NULL: this rank has no heads, or the group no layer */
    uint16_t kv_layer[MODEL_LAYERS_MAX]; /* a layer's place in the pool of its group */
    struct decoder_adapters *adapters;   /* adapt.c; NULL: none are served */
    uint32_t vocab_columns[TP_RANKS_MAX];
    void *memory;
    size_t bytes;
    /* Areas of `memory`; rows_max rows, head_* outputs_max. */
    float *x, *normed, *part, *head_in, *head_out;
    float *wide;                        /* qkv, then gate_up */
    float *narrow;                      /* attention's output, then the gated one */
    float *latent;                      /* MODEL_LATENT: what q and kv are made of */
    float *sums;                        /* MODEL_QK_NORM_ALL: squares of q, then of k */
    float *router_out;                  /* [rows, experts] */
    float *chosen_scale, *expert_scale; /* [rows * chosen] */
    uint32_t *chosen, *expert_rows;     /* the same */
    float *expert_in, *expert_out;      /* [rows, hidden] */
};

/* rope_table.c: cosines and sines of positions [0, positions), [positions, dims / 2, 2]. */
void rope_table_fill(const struct rope_config *rope, uint32_t dims, uint32_t positions,
                     float *cos_sin);

/* [rows, columns] in decoder->wide or ->narrow, INNER_PAD floats apart: rows a power of two of
 * bytes apart would all want the same few lines of the first cache. */
#define INNER_PAD 16u
static inline struct tensor decoder_inner(float *area, uint32_t rows, uint32_t columns)
{
    return (struct tensor){area, rows, columns, (columns + 15u) / 16 * 16 + INNER_PAD};
}

/* Rows that go into a sublayer: norm(x) in decoder->normed, or x itself where w is NULL. A parallel
 * block's FFN finds there what attention has read. */
struct tensor decoder_normed(struct decoder *decoder, const struct tensor *x, const float *w);
/* decoder->part as a matrix like x. */
struct tensor decoder_part(struct decoder *decoder, const struct tensor *x);
/* Do the halves of a parallel block meet in decoder->part, so that ranks sum once? Not where
 * something is done to one of them on its way to x. */
static inline bool decoder_joins(const struct decoder *decoder)
{
    const uint32_t apart = MODEL_POST_NORM | MODEL_OUTPUT_BIAS | MODEL_FFN_BIAS | MODEL_EXPERTS;
    const struct model_config *config = decoder->settings.config;
    return model_has(config, MODEL_PARALLEL) && !model_has(config, apart);
}

/* How a sublayer's result is added to x: at once, or, of a block whose halves are joined,
 * attention's waits in decoder->part for that of the FFN. */
enum half { HALF_NONE = 0, HALF_FIRST, HALF_SECOND };
struct addition {
    const float *bias, *norm; /* NULL: none */
    enum half half;
    uint32_t layer; /* whose adapters are added at `site` */
    enum lora_site site;
};
/* x += scale * norm(bias + sum over ranks of input * weight^T); NULL weight: this rank has nothing
 * of it. 0, or the communicator's error. */
int decoder_add_product(struct decoder *decoder, struct tensor *x, const struct tensor *input,
                        const struct weight *weight, const struct addition *addition);
/* The same of what stands in decoder->part. */
int decoder_add_part(struct decoder *decoder, struct tensor *x, const struct addition *addition);

/* Does the layer's KV lie in window_kv? */
static inline bool decoder_slides(const struct decoder *decoder, uint32_t layer)
{
    const struct decoder_settings *s = &decoder->settings;
    return s->groups.window_layers > 0 && (s->config->layer_kinds[layer] & LAYER_SLIDING) != 0;
}

/* attention.c, feed_forward.c, experts.c: x += one sublayer. The last layer's attention leaves x
 * with the rows of step->out_row only: the others have nothing more to do once their KV is written.
 */
int decoder_attend(struct decoder *decoder, uint32_t layer, struct tensor *x,
                   const struct step *step);
int decoder_feed_forward(struct decoder *decoder, uint32_t layer, struct tensor *x);
/* part += this rank's experts of `normed`, weighed. */
void decoder_add_experts(struct decoder *decoder, const struct layer_weights *w,
                         struct tensor *part, const struct tensor *normed);
/* out = gated(gate_up * normed + bias) in decoder->narrow, `columns` wide. layer: whose adapters
 * are added, DECODER_NO_LAYER: none (experts). */
#define DECODER_NO_LAYER UINT32_MAX
struct tensor decoder_gate(struct decoder *decoder, const struct tensor *normed,
                           const struct weight *gate_up, const float *bias, uint32_t layer);

/* adapt.c: rows by adapter, once a step; then terms of a site into y = product of x. */
int decoder_adapters_new(const struct lora *lora, uint32_t rows_max,
                         struct decoder_adapters **ret_adapters, struct errmsg *err);
void decoder_adapters_free(struct decoder_adapters *adapters); /* NULL is fine */
void decoder_group_rows(struct decoder *decoder, const struct step *step);
/* Does a row of this step want an adapter? Its rows keep their places in all layers then. */
bool decoder_adapts(const struct decoder *decoder);
void decoder_adapt(struct decoder *decoder, uint32_t layer, enum lora_site site, struct tensor *y,
                   const struct tensor *x);

#endif
