/* chain.h - enough of a long byte string to say how far another one agrees with it.
 *
 *   bytes   |--64--|--64--|--64--|--64--|-- rest --|
 *   marks          m1            m2      last         a mark every 64 bytes << shift
 *
 * Each mark is a 64-bit hash of everything before it, so the first differing mark is found while
 * walking the other string once. Bounded: CHAIN_MARKS_MAX; when they are used up every second one
 * goes and the answer becomes coarser. 64 bytes are 16 token ids: a block. Thread: one. */
#ifndef REFRAIN_ROUTER_SESSION_CHAIN_H
#define REFRAIN_ROUTER_SESSION_CHAIN_H

#include <stddef.h>
#include <stdint.h>

#define CHAIN_UNIT 64u
#define CHAIN_MARKS_MAX 512u

struct chain {
    uint64_t bytes;
    uint64_t last; /* hash of all full units */
    uint64_t *marks;
    uint32_t marks_count, marks_capacity;
    uint32_t shift;
    uint8_t rest[CHAIN_UNIT]; /* bytes % CHAIN_UNIT of them */
};

void chain_init(struct chain *chain);
void chain_done(struct chain *chain);
void chain_add(struct chain *chain, const void *data, size_t bytes);
/* How many bytes `data` surely begins with in common: exact when it holds the whole chain (then
 * chain->bytes), when it parts in the rest, or when it is itself the shorter one and ends at a
 * unit; else the last mark before the place, up to CHAIN_UNIT << shift bytes early. */
uint64_t chain_common(const struct chain *chain, const void *data, size_t bytes);
/* Hash of all that was added. */
uint64_t chain_hash(const struct chain *chain);
size_t chain_memory(const struct chain *chain);

#endif
