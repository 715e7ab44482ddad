/* proc_stat.h - a few fields of /proc/.../stat, of a process or a thread. Thread: any. */
#ifndef REFRAIN_WORKER_PROC_STAT_H
#define REFRAIN_WORKER_PROC_STAT_H

#include <stdint.h>

struct proc_stat {
    char name[32];
    char state;
    double cpu_seconds; /* user and system; a process: of all its threads */
    uint64_t resident_bytes;
};

/* path: "/proc/1/stat", "/proc/self/task/2/stat". 0; -ESRCH: it is gone. */
int proc_stat_read(const char *path, struct proc_stat *ret_stat);

#endif
