/* backend.c - the cpu backend: open, close, memory, and work that is cut by rows.
 *
 * Everything an op needs while it runs is allocated here (or in weight_new, for the widest
 * weight), so that the op path never allocates. Big scratch is mapped, so what a model does not
 * use costs no memory. */
#include <errno.h>
#include <stdio.h>

#include "kernels/cpu/cpu.h"
#include "proto/base/assert.h"
#include "proto/base/mem.h"

#define SCRATCH_FLOATS attention_scratch_floats(HEAD_DIM_MAX)
#define CALLER_NS 4000 /* below this a job costs more than it spreads */
#define PIECE_NS 8000

static size_t scratch_bytes(unsigned threads)
{
    return threads * SCRATCH_FLOATS * sizeof(float);
}

static void state_free(struct cpu_state *state, unsigned threads)
{
    if (state == NULL)
        return;
    thread_pool_free(state->pool);
    if (state->thread_scratch != NULL)
        mem_unmap(state->thread_scratch, scratch_bytes(threads));
    if (state->units != NULL)
        mem_unmap(state->units, ATTENTION_UNITS * 3 * sizeof(*state->units));
    if (state->partials != NULL)
        mem_unmap(state->partials, ATTENTION_PARTIALS * sizeof(float));
    if (state->slab != NULL)
        slab_unref(state->slab);
    if (state->quant_memory != NULL)
        mem_unmap(state->quant_memory, state->quant_bytes);
    mem_free(state);
}

static int map(size_t bytes, void **ret_pointer, struct errmsg *err)
{
    if (mem_map(bytes, ret_pointer) < 0)
        return errmsg_set(err, -ENOMEM, "no memory for %zu bytes of scratch", bytes);
    return 0;
}

static int state_open(struct cpu_state *state, unsigned threads, struct errmsg *err)
{
    void *memory;
    int r = map(scratch_bytes(threads), &memory, err);
    if (r < 0)
        return r;
    state->thread_scratch = memory;
    r = map(ATTENTION_UNITS * 3 * sizeof(*state->units), &memory, err);
    if (r < 0)
        return r;
    state->units = memory;
    state->ordered = state->units + ATTENTION_UNITS;
    state->merges = state->ordered + ATTENTION_UNITS;
    r = map(ATTENTION_PARTIALS * sizeof(float), &memory, err);
    if (r < 0)
        return r;
    state->partials = memory;
    return thread_pool_new(threads, &state->pool, err);
}

static int refuse_family(const char *isa, struct errmsg *err)
{
    char there[200] = "";
    size_t used = 0;
    const struct cpu_family *family;
    for (size_t i = 0; (family = cpu_family_at(i)) != NULL && used < sizeof(there); i++) {
        const char *missing = cpu_family_missing(family);
        used += (size_t)snprintf(there + used, sizeof(there) - used, "%s%s%s%s%s",
                                 i > 0 ? ", " : "", family->name, missing != NULL ? " (lacks " : "",
                                 missing != NULL ? missing : "", missing != NULL ? ")" : "");
    }
    return errmsg_set(err, -ENOTSUP, "the cpu backend cannot run family '%s' here; families: %s",
                      isa, there);
}

static int cpu_open(struct backend *b, unsigned threads, const char *isa, struct errmsg *err)
{
    const struct cpu_family *family = cpu_family_find(isa);
    if (family == NULL)
        return refuse_family(isa == NULL ? "auto" : isa, err);
    struct cpu_state *state = mem_zalloc(sizeof(*state));
    state->family = family;
    int r = state_open(state, threads, err);
    if (r < 0) {
        state_free(state, threads);
        return r;
    }
    b->state = state;
    b->isa = family->name;
    b->kv_format = family->kv_format[b->kv_dtype];
    b->threads = threads;
    return 0;
}

static void cpu_close(struct backend *b)
{
    state_free(cpu_state(b), b->threads);
}

static int cpu_alloc(struct backend *b, size_t bytes, void **ret_pointer)
{
    return mem_map(bytes, ret_pointer);
}

static void cpu_free(struct backend *b, void *pointer, size_t bytes)
{
    mem_unmap(pointer, bytes);
}

struct rows_job {
    cpu_rows_fn fn;
    const void *context;
    uint32_t rows, piece_rows;
};

static void run_piece(void *context, uint32_t piece, unsigned thread)
{
    const struct rows_job *job = context;
    uint32_t first = piece * job->piece_rows;
    uint32_t end = first + job->piece_rows;
    job->fn(job->context, first, end < job->rows ? end : job->rows);
}

void cpu_run_rows(struct backend *b, cpu_rows_fn fn, const void *context, uint32_t rows,
                  uint32_t row_ns)
{
    ASSERT(row_ns > 0);
    if ((uint64_t)rows * row_ns <= CALLER_NS || b->threads == 1) {
        fn(context, 0, rows);
        return;
    }
    struct rows_job job = {fn, context, rows, PIECE_NS / row_ns + 1};
    uint32_t share = (rows + b->threads - 1) / b->threads;
    job.piece_rows = job.piece_rows < share ? job.piece_rows : share;
    thread_pool_run(cpu_state(b)->pool, run_piece, &job,
                    (rows + job.piece_rows - 1) / job.piece_rows);
}

struct pieces_job {
    op_piece_fn fn;
    void *context;
};

static void run_one(void *context, uint32_t piece, unsigned thread)
{
    const struct pieces_job *job = context;
    job->fn(job->context, piece);
}

static void cpu_run_pieces(struct backend *b, op_piece_fn fn, void *context, uint32_t count)
{
    struct pieces_job job = {fn, context};
    thread_pool_run(cpu_state(b)->pool, run_one, &job, count);
}

const struct backend_ops cpu_backend_ops = {
    .name = "cpu",
    .open = cpu_open,
    .close = cpu_close,
    .weight_new = cpu_weight_new,
    .weight_free = cpu_weight_free,
    .embed = cpu_embed,
    .rmsnorm = cpu_rmsnorm,
    .layernorm = cpu_layernorm,
    .matmul = cpu_matmul,
    .rope = cpu_rope,
    .attention = cpu_attention,
    .silu_mul = cpu_silu_mul,
    .gelu_mul = cpu_gelu_mul,
    .add = cpu_add,
    .add_bias = cpu_add_bias,
    .scale = cpu_scale,
    .softcap = cpu_softcap,
    .head_norm = cpu_head_norm,
    .square_sums = cpu_square_sums,
    .norm_by_sums = cpu_norm_by_sums,
    .copy_heads = cpu_copy_heads,
    .route = cpu_route,
    .scatter_add = cpu_scatter_add,
    .gather_rows = cpu_gather_rows,
    .lora_add = cpu_lora_add,
    .run_pieces = cpu_run_pieces,
    .kv_pool_new = cpu_kv_pool_new,
    .kv_pool_free = cpu_kv_pool_free,
    .kv_block_bytes = cpu_kv_block_bytes,
    .copy_blocks = cpu_copy_blocks,
    .kv_block_read = cpu_kv_block_read,
    .kv_block_write = cpu_kv_block_write,
    .alloc = cpu_alloc,
    .free = cpu_free,
};
