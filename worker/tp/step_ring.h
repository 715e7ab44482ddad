/* step_ring.h - step descriptors from rank 0 to the other ranks of its group.
 *
 * A ring of STEP_RING_SLOTS slots in the group's shared memory. Rank 0 writes a descriptor and
 * publishes it with a release store of the slot's sequence; followers copy nothing: the `struct
 * step` they get points into the slot, which stays theirs until step_ring_done(). Every number is
 * checked against the limits before use, as from any other process. */
#ifndef REFRAIN_WORKER_TP_STEP_RING_H
#define REFRAIN_WORKER_TP_STEP_RING_H

#include <stdint.h>

#include "kernels/ops.h"
#include "worker/tp/group.h"

#define STEP_RING_SLOTS 4u

enum step_kind { STEP_FORWARD = 1, STEP_STOP = 2 /* leave the loop, exit 0 */ };

/* Copy of KV slots [0, tokens) between two blocks before the forward pass. */
struct step_copy {
    uint32_t from, to, tokens;
    uint32_t window; /* 1: the two are window blocks */
};

/* What each rank does with its slice of a block before the copies, in this order. A host slot is
 * memory of one block beside the KV pool. */
enum step_tier_kind { STEP_TIER_STORE = 1 /* KV block -> host slot */, STEP_TIER_LOAD /* back */ };
struct step_tier_op {
    uint32_t kind; /* enum step_tier_kind */
    uint32_t block, slot;
};

/* What each rank's disk thread is given after the tier ops: a file of its slice of a block to write
 * from, or to read into, buffer `token`. CLEAR: remove them all; that and REMOVE need no buffer. */
enum step_disk_kind { STEP_DISK_WRITE = 1, STEP_DISK_READ, STEP_DISK_REMOVE, STEP_DISK_CLEAR };
struct step_disk_op {
    uint32_t kind;               /* enum step_disk_kind */
    uint32_t token, ticket;      /* ticket: told when it is done, 28 bits */
    uint32_t tokens, first;      /* 0..16 of ids; parent is the root */
    uint32_t hash[4], parent[4]; /* low words first: the wire has 4-byte items only */
    uint32_t ids[16];
};

struct step_descriptor {
    enum step_kind kind;
    uint64_t number; /* rises by one */
    struct step step;
    const struct step_copy *copies;
    uint32_t copies_count;
    const struct step_tier_op *tier_ops;
    uint32_t tier_ops_count;
    const struct step_disk_op *disk_ops;
    uint32_t disk_ops_count;
};

struct step_sizes {
    uint32_t rows, sequences, table, copies, tier_ops;
    uint32_t tables; /* per sequence: 1, or 2 where layers of both groups are */
    uint32_t disk_ops;
};

/* Bytes for the largest descriptor under these limits: group_limits.step_bytes_max. */
size_t step_ring_bytes_max(const struct step_sizes *max);
/* Rank 0: blocks while the slot is still in use. 0, -ECANCELED, -ETIMEDOUT, -EMSGSIZE. */
int step_ring_publish(struct group *group, const struct step_descriptor *descriptor);
/* Others: wait for the next one (no deadline while idle: the abort word and rank 0's death end it).
 * 0, -ECANCELED, -EPROTO: numbers out of range. */
int step_ring_wait(struct group *group, struct step_descriptor *ret_descriptor);
void step_ring_done(struct group *group);

#endif
