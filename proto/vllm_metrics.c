/* vllm_metrics.c - the table of names. A family is filled by kind: a plain copy of one worker
 * metric, or one of the few that put several together. */
#include "proto/vllm_metrics.h"

#include <math.h>

enum vllm_kind {
    COPIED = 0,
    NEVER,
    HOST_USAGE,
    HIT_RATE,
    HOST_HIT_RATE,
    POOL_HITS,
    TIER_HITS,
    BY_SOURCE,
    BY_REASON,
    BY_FINISH
};

static const char *const sources[] = {"local_compute", "local_cache_hit", "external_kv_transfer",
                                      NULL};
static const char *const waits[] = {"capacity", "deferred", NULL};
static const char *const reasons[] = {"stop", "length", "abort", "error", "repetition", NULL};

/* How each row of the specs below is filled. */
static const struct {
    enum vllm_kind kind;
    enum worker_metric metric; /* COPIED: which */
} origins[VLLM_METRICS] = {
    {COPIED, WM_RUNNING},
    {COPIED, WM_WAITING},
    {BY_REASON, 0},
    {NEVER, 0},
    {COPIED, WM_KV_USAGE_RATIO},
    {COPIED, WM_KV_USAGE_RATIO},
    {HOST_USAGE, 0},
    {HIT_RATE, 0},
    {HOST_HIT_RATE, 0},
    {COPIED, WM_PROMPT_RATE},
    {COPIED, WM_GENERATED_RATE},
    {COPIED, WM_PREEMPTIONS},
    {COPIED, WM_PROMPT_TOKENS},
    {COPIED, WM_CACHED_TOKENS},
    {COPIED, WM_GENERATED_TOKENS},
    {COPIED, WM_PROMPT_TOKENS},
    {POOL_HITS, 0},
    {COPIED, WM_PROMPT_TOKENS},
    {POOL_HITS, 0},
    {COPIED, WM_TIER_ASKED_TOKENS},
    {TIER_HITS, 0},
    {BY_SOURCE, 0},
    {BY_FINISH, 0},
    {COPIED, WM_STEP_TOKENS},
    {COPIED, WM_TTFT_SECONDS},
    {COPIED, WM_GAP_SECONDS},
    {COPIED, WM_GAP_SECONDS},
    {COPIED, WM_TOKEN_SECONDS},
    {COPIED, WM_REQUEST_SECONDS},
    {COPIED, WM_QUEUE_SECONDS},
    {COPIED, WM_QUEUE_SECONDS},
    {COPIED, WM_INFERENCE_SECONDS},
    {COPIED, WM_PREFILL_SECONDS},
    {COPIED, WM_DECODE_SECONDS},
    {COPIED, WM_REQUEST_PROMPT_TOKENS},
    {COPIED, WM_REQUEST_COMPUTED_TOKENS},
    {COPIED, WM_REQUEST_GENERATED_TOKENS},
    {COPIED, WM_REQUEST_MAX_TOKENS},
};

const struct metric_spec vllm_metric_specs[VLLM_METRICS] = {
    {"vllm:num_requests_running", METRIC_GAUGE, "Sequences in the batch.", NULL, NULL, NULL},
    {"vllm:num_requests_waiting", METRIC_GAUGE, "Sequences in the queue.", NULL, NULL, NULL},
    {"vllm:num_requests_waiting_by_reason", METRIC_GAUGE,
     "Sequences in the queue: for room, or for a prefix that is on its way.", "reason", waits,
     NULL},
    {"vllm:num_requests_swapped", METRIC_GAUGE,
     "Sequences swapped out: always 0, blocks are recomputed (0.6).", NULL, NULL, NULL},
    {"vllm:kv_cache_usage_perc", METRIC_GAUGE, "Share of KV blocks that sequences hold, 0 to 1.",
     NULL, NULL, NULL},
    {"vllm:gpu_cache_usage_perc", METRIC_GAUGE, "The same under its name of 0.6.", NULL, NULL,
     NULL},
    {"vllm:cpu_cache_usage_perc", METRIC_GAUGE,
     "Share of the host tier's blocks in use, 0 without one (0.6).", NULL, NULL, NULL},
    {"vllm:gpu_prefix_cache_hit_rate", METRIC_GAUGE,
     "Found share of the prompt blocks looked up, -1: off (0.6).", NULL, NULL, NULL},
    {"vllm:cpu_prefix_cache_hit_rate", METRIC_GAUGE,
     "The same for the host tier, of what the pool lacked; -1: there is none (0.6).", NULL, NULL,
     NULL},
    {"vllm:avg_prompt_throughput_toks_per_s", METRIC_GAUGE,
     "Prompt tokens per second, last five (0.6).", NULL, NULL, NULL},
    {"vllm:avg_generation_throughput_toks_per_s", METRIC_GAUGE,
     "Tokens sampled per second, last five (0.6).", NULL, NULL, NULL},
    {"vllm:num_preemptions_total", METRIC_COUNTER, "Running sequences whose blocks were taken.",
     NULL, NULL, NULL},
    {"vllm:prompt_tokens_total", METRIC_COUNTER, "Prompt tokens of started requests.", NULL, NULL,
     NULL},
    {"vllm:prompt_tokens_cached_total", METRIC_COUNTER, "Prompt tokens whose KV was reused.", NULL,
     NULL, NULL},
    {"vllm:generation_tokens_total", METRIC_COUNTER, "Tokens sampled.", NULL, NULL, NULL},
    {"vllm:prefix_cache_queries_total", METRIC_COUNTER,
     "Prompt tokens looked up in the prefix cache.", NULL, NULL, NULL},
    {"vllm:prefix_cache_hits_total", METRIC_COUNTER, "Prompt tokens found in the prefix cache.",
     NULL, NULL, NULL},
    {"vllm:gpu_prefix_cache_queries_total", METRIC_COUNTER, "The same under its name of 0.8.", NULL,
     NULL, NULL},
    {"vllm:gpu_prefix_cache_hits_total", METRIC_COUNTER, "The same under its name of 0.8.", NULL,
     NULL, NULL},
    {"vllm:external_prefix_cache_queries_total", METRIC_COUNTER,
     "Prompt tokens that slower tiers were asked for.", NULL, NULL, NULL},
    {"vllm:external_prefix_cache_hits_total", METRIC_COUNTER, "Prompt tokens found there.", NULL,
     NULL, NULL},
    {"vllm:prompt_tokens_by_source_total", METRIC_COUNTER,
     "Prompt tokens by where their KV came from.", "source", sources, NULL},
    {"vllm:request_success_total", METRIC_COUNTER, "Ended requests, by how.", "finished_reason",
     reasons, NULL},
    {"vllm:iteration_tokens_total", METRIC_HISTOGRAM, "Tokens through the model in a step.", NULL,
     NULL, worker_row_buckets},
    {"vllm:time_to_first_token_seconds", METRIC_HISTOGRAM, "Arrival to first token.", NULL, NULL,
     worker_first_buckets},
    {"vllm:time_per_output_token_seconds", METRIC_HISTOGRAM, "From a token to the next one (0.6).",
     NULL, NULL, worker_gap_buckets},
    {"vllm:inter_token_latency_seconds", METRIC_HISTOGRAM, "From a token to the next one.", NULL,
     NULL, worker_gap_buckets},
    {"vllm:request_time_per_output_token_seconds", METRIC_HISTOGRAM,
     "Mean time per token after the first one, per request.", NULL, NULL, worker_gap_buckets},
    {"vllm:e2e_request_latency_seconds", METRIC_HISTOGRAM, "Arrival to end.", NULL, NULL,
     worker_wait_buckets},
    {"vllm:request_queue_time_seconds", METRIC_HISTOGRAM, "Arrival to first scheduled.", NULL, NULL,
     worker_wait_buckets},
    {"vllm:time_in_queue_requests", METRIC_HISTOGRAM, "The same under an older name (0.6).", NULL,
     NULL, worker_wait_buckets},
    {"vllm:request_inference_time_seconds", METRIC_HISTOGRAM, "First scheduled to end.", NULL, NULL,
     worker_wait_buckets},
    {"vllm:request_prefill_time_seconds", METRIC_HISTOGRAM, "First scheduled to first token.", NULL,
     NULL, worker_wait_buckets},
    {"vllm:request_decode_time_seconds", METRIC_HISTOGRAM, "First token to end.", NULL, NULL,
     worker_wait_buckets},
    {"vllm:request_prompt_tokens", METRIC_HISTOGRAM, "Prompt tokens of a request.", NULL, NULL,
     worker_token_buckets},
    {"vllm:request_prefill_kv_computed_tokens", METRIC_HISTOGRAM,
     "Prompt tokens of a request that were computed.", NULL, NULL, worker_token_buckets},
    {"vllm:request_generation_tokens", METRIC_HISTOGRAM, "Tokens sampled for a request.", NULL,
     NULL, worker_token_buckets},
    {"vllm:request_params_max_tokens", METRIC_HISTOGRAM, "Tokens a request asked for at most.",
     NULL, NULL, worker_token_buckets},
};

static const double n_buckets[] = {1, 2, 5, 10, 20, INFINITY};

const struct metric_spec vllm_request_specs[VLLM_REQUEST_METRICS] = {
    [VLLM_PARAMS_N] = {"vllm:request_params_n", METRIC_HISTOGRAM, "Choices a request asked for.",
                       NULL, NULL, n_buckets},
    [VLLM_MAX_GENERATED] = {"vllm:request_max_num_generation_tokens", METRIC_HISTOGRAM,
                            "Tokens of the longest choice of a request.", NULL, NULL,
                            worker_token_buckets},
};

/* Counters are given as totals: a registry takes what they rose by. */
static void count_to(struct metrics *vllm, size_t id, size_t label, double total)
{
    double rise = total - metrics_get(vllm, id, label);
    if (rise > 0)
        metrics_add(vllm, id, label, rise);
}

static void copy(const struct metrics *worker, enum worker_metric from, struct metrics *vllm,
                 size_t id)
{
    switch (vllm_metric_specs[id].type) {
    case METRIC_HISTOGRAM:
        metrics_copy_histogram(worker, from, vllm, id);
        break;
    case METRIC_GAUGE:
        metrics_set(vllm, id, 0, metrics_get(worker, from, 0));
        break;
    default:
        count_to(vllm, id, 0, metrics_get(worker, from, 0));
    }
}

static double hit_rate(const struct metrics *worker)
{
    double lookups = metrics_get(worker, WM_LOOKUP_BLOCKS, 0);

    if (metrics_get(worker, WM_PREFIX_CACHING, 0) == 0)
        return -1;
    return lookups > 0 ? metrics_get(worker, WM_HIT_BLOCKS, 0) / lookups : 0;
}

static double host_hit_rate(const struct metrics *worker)
{
    double hits = metrics_get(worker, WM_TIER_HITS, WM_TIER_HOST);
    double asked = hits + metrics_get(worker, WM_TIER_MISSES, WM_TIER_HOST);

    if (metrics_get(worker, WM_TIER_UP, WM_TIER_HOST) == 0)
        return -1;
    return asked > 0 ? hits / asked : 0;
}

static double host_usage(const struct metrics *worker)
{
    double blocks_max = metrics_get(worker, WM_TIER_BLOCKS_MAX, WM_TIER_HOST);

    return blocks_max > 0 ? metrics_get(worker, WM_TIER_BLOCKS, WM_TIER_HOST) / blocks_max : 0;
}

/* Tokens. */
static double tier_hits(const struct metrics *worker)
{
    return metrics_get(worker, WM_CACHED_BY_TIER, WM_TIER_HOST) +
           metrics_get(worker, WM_CACHED_BY_TIER, WM_TIER_DISK);
}

static double pool_hits(const struct metrics *worker)
{
    return metrics_get(worker, WM_CACHED_TOKENS, 0) - tier_hits(worker);
}

static void fill_finishes(const struct metrics *worker, struct metrics *vllm, size_t id)
{
    count_to(vllm, id, 0, metrics_get(worker, WM_REQUESTS, WM_FINISH_STOP));
    count_to(vllm, id, 1, metrics_get(worker, WM_REQUESTS, WM_FINISH_LENGTH));
    count_to(vllm, id, 2,
             metrics_get(worker, WM_REQUESTS, WM_FINISH_CANCELLED) +
                 metrics_get(worker, WM_REQUESTS, WM_FINISH_DEADLINE));
    count_to(vllm, id, 3, metrics_get(worker, WM_REQUESTS, WM_FINISH_ERROR));
    count_to(vllm, id, 4, metrics_get(worker, WM_REQUESTS, WM_FINISH_REPETITION));
}

void vllm_metrics_fill(const struct metrics *worker, struct metrics *vllm)
{
    for (size_t id = 0; id < VLLM_METRICS; id++) {
        switch (origins[id].kind) {
        case COPIED:
            copy(worker, origins[id].metric, vllm, id);
            break;
        case NEVER:
            break;
        case HOST_USAGE:
            metrics_set(vllm, id, 0, host_usage(worker));
            break;
        case HOST_HIT_RATE:
            metrics_set(vllm, id, 0, host_hit_rate(worker));
            break;
        case POOL_HITS:
            count_to(vllm, id, 0, pool_hits(worker));
            break;
        case HIT_RATE:
            metrics_set(vllm, id, 0, hit_rate(worker));
            break;
        case TIER_HITS:
            count_to(vllm, id, 0, tier_hits(worker));
            break;
        case BY_SOURCE:
            count_to(vllm, id, 0, metrics_get(worker, WM_COMPUTED_TOKENS, 0));
            count_to(vllm, id, 1, pool_hits(worker));
            count_to(vllm, id, 2, tier_hits(worker));
            break;
        case BY_REASON:
            metrics_set(vllm, id, 0, metrics_get(worker, WM_WAITING_BY_REASON, WM_WAIT_CAPACITY));
            metrics_set(vllm, id, 1, metrics_get(worker, WM_WAITING_BY_REASON, WM_WAIT_DEFERRED));
            break;
        case BY_FINISH:
            fill_finishes(worker, vllm, id);
            break;
        }
    }
}
