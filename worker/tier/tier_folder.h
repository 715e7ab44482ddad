/* tier_folder.h - the folders of a disk tier: whose they are, and what is in them at start.
 *
 *   DIR/worker-GROUP/lock       held by rank 0 for as long as it lives
 *   DIR/worker-GROUP/rank-R/    files of rank R (tier_file.h), mode 0600 in folders of 0700
 *
 * Files whose names are not of our making are left alone. Thread: one, before the first plan. */
#ifndef REFRAIN_WORKER_TIER_TIER_FOLDER_H
#define REFRAIN_WORKER_TIER_TIER_FOLDER_H

#include "worker/tier/tier_file.h"
#include "worker/tier/tier_tree.h"
#include "worker/tp/shard.h"

#define TIER_FOLDER_PATH_MAX 512u

/* Make `path` and lock it. *ret_fd is the lock. -EBUSY: another process has it, *err names it. */
int tier_folder_lock(const char *path, int *ret_fd, struct errmsg *err);
/* Make and open the folder of a rank in `path`. */
int tier_folder_open(const char *path, uint32_t rank, int *ret_fd, struct errmsg *err);

/* What may still be written to the file system of `path`, by others too; UINT64_MAX: it does not
 * say.
 */
uint64_t tier_folder_free_bytes(const char *path);

struct tier_scan {
    const char *path;
    struct tier_identity identity; /* rank 0's */
    uint32_t time_ms;              /* after that, files that were not looked at are removed */
    /* What came of it, in files of rank 0. */
    uint32_t kept, refused, removed;
};
/* Fill the tree with the blocks whose files all ranks have, the latest used first; remove all other
 * files with names of ours. Blocks without their parent are DOOMED afterwards. */
int tier_folder_scan(struct tier_scan *scan, struct tier_tree *tree, struct errmsg *err);

#endif
