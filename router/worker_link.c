/* worker_link.c - messages of one worker: Hello, KV events, step outputs, heartbeats.
 *
 * (picture of the states: worker_link.h)
 * Why one DEALER per worker and not one for all: a lost worker is one socket to close, nothing of
 * it can come later, and a slow one fills only its own queue. A monitor socket tells the loss of
 * the connection within a millisecond; silence (LINK_SILENCE_MS) is the net below that. Invariant:
 * `kv_sequence` is the last event batch in the index; a batch that is not its successor makes the
 * link STALE, and only a whole snapshot brings it back. */
#define LOG_MODULE "link"
#include "router/worker_link.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <zmq.h>

#include "proto/base/assert.h"
#include "proto/base/clock.h"
#include "proto/base/log.h"
#include "proto/base/mem.h"
#include "proto/vllm_metrics.h"
#include "router/link_adapters.h"

#define HIGH_WATER 20000
#define HASH_BYTES 16u
#define SECONDS_MAX 100.0 /* per token or step: more is no figure to plan with */

static const bool may_follow[LINK_STATES][LINK_STATES] = {
    [LINK_ANNOUNCED] = {[LINK_ATTACHING] = true, [LINK_GONE] = true},
    [LINK_ATTACHING] = {[LINK_COLD] = true, [LINK_GONE] = true},
    [LINK_COLD] = {[LINK_EXACT] = true, [LINK_STALE] = true, [LINK_GONE] = true},
    [LINK_EXACT] = {[LINK_STALE] = true, [LINK_GONE] = true},
    [LINK_STALE] = {[LINK_EXACT] = true, [LINK_GONE] = true},
};

static const char *const state_names[LINK_STATES] = {
    [LINK_ANNOUNCED] = "announced", [LINK_ATTACHING] = "attaching", [LINK_COLD] = "cold",
    [LINK_EXACT] = "exact",         [LINK_STALE] = "stale",         [LINK_GONE] = "gone"};

const char *link_state_name(enum link_state state)
{
    return state_names[state];
}

static void link_set_state(struct worker_link *link, enum link_state next, const char *why)
{
    ASSERT(may_follow[link->state][next]);
    log_info("worker_state", "worker=%.8s group=%u from=%s to=%s why=\"%s\"", link->uuid,
             link->group, state_names[link->state], state_names[next], why);
    link->state = next;
}

static void link_free(struct worker_link *link)
{
    ASSERT(list_empty(&link->dispatches) && link->load.count == 0);
    for (uint32_t rank = 0; rank < LINK_RANKS_MAX; rank++)
        metrics_free(link->rank_metrics[rank]);
    metrics_free(link->vllm_metrics);
    mem_free(link->endpoint);
    mem_free(link->version);
    mem_free(link->admin_socket);
    mem_free(link->kv_cache_dtype);
    mem_free(link);
}

static void on_link_closed(uv_handle_t *handle)
{
    struct worker_link *link = handle->data;
    struct worker_links *links = link->links;
    ASSERT(link->handles_open > 0);
    if (--link->handles_open == 0)
        link_free(link);
    links_handle_closed(links);
}

/* The worker will not answer these: each may try elsewhere. */
static void lose_dispatches(struct worker_link *link, const char *why)
{
    struct list lost, *item;

    list_init(&lost);
    while ((item = list_pop_front(&link->dispatches)))
        list_push_back(&lost, item); /* a retry may come back to this very link */
    while ((item = list_pop_front(&lost))) {
        struct dispatch *dispatch = LIST_ENTRY(item, struct dispatch, link);
        links_forget_dispatch(link->links, dispatch);
        if (!link->links->closing)
            dispatch->on_lost(dispatch, why);
    }
    ticket_load_check(&link->load);
}

void worker_link_lose(struct worker_link *link, const char *why)
{
    struct worker_links *links = link->links;
    if (link->state == LINK_GONE)
        return;
    link_set_state(link, LINK_GONE, why);
    metrics_add(links->metrics, LM_LOST, 0, 1);
    list_remove(&link->link);
    links->slots[link->slot] = NULL;
    prefix_index_purge(links->index, link->slot);
    uv_close((uv_handle_t *)&link->poll, on_link_closed);
    uv_close((uv_handle_t *)&link->monitor_poll, on_link_closed);
    (void)zmq_socket_monitor(link->socket, NULL, 0);
    (void)zmq_close(link->monitor);
    (void)zmq_close(link->socket);
    link->socket = NULL;

    lose_dispatches(link, why);
    link_adapters_on_lost(link);
    if (link->model)
        links_model_release(links, link->model);
    link->model = NULL;
}

void worker_link_send(struct worker_link *link, enum frame_kind kind,
                      const ProtobufCMessage *message)
{
    int r = frame_send(link->socket, NULL, kind, message);
    if (r < 0) {
        log_warn("send_failed", "worker=%.8s kind=%s error=%d", link->uuid, frame_kind_name(kind),
                 -r);
        link->overflowed = true; /* a lost Cancel would compute on: the next tick ends the link */
    }
    link->dirty = true; /* ZMQ_FD is edge-triggered: a send may have swallowed the edge */
    links_mark_dirty(link->links);
}

static void send_attach(struct worker_link *link, uint64_t now_ms)
{
    Refrain__Attach attach = REFRAIN__ATTACH__INIT;
    attach.router_uuid = link->links->uuid;
    link->attached_ms = now_ms;
    worker_link_send(link, FRAME_ATTACH, &attach.base);
}

static void ask_snapshot(struct worker_link *link, uint64_t now_ms)
{
    Refrain__SnapshotRequest request = REFRAIN__SNAPSHOT_REQUEST__INIT;
    if (link->snapshot_asked_ms + LINK_SNAPSHOT_MS > now_ms)
        return;
    link->snapshot_asked_ms = now_ms;
    worker_link_send(link, FRAME_SNAPSHOT_REQUEST, &request.base);
}

static void go_stale(struct worker_link *link, const char *why)
{
    metrics_add(link->links->metrics, LM_EVENT_GAPS, 0, 1);
    if (link->state == LINK_EXACT || link->state == LINK_COLD)
        link_set_state(link, LINK_STALE, why);
    link->snapshot_open = false;
    ask_snapshot(link, clock_ms());
}

/* A figure of a peer, in seconds: `fallback` unless it is a sane number. */
static double seconds_of(double value, double fallback)
{
    return isfinite(value) && value > 0 && value < SECONDS_MAX ? value : fallback;
}

/* A second Hello: the worker had forgotten this router (it was silent for too long, stopped
 * perhaps) and cancelled its requests. A snapshot follows. */
static void on_hello_again(struct worker_link *link)
{
    if (link->refused)
        return;
    if (link->state != LINK_STALE)
        link_set_state(link, LINK_STALE, "attached anew");
    link->snapshot_open = false;
    link_adapters_on_lost(link);
    lose_dispatches(link, "the worker had forgotten this router");
}

static void on_hello(struct worker_link *link, const Refrain__Hello *hello)
{
    struct errmsg err = {"bad numbers"};
    struct model_card *card = NULL;

    if (link->state != LINK_ATTACHING) {
        on_hello_again(link);
        return;
    }
    if (hello->ranks < 1 || hello->ranks > LINK_RANKS_MAX || hello->block_tokens != BLOCK_TOKENS ||
        model_card_unpack(hello->card.data, hello->card.len, &card, &err) < 0) {
        log_error("worker_refused", "worker=%.8s group=%u ranks=%u block_tokens=%u error=\"%s\"",
                  link->uuid, hello->group, hello->ranks, hello->block_tokens, err.text);
        metrics_add(link->links->metrics, LM_REFUSED, 0, 1);
        link->refused = true;
        return;
    }
    link->group = hello->group;
    link->ranks = hello->ranks;
    link->blocks_total = hello->blocks_total;
    link->block_tokens = hello->block_tokens;
    link->prefix_caching = hello->prefix_caching;
    link->sequences_max = hello->sequences_max;
    link->context_tokens_max = hello->context_tokens_max;
    speed_begin(&link->speed, seconds_of(hello->prefill_seconds_per_token, 0), clock_ms());
    link->version = mem_strdup(hello->version);
    link->admin_socket = mem_strdup(hello->admin_socket);
    link->kv_cache_dtype = mem_strdup(hello->kv_cache_dtype);
    for (size_t i = 0; i < hello->n_pids && i < LINK_RANKS_MAX; i++)
        link->pids[i] = hello->pids[i];
    for (uint32_t rank = 0; rank < link->ranks; rank++)
        link->rank_metrics[rank] = metrics_new(worker_metric_specs, WORKER_METRICS);
    link->vllm_metrics = metrics_new(vllm_metric_specs, VLLM_METRICS);
    link_set_state(link, LINK_COLD, "hello");
    link->model = links_model_take(link->links, card);
    model_card_unref(card);
    if (!link->model) {
        link->refused = true;
        metrics_add(link->links->metrics, LM_REFUSED, 0, 1);
    }
}

static struct block_hash hash_at(const ProtobufCBinaryData *data, size_t i)
{
    struct block_hash hash;
    memcpy(&hash.low, data->data + i * HASH_BYTES, 8);
    memcpy(&hash.high, data->data + i * HASH_BYTES + 8, 8);
    return hash; /* wire and every machine that we run on are little-endian */
}

/* Add every hash of `data` to the index; false when it is full. */
static bool add_hashes(struct worker_link *link, const ProtobufCBinaryData *data)
{
    for (size_t i = 0; i < data->len / HASH_BYTES; i++) {
        if (prefix_index_add(link->links->index, hash_at(data, i), link->slot) < 0)
            return false;
    }
    return true;
}

static void on_snapshot(struct worker_link *link, const Refrain__Snapshot *part)
{
    if (link->state < LINK_COLD || link->refused)
        return;
    if (part->first) {
        prefix_index_purge(link->links->index, link->slot);
        link->snapshot_open = true;
    }
    if (!link->snapshot_open)
        return;
    if (!add_hashes(link, &part->hashes)) {
        go_stale(link, "index full");
        return;
    }
    if (!part->last)
        return;
    link->snapshot_open = false;
    link->kv_sequence = part->barrier;
    metrics_add(link->links->metrics, LM_SNAPSHOTS, 0, 1);
    if (link->state != LINK_EXACT)
        link_set_state(link, LINK_EXACT, "snapshot");
}

static void on_kv_events(struct worker_link *link, const Refrain__KvEvents *events)
{
    struct prefix_index *index = link->links->index;

    if (link->state != LINK_EXACT || events->sequence <= link->kv_sequence)
        return;
    if (events->sequence != link->kv_sequence + 1) {
        go_stale(link, "gap in events");
        return;
    }
    link->kv_sequence = events->sequence;
    metrics_add(link->links->metrics, LM_EVENTS, 0, 1);
    if (events->cleared)
        prefix_index_purge(index, link->slot);
    for (size_t run = 0; run < events->n_stored; run++) {
        if (!add_hashes(link, &events->stored[run]->hashes)) {
            go_stale(link, "index full");
            return;
        }
    }
    for (size_t i = 0; i < events->removed.len / HASH_BYTES; i++)
        prefix_index_remove(index, hash_at(&events->removed, i), link->slot);
}

static void on_heartbeat(struct worker_link *link, const Refrain__Heartbeat *beat)
{
    struct prefix_index *index = link->links->index;

    link->running = beat->running;
    link->waiting = beat->waiting;
    link->blocks_referenced = beat->blocks_referenced;
    link->blocks_cached = beat->blocks_cached;
    link->blocks_empty = beat->blocks_empty;
    link->draining = beat->draining;
    link->step_seconds = seconds_of(beat->step_seconds, 0);
    speed_tell(&link->speed,
               seconds_of(beat->prefill_seconds_per_token, link->speed.seconds_per_token),
               clock_ms());
    for (size_t i = 0; i < beat->n_metrics; i++) {
        const Refrain__RankMetrics *list = beat->metrics[i];
        if (list->rank >= link->ranks)
            continue;
        if (metrics_flat_set(link->rank_metrics[list->rank], list->values, list->n_values) == 0 &&
            list->rank == 0)
            vllm_metrics_fill(link->rank_metrics[0], link->vllm_metrics);
    }
    if (link->state == LINK_EXACT && beat->kv_sequence == link->kv_sequence &&
        (beat->kv_blocks != prefix_index_count(index, link->slot) ||
         beat->kv_digest != prefix_index_digest(index, link->slot)))
        go_stale(link, "digest differs");
}

static void deliver(struct worker_link *link, const Refrain__StepItem *item)
{
    struct worker_links *links = link->links;
    struct dispatch *dispatch = map_get_text(links->dispatches, item->request_id);

    if (!dispatch || dispatch->ticket->load != &link->load)
        return; /* cancelled meanwhile */
    if (item->first) {
        ticket_first_token(dispatch->ticket);
        metrics_add(links->metrics, LM_PREDICTED_TOKENS, 0, dispatch->predicted_hit_tokens);
        metrics_add(links->metrics, LM_CACHED_TOKENS, 0, item->cached_tokens);
        metrics_add(links->metrics, LM_PROMPT_TOKENS, 0, (double)dispatch->ids_count);
    }
    if (item->finish != REFRAIN__FINISH__FINISH_NONE) {
        list_remove(&dispatch->link);
        links_forget_dispatch(links, dispatch);
    }
    dispatch->on_output(dispatch, item);
}

static void on_error(struct worker_link *link, const Refrain__Error *error)
{
    const char *kind = frame_kind_name((enum frame_kind)error->kind);

    if (!error->request_id[0]) {
        log_warn("worker_error", "worker=%.8s kind=%s code=%d text=\"%s\"", link->uuid, kind,
                 error->code, error->text);
        return;
    }
    /* The sentence is for the client: it may quote a grammar. */
    log_warn("worker_error", "worker=%.8s kind=%s code=%d req=%s", link->uuid, kind, error->code,
             error->request_id);
    Refrain__StepItem item = REFRAIN__STEP_ITEM__INIT;
    item.request_id = error->request_id;
    item.finish = REFRAIN__FINISH__FINISH_ERROR;
    item.error_code = 500;
    item.error_text = error->text;
    deliver(link, &item);
}

static void on_frame(struct worker_link *link, const struct frame *frame)
{
    switch (frame->kind) {
    case FRAME_HELLO:
        on_hello(link, (const Refrain__Hello *)frame->message);
        break;
    case FRAME_SNAPSHOT:
        on_snapshot(link, (const Refrain__Snapshot *)frame->message);
        break;
    case FRAME_KV_EVENTS:
        on_kv_events(link, (const Refrain__KvEvents *)frame->message);
        break;
    case FRAME_HEARTBEAT:
        on_heartbeat(link, (const Refrain__Heartbeat *)frame->message);
        break;
    case FRAME_STEP_OUTPUT: {
        const Refrain__StepOutput *output = (const Refrain__StepOutput *)frame->message;
        for (size_t i = 0; i < output->n_items && link->state != LINK_GONE; i++)
            deliver(link, output->items[i]);
        break;
    }
    case FRAME_ADAPTERS:
        link_adapters_on_list(link, (const Refrain__Adapters *)frame->message);
        break;
    case FRAME_ADAPTER_RESULT:
        link_adapters_on_result(link, (const Refrain__AdapterResult *)frame->message);
        break;
    case FRAME_ERROR:
        on_error(link, (const Refrain__Error *)frame->message);
        break;
    default:
        log_warn("unexpected_message", "worker=%.8s kind=%s", link->uuid,
                 frame_kind_name(frame->kind));
    }
}

void worker_link_drain(struct worker_link *link)
{
    struct errmsg err;

    link->dirty = false;
    for (uint32_t i = 0; i < LINK_FRAMES_PER_TURN; i++) {
        struct frame frame;
        int r = frame_recv(link->socket, 0, &frame, &err);
        if (r == -EAGAIN)
            return;
        link->heard_ms = clock_ms();
        if (r < 0) {
            log_warn("bad_message", "worker=%.8s error=\"%s\"", link->uuid, err.text);
            continue;
        }
        on_frame(link, &frame);
        frame_done(&frame);
        if (link->state == LINK_GONE)
            return;
    }
    link->dirty = true; /* more to take, next turn */
    links_mark_dirty(link->links);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct worker_link *link = poll->data;
    (void)status;
    (void)events;
    worker_link_drain(link);
}

/* Did the connection end? The only event asked for. Must be called once at the start too: a ZeroMQ
 * pipe wakes its reader only after the reader has found it empty. */
static bool monitor_drain(struct worker_link *link)
{
    bool lost = false;
    zmq_msg_t part;

    (void)zmq_msg_init(&part);
    while (zmq_msg_recv(&part, link->monitor, ZMQ_DONTWAIT) >= 0)
        lost = true;
    (void)zmq_msg_close(&part);
    return lost;
}

static void look_at_monitor(struct worker_link *link)
{
    if (!monitor_drain(link))
        return;
    worker_link_drain(link); /* what it said before it went */
    worker_link_lose(link, "connection lost");
}

static void on_monitor(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    look_at_monitor(poll->data);
}

/* Takes what is there before it calls a worker silent: it may be this loop that was busy. */
void worker_link_tick(struct worker_link *link, uint64_t now_ms)
{
    worker_link_drain(link);
    if (link->state != LINK_GONE)
        look_at_monitor(link);
    if (link->state == LINK_GONE)
        return;
    if (link->overflowed || link->heard_ms + LINK_SILENCE_MS < now_ms) {
        worker_link_lose(link, link->overflowed ? "takes no messages" : "silent");
        return;
    }
    if (link->attached_ms + LINK_ATTACH_MS <= now_ms)
        send_attach(link, now_ms);
    if (link->state == LINK_STALE && !link->snapshot_open)
        ask_snapshot(link, now_ms);
}

bool worker_link_takes_requests(const struct worker_link *link)
{
    return link->state >= LINK_COLD && link->state != LINK_GONE && !link->refused &&
           !link->draining && link->model;
}

static int open_sockets(struct worker_link *link, struct errmsg *err)
{
    int zero = 0, high_water = HIGH_WATER;
    char monitor[80];

    (void)snprintf(monitor, sizeof(monitor), "inproc://monitor-%u-%.32s", link->slot, link->uuid);
    link->socket = zmq_socket(link->links->zmq, ZMQ_DEALER);
    link->monitor = zmq_socket(link->links->zmq, ZMQ_PAIR);
    if (!link->socket || !link->monitor)
        return errmsg_set(err, -zmq_errno(), "socket: %s", zmq_strerror(zmq_errno()));
    (void)zmq_setsockopt(link->socket, ZMQ_LINGER, &zero, sizeof(zero));
    (void)zmq_setsockopt(link->monitor, ZMQ_LINGER, &zero, sizeof(zero));
    (void)zmq_setsockopt(link->socket, ZMQ_SNDHWM, &high_water, sizeof(high_water));
    (void)zmq_setsockopt(link->socket, ZMQ_RCVHWM, &high_water, sizeof(high_water));
    if (zmq_socket_monitor(link->socket, monitor, ZMQ_EVENT_DISCONNECTED) < 0 ||
        zmq_connect(link->monitor, monitor) < 0 || zmq_connect(link->socket, link->endpoint) < 0)
        return errmsg_set(err, -zmq_errno(), "connect to '%s': %s", link->endpoint,
                          zmq_strerror(zmq_errno()));
    return 0;
}

static void watch(struct worker_link *link, uv_poll_t *poll, void *socket, uv_poll_cb cb)
{
    int fd = -1;
    size_t bytes = sizeof(fd);
    (void)zmq_getsockopt(socket, ZMQ_FD, &fd, &bytes);
    int r = uv_poll_init(link->links->loop, poll, fd);
    ASSERT(r == 0);
    poll->data = link;
    link->handles_open++;
    link->links->handles_open++;
    r = uv_poll_start(poll, UV_READABLE, cb);
    ASSERT(r == 0);
}

int worker_link_new(struct worker_links *links, const Refrain__Announce *announce,
                    struct worker_link **ret_link, struct errmsg *err)
{
    uint32_t slot = 0;

    while (slot < links->settings.workers_max && links->slots[slot])
        slot++;
    if (slot == links->settings.workers_max)
        return errmsg_set(err, -ENOSPC, "%u workers are attached already, the most",
                          links->settings.workers_max);

    struct worker_link *link = mem_zalloc(sizeof(*link));
    link->links = links;
    link->slot = slot;
    link->group = announce->group;
    link->endpoint = mem_strdup(announce->data_endpoint);
    (void)snprintf(link->uuid, sizeof(link->uuid), "%s", announce->worker_uuid);
    list_init(&link->dispatches);
    ticket_load_init(&link->load);
    int r = open_sockets(link, err);
    if (r < 0) {
        if (link->monitor)
            (void)zmq_close(link->monitor);
        if (link->socket)
            (void)zmq_close(link->socket);
        link_free(link);
        return r;
    }
    list_push_back(&links->all, &link->link);
    links->slots[slot] = link;
    link->heard_ms = clock_ms();
    watch(link, &link->poll, link->socket, on_readable);
    watch(link, &link->monitor_poll, link->monitor, on_monitor);
    (void)monitor_drain(link);
    link_set_state(link, LINK_ATTACHING, "announce");
    send_attach(link, link->heard_ms);
    *ret_link = link;
    return 0;
}
