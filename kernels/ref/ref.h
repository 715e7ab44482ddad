/* ref.h - the reference backend: plain f32 on one thread, the definition of every op.
 *
 * Private to kernels/ref and backend.c. Clear first; loops are laid out so that the compiler
 * vectorises over outputs, because `--reference` also runs whole models as an oracle. */
#ifndef REFRAIN_KERNELS_REF_REF_H
#define REFRAIN_KERNELS_REF_REF_H

#include "kernels/backend.h"

extern const struct backend_ops ref_backend_ops;

/* Four neighbouring outputs (or tokens) that are computed side by side. Every lane has its own sum
 * in the order of the loop, so the type says nothing about values. */
typedef float vec4 __attribute__((vector_size(16), aligned(4)));

/* Outputs n .. n + 15 of a weight, all of K: [rows / 16][columns][16], zeros past the last row. */
#define REF_PANEL 16
struct ref_weight {
    struct weight base; /* first */
    float *panels;
};

int ref_weight_new(struct backend *b, enum weight_use use, const struct weight_part *parts,
                   size_t count, uint32_t columns, struct weight **ret_weight, struct errmsg *err);
void ref_weight_free(struct backend *b, struct weight *weight);
void ref_embed(struct backend *b, struct tensor *x, const struct weight *weight,
               const uint32_t *ids);
void ref_rmsnorm(struct backend *b, struct tensor *y, const struct tensor *x, const float *w,
                 float eps);
void ref_layernorm(struct backend *b, struct tensor *y, const struct tensor *x, uint32_t dim,
                   const float *w, float eps);
void ref_matmul(struct backend *b, struct tensor *y, const struct tensor *x,
                const struct weight *weight, bool accumulate);
void ref_rope(struct backend *b, struct tensor *qkv, const struct heads *heads,
              const struct rope *rope, struct kv_pool *kv, uint32_t layer, const struct step *step);
void ref_attention(struct backend *b, struct tensor *out, const struct tensor *qkv,
                   const struct heads *heads, const struct kv_pool *kv, uint32_t layer,
                   const struct step *step, const struct attention_rule *rule);
void ref_silu_mul(struct backend *b, struct tensor *y, const struct tensor *gate_up);
void ref_gelu_mul(struct backend *b, struct tensor *y, const struct tensor *gate_up);
void ref_add(struct backend *b, struct tensor *x, const struct tensor *y);
void ref_add_bias(struct backend *b, struct tensor *x, const float *bias);
void ref_scale(struct backend *b, struct tensor *x, float factor);
void ref_softcap(struct backend *b, struct tensor *x, float cap);
void ref_head_norm(struct backend *b, struct tensor *x, uint32_t dim, const float *w, float eps);
void ref_square_sums(struct backend *b, float *sums, const struct tensor *x);
void ref_norm_by_sums(struct backend *b, struct tensor *x, const float *sums, uint32_t count,
                      const float *w, float eps);
void ref_copy_heads(struct backend *b, struct tensor *y, const struct tensor *x,
                    const struct head_copy *copy);
void ref_route(struct backend *b, uint32_t *ret_ids, float *ret_weights,
               const struct tensor *logits, const float *bias, const struct router *router);
void ref_scatter_add(struct backend *b, struct tensor *y, const struct tensor *x,
                     const uint32_t *rows, const float *scale);
void ref_gather_rows(struct backend *b, struct tensor *y, const struct tensor *x,
                     const uint32_t *rows);
void ref_lora_add(struct backend *b, struct tensor *y, const struct tensor *x, struct tensor *low,
                  const struct lora_group *groups, size_t count);
int ref_kv_pool_new(struct backend *b, uint32_t blocks, uint32_t layers, uint32_t kv_heads,
                    uint32_t head_dim, struct kv_pool **ret_pool, struct errmsg *err);
void ref_kv_pool_free(struct backend *b, struct kv_pool *pool);
size_t ref_kv_block_bytes(struct backend *b, uint32_t layers, uint32_t kv_heads, uint32_t head_dim);
void ref_copy_blocks(struct backend *b, struct kv_pool *pool, uint32_t from, uint32_t to,
                     uint32_t tokens);
void ref_kv_block_read(struct backend *b, const struct kv_pool *pool, uint32_t block,
                       void *ret_bytes);
void ref_kv_block_write(struct backend *b, struct kv_pool *pool, uint32_t block, const void *bytes);

/* One head's tile of a block: K as [head_dim][16] (scores vectorise over tokens), V as
 * [16][head_dim]. */
float *ref_k_tile(const struct kv_pool *pool, uint32_t block, uint32_t layer, uint32_t head);
float *ref_v_tile(const struct kv_pool *pool, uint32_t block, uint32_t layer, uint32_t head);

#endif
