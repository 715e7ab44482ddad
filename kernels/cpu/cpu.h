/* cpu.h - the cpu backend: packed weights, KV pages, threads, one family of kernels.
 *
 * Private to kernels/cpu and backend.c. Files named after an op plan it: they cut the work into
 * pieces for the pool; the arithmetic is the family's (family.h). */
#ifndef REFRAIN_KERNELS_CPU_CPU_H
#define REFRAIN_KERNELS_CPU_CPU_H

#include "kernels/backend.h"
#include "kernels/cpu/family.h"
#include "kernels/cpu/slab.h"
#include "kernels/cpu/thread_pool.h"

extern const struct backend_ops cpu_backend_ops;

#define QUANT_ROWS MANY_ROWS             /* rows quantised at once: op_matmul's passes over M */
#define HEAD_DIM_MAX 512                 /* as ops.c checks */
#define ATTENTION_UNITS 8192             /* planned at once */
#define ATTENTION_PARTIALS (1024 * 1024) /* floats for split contexts */

struct cpu_state {
    const struct cpu_family *family;
    struct thread_pool *pool;
    struct slab *slab; /* being filled with weights, or NULL */
    /* Scratch. quant grows in weight_new to the widest weight; the rest is made at open. */
    struct quant_rows quant; /* [QUANT_ROWS] */
    uint16_t *packed;        /* [QUANT_ROWS], for a family that packs rows */
    uint16_t *panel_scratch; /* [threads][MANY_SCRATCH_VALUES], likewise */
    void *quant_memory;
    size_t quant_bytes;
    uint32_t quant_columns;
    float *thread_scratch; /* [threads][attention_scratch_floats(HEAD_DIM_MAX)] */
    struct attention_unit *units, *ordered, *merges; /* ATTENTION_UNITS each */
    float *partials;
};

static inline struct cpu_state *cpu_state(struct backend *b)
{
    return b->state;
}

/* Rows of parts that follow each other and have the same class. */
struct cpu_segment {
    enum panel_class class;
    uint32_t row, rows; /* outputs row .. row + rows - 1 of the weight */
    uint32_t panels;
    size_t panel_bytes;
    bool by_output; /* layout, family.h */
    uint8_t *data;  /* panels * panel_bytes, 64-byte aligned */
};

struct cpu_weight {
    struct weight base; /* first */
    uint32_t segments;
    struct cpu_segment *segment;
    struct slab *slab; /* where data lies */
};

/* Run fn(context, first row, end row, thread) over rows; on the caller alone when the whole takes
 * less than a few microseconds. */
typedef void (*cpu_rows_fn)(const void *context, uint32_t first, uint32_t end);
void cpu_run_rows(struct backend *b, cpu_rows_fn fn, const void *context, uint32_t rows,
                  uint32_t row_ns);

int cpu_weight_new(struct backend *b, enum weight_use use, const struct weight_part *parts,
                   size_t count, uint32_t columns, struct weight **ret_weight, struct errmsg *err);
void cpu_weight_free(struct backend *b, struct weight *weight);
/* What a matmul with this class does with rows of x first. */
enum cpu_rows { ROWS_PLAIN = 0, ROWS_QUANTISED, ROWS_PACKED };
enum cpu_rows cpu_rows_of(const struct cpu_state *state, enum panel_class class);
/* pack.c: rows of parts -> panels of a segment. `sources` [rows of the segment]. */
struct pack_source {
    enum dtype dtype;
    const void *row; /* first column wanted */
};
enum panel_class pack_class(enum dtype dtype);
size_t pack_panel_bytes(enum panel_class class, bool by_output, uint32_t columns);
void pack_panel(const struct cpu_segment *segment, uint32_t panel,
                const struct pack_source *sources, uint32_t columns);

void cpu_embed(struct backend *b, struct tensor *x, const struct weight *weight,
               const uint32_t *ids);
void cpu_rmsnorm(struct backend *b, struct tensor *y, const struct tensor *x, const float *w,
                 float eps);
void cpu_layernorm(struct backend *b, struct tensor *y, const struct tensor *x, uint32_t dim,
                   const float *w, float eps);
void cpu_matmul(struct backend *b, struct tensor *y, const struct tensor *x,
                const struct weight *weight, bool accumulate);
void cpu_rope(struct backend *b, struct tensor *qkv, const struct heads *heads,
              const struct rope *rope, struct kv_pool *kv, uint32_t layer, const struct step *step);
void cpu_attention(struct backend *b, struct tensor *out, const struct tensor *qkv,
                   const struct heads *heads, const struct kv_pool *kv, uint32_t layer,
                   const struct step *step, const struct attention_rule *rule);
void cpu_silu_mul(struct backend *b, struct tensor *y, const struct tensor *gate_up);
void cpu_gelu_mul(struct backend *b, struct tensor *y, const struct tensor *gate_up);
void cpu_add(struct backend *b, struct tensor *x, const struct tensor *y);
void cpu_add_bias(struct backend *b, struct tensor *x, const float *bias);
void cpu_scale(struct backend *b, struct tensor *x, float factor);
void cpu_softcap(struct backend *b, struct tensor *x, float cap);
void cpu_head_norm(struct backend *b, struct tensor *x, uint32_t dim, const float *w, float eps);
void cpu_square_sums(struct backend *b, float *sums, const struct tensor *x);
void cpu_norm_by_sums(struct backend *b, struct tensor *x, const float *sums, uint32_t count,
                      const float *w, float eps);
void cpu_copy_heads(struct backend *b, struct tensor *y, const struct tensor *x,
                    const struct head_copy *copy);
void cpu_route(struct backend *b, uint32_t *ret_ids, float *ret_weights,
               const struct tensor *logits, const float *bias, const struct router *router);
void cpu_scatter_add(struct backend *b, struct tensor *y, const struct tensor *x,
                     const uint32_t *rows, const float *scale);
void cpu_gather_rows(struct backend *b, struct tensor *y, const struct tensor *x,
                     const uint32_t *rows);
void cpu_lora_add(struct backend *b, struct tensor *y, const struct tensor *x, struct tensor *low,
                  const struct lora_group *groups, size_t count);
int cpu_kv_pool_new(struct backend *b, uint32_t blocks, uint32_t layers, uint32_t kv_heads,
                    uint32_t head_dim, struct kv_pool **ret_pool, struct errmsg *err);
void cpu_kv_pool_free(struct backend *b, struct kv_pool *pool);
size_t cpu_kv_block_bytes(struct backend *b, uint32_t layers, uint32_t kv_heads, uint32_t head_dim);
void cpu_copy_blocks(struct backend *b, struct kv_pool *pool, uint32_t from, uint32_t to,
                     uint32_t tokens);
void cpu_kv_block_read(struct backend *b, const struct kv_pool *pool, uint32_t block,
                       void *ret_bytes);
void cpu_kv_block_write(struct backend *b, struct kv_pool *pool, uint32_t block, const void *bytes);

/* Where the pool's tiles are (family.h). */
struct kv_tiles cpu_kv_tiles(const struct kv_pool *pool);

#endif
