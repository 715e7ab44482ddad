/* io.c - one poll loop.
 *
 *   poll: outputs (eventfd) | ZeroMQ (ZMQ_FD), twice | adapters | grammars | admin socket and its
 *         clients | 250 ms tick
 *
 * Order in a turn: what the engine made goes out first, then commands, timers (after a read: what
 * lies in the socket is no silence), and at the very end messages are read until there are none:
 * ZMQ_FD is edge-triggered, so after any send there may be input that poll() will not tell. Idle
 * cost: four wake-ups a second. */
#include "worker/io.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "proto/base/assert.h"
#include "proto/base/clock.h"
#define LOG_MODULE "io"
#include "proto/base/log.h"
#include "proto/base/mem.h"
#include "proto/base/service.h"
#include "worker/stats.h"

#define TICK_MS 250u
#define TICK_EAGER_MS 20u /* until the first router has heard of us, for a second at most */

struct io {
    struct io_settings settings;
    pthread_t thread;
    struct stats stats;
    uint64_t ticked_ms, petted_ms, watchdog_ms;
    bool late; /* the watchdog was not petted: said once */
};

/* true: the engine has ended. */
static bool take_outputs(struct io *io)
{
    struct admin_context *context = &io->settings.context;
    struct outbox *outbox = engine_outbox(context->engine);
    struct output *output;
    while ((output = outbox_pop(outbox)) != NULL) {
        enum output_kind kind = output->kind;
        if (kind == OUTPUT_ANSWER)
            admin_socket_answer(context->admin, output->client, output->text);
        else
            router_link_output(context->link, output);
        kv_publisher_output(io->settings.publisher, output);
        outbox_recycle(outbox, output);
        if (kind == OUTPUT_END)
            return true;
    }
    return false;
}

static void pet_watchdog(struct io *io, uint64_t now_ms)
{
    uint64_t busy_ms = engine_busy_ms(io->settings.context.engine);
    if (io->watchdog_ms == 0 || now_ms < io->petted_ms + io->watchdog_ms)
        return;
    if (busy_ms > io->settings.step_timeout_ms) {
        if (!io->late)
            log_error("step_too_long", "busy_ms=%llu limit_ms=%u", (unsigned long long)busy_ms,
                      io->settings.step_timeout_ms);
        io->late = true;
        return;
    }
    io->late = false;
    io->petted_ms = now_ms;
    service_notify("WATCHDOG=1");
}

static void tick(struct io *io, uint64_t now_ms)
{
    io->ticked_ms = now_ms;
    (void)router_link_turn(io->settings.context.link); /* the caller comes back for the rest */
    router_link_tick(io->settings.context.link, now_ms);
    stats_tick(&io->stats, io->settings.context.engine,
               worker_metrics_rank(io->settings.context.metrics, 0), now_ms);
    pet_watchdog(io, now_ms);
}

static uint64_t tick_ms(const struct io *io)
{
    return router_link_eager(io->settings.context.link) ? TICK_EAGER_MS : TICK_MS;
}

static int time_to_tick(const struct io *io)
{
    uint64_t now_ms = clock_ms(), due_ms = io->ticked_ms + tick_ms(io);
    return now_ms >= due_ms ? 0 : (int)(due_ms - now_ms);
}

static void *io_main(void *user)
{
    struct io *io = user;
    struct admin_context *context = &io->settings.context;
    bool more = false, ended = false;
    while (!ended) {
        struct pollfd fds[5 + ADMIN_CLIENTS_MAX + 1];
        struct adapters *adapters = io->settings.adapters;
        fds[0] = (struct pollfd){.fd = outbox_fd(engine_outbox(context->engine)), .events = POLLIN};
        fds[1] = (struct pollfd){.fd = router_link_fd(context->link), .events = POLLIN};
        fds[2] = (struct pollfd){.fd = kv_publisher_fd(io->settings.publisher), .events = POLLIN};
        fds[3] =
            (struct pollfd){.fd = adapters != NULL ? adapters_fd(adapters) : -1, .events = POLLIN};
        fds[4] = (struct pollfd){.fd = grammars_fd(io->settings.grammars), .events = POLLIN};
        uint32_t admin_count = admin_socket_fds(context->admin, fds + 5);
        (void)poll(fds, 5 + admin_count, more ? 0 : time_to_tick(io));
        ended = take_outputs(io);
        uint64_t now_ms = clock_ms();
        admin_socket_turn(context->admin, fds + 5, admin_count, now_ms);
        kv_publisher_turn(io->settings.publisher);
        if (!ended && adapters != NULL)
            router_link_adapters_turn(context->link);
        if (!ended)
            router_link_grammars_turn(context->link);
        if (!ended && now_ms >= io->ticked_ms + tick_ms(io))
            tick(io, now_ms);
        if (!ended)
            more = router_link_turn(context->link);
    }
    return NULL;
}

int io_start(const struct io_settings *settings, struct io **ret_io, struct errmsg *err)
{
    struct io *io = mem_zalloc(sizeof(*io));
    io->settings = *settings;
    io->watchdog_ms = service_watchdog_ms();
    int r = pthread_create(&io->thread, NULL, io_main, io);
    if (r != 0) {
        mem_free(io);
        return errmsg_set(err, -r, "start the io thread: %s", strerror(r));
    }
    (void)pthread_setname_np(io->thread, "io");
    *ret_io = io;
    return 0;
}

int io_join(struct io *io, uint32_t timeout_ms)
{
    struct timespec deadline;
    (void)clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += timeout_ms / 1000 + 1;
    if (pthread_timedjoin_np(io->thread, NULL, &deadline) != 0)
        return -ETIMEDOUT;
    mem_free(io);
    return 0;
}
