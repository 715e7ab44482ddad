/* arena.h - memory of one lifetime: allocate many times, free once.
 *
 * Bounded: past `bytes_max` arena_alloc returns NULL and the request gets an error, not the
 * process an OOM. Pointers are 16-byte aligned and stay valid until reset or done. Thread: one. */
#ifndef REFRAIN_PROTO_BASE_ARENA_H
#define REFRAIN_PROTO_BASE_ARENA_H

#include <stddef.h>

#include "proto/base/mem.h"

struct arena_chunk;
struct arena {
    struct arena_chunk *chunks; /* newest first */
    size_t bytes_used;          /* handed out, alignment included */
    size_t bytes_max;
    enum mem_purpose purpose; /* who is counted */
};

void arena_init_as(struct arena *arena, enum mem_purpose purpose, size_t bytes_max);
static inline void arena_init(struct arena *arena, size_t bytes_max)
{
    arena_init_as(arena, MEM_PURPOSE, bytes_max);
}
void arena_done(struct arena *arena);
/* Forget everything, keep the first chunk for the next use. */
void arena_reset(struct arena *arena);
void *arena_alloc(struct arena *arena, size_t bytes); /* NULL: past bytes_max */
void *arena_zalloc(struct arena *arena, size_t bytes);
char *arena_strdup(struct arena *arena, const char *text);
/* All `bytes` of text, NULs too, and a NUL behind. */
char *arena_strndup(struct arena *arena, const char *text, size_t bytes);
/* NULL: past bytes_max. */
char *arena_printf(struct arena *arena, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
