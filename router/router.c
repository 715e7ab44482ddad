/* router.c - builds the parts in order, runs the loop, takes everything down in the other order.
 *
 * (picture of the states: router.h)
 * Invariant: the HTTP server is closed before the links, so that every request has cancelled its
 * dispatches by then; the links assert that none is left. */
#define LOG_MODULE "router"
#include "router/router.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "proto/base/assert.h"
#include "proto/base/clock.h"
#include "proto/base/log.h"
#include "proto/base/mem.h"
#include "proto/base/process.h"
#include "proto/base/service.h"
#include "router/api/api.h"
#include "router/heap_trim.h"
#include "router/metrics.h"
#include "router/session/chat_record.h"

#define TICK_MS 100u
#define WORKERS_MAX 64u

enum router_state { ROUTER_RUNNING = 0, ROUTER_DRAINING, ROUTER_CLOSING, ROUTER_STATES };

#define REST_BYTES ((uint64_t)64 << 20)

struct router {
    const struct router_settings *settings;
    enum router_state state;
    uv_loop_t loop;
    uv_signal_t sigint, sigterm, sighup;
    uv_timer_t tick, watchdog;
    struct api api;
    uint64_t drain_deadline_ms;
    struct heap_trim heap_trim;
    int lock_fd;
    bool locked;
};

static const bool may_follow[ROUTER_STATES][ROUTER_STATES] = {
    [ROUTER_RUNNING] = {[ROUTER_DRAINING] = true, [ROUTER_CLOSING] = true},
    [ROUTER_DRAINING] = {[ROUTER_CLOSING] = true},
};

static const char *const state_names[ROUTER_STATES] = {
    [ROUTER_RUNNING] = "running", [ROUTER_DRAINING] = "draining", [ROUTER_CLOSING] = "closing"};

static void router_set_state(struct router *router, enum router_state next, const char *why)
{
    ASSERT(may_follow[router->state][next]);
    log_info("router_state", "from=%s to=%s why=\"%s\" requests_open=%u",
             state_names[router->state], state_names[next], why,
             requests_open_count(router->api.requests));
    router->state = next;
}

/* ---- stop ---- */

static void on_links_closed(void *user)
{
    struct router *router = user;
    router->api.links = NULL; /* freed by itself; the loop ends with its last handle */
}

static void on_server_closed(void *user)
{
    struct router *router = user;
    router->api.server = NULL;
    worker_links_close(router->api.links, on_links_closed, router);
}

static void router_close(struct router *router, const char *why)
{
    router_set_state(router, ROUTER_CLOSING, why);
    uv_close((uv_handle_t *)&router->sigint, NULL);
    uv_close((uv_handle_t *)&router->sigterm, NULL);
    uv_close((uv_handle_t *)&router->sighup, NULL);
    uv_close((uv_handle_t *)&router->tick, NULL);
    uv_close((uv_handle_t *)&router->watchdog, NULL);
    http_server_close(router->api.server, on_server_closed, router);
}

static void router_drain(struct router *router, const char *why)
{
    router_set_state(router, ROUTER_DRAINING, why);
    service_notify("STOPPING=1");
    router->api.draining = true;
    router->drain_deadline_ms = clock_ms() + (uint64_t)(router->settings->drain_timeout_s * 1e3);
    http_server_drain(router->api.server);
}

static void on_signal(uv_signal_t *handle, int number)
{
    struct router *router = handle->data;
    const char *why = number == SIGINT ? "SIGINT" : number == SIGHUP ? "SIGHUP" : "SIGTERM";

    if (router->state == ROUTER_RUNNING)
        router_drain(router, why);
    else if (router->state == ROUTER_DRAINING)
        router_close(router, "second signal");
}

static void on_tick(uv_timer_t *timer)
{
    struct router *router = timer->data;
    struct http_counts counts;
    uint64_t now = clock_ms();

    requests_tick(router->api.requests, now);
    (void)heap_trim_tick(&router->heap_trim, now, requests_open_count(router->api.requests) == 0);
    if (router->state != ROUTER_DRAINING)
        return;
    http_server_counts(router->api.server, &counts);
    if (counts.clients_open == 0)
        router_close(router, "drained");
    else if (now >= router->drain_deadline_ms)
        router_close(router, "drain timeout");
}

static void on_watchdog(uv_timer_t *timer)
{
    (void)timer;
    service_notify("WATCHDOG=1");
}

/* ---- start ---- */

/* One router per folder: a second one would take the first one's socket away. */
static int lock_run_dir(struct router *router, struct errmsg *err)
{
    const char *run_dir = router->settings->run_dir;
    int r = process_make_private_dir(run_dir, err);
    if (r < 0)
        return r;
    char *path = mem_printf("%s/router.lock", run_dir);
    router->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (router->lock_fd < 0)
        r = errmsg_errno(err, "open '%s'", path);
    else if (flock(router->lock_fd, LOCK_EX | LOCK_NB) < 0)
        r = errno == EWOULDBLOCK ? errmsg_set(err, -EBUSY,
                                              "another router runs with --run-dir '%s'; give this "
                                              "one a folder of its own",
                                              run_dir)
                                 : errmsg_errno(err, "lock '%s'", path);
    router->locked = r == 0;
    mem_free(path);
    return r;
}

static void on_model(void *user, struct model_card *card)
{
    struct router *router = user;
    models_add(router->api.models, card);
}

static void on_model_gone(void *user, const char *name)
{
    struct router *router = user;
    models_gone(router->api.models, name);
}

static void on_adapter(void *user, const struct links_adapter *adapter)
{
    struct router *router = user;
    models_add_adapter(router->api.models, adapter);
}

static void on_adapter_gone(void *user, const char *name, bool forgotten)
{
    struct router *router = user;
    models_adapter_gone(router->api.models, name, forgotten);
}

static int make_links(struct router *router, struct errmsg *err)
{
    const struct router_settings *settings = router->settings;
    const struct links_settings links = {.registration_endpoint = settings->registration_endpoint,
                                         .policy = router_policy_name(settings),
                                         .workers_max = WORKERS_MAX,
                                         .dispatches_max = settings->inflight_max,
                                         .ttft_limit_seconds = settings->ttft_limit_s};
    const struct links_callbacks callbacks = {.on_model = on_model,
                                              .on_model_gone = on_model_gone,
                                              .on_adapter = on_adapter,
                                              .on_adapter_gone = on_adapter_gone,
                                              .user = router};
    return worker_links_new(&router->loop, &links, &callbacks, &router->api.links, err);
}

static int make_server(struct router *router, struct errmsg *err)
{
    const struct router_settings *settings = router->settings;
    struct http_limits limits;

    http_limits_default(&limits);
    limits.clients_max = settings->clients_max;
    limits.body_bytes_max = settings->body_bytes_max;
    limits.header_timeout_ms = (uint32_t)(settings->header_timeout_s * 1e3);
    limits.body_timeout_ms = (uint32_t)(settings->body_timeout_s * 1e3);
    limits.idle_timeout_ms = (uint32_t)(settings->idle_timeout_s * 1e3);
    limits.write_timeout_ms = (uint32_t)(settings->write_timeout_s * 1e3);
    int r = http_server_new(&router->loop, &limits, api_routes, &router->api, &router->api.server);
    if (r < 0)
        return errmsg_set(err, r, "cannot make the HTTP server: %s", uv_strerror(r));
    return http_server_listen(router->api.server, settings->host, (uint16_t)settings->port,
                              &router->api.port, err);
}

static void start_handles(struct router *router)
{
    uint64_t watchdog_ms = service_watchdog_ms();

    uv_signal_init(&router->loop, &router->sigint);
    uv_signal_init(&router->loop, &router->sigterm);
    uv_signal_init(&router->loop, &router->sighup);
    uv_timer_init(&router->loop, &router->tick);
    uv_timer_init(&router->loop, &router->watchdog);
    router->sigint.data = router->sigterm.data = router->sighup.data = router->tick.data = router;
    uv_signal_start(&router->sigint, on_signal, SIGINT);
    uv_signal_start(&router->sigterm, on_signal, SIGTERM);
    if (!process_ignores_hangup())
        uv_signal_start(&router->sighup, on_signal, SIGHUP);
    uv_timer_start(&router->tick, on_tick, TICK_MS, TICK_MS);
    if (watchdog_ms > 0)
        uv_timer_start(&router->watchdog, on_watchdog, 0, watchdog_ms);
}

static struct sessions *make_sessions(const struct router_settings *settings,
                                      struct metrics *metrics)
{
    const struct sessions_settings sessions = {
        .history = settings->history,
        .limits = {.turns_max = settings->session_turns_max,
                   .age_ms_max = (uint64_t)(settings->session_seconds_max * 1e3)},
        .records_max = settings->chat_records,
        .explain = settings->explain};
    return sessions_new(&sessions, metrics);
}

static int make_parts(struct router *router, struct errmsg *err)
{
    struct api *api = &router->api;
    int r = lock_run_dir(router, err);
    api->text_cache = text_cache_new(router->settings->text_cache_bytes);
    const struct models_settings models = {.template_path = router->settings->chat_template,
                                           .answers = router_answer_settings(router->settings),
                                           .cache = api->text_cache,
                                           .turn_memory = router->settings->turn_memory != 0,
                                           .trust_request_templates =
                                               router->settings->trust_request_templates};
    if (r == 0)
        r = models_new(&models, &api->models, err);
    if (r == 0)
        r = make_links(router, err);
    if (r < 0)
        return r;
    api->metrics = metrics_new(router_metric_specs, ROUTER_METRICS);
    api->auth = auth_new(router->settings->api_keys);
    api->sessions = make_sessions(router->settings, api->metrics);
    const struct requests_parts parts = {.loop = &router->loop,
                                         .models = api->models,
                                         .sessions = api->sessions,
                                         .links = api->links,
                                         .metrics = api->metrics,
                                         .exclude_tools = router->settings->exclude_tools,
                                         .timeout_ms =
                                             (uint32_t)(router->settings->request_timeout_s * 1e3)};
    api->requests = requests_new(&parts);
    return make_server(router, err);
}

/* Caches at their limits, and the rest: code, a model's vocabulary and tokenizer, connections, the
 * index of up to a few million blocks. Bodies and answers on their way come on top. */
static uint64_t resident_bytes_max(const struct router_settings *settings)
{
    return settings->text_cache_bytes + (uint64_t)settings->chat_records * CHAT_RECORD_BYTES_MEAN +
           REST_BYTES;
}

static void announce(const struct router *router)
{
    uint64_t bytes_max = resident_bytes_max(router->settings);
    const struct router_settings *settings = router->settings;
    struct buffer dump;

    buffer_init(&dump, 1 << 16);
    settings_dump(&router_settings_spec, settings, &dump);
    log_info("settings", "%s", dump.data);
    buffer_done(&dump);
    metrics_set(router->api.metrics, RM_RESIDENT_MAX_BYTES, 0, (double)bytes_max);
    log_info("memory",
             "resident_bytes_max=%llu note=\"caches at their limits; bodies and answers on their "
             "way come on top\"",
             (unsigned long long)bytes_max);
    log_info("listening", "host=%s port=%u", settings->host, router->api.port);
    service_notify("READY=1");
    if (settings->ready_fd > 0) {
        (void)dprintf((int)settings->ready_fd, "%u\n", router->api.port);
        (void)close((int)settings->ready_fd);
    }
}

static void on_part_closed(void *user)
{
    (void)user;
}

int router_new(const struct router_settings *settings, struct router **ret_router,
               struct errmsg *err)
{
    struct router *router = mem_zalloc(sizeof(*router));

    router->settings = settings;
    router->lock_fd = -1;
    router->api.settings = settings;
    router->api.started_ms = clock_ms();
    (void)signal(SIGPIPE, SIG_IGN);
    int r = uv_loop_init(&router->loop);
    ASSERT(r == 0);
    r = make_parts(router, err);
    if (r < 0) { /* half-built: close what there is, let the loop run out */
        if (router->api.server)
            http_server_close(router->api.server, on_part_closed, NULL);
        if (router->api.links)
            worker_links_close(router->api.links, on_part_closed, NULL);
        (void)uv_run(&router->loop, UV_RUN_DEFAULT);
        router_free(router);
        return r;
    }
    start_handles(router);
    announce(router);
    *ret_router = router;
    return 0;
}

void router_run(struct router *router)
{
    (void)uv_run(&router->loop, UV_RUN_DEFAULT);
    ASSERT(router->state == ROUTER_CLOSING);
}

/* Sockets and lock of a router that ended in order; a killed one leaves them to the next. */
static void clean_run_dir(const struct router *router)
{
    const char *endpoint = router->settings->registration_endpoint;
    char *lock = mem_printf("%s/router.lock", router->settings->run_dir);

    if (strncmp(endpoint, "ipc://", 6) == 0)
        (void)unlink(endpoint + 6);
    (void)unlink(lock);
    mem_free(lock);
}

void router_free(struct router *router)
{
    if (!router)
        return;
    requests_free(router->api.requests);
    sessions_free(router->api.sessions);
    models_free(router->api.models);
    text_cache_free(router->api.text_cache);
    auth_free(router->api.auth);
    metrics_free(router->api.metrics);
    int r = uv_loop_close(&router->loop);
    ASSERT(r == 0); /* every handle was closed */
    if (router->locked)
        clean_run_dir(router);
    if (router->lock_fd >= 0)
        (void)close(router->lock_fd);
    mem_free(router);
}
