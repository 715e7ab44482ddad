/* vllm_metrics.h - a worker's numbers under vLLM's names, those of 0.6 and of today.
 *
 * Dashboards and alerts written for vLLM work unchanged. One row per family: name, help, and the
 * worker metric behind it. Meanings are vLLM's, with these differences, which no dashboard sees:
 * times begin when the request arrives at the worker (the router's share has metrics of its own),
 * and what vLLM observes when a request ends is observed here as soon as it is known. Per engine,
 * that is per group; labels model_name and engine. Thread: any. */
#ifndef REFRAIN_PROTO_VLLM_METRICS_H
#define REFRAIN_PROTO_VLLM_METRICS_H

#include "proto/worker_metrics.h"

#define VLLM_METRICS 38

extern const struct metric_spec vllm_metric_specs[VLLM_METRICS];
/* `vllm` over vllm_metric_specs := what `worker` over worker_metric_specs says. */
void vllm_metrics_fill(const struct metrics *worker, struct metrics *vllm);

/* What only a router sees of a request: one registry per served model, label model_name. */
enum vllm_request_metric { VLLM_PARAMS_N = 0, VLLM_MAX_GENERATED, VLLM_REQUEST_METRICS };
extern const struct metric_spec vllm_request_specs[VLLM_REQUEST_METRICS];

#endif
