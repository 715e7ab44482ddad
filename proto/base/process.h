/* process.h - child processes, runtime folders and file-descriptor hygiene for main() functions. */
#ifndef REFRAIN_PROTO_BASE_PROCESS_H
#define REFRAIN_PROTO_BASE_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/base/errmsg.h"

/* fork+exec `argv` (argv[0] is a path). The child gets `death_signal` (0: SIGKILL) when the calling
 * *thread* ends (PR_SET_PDEATHSIG; call it from a thread that lives as long as the process), a
 * process group of its own (a terminal's Ctrl-C reaches us alone, and we stop our children in
 * order), default signal dispositions and mask, stdin from /dev/null, and every fd closed from 3 on
 * except `keep_fds` (kept under the same number). stdout_fd/stderr_fd: -1 = inherit. Returns the
 * pid or a negative errno; exec failure is reported here (a CLOEXEC pipe carries errno back). */
pid_t process_spawn(char *const argv[], const int *keep_fds, size_t keep_count, int stdout_fd,
                    int stderr_fd, int death_signal, struct errmsg *err);
/* A pidfd for poll(POLLIN when dead), CLOEXEC; or negative errno. */
int process_pidfd(pid_t pid);
/* Path of the program `name` that lies beside the running executable; -ENOENT. */
int process_sibling(const char *name, char *ret_path, size_t path_max, struct errmsg *err);
/* The default runtime folder: $XDG_RUNTIME_DIR/refrain, or /run/refrain when root and it can be
 * made, or /tmp/refrain-UID. Only a path: nothing is created. */
int process_default_run_dir(char *ret_path, size_t path_max);
/* Make `path` with parents, mode 0700, owned by us; -EPERM when it is someone else's or open to
 * others (fixed by chmod when it is ours). */
int process_make_private_dir(const char *path, struct errmsg *err);
/* SIGHUP is ignored, as by nohup: so it stays. Else it is to be taken as SIGTERM: the terminal that
 * we run in was closed. */
bool process_ignores_hangup(void);
/* Number of usable CPUs (sched_getaffinity and cgroup v2 cpu.max, rounded up), at least 1. */
unsigned process_cpus(void);
/* Memory that this process may have: the machine's, or the limit of its cgroup where that
 * is less; and what of it is available now. 0: not known. */
void process_memory(uint64_t *ret_bytes_max, uint64_t *ret_bytes_available);

#endif
