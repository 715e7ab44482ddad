/* ghosts.h - blocks that were lost lately: hash, since when they waited, of which kind.
 *
 * Buckets of four, the oldest of a bucket is forgotten for a new one. Twice as many as the pool has
 * blocks, at most 65536. A guess for statistics, never for reuse: 64 bits of the hash are enough.
 * Thread: one. */
#ifndef REFRAIN_WORKER_KV_GHOSTS_H
#define REFRAIN_WORKER_KV_GHOSTS_H

#include <stdbool.h>
#include <stdint.h>

struct ghost {
    uint64_t tag; /* 0: no ghost */
    uint32_t used, kind;
};

struct ghosts {
    struct ghost *buckets; /* newest first */
    uint32_t buckets_count, count;
};

int ghosts_init(struct ghosts *ghosts, uint32_t blocks_total); /* 0, or -ENOMEM */
void ghosts_done(struct ghosts *ghosts);
/* true: *ret_forgotten had to go, or the ghost itself (tag 0, or a twin is there). */
bool ghosts_add(struct ghosts *ghosts, const struct ghost *ghost, struct ghost *ret_forgotten);
/* false: not known. */
bool ghosts_take(struct ghosts *ghosts, uint64_t tag, struct ghost *ret_ghost);
static inline uint32_t ghosts_count(const struct ghosts *ghosts)
{
    return ghosts->count;
}

#endif
