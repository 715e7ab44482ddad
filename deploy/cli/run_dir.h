/* run_dir.h - the folder of one `refrain up`: sockets of its router and workers, nothing else. */
#ifndef REFRAIN_DEPLOY_CLI_RUN_DIR_H
#define REFRAIN_DEPLOY_CLI_RUN_DIR_H

#include <limits.h>
#include <stdbool.h>

#include "proto/base/errmsg.h"

struct run_dir {
    char path[PATH_MAX]; /* "": not made */
    int lock_fd;         /* CLOEXEC; holds up.lock until it is closed */
    bool made;           /* by us: then it is removed at the end */
};

/* wanted: a path, or NULL for DEFAULT/up-PID, where DEFAULT is process_default_run_dir(). Makes it
 * (0700), locks it, and removes what dead runs left in DEFAULT. -EBUSY: another `refrain up` runs
 * in it. *ret is untouched on failure. */
int run_dir_make(const char *wanted, struct run_dir *ret, struct errmsg *err);
/* Remove our sockets and locks, and the folder when we made it and nothing else is in it. */
void run_dir_remove(struct run_dir *dir);

#endif
