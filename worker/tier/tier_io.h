/* tier_io.h - a rank's thread that reads, writes and removes the files of its disk tier.
 *
 *   engine or follower --submit--> bounded queue --> thread: one operation after the other
 *   rank 0             <--done words (in the group's memory)---
 *
 * Rank 0 decides which operation comes and gives each a token: a buffer of one KV block beside the
 * host slots, or the one token behind them for what needs no buffer. A token has one operation at a
 * time, so the queue never overflows and nobody waits for the disk. When it is over, the thread
 * stores ticket and result in the token's word. Operations are done in the order in which they were
 * submitted: a file is removed before it is written again. The
 * thread itself logs the file and the errno of a failure, a line per kind of failure until a write
 * goes well. */
#ifndef REFRAIN_WORKER_TIER_TIER_IO_H
#define REFRAIN_WORKER_TIER_TIER_IO_H

#include "worker/tier/tier_file.h"
#include "worker/tp/step_ring.h"

struct tier_io;

struct tier_io_settings {
    int folder;               /* taken over on success */
    const struct tier_fs *fs; /* outlives it, as the next three do */
    char *buffers;            /* [buffers_count * identity.payload_bytes] */
    uint32_t buffers_count;   /* tokens 0..count - 1; token `count` has none */
    uint32_t *done;           /* [buffers_count + 1] */
    struct tier_identity identity;
};

/* 0, or the errno of starting the thread. */
int tier_io_new(const struct tier_io_settings *settings, struct tier_io **ret_io,
                struct errmsg *err);
/* Ends after the operation at work; what is queued is not done. 0; -ETIMEDOUT: the disk hangs, and
 * the thread with it: the buffers must stay mapped. NULL is fine. */
int tier_io_free(struct tier_io *io);
/* Thread: the one that computes. Never waits for the disk. */
void tier_io_submit(struct tier_io *io, const struct step_disk_op *ops, uint32_t count);

/* The word of an operation that is over. */
static inline uint32_t tier_io_word(uint32_t ticket, enum tier_io_result result)
{
    return ticket << 4 | (uint32_t)result;
}
/* true: the operation of this ticket is over. */
bool tier_io_is_done(const uint32_t *word, uint32_t ticket, enum tier_io_result *ret_result);

#endif
