/* errmsg.c - the text of an error, in a fixed buffer that the caller owns.
 *
 * No allocation: it has to work when that is what failed. A text that does not fit ends in "...",
 * cut at a UTF-8 border, because it goes into JSON answers. */
#include "proto/base/errmsg.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/assert.h"

static void mark_cut(struct errmsg *err)
{
    size_t at = ERRMSG_MAX - 4;

    while (at > 0 && ((unsigned char)err->text[at] & 0xc0) == 0x80)
        at--; /* not into the middle of a character */
    memcpy(err->text + at, "...", 4);
}

static void store(struct errmsg *err, const char *format, va_list args)
{
    if (vsnprintf(err->text, ERRMSG_MAX, format, args) >= ERRMSG_MAX)
        mark_cut(err);
}

int errmsg_set(struct errmsg *err, int code, const char *format, ...)
{
    va_list args;

    ASSERT(code < 0);
    if (err == NULL)
        return code;
    va_start(args, format);
    store(err, format, args);
    va_end(args);
    return code;
}

int errmsg_errno(struct errmsg *err, const char *format, ...)
{
    int code = errno != 0 ? errno : EIO; /* a caller must get something negative */
    char reason[128];
    const char *reason_text;
    size_t bytes;
    va_list args;

    if (err == NULL)
        return -code;
    va_start(args, format);
    store(err, format, args);
    va_end(args);
    reason_text = strerror_r(code, reason, sizeof(reason));
    bytes = strlen(err->text);
    if ((size_t)snprintf(err->text + bytes, ERRMSG_MAX - bytes, ": %s", reason_text) >=
        ERRMSG_MAX - bytes)
        mark_cut(err);
    return -code;
}

int errmsg_prefix(struct errmsg *err, int code, const char *format, ...)
{
    struct errmsg rest;
    size_t bytes;
    va_list args;

    ASSERT(code < 0);
    if (err == NULL)
        return code;
    rest = *err;
    va_start(args, format);
    store(err, format, args);
    va_end(args);
    bytes = strlen(err->text);
    if ((size_t)snprintf(err->text + bytes, ERRMSG_MAX - bytes, ": %s", rest.text) >=
        ERRMSG_MAX - bytes)
        mark_cut(err);
    return code;
}
