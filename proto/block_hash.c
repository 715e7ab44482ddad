/* block_hash.c - chained XXH3-128 over blocks of token ids.
 *
 * A hash names everything that lies before it: the model (fingerprint), the adapter, the tenant
 * (cache salt) and all ids up to the block's end. Router and worker compute it on their own, so the
 * bytes that go in are fixed here and nowhere else:
 *
 *   root     "refrain.block.1" NUL fingerprint NUL adapter NUL cache_salt, no NUL at the end
 *   block    parent.low, parent.high as little-endian u64, then BLOCK_TOKENS ids as little-endian
 * u32
 *
 * Why fixed-width and not canonical (big-endian) bytes: on every machine we run on, a block is then
 * hashed from memory as it lies. Cost: one XXH3 call over 80 bytes a block, about 15 ns. */
#include "proto/block_hash.h"

#include <string.h>
#include <xxhash.h>

#include "proto/base/assert.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "block_hash.c hashes ids as they lie in memory: little-endian machines only"
#endif

#define ROOT_TAG "refrain.block.1"

static struct block_hash from_xxh(XXH128_hash_t hash)
{
    return (struct block_hash){.low = hash.low64, .high = hash.high64};
}

static void update_text(XXH3_state_t *state, const char *text)
{
    static const char nul = '\0';
    (void)XXH3_128bits_update(state, &nul, 1);
    if (text != NULL && text[0] != '\0')
        (void)XXH3_128bits_update(state, text, strlen(text));
}

struct block_hash block_hash_root(const char *fingerprint, const char *adapter,
                                  const char *cache_salt)
{
    XXH3_state_t *state = XXH3_createState();
    ASSERT(state != NULL); /* 600 bytes: out of memory */
    (void)XXH3_128bits_reset(state);
    (void)XXH3_128bits_update(state, ROOT_TAG, sizeof(ROOT_TAG) - 1);
    update_text(state, fingerprint);
    update_text(state, adapter);
    update_text(state, cache_salt);
    struct block_hash root = from_xxh(XXH3_128bits_digest(state));
    (void)XXH3_freeState(state);
    return root;
}

struct block_hash block_hash_next(struct block_hash parent, const uint32_t *ids)
{
    struct {
        uint64_t low, high;
        uint32_t ids[BLOCK_TOKENS];
    } input = {.low = parent.low, .high = parent.high};
    _Static_assert(sizeof(input) == 16 + 4 * BLOCK_TOKENS, "no padding may be hashed");
    memcpy(input.ids, ids, sizeof(input.ids));
    return from_xxh(XXH3_128bits(&input, sizeof(input)));
}

size_t block_hash_chain(struct block_hash root, const uint32_t *ids, size_t count,
                        struct block_hash *ret_hashes)
{
    size_t blocks = count / BLOCK_TOKENS;
    struct block_hash hash = root;
    for (size_t i = 0; i < blocks; i++) {
        hash = block_hash_next(hash, ids + i * BLOCK_TOKENS);
        ret_hashes[i] = hash;
    }
    return blocks;
}
