/* tier.h - what becomes of blocks that the pool loses, and how they come back (rank 0).
 *
 *   pool --on_evict--> host slot              admission --find, load--> fresh pool block
 *   pool --on_publish--> buffer --> file      file --> buffer --load--> the same
 *
 * Decides and keeps books; the copies are tier ops of the step that is being planned, done by every
 * rank in one order before its rows are computed. So a decision costs no memory traffic, one rank
 * is like another, and the same requests give the same copies. Thread: engine only. */
#ifndef REFRAIN_WORKER_TIER_TIER_H
#define REFRAIN_WORKER_TIER_TIER_H

#include "worker/kv/block_pool.h"
#include "worker/sched/tier_lookup.h"
#include "worker/tier/tier_disk.h"
#include "worker/tier/tier_host.h"
#include "worker/tp/step_ring.h"

struct tier;

struct tier_settings {
    uint32_t host_slots;            /* 0: no host tier */
    uint32_t sequence_blocks;       /* of the longest sequence */
    struct tier_disk_settings disk; /* .nodes_max 0: no disk tier */
};

/* Blocks, since the start. */
struct tier_counts {
    uint32_t host_slots, host_used;
    uint64_t stores_total;                       /* copied out of the pool */
    uint64_t drops_total;                        /* not copied: no room in tier or step */
    uint64_t hits_total, misses_total;           /* of admissions, past what the pool had */
    uint64_t lost_total;                         /* that left the host tier for others */
    uint64_t disk_hits_total, disk_misses_total; /* past what pool and host tier had */
    struct tier_disk_counts disk;                /* .state NONE: there is none */
};

/* Tier ops in one step at most, for sequences of so many blocks: struct step_sizes. */
uint32_t tier_ops_max(const struct tier_settings *settings);

/* 0, or -ENOMEM. */
int tier_new(const struct tier_settings *settings, struct tier **ret_tier, struct errmsg *err);
void tier_free(struct tier *tier); /* NULL is fine */
/* Hook the tier into a pool's events. */
void tier_watch_pool(struct tier *tier, struct block_events *events);
/* For the scheduler's settings. */
struct tier_lookup tier_lookup_of(struct tier *tier);
/* The disk tier's books, to be filled by a scan before the first plan; NULL: no disk tier. */
struct tier_tree *tier_files(struct tier *tier);
/* Before a plan: what the disk has done since. */
void tier_begin(struct tier *tier, uint64_t now_ns);
/* After it: blocks that wait for the disk go along as far as there is room. */
void tier_add_stores(struct tier *tier);
/* What the plan wants done, in order; valid until tier_step_done, which forgets it. */
const struct step_tier_op *tier_ops(const struct tier *tier, uint32_t *ret_count);
const struct step_disk_op *tier_file_ops(const struct tier *tier, uint32_t *ret_count);
void tier_step_done(struct tier *tier);
/* The disk is at work or could be: turns are worth while though nothing is to be computed. */
bool tier_busy(const struct tier *tier);
/* Forget every block, files too. Returns how many. */
uint32_t tier_reset(struct tier *tier);
void tier_get_counts(const struct tier *tier, struct tier_counts *ret_counts);
void tier_check(const struct tier *tier);

#endif
