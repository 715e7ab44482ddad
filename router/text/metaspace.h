/* metaspace.h - SentencePiece writes a space as U+2581; our words keep real spaces. */
#ifndef REFRAIN_ROUTER_TEXT_METASPACE_H
#define REFRAIN_ROUTER_TEXT_METASPACE_H

#include <stdbool.h>
#include <stddef.h>

#include "proto/base/buffer.h"

/* 1: text begins with a space, 3: with U+2581, 0: with neither (or is empty). */
size_t metaspace_length(const char *text, size_t bytes);
/* The first space or U+2581 at or behind `at`; `bytes` when there is none. */
size_t metaspace_find(const char *text, size_t bytes, size_t at);
/* False: no U+2581 in it. True: the text with spaces in their place was appended. */
bool metaspace_plain(const char *text, size_t bytes, struct buffer *out);
/* Length of the first word of plain text: spaces, then everything up to the next space. */
size_t metaspace_word(const char *text, size_t bytes);

#endif
