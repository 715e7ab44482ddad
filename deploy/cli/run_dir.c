/* run_dir.c - make, clean and remove runtime folders.
 *
 * A run that was killed with SIGKILL leaves sockets in DEFAULT/up-PID; the next run removes folders
 * whose PID is no more. Only our own sockets and empty lock files are unlinked, and none where
 * another cluster runs (up.lock, router.lock): a mistaken --run-dir loses nothing. */
#include "deploy/cli/run_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/mem.h"
#include "proto/base/process.h"

/* The names that router and workers use, and nothing else. */
static bool is_ours(const char *name, const struct stat *info)
{
    size_t bytes = strlen(name);

    if (S_ISSOCK(info->st_mode))
        return strcmp(name, "router.sock") == 0 ||
               (strncmp(name, "worker-", 7) == 0 && strcmp(name + bytes - 5, ".sock") == 0);
    return S_ISREG(info->st_mode) && info->st_size == 0 &&
           (strcmp(name, "router.lock") == 0 || strcmp(name, "up.lock") == 0);
}

/* A router of somebody else: ours has ended when folders are cleaned. */
static bool router_runs(int dir_fd)
{
    int fd = openat(dir_fd, "router.lock", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool held = flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK;
    (void)close(fd);
    return held;
}

static void clean(const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *entry;
    struct stat info;

    if (!dir)
        return;
    while (!router_runs(dirfd(dir)) && (entry = readdir(dir))) {
        if (fstatat(dirfd(dir), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
            is_ours(entry->d_name, &info))
            (void)unlinkat(dirfd(dir), entry->d_name, 0);
    }
    (void)closedir(dir);
}

void run_dir_remove(struct run_dir *dir)
{
    if (!dir->path[0])
        return;
    clean(dir->path);
    if (dir->made)
        (void)rmdir(dir->path); /* fails when something else lies there: good */
    (void)close(dir->lock_fd);
    dir->path[0] = '\0';
}

static void remove_dead_runs(const char *parent)
{
    DIR *dir = opendir(parent);
    struct dirent *entry;

    if (!dir)
        return;
    while ((entry = readdir(dir))) {
        char *end;
        if (strncmp(entry->d_name, "up-", 3) != 0)
            continue;
        long pid = strtol(entry->d_name + 3, &end, 10);
        if (*end || pid <= 0 || kill((pid_t)pid, 0) == 0 || errno != ESRCH)
            continue;
        char *path = mem_printf("%s/%s", parent, entry->d_name);
        clean(path);
        (void)rmdir(path);
        mem_free(path);
    }
    (void)closedir(dir);
}

static int take_lock(const char *path, int *ret_lock_fd, struct errmsg *err)
{
    char *name = mem_printf("%s/up.lock", path);
    int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    int r = 0;

    if (fd < 0)
        r = errmsg_errno(err, "create '%s'", name);
    else if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        r = errmsg_set(err, -EBUSY, "another `refrain up` runs in '%s'", path);
    if (r == 0)
        *ret_lock_fd = fd;
    else if (fd >= 0)
        (void)close(fd);
    mem_free(name);
    return r;
}

static int make_path(const char *wanted, char *ret_path, size_t path_max, struct errmsg *err)
{
    char parent[512];
    int r;

    if (wanted) {
        if (strlen(wanted) >= path_max)
            return errmsg_set(err, -ENAMETOOLONG, "run-dir is longer than %zu bytes", path_max);
        r = process_make_private_dir(wanted, err);
        if (r == 0)
            (void)snprintf(ret_path, path_max, "%s", wanted);
        return r;
    }
    r = process_default_run_dir(parent, sizeof(parent));
    if (r < 0)
        return errmsg_set(err, r, "no runtime folder: give one with --run-dir");
    r = process_make_private_dir(parent, err);
    if (r < 0)
        return r;
    remove_dead_runs(parent);
    char *path = mem_printf("%s/up-%d", parent, (int)getpid());
    r = strlen(path) < path_max ? process_make_private_dir(path, err)
                                : errmsg_set(err, -ENAMETOOLONG, "'%s' is too long", path);
    if (r == 0)
        (void)snprintf(ret_path, path_max, "%s", path);
    mem_free(path);
    return r;
}

int run_dir_make(const char *wanted, struct run_dir *ret, struct errmsg *err)
{
    struct run_dir dir = {.lock_fd = -1};
    dir.made = !wanted || access(wanted, F_OK) < 0;
    int r = make_path(wanted, dir.path, sizeof(dir.path), err);

    if (r == 0)
        r = take_lock(dir.path, &dir.lock_fd, err);
    if (r == 0)
        *ret = dir;
    return r;
}
