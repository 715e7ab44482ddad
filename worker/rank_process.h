/* rank_process.h - what a process of rank 1..n-1 does from start to end. Thread: main. */
#ifndef REFRAIN_WORKER_RANK_PROCESS_H
#define REFRAIN_WORKER_RANK_PROCESS_H

#include "worker/settings.h"
#include "worker/tp/ranks.h"

/* The process's exit code: 0 after rank 0 said stop, WORKER_EXIT_GROUP otherwise. */
int rank_process_run(const struct worker_settings *settings,
                     const struct rank_arguments *arguments);

#endif
