/* metrics.c - registries per rank; process numbers from /proc/PID/stat. */
#include "worker/metrics.h"

#include <stdio.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "proto/base/proc_stat.h"
#include "proto/worker_metrics.h"
#include "worker/tp/shard.h"

struct worker_metrics {
    uint32_t ranks;
    size_t flat_count;
    struct metrics *registries[TP_RANKS_MAX];
    double *flat[TP_RANKS_MAX];
};

struct worker_metrics *worker_metrics_new(uint32_t ranks)
{
    struct worker_metrics *metrics = mem_zalloc(sizeof(*metrics));
    ASSERT(ranks >= 1 && ranks <= TP_RANKS_MAX);
    metrics->ranks = ranks;
    for (uint32_t rank = 0; rank < ranks; rank++) {
        metrics->registries[rank] = metrics_new(worker_metric_specs, WORKER_METRICS);
        metrics->flat_count = metrics_flat_count(metrics->registries[rank]);
        metrics->flat[rank] = mem_calloc(metrics->flat_count, sizeof(double));
    }
    return metrics;
}

void worker_metrics_free(struct worker_metrics *metrics)
{
    if (metrics == NULL)
        return;
    for (uint32_t rank = 0; rank < metrics->ranks; rank++) {
        metrics_free(metrics->registries[rank]);
        mem_free(metrics->flat[rank]);
    }
    mem_free(metrics);
}

uint32_t worker_metrics_ranks(const struct worker_metrics *metrics)
{
    return metrics->ranks;
}

struct metrics *worker_metrics_rank(struct worker_metrics *metrics, uint32_t rank)
{
    ASSERT(rank < metrics->ranks);
    return metrics->registries[rank];
}

void worker_metrics_refresh(struct worker_metrics *metrics, const pid_t *pids)
{
    for (enum mem_purpose purpose = 0; purpose < MEM_PURPOSE_COUNT; purpose++) {
        struct mem_usage usage;
        mem_usage(purpose, &usage);
        metrics_set(metrics->registries[0], WM_MEMORY_BYTES, purpose, (double)usage.bytes);
    }
    for (uint32_t rank = 0; rank < metrics->ranks; rank++) {
        struct metrics *registry = metrics->registries[rank];
        struct proc_stat stat;
        char path[64];
        (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pids[rank]);
        if (proc_stat_read(path, &stat) < 0)
            continue;
        double risen = stat.cpu_seconds - metrics_get(registry, WM_CPU_SECONDS, 0);
        metrics_set(registry, WM_RESIDENT_BYTES, 0, (double)stat.resident_bytes);
        metrics_add(registry, WM_CPU_SECONDS, 0, risen > 0 ? risen : 0);
    }
}

double *worker_metrics_flat(struct worker_metrics *metrics, uint32_t rank, size_t *ret_count)
{
    ASSERT(rank < metrics->ranks);
    metrics_flat_get(metrics->registries[rank], metrics->flat[rank]);
    *ret_count = metrics->flat_count;
    return metrics->flat[rank];
}
