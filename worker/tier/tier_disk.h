/* tier_disk.h - which KV blocks go to files, which come back, and what becomes of a failing disk.
 *
 *   pool publishes a block --> pending --> buffer --WRITE--> file (tier_tree.h has it)
 *   an admission asks      --> buffer <--READ-- file;  all there: LOAD buffer -> pool block
 *
 * Rank 0 only: decides, keeps books, and gives every rank's disk thread (tier_io.h) its operations
 * with the step. A block counts when every rank says so. Nothing here waits.
 *
 *         no space                          +----- a trial write succeeds -----+
 *   UP -------------> FULL (reads go on) ---+                                  |
 *    ^ \--- any other failure ---> FAILED (neither reads nor writes) ----------+--> UP
 *
 * Way back: one trial write after RETRY_FIRST, then after twice as long each time, an hour at most;
 * a disk that falls again within an hour goes on where it was. One log line per change of state.
 * Thread: engine only. */
#ifndef REFRAIN_WORKER_TIER_TIER_DISK_H
#define REFRAIN_WORKER_TIER_TIER_DISK_H

#include "worker/tier/tier_file.h"
#include "worker/tier/tier_tree.h"
#include "worker/tp/shard.h"
#include "worker/tp/step_ring.h"

#define TIER_DISK_BUFFERS_MIN 16u
#define TIER_DISK_BUFFERS_MAX (GROUP_TIER_TOKENS_MAX - 1)
#define TIER_DISK_STORES_PER_STEP 32u /* copies out of the pool, so that a step stays short */

enum tier_disk_state { TIER_DISK_NONE = 0, TIER_DISK_UP, TIER_DISK_FULL, TIER_DISK_FAILED };

struct tier_disk;

struct tier_disk_settings {
    uint32_t nodes_max; /* files of each rank; 0: there is no disk tier */
    uint32_t buffers; /* blocks on their way, TIER_DISK_BUFFERS_MIN..MAX: a quarter for writes. They
                       are the first slots, [0, buffers) */
    uint32_t pool_blocks;
    uint32_t ranks;
    const uint32_t *done[TP_RANKS_MAX]; /* of each rank's tier_io */
};

/* Blocks, since the start. */
struct tier_disk_counts {
    enum tier_disk_state state;
    uint32_t used, nodes_max, pending; /* pending: published, not yet in a file */
    uint64_t stores_total;             /* files written */
    uint64_t loads_total;              /* copied into the pool */
    uint64_t drops_total;              /* not written: gone from the pool first, or no disk */
    uint64_t lost_total;               /* that left for others */
    uint64_t errors[TIER_IO_RESULTS];  /* operations that did not end well, by how */
};

enum tier_disk_found {
    TIER_DISK_MISS = 0,
    TIER_DISK_READY,  /* in the buffer *ret_slot */
    TIER_DISK_COMING, /* being read */
    TIER_DISK_LATER,  /* no buffer is free */
};

int tier_disk_new(const struct tier_disk_settings *settings, struct tier_disk **ret_disk,
                  struct errmsg *err);
void tier_disk_free(struct tier_disk *disk);              /* NULL is fine */
struct tier_tree *tier_disk_tree(struct tier_disk *disk); /* for a scan, before anything else */

/* Once a plan, before it: what has ended since. */
void tier_disk_poll(struct tier_disk *disk, uint64_t now_ns);
/* The pool has published a block: it is to be written when its turn comes. */
void tier_disk_publish(struct tier_disk *disk, uint32_t pool_block, const struct tier_block *block);
/* The pool has emptied a block whose content lives on in another one. */
void tier_disk_unpublish(struct tier_disk *disk, uint32_t pool_block);
/* The pool loses a block. true: it was still pending; copy it into *ret_slot, now. */
bool tier_disk_evict(struct tier_disk *disk, uint32_t pool_block, uint32_t *ret_slot);
/* The next pending block to copy. false: none, or no buffer for it. */
bool tier_disk_next_store(struct tier_disk *disk, uint32_t *ret_pool_block, uint32_t *ret_slot);
/* A full block by hash, parent, first and ids, or the tail that begins as ids[0..count) under the
 * parent. may_read: if it lies on disk alone, have it read. */
enum tier_disk_found tier_disk_find(struct tier_disk *disk, const struct tier_block *wanted,
                                    bool may_read, uint32_t *ret_slot);
enum tier_disk_found tier_disk_find_tail(struct tier_disk *disk, struct block_hash parent,
                                         const uint32_t *ids, uint32_t count, bool may_read,
                                         uint32_t *ret_slot, uint32_t *ret_tokens);
/* Buffers for reading, and how many of them are in use. */
uint32_t tier_disk_readers(const struct tier_disk *disk, uint32_t *ret_used);
/* The block in this buffer is copied into the pool in the step that is planned. */
void tier_disk_loaded(struct tier_disk *disk, uint32_t slot);
/* For the step: what the plan has started, valid until tier_disk_step_done. */
const struct step_disk_op *tier_disk_ops(struct tier_disk *disk, uint32_t *ret_count);
uint32_t tier_disk_ops_max(const struct tier_disk_settings *settings);
void tier_disk_step_done(struct tier_disk *disk);
/* Is something under way, or could be? Then another turn is worth while, rows or not. */
bool tier_disk_busy(const struct tier_disk *disk);
/* Forget every block and remove every file. Returns how many could be found. */
uint32_t tier_disk_clear(struct tier_disk *disk);
void tier_disk_get_counts(const struct tier_disk *disk, struct tier_disk_counts *ret_counts);
const char *tier_disk_state_name(enum tier_disk_state state);
void tier_disk_check(const struct tier_disk *disk);

#endif
