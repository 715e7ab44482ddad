/* errmsg.h - the sentence that goes with an error code.
 *
 * A function that can fail for reasons a person should read takes a `struct errmsg *err` (may be
 * NULL) and returns a negative errno. The text says what failed, with names and numbers; no
 * trailing newline, no prompt text. */
#ifndef REFRAIN_PROTO_BASE_ERRMSG_H
#define REFRAIN_PROTO_BASE_ERRMSG_H

#define ERRMSG_MAX 512

struct errmsg {
    char text[ERRMSG_MAX]; /* always terminated; cut with "..." when too long */
};

/* Store the text and return `code` (negative), so that `return errmsg_set(err, -EINVAL, ...)`. */
int errmsg_set(struct errmsg *err, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Store "text: strerror(errno)" and return -errno. Call it before anything else can change errno.
 */
int errmsg_errno(struct errmsg *err, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Put "text: " before what stands there; returns `code`. Used on the way up, to add a file name. */
int errmsg_prefix(struct errmsg *err, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
