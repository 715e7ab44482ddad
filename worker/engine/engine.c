/* engine.c - the thread: load, then `take messages -> plan -> forward -> sample -> commit ->
 * publish`.
 *
 * Straight on purpose: nothing here happens at the same time as anything else, so scheduler and
 * pool need no locks, and a command (cancel, snapshot, a look at all sequences) sees them between
 * two steps. Waiting: for commands when there is nothing to do, for a spare output buffer when the
 * io thread is behind, for other ranks inside a step (with a deadline).
 * Failure: a rank that is gone or a kernel error ends the group; the thread stores why and returns,
 * main ends the process. Invariant: no allocation between plan and publish. */
#include "worker/engine/engine.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "proto/base/assert.h"
#include "proto/base/clock.h"
#include "proto/base/mem.h"
#include "proto/worker_metrics.h"
#include "worker/engine/engine_private.h"

#define LOAD_TIMEOUT_MS (30 * 60 * 1000) /* of the slowest rank; a dead one ends it at once */
#define STALLED_WAIT_MS 10
#define TIER_WAIT_MS 1   /* between two looks at what the disk has done */
#define TIER_END_MS 3000 /* at the end, for blocks that have no file yet */
#define WARM_UP_ROWS 16u
#define PREFILL_ROWS_MIN 16u /* of a step from which the cost of a prompt token is learnt */
#define MEAN_WEIGHT 0.1
#define PINNED_PART 2 /* of the pool, at most, may be held by leases */

static void set_state(struct engine *engine, enum engine_state next)
{
    static const bool may_follow[4][4] = {
        [ENGINE_LOADING] = {[ENGINE_READY] = true, [ENGINE_ENDED] = true, [ENGINE_FAILED] = true},
        [ENGINE_READY] = {[ENGINE_ENDED] = true, [ENGINE_FAILED] = true},
    };
    const uint64_t one = 1;
    ASSERT(may_follow[atomic_load(&engine->state)][next]);
    atomic_store(&engine->state, next);
    ssize_t written = write(engine->fd, &one, sizeof(one));
    ASSERT(written == (ssize_t)sizeof(one));
}

/* Pool, tiers and scheduler, which know of each other by callbacks only. */
static int make_books(struct engine *engine, struct errmsg *err)
{
    const struct engine_settings *settings = &engine->settings;
    struct tier_settings tiers = rank_model_tiers(settings->model, &settings->limits);
    struct scheduler_settings scheduler = settings->scheduler;
    struct block_pool_settings pool = {
        .blocks_total = settings->blocks,
        .prefix_caching = settings->prefix_caching,
        .eviction = settings->eviction,
        .pinned_blocks_max = settings->blocks / PINNED_PART,
        .window_tokens = settings->model->groups.window,
        .window_blocks = settings->limits.window_blocks,
        .events = kv_events_callbacks(&engine->kv_events),
    };
    int r = 0;
    for (uint32_t rank = 0; rank < tiers.disk.ranks; rank++)
        tiers.disk.done[rank] = settings->group != NULL ? group_tier_done(settings->group, rank)
                                                        : settings->model->tier_done;
    if (tiers.host_slots > 0 || tiers.disk.nodes_max > 0)
        r = tier_new(&tiers, &engine->tier, err);
    if (engine->tier != NULL) {
        tier_watch_pool(engine->tier, &pool.events);
        scheduler.tiers = tier_lookup_of(engine->tier);
        scheduler.tiers.wait_max_ns = settings->disk_wait_ms * 1000000ull;
    }
    if (r == 0)
        r = block_pool_new(&pool, &engine->pool, err);
    engine->kv_events.pool = engine->pool;
    return r < 0 ? r : scheduler_new(&scheduler, engine->pool, &engine->scheduler, err);
}

size_t engine_logits_bytes(uint32_t sequences_max, const struct model_config *config)
{
    return ((size_t)sequences_max + SCORED_ROWS_MAX) * config->vocab_size * sizeof(float);
}

int engine_new(const struct engine_settings *settings, struct engine **ret_engine,
               struct errmsg *err)
{
    struct engine *engine = mem_zalloc(sizeof(*engine));
    const struct scheduler_settings *sched = &settings->scheduler;
    uint32_t at_once = sched->sequences_max + sched->waiting_max + ENGINE_COMMANDS_PER_TURN;
    uint32_t table_max = (sched->context_tokens_max + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
    void *logits = NULL;
    int r = 0;

    engine->settings = *settings;
    engine->commands = queue_new(ENGINE_COMMANDS_MAX);
    engine->outbox =
        outbox_new(at_once + ENGINE_COMMANDS_PER_TURN, sched->sequences_max + SCORED_ROWS_MAX);
    engine->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ASSERT(engine->fd >= 0);
    (void)pthread_mutex_init(&engine->status_lock, NULL);
    engine->requests = requests_new(at_once);
    engine->results = mem_calloc(sched->sequences_max, sizeof(*engine->results));
    engine_make_samplers(engine);
    engine->scores = mem_calloc(SCORED_ROWS_MAX, sizeof(*engine->scores));
    engine->commit_items = mem_calloc(at_once, sizeof(*engine->commit_items));
    kv_events_init(&engine->kv_events, engine->outbox);
    r = make_books(engine, err);
    if (r == 0)
        r = batch_init(&engine->batch, sched->step_tokens_max, sched->sequences_max, table_max,
                       err);
    if (r == 0 && settings->limits.window_blocks > 0)
        r = batch_add_windows(&engine->batch, engine->pool,
                              settings->model->groups.full_layers == 0, err);
    engine->logits_bytes = engine_logits_bytes(sched->sequences_max, &settings->model->config);
    if (r == 0 && mem_map(engine->logits_bytes, &logits) < 0)
        r = errmsg_set(err, -ENOMEM, "logits of %u sequences: %zu bytes", sched->sequences_max,
                       engine->logits_bytes);
    engine->logits = logits;
    if (r < 0) {
        engine_free(engine);
        return r;
    }
    *ret_engine = engine;
    return 0;
}

void engine_free(struct engine *engine)
{
    struct command *command;
    if (engine == NULL)
        return;
    ASSERT(!engine->started);
    while ((command = queue_pop(engine->commands)) != NULL)
        command_free(command);
    queue_free(engine->commands);
    if (engine->scheduler != NULL)
        scheduler_free(engine->scheduler);
    if (engine->pool != NULL)
        block_pool_free(engine->pool);
    tier_free(engine->tier);
    requests_free(engine->requests);
    engine_free_samplers(engine);
    batch_done(&engine->batch);
    if (engine->logits != NULL)
        mem_unmap(engine->logits, engine->logits_bytes);
    mem_free(engine->results);
    mem_free(engine->scores);
    mem_free(engine->commit_items);
    outbox_free(engine->outbox); /* after the pool: its events point into it */
    (void)pthread_mutex_destroy(&engine->status_lock);
    (void)close(engine->fd);
    mem_free(engine);
}

/* One forward pass on all ranks. */
static int forward(struct engine *engine)
{
    const struct step_descriptor *descriptor = &engine->batch.descriptor;
    if (engine->settings.group != NULL) {
        group_beat(engine->settings.group, descriptor->number);
        int r = step_ring_publish(engine->settings.group, descriptor);
        ASSERT(r != -EMSGSIZE);
        if (r < 0)
            return r;
    }
    return rank_model_forward(engine->settings.model, descriptor, engine->logits);
}

static void learn_costs(struct engine *engine, uint32_t rows, uint32_t prefill_rows, double seconds)
{
    double *mean = &engine->step_seconds, *token = &engine->prefill_seconds_per_token;
    *mean = *mean == 0 ? seconds : *mean + MEAN_WEIGHT * (seconds - *mean);
    if (prefill_rows >= PREFILL_ROWS_MIN && prefill_rows > rows / 2) {
        double weight = 1.0 / ++engine->prefill_samples; /* the first replaces the warm-up's */
        *token += (weight > MEAN_WEIGHT ? weight : MEAN_WEIGHT) * (seconds / rows - *token);
    }
    engine->steps++;
    engine->step_rows += rows;
    metrics_add(engine->settings.metrics, WM_STEPS, 0, 1);
    metrics_add(engine->settings.metrics, WM_STEP_ROWS, 0, rows);
    metrics_observe(engine->settings.metrics, WM_STEP_TOKENS, 0, rows);
    metrics_observe(engine->settings.metrics, WM_STEP_SECONDS, 0, seconds);
}

int engine_turn(struct engine *engine, bool *ret_idle)
{
    struct step_plan plan;
    uint64_t start_ns = clock_ns();
    uint32_t prefill_rows;

    engine_tier_begin(engine, start_ns);
    scheduler_plan(engine->scheduler, start_ns, &plan);
    prefill_rows = batch_prefill_rows(&plan);
    bool has_tier_ops = engine_add_tier_ops(engine);
    if (plan.rows > 0 || has_tier_ops) {
        batch_build(&engine->batch, &plan);
        int r = forward(engine);
        if (r < 0)
            return r;
        engine_look_at_logits(engine, &plan);
        engine_publish_scores(engine, &plan);
    }
    engine_tier_step_done(engine, &plan);
    uint64_t now_ns = clock_ns();
    uint32_t count =
        scheduler_commit(engine->scheduler, &plan, engine->results, now_ns, engine->commit_items);
    if (plan.rows > 0)
        learn_costs(engine, plan.rows, prefill_rows, (double)(now_ns - start_ns) * 1e-9);
    engine_publish_commit(engine, count, now_ns);
    engine_flush(engine);
    engine_update_status(engine);
    *ret_idle = plan.rows == 0 && count == 0;
    return 0;
}

static int run(struct engine *engine)
{
    bool stalled = false;
    while (!engine->stopping) {
        if (scheduler_idle(engine->scheduler) || stalled) {
            bool tier_works = engine->tier != NULL && tier_busy(engine->tier);
            atomic_store(&engine->busy_since_ms, 0);
            (void)queue_wait(engine->commands, tier_works ? TIER_WAIT_MS
                                               : stalled  ? STALLED_WAIT_MS
                                                          : -1);
        }
        atomic_store(&engine->busy_since_ms, clock_ms());
        engine_take_commands(engine);
        int r = engine_turn(engine, &stalled);
        if (r < 0)
            return r;
        stalled = stalled && !scheduler_idle(engine->scheduler);
    }
    return 0;
}

static int warm_up(struct engine *engine)
{
    uint64_t start_ns = clock_ns();
    batch_build_warm_up(&engine->batch, WARM_UP_ROWS);
    int r = forward(engine);
    if (r == 0)
        engine->prefill_seconds_per_token = (double)(clock_ns() - start_ns) * 1e-9 / WARM_UP_ROWS;
    return r;
}

static int load(struct engine *engine, struct errmsg *err)
{
    const struct engine_settings *settings = &engine->settings;
    int r = rank_model_load(settings->model, &settings->limits, settings->group, err);
    if (r == 0)
        r = engine_scan_tiers(engine, err);
    if (r == 0 && settings->group != NULL && group_barrier(settings->group, LOAD_TIMEOUT_MS) < 0)
        r = errmsg_set(err, -ECANCELED, "wait for the other ranks to load");
    if (r == 0 && settings->warm_up && warm_up(engine) < 0)
        r = errmsg_set(err, -ECANCELED, "first step");
    return r;
}

static void fail(struct engine *engine, const struct errmsg *err)
{
    struct group *group = engine->settings.group;
    const char *aborted = group != NULL ? group_aborted(group) : NULL;
    if (aborted != NULL)
        (void)errmsg_set(&engine->failure, -ECANCELED, "%s: %s", err->text, aborted);
    else
        engine->failure = *err;
    if (group != NULL)
        group_abort(group, "rank 0 failed");
    set_state(engine, ENGINE_FAILED);
}

/* Tell everyone that nothing comes any more. */
static int end(struct engine *engine)
{
    bool idle = false;
    engine_refuse_all(engine, 503, "the worker is stopping");
    uint64_t end_ms = clock_ms() + TIER_END_MS;
    int r = engine_turn(engine, &idle);
    while (r == 0 && engine->tier != NULL && tier_busy(engine->tier) && clock_ms() < end_ms) {
        (void)queue_wait(engine->commands, TIER_WAIT_MS);
        engine_take_commands(engine);
        r = engine_turn(engine, &idle);
    }
    if (r < 0)
        return r;
    outbox_push(engine->outbox, outbox_take(engine->outbox, OUTPUT_END));
    if (engine->settings.group != NULL) {
        const struct step_descriptor stop = {.kind = STEP_STOP,
                                             .number = engine->batch.descriptor.number + 1};
        r = step_ring_publish(engine->settings.group, &stop);
    }
    return r;
}

static void *engine_main(void *user)
{
    struct engine *engine = user;
    struct errmsg err = {""};
    int r = load(engine, &err);
    if (r == 0) {
        engine_update_status(engine);
        set_state(engine, ENGINE_READY);
        r = run(engine);
        if (r == 0)
            r = end(engine);
        if (r < 0)
            (void)errmsg_set(&err, r, "step %llu",
                             (unsigned long long)engine->batch.descriptor.number);
    }
    atomic_store(&engine->busy_since_ms, 0);
    if (r < 0)
        fail(engine, &err);
    else
        set_state(engine, ENGINE_ENDED);
    return NULL;
}

int engine_start(struct engine *engine, struct errmsg *err)
{
    int r = pthread_create(&engine->thread, NULL, engine_main, engine);
    if (r != 0)
        return errmsg_set(err, -r, "start the engine thread: %s", strerror(r));
    (void)pthread_setname_np(engine->thread, "engine");
    engine->started = true;
    return 0;
}

int engine_send(struct engine *engine, struct command *command)
{
    return queue_push(engine->commands, command);
}

bool engine_crowded(const struct engine *engine)
{
    return queue_count(engine->commands) > ENGINE_COMMANDS_MAX - 64;
}

void engine_stop(struct engine *engine)
{
    struct command *command = command_new(COMMAND_STOP, 0);
    atomic_store(&engine->stop_asked, true);
    if (engine_send(engine, command) < 0)
        command_free(command); /* full: the engine is awake and looks at the flag */
}

struct outbox *engine_outbox(struct engine *engine)
{
    return engine->outbox;
}

enum engine_state engine_state(const struct engine *engine)
{
    return (enum engine_state)atomic_load(&engine->state);
}

const char *engine_failure(const struct engine *engine)
{
    ASSERT(engine_state(engine) == ENGINE_FAILED);
    return engine->failure.text;
}

int engine_fd(const struct engine *engine)
{
    return engine->fd;
}

int engine_join(struct engine *engine, uint32_t timeout_ms)
{
    struct timespec deadline;
    if (!engine->started)
        return 0;
    (void)clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += timeout_ms / 1000;
    deadline.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
    if (deadline.tv_nsec >= 1000000000) {
        deadline.tv_sec++;
        deadline.tv_nsec -= 1000000000;
    }
    if (pthread_timedjoin_np(engine->thread, NULL, &deadline) != 0)
        return -ETIMEDOUT;
    engine->started = false;
    return 0;
}

void engine_get_status(struct engine *engine, struct engine_status *ret_status)
{
    (void)pthread_mutex_lock(&engine->status_lock);
    *ret_status = engine->status;
    (void)pthread_mutex_unlock(&engine->status_lock);
}

uint64_t engine_busy_ms(const struct engine *engine)
{
    uint64_t since = atomic_load(&engine->busy_since_ms), now = clock_ms();
    return since == 0 || now < since ? 0 : now - since;
}
