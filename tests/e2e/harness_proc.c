/* harness_proc.c - /proc read the way ps does it, and small files. */
#include "tests/e2e/harness_proc.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "proto/base/assert.h"
#include "proto/base/clock.h"
#include "proto/base/mem.h"

#define POLL_MS 5
#define NAMES_MAX 4096

bool poll_until(bool (*is_so)(void *user), void *user, uint32_t deadline_ms)
{
    const struct timespec pause = {.tv_nsec = POLL_MS * 1000000L};
    uint64_t deadline = clock_ms() + deadline_ms;

    for (;;) {
        if (is_so(user))
            return true;
        if (clock_ms() > deadline)
            return false;
        (void)nanosleep(&pause, NULL);
    }
}

char *file_read(const char *path, size_t *ret_bytes)
{
    size_t bytes = 0, capacity = 1 << 16, got;
    FILE *file = fopen(path, "rbe");

    if (!file)
        return NULL;
    char *data = mem_alloc(capacity + 1);
    while ((got = fread(data + bytes, 1, capacity - bytes, file)) > 0) {
        bytes += got;
        if (bytes == capacity) {
            capacity *= 2;
            data = mem_realloc(data, capacity + 1);
        }
    }
    (void)fclose(file);
    data[bytes] = '\0';
    if (ret_bytes)
        *ret_bytes = bytes;
    return data;
}

void file_write(const char *path, const char *text)
{
    FILE *file = fopen(path, "we");
    ASSERT(file);
    (void)fputs(text, file);
    int r = fclose(file);
    ASSERT(r == 0);
}

bool file_exists(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0;
}

static char *proc_file(pid_t pid, const char *name, size_t *ret_bytes)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    return file_read(path, ret_bytes);
}

/* The text behind the name in /proc/PID/stat: "S 1 ..."; NULL: gone. mem_free() *ret_line. */
static const char *proc_stat(pid_t pid, char **ret_line)
{
    *ret_line = proc_file(pid, "stat", NULL);
    const char *at = *ret_line ? strrchr(*ret_line, ')') : NULL;
    return at && at[1] == ' ' ? at + 2 : NULL;
}

static char proc_state(pid_t pid)
{
    char *line;
    const char *stat = proc_stat(pid, &line);
    char state = stat ? stat[0] : '\0';
    mem_free(line);
    return state;
}

bool proc_is_alive(pid_t pid)
{
    char state = pid > 0 ? proc_state(pid) : '\0';
    return state != '\0' && state != 'Z' && state != 'X';
}

bool proc_is_stopped(pid_t pid)
{
    return proc_state(pid) == 'T';
}

pid_t proc_parent(pid_t pid)
{
    char *line;
    int parent = 0;
    const char *stat = proc_stat(pid, &line);
    if (stat)
        parent = (int)strtol(stat + 2, NULL, 10);
    mem_free(line);
    return parent;
}

double proc_cpu_seconds(pid_t pid)
{
    char *line;
    unsigned long long user = 0, system_ = 0;
    const char *stat = proc_stat(pid, &line);
    if (stat)
        (void)sscanf(stat, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &user,
                     &system_); /* NOLINT(cert-err34-c) */
    mem_free(line);
    return (double)(user + system_) / (double)sysconf(_SC_CLK_TCK);
}

uint64_t proc_resident_bytes(pid_t pid)
{
    char *text = proc_file(pid, "statm", NULL);
    char *at = text ? strchr(text, ' ') : NULL;
    uint64_t pages = at ? strtoull(at, NULL, 10) : 0;
    mem_free(text);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

bool proc_is_sanitized(pid_t pid)
{
    char *text = proc_file(pid, "statm", NULL);
    uint64_t pages = text ? strtoull(text, NULL, 10) : 0;
    mem_free(text);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE) > (uint64_t)1 << 40;
}

static bool proc_holds(pid_t pid, const char *text)
{
    static const char *const names[] = {"cmdline", "environ"};
    bool found = false;

    for (size_t i = 0; i < 2 && !found; i++) {
        size_t bytes = 0;
        char *data = proc_file(pid, names[i], &bytes);
        found = data && memmem(data, bytes, text, strlen(text));
        mem_free(data);
    }
    return found;
}

size_t proc_with_text(const char *text, pid_t *ret_pids, size_t pids_max)
{
    DIR *dir = opendir("/proc");
    struct dirent *entry;
    size_t count = 0;

    ASSERT(dir);
    while ((entry = readdir(dir))) {
        char *end;
        long pid = strtol(entry->d_name, &end, 10);
        if (*end || pid <= 0 || pid == getpid() || !proc_holds((pid_t)pid, text) ||
            !proc_is_alive((pid_t)pid))
            continue;
        if (count < pids_max)
            ret_pids[count] = (pid_t)pid;
        count++;
    }
    (void)closedir(dir);
    return count;
}

void proc_command_line(pid_t pid, char *ret_text, size_t text_max)
{
    size_t bytes = 0;
    char *data = proc_file(pid, "cmdline", &bytes);

    ret_text[0] = '\0';
    if (data && bytes > 0) {
        for (size_t i = 0; i + 1 < bytes; i++)
            data[i] = data[i] ? data[i] : ' ';
        (void)snprintf(ret_text, text_max, "%s", data);
    }
    mem_free(data);
}

int proc_fds(pid_t pid)
{
    char path[64];
    int count = 0;
    struct dirent *entry;

    (void)snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    DIR *dir = opendir(path);
    if (!dir)
        return -1;
    while ((entry = readdir(dir)))
        count += entry->d_name[0] != '.';
    (void)closedir(dir);
    return count;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

char *folder_listing(const char *path)
{
    char *names[NAMES_MAX], *listing = mem_strdup("");
    size_t count = 0;
    struct dirent *entry;
    DIR *dir = opendir(path);

    while (dir && count < NAMES_MAX && (entry = readdir(dir))) {
        if (entry->d_name[0] != '.')
            names[count++] = mem_strdup(entry->d_name);
    }
    if (dir)
        (void)closedir(dir);
    qsort(names, count, sizeof(names[0]), compare_names);
    for (size_t i = 0; i < count; i++) {
        char *longer = mem_printf("%s%s\n", listing, names[i]);
        mem_free(listing);
        mem_free(names[i]);
        listing = longer;
    }
    return listing;
}

void folder_remove(const char *path)
{
    struct dirent *entry;

    ASSERT(strncmp(path, "/tmp/", 5) == 0 && strlen(path) > 8);
    DIR *dir = opendir(path);
    while (dir && (entry = readdir(dir))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        char *inner = mem_printf("%s/%s", path, entry->d_name);
        struct stat info;
        if (lstat(inner, &info) == 0 && S_ISDIR(info.st_mode))
            folder_remove(inner);
        else
            (void)unlink(inner);
        mem_free(inner);
    }
    if (dir)
        (void)closedir(dir);
    (void)rmdir(path);
}
