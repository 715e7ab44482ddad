/* evicted.h - the newest hashes that were evicted, so that a miss can say "evicted" and not
 * "first".
 *
 * A guess for people, never for reuse: 64k tags of 64 bits, forgotten in order of age within their
 * bucket of eight. Fixed memory (512 KiB). Thread: one. */
#ifndef REFRAIN_WORKER_KV_EVICTED_H
#define REFRAIN_WORKER_KV_EVICTED_H

#include <stdbool.h>
#include <stdint.h>

struct evicted {
    uint64_t *tags; /* buckets of EVICTED_WAYS, newest first; 0: free */
};

int evicted_init(struct evicted *evicted); /* 0, or -ENOMEM */
void evicted_done(struct evicted *evicted);
void evicted_add(struct evicted *evicted, uint64_t tag);
bool evicted_has(const struct evicted *evicted, uint64_t tag);

#endif
