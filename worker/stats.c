/* stats.c - differences of two statuses. A quiet worker writes nothing. */
#include "worker/stats.h"

#define LOG_MODULE "stats"
#include "proto/base/log.h"
#include "proto/worker_metrics.h"

static double share(uint64_t part, uint64_t whole)
{
    return whole > 0 ? (double)part / (double)whole : 0;
}

void stats_tick(struct stats *stats, struct engine *engine, struct metrics *metrics,
                uint64_t now_ms)
{
    struct engine_status now;
    if (now_ms < stats->logged_ms + STATS_MS)
        return;
    engine_get_status(engine, &now);
    const struct scheduler_counts *counts = &now.counts, *then = &stats->last.counts;
    bool first = stats->logged_ms == 0;
    bool active = now.steps != stats->last.steps || counts->running > 0 || counts->waiting > 0;
    double seconds = (double)(now_ms - stats->logged_ms) * 1e-3;
    uint64_t prompt = counts->prompt_tokens_total - then->prompt_tokens_total;
    uint64_t cached = counts->cached_tokens_total - then->cached_tokens_total;
    uint64_t generated = counts->generated_tokens_total - then->generated_tokens_total;
    metrics_set(metrics, WM_PROMPT_RATE, 0, first ? 0 : (double)prompt / seconds);
    metrics_set(metrics, WM_GENERATED_RATE, 0, first ? 0 : (double)generated / seconds);
    if (!first && active)
        log_info("stats",
                 "running=%u waiting=%u prompt_tokens_per_s=%.1f generated_tokens_per_s=%.1f "
                 "kv_usage=%.3f cached=%.3f hit_rate_recent=%.3f hit_rate=%.3f preemptions=%llu "
                 "evictions=%llu",
                 counts->running, counts->waiting, (double)prompt / seconds,
                 (double)generated / seconds,
                 share(now.blocks.private_ + now.blocks.shared, now.blocks.total),
                 share(now.blocks.cached, now.blocks.total), share(cached, prompt),
                 share(counts->cached_tokens_total, counts->prompt_tokens_total),
                 (unsigned long long)counts->preemptions_total,
                 (unsigned long long)now.blocks.evictions_total);
    stats->last = now;
    stats->logged_ms = now_ms;
}
