/* heap_trim.c - resident from /proc, used from our own count; malloc_trim() in between. */
#define LOG_MODULE "router"
#include "router/heap_trim.h"

#include <malloc.h>

#include "proto/base/clock.h"
#include "proto/base/log.h"
#include "proto/base/mem.h"
#include "proto/base/proc_stat.h"

#define SLACK_IDLE_BYTES ((uint64_t)64 << 20)
#define SLACK_BUSY_BYTES ((uint64_t)512 << 20)

static uint64_t resident_bytes(void)
{
    struct proc_stat stat = {.name = ""};
    return proc_stat_read("/proc/self/stat", &stat) == 0 ? stat.resident_bytes : 0;
}

static uint64_t used_bytes(void)
{
    uint64_t bytes = 0;

    for (enum mem_purpose purpose = 0; purpose < MEM_PURPOSE_COUNT; purpose++) {
        struct mem_usage usage;
        mem_usage(purpose, &usage);
        bytes += usage.bytes;
    }
    return bytes;
}

bool heap_trim_due(uint64_t resident, uint64_t used, bool idle)
{
    return resident > used + used / 4 + (idle ? SLACK_IDLE_BYTES : SLACK_BUSY_BYTES);
}

bool heap_trim_tick(struct heap_trim *trim, uint64_t now_ms, bool idle)
{
    if (now_ms < trim->next_ms)
        return false;
    trim->next_ms = now_ms + HEAP_TRIM_LOOK_MS;
    uint64_t resident = resident_bytes();
    if (!heap_trim_due(resident, used_bytes(), idle))
        return false;
    uint64_t began_ns = clock_ns();
    (void)malloc_trim(0);
    trim->next_ms = now_ms + HEAP_TRIM_PAUSE_MS;
    log_info("heap_trimmed", "resident_bytes=%llu before=%llu ms=%.1f",
             (unsigned long long)resident_bytes(), (unsigned long long)resident,
             (double)(clock_ns() - began_ns) / 1e6);
    return true;
}
