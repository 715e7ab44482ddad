/* arena.c - memory of one request: bump a pointer, free everything at the end.
 *
 *   chunks -> [newest: used ..free..] -> [older, full] -> [first: kept by reset]
 *
 * Chunks double from 4 KiB to 256 KiB; a bigger request gets a chunk of its own size, put behind
 * the newest so that the newest's free rest is still used. The bound counts what was handed out,
 * so memory taken is at most about twice `bytes_max` + one chunk. Invariant: used <= bytes in each
 * chunk; the sum of what was handed out is bytes_used <= bytes_max. */
#include "proto/base/arena.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/assert.h"

#define ARENA_ALIGN 16u
#define CHUNK_BYTES_MIN ((size_t)4096)
#define CHUNK_BYTES_MAX ((size_t)256 << 10)

struct arena_chunk {
    struct arena_chunk *next;
    size_t bytes; /* in data */
    size_t used;
    _Alignas(ARENA_ALIGN) char data[];
};

void arena_init_as(struct arena *arena, enum mem_purpose purpose, size_t bytes_max)
{
    *arena = (struct arena){.bytes_max = bytes_max, .purpose = purpose};
}

void arena_done(struct arena *arena)
{
    struct arena_chunk *chunk = arena->chunks;

    while (chunk != NULL) {
        struct arena_chunk *next = chunk->next;
        mem_free(chunk);
        chunk = next;
    }
    arena->chunks = NULL;
    arena->bytes_used = 0;
}

void arena_reset(struct arena *arena)
{
    struct arena_chunk *chunk = arena->chunks;

    arena->bytes_used = 0;
    if (chunk == NULL)
        return;
    while (chunk->next != NULL) {
        struct arena_chunk *next = chunk->next;
        mem_free(chunk);
        chunk = next;
    }
    chunk->used = 0;
    arena->chunks = chunk;
}

/* A chunk with room for `bytes`, linked in; NULL: no memory. */
static struct arena_chunk *add_chunk(struct arena *arena, size_t bytes)
{
    struct arena_chunk *newest = arena->chunks;
    size_t chunk_bytes = newest == NULL ? CHUNK_BYTES_MIN : 2 * newest->bytes;
    struct arena_chunk *chunk;

    if (chunk_bytes > CHUNK_BYTES_MAX)
        chunk_bytes = CHUNK_BYTES_MAX;
    if (chunk_bytes < bytes)
        chunk_bytes = bytes;
    chunk = mem_try_alloc_as(arena->purpose, sizeof(*chunk) + chunk_bytes);
    if (chunk == NULL)
        return NULL;
    *chunk = (struct arena_chunk){.bytes = chunk_bytes};
    if (newest != NULL && bytes > newest->bytes) {
        chunk->next = newest->next; /* full at once: the newest's rest stays in use */
        newest->next = chunk;
    } else {
        chunk->next = newest;
        arena->chunks = chunk;
    }
    return chunk;
}

void *arena_alloc(struct arena *arena, size_t bytes)
{
    struct arena_chunk *chunk = arena->chunks;
    void *pointer;

    ASSERT(arena->bytes_used <= arena->bytes_max);
    if (bytes == 0)
        bytes = 1; /* a pointer of its own */
    if (bytes > SIZE_MAX - ARENA_ALIGN)
        return NULL;
    bytes = (bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
    if (bytes > arena->bytes_max - arena->bytes_used)
        return NULL;
    if (chunk == NULL || chunk->bytes - chunk->used < bytes) {
        chunk = add_chunk(arena, bytes);
        if (chunk == NULL)
            return NULL;
    }
    pointer = chunk->data + chunk->used;
    chunk->used += bytes;
    arena->bytes_used += bytes;
    return pointer;
}

void *arena_zalloc(struct arena *arena, size_t bytes)
{
    void *pointer = arena_alloc(arena, bytes);

    if (pointer != NULL)
        memset(pointer, 0, bytes);
    return pointer;
}

char *arena_strdup(struct arena *arena, const char *text)
{
    return arena_strndup(arena, text, strlen(text));
}

char *arena_strndup(struct arena *arena, const char *text, size_t bytes)
{
    char *copy = bytes < SIZE_MAX ? arena_alloc(arena, bytes + 1) : NULL;

    if (copy == NULL)
        return NULL;
    if (bytes > 0)
        memcpy(copy, text, bytes);
    copy[bytes] = '\0';
    return copy;
}

char *arena_printf(struct arena *arena, const char *format, ...)
{
    va_list args;
    char *text;
    int bytes;

    va_start(args, format);
    bytes = vsnprintf(NULL, 0, format, args);
    va_end(args);
    ASSERT(bytes >= 0);
    text = arena_alloc(arena, (size_t)bytes + 1);
    if (text == NULL)
        return NULL;
    va_start(args, format);
    (void)vsnprintf(text, (size_t)bytes + 1, format, args);
    va_end(args);
    return text;
}
