/* run_dir.h - the folder of one `refrain up`: sockets of its router and workers, nothing else. */
#ifndef REFRAIN_DEPLOY_CLI_RUN_DIR_H
#define REFRAIN_DEPLOY_CLI_RUN_DIR_H

#include <stddef.h>

#include "proto/base/errmsg.h"

/* wanted: a path, or NULL for DEFAULT/up-PID, where DEFAULT is process_default_run_dir(). Makes it
 * (0700), locks it, and removes what dead runs left in DEFAULT. *ret_lock_fd (CLOEXEC) holds the
 * lock until it is closed. -EBUSY: another `refrain up` runs in it. */
int run_dir_make(const char *wanted, char *ret_path, size_t path_max, int *ret_lock_fd,
                 struct errmsg *err);
/* Remove our sockets and locks, and the folder itself when nothing else is in it. Does nothing
 * while a router that is not ours to stop holds router.lock there. */
void run_dir_remove(const char *path);

#endif
