/* stop.h - stop strings across chunk borders: text that might still become one is held back.
 *
 * Aho-Corasick is not needed: at most STOP_STRINGS_MAX strings of STOP_BYTES_MAX bytes. Thread:
 * one. */
#ifndef REFRAIN_ROUTER_TEXT_STOP_H
#define REFRAIN_ROUTER_TEXT_STOP_H

#include <stdbool.h>
#include <stddef.h>

#include "proto/base/buffer.h"

#define STOP_STRINGS_MAX 16
#define STOP_BYTES_MAX 1024

struct stop_matcher;

/* Copies the strings. -EINVAL: an empty string; -E2BIG: too many or too long. count 0 is fine. */
int stop_matcher_new(const char *const *strings, const size_t *bytes, size_t count,
                     bool include_in_output, struct stop_matcher **ret_matcher);
void stop_matcher_free(struct stop_matcher *matcher);
/* Feed text; append what is certain to belong to the answer to *out. True: a stop string is
 * complete (earliest end wins, of those the longest); everything after it is dropped, *ret_which is
 * its index, further pushes are ignored. */
bool stop_matcher_push(struct stop_matcher *matcher, const char *text, size_t bytes,
                       struct buffer *out, size_t *ret_which);
/* No match can come of what was held: append it, and begin anew. */
void stop_matcher_finish(struct stop_matcher *matcher, struct buffer *out);

#endif
