/* process_limits.c - how many CPUs and how much memory we may really use.
 *
 * A container often sees all of the machine and is limited instead: threads beyond the quota only
 * wait for each other, memory beyond the limit ends the process. So the smaller of what there is
 * and what is allowed counts, at each level of our cgroup. */
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/process.h"

#define CGROUP_ROOT "/sys/fs/cgroup"
#define CPUS_MAX 4096u

static unsigned cpus_of_affinity(void)
{
    cpu_set_t *set = CPU_ALLOC(CPUS_MAX);
    size_t bytes = CPU_ALLOC_SIZE(CPUS_MAX);
    int count = 0;

    if (set == NULL)
        return 1;
    if (sched_getaffinity(0, bytes, set) == 0)
        count = CPU_COUNT_S(bytes, set);
    CPU_FREE(set);
    return count > 0 ? (unsigned)count : 1;
}

/* Quota of one level, rounded up; 0: none. */
static uint64_t cpus_of_level(const char *folder)
{
    char path[4200];
    unsigned long long quota;
    unsigned long long period;
    uint64_t cpus = 0;
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/cpu.max", folder);
    file = fopen(path, "re");
    if (file == NULL)
        return 0;
    if (fscanf(file, "%llu %llu", &quota, &period) == 2 && quota > 0 && period > 0)
        cpus = (quota + period - 1) / period; /* "max 100000" has no number in front */
    (void)fclose(file);
    return cpus;
}

/* The number in a file of one level; 0: none ("max"), or no such file. */
static uint64_t bytes_of_file(const char *folder, const char *name)
{
    char path[4200];
    unsigned long long bytes = 0;
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    file = fopen(path, "re");
    if (file == NULL)
        return 0;
    if (fscanf(file, "%llu", &bytes) != 1)
        bytes = 0;
    (void)fclose(file);
    return bytes;
}

static uint64_t memory_of_level(const char *folder)
{
    return bytes_of_file(folder, "memory.max");
}

static uint64_t memory_of_level_v1(const char *folder)
{
    return bytes_of_file(folder, "memory.limit_in_bytes");
}

/* The smallest limit from our group up to `root`; 0: none. key: what stands before our group's path
 * in /proc/self/cgroup ("0::" for v2). */
static uint64_t smallest_limit(const char *root, const char *key,
                               uint64_t (*limit_of_level)(const char *folder))
{
    char folder[4200];
    char line[4000];
    uint64_t smallest = 0;
    FILE *file = fopen("/proc/self/cgroup", "re");

    if (file == NULL)
        return 0;
    (void)snprintf(folder, sizeof(folder), "%s", root);
    while (fgets(line, sizeof(line), file) != NULL) {
        const char *at = strstr(line, key);
        line[strcspn(line, "\n")] = '\0';
        if (at != NULL && at[strlen(key)] == '/')
            (void)snprintf(folder, sizeof(folder), "%s%s", root, at + strlen(key));
    }
    (void)fclose(file);
    while (strlen(folder) >= strlen(root)) {
        uint64_t limit = limit_of_level(folder);

        if (limit > 0 && (smallest == 0 || limit < smallest))
            smallest = limit;
        *strrchr(folder, '/') = '\0';
    }
    return smallest;
}

unsigned process_cpus(void)
{
    unsigned cpus = cpus_of_affinity();
    uint64_t quota = smallest_limit(CGROUP_ROOT, "0::", cpus_of_level);

    return quota > 0 && quota < cpus ? (unsigned)quota : cpus;
}

/* A line of /proc/meminfo, in bytes; 0: not there. */
static uint64_t meminfo(const char *key)
{
    char line[256];
    unsigned long long kib = 0;
    FILE *file = fopen("/proc/meminfo", "re");

    if (file == NULL)
        return 0;
    while (kib == 0 && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, key, strlen(key)) == 0 && line[strlen(key)] == ':' &&
            sscanf(line + strlen(key) + 1, "%llu", &kib) != 1)
            break;
    }
    (void)fclose(file);
    return (uint64_t)kib << 10;
}

void process_memory(uint64_t *ret_bytes_max, uint64_t *ret_bytes_available)
{
    uint64_t machine = meminfo("MemTotal");
    uint64_t available = meminfo("MemAvailable");
    uint64_t limit = smallest_limit(CGROUP_ROOT, "0::", memory_of_level);
    uint64_t older = smallest_limit(CGROUP_ROOT "/memory", ":memory:", memory_of_level_v1);

    if (older > 0 && (limit == 0 || older < limit))
        limit = older; /* where there is none it says about 2^63 */
    *ret_bytes_max = limit > 0 && (limit < machine || machine == 0) ? limit : machine;
    *ret_bytes_available = available < *ret_bytes_max ? available : *ret_bytes_max;
}
