/* block_hash.h - token ids -> chained block hashes: what router and worker call "the same prefix".
 *
 *   root = XXH3-128("refrain.block.1" NUL fingerprint NUL adapter NUL cache_salt)
 *   hash(block i) = XXH3-128(hash(block i-1) as 16 bytes || ids of block i as little-endian u32)
 *
 * Only full blocks of BLOCK_TOKENS ids have a hash. XXH3-128 is not collision proof against an
 * attacker: the worker compares the stored token ids on a hit, the router only predicts.
 * Thread: any. */
#ifndef REFRAIN_PROTO_BLOCK_HASH_H
#define REFRAIN_PROTO_BLOCK_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BLOCK_TOKENS 16

struct block_hash {
    uint64_t low, high;
};

/* NULL texts count as "". */
struct block_hash block_hash_root(const char *fingerprint, const char *adapter,
                                  const char *cache_salt);
/* ids: BLOCK_TOKENS token ids. */
struct block_hash block_hash_next(struct block_hash parent, const uint32_t *ids);
/* Hashes of all full blocks of ids[0..count): writes count / BLOCK_TOKENS entries, returns that. */
size_t block_hash_chain(struct block_hash root, const uint32_t *ids, size_t count,
                        struct block_hash *ret_hashes);

static inline bool block_hash_equal(struct block_hash a, struct block_hash b)
{
    return a.low == b.low && a.high == b.high;
}

#endif
