/* worker_links.c - registration, models, dispatch and what is written about all workers.
 *
 * A turn of the loop: uv_poll callbacks drain readable sockets; sends mark their socket dirty (its
 * edge may be lost), and a check handle drains dirty ones before the loop sleeps; an idle handle
 * keeps it awake meanwhile. A decision costs O(blocks of the prompt + workers), no allocation but
 * the ticket and the hashes. */
#define LOG_MODULE "links"
#include "router/worker_links.h"

#include <errno.h>
#include <string.h>
#include <zmq.h>

#include "proto/base/assert.h"
#include "proto/base/clock.h"
#include "proto/base/json.h"
#include "proto/base/log.h"
#include "proto/base/mem.h"
#include "proto/base/rng.h"
#include "proto/worker_metrics.h"
#include "router/link_adapters.h"
#include "router/worker_link.h"

#define INDEX_ENTRIES_MAX (1u << 24) /* 16 M blocks: 512 MiB of index at most */
#define REGISTRATION_PER_TURN 64u
/* Prefill speed assumed until the worker has measured its own: only ratios matter at first. */
#define SECONDS_PER_TOKEN_DEFAULT 0.001

static const char *const pick_reasons[] = {"only",        "prefix",       "spill",   "cold",
                                           "round_robin", "least_loaded", "session", NULL};

#define LINK_COUNTER(name, help)                     \
    {                                                \
        name, METRIC_COUNTER, help, NULL, NULL, NULL \
    }
#define LINK_GAUGE(name, help)                     \
    {                                              \
        name, METRIC_GAUGE, help, NULL, NULL, NULL \
    }

static const struct metric_spec link_metric_specs[LINK_METRICS] = {
    [LM_DISPATCHED] = {"refrain_router_pick_total", METRIC_COUNTER,
                       "Requests sent to a worker, by why it was chosen.", "reason", pick_reasons,
                       NULL},
    [LM_PREDICTED_TOKENS] = LINK_COUNTER("refrain_router_cached_tokens_predicted_total",
                                         "Prompt tokens that the index promised as reused."),
    [LM_CACHED_TOKENS] =
        LINK_COUNTER("refrain_router_cached_tokens_total", "Prompt tokens that workers did reuse."),
    [LM_PROMPT_TOKENS] =
        LINK_COUNTER("refrain_router_prompt_tokens_total", "Prompt tokens of started requests."),
    [LM_EVENTS] =
        LINK_COUNTER("refrain_router_events_applied_total", "Batches of KV events applied."),
    [LM_EVENT_GAPS] = LINK_COUNTER("refrain_router_events_gap_total",
                                   "Times an event stream broke and a snapshot was asked for."),
    [LM_SNAPSHOTS] = LINK_COUNTER("refrain_router_snapshots_total", "Snapshots taken in."),
    [LM_LOST] = LINK_COUNTER("refrain_router_workers_lost_total", "Workers that went away."),
    [LM_REFUSED] = LINK_COUNTER("refrain_router_workers_refused_total",
                                "Workers that announced something else than their model's others."),
    [LM_WORKERS] = LINK_GAUGE("refrain_router_workers", "Workers that take requests."),
    [LM_INFLIGHT] = LINK_GAUGE("refrain_router_inflight", "Requests at workers (tickets)."),
    [LM_INDEX_ENTRIES] =
        LINK_GAUGE("refrain_router_index_entries", "Distinct blocks in the prefix index."),
    [LM_INDEX_BYTES] = LINK_GAUGE("refrain_router_index_bytes", "Memory of the prefix index."),
};

static size_t reason_label(const char *why)
{
    size_t i = 0;
    while (pick_reasons[i] && strcmp(pick_reasons[i], why) != 0)
        i++;
    ASSERT(pick_reasons[i]);
    return i;
}

/* ---- models ---- */

static struct link_model *model_find(const struct worker_links *links, const char *name)
{
    LIST_FOR(item, &links->models)
    {
        struct link_model *model = LIST_ENTRY(item, struct link_model, link);
        if (strcmp(model->card->name, name) == 0)
            return model;
    }
    return NULL;
}

bool links_has_model(const struct worker_links *links, const char *name)
{
    return model_find(links, name) != NULL;
}

struct link_model *links_model_take(struct worker_links *links, struct model_card *card)
{
    struct link_model *model = model_find(links, card->name);

    if (model && strcmp(model->card->fingerprint, card->fingerprint) != 0) {
        log_error("fingerprint_differs", "model=\"%s\" have=%s got=%s", card->name,
                  model->card->fingerprint, card->fingerprint);
        return NULL;
    }
    if (!model) {
        model = mem_zalloc(sizeof(*model));
        model->card = model_card_ref(card);
        list_push_back(&links->models, &model->link);
        model->workers = 1;
        links->callbacks.on_model(links->callbacks.user, model->card);
        return model;
    }
    model->workers++;
    return model;
}

void links_model_release(struct worker_links *links, struct link_model *model)
{
    ASSERT(model->workers > 0);
    if (--model->workers > 0)
        return;
    list_remove(&model->link);
    if (!links->closing)
        links->callbacks.on_model_gone(links->callbacks.user, model->card->name);
    model_card_unref(model->card);
    mem_free(model);
    /* The name is free: workers that were refused for another fingerprint may announce again. */
    for (uint32_t slot = 0; slot < PREFIX_INDEX_WORKERS_MAX && !links->closing; slot++) {
        if (links->slots[slot] && links->slots[slot]->refused)
            worker_link_lose(links->slots[slot], "its model's name is free");
    }
}

/* ---- registration ---- */

static void on_announce(struct worker_links *links, const Refrain__Announce *announce)
{
    struct worker_link *link;
    struct errmsg err;

    if (strlen(announce->worker_uuid) != 32 || !announce->data_endpoint[0])
        return;
    LIST_FOR(item, &links->all)
    {
        if (strcmp(LIST_ENTRY(item, struct worker_link, link)->uuid, announce->worker_uuid) == 0)
            return;
    }
    if (worker_link_new(links, announce, &link, &err) < 0)
        log_warn("announce_refused", "worker=%.8s group=%u error=\"%s\"", announce->worker_uuid,
                 announce->group, err.text);
}

static void drain_registration(struct worker_links *links)
{
    struct errmsg err;

    links->registration_dirty = false;
    for (uint32_t i = 0; i < REGISTRATION_PER_TURN; i++) {
        struct frame frame;
        int r = frame_recv(links->registration, 1, &frame, &err);
        if (r == -EAGAIN)
            return;
        if (r < 0) {
            log_warn("bad_announce", "error=\"%s\"", err.text);
            continue;
        }
        if (frame.kind == FRAME_ANNOUNCE)
            on_announce(links, (const Refrain__Announce *)frame.message);
        frame_done(&frame);
    }
    links->registration_dirty = true;
    links_mark_dirty(links);
}

static void on_registration(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    drain_registration(poll->data);
}

/* ---- loop plumbing ---- */

static void on_idle(uv_idle_t *idle)
{
    (void)idle; /* its being active is the point */
}

static void on_check(uv_check_t *check)
{
    struct worker_links *links = check->data;
    bool dirty = false;

    if (links->registration_dirty)
        drain_registration(links);
    for (uint32_t slot = 0; slot < PREFIX_INDEX_WORKERS_MAX; slot++) {
        if (links->slots[slot] && links->slots[slot]->dirty)
            worker_link_drain(links->slots[slot]);
    }
    for (uint32_t slot = 0; slot < PREFIX_INDEX_WORKERS_MAX; slot++)
        dirty = dirty || (links->slots[slot] && links->slots[slot]->dirty);
    if (!dirty && !links->registration_dirty)
        uv_idle_stop(&links->idle);
}

void links_mark_dirty(struct worker_links *links)
{
    if (!links->closing)
        uv_idle_start(&links->idle, on_idle);
}

static void on_tick(uv_timer_t *timer)
{
    struct worker_links *links = timer->data;

    drain_registration(links);
    uint64_t now = clock_ms(); /* after it: a new link has heard nothing since now */
    for (uint32_t slot = 0; slot < PREFIX_INDEX_WORKERS_MAX; slot++) {
        if (links->slots[slot])
            worker_link_tick(links->slots[slot], now);
    }
}

static void links_free(struct worker_links *links)
{
    ASSERT(map_count(links->dispatches) == 0);
    ASSERT(list_empty(&links->models));
    link_adapters_free(links);
    map_free(links->dispatches);
    prefix_index_free(links->index);
    metrics_free(links->metrics);
    mem_free((char *)links->settings.registration_endpoint);
    mem_free(links);
}

void links_handle_closed(struct worker_links *links)
{
    ASSERT(links->handles_open > 0);
    if (--links->handles_open > 0 || !links->closing)
        return;
    void (*on_closed)(void *user) = links->on_closed;
    void *user = links->on_closed_user;
    (void)zmq_ctx_term(links->zmq);
    links_free(links);
    on_closed(user);
}

static void on_handle_closed(uv_handle_t *handle)
{
    links_handle_closed(handle->data);
}

static int open_registration(struct worker_links *links, struct errmsg *err)
{
    int zero = 0, high_water = 1000, fd = -1;
    size_t bytes = sizeof(fd);

    links->registration = zmq_socket(links->zmq, ZMQ_ROUTER);
    ASSERT(links->registration);
    (void)zmq_setsockopt(links->registration, ZMQ_LINGER, &zero, sizeof(zero));
    (void)zmq_setsockopt(links->registration, ZMQ_RCVHWM, &high_water, sizeof(high_water));
    (void)zmq_setsockopt(links->registration, ZMQ_SNDHWM, &high_water, sizeof(high_water));
    if (zmq_bind(links->registration, links->settings.registration_endpoint) < 0)
        return errmsg_set(err, -zmq_errno(), "bind '%s': %s", links->settings.registration_endpoint,
                          zmq_strerror(zmq_errno()));
    (void)zmq_getsockopt(links->registration, ZMQ_FD, &fd, &bytes);
    int r = uv_poll_init(links->loop, &links->registration_poll, fd);
    ASSERT(r == 0);
    r = uv_poll_start(&links->registration_poll, UV_READABLE, on_registration);
    ASSERT(r == 0);
    return 0;
}

int worker_links_new(uv_loop_t *loop, const struct links_settings *settings,
                     const struct links_callbacks *callbacks, struct worker_links **ret_links,
                     struct errmsg *err)
{
    const struct policy *policy = policy_find(settings->policy);
    if (!policy)
        return errmsg_set(err, -EINVAL, "no policy '%s'", settings->policy);

    struct worker_links *links = mem_zalloc(sizeof(*links));
    links->loop = loop;
    links->settings = *settings;
    links->settings.registration_endpoint = mem_strdup(settings->registration_endpoint);
    if (links->settings.workers_max > PREFIX_INDEX_WORKERS_MAX)
        links->settings.workers_max = PREFIX_INDEX_WORKERS_MAX;
    links->callbacks = *callbacks;
    links->policy = policy;
    list_init(&links->all);
    list_init(&links->models);
    list_init(&links->adapters);
    links->dispatches = map_new(settings->dispatches_max);
    links->index = prefix_index_new(INDEX_ENTRIES_MAX);
    links->metrics = metrics_new(link_metric_specs, LINK_METRICS);
    rng_hex_id(links->uuid);
    links->zmq = zmq_ctx_new();
    ASSERT(links->zmq);
    int r = open_registration(links, err);
    if (r < 0) {
        (void)zmq_close(links->registration);
        (void)zmq_ctx_term(links->zmq);
        links_free(links);
        return r;
    }
    uv_timer_init(loop, &links->tick);
    uv_idle_init(loop, &links->idle);
    uv_check_init(loop, &links->check);
    links->registration_poll.data = links->tick.data = links;
    links->idle.data = links->check.data = links;
    links->handles_open = 4;
    uv_check_start(&links->check, on_check);
    uv_timer_start(&links->tick, on_tick, LINK_TICK_MS, LINK_TICK_MS);
    *ret_links = links;
    return 0;
}

void worker_links_close(struct worker_links *links, void (*on_closed)(void *user), void *user)
{
    links->closing = true;
    links->on_closed = on_closed;
    links->on_closed_user = user;
    for (uint32_t slot = 0; slot < PREFIX_INDEX_WORKERS_MAX; slot++) {
        if (links->slots[slot])
            worker_link_lose(links->slots[slot], "router stops");
    }
    uv_close((uv_handle_t *)&links->registration_poll, on_handle_closed);
    uv_close((uv_handle_t *)&links->tick, on_handle_closed);
    uv_close((uv_handle_t *)&links->idle, on_handle_closed);
    uv_close((uv_handle_t *)&links->check, on_handle_closed);
    (void)zmq_close(links->registration);
}

/* ---- dispatch ---- */

void links_forget_dispatch(struct worker_links *links, struct dispatch *dispatch)
{
    void *removed = map_remove_text(links->dispatches, dispatch->request_id);
    ASSERT(removed == dispatch);
    ticket_release(dispatch->ticket);
    dispatch->ticket = NULL;
    mem_free(dispatch->hashes);
    dispatch->hashes = NULL;
}

static void hash_prompt(struct dispatch *dispatch, const char *fingerprint,
                        const struct link_adapter *adapter)
{
    struct block_hash root =
        block_hash_root(fingerprint, adapter ? adapter->key : "", dispatch->cache_salt);
    size_t blocks = dispatch->ids_count / BLOCK_TOKENS;
    ASSERT(!dispatch->hashes);
    dispatch->hashes = mem_calloc(blocks ? blocks : 1, sizeof(*dispatch->hashes));
    dispatch->hashes_count =
        block_hash_chain(root, dispatch->ids, dispatch->ids_count, dispatch->hashes);
}

/* FNV-1a: a label for rendezvous hashing, nothing more. */
static uint64_t text_hash(const char *text)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
    return hash;
}

static void fill_view(struct worker_links *links, const struct dispatch *dispatch,
                      const struct link_model *model, const struct link_adapter *adapter,
                      struct policy_worker *workers, struct policy_view *view)
{
    uint32_t depths[PREFIX_INDEX_WORKERS_MAX] = {0};
    uint64_t mask = 0, now_ms = clock_ms();
    struct speed best = {0};

    for (uint32_t slot = 0; slot < PREFIX_INDEX_WORKERS_MAX; slot++) {
        const struct worker_link *link = links->slots[slot];
        workers[slot] = (struct policy_worker){0};
        if (!link || link->model != model || !worker_link_takes_requests(link))
            continue;
        if (adapter && !(adapter->holders & (uint64_t)1 << slot))
            continue;
        workers[slot].eligible = (int64_t)link->group != dispatch->avoid_group;
        speed_take_better(&best, &link->speed);
        if (!dispatch->no_prefix_reuse)
            mask |= (uint64_t)1 << slot;
    }
    prefix_index_depths(links->index, dispatch->hashes, dispatch->hashes_count, mask, depths);
    for (uint32_t slot = 0; slot < PREFIX_INDEX_WORKERS_MAX; slot++) {
        const struct worker_link *link = links->slots[slot];
        struct policy_worker *worker = &workers[slot];
        if (!worker->eligible)
            continue;
        worker->hit_tokens = depths[slot] * BLOCK_TOKENS;
        if (worker->hit_tokens >= dispatch->ids_count) /* one token is always computed */
            worker->hit_tokens = (uint32_t)(dispatch->ids_count - 1) / BLOCK_TOKENS * BLOCK_TOKENS;
        worker->queued_seconds = (double)link->load.queued_ns / 1e9;
        worker->seconds_per_token = speed_believed(&link->speed, &best, now_ms);
        if (worker->seconds_per_token <= 0)
            worker->seconds_per_token = SECONDS_PER_TOKEN_DEFAULT;
        worker->running = link->running;
        worker->inflight = link->load.count;
        worker->sequences_max = link->sequences_max;
        worker->blocks_total = link->blocks_total;
        worker->blocks_referenced = link->blocks_referenced;
        worker->blocks_cached = link->blocks_cached;
        worker->blocks_queued = (uint32_t)link->load.queued_blocks;
        worker->index_blocks = prefix_index_count(links->index, slot);
    }
    *view = (struct policy_view){.workers = workers,
                                 .workers_count = PREFIX_INDEX_WORKERS_MAX,
                                 .prompt_tokens = (uint32_t)dispatch->ids_count,
                                 .block_tokens = BLOCK_TOKENS,
                                 .rotation = links->rotation++};
    if (dispatch->session)
        view->session_hash = text_hash(dispatch->session);
    else if (dispatch->hashes_count)
        view->session_hash = dispatch->hashes[0].low;
}

static int submit(struct worker_link *link, const struct dispatch *dispatch)
{
    Refrain__Submit submit = REFRAIN__SUBMIT__INIT;
    submit.request_id = (char *)dispatch->request_id;
    submit.ids.data = (uint8_t *)dispatch->ids;
    submit.ids.len = dispatch->ids_count * sizeof(uint32_t);
    submit.sampling = (Refrain__Sampling *)dispatch->sampling;
    submit.adapter = (char *)(dispatch->adapter ? dispatch->adapter : "");
    submit.cache_salt = (char *)(dispatch->cache_salt ? dispatch->cache_salt : "");
    submit.priority = dispatch->priority;
    submit.deadline_ms = dispatch->deadline_ms;
    submit.no_prefix_reuse = dispatch->no_prefix_reuse;
    int r = frame_send(link->socket, NULL, FRAME_SUBMIT, &submit.base);
    link->dirty = true;
    links_mark_dirty(link->links);
    return r;
}

/* model, adapter: what was found of the names in the dispatch; NULL: nothing. */
static int check_limits(const struct worker_links *links, const struct dispatch *dispatch,
                        const struct link_model *model, const struct link_adapter *adapter,
                        struct errmsg *err)
{
    uint32_t context = links_context_tokens(links, dispatch->model);
    if (!model)
        return errmsg_set(err, -ENOENT, "the model '%s' is not served here", dispatch->model);
    if (dispatch->adapter && !adapter)
        return errmsg_set(err, -ENOENT, "the model '%s' is not served here any more",
                          dispatch->adapter);
    if (context == 0)
        return errmsg_set(err, -EAGAIN, "no worker of the model '%s' takes requests now",
                          dispatch->model);
    if (dispatch->ids_count + 1 > context)
        return errmsg_set(err, -EINVAL,
                          "the prompt has %zu tokens and the model's context is %u: there is no "
                          "room for an answer",
                          dispatch->ids_count, context);
    if (map_count(links->dispatches) >= links->settings.dispatches_max)
        return errmsg_set(err, -EBUSY, "%zu requests are in flight, the most",
                          map_count(links->dispatches));
    return 0;
}

/* The worker by the policy. 0; -EAGAIN: none takes requests; -EBUSY: too late a first token. */
static int choose_worker(struct worker_links *links, struct dispatch *dispatch,
                         const struct link_model *model, const struct link_adapter *adapter,
                         struct policy_choice *ret_choice, struct errmsg *err)
{
    struct policy_worker workers[PREFIX_INDEX_WORKERS_MAX];
    struct policy_view view;

    fill_view(links, dispatch, model, adapter, workers, &view);
    int r = links->policy->choose(&view, ret_choice);
    if (r < 0 && dispatch->avoid_group >= 0) { /* better the same group again than none */
        dispatch->avoid_group = -1;
        fill_view(links, dispatch, model, adapter, workers, &view);
        r = links->policy->choose(&view, ret_choice);
    }
    if (r < 0)
        return errmsg_set(err, -EAGAIN, "no worker of the model '%s' takes requests now",
                          dispatch->model);
    const struct policy_worker *worker = &workers[ret_choice->worker];
    dispatch->predicted_hit_tokens = worker->hit_tokens;
    dispatch->predicted_seconds = worker->queued_seconds + ret_choice->own_seconds;
    if (links->settings.ttft_limit_seconds > 0 &&
        dispatch->predicted_seconds > links->settings.ttft_limit_seconds)
        return errmsg_set(err, -EBUSY, "the first token would come in %.1f s, the limit is %.1f s",
                          dispatch->predicted_seconds, links->settings.ttft_limit_seconds);
    return 0;
}

/* The Submit is on its way: charge it and remember whose it is. */
static void charge(struct worker_links *links, struct worker_link *link, struct dispatch *dispatch,
                   const struct policy_choice *choice)
{
    uint32_t new_tokens = (uint32_t)dispatch->ids_count - dispatch->predicted_hit_tokens;

    dispatch->group = link->group;
    dispatch->why = choice->why;
    dispatch->ticket = ticket_new(&link->load, choice->own_seconds, new_tokens / BLOCK_TOKENS + 1);
    list_push_back(&link->dispatches, &dispatch->link);
    int r = map_set_text(links->dispatches, dispatch->request_id, dispatch);
    ASSERT(r == 0); /* check_limits left room */
    metrics_add(links->metrics, LM_DISPATCHED, reason_label(choice->why), 1);
    log_debug("routed", "req=%s group=%u hit_tokens=%u prompt_tokens=%zu cost_ms=%.3f why=%s",
              dispatch->request_id, link->group, dispatch->predicted_hit_tokens,
              dispatch->ids_count, choice->cost_seconds * 1e3, choice->why);
}

int links_dispatch(struct worker_links *links, struct dispatch *dispatch, struct errmsg *err)
{
    const struct link_model *model = model_find(links, dispatch->model);
    const struct link_adapter *adapter =
        dispatch->adapter ? link_adapter_find(links, dispatch->adapter) : NULL;
    struct policy_choice choice;
    ASSERT(!dispatch->ticket && dispatch->ids_count > 0);
    ASSERT(!map_get_text(links->dispatches, dispatch->request_id));

    int r = check_limits(links, dispatch, model, adapter, err);
    if (r < 0)
        return r;
    hash_prompt(dispatch, model->card->fingerprint, adapter);
    r = choose_worker(links, dispatch, model, adapter, &choice, err);
    if (r < 0)
        goto out;
    struct worker_link *link = links->slots[choice.worker];
    r = submit(link, dispatch);
    if (r < 0) {
        r = errmsg_set(err, -EBUSY, "group %u does not take more messages", link->group);
        goto out;
    }
    charge(links, link, dispatch, &choice);
out:
    if (r < 0) {
        mem_free(dispatch->hashes);
        dispatch->hashes = NULL;
    }
    return r;
}

void links_cancel(struct worker_links *links, struct dispatch *dispatch)
{
    Refrain__Cancel cancel = REFRAIN__CANCEL__INIT;
    struct worker_link *link;

    if (!dispatch->ticket)
        return;
    link = (struct worker_link *)(void *)((char *)dispatch->ticket->load -
                                          offsetof(struct worker_link, load));
    list_remove(&dispatch->link);
    links_forget_dispatch(links, dispatch);
    if (link->state == LINK_GONE)
        return;
    cancel.request_id = (char *)dispatch->request_id;
    worker_link_send(link, FRAME_CANCEL, &cancel.base);
}

/* ---- what others ask ---- */

bool links_ready(const struct worker_links *links)
{
    LIST_FOR(item, &links->all)
    {
        if (worker_link_takes_requests(LIST_ENTRY(item, struct worker_link, link)))
            return true;
    }
    return false;
}

uint32_t links_context_tokens(const struct worker_links *links, const char *model)
{
    uint32_t least = 0;
    LIST_FOR(item, &links->all)
    {
        const struct worker_link *link = LIST_ENTRY(item, struct worker_link, link);
        if (!worker_link_takes_requests(link) || strcmp(link->model->card->name, model) != 0)
            continue;
        if (!least || link->context_tokens_max < least)
            least = link->context_tokens_max;
    }
    return least;
}

uint32_t links_inflight(const struct worker_links *links)
{
    return (uint32_t)map_count(links->dispatches);
}

int links_drain_group(struct worker_links *links, uint32_t group, bool undo)
{
    Refrain__Drain drain = REFRAIN__DRAIN__INIT;
    int r = -ENOENT;
    drain.undo = undo;
    LIST_FOR(item, &links->all)
    {
        struct worker_link *link = LIST_ENTRY(item, struct worker_link, link);
        if (link->group != group)
            continue;
        link->draining = !undo; /* at once; its heartbeat confirms */
        worker_link_send(link, FRAME_DRAIN, &drain.base);
        r = 0;
    }
    return r;
}

void links_reset_prefix_cache(struct worker_links *links)
{
    Refrain__ResetPrefixCache reset = REFRAIN__RESET_PREFIX_CACHE__INIT;
    LIST_FOR(item, &links->all)
    {
        worker_link_send(LIST_ENTRY(item, struct worker_link, link), FRAME_RESET_PREFIX_CACHE,
                         &reset.base);
    }
}
