/* worker.c - rank 0: the order in which things start, what main waits for, how everything ends.
 *
 *   main (this file)                engine thread              io thread
 *   open: numbers, pool size
 *   start ranks, engine ----------> load weights, barrier
 *   card for routers                warm-up step
 *   wait  <------- eventfd -------- READY
 *   bind, start io ------------------------------------------> announce, serve
 *   wait: signal | rank died | engine failed
 *   stop: engine_stop ------------> refuse what runs, STOP --> OUTPUT_END: last messages, end
 *   join, reap, remove sockets
 *
 * Fail-stop: when a rank dies or the engine fails there is nothing to save: abort word, SIGKILL to
 * the ranks, socket files removed, _exit(70). The process that started us starts the group again.
 * Invariant: main is the thread that forks ranks and it lives to the end (PR_SET_PDEATHSIG). */
#include "worker/worker.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/base/assert.h"
#include "proto/base/clock.h"
#define LOG_MODULE "worker"
#include "proto/base/log.h"
#include "proto/base/mem.h"
#include "proto/base/process.h"
#include "proto/base/rng.h"
#include "proto/base/service.h"
#include "proto/worker_metrics.h"
#include "worker/info.h"
#include "worker/io.h"
#include "worker/kv/eviction.h"
#include "worker/load/card.h"
#include "worker/model_file.h"
#include "worker/start_plan.h"
#include "worker/tier/tier_folder.h"
#include "worker/tp/ranks.h"

#define STOP_ENGINE_MS 10000
#define STOP_IO_MS 2000
#define STOP_RANKS_MS 3000
#define STOP_LINGER_MS 500

struct worker {
    const struct worker_settings *settings;
    struct worker_info info;
    char *file;
    int signal_fd, disk_lock;
    struct rank_model *model;
    struct model_card *card;
    int group_fd;
    struct group *group;
    struct ranks *ranks;
    struct worker_metrics *metrics;
    struct engine *engine;
    struct grammars *grammars;      /* NULL before serving */
    struct adapters *adapters;      /* the same; NULL: none are served */
    struct io_settings io_settings; /* holds the admin context, whose address is fixed */
    struct router_link *link;
    struct io *io;
};

/* What main waits for. */
enum wake { WAKE_SIGNAL = 1, WAKE_RANK, WAKE_ENGINE };

/* ---- opening ---- */

static int block_signals(struct worker *worker, struct errmsg *err)
{
    sigset_t set;
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN); /* the disk tier hears of EFBIG */
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGTERM);
    if (!process_ignores_hangup())
        (void)sigaddset(&set, SIGHUP);
    (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
    worker->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return worker->signal_fd < 0 ? errmsg_errno(err, "signalfd") : 0;
}

static int open_admin(struct worker *worker, struct errmsg *err)
{
    struct admin_context *context = &worker->io_settings.context;
    int r = process_make_private_dir(worker->settings->run_dir, err);
    if (r < 0)
        return r;
    worker_admin_path(worker->settings, 0, worker->info.admin_path);
    return admin_socket_new(worker->info.admin_path, admin_commands_call, context, &context->admin,
                            err);
}

static void note_windows(const struct worker_settings *settings, const struct model_config *config)
{
    if (!settings->whole_windows && worker_whole_windows(settings) &&
        layer_groups_of(config, false).window > 0)
        log_warn("start_check",
                 "note=\"layers with a sliding window keep all of their KV, not %u tokens of it: "
                 "--host-tier-memory and --disk-tier-path take whole blocks\"",
                 config->window);
}

static int check_start(struct worker *worker, struct errmsg *err)
{
    const struct worker_settings *settings = worker->settings;
    struct start_facts facts = start_facts_of(settings, worker->model);
    char text[START_PLAN_TEXT_MAX];
    struct start_plan plan;

    process_memory(&facts.memory_bytes, &facts.available_bytes);
    int r = start_plan_make(settings, worker->model, &facts, &plan, err);
    if (r < 0)
        return r;
    for (uint32_t i = 0; i < plan.notes_count; i++)
        log_warn("start_check", "note=\"%s\"", plan.notes[i].text);
    note_windows(settings, &worker->model->config);
    start_plan_text(&facts, &plan, text);
    log_info("plan", "%s", text);
    worker->info.pool = plan.pool;
    worker->info.step_tokens_max = plan.step_tokens_max;
    return 0;
}

static int open_model(struct worker *worker, struct errmsg *err)
{
    const struct worker_settings *settings = worker->settings;
    int r = model_file_find(settings->model, &worker->file, err);
    if (r < 0)
        return r;
    const struct rank_model_settings open = {worker->file, 0, settings->ranks,
                                             worker_backend_settings(settings),
                                             worker_whole_windows(settings)};
    r = rank_model_open(&open, &worker->model, err);
    if (r < 0)
        return errmsg_prefix(err, r, "%s", worker->file);
    worker->info.model = worker->model;
    worker->info.block_bytes = rank_model_own_block_bytes(worker->model);
    worker->info.window_block_bytes = rank_model_own_window_block_bytes(worker->model);
    return check_start(worker, err);
}

static int open_card(struct worker *worker, struct errmsg *err)
{
    const struct worker_settings *settings = worker->settings;
    char *name = settings->served_model_name != NULL ? mem_strdup(settings->served_model_name)
                                                     : model_file_name(settings->model);
    const struct sampling_rule rule = {settings->generation_config, settings->generation_overrides};
    int r = card_from_source(worker->model->source, &worker->model->config, name, &rule,
                             &worker->card, err);
    mem_free(name);
    if (r < 0)
        return errmsg_prefix(err, r, "%s", worker->file);
    worker->info.card = worker->card;
    return model_card_pack(worker->card, &worker->info.card_packed, &worker->info.card_packed_bytes,
                           err);
}

/* Before the ranks: they open what is made and locked here. The card first: files bear its
 * fingerprint. */
static int open_disk_tier(struct worker *worker, struct errmsg *err)
{
    if (worker->settings->disk_tier_path == NULL)
        return 0;
    worker_disk_path(worker->settings, worker->info.disk_path);
    int r = open_card(worker, err);
    return r < 0 ? r : tier_folder_lock(worker->info.disk_path, &worker->disk_lock, err);
}

static int start_ranks(struct worker *worker, struct errmsg *err)
{
    const struct worker_settings *settings = worker->settings;
    const struct rank_limits limits = worker_info_limits(&worker->info);
    const struct group_limits group_limits = rank_model_group_limits(worker->model, &limits);
    if (settings->ranks == 1)
        return 0;
    int r = group_create(&group_limits, &worker->group, &worker->group_fd, err);
    if (r < 0)
        return r;
    char *flags[] = {
        mem_printf("--model=%s", worker->file),
        mem_printf("--tensor-parallel-size=%u", settings->ranks),
        mem_printf("--group=%u", settings->group),
        mem_printf("--run-dir=%s", settings->run_dir),
        mem_printf("--max-model-len=%u", limits.context_tokens_max),
        mem_printf("--max-num-seqs=%u", limits.sequences_max),
        mem_printf("--max-num-batched-tokens=%u", limits.rows_max),
        mem_printf("--threads=%u", settings->threads),
        mem_printf("--backend=%s", settings->backend == WORKER_BACKEND_REF ? "ref" : "cpu"),
        mem_printf("--cpu-isa=%s", settings->isa),
        mem_printf("--kv-cache-dtype=%s", worker_kv_dtype(settings)),
        mem_printf("--host-tier-memory=%llu", (unsigned long long)limits.host_tier_bytes),
        mem_printf("--disable-hybrid-kv-cache-manager=%s",
                   settings->whole_windows ? "true" : "false"),
        mem_printf("--disk-tier-size=%llu", (unsigned long long)settings->disk_tier_bytes),
        mem_printf("--disk-tier-buffer=%llu", (unsigned long long)settings->disk_buffer_bytes),
        mem_printf("--enable-lora=%s", settings->lora ? "true" : "false"),
        mem_printf("--max-loras=%u", settings->loras_max),
        mem_printf("--max-lora-rank=%u", settings->lora_rank_max),
        mem_printf("--rank-timeout-ms=%u", settings->rank_timeout_ms),
        mem_printf("--log-level=%s", log_level_name((enum log_level)settings->log_level)),
        settings->disk_tier_path != NULL
            ? mem_printf("--disk-tier-path=%s", settings->disk_tier_path)
            : NULL,
        NULL};
    const struct ranks_settings start = {settings->ranks, worker->group_fd, limits.kv_blocks,
                                         limits.window_blocks, flags};
    r = ranks_start(&start, &worker->ranks, err);
    for (char **flag = flags; *flag != NULL; flag++)
        mem_free(*flag);
    return r;
}

/* Attention to so many positions takes as many operations as a row's matmuls without the head. */
static uint32_t row_positions(const struct model_config *config)
{
    uint64_t heads = config->q_heads + 2ull * config->kv_heads + config->q_heads;
    uint64_t attention = 0, matmuls = 0;

    for (uint32_t i = 0; i < config->layers; i++) {
        bool experts = (config->layer_kinds[i] & LAYER_EXPERTS) != 0;
        uint64_t columns = experts ? (uint64_t)config->experts.chosen * config->experts.ffn +
                                         config->experts.shared_ffn
                                   : config->ffn;
        matmuls += config->hidden * (heads * config->head_dim + 3 * columns);
        if ((config->layer_kinds[i] & LAYER_SLIDING) == 0)
            attention += 2ull * config->q_heads * config->head_dim;
    }
    uint64_t positions = attention > 0 ? matmuls / attention : 0;
    return positions < UINT32_MAX ? (uint32_t)positions : 0;
}

static int start_engine(struct worker *worker, struct errmsg *err)
{
    const struct worker_settings *settings = worker->settings;
    const struct engine_settings engine = {
        .model = worker->model,
        .group = worker->group,
        .metrics = worker_metrics_rank(worker->metrics, 0),
        .scheduler = {.sequences_max = settings->sequences_max,
                      .step_tokens_max = worker->info.step_tokens_max,
                      .step_ms_max = settings->step_ms_max,
                      .row_positions = row_positions(&worker->model->config),
                      .context_tokens_max = worker->info.pool.context_tokens,
                      .waiting_max = settings->waiting_max,
                      .vocab_size = worker->model->config.vocab_size},
        .blocks = worker->info.pool.blocks,
        .limits = worker_info_limits(&worker->info),
        .disk_wait_ms = settings->disk_wait_ms,
        .prefix_caching = settings->prefix_caching,
        .eviction = eviction_policies[settings->eviction],
        .warm_up = settings->backend != WORKER_BACKEND_REF, /* slow there, and no one waits */
    };
    int r = engine_new(&engine, &worker->engine, err);
    return r < 0 ? r : engine_start(worker->engine, err);
}

static int open_all(struct worker *worker, struct errmsg *err)
{
    worker->info.settings = worker->settings;
    worker->info.started_ms = clock_ms();
    rng_hex_id(worker->info.uuid);
    rng_system(&worker->info.epoch, sizeof(worker->info.epoch));
    int r = block_signals(worker, err);
    if (r == 0)
        r = open_admin(worker, err);
    if (r == 0)
        r = open_model(worker, err);
    worker->metrics = worker_metrics_new(worker->settings->ranks);
    if (r == 0)
        r = open_disk_tier(worker, err);
    if (r == 0)
        r = start_ranks(worker, err);
    if (r == 0)
        r = start_engine(worker, err);
    if (r == 0 && worker->card == NULL)
        r = open_card(worker, err); /* while the engine loads */
    for (uint32_t rank = 0; r == 0 && rank < worker->settings->ranks; rank++)
        worker->info.pids[rank] = worker->ranks != NULL ? ranks_pid(worker->ranks, rank) : getpid();
    return r;
}

/* ---- waiting ---- */

static enum wake wait_for_news(struct worker *worker)
{
    for (;;) {
        struct pollfd fds[2 + TP_RANKS_MAX];
        nfds_t count = 0;
        fds[count++] = (struct pollfd){.fd = worker->signal_fd, .events = POLLIN};
        fds[count++] = (struct pollfd){.fd = engine_fd(worker->engine), .events = POLLIN};
        for (uint32_t rank = 1; rank < worker->settings->ranks; rank++)
            fds[count++] = (struct pollfd){.fd = ranks_fd(worker->ranks, rank), .events = POLLIN};
        if (poll(fds, count, -1) < 0)
            continue; /* EINTR */
        for (nfds_t i = 2; i < count; i++) {
            if (fds[i].revents != 0)
                return WAKE_RANK;
        }
        if (fds[1].revents != 0) {
            uint64_t ignored;
            if (read(fds[1].fd, &ignored, sizeof(ignored)) == (ssize_t)sizeof(ignored))
                return WAKE_ENGINE;
        }
        struct signalfd_siginfo info;
        if (fds[0].revents != 0 &&
            read(worker->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
            log_info("signal", "signal=%s", strsignal((int)info.ssi_signo));
            return WAKE_SIGNAL;
        }
    }
}

static void remove_sockets(const struct worker *worker)
{
    char path[WORKER_PATH_MAX];
    for (uint32_t rank = 0; rank < worker->settings->ranks; rank++) {
        worker_admin_path(worker->settings, rank, path);
        (void)unlink(path);
    }
    worker_data_path(worker->settings, path);
    if (worker->settings->data_endpoint == NULL && worker->link != NULL)
        (void)unlink(path);
}

/* The end without cleaning up: other threads are anywhere. */
static struct worker_exit fail_stop(struct worker *worker, int code, const char *why)
{
    if (code != 0)
        log_error("group_failed", "why=\"%s\"", why);
    if (worker->group != NULL)
        group_abort(worker->group, why);
    if (worker->ranks != NULL)
        ranks_kill(worker->ranks);
    remove_sockets(worker);
    return (struct worker_exit){.code = code, .at_once = true};
}

static struct worker_exit rank_died(struct worker *worker)
{
    struct errmsg why = {"a rank ended"};
    uint32_t rank = 0;
    int status = 0;
    if (ranks_reap(worker->ranks, &rank, &status))
        (void)errmsg_set(&why, -EIO,
                         WIFSIGNALED(status) ? "rank %u was killed by signal %d"
                                             : "rank %u ended with code %d",
                         rank, WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    return fail_stop(worker, WORKER_EXIT_GROUP, why.text);
}

/* ---- serving and stopping ---- */

static void log_start(const struct worker *worker)
{
    const struct worker_info *info = &worker->info;
    const struct pool_plan *pool = &info->pool;
    unsigned long long tokens = (unsigned long long)worker_info_blocks(info) * BLOCK_TOKENS;
    log_info("pool",
             "blocks=%u window_blocks=%u tokens=%llu max_model_len=%u sequences_at_full_length=%u "
             "bytes=%llu window_bytes=%llu dtype=%s "
             "note=\"KV cache size: %llu tokens; Maximum concurrency for %u tokens per request: "
             "%.2fx\"",
             info->model->groups.full_layers > 0 ? pool->blocks : 0, pool->window_blocks, tokens,
             pool->context_tokens, pool->sequences_at_full_context,
             (unsigned long long)worker_info_kv_bytes(info),
             (unsigned long long)pool->window_blocks * info->window_block_bytes,
             kv_dtype_name(info->model->backend->kv_dtype), tokens, pool->context_tokens,
             pool_plan_concurrency(pool));
    log_info("memory", "resident_bytes_max=%llu note=\"this rank never holds more\"",
             (unsigned long long)worker_info_bytes_max(info));
    log_info("ready",
             "model=\"%s\" group=%u ranks=%u backend=%s isa=%s threads=%u weights_bytes=%llu "
             "endpoint=%s seconds=%.2f",
             info->card->name, info->settings->group, info->settings->ranks,
             worker->model->backend->ops->name, worker->model->backend->isa,
             worker->model->backend->threads, (unsigned long long)worker->model->weights->bytes,
             info->data_endpoint, (double)(clock_ms() - info->started_ms) * 1e-3);
}

static void set_bytes_metrics(struct worker *worker)
{
    for (uint32_t rank = 0; rank < worker->settings->ranks; rank++) {
        struct metrics *metrics = worker_metrics_rank(worker->metrics, rank);
        uint64_t weights_bytes = worker->model->weights->bytes;
        uint64_t kv_bytes = worker_info_kv_bytes(&worker->info);
        if (worker->group != NULL)
            group_bytes(worker->group, rank, &weights_bytes, &kv_bytes);
        metrics_set(metrics, WM_WEIGHTS_BYTES, 0, (double)weights_bytes);
        metrics_set(metrics, WM_KV_BYTES, 0, (double)kv_bytes);
        metrics_set(metrics, WM_PREFIX_CACHING, 0, worker->settings->prefix_caching);
    }
}

/* Those of the flags are loaded before anybody can ask for them. */
static int open_adapters(struct worker *worker, struct errmsg *err)
{
    const struct worker_settings *settings = worker->settings;
    struct adapters_settings adapters = {.config = &worker->model->config,
                                         .limits = worker_lora_limits(settings),
                                         .ranks = settings->ranks,
                                         .lora = worker->model->lora};
    if (!settings->lora)
        return 0;
    for (uint32_t rank = 1; rank < settings->ranks; rank++)
        adapters.memory[rank] = group_adapters(worker->group, rank);
    int r = adapters_new(&adapters, &worker->adapters, err);
    if (r == 0)
        r = adapters_load_all(worker->adapters, settings->lora_modules, err);
    return r < 0 ? errmsg_prefix(err, r, "--lora-modules") : 0;
}

static int start_serving(struct worker *worker, struct errmsg *err)
{
    struct worker_info *info = &worker->info;
    struct admin_context *context = &worker->io_settings.context;
    char path[WORKER_PATH_MAX];
    if (worker->settings->data_endpoint != NULL) {
        (void)snprintf(info->data_endpoint, sizeof(info->data_endpoint), "%s",
                       worker->settings->data_endpoint);
    } else {
        worker_data_path(worker->settings, path);
        (void)snprintf(info->data_endpoint, sizeof(info->data_endpoint), "ipc://%s", path);
    }
    set_bytes_metrics(worker);
    worker->grammars = grammars_new(worker->card, worker->settings->grammar_bytes);
    int r = open_adapters(worker, err);
    if (r < 0)
        return r;
    const struct router_link_settings link = {info, worker->engine, worker->metrics,
                                              worker->grammars, worker->adapters};
    r = router_link_new(&link, &worker->link, err);
    if (r < 0)
        return r;
    context->info = info;
    context->engine = worker->engine;
    context->link = worker->link;
    context->metrics = worker->metrics;
    worker->io_settings.adapters = worker->adapters;
    worker->io_settings.grammars = worker->grammars;
    worker->io_settings.step_timeout_ms = worker->settings->step_timeout_ms;
    const struct kv_publisher_settings events = {
        worker->settings->kv_events_config, worker->settings->group, worker->settings->insecure_tcp,
        worker->model->groups.window > 0};
    r = kv_publisher_new(&events, &worker->io_settings.publisher, err);
    if (r < 0)
        return r;
    kv_publisher_use_adapters(worker->io_settings.publisher, worker->adapters);
    log_start(worker);
    return io_start(&worker->io_settings, &worker->io, err);
}

static void free_all(struct worker *worker)
{
    router_link_free(worker->link, STOP_LINGER_MS);
    kv_publisher_free(worker->io_settings.publisher);
    admin_socket_free(worker->io_settings.context.admin);
    engine_free(worker->engine);
    grammars_free(worker->grammars); /* the engine's sequences were in it */
    adapters_free(worker->adapters); /* and in these */
    rank_model_close(worker->model);
    ranks_free(worker->ranks);
    if (worker->group != NULL) {
        group_free(worker->group);
        (void)close(worker->group_fd);
    }
    worker_metrics_free(worker->metrics);
    model_card_unref(worker->card);
    mem_free(worker->info.card_packed);
    mem_free(worker->file);
    if (worker->signal_fd >= 0)
        (void)close(worker->signal_fd);
    if (worker->disk_lock >= 0)
        (void)close(worker->disk_lock);
}

static struct worker_exit stop(struct worker *worker)
{
    service_notify("STOPPING=1\nSTATUS=stopping");
    engine_stop(worker->engine);
    if (engine_join(worker->engine, STOP_ENGINE_MS) < 0)
        return fail_stop(worker, WORKER_EXIT_GROUP, "the engine did not stop");
    if (engine_state(worker->engine) == ENGINE_FAILED)
        return fail_stop(worker, WORKER_EXIT_GROUP, engine_failure(worker->engine));
    if (io_join(worker->io, STOP_IO_MS) < 0)
        return fail_stop(worker, WORKER_EXIT_GROUP, "the io thread did not stop");
    int r = worker->ranks != NULL ? ranks_wait(worker->ranks, STOP_RANKS_MS) : 0;
    remove_sockets(worker);
    if (r < 0)
        log_warn("ranks_did_not_stop", "error=\"%s\"", strerror(-r));
    free_all(worker);
    log_info("stopped", "code=0");
    return (struct worker_exit){0};
}

static struct worker_exit serve(struct worker *worker)
{
    struct errmsg err = {""};
    for (;;) {
        enum wake wake = wait_for_news(worker);
        bool serving = worker->io != NULL;
        if (wake == WAKE_RANK)
            return rank_died(worker);
        if (wake == WAKE_SIGNAL)
            return serving ? stop(worker) : fail_stop(worker, 0, "stopped while loading");
        if (engine_state(worker->engine) == ENGINE_FAILED) {
            if (!serving)
                (void)fprintf(stderr, "refrain-worker: %s\n", engine_failure(worker->engine));
            return fail_stop(worker, serving ? WORKER_EXIT_GROUP : WORKER_EXIT_REFUSED,
                             engine_failure(worker->engine));
        }
        if (!serving && engine_state(worker->engine) == ENGINE_READY) {
            if (start_serving(worker, &err) < 0) {
                (void)fprintf(stderr, "refrain-worker: %s\n", err.text);
                return fail_stop(worker, WORKER_EXIT_REFUSED, err.text);
            }
            service_notify("READY=1\nSTATUS=serving");
        }
    }
}

struct worker_exit worker_run(const struct worker_settings *settings)
{
    struct worker worker = {.settings = settings, .signal_fd = -1, .disk_lock = -1, .group_fd = -1};
    struct errmsg err = {""};
    char name[32];
    (void)snprintf(name, sizeof(name), "worker.%u", settings->group);
    log_init(name, (enum log_level)settings->log_level);
    if (open_all(&worker, &err) < 0) {
        (void)fprintf(stderr, "refrain-worker: %s\n", err.text);
        /* Not fail_stop's: the sockets may be those of another worker of this group. */
        if (worker.ranks != NULL)
            ranks_kill(worker.ranks);
        admin_socket_free(worker.io_settings.context.admin);
        return (struct worker_exit){.code = WORKER_EXIT_REFUSED, .at_once = true};
    }
    service_notify("STATUS=loading the model");
    return serve(&worker);
}
