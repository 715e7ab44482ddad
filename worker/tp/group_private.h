/* group_private.h - the layout of a group's shared memory and the one way to wait in it.
 *
 * Shared by group.c, comm_shm.c and step_ring.c. Words that different ranks write lie on lines of
 * their own (128 bytes: two cache lines, for the prefetcher that fetches pairs). */
#ifndef REFRAIN_WORKER_TP_GROUP_PRIVATE_H
#define REFRAIN_WORKER_TP_GROUP_PRIVATE_H

#include <stdbool.h>
#include <sys/types.h>

#include "worker/tp/group.h"
#include "worker/tp/shard.h"

#define GROUP_LINE 128
#define GROUP_REASON_MAX 128
#define GROUP_TAG_MAX 64
#define GROUP_NO_DEADLINE UINT32_MAX

/* A counter that one rank raises and others wait for; it wraps. */
struct group_word {
    uint32_t value;
    uint32_t waiters; /* asleep in the futex, or about to be */
} __attribute__((aligned(GROUP_LINE)));

struct group_rank {
    struct group_word reduced; /* collectives whose data this rank has published */
    struct group_word done;    /* step descriptors this rank is through with */
    struct group_word barrier;
    uint32_t pid; /* 0: not taken */
    uint64_t beat_step, beat_ns;
    uint64_t weights_bytes, kv_bytes;
    uint32_t tier_done[GROUP_TIER_TOKENS_MAX];
} __attribute__((aligned(GROUP_LINE)));

enum abort_state { ABORT_NONE = 0, ABORT_WRITING, ABORT_SET };

struct group_header {
    uint64_t magic;
    uint64_t bytes; /* all of it */
    uint32_t version, ranks;
    uint64_t step_bytes, reduce_floats;
    uint64_t adapter_bytes; /* of a rank */
    uint32_t adapter_slots;
    uint32_t ids_max, blocks_max, tier_slots, tier_buffers, window_tokens, window_blocks_max;
    uint32_t abort_state; /* enum abort_state */
    char abort_reason[GROUP_REASON_MAX];
    char tag[GROUP_TAG_MAX], kv_format[GROUP_TAG_MAX];
    struct group_word published; /* step descriptors that rank 0 has published */
    struct group_rank rank[TP_RANKS_MAX];
};

struct group {
    struct group_header *header; /* the mapping */
    size_t bytes;
    bool owns_mapping;
    uint32_t rank, ranks;
    unsigned spins;            /* before anything else */
    bool yields;               /* more ranks than cores: yield for a while before sleeping */
    int pidfd[TP_RANKS_MAX];   /* -1: not opened */
    uint32_t collectives;      /* done or begun by this view */
    uint32_t steps;            /* published or taken by this view */
    uint32_t step_deadline_ms; /* of a publish; rank 0's */
    uint64_t step_number;      /* of the last descriptor taken */
};

/* Slot `slot` of the step ring; slot 0 or 1 of a rank's all-reduce memory. */
void *group_step_slot(const struct group *group, uint32_t slot);
float *group_reduce_slot(const struct group *group, uint32_t rank, uint32_t slot);

/* Wait until `word`, which `peer` raises, has reached `value`. 0; -ECANCELED: the group is aborted
 * or the peer has died; -ETIMEDOUT. On both faults the group is aborted, `what` is in the reason.
 */
int group_wait(struct group *group, struct group_word *word, uint32_t value, uint32_t peer,
               uint32_t deadline_ms, const char *what);
/* Raise a word of our own and wake who waits for it. */
void group_post(struct group_word *word, uint32_t value);

#endif
