/* router_link.c - sockets, attached routers, one handler per message kind.
 *
 * Why a serial per attachment: a router that comes back on the same connection is another router to
 * the engine, so that nothing of its earlier life is sent to it. Why the link ends when a send
 * finds the high-water mark: a router that missed one event or token is wrong from there on; it
 * attaches again and gets Hello and a snapshot. Back-pressure: with the engine's queue nearly full
 * nothing is read, so ZeroMQ's queues fill and the routers' sends fail there. Silence is only what
 * we listened to: time in which nothing was read, by choice or because the process was stopped,
 * does not count. */
#include "worker/router_link.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

#include "proto/base/assert.h"
#include "proto/base/clock.h"
#include "proto/base/list.h"
#define LOG_MODULE "router_link"
#include "proto/base/log.h"
#include "proto/base/mem.h"
#include "proto/worker_metrics.h"
#include "worker/router_send.h"
#include "worker/submit.h"

#define SILENCE_MS 5000u
#define PAUSE_MS 1000u /* between two turns: the loop did not run */
#define ANNOUNCE_MS 500u
#define EAGER_ANNOUNCES 40u /* right after the start, while connections are being made */
#define HEARTBEAT_MS 250u
#define METRICS_EVERY 4u /* heartbeats */
#define MESSAGES_PER_TURN 256u
#define DATA_HIGH_WATER 20000
#define MESSAGE_BYTES_MAX ((int64_t)16 << 20) /* larger ones end the connection, unread */

struct attached {
    uint32_t serial; /* 0: free slot */
    struct frame_peer peer;
    char uuid[33];
    uint64_t heard_ms;
    bool snapshot_sent;
};

struct router_link {
    struct router_link_settings settings;
    struct submit_limits limits;
    void *context, *data;
    void *registrations[WORKER_ENDPOINTS_MAX];
    uint32_t registrations_count;
    struct router_sender *sender;
    struct attached routers[ROUTERS_MAX];
    uint32_t serial;
    struct kv_state kv; /* as of the last event sent */
    uint64_t turned_ms; /* last turn */
    uint64_t deaf_ms;   /* until then something may have lain unread */
    uint64_t announced_ms, beat_ms, beats;
    uint32_t announces;  /* tried */
    bool announced;      /* one has left */
    struct list waiting; /* struct waiting: submits, oldest first */
};

/* A Submit that waits for its grammar. */
struct waiting {
    struct list link;
    struct frame frame; /* its text is being compiled */
    uint32_t serial;    /* of the router */
    bool cancelled;
};

static void waiting_free(struct waiting *waiting)
{
    list_remove(&waiting->link);
    frame_done(&waiting->frame);
    mem_free(waiting);
}

/* ---- sockets ---- */

static int set_option(void *socket, int option, int value)
{
    return zmq_setsockopt(socket, option, &value, sizeof(value));
}

static int open_data(struct router_link *link, struct errmsg *err)
{
    const char *endpoint = link->settings.info->data_endpoint;
    const int64_t bytes_max = MESSAGE_BYTES_MAX;
    link->data = zmq_socket(link->context, ZMQ_ROUTER);
    if (link->data == NULL)
        return errmsg_errno(err, "data socket");
    if (set_option(link->data, ZMQ_ROUTER_MANDATORY, 1) < 0 ||
        set_option(link->data, ZMQ_ROUTER_HANDOVER, 1) < 0 ||
        set_option(link->data, ZMQ_SNDHWM, DATA_HIGH_WATER) < 0 ||
        set_option(link->data, ZMQ_RCVHWM, DATA_HIGH_WATER) < 0 ||
        set_option(link->data, ZMQ_LINGER, 0) < 0 ||
        zmq_setsockopt(link->data, ZMQ_MAXMSGSIZE, &bytes_max, sizeof(bytes_max)) < 0)
        return errmsg_errno(err, "options of the data socket");
    if (zmq_bind(link->data, endpoint) < 0)
        return errmsg_set(err, -zmq_errno(), "listen on %s: %s", endpoint,
                          zmq_strerror(zmq_errno()));
    return 0;
}

static int open_registration(struct router_link *link, const char *endpoint, struct errmsg *err)
{
    void *socket = zmq_socket(link->context, ZMQ_DEALER);
    if (socket == NULL)
        return errmsg_errno(err, "registration socket");
    link->registrations[link->registrations_count++] = socket;
    /* IMMEDIATE: nothing is queued for a router that is not there. */
    if (set_option(socket, ZMQ_SNDHWM, 4) < 0 || set_option(socket, ZMQ_LINGER, 0) < 0 ||
        set_option(socket, ZMQ_IMMEDIATE, 1) < 0 ||
        set_option(socket, ZMQ_RECONNECT_IVL, 250) < 0 ||
        set_option(socket, ZMQ_RECONNECT_IVL_MAX, 1000) < 0)
        return errmsg_errno(err, "options of a registration socket");
    if (zmq_connect(socket, endpoint) < 0)
        return errmsg_set(err, -zmq_errno(), "--router-endpoint '%s': %s", endpoint,
                          zmq_strerror(zmq_errno()));
    return 0;
}

static int open_registrations(struct router_link *link, struct errmsg *err)
{
    const char *at = link->settings.info->settings->router_endpoints;
    int r = 0;
    while (r == 0 && at != NULL) {
        size_t bytes = strcspn(at, ",");
        char *endpoint = mem_strndup(at, bytes);
        ASSERT(link->registrations_count < WORKER_ENDPOINTS_MAX);
        r = open_registration(link, endpoint, err);
        mem_free(endpoint);
        at = at[bytes] == ',' ? at + bytes + 1 : NULL;
    }
    return r;
}

int router_link_new(const struct router_link_settings *settings, struct router_link **ret_link,
                    struct errmsg *err)
{
    struct router_link *link = mem_zalloc(sizeof(*link));
    int r = 0;
    list_init(&link->waiting);
    link->settings = *settings;
    link->limits = (struct submit_limits){settings->info->card, settings->info->pool.context_tokens,
                                          settings->grammars, settings->adapters};
    link->context = zmq_ctx_new();
    ASSERT(link->context != NULL);
    r = open_data(link, err);
    if (r == 0)
        r = open_registrations(link, err);
    if (r < 0) {
        router_link_free(link, 0);
        return r;
    }
    link->sender = router_sender_new(link->data, settings->info);
    *ret_link = link;
    return 0;
}

void router_link_free(struct router_link *link, int linger_ms)
{
    if (link == NULL)
        return;
    grammars_stop(link->settings.grammars); /* it reads texts of those that wait */
    while (!list_empty(&link->waiting))
        waiting_free(LIST_ENTRY(link->waiting.next, struct waiting, link));
    router_sender_free(link->sender);
    for (uint32_t i = 0; i < link->registrations_count; i++)
        (void)zmq_close(link->registrations[i]);
    if (link->data != NULL) {
        (void)set_option(link->data, ZMQ_LINGER, linger_ms);
        (void)zmq_close(link->data);
    }
    (void)zmq_ctx_term(link->context);
    mem_free(link);
}

int router_link_fd(const struct router_link *link)
{
    int fd = -1;
    size_t bytes = sizeof(fd);
    int r = zmq_getsockopt(link->data, ZMQ_FD, &fd, &bytes);
    ASSERT(r == 0);
    return fd;
}

/* ---- attached routers ---- */

static bool same_peer(const struct frame_peer *a, const struct frame_peer *b)
{
    return a->bytes == b->bytes && memcmp(a->identity, b->identity, a->bytes) == 0;
}

static struct attached *find_peer(struct router_link *link, const struct frame_peer *peer)
{
    for (uint32_t i = 0; i < ROUTERS_MAX; i++) {
        if (link->routers[i].serial != 0 && same_peer(&link->routers[i].peer, peer))
            return &link->routers[i];
    }
    return NULL;
}

uint32_t router_link_attached(const struct router_link *link)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < ROUTERS_MAX; i++)
        count += link->routers[i].serial != 0;
    return count;
}

static void count_routers(struct router_link *link)
{
    metrics_set(worker_metrics_rank(link->settings.metrics, 0), WM_ROUTERS, 0,
                router_link_attached(link));
}

/* The engine always takes these: reading stops long before its queue is full. */
static void tell_engine(struct router_link *link, struct command *command)
{
    int r = engine_send(link->settings.engine, command);
    ASSERT(r == 0);
}

static void detach(struct router_link *link, struct attached *router, const char *why)
{
    struct command *command = command_new(COMMAND_CANCEL_ROUTER, 0);
    log_info("router_detached", "router=%.8s why=\"%s\"", router->uuid, why);
    command->router = router->serial;
    *router = (struct attached){0};
    tell_engine(link, command);
    count_routers(link);
}

/* What a send to an attached router answered. */
static void sent(struct router_link *link, struct attached *router, int r)
{
    if (r == -EHOSTUNREACH)
        detach(link, router, "gone");
    else if (r == -EAGAIN)
        detach(link, router, "does not read");
    else if (r < 0)
        detach(link, router, strerror(-r));
}

static void ask_snapshot(struct router_link *link, const struct attached *router)
{
    struct command *command = command_new(COMMAND_SNAPSHOT, 0);
    command->router = router->serial;
    tell_engine(link, command);
}

/* ---- messages from routers ---- */

static void refuse_submit(struct router_link *link, struct attached *router,
                          const Refrain__Submit *submit, int r, const struct errmsg *err)
{
    metrics_add(worker_metrics_rank(link->settings.metrics, 0), WM_REFUSED, WM_REFUSED_INVALID, 1);
    sent(link, router,
         router_send_refusal(link->sender, &router->peer, submit->request_id,
                             r == -ENOSPC || r == -ENOMEM || r == -EAGAIN ? 503
                             : r == -ENOENT                               ? 404
                                                                          : 400,
                             err->text));
}

static void take_submit(struct router_link *link, struct attached *router,
                        const Refrain__Submit *submit)
{
    struct command *command = NULL;
    struct errmsg err;
    int r = submit_to_command(submit, &link->limits, clock_ns(), &command, &err);
    if (r < 0) {
        refuse_submit(link, router, submit, r, &err);
        return;
    }
    command->router = router->serial;
    tell_engine(link, command);
}

/* ---- submits that wait for their grammar ---- */

/* NULL: it is gone. 0 is nobody's. */
static struct attached *find_serial(struct router_link *link, uint32_t serial)
{
    for (uint32_t i = 0; i < ROUTERS_MAX && serial != 0; i++) {
        if (link->routers[i].serial == serial)
            return &link->routers[i];
    }
    return NULL;
}

/* 0: nothing to wait for; 1: the frame is taken over; -EAGAIN: too many wait. */
static int wait_for_grammar(struct router_link *link, const struct attached *router,
                            struct frame *frame)
{
    const Refrain__Sampling *sampling = ((const Refrain__Submit *)frame->message)->sampling;
    if (sampling == NULL || sampling->grammar_kind == GRAMMAR_NONE)
        return 0;
    const struct grammar_spec spec = {(enum grammar_kind)sampling->grammar_kind,
                                      (const char *)sampling->grammar_text.data,
                                      sampling->grammar_text.len};
    struct waiting *waiting = mem_zalloc(sizeof(*waiting));
    int r = grammars_ask(link->settings.grammars, &spec, waiting);
    if (r <= 0) {
        mem_free(waiting);
        return r;
    }
    waiting->serial = router->serial;
    waiting->frame = *frame;
    frame->message = NULL;
    list_push_back(&link->waiting, &waiting->link);
    return r;
}

void router_link_grammars_turn(struct router_link *link)
{
    struct waiting *waiting = NULL;
    struct errmsg err = {""};
    void *popped = NULL;
    int r = 0;
    while (!engine_crowded(link->settings.engine) &&
           grammars_pop(link->settings.grammars, &popped, &r, &err)) {
        waiting = popped;
        struct attached *router = find_serial(link, waiting->serial);
        const Refrain__Submit *submit = (const Refrain__Submit *)waiting->frame.message;
        if (router != NULL && !waiting->cancelled && r < 0)
            refuse_submit(link, router, submit, r, &err);
        else if (router != NULL && !waiting->cancelled)
            take_submit(link, router, submit);
        waiting_free(waiting);
    }
}

static void cancel_waiting(struct router_link *link, uint32_t serial, const char *request_id)
{
    LIST_FOR_SAFE(at, after, &link->waiting)
    {
        struct waiting *waiting = LIST_ENTRY(at, struct waiting, link);
        const Refrain__Submit *submit = (const Refrain__Submit *)waiting->frame.message;
        if (waiting->serial == serial && strcmp(submit->request_id, request_id) == 0)
            waiting->cancelled = true; /* the text stays: it may be read just now */
    }
}

static void on_submit(struct router_link *link, struct attached *router, struct frame *frame)
{
    const Refrain__Submit *submit = (const Refrain__Submit *)frame->message;
    static const struct errmsg many = {"too many grammars are being compiled"};
    if (!submit_id_is_good(submit->request_id)) {
        sent(link, router,
             router_send_error(link->sender, &router->peer, frame->kind, -EINVAL,
                               "request_id: 1 to 64 printable ASCII characters", NULL));
        return;
    }
    int r = wait_for_grammar(link, router, frame);
    if (r < 0)
        refuse_submit(link, router, submit, r, &many);
    else if (r == 0)
        take_submit(link, router, submit);
}

static void on_cancel(struct router_link *link, struct attached *router, struct frame *frame)
{
    const Refrain__Cancel *cancel = (const Refrain__Cancel *)frame->message;
    if (!submit_id_is_good(cancel->request_id))
        return; /* cannot be running */
    cancel_waiting(link, router->serial, cancel->request_id);
    struct command *command = command_new(COMMAND_CANCEL, 0);
    command->router = router->serial;
    memcpy(command->request_id, cancel->request_id, strlen(cancel->request_id) + 1);
    tell_engine(link, command);
}

static void on_snapshot_request(struct router_link *link, struct attached *router,
                                struct frame *frame)
{
    (void)frame;
    ask_snapshot(link, router);
}

static void on_drain(struct router_link *link, struct attached *router, struct frame *frame)
{
    struct command *command = command_new(COMMAND_DRAIN, 0);
    (void)router;
    command->undo = ((const Refrain__Drain *)frame->message)->undo;
    tell_engine(link, command);
}

static void on_reset(struct router_link *link, struct attached *router, struct frame *frame)
{
    (void)router;
    (void)frame;
    tell_engine(link, command_new(COMMAND_RESET_CACHE, 0));
}

static void tell_adapters(struct router_link *link)
{
    for (uint32_t i = 0; i < ROUTERS_MAX; i++) {
        struct attached *router = &link->routers[i];
        if (router->serial != 0)
            sent(link, router,
                 router_send_adapters(link->sender, &router->peer, link->settings.adapters));
    }
}

static void on_load_adapter(struct router_link *link, struct attached *router, struct frame *frame)
{
    const Refrain__LoadAdapter *load = (const Refrain__LoadAdapter *)frame->message;
    const struct adapter_asker asker = {router->serial, load->ticket};
    struct adapters *adapters = link->settings.adapters;
    struct errmsg err = {""};
    int r = adapters != NULL ? adapters_load(adapters, load->name, load->path, asker, &err)
                             : errmsg_set(&err, -ENOTSUP,
                                          "this worker serves no adapters: start it with "
                                          "--enable-lora");
    if (r == 0)
        return; /* router_link_adapters_turn() tells */
    sent(link, router,
         router_send_adapter_result(link->sender, &router->peer, load->ticket,
                                    r == -EALREADY ? 0 : r, err.text));
}

static void on_unload_adapter(struct router_link *link, struct attached *router,
                              struct frame *frame)
{
    const Refrain__UnloadAdapter *unload = (const Refrain__UnloadAdapter *)frame->message;
    const uint32_t serial = router->serial;
    struct adapters *adapters = link->settings.adapters;
    struct errmsg err = {""};
    int r = adapters != NULL ? adapters_unload(adapters, unload->name, &err) : -ENOENT;
    if (r == 0)
        tell_adapters(link);
    if (router->serial == serial) /* else it was lost meanwhile */
        sent(link, router,
             router_send_adapter_result(link->sender, &router->peer, unload->ticket, r, err.text));
}

/* The list first: who hears of success finds the adapter in it. */
static void on_loaded(void *user, struct adapter_asker asker, int r, const char *text)
{
    struct router_link *link = user;
    if (r == 0)
        tell_adapters(link);
    struct attached *router = find_serial(link, asker.router);
    if (router != NULL)
        sent(link, router,
             router_send_adapter_result(link->sender, &router->peer, asker.ticket, r, text));
}

void router_link_adapters_turn(struct router_link *link)
{
    struct adapter_view view;
    uint32_t ready = 0;
    (void)adapters_turn(link->settings.adapters, on_loaded, link);
    for (uint32_t i = 0; i < adapters_max(link->settings.adapters); i++)
        ready += adapters_at(link->settings.adapters, i, &view);
    metrics_set(worker_metrics_rank(link->settings.metrics, 0), WM_ADAPTERS, 0, ready);
}

static void on_error(struct router_link *link, struct attached *router, struct frame *frame)
{
    const Refrain__Error *error = (const Refrain__Error *)frame->message;
    (void)link;
    log_warn("router_error", "router=%.8s kind=%s code=%d", router->uuid,
             frame_kind_name((enum frame_kind)error->kind), error->code);
}

static void attach(struct router_link *link, const struct frame_peer *peer, const char *uuid)
{
    struct attached *router = NULL;
    struct engine_status status;
    for (uint32_t i = 0; i < ROUTERS_MAX && router == NULL; i++)
        router = link->routers[i].serial == 0 ? &link->routers[i] : NULL;
    if (router == NULL) {
        (void)router_send_error(link->sender, peer, FRAME_ATTACH, -ENOSPC,
                                "16 routers are attached, the most", NULL);
        return;
    }
    *router = (struct attached){.serial = ++link->serial, .peer = *peer, .heard_ms = clock_ms()};
    memcpy(router->uuid, uuid, strlen(uuid) + 1);
    log_info("router_attached", "router=%.8s", router->uuid);
    count_routers(link);
    engine_get_status(link->settings.engine, &status);
    int r = router_send_hello(link->sender, peer, status.prefill_seconds_per_token);
    if (r == 0)
        r = router_send_adapters(link->sender, peer, link->settings.adapters);
    if (r == 0)
        ask_snapshot(link, router);
    sent(link, router, r);
}

static void on_attach(struct router_link *link, struct attached *router, struct frame *frame)
{
    const Refrain__Attach *message = (const Refrain__Attach *)frame->message;
    const char *uuid = message->router_uuid;
    if (!submit_id_is_good(uuid) || strlen(uuid) > 32) {
        (void)router_send_error(link->sender, &frame->peer, FRAME_ATTACH, -EINVAL,
                                "router_uuid: 1 to 32 printable ASCII characters", NULL);
        return;
    }
    if (router != NULL && strcmp(router->uuid, uuid) == 0)
        return; /* still there */
    if (router != NULL)
        detach(link, router, "another router on its connection");
    attach(link, &frame->peer, uuid);
}

typedef void (*handler_fn)(struct router_link *link, struct attached *router, struct frame *frame);
static const handler_fn handlers[FRAME_KINDS] = {
    [FRAME_ATTACH] = on_attach, /* the only one that may come with router NULL */
    [FRAME_SUBMIT] = on_submit,
    [FRAME_CANCEL] = on_cancel,
    [FRAME_SNAPSHOT_REQUEST] = on_snapshot_request,
    [FRAME_DRAIN] = on_drain,
    [FRAME_RESET_PREFIX_CACHE] = on_reset,
    [FRAME_ERROR] = on_error,
    [FRAME_LOAD_ADAPTER] = on_load_adapter,
    [FRAME_UNLOAD_ADAPTER] = on_unload_adapter,
};

static void dispatch(struct router_link *link, struct frame *frame)
{
    struct attached *router = find_peer(link, &frame->peer);
    handler_fn handler = handlers[frame->kind];
    if (router != NULL)
        router->heard_ms = clock_ms();
    if (handler == NULL) {
        (void)router_send_error(link->sender, &frame->peer, frame->kind, -ENOSYS,
                                "a worker does not take this message", NULL);
        return;
    }
    if (router == NULL && frame->kind != FRAME_ATTACH) {
        (void)router_send_error(link->sender, &frame->peer, frame->kind, -ENOTCONN,
                                "not attached: send Attach first", NULL);
        return;
    }
    handler(link, router, frame);
}

bool router_link_turn(struct router_link *link)
{
    uint64_t now_ms = clock_ms();
    bool crowded = engine_crowded(link->settings.engine);
    if (crowded || now_ms > link->turned_ms + PAUSE_MS)
        link->deaf_ms = now_ms;
    link->turned_ms = now_ms;
    for (uint32_t i = 0; i < MESSAGES_PER_TURN; i++) {
        struct frame frame;
        struct errmsg err = {""};
        if (engine_crowded(link->settings.engine))
            return false; /* the tick comes back */
        int r = frame_recv(link->data, 1, &frame, &err);
        if (r == -EAGAIN)
            return false;
        if (r < 0) {
            log_debug("bad_message", "code=%d error=\"%s\"", r, err.text);
            (void)router_send_error(link->sender, &frame.peer, frame.kind, r, err.text, NULL);
            continue;
        }
        dispatch(link, &frame);
        frame_done(&frame);
    }
    return true;
}

/* ---- to routers ---- */

static void send_output(struct router_link *link, struct attached *router,
                        const struct output *output)
{
    switch (output->kind) {
    case OUTPUT_STEP:
        sent(link, router, router_send_step(link->sender, &router->peer, router->serial, output));
        break;
    case OUTPUT_KV:
        if (router->snapshot_sent) /* else the snapshot that comes holds it */
            sent(link, router, router_send_kv(link->sender, &router->peer, output));
        break;
    case OUTPUT_SNAPSHOT:
        if (output->router != router->serial)
            break;
        router->snapshot_sent = true;
        sent(link, router, router_send_snapshot(link->sender, &router->peer, output));
        break;
    case OUTPUT_ANSWER:
    case OUTPUT_END:
        break;
    }
}

void router_link_output(struct router_link *link, const struct output *output)
{
    if (output->kind == OUTPUT_KV || output->kind == OUTPUT_SNAPSHOT)
        link->kv = (struct kv_state){output->kv_sequence, output->kv_blocks, output->kv_digest};
    for (uint32_t i = 0; i < ROUTERS_MAX; i++) {
        if (link->routers[i].serial != 0)
            send_output(link, &link->routers[i], output);
    }
}

static void announce(struct router_link *link)
{
    const struct worker_info *info = link->settings.info;
    Refrain__Announce message = REFRAIN__ANNOUNCE__INIT;
    message.worker_uuid = (char *)info->uuid;
    message.epoch = info->epoch;
    message.group = info->settings->group;
    message.data_endpoint = (char *)info->data_endpoint;
    link->announces++;
    for (uint32_t i = 0; i < link->registrations_count; i++) {
        if (frame_send(link->registrations[i], NULL, FRAME_ANNOUNCE, &message.base) == 0)
            link->announced = true;
    }
}

bool router_link_eager(const struct router_link *link)
{
    return !link->announced && link->announces < EAGER_ANNOUNCES;
}

static void beat(struct router_link *link)
{
    bool with_metrics = link->beats++ % METRICS_EVERY == 0;
    struct engine_status status;
    engine_get_status(link->settings.engine, &status);
    if (with_metrics)
        worker_metrics_refresh(link->settings.metrics, link->settings.info->pids);
    for (uint32_t i = 0; i < ROUTERS_MAX; i++) {
        struct attached *router = &link->routers[i];
        if (router->serial != 0)
            sent(link, router,
                 router_send_heartbeat(link->sender, &router->peer, &status, &link->kv,
                                       with_metrics ? link->settings.metrics : NULL));
    }
}

static bool is_silent(const struct router_link *link, const struct attached *router,
                      uint64_t now_ms)
{
    uint64_t since_ms = router->heard_ms > link->deaf_ms ? router->heard_ms : link->deaf_ms;
    return now_ms > since_ms + SILENCE_MS;
}

void router_link_tick(struct router_link *link, uint64_t now_ms)
{
    uint32_t attached = router_link_attached(link);
    for (uint32_t i = 0; i < ROUTERS_MAX; i++) {
        struct attached *router = &link->routers[i];
        if (router->serial != 0 && is_silent(link, router, now_ms))
            detach(link, router, "silent");
    }
    if (attached > 0 && now_ms >= link->beat_ms + HEARTBEAT_MS) {
        link->beat_ms = now_ms;
        beat(link);
    }
    if (attached < link->registrations_count &&
        (now_ms >= link->announced_ms + ANNOUNCE_MS || router_link_eager(link))) {
        link->announced_ms = now_ms;
        announce(link);
    }
}
