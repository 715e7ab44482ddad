/* ghosts.c - see the header. A tag is a uniform hash already: its low bits choose the bucket. */
#include "worker/kv/ghosts.h"

#include <string.h>

#include "proto/base/mem.h"

#define WAYS 4u
#define GHOSTS_MAX 65536u

static size_t bytes_of(const struct ghosts *ghosts)
{
    return (size_t)ghosts->buckets_count * WAYS * sizeof(struct ghost);
}

int ghosts_init(struct ghosts *ghosts, uint32_t blocks_total)
{
    uint32_t wanted = blocks_total < GHOSTS_MAX / 2 ? 2 * blocks_total : GHOSTS_MAX;
    void *buckets;

    ghosts->buckets_count = 16;
    while (ghosts->buckets_count * WAYS < wanted)
        ghosts->buckets_count *= 2;
    int r = mem_map(bytes_of(ghosts), &buckets);
    if (r < 0)
        return r;
    ghosts->buckets = buckets;
    return 0;
}

void ghosts_done(struct ghosts *ghosts)
{
    if (ghosts->buckets != NULL)
        mem_unmap(ghosts->buckets, bytes_of(ghosts));
    ghosts->buckets = NULL;
}

static struct ghost *bucket_of(const struct ghosts *ghosts, uint64_t tag)
{
    return ghosts->buckets + (tag & (ghosts->buckets_count - 1)) * WAYS;
}

bool ghosts_take(struct ghosts *ghosts, uint64_t tag, struct ghost *ret_ghost)
{
    struct ghost *bucket = bucket_of(ghosts, tag);

    for (uint32_t i = 0; i < WAYS && tag != 0; i++) {
        if (bucket[i].tag != tag)
            continue;
        *ret_ghost = bucket[i];
        memmove(bucket + i, bucket + i + 1, (WAYS - 1 - i) * sizeof(*bucket));
        bucket[WAYS - 1].tag = 0;
        ghosts->count--;
        return true;
    }
    return false;
}

bool ghosts_add(struct ghosts *ghosts, const struct ghost *ghost, struct ghost *ret_forgotten)
{
    struct ghost *bucket = bucket_of(ghosts, ghost->tag);
    struct ghost forgotten = *ghost;

    if (ghost->tag != 0) {
        if (!ghosts_take(ghosts, ghost->tag, &forgotten)) { /* no older loss of the same content */
            forgotten = bucket[WAYS - 1];
            ghosts->count -= forgotten.tag != 0;
        }
        memmove(bucket + 1, bucket, (WAYS - 1) * sizeof(*bucket));
        bucket[0] = *ghost;
        ghosts->count++;
        if (forgotten.tag == 0)
            return false;
    }
    *ret_forgotten = forgotten;
    return true;
}
