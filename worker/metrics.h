/* metrics.h - a worker's metrics: one registry per rank over proto/worker_metrics.h's table.
 *
 * Rank 0's is filled by the engine as it steps; of the other ranks only process numbers are known
 * here, read from /proc. Thread: registries any; worker_metrics_refresh and _flat io. */
#ifndef REFRAIN_WORKER_METRICS_H
#define REFRAIN_WORKER_METRICS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/base/metrics.h"

struct worker_metrics;

struct worker_metrics *worker_metrics_new(uint32_t ranks);
void worker_metrics_free(struct worker_metrics *metrics);
uint32_t worker_metrics_ranks(const struct worker_metrics *metrics);
struct metrics *worker_metrics_rank(struct worker_metrics *metrics, uint32_t rank);
/* Memory and CPU time of all ranks. */
void worker_metrics_refresh(struct worker_metrics *metrics, const pid_t *pids);
/* The rank's flat list, valid until the next call for this rank. */
double *worker_metrics_flat(struct worker_metrics *metrics, uint32_t rank, size_t *ret_count);

#endif
