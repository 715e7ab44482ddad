/* worker_metrics.h - the one table of a worker's metrics: the worker fills it, the router writes
 * it.
 *
 * A worker sends metrics_flat_get() of a registry over worker_metric_specs in every fourth
 * Heartbeat, one list per rank; the router sets its own registry over the same table and writes it
 * with the labels group and rank. vLLM's names over the same values: vllm_metrics.h. */
#ifndef REFRAIN_PROTO_WORKER_METRICS_H
#define REFRAIN_PROTO_WORKER_METRICS_H

#include "proto/base/metrics.h"

enum worker_metric {
    WM_REQUESTS = 0, /* counter by finish: enum worker_metric_finish */
    WM_REFUSED,      /* counter by reason: enum worker_metric_refusal */
    WM_PROMPT_TOKENS,
    WM_CACHED_TOKENS,
    WM_COMPUTED_TOKENS,
    WM_GENERATED_TOKENS,
    WM_PREEMPTIONS,
    WM_EVICTIONS, /* counter by reason: enum worker_metric_loss */
    WM_WINDOW_EVICTIONS,
    WM_LOOKUP_BLOCKS,
    WM_HIT_BLOCKS,
    WM_STEPS,
    WM_STEP_ROWS,     /* tokens that went through the model */
    WM_GRAMMAR_MASKS, /* counter by how: enum worker_metric_mask */
    WM_RUNNING,       /* gauges from here on */
    WM_WAITING,
    WM_WAITING_BY_REASON, /* by enum worker_metric_wait */
    WM_PENDING_PREFILL_TOKENS,
    WM_PINNED_BLOCKS,
    WM_BLOCKS,        /* by state: enum worker_metric_block */
    WM_WINDOW_BLOCKS, /* the same */
    WM_KV_USAGE_RATIO,
    WM_DRAINING,
    WM_ROUTERS,
    WM_ADAPTERS,
    WM_WEIGHTS_BYTES,
    WM_KV_BYTES,
    WM_RESIDENT_BYTES,
    WM_PREFIX_CACHING,
    WM_PROMPT_RATE, /* of the last stats line */
    WM_GENERATED_RATE,
    WM_MEMORY_BYTES,   /* by purpose: enum mem_purpose; of rank 0 */
    WM_CPU_SECONDS,    /* counter */
    WM_CACHED_BY_TIER, /* these by tier: enum worker_metric_tier; counter of tokens */
    WM_TIER_BLOCKS,    /* gauges */
    WM_TIER_BLOCKS_MAX,
    WM_TIER_BYTES,
    WM_TIER_UP,
    WM_TIER_HITS, /* counters of blocks */
    WM_TIER_MISSES,
    WM_TIER_STORES,
    WM_TIER_DROPS,
    WM_TIER_ERRORS,
    WM_TIER_LOST,
    WM_DISK_ERRORS, /* by enum worker_metric_disk_error */
    WM_DISK_STATE,  /* gauge */
    WM_TIER_ASKED_TOKENS,
    WM_STEP_SECONDS, /* histograms from here on; with the first token: */
    WM_STEP_TOKENS,
    WM_TTFT_SECONDS,
    WM_QUEUE_SECONDS,
    WM_PREFILL_SECONDS,
    WM_TIER_LOAD_SECONDS,
    WM_GAP_SECONDS,    /* with each later token */
    WM_DECODE_SECONDS, /* with the end of a request: */
    WM_INFERENCE_SECONDS,
    WM_REQUEST_SECONDS,
    WM_TOKEN_SECONDS,
    WM_REQUEST_PROMPT_TOKENS,
    WM_REQUEST_COMPUTED_TOKENS,
    WM_REQUEST_GENERATED_TOKENS,
    WM_REQUEST_MAX_TOKENS,
    WORKER_METRICS
};

/* Label values, in the order of the table. */
enum worker_metric_finish {
    WM_FINISH_STOP = 0,
    WM_FINISH_LENGTH,
    WM_FINISH_CANCELLED,
    WM_FINISH_DEADLINE,
    WM_FINISH_ERROR,
    WM_FINISH_REPETITION
};
enum worker_metric_refusal {
    WM_REFUSED_INVALID = 0,
    WM_REFUSED_TOO_LONG,
    WM_REFUSED_QUEUE_FULL,
    WM_REFUSED_DRAINING
};
enum worker_metric_wait { WM_WAIT_CAPACITY = 0, WM_WAIT_DEFERRED };
enum worker_metric_mask { WM_MASK_WARM = 0, WM_MASK_COLD };
enum worker_metric_loss { /* the order of the pool's enum block_loss */
                          WM_LOSS_CAPACITY = 0,
                          WM_LOSS_ABANDONED,
                          WM_LOSS_ONE_SHOT,
                          WM_LOSS_RESET
};
/* WM_TIER_* of the pool: blocks, bytes and hits only. */
enum worker_metric_tier { WM_TIER_POOL = 0, WM_TIER_HOST, WM_TIER_DISK };
enum worker_metric_disk_error { /* the order of enum tier_io_result */
                                WM_DISK_GONE = 0,
                                WM_DISK_REFUSED,
                                WM_DISK_FULL,
                                WM_DISK_FAILED,
                                WM_DISK_FOLDER
};
enum worker_metric_block { WM_BLOCK_EMPTY = 0, WM_BLOCK_PRIVATE, WM_BLOCK_SHARED, WM_BLOCK_CACHED };

extern const struct metric_spec worker_metric_specs[WORKER_METRICS];
/* Of histograms that have a second name. */
extern const double worker_first_buckets[], worker_gap_buckets[], worker_wait_buckets[],
    worker_row_buckets[], worker_token_buckets[];

#endif
