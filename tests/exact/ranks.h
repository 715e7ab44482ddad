/* ranks.h - a loaded model over 1 to 8 ranks of one process: rank 0 is the caller's, the others are
 * threads that follow it. */
#ifndef REFRAIN_TESTS_EXACT_RANKS_H
#define REFRAIN_TESTS_EXACT_RANKS_H

#include <pthread.h>

#include "worker/engine/rank_model.h"

struct rank_thread {
    struct ranks_of *all;
    struct group *group;
    pthread_t thread;
    bool started;
};

struct ranks_of {
    struct rank_model_settings settings;
    struct rank_limits limits;
    struct rank_model *model; /* rank 0's */
    struct group *group;      /* NULL with one rank */
    uint64_t steps;           /* number of the last step that was published */
    char disk_path[40];       /* of the disk tier's files; "": none */
    struct rank_thread threads[TP_RANKS_MAX];
};

/* settings->rank and limits->host_tier_bytes are not looked at: the host tier has host_blocks,
 * or 0 where layers slide (and limits->disk is filled in). The last of limits->kv_blocks and of
 * window_blocks is kept for ranks_scribble. */
int ranks_open(const struct rank_model_settings *settings, const struct rank_limits *limits,
               uint32_t host_blocks, struct ranks_of **ret_ranks, struct errmsg *err);
/* engine_settings.limits.host_tier_bytes for a tier of so many blocks. */
uint64_t ranks_host_bytes(const struct ranks_of *ranks, uint32_t host_blocks);
/* engine_settings.limits.disk for a tier of so many files; ranks_open made a folder for it, unless
 * layers slide. */
struct disk_limits ranks_disk(const struct ranks_of *ranks, uint32_t files);
/* Until all ranks are through with the disk operations of a step: as if the disk took no time, so
 * that a schedule is played twice alike. */
void ranks_await_disk(const struct ranks_of *ranks, const struct step_descriptor *descriptor);
void ranks_close(struct ranks_of *ranks); /* NULL is fine */
/* Every KV block but the last gets the same content, which is no sequence's. 0, or why the group
 * has ended. */
int ranks_scribble(struct ranks_of *ranks);

#endif
