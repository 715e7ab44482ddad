/* kv_counts.c - blocks and window blocks as metrics and people see them.
 *
 * `blocks` counts KV memory: where every layer slides, a block is books only, and its window block
 * is what is counted in its place. Window blocks of a model that has both kinds are counted apart.
 */
#include "proto/worker_metrics.h"
#include "worker/engine/engine_private.h"

void engine_kv_counts(const struct engine *engine, struct block_counts *ret_blocks,
                      struct window_counts *ret_windows)
{
    block_pool_counts(engine->pool, ret_blocks);
    window_get_counts(engine->pool, ret_windows);
    if (ret_windows->total == 0 || engine->settings.model->groups.full_layers > 0)
        return;
    ret_blocks->total = ret_windows->total;
    ret_blocks->empty = ret_windows->empty;
    ret_blocks->private_ = ret_windows->private_;
    ret_blocks->shared = ret_windows->shared;
    ret_blocks->cached = ret_windows->cached;
}

double engine_kv_bytes(const struct engine *engine, const struct block_counts *blocks,
                       const struct window_counts *windows)
{
    const struct rank_model *model = engine->settings.model;
    double full = blocks->total - blocks->empty, window = windows->total - windows->empty;

    return (model->groups.full_layers > 0 ? full * (double)rank_model_own_block_bytes(model) : 0) +
           (windows->total > 0 ? window * (double)rank_model_own_window_block_bytes(model) : 0);
}

static double held_share(uint32_t private_, uint32_t shared, uint32_t total)
{
    return total > 0 ? ((double)private_ + shared) / total : 0;
}

void engine_set_kv_gauges(struct engine *engine, const struct block_counts *blocks,
                          const struct window_counts *windows)
{
    struct metrics *metrics = engine->settings.metrics;
    double held = held_share(blocks->private_, blocks->shared, blocks->total);
    double seen = held_share(windows->private_, windows->shared, windows->total);
    uint64_t lost = windows->lost_total - engine->counted_windows_lost;

    metrics_set(metrics, WM_BLOCKS, WM_BLOCK_EMPTY, blocks->empty);
    metrics_set(metrics, WM_BLOCKS, WM_BLOCK_PRIVATE, blocks->private_);
    metrics_set(metrics, WM_BLOCKS, WM_BLOCK_SHARED, blocks->shared);
    metrics_set(metrics, WM_BLOCKS, WM_BLOCK_CACHED, blocks->cached);
    metrics_set(metrics, WM_WINDOW_BLOCKS, WM_BLOCK_EMPTY, windows->empty);
    metrics_set(metrics, WM_WINDOW_BLOCKS, WM_BLOCK_PRIVATE, windows->private_);
    metrics_set(metrics, WM_WINDOW_BLOCKS, WM_BLOCK_SHARED, windows->shared);
    metrics_set(metrics, WM_WINDOW_BLOCKS, WM_BLOCK_CACHED, windows->cached);
    metrics_set(metrics, WM_KV_USAGE_RATIO, 0, held > seen ? held : seen);
    metrics_add(metrics, WM_WINDOW_EVICTIONS, 0, (double)lost);
    engine->counted_windows_lost = windows->lost_total;
}

void engine_append_windows(const struct engine *engine, struct buffer *out)
{
    struct window_counts windows;

    window_get_counts(engine->pool, &windows);
    if (windows.total > 0)
        buffer_printf(out,
                      ",\"window_tokens\":%u,\"window_total\":%u,\"window_empty\":%u,"
                      "\"window_private\":%u,\"window_shared\":%u,\"window_cached\":%u,"
                      "\"window_evictions\":%llu",
                      window_tokens(engine->pool), windows.total, windows.empty, windows.private_,
                      windows.shared, windows.cached, (unsigned long long)windows.lost_total);
}
