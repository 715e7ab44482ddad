/* template_cache.h - compiled chat templates that came in requests, the latest ones used.
 *
 * A client that sends its own template sends the same one with each turn, so it is compiled once.
 * Compared byte by byte, not by a hash: what one client sends must not pass for another's.
 *
 * Bounds: TEMPLATE_CACHE_ENTRIES, and TEMPLATE_CACHE_BYTES with what they compile to (a hundred
 * times the source at worst); least recently used goes first. One that is larger alone stays until
 * the next one comes. Thread: the loop's. */
#ifndef REFRAIN_ROUTER_TEMPLATE_CACHE_H
#define REFRAIN_ROUTER_TEMPLATE_CACHE_H

#include "router/text/chat_template.h"

#define TEMPLATE_CACHE_ENTRIES 16u
#define TEMPLATE_CACHE_BYTES ((size_t)16 << 20) /* real ones take 0.2 MiB at most */

struct template_cache;

struct template_cache *template_cache_new(void);
void template_cache_free(struct template_cache *cache); /* NULL is fine */
/* *ret_template is the cache's, good until the next call. -EINVAL: does not compile, *err names
 * line and cause; -E2BIG. Nothing is kept of those. */
int template_cache_get(struct template_cache *cache, const char *source, size_t bytes,
                       const struct chat_template **ret_template, struct errmsg *err);
size_t template_cache_count(const struct template_cache *cache);
size_t template_cache_bytes(const struct template_cache *cache);
size_t template_cache_compiled(const struct template_cache *cache); /* since the start */

#endif
