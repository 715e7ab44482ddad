/* worker.h - rank 0: owns everything, starts and stops it in order.
 *
 *   OPENING -> LOADING -> SERVING -> STOPPING -> exit 0
 *      |          +----------+----------+ a rank or the engine failed: fail-stop, exit 70
 *      +-- a bad setting or file: exit 1
 *
 * Thread: main. */
#ifndef REFRAIN_WORKER_WORKER_H
#define REFRAIN_WORKER_WORKER_H

#include "worker/settings.h"

#define WORKER_EXIT_REFUSED 1 /* to start: files, memory, settings that do not fit together */
#define WORKER_EXIT_USAGE 2   /* flags or cluster.conf */
#define WORKER_EXIT_GROUP 70  /* the group has failed: start it again */

struct worker_exit {
    int code;
    bool at_once; /* threads may still run: _exit, no cleaning up */
};

struct worker_exit worker_run(const struct worker_settings *settings);

#endif
