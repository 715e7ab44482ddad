/* rope.c - rotary embedding and the KV write in one pass over the rows.
 *
 *   row  [q heads: rotated in place][k heads: rotated -> K tiles][v heads: -> V tiles]
 *
 * Plain loops: no sums, so the compiler may vectorise as it likes without changing a bit. Rows of
 * one block go to one thread (pieces are whole rows, tokens of a tile share cache lines). */
#include "kernels/cpu/cpu.h"
#include "proto/base/assert.h"

struct rope_job {
    struct tensor *qkv;
    const struct heads *heads;
    const struct rope *rope;
    struct kv_pool *kv;
    uint32_t layer;
    const struct step *step;
};

static void rotate_halves(float *x, const float *table, uint32_t half)
{
    for (uint32_t i = 0; i < half; i++) {
        float c = table[2 * i], s = table[2 * i + 1];
        float a = x[i], b = x[i + half];
        x[i] = a * c - b * s;
        x[i + half] = b * c + a * s;
    }
}

static void rotate_pairs(float *x, const float *table, uint32_t half)
{
    for (uint32_t i = 0; i < half; i++) {
        float c = table[2 * i], s = table[2 * i + 1];
        float a = x[2 * i], b = x[2 * i + 1];
        x[2 * i] = a * c - b * s;
        x[2 * i + 1] = b * c + a * s;
    }
}

static void write_k(const float *k, uint16_t *tile, uint32_t head_dim, uint32_t slot)
{
    for (uint32_t d = 0; d < head_dim; d++)
        tile[PAIRED(d, slot)] = f32_to_bf16(k[d]);
}

static void write_v(const float *v, uint16_t *tile, uint32_t head_dim, uint32_t slot)
{
    for (uint32_t d = 0; d < head_dim; d++)
        tile[d / 16 * KV_BLOCK_TOKENS * 16 + PAIRED(slot, d % 16)] = f32_to_bf16(v[d]);
}

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
    for (float *x = q; x < v; x += dim) {
        if (rope->interleaved)
            rotate_pairs(x, cos_sin, half);
        else
            rotate_halves(x, cos_sin, half);
    }
    for (uint32_t h = 0; h < heads->kv_heads; h++) {
        write_k(k + h * dim, cpu_k_tile(job->kv, block, job->layer, h), dim, slot);
        write_v(v + h * dim, cpu_v_tile(job->kv, block, job->layer, h), dim, slot);
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
    const struct rope_job job = {qkv, heads, rope, kv, layer, step};
    cpu_run_rows(b, rope_rows, &job, qkv->rows, 1 + qkv->columns);
}
