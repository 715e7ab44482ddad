/* metrics.h - the table of the router's own metrics. Links and workers have their own tables. */
#ifndef REFRAIN_ROUTER_METRICS_H
#define REFRAIN_ROUTER_METRICS_H

#include "proto/base/metrics.h"

enum router_metric {
    RM_REQUESTS = 0, /* by code: router_metric_code() */
    RM_STREAMS,
    RM_RETRIES,
    RM_COMPLETION_TOKENS,
    RM_REQUESTS_OPEN, /* gauges, set when they are written */
    RM_HTTP_CLIENTS,
    RM_HTTP_CLIENTS_TOTAL,
    RM_HTTP_REQUESTS,
    RM_HTTP_REJECTED,
    RM_UPTIME,
    RM_MEMORY_BYTES, /* by purpose: enum mem_purpose */
    RM_RESIDENT_BYTES,
    RM_RESIDENT_MAX_BYTES,
    RM_TEXT_CACHE_BYTES,
    RM_TEXT_CACHE_ENTRIES,
    RM_TEXT_CACHE_HITS, /* by kind: enum router_metric_text */
    RM_TEXT_CACHE_MISSES,
    RM_TEXT_CACHE_EVICTIONS,
    RM_SESSION_REFUSED, /* by limit: 0 turns, 1 seconds */
    RM_SESSION_ENTRIES,
    RM_HISTORY_CUTS,
    RM_CHAT_RECORDS,
    RM_CHAT_RECORD_BYTES,
    RM_MISSES, /* by cause: enum miss_cause */
    RM_REUSED_TOKENS,
    RM_REUSABLE_TOKENS,
    RM_PROMPT_SECONDS, /* histograms */
    RM_TTFT_SECONDS,
    RM_REQUEST_SECONDS,
    ROUTER_METRICS
};

enum router_metric_text { RM_TEXT_SEGMENT = 0, RM_TEXT_TURN };

extern const struct metric_spec router_metric_specs[ROUTER_METRICS];

/* Label of an HTTP status: its class, but 429 and 499 have one of their own. */
size_t router_metric_code(int status);

#endif
