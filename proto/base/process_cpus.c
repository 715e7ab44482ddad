/* process_cpus.c - how many CPUs we may really use.
 *
 * A container often sees all CPUs of the machine and is throttled by a quota instead: threads
 * beyond the quota only wait for each other. So the smaller of affinity mask and quota counts. */
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
static unsigned cpus_of_level(const char *folder)
{
    char path[4200];
    unsigned long long quota;
    unsigned long long period;
    unsigned cpus = 0;
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/cpu.max", folder);
    file = fopen(path, "re");
    if (file == NULL)
        return 0;
    if (fscanf(file, "%llu %llu", &quota, &period) == 2 && quota > 0 && period > 0)
        cpus = (unsigned)((quota + period - 1) / period); /* "max 100000" has no number in front */
    (void)fclose(file);
    return cpus;
}

/* The smallest quota from our group up to the root; 0: none. cgroup v2 only. */
static unsigned cpus_of_quota(void)
{
    char folder[4096] = CGROUP_ROOT;
    char line[4000];
    unsigned smallest = 0;
    FILE *file = fopen("/proc/self/cgroup", "re");

    if (file == NULL)
        return 0;
    while (fgets(line, sizeof(line), file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "0::/", 4) == 0)
            (void)snprintf(folder, sizeof(folder), CGROUP_ROOT "%s", line + 3);
    }
    (void)fclose(file);
    while (strlen(folder) >= strlen(CGROUP_ROOT)) {
        unsigned cpus = cpus_of_level(folder);

        if (cpus > 0 && (smallest == 0 || cpus < smallest))
            smallest = cpus;
        *strrchr(folder, '/') = '\0';
    }
    return smallest;
}

unsigned process_cpus(void)
{
    unsigned cpus = cpus_of_affinity();
    unsigned quota = cpus_of_quota();

    return quota > 0 && quota < cpus ? quota : cpus;
}
