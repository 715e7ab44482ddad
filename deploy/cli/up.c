/* up.c - `refrain up`: a whole cluster on this machine in one command.
 *
 *   STARTING --all groups attached--> SERVING --SIGINT, -TERM, -HUP--> router drains, workers stop
 *       |                                |
 *       +-- a child ends: say why, stop  +-- a child ends: start it again with backoff
 *
 * Prints exactly one line on stdout, `ready http://HOST:PORT`, once requests are served; everything
 * else (progress, the children's logs) goes to stderr. Flags that are not ours go to the workers,
 * which refuse what they do not know. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "deploy/cli/cli.h"
#include "deploy/cli/http_get.h"
#include "deploy/cli/run_dir.h"
#include "deploy/cli/supervisor.h"
#include "proto/base/assert.h"
#include "proto/base/clock.h"
#include "proto/base/mem.h"
#include "proto/base/process.h"
#include "proto/base/settings.h"

#define GROUPS_MAX 64
#define PORT_DEADLINE_MS 10000u
#define READY_DEADLINE_MS 600000u /* a big model from a cold disk */
#define READY_POLL_MS 20
#define DRAIN_SECONDS 30.0 /* the router's default */
#define DRAIN_GRACE_MS 5000u
#define STOP_DEADLINE_MS 10000u

struct up_settings {
    char *model;
    char *host;
    char *run_dir;
    /* The router's: */
    char *policy, *api_key, *chat_template, *reasoning_parser, *tool_call_parser;
    char *history, *history_low_water, *session_max_turns, *session_max_seconds, *chat_records;
    char *turn_memory, *text_cache_memory, *max_body_bytes, *max_inflight, *clients_max;
    char *request_timeout, *ttft_limit, *header_timeout, *body_timeout, *idle_timeout;
    char *write_timeout, *drain_timeout;
    bool trust_request_templates, explain, lora_updating, auto_tool_choice, exclude_tools;
    char *config;
    char *log_level;
    uint32_t groups, ranks, port, threads;
};

#define ROUTER_FIRST "policy"
#define SEE_ROUTER "See refrain-router --help."
#define SETTING_STRUCT struct up_settings
static const struct setting up_table[] = {
    SETTING_TEXT("model", model, NULL, "Model file (GGUF) or directory. Required."),
    SETTING_U32("groups", groups, "2", 1, GROUPS_MAX, "Worker groups, each with the whole model."),
    SETTING_U32("tp", ranks, "1", 1, 8, "Ranks of a group (tensor parallel), a process each."),
    SETTING_U32("tensor-parallel-size", ranks, "1", 1, 8, "The same as --tp."),
    SETTING_TEXT("host", host, "127.0.0.1", "Address the router listens on."),
    SETTING_U32("port", port, "8000", 0, 65535, "Port; 0 takes any free one."),
    SETTING_U32("threads", threads, "0", 0, 1024, "Threads per rank; 0: cores / ranks."),
    SETTING_TEXT("run-dir", run_dir, NULL, "Folder for sockets; default: a new one per run."),
    SETTING_TEXT("log-level", log_level, "warn", "error, warn, info or debug, for all processes."),
    /* From here on the router's, handed on where they are not the default. */
    SETTING_TEXT("policy", policy, NULL, "How the router chooses a group (its own default)."),
    SETTING_TEXT("api-key", api_key, NULL, "Bearer keys, separated by commas."),
    SETTING_TEXT("chat-template", chat_template, NULL, "Jinja file instead of the model's own."),
    SETTING_BOOL("trust-request-chat-template", trust_request_templates, "false",
                 "Requests may bring a chat template of their own."),
    SETTING_TEXT("reasoning-parser", reasoning_parser, NULL, SEE_ROUTER),
    SETTING_TEXT("tool-call-parser", tool_call_parser, NULL, SEE_ROUTER),
    SETTING_BOOL("enable-auto-tool-choice", auto_tool_choice, "true", SEE_ROUTER),
    SETTING_BOOL("exclude-tools-when-tool-choice-none", exclude_tools, "false", SEE_ROUTER),
    SETTING_TEXT("history", history, NULL, "full, last_messages=N or token_budget=N."),
    SETTING_TEXT("history-low-water", history_low_water, NULL, SEE_ROUTER),
    SETTING_TEXT("session-max-turns", session_max_turns, NULL, SEE_ROUTER),
    SETTING_TEXT("session-max-seconds", session_max_seconds, NULL, SEE_ROUTER),
    SETTING_TEXT("chat-records", chat_records, NULL, SEE_ROUTER),
    SETTING_BOOL("explain", explain, "false", "Every answer says why it reused what it reused."),
    SETTING_BOOL("allow-runtime-lora-updating", lora_updating, "false",
                 "Adapters may be loaded through the API; see refrain-router --help."),
    SETTING_TEXT("turn-memory", turn_memory, NULL, "on or off; see refrain-router --help."),
    SETTING_TEXT("text-cache-memory", text_cache_memory, NULL, SEE_ROUTER),
    SETTING_TEXT("max-body-bytes", max_body_bytes, NULL, SEE_ROUTER),
    SETTING_TEXT("max-inflight", max_inflight, NULL, SEE_ROUTER),
    SETTING_TEXT("clients-max", clients_max, NULL, SEE_ROUTER),
    SETTING_TEXT("request-timeout", request_timeout, NULL, SEE_ROUTER),
    SETTING_TEXT("ttft-limit", ttft_limit, NULL, SEE_ROUTER),
    SETTING_TEXT("header-timeout", header_timeout, NULL, SEE_ROUTER),
    SETTING_TEXT("body-timeout", body_timeout, NULL, SEE_ROUTER),
    SETTING_TEXT("idle-timeout", idle_timeout, NULL, SEE_ROUTER),
    SETTING_TEXT("write-timeout", write_timeout, NULL, SEE_ROUTER),
    SETTING_TEXT("drain-timeout", drain_timeout, NULL, SEE_ROUTER),
    SETTING_END,
};

static const struct settings_spec up_spec = {
    .program = "refrain up",
    .summary = "Starts a router and worker groups on this machine and keeps them running. "
               "Flags that are not listed here go to the workers (refrain-worker --help).",
    .section = "up",
    .table = up_table,
};

struct up {
    struct up_settings settings;
    struct supervisor supervisor;
    struct child *router;
    struct run_dir run_dir;
    char router_path[PATH_MAX], worker_path[PATH_MAX];
    const char *config;
    char **worker_args; /* pass-through, NULL-terminated */
    uint32_t port;
    int signal_fd;
    bool serving;
    const struct child *failed; /* the first that ended before all were ready */
};

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void say(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "refrain: ");
    vfprintf(stderr, format, args);
    fprintf(stderr, "\n");
    va_end(args);
}

static bool is_ours(const char *token)
{
    char name[64];
    size_t bytes = strcspn(token + 2, "=");

    if (bytes >= sizeof(name))
        return false;
    memcpy(name, token + 2, bytes);
    name[bytes] = '\0';
    for (char *c = name; *c; c++)
        *c = *c == '_' ? '-' : *c;
    if (strcmp(name, "help") == 0 || strcmp(name, "version") == 0 || strcmp(name, "config") == 0)
        return true;
    for (const struct setting *row = up_table; row->name; row++) {
        bool no = row->type == SETTING_TYPE_BOOL && strncmp(name, "no-", 3) == 0;
        if (strcmp(row->name, no ? name + 3 : name) == 0)
            return true;
    }
    return false;
}

/* Split argv: ours stay in argv (returns their count), a foreign flag and the words after it up to
 * the next flag go to ret_rest (NULL-terminated). */
static int split_args(int argc, char **argv, char **ret_rest)
{
    int kept = 1, rest = 0;
    bool ours = true;

    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--", 2) == 0)
            ours = is_ours(argv[i]);
        if (ours)
            argv[kept++] = argv[i];
        else
            ret_rest[rest++] = argv[i];
    }
    argv[kept] = NULL;
    ret_rest[rest] = NULL;
    return kept;
}

static void on_death(void *user, struct child *child)
{
    struct up *up = user;
    uint64_t now_ms = clock_ms();
    char why[64];

    child_describe_death(child, why, sizeof(why));
    if (up->serving) { /* a busy machine may be past the moment already */
        say("%s ended (%s), starting it again in %llu ms", child->name, why,
            (unsigned long long)(child->retry_ms > now_ms ? child->retry_ms - now_ms : 0));
    } else {
        say("%s ended (%s) before it was ready", child->name, why);
        if (!up->failed)
            up->failed = child;
    }
}

static void add_common(struct up *up, struct child *child)
{
    child_add_arg(child, "--run-dir");
    child_add_arg(child, up->run_dir.path);
    child_add_arg(child, "--log-level");
    child_add_arg(child, up->settings.log_level);
    if (up->config) {
        child_add_arg(child, "--config");
        child_add_arg(child, up->config);
    }
}

static void add_pair(struct child *child, const char *flag, const char *value)
{
    if (!value)
        return;
    child_add_arg(child, flag);
    child_add_arg(child, value);
}

static void add_router_flag(const struct up *up, struct child *child, const struct setting *row)
{
    const char *value = (const char *)&up->settings + row->offset;
    char flag[80];

    ASSERT(row->type == SETTING_TYPE_TEXT || row->type == SETTING_TYPE_BOOL);
    if (row->type == SETTING_TYPE_TEXT) {
        (void)snprintf(flag, sizeof(flag), "--%s", row->name);
        add_pair(child, flag, *(char *const *)(const void *)value);
        return;
    }
    bool on = *(const bool *)(const void *)value;
    (void)snprintf(flag, sizeof(flag), on ? "--%s" : "--no-%s", row->name);
    if (on != (strcmp(row->dflt, "true") == 0))
        child_add_arg(child, flag);
}

static void set_router_args(struct up *up, struct child *child, uint32_t port)
{
    char text[16];
    (void)snprintf(text, sizeof(text), "%u", port);
    add_common(up, child);
    add_pair(child, "--host", up->settings.host);
    add_pair(child, "--port", text);
    const struct setting *row = up_table;
    while (strcmp(row->name, ROUTER_FIRST) != 0)
        row++;
    for (; row->name; row++)
        add_router_flag(up, child, row);
}

static void add_worker(struct up *up, uint32_t group)
{
    char name[32], number[16];
    (void)snprintf(name, sizeof(name), "group %u", group);
    struct child *child = supervisor_add(&up->supervisor, name, up->worker_path);

    add_common(up, child);
    add_pair(child, "--model", up->settings.model);
    (void)snprintf(number, sizeof(number), "%u", group);
    add_pair(child, "--group", number);
    (void)snprintf(number, sizeof(number), "%u", up->settings.ranks);
    add_pair(child, "--tensor-parallel-size", number);
    if (up->settings.threads) {
        (void)snprintf(number, sizeof(number), "%u", up->settings.threads);
        add_pair(child, "--threads", number);
    }
    for (char **arg = up->worker_args; *arg; arg++)
        child_add_arg(child, *arg);
}

/* True when a signal asks us to stop. */
static bool stop_asked(struct up *up, int timeout_ms)
{
    struct signalfd_siginfo info;
    if (!supervisor_wait(&up->supervisor, up->signal_fd, timeout_ms))
        return false;
    return read(up->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info);
}

static int not_started(const struct up *up, struct errmsg *err)
{
    return errmsg_set(err, -ECHILD, "%s did not start; what it says stands above",
                      up->failed ? up->failed->name : up->router->name);
}

/* The router writes "PORT\n" to its --ready-fd once it listens. */
static int start_router(struct up *up, struct errmsg *err)
{
    int fds[2];
    char text[32] = "";
    size_t got = 0;
    uint64_t deadline = clock_ms() + PORT_DEADLINE_MS;

    if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0)
        return errmsg_errno(err, "create a pipe");
    char number[16];
    (void)snprintf(number, sizeof(number), "%d", fds[1]);
    add_pair(up->router, "--ready-fd", number);
    int r = supervisor_start(&up->supervisor, up->router, fds[1], err);
    (void)close(fds[1]);
    while (r == 0 && !strchr(text, '\n')) {
        struct pollfd poll_fd = {fds[0], POLLIN, 0};
        (void)poll(&poll_fd, 1, READY_POLL_MS);
        ssize_t n = read(fds[0], text + got, sizeof(text) - 1 - got);
        if (n > 0)
            got += (size_t)n;
        if (stop_asked(up, 0))
            r = errmsg_set(err, -EINTR, "stopped");
        else if (up->failed || n == 0)
            r = not_started(up, err);
        else if (clock_ms() > deadline)
            r = errmsg_set(err, -ETIMEDOUT, "the router does not listen after %u s",
                           PORT_DEADLINE_MS / 1000);
    }
    (void)close(fds[0]);
    if (r == 0)
        up->port = (uint32_t)strtoul(text, NULL, 10);
    return r;
}

/* A restarted router takes the port that clients know. */
static void fix_router_args(struct up *up)
{
    struct child *router = up->router;
    while (router->args_count > 1) {
        mem_free(router->args[--router->args_count]);
        router->args[router->args_count] = NULL;
    }
    set_router_args(up, router, up->port);
}

static const char *url_host(const struct up *up)
{
    return strcmp(up->settings.host, "0.0.0.0") == 0 ? "127.0.0.1" : up->settings.host;
}

/* What the group's memory is good for, as vLLM says it. */
static void say_pool(const json_t *worker)
{
    long long blocks =
        json_integer_value(json_object_get(json_object_get(worker, "blocks"), "total"));
    long long tokens = blocks * json_integer_value(json_object_get(worker, "block_tokens"));
    long long context = json_integer_value(json_object_get(worker, "max_model_len"));

    if (context > 0)
        say("group %lld: KV cache size: %lld tokens; Maximum concurrency for %lld tokens per "
            "request: %.2fx",
            json_integer_value(json_object_get(worker, "group")), tokens, context,
            (double)tokens / (double)context);
}

/* How many groups the router can use; 0 while it does not answer. When all of them are, what their
 * pools hold is said. */
static uint32_t groups_ready(struct up *up)
{
    bool ipv6 = strchr(url_host(up), ':') != NULL;
    char *base = mem_printf(ipv6 ? "http://[%s]:%u" : "http://%s:%u", url_host(up), up->port);
    char *key = up->settings.api_key ? mem_strdup(up->settings.api_key) : NULL;
    json_t *status = NULL, *worker;
    uint32_t ready = 0;
    size_t i;

    if (key)
        key[strcspn(key, ",")] = '\0';
    if (http_get_json(base, "/v1/refrain/status", key, &status, NULL) == 0) {
        json_array_foreach(json_object_get(status, "workers"), i, worker)
        {
            ready += json_is_true(json_object_get(worker, "ready"));
        }
        if (ready >= up->settings.groups)
            json_array_foreach(json_object_get(status, "workers"), i, worker) say_pool(worker);
        json_decref(status);
    }
    mem_free(key);
    mem_free(base);
    return ready;
}

static int wait_ready(struct up *up, struct errmsg *err)
{
    uint64_t began = clock_ms();
    uint32_t before = 0;

    for (;;) {
        uint32_t ready = groups_ready(up);
        if (ready > before)
            say("%u of %u groups ready after %.2f s", ready, up->settings.groups,
                (double)(clock_ms() - began) / 1000);
        before = ready;
        if (ready >= up->settings.groups)
            return 0;
        if (stop_asked(up, READY_POLL_MS))
            return errmsg_set(err, -EINTR, "stopped");
        if (up->failed)
            return not_started(up, err);
        if (clock_ms() - began > READY_DEADLINE_MS)
            return errmsg_set(err, -ETIMEDOUT, "%u of %u groups are ready after %u s", ready,
                              up->settings.groups, READY_DEADLINE_MS / 1000);
    }
}

/* SIGTERM to children [first, last), wait until they are gone; a second signal or the deadline
 * kills. */
static void stop_children(struct up *up, size_t first, size_t last, uint32_t deadline_ms)
{
    uint64_t deadline = clock_ms() + deadline_ms;
    bool killed = false;

    for (size_t i = first; i < last; i++)
        supervisor_stop(&up->supervisor.children[i]);
    for (;;) {
        size_t alive = 0;
        for (size_t i = first; i < last; i++)
            alive += up->supervisor.children[i].state != CHILD_STOPPED;
        if (alive == 0)
            return;
        bool hurry = stop_asked(up, 100);
        if (!killed && (hurry || clock_ms() > deadline)) {
            say("not waiting any longer");
            for (size_t i = first; i < last; i++)
                supervisor_kill(&up->supervisor.children[i]);
            killed = true;
        }
    }
}

static int check_model(struct up *up, struct errmsg *err)
{
    if (access(up->settings.model, R_OK) < 0)
        return errmsg_errno(err, "model '%s'", up->settings.model);
    return 0;
}

static int open_signals(struct up *up, struct errmsg *err)
{
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGTERM);
    if (!process_ignores_hangup()) /* blocked, an ignored one would be queued all the same */
        (void)sigaddset(&set, SIGHUP);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    (void)signal(SIGINT,
                 SIG_DFL); /* a shell's background job has it ignored: then none would come */
    up->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return up->signal_fd < 0 ? errmsg_errno(err, "signalfd") : 0;
}

static int start(struct up *up, struct errmsg *err)
{
    int r = check_model(up, err);
    if (r == 0)
        r = process_sibling("refrain-router", up->router_path, sizeof(up->router_path), err);
    if (r == 0)
        r = process_sibling("refrain-worker", up->worker_path, sizeof(up->worker_path), err);
    if (r == 0)
        r = open_signals(up, err);
    if (r == 0)
        r = run_dir_make(up->settings.run_dir, &up->run_dir, err);
    if (r < 0)
        return r;
    up->router = supervisor_add(&up->supervisor, "router", up->router_path);
    set_router_args(up, up->router, up->settings.port);
    for (uint32_t group = 0; group < up->settings.groups; group++)
        add_worker(up, group);
    say("starting %u %s of %u %s", up->settings.groups,
        up->settings.groups == 1 ? "group" : "groups", up->settings.ranks,
        up->settings.ranks == 1 ? "rank" : "ranks");
    for (size_t i = 1; r == 0 && i < up->supervisor.count; i++)
        r = supervisor_start(&up->supervisor, &up->supervisor.children[i], -1, err);
    if (r == 0)
        r = start_router(up, err);
    if (r < 0)
        return r;
    fix_router_args(up);
    say("router listens on %s port %u, sockets are in %s", up->settings.host, up->port,
        up->run_dir.path);
    return wait_ready(up, err);
}

/* The router's own drain timeout and a little. It has taken the text, so it is a number. */
static uint32_t drain_deadline_ms(const struct up *up)
{
    const char *text = up->settings.drain_timeout;
    return (uint32_t)((text ? strtod(text, NULL) : DRAIN_SECONDS) * 1e3) + DRAIN_GRACE_MS;
}

static int run(struct up *up)
{
    struct errmsg err;
    bool ipv6;
    int code = EXIT_DONE;

    int r = start(up, &err);
    if (r < 0 && r != -EINTR) {
        say("%s", err.text);
        code = EXIT_FAILED;
    }
    if (r == 0) {
        ipv6 = strchr(url_host(up), ':') != NULL;
        fprintf(stdout, ipv6 ? "ready http://[%s]:%u\n" : "ready http://%s:%u\n", url_host(up),
                up->port);
        (void)fflush(stdout);
        up->serving = true;
        while (!stop_asked(up, -1))
            continue;
        say("stopping: requests in flight may end, once more Ctrl-C to end them");
    }
    if (up->supervisor.count > 0) {
        stop_children(up, 0, 1, r == 0 ? drain_deadline_ms(up) : STOP_DEADLINE_MS);
        stop_children(up, 1, up->supervisor.count, STOP_DEADLINE_MS);
    }
    run_dir_remove(&up->run_dir);
    return code;
}

/* `--config FILE` or `--config=FILE`, to hand it on. */
static const char *config_of(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--config") == 0 && i + 1 < argc)
            return argv[i + 1];
        if (strncmp(argv[i], "--config=", 9) == 0)
            return argv[i] + 9;
    }
    return NULL;
}

int command_up(int argc, char **argv)
{
    struct up *up = mem_zalloc(sizeof(*up));
    struct errmsg err;
    int code = EXIT_USAGE;

    up->signal_fd = -1;
    up->worker_args = mem_calloc((size_t)argc + 1, sizeof(*up->worker_args));
    supervisor_init(&up->supervisor);
    up->supervisor.on_death = on_death;
    up->supervisor.user = up;
    argc = split_args(argc, argv, up->worker_args);
    up->config = config_of(argc, argv);
    int r = settings_parse(&up_spec, &up->settings, argc, argv, &err);
    if (r == SETTINGS_EXIT_OK) {
        code = EXIT_DONE;
    } else if (r < 0) {
        say("%s", err.text);
    } else if (!up->settings.model) {
        say("--model is missing: a GGUF file or a model directory");
        settings_done(&up_spec, &up->settings);
    } else {
        code = run(up);
        settings_done(&up_spec, &up->settings);
    }
    supervisor_done(&up->supervisor);
    if (up->signal_fd >= 0)
        (void)close(up->signal_fd);
    mem_free(up->worker_args);
    mem_free(up);
    return code;
}
