/* admin_commands.c - the table of commands.
 *
 * Two kinds: answered at once from constants, /proc and the engine's status; or sent to the engine,
 * which looks between two steps and answers through its outbox. */
#include "worker/admin_commands.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/assert.h"
#include "proto/base/clock.h"
#include "proto/base/json.h"
#define LOG_MODULE "admin"
#include "proto/base/log.h"
#include "proto/base/mem.h"
#include "proto/base/number.h"
#include "proto/base/proc_stat.h"
#include "proto/worker_metrics.h"

#define ANSWER_BYTES_MAX ((size_t)1 << 20)
#define PIN_SECONDS_MAX 31536000u /* a year */

typedef void (*command_fn)(struct admin_context *context, const struct admin_call *call);

struct admin_command {
    const char *words[2]; /* second NULL: one word */
    const char *arguments;
    uint32_t arguments_count;
    bool rank0_only;
    command_fn run;
    const char *help;
};

static const struct admin_command commands[];

static void reply(struct admin_context *context, const struct admin_call *call, struct buffer *text)
{
    if (buffer_finish(text) < 0)
        admin_socket_answer(context->admin, call->client, "{\"error\":\"too long\"}");
    else
        admin_socket_answer(context->admin, call->client, text->data);
    buffer_done(text);
}

static void append_text(struct buffer *out, const char *name, const char *text)
{
    buffer_printf(out, ",\"%s\":", name);
    json_append_string(out, text, strlen(text));
}

/* ---- answered here ---- */

static void show_help(struct admin_context *context, const struct admin_call *call)
{
    struct buffer out;
    buffer_init(&out, ANSWER_BYTES_MAX);
    buffer_append_text(&out, "{\"commands\":[");
    const char *comma = "";
    for (const struct admin_command *c = commands; c->run != NULL; c++) {
        if (c->rank0_only && context->engine == NULL)
            continue;
        buffer_printf(&out, "%s{\"command\":\"%s%s%s%s\",\"does\":\"%s\"}", comma, c->words[0],
                      c->words[1] != NULL ? " " : "", c->words[1] != NULL ? c->words[1] : "",
                      c->arguments, c->help);
        comma = ",";
    }
    buffer_append_text(&out, "]}");
    reply(context, call, &out);
}

static void append_model(struct buffer *out, const struct worker_info *info)
{
    append_text(out, "model", info->settings->model);
    if (info->card != NULL) {
        append_text(out, "name", info->card->name);
        append_text(out, "fingerprint", info->card->fingerprint);
    }
    append_text(out, "architecture", info->model->config.architecture);
    append_text(out, "backend", info->model->backend->ops->name);
    append_text(out, "isa", info->model->backend->isa);
    append_text(out, "kv_cache_dtype", kv_dtype_name(info->model->backend->kv_dtype));
    append_text(out, "kv_format", info->model->backend->kv_format);
    buffer_printf(out, ",\"threads\":%u,\"weights_bytes\":%llu,\"kv_bytes\":%llu",
                  info->model->backend->threads, (unsigned long long)info->model->weights->bytes,
                  (unsigned long long)worker_info_kv_bytes(info));
}

static void append_tiers(struct buffer *out, const struct worker_settings *settings)
{
    buffer_printf(out, ",\"host_tier_bytes\":%llu,\"disk_tier_bytes\":%llu",
                  (unsigned long long)settings->host_tier_bytes,
                  (unsigned long long)settings->disk_tier_bytes);
    if (settings->disk_tier_path != NULL)
        append_text(out, "disk_tier_path", settings->disk_tier_path);
}

static void show_info(struct admin_context *context, const struct admin_call *call)
{
    const struct worker_info *info = context->info;
    struct buffer out;
    buffer_init(&out, ANSWER_BYTES_MAX);
    buffer_printf(&out, "{\"program\":\"refrain-worker\",\"version\":\"%s\"", REFRAIN_VERSION);
    buffer_printf(&out, ",\"group\":%u,\"rank\":%u,\"ranks\":%u,\"pid\":%d", info->settings->group,
                  info->rank, info->settings->ranks, (int)getpid());
    append_model(&out, info);
    append_text(&out, "admin_socket", info->admin_path);
    append_tiers(&out, info->settings);
    if (context->engine != NULL) {
        buffer_append_text(&out, ",\"pids\":[");
        for (uint32_t rank = 0; rank < info->settings->ranks; rank++)
            buffer_printf(&out, "%s%d", rank > 0 ? "," : "", (int)info->pids[rank]);
        buffer_append_char(&out, ']');
        append_text(&out, "uuid", info->uuid);
        append_text(&out, "data_endpoint", info->data_endpoint);
        append_text(&out, "router_endpoints", info->settings->router_endpoints);
        buffer_printf(&out, ",\"routers\":%u", router_link_attached(context->link));
    } else {
        buffer_printf(&out, ",\"steps\":%llu",
                      (unsigned long long)follower_steps(context->follower));
    }
    buffer_printf(&out,
                  ",\"blocks\":%u,\"block_tokens\":%u,\"kv_tokens\":%llu,"
                  "\"max_concurrency\":%.2f,\"max_model_len\":%u,\"max_num_seqs\":%u,"
                  "\"max_num_batched_tokens\":%u,\"prefix_caching\":%s,\"uptime_seconds\":%llu}",
                  worker_info_blocks(info), BLOCK_TOKENS,
                  (unsigned long long)worker_info_blocks(info) * BLOCK_TOKENS,
                  pool_plan_concurrency(&info->pool), info->pool.context_tokens,
                  info->settings->sequences_max, info->step_tokens_max,
                  info->settings->prefix_caching ? "true" : "false",
                  (unsigned long long)((clock_ms() - info->started_ms) / 1000));
    reply(context, call, &out);
}

static void show_stats(struct admin_context *context, const struct admin_call *call)
{
    const struct metrics *metrics = worker_metrics_rank(context->metrics, 0);
    struct engine_status status;
    struct buffer out;
    engine_get_status(context->engine, &status);
    const struct scheduler_counts *counts = &status.counts;
    double prompt = (double)counts->prompt_tokens_total;
    buffer_init(&out, ANSWER_BYTES_MAX);
    buffer_printf(&out,
                  "{\"running\":%u,\"waiting\":%u,\"pending_prefill_tokens\":%llu,"
                  "\"draining\":%s,\"steps\":%llu,\"step_seconds\":%.6f,"
                  "\"prefill_seconds_per_token\":%.8f",
                  counts->running, counts->waiting,
                  (unsigned long long)counts->pending_prefill_tokens,
                  status.draining ? "true" : "false", (unsigned long long)status.steps,
                  status.step_seconds, status.prefill_seconds_per_token);
    buffer_printf(&out,
                  ",\"prompt_tokens\":%llu,\"cached_tokens\":%llu,\"generated_tokens\":%llu,"
                  "\"hit_rate\":%.4f,\"preemptions\":%llu,\"admitted\":%llu,\"finished\":%llu",
                  (unsigned long long)counts->prompt_tokens_total,
                  (unsigned long long)counts->cached_tokens_total,
                  (unsigned long long)counts->generated_tokens_total,
                  prompt > 0 ? (double)counts->cached_tokens_total / prompt : 0.0,
                  (unsigned long long)counts->preemptions_total,
                  (unsigned long long)counts->admitted_total,
                  (unsigned long long)counts->finished_total);
    buffer_printf(&out, ",\"kv_usage\":%.4f,\"evictions\":%llu,\"refused\":%.0f,\"busy_ms\":%llu}",
                  metrics_get(metrics, WM_KV_USAGE_RATIO, 0),
                  (unsigned long long)status.blocks.evictions_total,
                  metrics_get(metrics, WM_REFUSED, WM_REFUSED_INVALID) +
                      metrics_get(metrics, WM_REFUSED, WM_REFUSED_TOO_LONG) +
                      metrics_get(metrics, WM_REFUSED, WM_REFUSED_QUEUE_FULL) +
                      metrics_get(metrics, WM_REFUSED, WM_REFUSED_DRAINING),
                  (unsigned long long)engine_busy_ms(context->engine));
    reply(context, call, &out);
}

/* Bytes by purpose, largest families named by mem.h, against what the kernel says is resident. */
static void append_purposes(struct buffer *out)
{
    uint64_t counted = 0;
    const char *separator = "";

    buffer_append_text(out, ",\"purposes\":[");
    for (enum mem_purpose purpose = 0; purpose < MEM_PURPOSE_COUNT; purpose++) {
        struct mem_usage usage;
        mem_usage(purpose, &usage);
        if (usage.blocks == 0)
            continue;
        counted += usage.bytes;
        buffer_printf(out, "%s{\"purpose\":\"%s\",\"bytes\":%llu,\"allocations\":%llu}", separator,
                      mem_purpose_name(purpose), (unsigned long long)usage.bytes,
                      (unsigned long long)usage.blocks);
        separator = ",";
    }
    buffer_printf(out, "],\"counted_bytes\":%llu", (unsigned long long)counted);
}

static void show_memory(struct admin_context *context, const struct admin_call *call)
{
    const struct worker_info *info = context->info;
    struct proc_stat stat = {.name = ""};
    struct proc_memory memory;
    struct buffer out;
    (void)proc_stat_read("/proc/self/stat", &stat);
    proc_memory_read(&memory);
    buffer_init(&out, ANSWER_BYTES_MAX);
    buffer_printf(&out,
                  "{\"resident_bytes\":%llu,\"resident_anon_bytes\":%llu,"
                  "\"resident_file_bytes\":%llu,\"resident_shared_bytes\":%llu,"
                  "\"allocator_bytes\":%llu,\"allocator_free_bytes\":%llu,",
                  (unsigned long long)stat.resident_bytes, (unsigned long long)memory.anon_bytes,
                  (unsigned long long)memory.file_bytes, (unsigned long long)memory.shmem_bytes,
                  (unsigned long long)memory.allocator_bytes,
                  (unsigned long long)memory.allocator_free_bytes);
    buffer_printf(&out,
                  "\"weights_bytes\":%llu,\"kv_bytes_reserved\":%llu,\"adapter_bytes\":%llu,"
                  "\"activation_bytes\":%zu,"
                  "\"block_bytes\":%zu,\"blocks\":%u,\"window_block_bytes\":%zu,"
                  "\"window_blocks\":%u,\"resident_bytes_max\":%llu,\"cpu_seconds\":%.2f",
                  (unsigned long long)info->model->weights->bytes,
                  (unsigned long long)worker_info_kv_bytes(info),
                  (unsigned long long)worker_info_adapter_bytes(info),
                  decoder_activation_bytes(info->model->decoder), info->block_bytes,
                  worker_info_blocks(info), info->window_block_bytes, info->pool.window_blocks,
                  (unsigned long long)worker_info_bytes_max(info), stat.cpu_seconds);
    append_purposes(&out);
    buffer_append_char(&out, '}');
    reply(context, call, &out);
}

static void append_thread(struct buffer *out, const char *id)
{
    struct proc_stat stat;
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/self/task/%.20s/stat", id);
    if (proc_stat_read(path, &stat) < 0)
        return;
    buffer_printf(out, "%s{\"tid\":%.20s,\"name\":", out->data[out->bytes - 1] == '[' ? "" : ",",
                  id);
    json_append_string(out, stat.name, strlen(stat.name));
    buffer_printf(out, ",\"state\":\"%c\",\"cpu_seconds\":%.2f}", stat.state, stat.cpu_seconds);
}

static void show_threads(struct admin_context *context, const struct admin_call *call)
{
    DIR *tasks = opendir("/proc/self/task");
    struct buffer out;
    buffer_init(&out, ANSWER_BYTES_MAX);
    buffer_append_text(&out, "{\"threads\":[");
    if (tasks != NULL) {
        for (struct dirent *entry; (entry = readdir(tasks)) != NULL;) {
            if (entry->d_name[0] != '.')
                append_thread(&out, entry->d_name);
        }
        (void)closedir(tasks);
    }
    buffer_append_text(&out, "]}");
    reply(context, call, &out);
}

static void set_log(struct admin_context *context, const struct admin_call *call)
{
    const char *module = strcmp(call->words[1], "all") == 0 ? NULL : call->words[1];
    enum log_level level;
    struct buffer out;
    buffer_init(&out, ANSWER_BYTES_MAX);
    if (log_level_parse(call->words[2], &level) < 0)
        buffer_append_text(&out, "{\"error\":\"levels are error, warn, info, debug\"}");
    else if (log_set_level(module, level) < 0)
        buffer_append_text(&out, "{\"error\":\"too many modules have their own level\"}");
    else
        buffer_printf(&out, "{\"module\":\"%s\",\"level\":\"%s\"}", call->words[1],
                      log_level_name(level));
    reply(context, call, &out);
}

/* ---- answered by the engine ---- */

static void ask(struct admin_context *context, const struct admin_call *call,
                struct command *command)
{
    command->client = call->client;
    if (!engine_crowded(context->engine) && engine_send(context->engine, command) == 0)
        return;
    command_free(command);
    admin_socket_answer(context->admin, call->client, "{\"error\":\"the engine is behind\"}");
}

static void inspect(struct admin_context *context, const struct admin_call *call,
                    enum inspect_what what)
{
    struct command *command = command_new(COMMAND_INSPECT, 0);
    command->what = what;
    ask(context, call, command);
}

static void show_sequences(struct admin_context *context, const struct admin_call *call)
{
    inspect(context, call, INSPECT_SEQUENCES);
}

static void show_blocks(struct admin_context *context, const struct admin_call *call)
{
    inspect(context, call, INSPECT_BLOCKS);
}

static void show_tiers(struct admin_context *context, const struct admin_call *call)
{
    inspect(context, call, INSPECT_TIERS);
}

static void dump_blocks(struct admin_context *context, const struct admin_call *call)
{
    inspect(context, call, INSPECT_BLOCK_DUMP);
}

static void check(struct admin_context *context, const struct admin_call *call)
{
    inspect(context, call, INSPECT_CHECK);
}

static void drain(struct admin_context *context, const struct admin_call *call)
{
    struct command *command = command_new(COMMAND_DRAIN, 0);
    command->undo = strcmp(call->words[0], "undrain") == 0;
    ask(context, call, command);
}

static void cancel(struct admin_context *context, const struct admin_call *call)
{
    struct command *command = command_new(COMMAND_CANCEL_ANY, 0);
    (void)snprintf(command->request_id, sizeof(command->request_id), "%s", call->words[1]);
    ask(context, call, command);
}

static void show_pins(struct admin_context *context, const struct admin_call *call)
{
    inspect(context, call, INSPECT_PINS);
}

static void pin(struct admin_context *context, const struct admin_call *call)
{
    struct command *command = command_new(COMMAND_PIN, 0);
    uint64_t seconds = 0;
    command->undo = strcmp(call->words[0], "unpin") == 0;
    (void)snprintf(command->request_id, sizeof(command->request_id), "%s", call->words[1]);
    if (!command->undo && (number_parse_u64(call->words[2], &seconds) < 0 || seconds == 0 ||
                           seconds > PIN_SECONDS_MAX)) {
        command_free(command);
        admin_socket_answer(context->admin, call->client,
                            "{\"error\":\"a lease has 1 to 31536000 seconds\"}");
        return;
    }
    command->seconds = (uint32_t)seconds;
    ask(context, call, command);
}

static void reset_prefix_cache(struct admin_context *context, const struct admin_call *call)
{
    ask(context, call, command_new(COMMAND_RESET_CACHE, 0));
}

static const struct admin_command commands[] = {
    {{"help", NULL}, "", 0, false, show_help, "This list; 'table COMMAND' answers for people."},
    {{"show", "info"}, "", 0, false, show_info, "What runs here."},
    {{"show", "stats"}, "", 0, true, show_stats, "Counts since the start."},
    {{"show", "sequences"}, "", 0, true, show_sequences, "Waiting and running requests."},
    {{"show", "blocks"}, "", 0, true, show_blocks, "KV blocks by state."},
    {{"show", "tiers"}, "", 0, true, show_tiers, "KV blocks in the pool and in slower memory."},
    {{"show", "memory"}, "", 0, false, show_memory, "Bytes of this process."},
    {{"show", "threads"}, "", 0, false, show_threads, "Threads and their CPU time."},
    {{"show", "pins"}, "", 0, true, show_pins, "Leases on prefixes."},
    {{"dump", "blocks"}, "", 0, true, dump_blocks, "Every block in use."},
    {{"drain", NULL}, "", 0, true, drain, "Take no new requests."},
    {{"undrain", NULL}, "", 0, true, drain, "Take requests again."},
    {{"cancel", NULL}, " ID", 1, true, cancel, "End a request."},
    {{"pin", NULL}, " ID|HASH SECONDS", 2, true, pin, "Keep a request's prompt, or up to a block."},
    {{"unpin", NULL}, " ID|HASH", 1, true, pin, "End a lease."},
    {{"reset_prefix_cache", NULL}, "", 0, true, reset_prefix_cache, "Forget cached blocks."},
    {{"check", NULL}, "", 0, true, check, "Assert every invariant; a breach ends the process."},
    {{"log", NULL}, " MODULE LEVEL", 2, false, set_log, "Log level of a module, or of all."},
    {{NULL, NULL}, NULL, 0, false, NULL, NULL},
};

static uint32_t words_of(const struct admin_command *command)
{
    return command->words[1] != NULL ? 2 : 1;
}

/* By its words alone; NULL: none. */
static const struct admin_command *find(const struct admin_call *call)
{
    for (const struct admin_command *c = commands; c->run != NULL; c++) {
        if (call->words_count >= words_of(c) && strcmp(call->words[0], c->words[0]) == 0 &&
            (c->words[1] == NULL || strcmp(call->words[1], c->words[1]) == 0))
            return c;
    }
    return NULL;
}

static void tell_usage(struct admin_context *context, const struct admin_call *call,
                       const struct admin_command *command)
{
    struct buffer out;
    buffer_init(&out, ANSWER_BYTES_MAX);
    buffer_printf(&out, "{\"error\":\"usage: %s%s%s%s\"}", command->words[0],
                  command->words[1] != NULL ? " " : "",
                  command->words[1] != NULL ? command->words[1] : "", command->arguments);
    reply(context, call, &out);
}

void admin_commands_call(void *user, const struct admin_call *call)
{
    struct admin_context *context = user;
    const struct admin_command *command = find(call);
    ASSERT(call->words_count > 0);
    if (command == NULL)
        admin_socket_answer(context->admin, call->client,
                            "{\"error\":\"unknown command; try help\"}");
    else if (call->words_count != words_of(command) + command->arguments_count)
        tell_usage(context, call, command);
    else if (command->rank0_only && context->engine == NULL)
        admin_socket_answer(context->admin, call->client,
                            "{\"error\":\"rank 0 of the group answers this\"}");
    else
        command->run(context, call);
}
