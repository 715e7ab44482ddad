/* metaspace.h - SentencePiece's handling of spaces, on plain bytes: our words keep real spaces. */
#ifndef REFRAIN_ROUTER_TEXT_METASPACE_H
#define REFRAIN_ROUTER_TEXT_METASPACE_H

#include <stdbool.h>
#include <stddef.h>

#include "proto/base/buffer.h"

/* Append text with U+2581 as a space; with `prefix`, a space before it; with `collapse`, runs of
 * spaces as one and none at either end (the prefix apart). */
void metaspace_normalize(const char *text, size_t bytes, bool prefix, bool collapse,
                         struct buffer *out);
/* Length of the first word: spaces, then everything up to the next space. bytes > 0. */
size_t metaspace_word(const char *text, size_t bytes);

#endif
