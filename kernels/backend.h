/* backend.h - the function pointers that a backend fills. One table per backend, chosen at start.
 *
 * A backend's functions may assume what ops.h says and ops.c checked. Adding a backend: one folder,
 * one table, one line in backend.c. */
#ifndef REFRAIN_KERNELS_BACKEND_H
#define REFRAIN_KERNELS_BACKEND_H

#include "kernels/ops.h"

struct backend_ops {
    const char *name; /* "ref", "cpu" */
    int (*open)(struct backend *b, unsigned threads, const char *isa, struct errmsg *err);
    void (*close)(struct backend *b);
    int (*weight_new)(struct backend *b, enum weight_use use, const struct weight_part *parts,
                      size_t count, uint32_t columns, struct weight **ret_weight,
                      struct errmsg *err);
    void (*weight_free)(struct backend *b, struct weight *weight);
    void (*embed)(struct backend *b, struct tensor *x, const struct weight *weight,
                  const uint32_t *ids);
    void (*rmsnorm)(struct backend *b, struct tensor *y, const struct tensor *x, const float *w,
                    float eps);
    void (*layernorm)(struct backend *b, struct tensor *y, const struct tensor *x, uint32_t dim,
                      const float *w, float eps);
    void (*matmul)(struct backend *b, struct tensor *y, const struct tensor *x,
                   const struct weight *weight, bool accumulate);
    void (*rope)(struct backend *b, struct tensor *qkv, const struct heads *heads,
                 const struct rope *rope, struct kv_pool *kv, uint32_t layer,
                 const struct step *step);
    void (*attention)(struct backend *b, struct tensor *out, const struct tensor *qkv,
                      const struct heads *heads, const struct kv_pool *kv, uint32_t layer,
                      const struct step *step, const struct attention_rule *rule);
    void (*silu_mul)(struct backend *b, struct tensor *y, const struct tensor *gate_up);
    void (*gelu_mul)(struct backend *b, struct tensor *y, const struct tensor *gate_up);
    void (*add)(struct backend *b, struct tensor *x, const struct tensor *y);
    void (*add_bias)(struct backend *b, struct tensor *x, const float *bias);
    void (*scale)(struct backend *b, struct tensor *x, float factor);
    void (*softcap)(struct backend *b, struct tensor *x, float cap);
    void (*head_norm)(struct backend *b, struct tensor *x, uint32_t dim, const float *w, float eps);
    void (*square_sums)(struct backend *b, float *sums, const struct tensor *x);
    void (*norm_by_sums)(struct backend *b, struct tensor *x, const float *sums, uint32_t count,
                         const float *w, float eps);
    void (*copy_heads)(struct backend *b, struct tensor *y, const struct tensor *x,
                       const struct head_copy *copy);
    void (*route)(struct backend *b, uint32_t *ret_ids, float *ret_weights,
                  const struct tensor *logits, const float *bias, const struct router *router);
    void (*scatter_add)(struct backend *b, struct tensor *y, const struct tensor *x,
                        const uint32_t *rows, const float *scale);
    void (*gather_rows)(struct backend *b, struct tensor *y, const struct tensor *x,
                        const uint32_t *rows);
    void (*lora_add)(struct backend *b, struct tensor *y, const struct tensor *x,
                     struct tensor *low, const struct lora_group *groups, size_t count);
    void (*run_pieces)(struct backend *b, op_piece_fn fn, void *context,
                       uint32_t count); /* NULL: on the caller */
    int (*kv_pool_new)(struct backend *b, uint32_t blocks, uint32_t layers, uint32_t kv_heads,
                       uint32_t head_dim, struct kv_pool **ret_pool, struct errmsg *err);
    void (*kv_pool_free)(struct backend *b, struct kv_pool *pool);
    size_t (*kv_block_bytes)(struct backend *b, uint32_t layers, uint32_t kv_heads,
                             uint32_t head_dim);
    void (*copy_blocks)(struct backend *b, struct kv_pool *pool, uint32_t from, uint32_t to,
                        uint32_t tokens);
    void (*kv_block_read)(struct backend *b, const struct kv_pool *pool, uint32_t block,
                          void *ret_bytes);
    void (*kv_block_write)(struct backend *b, struct kv_pool *pool, uint32_t block,
                           const void *bytes);
    int (*alloc)(struct backend *b, size_t bytes, void **ret_pointer);
    void (*free)(struct backend *b, void *pointer, size_t bytes);
};

/* Embedded first in every weight: what ops.c checks shapes against. */
struct weight {
    uint32_t rows, columns;
    size_t bytes;
};

/* KV pages of a backend: block-major, so that a block of all layers is one run of bytes. The order
 * of values inside a block is the backend's own. */
struct kv_pool {
    uint32_t blocks, layers, kv_heads, head_dim;
    enum kv_dtype dtype; /* its backend's */
    size_t block_bytes;
    void *data; /* blocks * block_bytes, mem_map */
};

struct backend {
    const struct backend_ops *ops;
    void *state;     /* the backend's own: thread pool, scratch */
    const char *isa; /* "avx2", "scalar"...: what was chosen, for logs and metrics */
    /* Names the layout of a KV block and everything that its bits depend on apart from model and
     * ranks: blocks of two processes may be exchanged only where this is equal. */
    const char *kv_format;
    enum kv_dtype kv_dtype;
    unsigned threads;
};

struct backend_settings {
    const char *name; /* "cpu" (default), "ref" */
    unsigned threads; /* >= 1, the caller included */
    const char *isa;  /* NULL or "auto": by CPUID; else a family's name, refused when absent */
    enum kv_dtype kv_dtype;
};

/* 0; -ENOENT: no such backend or family, *err lists what there is; -ENOMEM. */
int backend_open(const struct backend_settings *settings, struct backend **ret_backend,
                 struct errmsg *err);
void backend_close(struct backend *b); /* NULL is fine */

/* Families of the cpu backend, best first: the i-th one's name, NULL past the last. *ret_missing:
 * NULL, or what this machine lacks of it ("AVX-512 VNNI"). */
const char *backend_cpu_family(size_t i, const char **ret_missing);

#endif
