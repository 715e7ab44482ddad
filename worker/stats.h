/* stats.h - one log line every 5 s while something happens: load, speed, reuse; and the two gauges
 * of speed. Thread: io. */
#ifndef REFRAIN_WORKER_STATS_H
#define REFRAIN_WORKER_STATS_H

#include "worker/engine/engine.h"

#define STATS_MS 5000u

struct stats {
    uint64_t logged_ms; /* 0: never */
    struct engine_status last;
};

/* When STATS_MS have passed: sets the gauges, and logs if something was computed or waits. */
void stats_tick(struct stats *stats, struct engine *engine, struct metrics *metrics,
                uint64_t now_ms);

#endif
