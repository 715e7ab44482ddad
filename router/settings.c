/* settings.c - the table, the flags of other servers that get a sentence, and the checks that one
 * row of a table cannot make. */
#include "router/settings.h"

#include <errno.h>
#include <string.h>

#include "proto/base/mem.h"
#include "proto/base/process.h"
#include "router/route/policy.h"

#define SOCKET_PATH_MAX 108u /* sun_path */

static const char *const log_level_names[] = {"error", "warn", "info", "debug", NULL};

/* In the order of false and true. */
static const char *const turn_memory_names[] = {"off", "on", NULL};

#define SETTING_STRUCT struct router_settings
static const struct setting table[] = {
    SETTING_TEXT("host", host, "127.0.0.1", "Address to listen on."),
    SETTING_U32("port", port, "8000", 0, 65535, "Port to listen on; 0: any free one."),
    SETTING_TEXT("run-dir", run_dir, NULL,
                 "Folder of the sockets; default: $XDG_RUNTIME_DIR/refrain, /run or /tmp."),
    SETTING_TEXT("registration-endpoint", registration_endpoint, NULL,
                 "Where workers announce themselves; default: ipc://RUN-DIR/router.sock."),
    SETTING_BOOL("insecure-tcp", insecure_tcp, "false",
                 "Allow a tcp:// endpoint, which is neither encrypted nor authenticated."),
    SETTING_ENUM("policy", policy, "prefix", policy_names,
                 "How a worker is chosen: prefix, round_robin, least_loaded or session."),
    SETTING_TEXT("api-key", api_keys, NULL,
                 "Bearer keys that clients must show, separated by commas; default: none."),
    SETTING_TEXT("chat-template", chat_template, NULL,
                 "Jinja file that replaces the models' own chat template."),
    SETTING_BOOL(
        "trust-request-chat-template", trust_request_templates, "false",
        "Requests may bring a chat template of their own, which is run within the bounds of "
        "the models'."),
    SETTING_BYTES(
        "text-cache-memory", text_cache_bytes, "64MiB",
        "Memory for token ids of prompt texts seen before, turn memory included; 0: off."),
    SETTING_ENUM(
        "turn-memory", turn_memory, "on", turn_memory_names,
        "on: prompts go on with the ids that the model itself wrote in earlier turns; off: "
        "with what the tokenizer makes of their text."),
    SETTING_TEXT("reasoning-parser", reasoning_parser, "auto",
                 "Tags around a model's thinking: auto (from its template), none, or a name."),
    SETTING_TEXT("tool-call-parser", tool_call_parser, "auto",
                 "Format of tool calls: auto (from template or vocabulary), none, or a name."),
    SETTING_BOOL("enable-auto-tool-choice", auto_tool_choice, "true",
                 "Read tool calls of answers whose request leaves the choice to the model."),
    SETTING_BOOL("exclude-tools-when-tool-choice-none", exclude_tools, "false",
                 "Keep tools out of the prompt when tool_choice is none."),
    SETTING_TEXT("history", history_text, "full",
                 "What of a long chat the model sees: full, last_messages=N or token_budget=N."),
    SETTING_U32("history-low-water", history_low_water, "50", 1, 100,
                "Percent of N that a cut of the history leaves, so that the next turns share one "
                "beginning."),
    SETTING_U32("session-max-turns", session_turns_max, "0", 0, 1000000,
                "Turns that a session may have; past them 400 session_limit. 0: off."),
    SETTING_DOUBLE("session-max-seconds", session_seconds_max, "0", 0, 31536000,
                   "Seconds that a session may last; past them 400 session_limit. 0: off."),
    SETTING_U32("chat-records", chat_records, "16384", 0, 1u << 20,
                "Answered chats remembered, as hashes of about 4 KiB, to name the causes of "
                "prefix misses."),
    SETTING_BOOL("allow-runtime-lora-updating", lora_updating, "false",
                 "Adapters may be loaded and unloaded through /v1/load_lora_adapter and "
                 "/v1/unload_lora_adapter: workers then read folders that a request names."),
    SETTING_BOOL("explain", explain, "false",
                 "Every answer says what its first token cost and why reuse was short."),
    SETTING_BYTES("max-body-bytes", body_bytes_max, "8MiB", "Largest request body."),
    SETTING_DOUBLE("request-timeout", request_timeout_s, "600", 0.1, 86400,
                   "Seconds until a request that is not finished is ended (504)."),
    SETTING_DOUBLE("ttft-limit", ttft_limit_s, "0", 0, 86400,
                   "Predicted seconds to the first token past which the answer is 429; 0: off."),
    SETTING_U32("max-inflight", inflight_max, "4096", 1, 1u << 20,
                "Requests at workers at one time; more are refused with 429."),
    SETTING_U32("clients-max", clients_max, "1024", 1, 1u << 20,
                "Open client connections; past it accepting pauses."),
    SETTING_DOUBLE("header-timeout", header_timeout_s, "10", 0.1, 3600,
                   "Seconds from a request's first byte to the end of its headers."),
    SETTING_DOUBLE("body-timeout", body_timeout_s, "30", 0.1, 3600, "Seconds for a body."),
    SETTING_DOUBLE("idle-timeout", idle_timeout_s, "75", 0.1, 86400,
                   "Seconds an idle connection is kept."),
    SETTING_DOUBLE("write-timeout", write_timeout_s, "60", 0.1, 3600,
                   "Seconds without progress until a reader is dropped."),
    SETTING_DOUBLE("drain-timeout", drain_timeout_s, "30", 0, 3600,
                   "Seconds that a stop waits for running answers."),
    SETTING_U32("ready-fd", ready_fd, "0", 0, 1u << 20,
                "For programs that start this one: write the port here once it listens."),
    SETTING_ENUM("log-level", log_level, "info", log_level_names, "Least level that is logged."),
    SETTING_END};

static const char *const foreign[] = {
    "enable-lora",
    "adapters lie with the workers; use refrain-worker --enable-lora",
    "lora-modules",
    "adapters lie with the workers; use refrain-worker --lora-modules",
    "model",
    "a router needs no model; start refrain-worker --model, or refrain up --model for both",
    "served-model-name",
    "the name comes from the workers; use refrain-worker --served-model-name",
    "max-model-len",
    "the context comes from the workers; use refrain-worker --max-model-len",
    "controller-address",
    "FastChat's; there is no controller, use --registration-endpoint",
    "controller",
    "FastChat's; there is no controller, use --registration-endpoint",
    "api-keys",
    "FastChat's; use --api-key with commas",
    "worker-urls",
    "workers announce themselves at --registration-endpoint",
    "allowed-origins",
    "CORS is off; put a proxy in front",
    "ssl-keyfile",
    "TLS ends in a proxy in front",
    "ssl-certfile",
    "TLS ends in a proxy in front",
    "disable-log-requests",
    "prompts are never logged; --log-level warn also drops the line per request",
    "uvicorn-log-level",
    "use --log-level",
    NULL,
};

const struct settings_spec router_settings_spec = {
    .program = "refrain-router",
    .summary = "OpenAI-compatible HTTP in front of refrain-worker groups.",
    .section = "router",
    .table = table,
    .foreign = foreign,
};

static int check_endpoint(const struct router_settings *settings, struct errmsg *err)
{
    const char *endpoint = settings->registration_endpoint;

    if (strncmp(endpoint, "ipc://", 6) == 0 && endpoint[6]) {
        if (strlen(endpoint + 6) >= SOCKET_PATH_MAX)
            return errmsg_set(err, -ENAMETOOLONG,
                              "--registration-endpoint: a socket path has at most %u bytes, this "
                              "one has %zu",
                              SOCKET_PATH_MAX - 1, strlen(endpoint + 6));
        return 0;
    }
    if (strncmp(endpoint, "tcp://", 6) == 0 && endpoint[6]) {
        if (!settings->insecure_tcp)
            return errmsg_set(err, -EINVAL,
                              "--registration-endpoint: tcp is neither encrypted nor "
                              "authenticated yet; add --insecure-tcp if the network is trusted");
        return 0;
    }
    return errmsg_set(err, -EINVAL, "--registration-endpoint: '%s' is no ipc:// or tcp:// endpoint",
                      endpoint);
}

struct answer_settings router_answer_settings(const struct router_settings *settings)
{
    return (struct answer_settings){.reasoning_parser = settings->reasoning_parser,
                                    .tool_call_parser = settings->tool_call_parser,
                                    .no_auto_tools = !settings->auto_tool_choice};
}

static int check_values(struct router_settings *settings, struct errmsg *err)
{
    const struct answer_settings answers = router_answer_settings(settings);

    settings->history.low_water_percent = settings->history_low_water;
    int r = history_parse(settings->history_text, &settings->history, err);
    if (r < 0)
        return errmsg_prefix(err, r, "--history: '%.64s'", settings->history_text);
    if (settings->api_keys && strspn(settings->api_keys, ", ") == strlen(settings->api_keys))
        return errmsg_set(err, -EINVAL, "--api-key holds no key");
    if (settings->ready_fd > 0 && settings->ready_fd <= 2)
        return errmsg_set(err, -EINVAL, "--ready-fd: 0 to 2 are the standard streams");
    if (settings->body_bytes_max > (1u << 30))
        return errmsg_set(err, -EINVAL, "--max-body-bytes: at most 1 GiB");
    r = answer_settings_check(&answers, err);
    return r < 0 ? r : check_endpoint(settings, err);
}

int router_settings_parse(struct router_settings *ret_settings, int argc, char **argv,
                          struct errmsg *err)
{
    char run_dir[256];
    int r = settings_parse(&router_settings_spec, ret_settings, argc, argv, err);
    if (r != SETTINGS_RUN)
        return r;
    if (!ret_settings->run_dir) {
        r = process_default_run_dir(run_dir, sizeof(run_dir));
        if (r < 0)
            (void)errmsg_set(err, r, "no default for --run-dir; name one");
        else
            ret_settings->run_dir = mem_strdup(run_dir);
    }
    if (r == 0 && !ret_settings->registration_endpoint)
        ret_settings->registration_endpoint =
            mem_printf("ipc://%s/router.sock", ret_settings->run_dir);
    if (r == 0)
        r = check_values(ret_settings, err);
    if (r < 0)
        router_settings_done(ret_settings);
    return r;
}

void router_settings_done(struct router_settings *settings)
{
    settings_done(&router_settings_spec, settings);
}

const char *router_policy_name(const struct router_settings *settings)
{
    return policy_names[settings->policy];
}
