/* metrics.c - registries per rank; process numbers from /proc/PID/stat. */
#include "worker/metrics.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
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
    for (uint32_t rank = 0; rank < metrics->ranks; rank++) {
        struct metrics *registry = metrics->registries[rank];
        uint64_t resident = 0;
        double cpu = 0;
        if (process_usage(pids[rank], &resident, &cpu) < 0)
            continue;
        double risen = cpu - metrics_get(registry, WM_CPU_SECONDS, 0);
        metrics_set(registry, WM_RESIDENT_BYTES, 0, (double)resident);
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

int process_usage(pid_t pid, uint64_t *ret_resident_bytes, double *ret_cpu_seconds)
{
    char path[64], line[1024];
    unsigned long long user_ticks = 0, system_ticks = 0, pages = 0;
    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return -ESRCH;
    size_t bytes = fread(line, 1, sizeof(line) - 1, file);
    (void)fclose(file);
    line[bytes] = '\0';
    const char *at = strrchr(line, ')'); /* behind the name; field 3 follows */
    if (at == NULL || sscanf(at + 1,
                             " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %*d %*d %*d "
                             "%*d %*d %*d %*u %*u %llu",
                             &user_ticks, &system_ticks, &pages) != 3)
        return -ESRCH;
    *ret_resident_bytes = pages * (uint64_t)sysconf(_SC_PAGESIZE);
    *ret_cpu_seconds = (double)(user_ticks + system_ticks) / (double)sysconf(_SC_CLK_TCK);
    return 0;
}
