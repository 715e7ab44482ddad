/* fuzz_block_pool.c - the fuzzer's bytes choose the operations; pool and naive model must agree,
 * and of a pool with window blocks their model too. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/unit/worker/kv/pool_model.h"
#include "tests/unit/worker/kv/window_model.h"

struct bytes {
    const uint8_t *at, *end;
};

static uint32_t draw_byte(void *user, uint32_t below)
{
    struct bytes *bytes = user;

    return bytes->at < bytes->end ? *bytes->at++ % below : 0;
}

static void run_windows(struct bytes *bytes)
{
    static struct window_model model;
    const struct block_pool_settings settings = {
        .blocks_total = 2 + draw_byte(bytes, WM_BLOCKS_MAX - 1),
        .prefix_caching = true,
        .pinned_blocks_max = WM_BLOCKS_MAX,
        .eviction = eviction_policies[draw_byte(bytes, eviction_policies_count())],
        .window_tokens = 2 + draw_byte(bytes, 100),
        .window_blocks = 1 + draw_byte(bytes, 24),
    };

    wm_init(&model, &settings, draw_byte, bytes);
    while (bytes->at < bytes->end) {
        wm_op(&model);
        wm_compare(&model);
    }
    wm_done(&model);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct pool_model model;
    struct bytes bytes = {data, data + size};

    if (size < 3)
        return 0;
    struct block_pool_settings settings = {.blocks_total = 1 + draw_byte(&bytes, MODEL_BLOCKS_MAX)};
    uint32_t flags = draw_byte(&bytes, 8);
    if (flags >= 4) {
        run_windows(&bytes);
        return 0;
    }
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
