/* io.h - the io thread of rank 0: routers, the admin socket, timers. It never waits for the engine.
 *
 * Thread: start and join from main; everything handed over belongs to the thread until the join. */
#ifndef REFRAIN_WORKER_IO_H
#define REFRAIN_WORKER_IO_H

#include "worker/admin_commands.h"
#include "worker/kv_publisher.h"

struct io;

struct io_settings {
    struct admin_context context;   /* complete; the thread frees neither of its parts */
    struct adapters *adapters;      /* NULL: none are served; stay the caller's */
    struct grammars *grammars;      /* stay the caller's */
    struct kv_publisher *publisher; /* NULL: no events for others; stays the caller's */
    uint32_t step_timeout_ms;       /* a longer step: systemd's watchdog is not petted */
};

int io_start(const struct io_settings *settings, struct io **ret_io, struct errmsg *err);
/* The thread ends after the engine's OUTPUT_END. 0, or -ETIMEDOUT: it still runs. */
int io_join(struct io *io, uint32_t timeout_ms);

#endif
