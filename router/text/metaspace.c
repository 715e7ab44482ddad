/* metaspace.c - SentencePiece writes a space as U+2581 and may put one before a text.
 *
 * The vocabulary is decoded to plain bytes, so text needs no escaping, only the other way round: a
 * literal U+2581 is the same to SentencePiece as a space, so it becomes one.
 *
 * Cutting at spaces is our own short cut, exact where no token has a space after another character
 * (vocabulary.space_starts_words): no merge can then cross such a border, and the words are short
 * and repeat, so that most come from the word cache. */
#include "router/text/metaspace.h"

#include <string.h>

#include "proto/base/assert.h"

void metaspace_normalize(const char *text, size_t bytes, bool prefix, bool collapse,
                         struct buffer *out)
{
    bool pending = false, begun = false; /* a space waits for the next character; had one already */
    size_t copied = 0;
    if (prefix)
        buffer_append_char(out, ' ');
    for (size_t at = 0; at < bytes;) {
        size_t length = 1;
        bool is_space = text[at] == ' ';
        if (text[at] == '\xe2' && bytes - at >= 3 && memcmp(text + at, "\xe2\x96\x81", 3) == 0) {
            is_space = true;
            length = 3;
        }
        if (is_space && (collapse || length == 3)) {
            buffer_append(out, text + copied, at - copied);
            copied = at + length;
            if (collapse)
                pending = begun;
            else
                buffer_append_char(out, ' ');
        } else {
            if (pending) {
                buffer_append_char(out, ' ');
                pending = false;
            }
            begun = true;
        }
        at += length;
    }
    buffer_append(out, text + copied, bytes - copied);
}

size_t metaspace_word(const char *text, size_t bytes)
{
    size_t at = 0;
    ASSERT(bytes > 0);
    while (at < bytes && text[at] == ' ')
        at++;
    const char *space = at < bytes ? memchr(text + at, ' ', bytes - at) : NULL;
    return space == NULL ? bytes : (size_t)(space - text);
}
