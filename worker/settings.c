/* settings.c - the table, the flags of other programs that get a sentence, and the checks that one
 * row of a table cannot make. */
#include "worker/settings.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "proto/base/process.h"
#include "proto/block_hash.h"
#include "proto/grammar/machine.h"
#include "worker/kv/eviction.h"
#include "worker/tp/shard.h"

static const char *const backend_names[] = {"cpu", "ref", NULL};
static const char *const kv_dtype_names[] = {"auto", "bfloat16", "int8", NULL};
static const char *const log_level_names[] = {"error", "warn", "info", "debug", NULL};

#define SETTING_STRUCT struct worker_settings
static const struct setting table[] = {
    SETTING_TEXT("model", model, NULL, "Model file (GGUF), or a folder that holds one."),
    SETTING_TEXT("served-model-name", served_model_name, NULL,
                 "Name in the API; default: the file's or folder's name without suffix."),
    SETTING_U32("tensor-parallel-size", ranks, "1", 1, TP_RANKS_MAX,
                "Processes that share one model; this program starts the others itself."),
    SETTING_U32("group", group, "0", 0, WORKER_GROUP_MAX, "Number of this group in the cluster."),
    SETTING_TEXT("run-dir", run_dir, NULL,
                 "Folder of the sockets; default: $XDG_RUNTIME_DIR/refrain, /run or /tmp."),
    SETTING_TEXT("router-endpoint", router_endpoints, NULL,
                 "Where routers listen for workers, separated by commas; default: "
                 "ipc://RUN-DIR/router.sock."),
    SETTING_TEXT("data-endpoint", data_endpoint, NULL,
                 "Where this group listens for routers; default: ipc://RUN-DIR/worker-GROUP.sock."),
    SETTING_BOOL("insecure-tcp", insecure_tcp, "false",
                 "Allow tcp:// endpoints, which are neither encrypted nor authenticated."),
    SETTING_U32("max-model-len", context_tokens, "0", 0, 1u << 20,
                "Prompt and answer together, in tokens; 0: what the model says."),
    SETTING_U32("max-num-seqs", sequences_max, "256", 1, 4096, "Sequences per step."),
    SETTING_U32("max-num-batched-tokens", step_tokens_max, "2048", 16, 65536, "Tokens per step."),
    SETTING_U32("max-step-ms", step_ms_max, "110", 0, 60000,
                "Of a step in which answers go on or begin: prompts get the tokens that take about "
                "this long, as measured; 0: all that --max-num-batched-tokens leaves."),
    SETTING_U32("waiting-max", waiting_max, "1024", 1, 65536,
                "Requests in the queue; more are refused with 429."),
    SETTING_BYTES("kv-cache-memory", kv_bytes, "1GiB",
                  "Memory of the KV block pool, per process of the group."),
    SETTING_ENUM(
        "kv-cache-dtype", kv_dtype, "auto", kv_dtype_names,
        "What a key or a value is kept as: auto or bfloat16; int8: nearly twice the tokens "
        "in the same memory, a little less exact."),
    SETTING_BYTES("host-tier-memory", host_tier_bytes, "0",
                  "Memory for KV blocks that leave the pool, per process of the group; 0: none."),
    SETTING_BOOL(
        "disable-hybrid-kv-cache-manager", whole_windows, "false",
        "Keep all KV of layers with a sliding window, not the window alone; so it is in any "
        "case with a tier."),
    SETTING_TEXT("disk-tier-path", disk_tier_path, NULL,
                 "Folder for files of KV blocks, so that chats outlive this process; each group "
                 "has its own in there. The files hold prompts' token ids; default: none."),
    SETTING_BYTES("disk-tier-size", disk_tier_bytes, "0",
                  "Space of these files, per process of the group."),
    SETTING_BYTES("disk-tier-buffer", disk_buffer_bytes, "256MiB",
                  "Memory for blocks on their way to and from disk, per process of the group; as "
                  "much of a prompt can be read at once."),
    SETTING_U32("disk-tier-wait-ms", disk_wait_ms, "1000", 0, 60000,
                "A request whose prompt is being read from disk waits so long, then what has not "
                "come is computed."),
    SETTING_BYTES("grammar-memory", grammar_bytes, "64MiB",
                  "Memory of states and masks of guided answers, and as much of their grammars; "
                  "taken when the first one is asked for."),
    SETTING_TEXT("generation-config", generation_config, "auto",
                 "Sampling where a request does not say: auto (what the model's files recommend), "
                 "vllm (nothing of it), or a folder with a generation_config.json."),
    SETTING_TEXT("override-generation-config", generation_overrides, NULL,
                 "JSON that wins over it, for example '{\"temperature\": 0.5}'."),
    SETTING_BOOL("enable-lora", lora, "false", "Serve LoRA adapters beside the model."),
    SETTING_LIST("lora-modules", lora_modules, NULL,
                 "Adapters to load at the start, NAME=PATH each: folders in PEFT's format."),
    SETTING_U32("max-loras", loras_max, "4", 1, LORA_SLOTS_MAX,
                "Adapters that may be loaded at one time; their memory is reserved."),
    SETTING_U32("max-lora-rank", lora_rank_max, "16", 1, LORA_RANK_MAX,
                "Largest rank that an adapter may have."),
    SETTING_BOOL("enable-prefix-caching", prefix_caching, "true", "Reuse KV of known prefixes."),
    SETTING_TEXT("kv-events-config", kv_events_config, NULL,
                 "Publish changes of the prefix cache as vLLM does: its JSON, for example "
                 "'{\"enable_kv_cache_events\": true, \"endpoint\": \"tcp://127.0.0.1:5557\"}'."),
    SETTING_ENUM("eviction-policy", eviction, "chat", eviction_policy_names,
                 "What of the cache is lost when room is needed. chat: what is the least likely to "
                 "be asked for again, as learnt; lru: what was used the longest ago."),
    SETTING_U32("block-size", block_tokens, "16", 1, 1024, "Tokens per KV block; only 16."),
    SETTING_U32("threads", threads, "0", 0, 512,
                "Compute threads per process; 0: CPUs divided by --tensor-parallel-size."),
    SETTING_ENUM("backend", backend, "cpu", backend_names,
                 "cpu: packed kernels; ref: the plain C definition of every op."),
    SETTING_BOOL("reference", reference, "false", "The same as --backend ref."),
    SETTING_TEXT("cpu-isa", isa, "auto",
                 "Instruction set of the cpu backend: auto (the best by CPUID), avx2, avx512, amx "
                 "or amx-bf16."),
    SETTING_U32("rank-timeout-ms", rank_timeout_ms, "10000", 100, 600000,
                "A rank that waits longer for another one within a step ends the group."),
    SETTING_U32("step-timeout-ms", step_timeout_ms, "60000", 1000, 3600000,
                "A step that takes longer stops the petting of systemd's watchdog."),
    SETTING_ENUM("log-level", log_level, "info", log_level_names, "Least level that is logged."),
    SETTING_TEXT("check", check, NULL, "Load MODEL, print what it is, and exit."),
    SETTING_TEXT("ids", ids, NULL, "With --check: answer the lines of this file with logits."),
    SETTING_U32("chunk", chunk, "512", 1, 65536, "With --check: prompt tokens per step."),
    SETTING_END};

static const char *const foreign[] = {
    "gpu-memory-utilization",
    "this build runs on the CPU; the KV pool is sized by --kv-cache-memory",
    "max-gpu-memory",
    "FastChat's; the KV pool is sized by --kv-cache-memory",
    "max-paddings",
    "FastChat's; batches are not padded here, --max-num-batched-tokens bounds a step",
    "num-gpus",
    "FastChat's; use --tensor-parallel-size",
    "enforce-eager",
    "there are no graphs to switch off on the CPU backend",
    "dtype",
    "weights are computed in the precision class of the file; --reference runs in float32",
    "quantization",
    "the file says how it is quantised",
    "load-format",
    "the file's format is recognised by itself",
    "tokenizer",
    "the tokenizer comes from the model file and runs in refrain-router",
    "chat-template",
    "templates run in refrain-router: give it to refrain-router or refrain up",
    "trust-remote-code",
    "no code is loaded from models",
    "swap-space",
    "preempted sequences keep their blocks as cache; nothing is swapped",
    "seed",
    "seeds belong to requests",
    "pipeline-parallel-size",
    "only tensor parallel: --tensor-parallel-size",
    "data-parallel-size",
    "start several groups: refrain up --groups N",
    "host",
    "a worker speaks no HTTP; refrain-router has --host and --port",
    "port",
    "a worker speaks no HTTP; refrain-router has --host and --port",
    "enable-chunked-prefill",
    "prompts are always computed in chunks; --max-num-batched-tokens bounds a step",
    "max-cpu-loras",
    "adapters lie in memory once; --max-loras says how many",
    "lora-dtype",
    "adapters are held in float32",
    "lora-extra-vocab-size",
    "adapters that add tokens are not served",
    "fully-sharded-loras",
    "adapters are sliced as the base model's matrices are",
    "worker-address",
    "FastChat's; use --data-endpoint",
    "controller-address",
    "FastChat's; use --router-endpoint",
    "model-path",
    "FastChat's; use --model",
    "model-names",
    "FastChat's; use --served-model-name",
    "limit-worker-concurrency",
    "FastChat's; use --max-num-seqs and --waiting-max",
    NULL,
};

const struct settings_spec worker_settings_spec = {
    .program = "refrain-worker",
    .summary = "Serves one model to refrain-router; speaks token ids over ZeroMQ.",
    .section = "worker",
    .table = table,
    .foreign = foreign,
};

struct backend_settings worker_backend_settings(const struct worker_settings *settings)
{
    return (struct backend_settings){
        .name = settings->backend == WORKER_BACKEND_REF ? "ref" : "cpu",
        .threads = settings->threads,
        .isa = settings->isa,
        .kv_dtype = settings->kv_dtype == WORKER_KV_INT8 ? KV_INT8 : KV_BFLOAT16};
}

const char *worker_kv_dtype(const struct worker_settings *settings)
{
    return kv_dtype_names[settings->kv_dtype];
}

static int check_endpoint(const struct worker_settings *settings, const char *flag,
                          const char *endpoint, size_t bytes, struct errmsg *err)
{
    if (bytes > 6 && strncmp(endpoint, "ipc://", 6) == 0) {
        if (bytes - 6 >= WORKER_PATH_MAX)
            return errmsg_set(err, -ENAMETOOLONG, "--%s: a socket path has at most %u bytes", flag,
                              WORKER_PATH_MAX - 1);
        return 0;
    }
    if (bytes > 6 && strncmp(endpoint, "tcp://", 6) == 0) {
        if (!settings->insecure_tcp)
            return errmsg_set(err, -EINVAL,
                              "--%s: tcp is neither encrypted nor authenticated yet; add "
                              "--insecure-tcp if the network is trusted",
                              flag);
        return 0;
    }
    return errmsg_set(err, -EINVAL, "--%s: '%.*s' is no ipc:// or tcp:// endpoint", flag,
                      (int)(bytes > 80 ? 80 : bytes), endpoint);
}

static int check_endpoints(const struct worker_settings *settings, struct errmsg *err)
{
    const char *at = settings->router_endpoints;
    unsigned count = 0;
    int r = 0;
    while (r == 0 && at != NULL) {
        size_t bytes = strcspn(at, ",");
        r = check_endpoint(settings, "router-endpoint", at, bytes, err);
        if (++count > WORKER_ENDPOINTS_MAX)
            return errmsg_set(err, -EINVAL, "--router-endpoint: at most %u endpoints",
                              WORKER_ENDPOINTS_MAX);
        at = at[bytes] == ',' ? at + bytes + 1 : NULL;
    }
    const char *data = settings->data_endpoint;
    if (r == 0 && data != NULL)
        r = check_endpoint(settings, "data-endpoint", data, strlen(data), err);
    if (r == 0 && data != NULL &&
        (strchr(data, '*') != NULL || strncmp(data, "tcp://0.0.0.0", 13) == 0))
        return errmsg_set(err, -EINVAL,
                          "--data-endpoint: routers connect to it as it stands; name an address "
                          "and a port, no wildcard");
    return r;
}

static int check_disk_tier(const struct worker_settings *settings, struct errmsg *err)
{
    const char *path = settings->disk_tier_path;
    if (path == NULL && settings->disk_tier_bytes == 0)
        return 0;
    if (path == NULL)
        return errmsg_set(err, -EINVAL, "--disk-tier-size: name a folder by --disk-tier-path too");
    if (settings->disk_tier_bytes == 0)
        return errmsg_set(err, -EINVAL, "--disk-tier-path: say how much by --disk-tier-size too");
    if (path[0] != '/' || strlen(path) > WORKER_DISK_PATH_MAX - 32)
        return errmsg_set(err, -EINVAL, "--disk-tier-path: an absolute path of at most %u bytes",
                          WORKER_DISK_PATH_MAX - 32);
    if (!settings->prefix_caching)
        return errmsg_set(err, -EINVAL,
                          "--disk-tier-path: without --enable-prefix-caching nothing is reused");
    return 0;
}

static int check_values(const struct worker_settings *settings, struct errmsg *err)
{
    if (settings->ids != NULL && settings->check == NULL)
        return errmsg_set(err, -EINVAL, "--ids belongs to --check MODEL");
    if (settings->model == NULL && settings->check == NULL)
        return errmsg_set(err, -EINVAL, "--model is missing: a GGUF file, or a folder with one");
    if (settings->block_tokens != BLOCK_TOKENS)
        return errmsg_set(err, -EINVAL,
                          "--block-size %u: blocks have %u tokens, in routers and in kernels alike",
                          settings->block_tokens, BLOCK_TOKENS);
    if (settings->lora_modules != NULL && !settings->lora)
        return errmsg_set(err, -EINVAL, "--lora-modules needs --enable-lora");
    if (settings->grammar_bytes < GRAMMAR_MACHINE_BYTES_MIN)
        return errmsg_set(err, -EINVAL, "--grammar-memory: at least %zu MiB are needed",
                          GRAMMAR_MACHINE_BYTES_MIN >> 20);
    if (strlen(settings->run_dir) > WORKER_PATH_MAX - 40)
        return errmsg_set(err, -ENAMETOOLONG, "--run-dir: a socket folder has at most %u bytes",
                          WORKER_PATH_MAX - 40);
    if (strchr(settings->run_dir, ',') != NULL)
        return errmsg_set(err, -EINVAL, "--run-dir: no commas in a folder of endpoints");
    int r = check_disk_tier(settings, err);
    return r < 0 ? r : check_endpoints(settings, err);
}

static int fill_in(struct worker_settings *settings, struct errmsg *err)
{
    char run_dir[256];
    int r = 0;
    if (settings->run_dir == NULL) {
        r = process_default_run_dir(run_dir, sizeof(run_dir));
        if (r < 0)
            return errmsg_set(err, r, "no default for --run-dir; name one");
        settings->run_dir = mem_strdup(run_dir);
    }
    if (settings->router_endpoints == NULL)
        settings->router_endpoints = mem_printf("ipc://%s/router.sock", settings->run_dir);
    if (settings->reference)
        settings->backend = WORKER_BACKEND_REF;
    if (settings->threads == 0) {
        settings->threads = process_cpus() / settings->ranks;
        if (settings->threads == 0)
            settings->threads = 1;
    }
    return 0;
}

int worker_settings_parse(struct worker_settings *ret_settings, int argc, char **argv,
                          struct errmsg *err)
{
    int r = settings_parse(&worker_settings_spec, ret_settings, argc, argv, err);
    if (r != SETTINGS_RUN)
        return r;
    r = fill_in(ret_settings, err);
    if (r == 0)
        r = check_values(ret_settings, err);
    if (r < 0)
        worker_settings_done(ret_settings);
    return r;
}

void worker_settings_done(struct worker_settings *settings)
{
    settings_done(&worker_settings_spec, settings);
}

uint64_t worker_settings_tier_bytes(const struct worker_settings *settings)
{
    return settings->host_tier_bytes +
           (settings->disk_tier_path != NULL ? settings->disk_buffer_bytes : 0);
}

struct lora_limits worker_lora_limits(const struct worker_settings *settings)
{
    return (struct lora_limits){settings->lora ? settings->loras_max : 0, settings->lora_rank_max};
}

static void format_path(char *ret_path, int length)
{
    ASSERT(length > 0 && (unsigned)length < WORKER_PATH_MAX);
    ASSERT(ret_path[length] == '\0');
}

void worker_data_path(const struct worker_settings *settings, char ret_path[WORKER_PATH_MAX])
{
    format_path(ret_path, snprintf(ret_path, WORKER_PATH_MAX, "%s/worker-%u.sock",
                                   settings->run_dir, settings->group));
}

void worker_admin_path(const struct worker_settings *settings, uint32_t rank,
                       char ret_path[WORKER_PATH_MAX])
{
    if (rank == 0)
        format_path(ret_path, snprintf(ret_path, WORKER_PATH_MAX, "%s/worker-%u.admin.sock",
                                       settings->run_dir, settings->group));
    else
        format_path(ret_path, snprintf(ret_path, WORKER_PATH_MAX, "%s/worker-%u-rank-%u.admin.sock",
                                       settings->run_dir, settings->group, rank));
}

void worker_disk_path(const struct worker_settings *settings, char ret_path[WORKER_DISK_PATH_MAX])
{
    int length = snprintf(ret_path, WORKER_DISK_PATH_MAX, "%s/worker-%u", settings->disk_tier_path,
                          settings->group);
    ASSERT(length > 0 && (unsigned)length < WORKER_DISK_PATH_MAX);
}
