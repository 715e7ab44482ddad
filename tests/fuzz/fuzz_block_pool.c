/* fuzz_block_pool.c - the fuzzer's bytes choose the operations; pool and naive model must agree. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/unit/worker/kv/pool_model.h"

struct bytes {
    const uint8_t *at, *end;
};

static uint32_t draw_byte(void *user, uint32_t below)
{
    struct bytes *bytes = user;

    return bytes->at < bytes->end ? *bytes->at++ % below : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct pool_model model;
    struct bytes bytes = {data, data + size};

    if (size < 3)
        return 0;
    struct block_pool_settings settings = {.blocks_total = 1 + draw_byte(&bytes, MODEL_BLOCKS_MAX)};
    uint32_t flags = draw_byte(&bytes, 4);
    settings.prefix_caching = flags != 3;
    settings.pinned_blocks_max = draw_byte(&bytes, MODEL_BLOCKS_MAX);
    settings.eviction = eviction_policies[draw_byte(&bytes, eviction_policies_count())];
    model_init(&model, &settings, flags == 1, draw_byte, &bytes);
    while (bytes.at < bytes.end) {
        model_op(&model);
        model_compare(&model);
    }
    block_pool_check(model.pool);
    model_done(&model);
    return 0;
}
