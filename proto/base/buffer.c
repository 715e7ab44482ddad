/* buffer.c - growing bytes with a maximum; the first failure sticks.
 *
 * An empty buffer owns nothing: `data` points at a constant NUL until the first append, so that a
 * buffer per idle connection is free. Invariant: capacity == 0, or capacity > bytes and
 * data[bytes] is NUL; bytes <= bytes_max. Growth doubles, so appending n bytes costs O(n). */
#include "proto/base/buffer.h"

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"

#define BUFFER_BYTES_MIN 64u

static const char nothing[1] = "";

static void forget(struct buffer *buffer)
{
    buffer->data = (char *)(uintptr_t)nothing; /* never written: capacity is 0 */
    buffer->bytes = 0;
    buffer->capacity = 0;
    buffer->failed = false;
}

void buffer_init_as(struct buffer *buffer, enum mem_purpose purpose, size_t bytes_max)
{
    forget(buffer);
    buffer->purpose = purpose;
    buffer->bytes_max = bytes_max < SIZE_MAX ? bytes_max : SIZE_MAX - 1; /* room for the NUL */
}

void buffer_done(struct buffer *buffer)
{
    if (buffer->capacity > 0)
        mem_free(buffer->data);
    forget(buffer);
}

void buffer_clear(struct buffer *buffer)
{
    buffer->bytes = 0;
    buffer->failed = false;
    if (buffer->capacity > 0)
        buffer->data[0] = '\0';
}

void buffer_trim(struct buffer *buffer, size_t kept_bytes)
{
    if (buffer->capacity > kept_bytes)
        buffer_done(buffer);
    else
        buffer_clear(buffer);
}

/* Room for `bytes` more and the NUL. False: `failed` is set. */
static bool reserve(struct buffer *buffer, size_t bytes)
{
    size_t needed;
    size_t capacity;
    char *data;

    if (buffer->failed)
        return false;
    ASSERT(buffer->data != NULL && buffer->bytes <= buffer->bytes_max);
    if (bytes > buffer->bytes_max - buffer->bytes) {
        buffer->failed = true;
        return false;
    }
    needed = buffer->bytes + bytes + 1;
    if (needed <= buffer->capacity)
        return true;
    capacity = buffer->capacity < BUFFER_BYTES_MIN ? BUFFER_BYTES_MIN : buffer->capacity;
    while (capacity < needed)
        capacity = capacity > SIZE_MAX / 2 ? needed : 2 * capacity;
    if (capacity > buffer->bytes_max + 1)
        capacity = buffer->bytes_max + 1;
    data =
        mem_try_realloc_as(buffer->purpose, buffer->capacity > 0 ? buffer->data : NULL, capacity);
    if (data == NULL) {
        buffer->failed = true;
        return false;
    }
    if (buffer->capacity == 0)
        data[0] = '\0';
    buffer->data = data;
    buffer->capacity = capacity;
    return true;
}

void buffer_append(struct buffer *buffer, const void *data, size_t bytes)
{
    if (bytes == 0 || !reserve(buffer, bytes))
        return;
    memcpy(buffer->data + buffer->bytes, data, bytes);
    buffer->bytes += bytes;
    buffer->data[buffer->bytes] = '\0';
}

void buffer_append_text(struct buffer *buffer, const char *text)
{
    buffer_append(buffer, text, strlen(text));
}

void buffer_append_char(struct buffer *buffer, char c)
{
    buffer_append(buffer, &c, 1);
}

void buffer_printf(struct buffer *buffer, const char *format, ...)
{
    size_t spare = buffer->capacity - (buffer->capacity > 0 ? buffer->bytes : 0);
    va_list args;
    int bytes;

    if (buffer->failed)
        return;
    /* Most texts fit what is there already: one formatting, not two. */
    va_start(args, format);
    bytes = vsnprintf(spare > 0 ? buffer->data + buffer->bytes : NULL, spare, format, args);
    va_end(args);
    ASSERT(bytes >= 0);
    if (bytes == 0)
        return;
    if ((size_t)bytes >= spare) {
        if (spare > 0)
            buffer->data[buffer->bytes] = '\0';
        if (!reserve(buffer, (size_t)bytes))
            return;
        va_start(args, format);
        (void)vsnprintf(buffer->data + buffer->bytes, (size_t)bytes + 1, format, args);
        va_end(args);
    }
    buffer->bytes += (size_t)bytes;
}

void buffer_consume(struct buffer *buffer, size_t bytes)
{
    ASSERT(bytes <= buffer->bytes);
    if (bytes == 0)
        return;
    buffer->bytes -= bytes;
    memmove(buffer->data, buffer->data + bytes, buffer->bytes + 1);
}

char *buffer_take(struct buffer *buffer, size_t *ret_bytes)
{
    char *data = buffer->capacity > 0 ? buffer->data : mem_zalloc(1);

    if (ret_bytes != NULL)
        *ret_bytes = buffer->bytes;
    forget(buffer);
    return data;
}

int buffer_finish(const struct buffer *buffer)
{
    return buffer->failed ? -ENOBUFS : 0;
}
