/* run_dir.h - the folder of one `refrain up`: sockets of its router and workers, nothing else. */
#ifndef REFRAIN_DEPLOY_CLI_RUN_DIR_H
#define REFRAIN_DEPLOY_CLI_RUN_DIR_H

#include <stddef.h>

#include "proto/base/errmsg.h"

/* wanted: a path, or NULL for DEFAULT/up-PID, where DEFAULT is process_default_run_dir(). Makes it
 * (0700), and removes what dead runs left in DEFAULT. */
int run_dir_make(const char *wanted, char *ret_path, size_t path_max, struct errmsg *err);
/* Remove our sockets and the folder itself when nothing else is in it. */
void run_dir_remove(const char *path);

#endif
