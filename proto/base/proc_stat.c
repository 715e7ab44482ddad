/* proc_stat.c - `pid (name) state ppid ...`: the name may hold anything, so fields are counted from
 * the last ')'. Numbers as in proc(5): 3 state, 14 utime, 15 stime, 24 rss. */
#include "proto/base/proc_stat.h"

#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FIELD_STATE 3
#define FIELD_UTIME 14
#define FIELD_STIME 15
#define FIELD_RSS 24

static int parse(char *line, struct proc_stat *ret_stat)
{
    const char *open = strchr(line, '('), *close = strrchr(line, ')');
    uint64_t numbers[FIELD_RSS + 1] = {0};
    if (open == NULL || close == NULL || strlen(close) < 4)
        return -ESRCH;
    (void)snprintf(ret_stat->name, sizeof(ret_stat->name), "%.*s", (int)(close - open - 1),
                   open + 1);
    ret_stat->state = close[2];
    const char *at = close + 3;
    for (int field = FIELD_STATE + 1; field <= FIELD_RSS; field++) {
        char *end = NULL;
        numbers[field] = strtoull(at, &end, 10); /* negative ones are not used */
        if (end == at)
            return -ESRCH;
        at = end;
    }
    ret_stat->cpu_seconds =
        (double)(numbers[FIELD_UTIME] + numbers[FIELD_STIME]) / (double)sysconf(_SC_CLK_TCK);
    ret_stat->resident_bytes = numbers[FIELD_RSS] * (uint64_t)sysconf(_SC_PAGESIZE);
    return 0;
}

int proc_stat_read(const char *path, struct proc_stat *ret_stat)
{
    char line[1024];
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return -ESRCH;
    size_t bytes = fread(line, 1, sizeof(line) - 1, file);
    (void)fclose(file);
    line[bytes] = '\0';
    return parse(line, ret_stat);
}

void proc_memory_read(struct proc_memory *ret_memory)
{
    static const char *const keys[] = {"RssAnon:", "RssFile:", "RssShmem:"};
    uint64_t values[3] = {0};
    char line[256];
    FILE *file = fopen("/proc/self/status", "re");
    struct mallinfo2 info = mallinfo2();

    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        for (size_t i = 0; i < 3; i++) {
            size_t bytes = strlen(keys[i]);
            if (strncmp(line, keys[i], bytes) == 0)
                values[i] = strtoull(line + bytes, NULL, 10) << 10; /* kB */
        }
    }
    if (file != NULL)
        (void)fclose(file);
    *ret_memory = (struct proc_memory){.anon_bytes = values[0],
                                       .file_bytes = values[1],
                                       .shmem_bytes = values[2],
                                       .allocator_bytes = info.arena + info.hblkhd,
                                       .allocator_free_bytes = info.fordblks};
}
