/* backend.c - the reference backend's table. Nothing to open: no threads, no scratch. */
#include <errno.h>
#include <string.h>

#include "kernels/ref/ref.h"
#include "proto/base/mem.h"

static int ref_open(struct backend *b, unsigned threads, const char *isa, struct errmsg *err)
{
    if (isa != NULL && strcmp(isa, "scalar") != 0)
        return errmsg_set(err, -ENOENT, "backend ref has no family '%s'; there is: scalar", isa);
    b->isa = "scalar";
    b->kv_format = b->kv_dtype == KV_INT8 ? "ref-int8-1" : "ref-f32-1";
    b->threads = 1; /* whatever was asked: one order of everything */
    return 0;
}

static void ref_close(struct backend *b)
{
}

static int ref_alloc(struct backend *b, size_t bytes, void **ret_pointer)
{
    return mem_map(bytes, ret_pointer);
}

static void ref_free(struct backend *b, void *pointer, size_t bytes)
{
    mem_unmap(pointer, bytes);
}

const struct backend_ops ref_backend_ops = {
    .name = "ref",
    .open = ref_open,
    .close = ref_close,
    .weight_new = ref_weight_new,
    .weight_free = ref_weight_free,
    .embed = ref_embed,
    .rmsnorm = ref_rmsnorm,
    .layernorm = ref_layernorm,
    .matmul = ref_matmul,
    .rope = ref_rope,
    .attention = ref_attention,
    .silu_mul = ref_silu_mul,
    .gelu_mul = ref_gelu_mul,
    .add = ref_add,
    .add_bias = ref_add_bias,
    .scale = ref_scale,
    .softcap = ref_softcap,
    .head_norm = ref_head_norm,
    .square_sums = ref_square_sums,
    .norm_by_sums = ref_norm_by_sums,
    .copy_heads = ref_copy_heads,
    .route = ref_route,
    .scatter_add = ref_scatter_add,
    .gather_rows = ref_gather_rows,
    .lora_add = ref_lora_add,
    .kv_pool_new = ref_kv_pool_new,
    .kv_pool_free = ref_kv_pool_free,
    .kv_block_bytes = ref_kv_block_bytes,
    .copy_blocks = ref_copy_blocks,
    .kv_block_read = ref_kv_block_read,
    .kv_block_write = ref_kv_block_write,
    .alloc = ref_alloc,
    .free = ref_free,
};
