/* evicted.c - a set of hashes that forgets: 8192 buckets of eight, one cache line each.
 *
 * Why not a ring beside a hash set: the same answers for half the memory and no removal. A tag is a
 * uniform hash already, so its low bits choose the bucket. */
#include "worker/kv/evicted.h"

#include <string.h>

#include "proto/base/mem.h"

#define EVICTED_BUCKETS 8192u
#define EVICTED_WAYS 8u
#define EVICTED_BYTES (EVICTED_BUCKETS * EVICTED_WAYS * sizeof(uint64_t))

int evicted_init(struct evicted *evicted)
{
    void *tags;
    int r = mem_map(EVICTED_BYTES, &tags);

    if (r < 0)
        return r;
    evicted->tags = tags;
    return 0;
}

void evicted_done(struct evicted *evicted)
{
    mem_unmap(evicted->tags, EVICTED_BYTES);
    evicted->tags = NULL;
}

static uint64_t *bucket_of(const struct evicted *evicted, uint64_t tag)
{
    return evicted->tags + (tag % EVICTED_BUCKETS) * EVICTED_WAYS;
}

bool evicted_has(const struct evicted *evicted, uint64_t tag)
{
    const uint64_t *bucket = bucket_of(evicted, tag);

    for (uint32_t i = 0; i < EVICTED_WAYS; i++)
        if (bucket[i] == tag)
            return tag != 0;
    return false;
}

void evicted_add(struct evicted *evicted, uint64_t tag)
{
    uint64_t *bucket = bucket_of(evicted, tag);

    if (evicted_has(evicted, tag))
        return;
    memmove(bucket + 1, bucket, (EVICTED_WAYS - 1) * sizeof(*bucket));
    bucket[0] = tag;
}
