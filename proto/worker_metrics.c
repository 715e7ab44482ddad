/* worker_metrics.c - names, help texts and buckets. The order is enum worker_metric's and is part
 * of the wire: router and worker must be of one version, which the flat list's length checks. */
#include "proto/worker_metrics.h"

#include <math.h>

#include "proto/base/mem.h"

static const char *const finishes[] = {"stop",  "length",     "cancelled", "deadline",
                                       "error", "repetition", NULL};
static const char *const refusals[] = {"invalid", "too_long", "queue_full", "draining", NULL};
static const char *const waits[] = {"capacity", "deferred", NULL};
static const char *const masks[] = {"warm", "cold", NULL};
static const char *const losses[] = {"capacity", "abandoned", "one_shot", "reset", NULL};
#define PURPOSE_NAME(name, text) text,
static const char *const purposes[] = {MEM_PURPOSES(PURPOSE_NAME) NULL};
static const char *const disk_errors[] = {"gone", "refused", "full", "failed", "folder", NULL};
static const char *const tiers[] = {"pool", "host", "disk", NULL};
static const char *const block_states[] = {"empty", "private", "shared", "cached", NULL};

/* Buckets that also stand under vLLM's names are vLLM's of today: those of 0.6 and longer ones. */
static const double step_buckets[] = {0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05,
                                      0.1,    0.2,   0.5,   1,     2,    5,    INFINITY};
const double worker_first_buckets[] = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08,    0.1,
                                       0.25,  0.5,   0.75, 1,    2.5,  5,    7.5,     10,
                                       20,    40,    80,   160,  640,  2560, INFINITY};
const double worker_gap_buckets[] = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5,
                                     0.75, 1,     2.5,  5,     7.5, 10,   20,  40,  80,  INFINITY};
const double worker_wait_buckets[] = {0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,   10,   15,   20,
                                      30,  40,  50,  60, 120, 240, 480, 960, 1920, 7680, INFINITY};
const double worker_row_buckets[] = {1,   8,    16,   32,   64,   128,   256,
                                     512, 1024, 2048, 4096, 8192, 16384, INFINITY};
const double worker_token_buckets[] = {1,     2,      5,      10,     20,      50,      100,
                                       200,   500,    1000,   2000,   5000,    10000,   20000,
                                       50000, 100000, 200000, 500000, 1000000, INFINITY};

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
    [WM_EVICTIONS] = {"refrain_block_evictions_total", METRIC_COUNTER,
                      "Cached blocks that were lost, by why.", "reason", losses, NULL},
    [WM_WINDOW_EVICTIONS] =
        COUNTER("refrain_window_block_evictions_total",
                "Cached KV blocks of layers with a sliding window that were lost."),
    [WM_LOOKUP_BLOCKS] =
        COUNTER("refrain_prefix_lookup_blocks_total", "Prompt blocks looked up in the cache."),
    [WM_HIT_BLOCKS] = COUNTER("refrain_prefix_hit_blocks_total", "Prompt blocks found there."),
    [WM_STEPS] = COUNTER("refrain_steps_total", "Forward passes."),
    [WM_STEP_ROWS] = COUNTER("refrain_step_tokens_total", "Tokens that went through the model."),
    [WM_GRAMMAR_MASKS] = {"refrain_grammar_masks_total", METRIC_COUNTER,
                          "Masks of guided answers: found (warm) or computed (cold).", "how", masks,
                          NULL},
    [WM_RUNNING] = GAUGE("refrain_requests_running", "Sequences in the batch."),
    [WM_WAITING] = GAUGE("refrain_requests_waiting", "Sequences in the queue."),
    [WM_WAITING_BY_REASON] = {"refrain_requests_waiting_by_reason", METRIC_GAUGE,
                              "Sequences in the queue: for room (capacity), or for a prefix that "
                              "is being computed or loaded (deferred).",
                              "reason", waits, NULL},
    [WM_PENDING_PREFILL_TOKENS] =
        GAUGE("refrain_pending_prefill_tokens", "Prompt tokens accepted and not yet computed."),
    [WM_PINNED_BLOCKS] =
        GAUGE("refrain_pinned_blocks", "KV blocks that leases hold; part of the shared ones."),
    [WM_BLOCKS] = {"refrain_blocks", METRIC_GAUGE, "KV blocks by state.", "state", block_states,
                   NULL},
    [WM_WINDOW_BLOCKS] = {"refrain_window_blocks", METRIC_GAUGE,
                          "KV blocks of the layers with a sliding window, by state; the same as "
                          "refrain_blocks where every layer has one.",
                          "state", block_states, NULL},
    [WM_KV_USAGE_RATIO] =
        GAUGE("refrain_kv_usage_ratio", "Share of KV blocks that sequences hold, 0 to 1."),
    [WM_DRAINING] = GAUGE("refrain_draining_bool", "1 while no new request is taken."),
    [WM_ADAPTERS] = GAUGE("refrain_adapters_loaded", "LoRA adapters that take requests."),
    [WM_ROUTERS] = GAUGE("refrain_routers_attached", "Routers attached to this worker."),
    [WM_WEIGHTS_BYTES] = GAUGE("refrain_weights_bytes", "Packed weights of this rank."),
    [WM_KV_BYTES] = GAUGE("refrain_kv_bytes", "KV pool of this rank."),
    [WM_RESIDENT_BYTES] = GAUGE("refrain_process_resident_bytes", "Resident memory of this rank."),
    [WM_PREFIX_CACHING] = GAUGE("refrain_prefix_caching_bool", "1 when prefixes are reused."),
    [WM_PROMPT_RATE] = GAUGE("refrain_prompt_tokens_per_second",
                             "Prompt tokens of the last five seconds, reused ones included."),
    [WM_GENERATED_RATE] =
        GAUGE("refrain_generated_tokens_per_second", "Tokens sampled in the last five seconds."),
    [WM_MEMORY_BYTES] = {"refrain_memory_bytes", METRIC_GAUGE,
                         "Memory of this rank's process, by purpose (pages count untouched).",
                         "purpose", purposes, NULL},
    [WM_CPU_SECONDS] =
        COUNTER("refrain_process_cpu_seconds_total", "CPU time of this rank's process."),
    [WM_CACHED_BY_TIER] = {"refrain_cached_tokens_by_tier_total", METRIC_COUNTER,
                           "Prompt tokens whose KV was reused, by where it was.", "tier", tiers,
                           NULL},
    [WM_TIER_BLOCKS] = {"refrain_tier_blocks", METRIC_GAUGE,
                        "KV blocks held, the pool: cached and shared ones.", "tier", tiers, NULL},
    [WM_TIER_BLOCKS_MAX] = {"refrain_tier_blocks_max", METRIC_GAUGE, "KV blocks that fit.", "tier",
                            tiers, NULL},
    [WM_TIER_BYTES] = {"refrain_tier_bytes", METRIC_GAUGE,
                       "Bytes of the KV blocks held, of this rank.", "tier", tiers, NULL},
    [WM_TIER_UP] = {"refrain_tier_up_bool", METRIC_GAUGE,
                    "1 while the tier is used, 0: none, or it failed.", "tier", tiers, NULL},
    [WM_TIER_HITS] = {"refrain_tier_hit_blocks_total", METRIC_COUNTER,
                      "Prompt blocks found, by tier.", "tier", tiers, NULL},
    [WM_TIER_MISSES] = {"refrain_tier_miss_blocks_total", METRIC_COUNTER,
                        "Prompt blocks asked for and not found, by tier.", "tier", tiers, NULL},
    [WM_TIER_STORES] = {"refrain_tier_stored_blocks_total", METRIC_COUNTER,
                        "KV blocks written into a tier.", "tier", tiers, NULL},
    [WM_TIER_DROPS] = {"refrain_tier_dropped_blocks_total", METRIC_COUNTER,
                       "KV blocks that a tier had no room or time for.", "tier", tiers, NULL},
    [WM_TIER_ERRORS] = {"refrain_tier_errors_total", METRIC_COUNTER,
                        "Reads and writes that failed, and blocks found damaged.", "tier", tiers,
                        NULL},
    [WM_TIER_LOST] = {"refrain_tier_lost_blocks_total", METRIC_COUNTER,
                      "KV blocks that left a tier to make room for others.", "tier", tiers, NULL},
    [WM_DISK_ERRORS] = {"refrain_disk_tier_errors_total", METRIC_COUNTER,
                        "File operations of the disk tier that did not end well: the file was "
                        "gone, refused (foreign or damaged), there was no space, the device "
                        "failed, the folder is gone or read-only.",
                        "kind", disk_errors, NULL},
    [WM_DISK_STATE] = GAUGE("refrain_disk_tier_state",
                            "0: no disk tier; 1: in use; 2: full, only read; 3: failed, not used."),
    [WM_TIER_ASKED_TOKENS] =
        COUNTER("refrain_tier_asked_tokens_total",
                "Prompt tokens that the pool did not have and tiers were asked for."),
    [WM_STEP_SECONDS] = HISTOGRAM("refrain_step_seconds", step_buckets, "Duration of a step."),
    [WM_STEP_TOKENS] =
        HISTOGRAM("refrain_step_rows", worker_row_buckets, "Tokens through the model in a step."),
    [WM_TTFT_SECONDS] = HISTOGRAM("refrain_first_token_seconds", worker_first_buckets,
                                  "Arrival at the worker to first token."),
    [WM_QUEUE_SECONDS] = HISTOGRAM("refrain_queue_seconds", worker_wait_buckets,
                                   "Arrival at the worker to first scheduled."),
    [WM_PREFILL_SECONDS] = HISTOGRAM("refrain_prefill_seconds", worker_wait_buckets,
                                     "First scheduled to first token."),
    [WM_TIER_LOAD_SECONDS] = HISTOGRAM("refrain_tier_load_seconds", step_buckets,
                                       "Time that a request with blocks in tiers waited for them."),
    [WM_GAP_SECONDS] = HISTOGRAM("refrain_token_gap_seconds", worker_gap_buckets,
                                 "From a token of an answer to its next one."),
    [WM_DECODE_SECONDS] = HISTOGRAM("refrain_decode_seconds", worker_wait_buckets,
                                    "First token to the end of a request."),
    [WM_INFERENCE_SECONDS] = HISTOGRAM("refrain_inference_seconds", worker_wait_buckets,
                                       "First scheduled to the end of a request."),
    [WM_REQUEST_SECONDS] = HISTOGRAM("refrain_request_seconds", worker_wait_buckets,
                                     "Arrival at the worker to the end of a request."),
    [WM_TOKEN_SECONDS] = HISTOGRAM("refrain_request_token_seconds", worker_gap_buckets,
                                   "Mean time per token after the first one, per request."),
    [WM_REQUEST_PROMPT_TOKENS] = HISTOGRAM("refrain_request_prompt_tokens", worker_token_buckets,
                                           "Prompt tokens of an ended request."),
    [WM_REQUEST_COMPUTED_TOKENS] =
        HISTOGRAM("refrain_request_computed_tokens", worker_token_buckets,
                  "Prompt tokens of an ended request that were not reused."),
    [WM_REQUEST_GENERATED_TOKENS] =
        HISTOGRAM("refrain_request_generated_tokens", worker_token_buckets,
                  "Tokens sampled for an ended request."),
    [WM_REQUEST_MAX_TOKENS] = HISTOGRAM("refrain_request_max_tokens", worker_token_buckets,
                                        "Tokens that an ended request had asked for at most."),
};
