/* word_cache.h - short words whose ids are known, in fixed memory.
 *
 * One slot per hash value: a newcomer takes the place of whoever had it. Thread: one. */
#ifndef REFRAIN_ROUTER_TEXT_WORD_CACHE_H
#define REFRAIN_ROUTER_TEXT_WORD_CACHE_H

#include <stddef.h>
#include <stdint.h>

#define WORD_CACHE_SLOTS 32768u /* of 128 bytes: 4 MiB */
#define WORD_CACHE_WORD_MAX 46u
#define WORD_CACHE_IDS_MAX 18u

struct word_cache;

struct word_cache *word_cache_new(void);
void word_cache_free(struct word_cache *cache);
/* The ids (valid until the next put) and their count, or NULL. `bytes` <= WORD_CACHE_WORD_MAX. */
const uint32_t *word_cache_get(const struct word_cache *cache, const char *word, size_t bytes,
                               uint64_t hash, size_t *ret_count);
/* Remembers a word of 1..WORD_CACHE_WORD_MAX bytes and 1..WORD_CACHE_IDS_MAX ids; ignores others.
 */
void word_cache_put(struct word_cache *cache, const char *word, size_t bytes, uint64_t hash,
                    const uint32_t *ids, size_t count);

#endif
