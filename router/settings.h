/* settings.h - the flags of refrain-router and what is checked before anything is opened. */
#ifndef REFRAIN_ROUTER_SETTINGS_H
#define REFRAIN_ROUTER_SETTINGS_H

#include "proto/base/log.h"
#include "proto/base/settings.h"
#include "router/answer_formats.h"
#include "router/session/history.h"

struct router_settings {
    char *host;
    char *run_dir; /* never NULL after router_settings_parse */
    char *registration_endpoint;
    char *api_keys; /* NULL: none */
    char *chat_template;
    uint32_t port;
    uint32_t ready_fd; /* 0: none */
    int policy;        /* index into policy names */
    int log_level;     /* enum log_level */
    int turn_memory;   /* 0: off */
    uint64_t body_bytes_max, text_cache_bytes;
    double request_timeout_s, ttft_limit_s;
    double header_timeout_s, body_timeout_s, idle_timeout_s, write_timeout_s, drain_timeout_s;
    uint32_t inflight_max, clients_max;
    char *history_text;
    struct history_policy history; /* of history_text and the low-water mark */
    uint32_t history_low_water, session_turns_max, chat_records;
    double session_seconds_max;
    bool explain, lora_updating;
    bool insecure_tcp;
    char *reasoning_parser, *tool_call_parser; /* never NULL */
    bool auto_tool_choice, exclude_tools, trust_request_templates;
};

extern const struct settings_spec router_settings_spec;

/* SETTINGS_RUN, SETTINGS_EXIT_OK, or a negative errno with a sentence. */
int router_settings_parse(struct router_settings *ret_settings, int argc, char **argv,
                          struct errmsg *err);
void router_settings_done(struct router_settings *settings);
/* Borrows the settings' texts. */
struct answer_settings router_answer_settings(const struct router_settings *settings);
const char *router_policy_name(const struct router_settings *settings);

#endif
