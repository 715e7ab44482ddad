/* proc_stat.h - a few fields of /proc/.../stat, of a process or a thread. Thread: any. */
#ifndef REFRAIN_PROTO_BASE_PROC_STAT_H
#define REFRAIN_PROTO_BASE_PROC_STAT_H

#include <stdint.h>

struct proc_stat {
    char name[32];
    char state;
    double cpu_seconds; /* user and system; a process: of all its threads */
    uint64_t resident_bytes;
};

/* path: "/proc/1/stat", "/proc/self/task/2/stat". 0; -ESRCH: it is gone. */
int proc_stat_read(const char *path, struct proc_stat *ret_stat);

/* This process: what is resident by kind, and what the C allocator holds. */
struct proc_memory {
    uint64_t anon_bytes, file_bytes, shmem_bytes; /* resident: ours, mapped files, shared */
    uint64_t allocator_bytes;                     /* taken from the kernel by malloc */
    uint64_t allocator_free_bytes;                /* of those, in no allocation now */
};
void proc_memory_read(struct proc_memory *ret_memory);

#endif
