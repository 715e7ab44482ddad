/* metrics.c - names, help texts and buckets. No label ever holds a client's text. */
#include "router/metrics.h"

#include <math.h>

#include "proto/base/mem.h"

#include "router/session/miss.h"

#define PURPOSE_NAME(name, text) text,
static const char *const purposes[] = {MEM_PURPOSES(PURPOSE_NAME) NULL};
static const char *const codes[] = {"2xx", "4xx", "429", "499", "5xx", NULL};

static const char *const text_kinds[] = {"segment", "turn", NULL};
static const char *const session_limits[] = {"turns", "seconds", NULL};

static const double seconds[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,    0.5,
                                 1,     2.5,    5,     10,   20,    40,   80,  INFINITY};
static const double prompt_seconds[] = {0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025,
                                        0.005,   0.01,   0.05,    0.25,   1,     INFINITY};

#define ROW(name, type, help)              \
    {                                      \
        name, type, help, NULL, NULL, NULL \
    }
#define HISTOGRAM(name, help, buckets)                    \
    {                                                     \
        name, METRIC_HISTOGRAM, help, NULL, NULL, buckets \
    }

const struct metric_spec router_metric_specs[ROUTER_METRICS] = {
    [RM_REQUESTS] = {"refrain_router_requests_total", METRIC_COUNTER,
                     "Finished chat and completion requests, by status (499: client gone).", "code",
                     codes, NULL},
    [RM_STREAMS] = ROW("refrain_router_streams_total", METRIC_COUNTER, "Streams that began."),
    [RM_RETRIES] = ROW("refrain_router_retries_total", METRIC_COUNTER,
                       "Dispatches repeated because the worker was lost."),
    [RM_COMPLETION_TOKENS] = ROW("refrain_router_completion_tokens_total", METRIC_COUNTER,
                                 "Generated tokens that arrived."),
    [RM_REQUESTS_OPEN] =
        ROW("refrain_router_requests_open", METRIC_GAUGE, "Requests being answered."),
    [RM_HTTP_CLIENTS] =
        ROW("refrain_router_http_clients", METRIC_GAUGE, "Open client connections."),
    [RM_HTTP_CLIENTS_TOTAL] = ROW("refrain_router_http_clients_total", METRIC_COUNTER,
                                  "Client connections ever accepted."),
    [RM_HTTP_REQUESTS] =
        ROW("refrain_router_http_requests_total", METRIC_COUNTER, "HTTP requests of any path."),
    [RM_HTTP_REJECTED] = ROW("refrain_router_http_rejected_total", METRIC_COUNTER,
                             "HTTP requests refused by the parser: malformed, slow, too large."),
    [RM_MEMORY_BYTES] = {"refrain_router_memory_bytes", METRIC_GAUGE,
                         "Memory of the router, by purpose (pages count untouched).", "purpose",
                         purposes, NULL},
    [RM_RESIDENT_BYTES] =
        ROW("refrain_router_resident_bytes", METRIC_GAUGE, "Resident memory of the router."),
    [RM_RESIDENT_MAX_BYTES] =
        ROW("refrain_router_resident_max_bytes", METRIC_GAUGE,
            "The most that the router comes to, beside bodies and answers on their way."),
    [RM_UPTIME] = ROW("refrain_router_uptime_seconds", METRIC_GAUGE, "Since the start."),
    [RM_TEXT_CACHE_BYTES] = ROW("refrain_router_text_cache_bytes", METRIC_GAUGE,
                                "Memory of the text cache, of --text-cache-memory."),
    [RM_TEXT_CACHE_ENTRIES] = ROW("refrain_router_text_cache_entries", METRIC_GAUGE,
                                  "Texts in the cache, of both kinds."),
    [RM_TEXT_CACHE_HITS] = {"refrain_router_text_cache_hit_tokens_total", METRIC_COUNTER,
                            "Prompt tokens found by their text, by kind (turn: the model wrote "
                            "them).",
                            "kind", text_kinds, NULL},
    [RM_TEXT_CACHE_MISSES] = ROW("refrain_router_text_cache_miss_tokens_total", METRIC_COUNTER,
                                 "Prompt tokens that the tokenizer had to make."),
    [RM_TEXT_CACHE_EVICTIONS] = ROW("refrain_router_text_cache_evictions_total", METRIC_COUNTER,
                                    "Texts that had to make room for others."),
    [RM_SESSION_REFUSED] = {"refrain_router_session_refused_total", METRIC_COUNTER,
                            "Chats refused because their session was past a limit.", "limit",
                            session_limits, NULL},
    [RM_SESSION_ENTRIES] = ROW("refrain_router_session_entries", METRIC_GAUGE,
                               "Turns remembered for the limits of sessions."),
    [RM_HISTORY_CUTS] = ROW("refrain_router_history_cuts_total", METRIC_COUNTER,
                            "Chats whose history the policy cut."),
    [RM_CHAT_RECORDS] = ROW("refrain_router_chat_records", METRIC_GAUGE,
                            "Answered chats remembered to name causes of misses."),
    [RM_CHAT_RECORD_BYTES] =
        ROW("refrain_router_chat_record_bytes", METRIC_GAUGE, "Memory of these."),
    [RM_MISSES] = {"refrain_router_prefix_misses_total", METRIC_COUNTER,
                   "Answered chats by why they reused less than the turn before left (none: they "
                   "did not).",
                   "cause", miss_words, NULL},
    [RM_REUSED_TOKENS] = ROW("refrain_router_turn_reused_tokens_total", METRIC_COUNTER,
                             "Prompt tokens reused of what the turn before left."),
    [RM_REUSABLE_TOKENS] = ROW("refrain_router_turn_reusable_tokens_total", METRIC_COUNTER,
                               "Prompt tokens that the turn before left and the prompt had room "
                               "for."),
    [RM_PROMPT_SECONDS] =
        HISTOGRAM("refrain_router_prompt_seconds", "Body to token ids: JSON, template, tokenizer.",
                  prompt_seconds),
    [RM_TTFT_SECONDS] = HISTOGRAM("refrain_router_ttft_seconds",
                                  "Request whole to first token, as the router saw it.", seconds),
    [RM_REQUEST_SECONDS] =
        HISTOGRAM("refrain_router_request_seconds", "Request whole to end of answer.", seconds),
};

size_t router_metric_code(int status)
{
    if (status < 400)
        return 0;
    if (status == 429)
        return 2;
    if (status == 499)
        return 3;
    return status < 500 ? 1 : 4;
}
