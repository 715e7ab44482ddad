/* worker_metrics.c - names, help texts and buckets. The order is enum worker_metric's and is part
 * of the wire: router and worker must be of one version, which the flat list's length checks. */
#include "proto/worker_metrics.h"

#include <math.h>

static const char *const finishes[] = {"stop", "length", "cancelled", "deadline", "error", NULL};
static const char *const refusals[] = {"invalid", "too_long", "queue_full", "draining", NULL};
static const char *const block_states[] = {"empty", "private", "shared", "cached", NULL};

static const double step_buckets[] = {0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05,
                                      0.1,    0.2,   0.5,   1,     2,    5,    INFINITY};
static const double wait_buckets[] = {0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5,     1,
                                      2,     5,     10,   20,   50,   100, 200, INFINITY};

#define COUNTER(name, help)                          \
    {                                                \
        name, METRIC_COUNTER, help, NULL, NULL, NULL \
    }
#define GAUGE(name, help)                          \
    {                                              \
        name, METRIC_GAUGE, help, NULL, NULL, NULL \
    }
#define HISTOGRAM(name, buckets, help)                    \
    {                                                     \
        name, METRIC_HISTOGRAM, help, NULL, NULL, buckets \
    }

const struct metric_spec worker_metric_specs[WORKER_METRICS] = {
    [WM_REQUESTS] = {"refrain_requests_total", METRIC_COUNTER, "Requests that ended, by how.",
                     "finish", finishes, NULL},
    [WM_REFUSED] = {"refrain_requests_refused_total", METRIC_COUNTER,
                    "Requests that were not taken, by why.", "reason", refusals, NULL},
    [WM_PROMPT_TOKENS] =
        COUNTER("refrain_prompt_tokens_total", "Prompt tokens of started requests."),
    [WM_CACHED_TOKENS] =
        COUNTER("refrain_cached_tokens_total", "Prompt tokens whose KV was reused."),
    [WM_COMPUTED_TOKENS] =
        COUNTER("refrain_computed_tokens_total", "Prompt tokens that were not reused."),
    [WM_GENERATED_TOKENS] = COUNTER("refrain_generated_tokens_total", "Tokens sampled."),
    [WM_PREEMPTIONS] =
        COUNTER("refrain_preemptions_total", "Running sequences whose blocks were taken."),
    [WM_EVICTIONS] = COUNTER("refrain_block_evictions_total", "Cached blocks given to others."),
    [WM_LOOKUP_BLOCKS] =
        COUNTER("refrain_prefix_lookup_blocks_total", "Prompt blocks looked up in the cache."),
    [WM_HIT_BLOCKS] = COUNTER("refrain_prefix_hit_blocks_total", "Prompt blocks found there."),
    [WM_STEPS] = COUNTER("refrain_steps_total", "Forward passes."),
    [WM_STEP_ROWS] = COUNTER("refrain_step_tokens_total", "Tokens that went through the model."),
    [WM_RUNNING] = GAUGE("refrain_requests_running_count", "Sequences in the batch."),
    [WM_WAITING] = GAUGE("refrain_requests_waiting_count", "Sequences in the queue."),
    [WM_PENDING_PREFILL_TOKENS] =
        GAUGE("refrain_pending_prefill_tokens", "Prompt tokens accepted and not yet computed."),
    [WM_BLOCKS] = {"refrain_blocks_count", METRIC_GAUGE, "KV blocks by state.", "state",
                   block_states, NULL},
    [WM_KV_USAGE_RATIO] =
        GAUGE("refrain_kv_usage_ratio", "Share of KV blocks that sequences hold, 0 to 1."),
    [WM_DRAINING] = GAUGE("refrain_draining_bool", "1 while no new request is taken."),
    [WM_ROUTERS] = GAUGE("refrain_routers_attached_count", "Routers attached to this worker."),
    [WM_WEIGHTS_BYTES] = GAUGE("refrain_weights_bytes", "Packed weights of this rank."),
    [WM_KV_BYTES] = GAUGE("refrain_kv_bytes", "KV pool of this rank."),
    [WM_RESIDENT_BYTES] = GAUGE("refrain_process_resident_bytes", "Resident memory of this rank."),
    [WM_CPU_SECONDS] =
        COUNTER("refrain_process_cpu_seconds_total", "CPU time of this rank's process."),
    [WM_STEP_SECONDS] = HISTOGRAM("refrain_step_seconds", step_buckets, "Duration of a step."),
    [WM_TTFT_SECONDS] = HISTOGRAM("refrain_first_token_seconds", wait_buckets,
                                  "Arrival at the worker to first token."),
    [WM_QUEUE_SECONDS] = HISTOGRAM("refrain_queue_seconds", wait_buckets,
                                   "Arrival at the worker to first scheduled."),
    [WM_PREFILL_SECONDS] =
        HISTOGRAM("refrain_prefill_seconds", wait_buckets, "First scheduled to first token."),
};

const struct metric_spec vllm_metric_specs[VLLM_METRICS] = {
    GAUGE("vllm:num_requests_running", "Sequences in the batch."),
    GAUGE("vllm:num_requests_waiting", "Sequences in the queue."),
    GAUGE("vllm:kv_cache_usage_perc", "Share of KV blocks that sequences hold, 0 to 1."),
    COUNTER("vllm:prompt_tokens_total", "Prompt tokens of started requests."),
    COUNTER("vllm:generation_tokens_total", "Tokens sampled."),
    COUNTER("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache."),
    COUNTER("vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache."),
    COUNTER("vllm:num_preemptions_total", "Running sequences whose blocks were taken."),
};

/* The value behind each line of vllm_metric_specs. */
static const enum worker_metric vllm_sources[VLLM_METRICS] = {
    WM_RUNNING,          WM_WAITING,       WM_KV_USAGE_RATIO, WM_PROMPT_TOKENS,
    WM_GENERATED_TOKENS, WM_PROMPT_TOKENS, WM_CACHED_TOKENS,  WM_PREEMPTIONS,
};

void vllm_metrics_fill(const struct metrics *worker, struct metrics *vllm)
{
    for (size_t id = 0; id < VLLM_METRICS; id++) {
        double value = metrics_get(worker, vllm_sources[id], 0);
        if (vllm_metric_specs[id].type == METRIC_GAUGE)
            metrics_set(vllm, id, 0, value);
        else if (value > metrics_get(vllm, id, 0))
            metrics_add(vllm, id, 0, value - metrics_get(vllm, id, 0));
    }
}
