/* ops.h - the contract of every op: shapes, types, order of sums. kernels/ref is the definition.
 *
 * All activations are f32 row-major matrices `[rows, columns]` in backend memory with a row stride
 * in floats. ops.c checks shapes once and calls the backend (backend.h); an op cannot fail, since
 * shapes were settled at load. Zero rows or columns are legal and do nothing.
 *
 * The promise (promise 2 of the design): on ref and cpu, a row of an output depends on the same row
 * of the inputs, the weights and the KV below its position only - never on how many other rows are
 * in the step, in which order, how a prompt was cut into chunks, or on the number of threads. Sums
 * over K run in one fixed order whatever M is; attention runs over tiles of whole
 * blocks at absolute positions in rising order. The contract test compares bits for this, and
 * values against ref.
 *
 * Thread: one caller thread per backend; the backend spreads work over its own pool. */
#ifndef REFRAIN_KERNELS_OPS_H
#define REFRAIN_KERNELS_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/dtype.h"
#include "proto/base/errmsg.h"

struct backend; /* backend.h */
struct weight;  /* a matrix packed by its backend */
struct kv_pool; /* all layers' KV pages, laid out by the backend */

/* A matrix of activations. Rows are `stride` floats apart. */
struct tensor {
    float *data;
    uint32_t rows, columns;
    uint32_t stride;
};

static inline struct tensor tensor_of(float *data, uint32_t rows, uint32_t columns)
{
    return (struct tensor){data, rows, columns, columns};
}

/* One stored matrix [rows = outputs N, columns = inputs K] or part of it, as the file has it. A
 * weight may be put together from several parts stacked by rows (q over k over v; gate over up). */
struct weight_part {
    enum dtype dtype;
    const void *data; /* first row of the part */
    size_t row_bytes; /* distance of two rows in the file */
    uint32_t rows;    /* N of this part */
    uint32_t column;  /* first column taken (K slice for row-parallel weights); a multiple of the
                         dtype's block_values */
    const uint32_t *row_order; /* NULL, or rows entries: output row i is stored row row_order[i] */
};

enum weight_use {
    WEIGHT_MATMUL = 0, /* op_matmul */
    WEIGHT_EMBED,      /* op_embed and op_matmul (tied head): rows must be readable one by one */
};

/* Pack parts[0..count) (all `columns` wide) into the backend's layout. The source may be unmapped
 * afterwards. 0, -ENOMEM, -EINVAL (shape), -ENOTSUP (dtype); *err names what. Uses the pool. */
int op_weight_new(struct backend *b, enum weight_use use, const struct weight_part *parts,
                  size_t count, uint32_t columns, struct weight **ret_weight, struct errmsg *err);
void op_weight_free(struct backend *b, struct weight *weight);
uint32_t op_weight_rows(const struct weight *weight);
uint32_t op_weight_columns(const struct weight *weight);
size_t op_weight_bytes(const struct weight *weight); /* memory it takes */

/* One step's batch: rows of several sequences, flattened. Sequence s owns rows
 * [row_first[s], row_first[s + 1]), its row r sits at position position[r]; positions of one
 * sequence rise by one. Its KV of position p is in block table[s * table_stride + p / BLOCK], slot
 * p % BLOCK. Rows of decode and prefill may be mixed in any order of sequences. */
#define KV_BLOCK_TOKENS 16
struct step {
    uint32_t rows, sequences;
    const uint32_t *ids;       /* [rows] token ids */
    const uint32_t *position;  /* [rows] */
    const uint32_t *row_first; /* [sequences + 1] */
    const uint32_t *table;     /* [sequences, table_stride] block ids */
    uint32_t table_stride;
    /* The same for layers whose KV lies in a pool of its own, for the decoder: ops read `table`.
     * What stands before the first block that a sequence's rows see may be anything. NULL: none
     * has. */
    const uint32_t *window_table;
    const uint32_t *out_row; /* [outputs] rows whose logits are wanted, rising */
    uint32_t outputs;
    const uint32_t *adapters; /* [sequences] slot of the adapter + 1, 0: none; NULL: none in it */
};

/* The first block of its table that a row at `position` reads where layers see `window` tokens,
 * 0: all. */
static inline uint32_t step_first_block(uint32_t position, uint32_t window)
{
    return window > 0 && position >= window ? (position - window + 1) / KV_BLOCK_TOKENS : 0;
}

/* x[i, :] = row ids[i] of the embedding, as f32. ids < rows(weight), x [rows, K]. */
void op_embed(struct backend *b, struct tensor *x, const struct weight *weight,
              const uint32_t *ids);

/* y = x / sqrt(mean(x^2) + eps) * w, each row apart, sums in f32 or better in a fixed order
 * (Zhang and Sennrich 2019). w [columns] f32. y may be x. */
void op_rmsnorm(struct backend *b, struct tensor *y, const struct tensor *x, const float *w,
                float eps);

/* y = (x - mean(x)) / sqrt(variance(x) + eps) * w, no bias (Ba et al. 2016): of every `dim` columns
 * of a row apart, which are the whole row or one of its heads. dim divides the columns, w [columns]
 * f32. Sums in f32 or better in a fixed order. y may be x. */
void op_layernorm(struct backend *b, struct tensor *y, const struct tensor *x, uint32_t dim,
                  const float *w, float eps);

/* y [M, N] = x [M, K] * weight^T  (+ y where accumulate; then y is read first).
 * x and y must not overlap. The sum over K has one order for all M; quantised families quantise
 * each row of x once, in groups of 32 along K, and are exact integers within a group. */
void op_matmul(struct backend *b, struct tensor *y, const struct tensor *x,
               const struct weight *weight, bool accumulate);

/* cos/sin table and head shape of a model, made once at load. */
struct rope {
    const float *cos_sin; /* [positions, rotary_dims / 2, 2] */
    uint32_t positions;
    uint32_t rotary_dims; /* <= head_dim, even; dims past it are not rotated */
    bool interleaved;     /* pairs (2i, 2i+1); else (i, i + rotary_dims / 2) */
};

/* This rank's heads. Global query head of local head i is q_offset + i (counted from the first
 * query head of the first local KV head); it reads local KV head (q_offset + i) / group. */
struct heads {
    uint32_t q_heads, kv_heads, head_dim;
    uint32_t group;    /* query heads per KV head in the whole model */
    uint32_t q_offset; /* 0 unless a KV head is shared by several ranks */
};

/* qkv [rows, (q_heads + 2 * kv_heads) * head_dim]: rotate q in place (Su et al. 2021), rotate k,
 * and write k and v of each row into its KV slot of `layer`. */
void op_rope(struct backend *b, struct tensor *qkv, const struct heads *heads,
             const struct rope *rope, struct kv_pool *kv, uint32_t layer, const struct step *step);

/* out [rows, q_heads * head_dim] = causal attention of the (rotated) q part of qkv over the paged
 * KV of `layer`, prefill and decode rows alike; row r sees positions
 * max(0, position[r] - window + 1) .. position[r] (window 0: all), and no table entry before the
 * first row's first block is read. Online softmax (Milakov and
 * Gimelshein 2018) over tiles of whole blocks at absolute positions in rising order, sums in f32: a
 * row's result does not depend on its batch. scale is 1 / sqrt(head_dim) or the model's own. A
 * scaled score s becomes softcap * tanh(s / softcap) (Gemma 2); 0: left as it is. */
struct attention_rule {
    float scale, softcap;
    uint32_t window;
};
void op_attention(struct backend *b, struct tensor *out, const struct tensor *qkv,
                  const struct heads *heads, const struct kv_pool *kv, uint32_t layer,
                  const struct step *step, const struct attention_rule *rule);

/* y [rows, n] = silu(gate) * up, where gate_up [rows, 2 n] holds gate then up. y may not overlap.
 */
void op_silu_mul(struct backend *b, struct tensor *y, const struct tensor *gate_up);
/* The same with gelu in its tanh form (Hendrycks and Gimpel 2016):
 * gelu(x) = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))). */
void op_gelu_mul(struct backend *b, struct tensor *y, const struct tensor *gate_up);

/* x += y, element by element. */
void op_add(struct backend *b, struct tensor *x, const struct tensor *y);
/* x[i, :] += bias, [columns]. */
void op_add_bias(struct backend *b, struct tensor *x, const float *bias);
/* x *= factor. */
void op_scale(struct backend *b, struct tensor *x, float factor);
/* x = cap * tanh(x / cap); cap > 0. */
void op_softcap(struct backend *b, struct tensor *x, float cap);

/* Every row is columns / dim heads; each is normalised apart, as op_rmsnorm does it, in place.
 * w [dim] is common to all. */
void op_head_norm(struct backend *b, struct tensor *x, uint32_t dim, const float *w, float eps);
/* RMS norm of rows that several ranks hold in parts, in two halves. sums [rows]: the sum of squares
 * of each row of x. Then, with the sums of all ranks over `count` columns in all:
 * x = x / sqrt(sums[i] / count + eps) * w, w [columns]. */
void op_square_sums(struct backend *b, float *sums, const struct tensor *x);
void op_norm_by_sums(struct backend *b, struct tensor *x, const float *sums, uint32_t count,
                     const float *w, float eps);

/* y[i, h * y_step + k] = x[i, h * x_step + k] for h < heads, k < dim: parts of heads from one
 * layout to another. x_step 0: the same for all heads. x and y must not overlap. */
struct head_copy {
    uint32_t heads, dim, x_step, y_step;
};
void op_copy_heads(struct backend *b, struct tensor *y, const struct tensor *x,
                   const struct head_copy *copy);

/* Which experts a row goes to (Shazeer et al. 2017), from the router's logits [rows, experts].
 * Scores are softmax or sigmoid of the logits. Experts are ranked by score + bias (NULL: none),
 * equal ones by number; with groups, only experts of the groups_chosen best groups are ranked, a
 * group being as good as its best expert or as its two best together. A chosen expert's weight is
 * its score, divided by the sum over the chosen ones where `normalise`, times `scale`.
 * ret_ids, ret_weights [rows, chosen]; ids rise within a row. */
#define ROUTER_EXPERTS_MAX 1024u
struct router {
    uint32_t experts, chosen;       /* chosen <= experts <= ROUTER_EXPERTS_MAX */
    uint32_t groups, groups_chosen; /* 1 and 1: no groups */
    bool sigmoid, normalise, group_by_two;
    float scale;
};
void op_route(struct backend *b, uint32_t *ret_ids, float *ret_weights, const struct tensor *logits,
              const float *bias, const struct router *router);
/* y[rows[i], :] += scale[i] * x[i, :]; rows [x->rows] all differ. */
void op_scatter_add(struct backend *b, struct tensor *y, const struct tensor *x,
                    const uint32_t *rows, const float *scale);

/* y[i, :] = x[rows[i], :]. */
void op_gather_rows(struct backend *b, struct tensor *y, const struct tensor *x,
                    const uint32_t *rows);

/* One low-rank term of an adapter (Hu et al. 2021): columns [first, first + columns) of y get
 * b (a x). a has `rank` outputs for x->columns inputs, b `columns` outputs for `rank` inputs, the
 * adapter's factor folded in. Both lie in panels of LORA_PANEL outputs with zeros behind the last:
 * output n's value for input k stands at panels[n / 16 * 16 * inputs + k * 16 + n % 16]; 64-byte
 * aligned. */
#define LORA_PANEL 16u
#define LORA_TERMS_MAX 3u
#define LORA_RANK_MAX 512u
struct lora_term {
    const float *a, *b;
    uint32_t rank, first, columns; /* 1 <= rank <= LORA_RANK_MAX, columns >= 1 */
};
/* The rows of a step that want one adapter, and its terms. */
struct lora_group {
    const uint32_t *rows; /* rising */
    uint32_t rows_count, terms_count;
    struct lora_term terms[LORA_TERMS_MAX];
};
static inline uint32_t lora_padded(uint32_t outputs)
{
    return (outputs + LORA_PANEL - 1) / LORA_PANEL * LORA_PANEL;
}
/* y[r, :] += b (a x[r, :]) of every term of every group, r in its rows; other rows are not touched.
 * No row is in two groups, no column in two terms of one. low: scratch, at least as many rows as x
 * and as many columns as a group's padded ranks together. Both sums run over rising k, the second
 * one from y. */
void op_lora_add(struct backend *b, struct tensor *y, const struct tensor *x, struct tensor *low,
                 const struct lora_group *groups, size_t count);

/* Not an op of a model: fn(context, piece) for pieces 0 .. count - 1, each once, on the backend's
 * threads where it has some, else on the caller. Low numbers start first; returns when all are
 * done. Which thread runs which piece is chance. */
typedef void (*op_piece_fn)(void *context, uint32_t piece);
void op_run_pieces(struct backend *b, op_piece_fn fn, void *context, uint32_t count);

/* What the pools of a backend keep of a token's key or value of one head, a row x of head_dim
 * values:
 *   BFLOAT16  each value's nearest bf16 (ref: f32)
 *   INT8      one f32 scale = largest |x| / 127, and q = x * (127 / largest |x|) rounded to the
 *             nearest integer, ties to even; the row reads as scale * q, so an error is at most
 * half a scale (and 2^-22 of the value). A row below KV_INT8_SMALLEST reads as zeros; one that
 * holds a NaN or an infinity reads as NaNs. Either way a row's bits depend on that row alone, and
 * so do a slot's. */
enum kv_dtype { KV_BFLOAT16 = 0, KV_INT8, KV_DTYPES };
#define KV_INT8_SMALLEST 1e-30f                 /* 127 / x stays finite */
const char *kv_dtype_name(enum kv_dtype dtype); /* "bfloat16", "int8" */

/* KV pages of all layers: blocks * layers * 2 * kv_heads * 16 * head_dim values of the backend's
 * kv_dtype. Reserved whole at once, page-faulted lazily. 0, -ENOMEM. */
int op_kv_pool_new(struct backend *b, uint32_t blocks, uint32_t layers, uint32_t kv_heads,
                   uint32_t head_dim, struct kv_pool **ret_pool, struct errmsg *err);
void op_kv_pool_free(struct backend *b, struct kv_pool *pool);
/* Bytes that one block takes in op_kv_pool_new, all layers: the pool's size in blocks follows. */
size_t op_kv_block_bytes(struct backend *b, uint32_t layers, uint32_t kv_heads, uint32_t head_dim);
/* Copy slots [0, tokens) of block `from` to block `to`, all layers, K and V. */
void op_copy_blocks(struct backend *b, struct kv_pool *pool, uint32_t from, uint32_t to,
                    uint32_t tokens);
/* The op_kv_block_bytes of a block as they are, in the backend's own layout (kv_format): written
 * into any block of a pool of the same shape and format they give the same bits as before. */
void op_kv_block_read(struct backend *b, const struct kv_pool *pool, uint32_t block,
                      void *ret_bytes);
void op_kv_block_write(struct backend *b, struct kv_pool *pool, uint32_t block, const void *bytes);

/* Scratch and activation memory, 64-byte aligned, in backend memory. */
int op_alloc(struct backend *b, size_t bytes, void **ret_pointer);
void op_free(struct backend *b, void *pointer, size_t bytes);

#endif
