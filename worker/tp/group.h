/* group.h - the shared memory of one tensor-parallel group: abort word, heartbeats, step ring,
 * all-reduce slots.
 *
 * One memfd made by rank 0 and inherited by the ranks it starts: it has no name, so nothing is left
 * in /dev/shm whatever way the processes end. Fail-stop: whoever sees a fault calls group_abort();
 * every wait in here checks the abort word and a deadline and then returns -ECANCELED/-ETIMEDOUT;
 * the caller ends its process with a non-zero code and the supervisor restarts the group.
 *
 * Waiting policy (measured, see README.md): ranks <= cores: spin 2000 times, then sleep; more ranks
 * than cores: spin 200 times, yield for 1 ms, then sleep. Idle ranks sleep in a futex. */
#ifndef REFRAIN_WORKER_TP_GROUP_H
#define REFRAIN_WORKER_TP_GROUP_H

#include <stddef.h>
#include <stdint.h>

#include "proto/base/errmsg.h"

#define GROUP_TIER_TOKENS_MAX 1024u

struct group; /* one process's view: mapping + rank */

struct group_limits {
    uint32_t ranks;
    size_t step_bytes_max;    /* largest step descriptor */
    size_t reduce_floats_max; /* largest all-reduce, in floats (rows_max * hidden); bigger calls are
                                 cut into pieces */
    uint32_t ids_max;         /* token ids in a step descriptor are below this; 0: not checked */
    uint32_t blocks_max;      /* so are its block ids */
    /* The same of its window tables, from the first block on that a row of this window sees. */
    uint32_t window_tokens, window_blocks_max;
    uint32_t tier_slots;       /* and its slots of the tiers' memory */
    uint32_t tier_buffers;     /* and the tokens of its disk operations; < GROUP_TIER_TOKENS_MAX */
    const char *tag;           /* NULL or a text for group_tag(), cut to 63 bytes */
    const char *kv_format;     /* the same for group_check_kv_format() */
    uint32_t adapter_slots;    /* and its slots of adapters */
    size_t adapter_bytes;      /* of all of them, of the rank that needs the most */
    uint32_t step_deadline_ms; /* rank 0 waits so long for a free step slot; 0: 10 s */
};

/* Rank 0: create; *ret_fd (CLOEXEC) is what children inherit. -ENOMEM etc. */
int group_create(const struct group_limits *limits, struct group **ret_group, int *ret_fd,
                 struct errmsg *err);
/* Rank 1..: map the inherited fd; checks magic, sizes and that `rank` is not taken. */
int group_join(int fd, uint32_t rank, struct group **ret_group, struct errmsg *err);
/* A view for another rank of the same process over the same mapping (threads as ranks, tests); the
 * first view outlives it. -EBUSY: the rank is taken. */
int group_attach(struct group *group, uint32_t rank, struct group **ret_group, struct errmsg *err);
void group_free(struct group *group); /* NULL is fine */

uint32_t group_rank(const struct group *group);
/* What rank 0 gave when it made the group: the model's fingerprint. */
const char *group_tag(const struct group *group);
/* A rank that has joined: its blocks have the format (struct backend) that rank 0 gave. 0, or
 * -EINVAL with both names. */
int group_check_kv_format(const struct group *group, const char *kv_format, struct errmsg *err);
uint32_t group_ranks(const struct group *group);
/* Set the abort word and wake everyone; the first reason (at most 127 bytes) is kept. */
void group_abort(struct group *group, const char *reason);
/* NULL: not aborted; else the reason. */
const char *group_aborted(const struct group *group);
/* "I am alive, in step n" (any rank); read by rank 0's io thread and the status page. */
void group_beat(struct group *group, uint64_t step);
/* UINT64_MAX: it has not said so yet. */
uint64_t group_beat_age_ms(const struct group *group, uint32_t rank);
/* What this rank holds, said once before the barrier; rank 0 reads all after it, for metrics. */
void group_set_bytes(struct group *group, uint64_t weights_bytes, uint64_t kv_bytes);
void group_bytes(const struct group *group, uint32_t rank, uint64_t *ret_weights_bytes,
                 uint64_t *ret_kv_bytes);
/* Where a rank's disk thread says which of its operations are over (worker/tier/tier_io.h), for
 * rank 0 to read: [GROUP_TIER_TOKENS_MAX]. */
uint32_t *group_tier_done(const struct group *group, uint32_t rank);
/* A rank's memory of adapters, adapter_bytes long; NULL: there is none. Rank 0 writes all of them.
 */
void *group_adapters(const struct group *group, uint32_t rank);
/* All ranks arrive within deadline_ms. 0, -ECANCELED, -ETIMEDOUT. Used once, when all are loaded.
 */
int group_barrier(struct group *group, uint32_t deadline_ms);

#endif
