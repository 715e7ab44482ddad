/* rope.c - rotary embedding and the KV write in one pass over the rows.
 *
 *   row  [q heads: rotated in place][k heads: rotated -> K tiles][v heads: -> V tiles]
 *
 * Pieces are whole rows; the row is the family's. */
#include "kernels/cpu/cpu.h"
#include "proto/base/assert.h"

struct rope_job {
    const struct cpu_family *family;
    struct tensor *qkv;
    const struct heads *heads;
    const struct rope *rope;
    struct kv_pool *kv;
    struct kv_tiles tiles;
    uint32_t layer;
    const struct step *step;
};

static void rope_row(const struct rope_job *job, uint32_t row, const uint32_t *table)
{
    const struct heads *heads = job->heads;
    const struct rope *rope = job->rope;
    uint32_t dim = heads->head_dim, half = rope->rotary_dims / 2;
    uint32_t position = job->step->position[row], slot = position % KV_BLOCK_TOKENS;
    uint32_t block = table[position / KV_BLOCK_TOKENS];
    const float *cos_sin = rope->cos_sin + (size_t)position * rope->rotary_dims;
    float *q = job->qkv->data + (size_t)row * job->qkv->stride;
    float *k = q + (size_t)heads->q_heads * dim, *v = k + (size_t)heads->kv_heads * dim;
    ASSERT(block < job->kv->blocks);
    job->family->rotate_heads(q, heads->q_heads + heads->kv_heads, dim, cos_sin, half,
                              rope->interleaved);
    for (uint32_t h = 0; h < heads->kv_heads; h++) {
        uint8_t *tile = kv_tile(&job->tiles, block, job->layer * heads->kv_heads + h);
        job->family->write_kv[job->kv->dtype](k + (size_t)h * dim, v + (size_t)h * dim, dim, slot,
                                              tile, tile + job->tiles.k_bytes);
    }
}

static void rope_rows(const void *context, uint32_t first, uint32_t end)
{
    const struct rope_job *job = context;
    const struct step *step = job->step;
    uint32_t s = 0;
    for (uint32_t row = first; row < end; row++) {
        while (row >= step->row_first[s + 1])
            s++;
        rope_row(job, row, step->table + (size_t)s * step->table_stride);
    }
}

void cpu_rope(struct backend *b, struct tensor *qkv, const struct heads *heads,
              const struct rope *rope, struct kv_pool *kv, uint32_t layer, const struct step *step)
{
    const struct rope_job job = {.family = cpu_state(b)->family,
                                 .qkv = qkv,
                                 .heads = heads,
                                 .rope = rope,
                                 .kv = kv,
                                 .tiles = cpu_kv_tiles(kv),
                                 .layer = layer,
                                 .step = step};
    cpu_run_rows(b, rope_rows, &job, qkv->rows, 1 + qkv->columns / 4);
}
