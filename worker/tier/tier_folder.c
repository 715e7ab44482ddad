/* tier_folder.c - make, lock, scan.
 *
 *   names of rank 0 -> stat -> sort, latest first -> headers, until time or room ends -> tree
 *   names of the other ranks that are not in the tree -> removed
 *
 * Why the latest first: when the disk is slow, what is given up is what is the least wanted. Why
 * files are removed unread after the time: nobody would find them and they would count for nobody.
 * Cost: one readdir per rank, and per file of rank 0 a stat and a read of 512 bytes. */
#include "worker/tier/tier_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "proto/base/assert.h"
#include "proto/base/clock.h"
#include "proto/base/mem.h"
#include "proto/base/process.h"

#define FILES_MAX (2 * TIER_NODES_MAX) /* of a folder; more are removed */
#define FILES_FIRST 1024u

struct seen_file {
    struct block_hash hash;
    int64_t used_ns;
};

struct seen {
    struct seen_file *files;
    uint32_t count, max;
};

int tier_folder_lock(const char *path, int *ret_fd, struct errmsg *err)
{
    char name[TIER_FOLDER_PATH_MAX + 8], owner[24] = "";
    int fd, r = process_make_private_dir(path, err);

    if (r < 0)
        return errmsg_prefix(err, r, "disk tier");
    (void)snprintf(name, sizeof(name), "%s/lock", path);
    fd = open(name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return errmsg_errno(err, "disk tier: open '%s'", name);
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        r = errno == EWOULDBLOCK ? -EBUSY : -errno;
        ssize_t bytes = pread(fd, owner, sizeof(owner) - 1, 0);
        owner[bytes > 0 ? bytes : 0] = '\0';
        (void)close(fd);
        return errmsg_set(err, r,
                          "disk tier: '%s' is in use by another worker (process %.*s): give each "
                          "its own --disk-tier-path or --group",
                          path, (int)strcspn(owner, "\n"), owner);
    }
    int length = snprintf(owner, sizeof(owner), "%d\n", (int)getpid());
    if (ftruncate(fd, 0) < 0 || pwrite(fd, owner, (size_t)length, 0) != length) {
        r = errmsg_errno(err, "disk tier: write '%s'", name);
        (void)close(fd);
        return r;
    }
    *ret_fd = fd;
    return 0;
}

static void rank_path(const char *path, uint32_t rank, char ret_path[TIER_FOLDER_PATH_MAX + 16])
{
    (void)snprintf(ret_path, TIER_FOLDER_PATH_MAX + 16, "%s/rank-%u", path, rank);
}

int tier_folder_open(const char *path, uint32_t rank, int *ret_fd, struct errmsg *err)
{
    char name[TIER_FOLDER_PATH_MAX + 16];

    rank_path(path, rank, name);
    int r = process_make_private_dir(name, err);
    if (r < 0)
        return errmsg_prefix(err, r, "disk tier");
    int fd = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return errmsg_errno(err, "disk tier: open '%s'", name);
    *ret_fd = fd;
    return 0;
}

uint64_t tier_folder_free_bytes(const char *path)
{
    struct statvfs fs;

    return statvfs(path, &fs) == 0 ? (uint64_t)fs.f_bavail * fs.f_frsize : UINT64_MAX;
}

/* ---- scan ---- */

/* A listing of the folder with an fd of its own; NULL: errno says why. */
static DIR *list_folder(int folder)
{
    int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *listing = fd >= 0 ? fdopendir(fd) : NULL;

    if (listing == NULL && fd >= 0)
        (void)close(fd);
    return listing;
}

static bool is_temporary(const char *name)
{
    size_t length = strlen(name), suffix = sizeof(TIER_FILE_TEMPORARY) - 1;

    return length == TIER_FILE_NAME_MAX - 4 + suffix &&
           strcmp(name + length - suffix, TIER_FILE_TEMPORARY) == 0;
}

static void add_seen(struct seen *seen, struct block_hash hash, const struct stat *st)
{
    if (seen->count == seen->max) {
        seen->max = seen->max == 0 ? FILES_FIRST : 2 * seen->max;
        seen->files = mem_realloc(seen->files, seen->max * sizeof(*seen->files));
    }
    seen->files[seen->count++] =
        (struct seen_file){hash, (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec};
}

/* The files of rank 0 by name and stat; what can be none of a block's is removed. */
static int see_files(struct tier_scan *scan, int folder, struct seen *seen, struct errmsg *err)
{
    DIR *listing = list_folder(folder);
    const struct dirent *entry;

    if (listing == NULL)
        return errmsg_errno(err, "disk tier: list '%s/rank-0'", scan->path);
    while ((entry = readdir(listing)) != NULL) {
        struct block_hash hash;
        struct stat st;
        bool ours = false;
        if (is_temporary(entry->d_name)) {
            (void)unlinkat(folder, entry->d_name, 0);
        } else if (tier_file_name_parse(&scan->identity, entry->d_name, &hash, &ours)) {
            if (ours && seen->count < FILES_MAX &&
                fstatat(folder, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
                S_ISREG(st.st_mode)) {
                add_seen(seen, hash, &st);
                continue;
            }
            (void)unlinkat(folder, entry->d_name, 0);
            scan->refused++;
        }
    }
    (void)closedir(listing);
    return 0;
}

static int latest_first(const void *a, const void *b)
{
    const struct seen_file *left = a, *right = b;

    if (left->used_ns != right->used_ns)
        return left->used_ns > right->used_ns ? -1 : 1;
    return memcmp(&left->hash, &right->hash, sizeof(left->hash));
}

static bool all_have_it(const int *folders, uint32_t ranks, const char *name)
{
    for (uint32_t rank = 1; rank < ranks; rank++) {
        struct stat st;
        if (fstatat(folders[rank], name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
            return false;
    }
    return true;
}

static void read_headers(struct tier_scan *scan, const int *folders, const struct seen *seen,
                         struct tier_tree *tree)
{
    uint64_t end_ms = clock_ms() + scan->time_ms;

    for (uint32_t i = 0; i < seen->count; i++) {
        enum tier_io_result result = TIER_IO_GONE;
        char name[TIER_FILE_NAME_MAX];
        struct tier_block block;
        bool in_time = clock_ms() < end_ms && tree->used < tree->nodes_max;
        tier_file_name(&scan->identity, seen->files[i].hash, name);
        if (in_time && all_have_it(folders, scan->identity.ranks, name))
            result =
                tier_file_read_header(&tier_fs_system, folders[0], name, &scan->identity, &block);
        if (result == TIER_IO_OK && tier_tree_restore(tree, &block) == 0) {
            scan->kept++;
            continue;
        }
        (void)unlinkat(folders[0], name, 0);
        scan->refused += result == TIER_IO_REFUSED;
        scan->removed += result != TIER_IO_REFUSED;
    }
}

/* Of another rank, or (keep false) of a rank that is no more. */
static void sweep(const struct tier_scan *scan, int folder, const struct tier_tree *tree, bool keep)
{
    DIR *listing = list_folder(folder);
    const struct dirent *entry;

    if (listing == NULL)
        return; /* its rank will say so */
    while ((entry = readdir(listing)) != NULL) {
        struct block_hash hash;
        bool ours = false;
        bool named = tier_file_name_parse(&scan->identity, entry->d_name, &hash, &ours);
        if (named && ours && keep && hash_index_find(&tree->by_hash, hash) != HASH_INDEX_NONE)
            continue;
        if (named || is_temporary(entry->d_name))
            (void)unlinkat(folder, entry->d_name, 0);
    }
    (void)closedir(listing);
}

/* Folders of ranks that a wider group once had. */
static void remove_old_ranks(const struct tier_scan *scan, const struct tier_tree *tree)
{
    for (uint32_t rank = scan->identity.ranks; rank < TP_RANKS_MAX; rank++) {
        char name[TIER_FOLDER_PATH_MAX + 16];
        rank_path(scan->path, rank, name);
        int fd = open(name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
            continue;
        sweep(scan, fd, tree, false);
        (void)close(fd);
        (void)rmdir(name); /* unless something of others is in it */
    }
}

int tier_folder_scan(struct tier_scan *scan, struct tier_tree *tree, struct errmsg *err)
{
    int folders[TP_RANKS_MAX];
    struct seen seen = {NULL, 0, 0};
    uint32_t ranks = scan->identity.ranks, opened = 0;
    int r = 0;

    ASSERT(ranks >= 1 && ranks <= TP_RANKS_MAX && scan->identity.rank == 0);
    for (; r == 0 && opened < ranks; opened += r == 0)
        r = tier_folder_open(scan->path, opened, &folders[opened], err);
    if (r == 0)
        r = see_files(scan, folders[0], &seen, err);
    if (r == 0) {
        if (seen.count > 0)
            qsort(seen.files, seen.count, sizeof(*seen.files), latest_first);
        read_headers(scan, folders, &seen, tree);
        for (uint32_t rank = 1; rank < ranks; rank++)
            sweep(scan, folders[rank], tree, true);
        remove_old_ranks(scan, tree);
        tier_tree_link(tree);
    }
    while (opened > 0)
        (void)close(folders[--opened]);
    mem_free(seen.files);
    return r;
}
