/* buffer.h - growing bytes with a maximum.
 *
 * Errors stick: after the first append that would pass `bytes_max`, `failed` is set, later appends
 * do nothing and buffer_finish() answers -ENOBUFS, so that writers need one check at the end.
 * `data` is always terminated by a NUL that is not counted. Thread: one. */
#ifndef REFRAIN_PROTO_BASE_BUFFER_H
#define REFRAIN_PROTO_BASE_BUFFER_H

#include <stdbool.h>
#include <stddef.h>

#include "proto/base/mem.h"

struct buffer {
    char *data; /* never NULL after init */
    size_t bytes;
    size_t capacity;
    size_t bytes_max;
    bool failed;
    enum mem_purpose purpose; /* who is counted */
};

void buffer_init_as(struct buffer *buffer, enum mem_purpose purpose, size_t bytes_max);
static inline void buffer_init(struct buffer *buffer, size_t bytes_max)
{
    buffer_init_as(buffer, MEM_PURPOSE, bytes_max);
}
void buffer_done(struct buffer *buffer);
void buffer_clear(struct buffer *buffer); /* keeps the memory, clears `failed` */
/* Clear; memory past `kept_bytes`, which a rare large text needed, is given back. */
void buffer_trim(struct buffer *buffer, size_t kept_bytes);
void buffer_append(struct buffer *buffer, const void *data, size_t bytes);
void buffer_append_text(struct buffer *buffer, const char *text);
void buffer_append_char(struct buffer *buffer, char c);
void buffer_printf(struct buffer *buffer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Drop the first `bytes` bytes (a parser consumed them). */
void buffer_consume(struct buffer *buffer, size_t bytes);
/* Give the memory away: the caller frees it with mem_free; the buffer is as after init. */
char *buffer_take(struct buffer *buffer, size_t *ret_bytes);
int buffer_finish(const struct buffer *buffer); /* 0, or -ENOBUFS */

#endif
