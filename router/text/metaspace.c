/* metaspace.c - a literal U+2581 in a text is to SentencePiece the same as a space.
 *
 * The vocabulary is decoded to plain bytes, so text needs no escaping, only the other way round.
 *
 * Cutting at spaces is our own short cut, exact where no token has a space after another character
 * (vocabulary.space_starts_words): no merge can then cross such a border, and the words are short
 * and repeat, so that most come from the word cache. */
#include "router/text/metaspace.h"

#include <string.h>

#include "proto/base/assert.h"

#define LOW_LINE "\xe2\x96\x81"

size_t metaspace_length(const char *text, size_t bytes)
{
    if (bytes > 0 && text[0] == ' ')
        return 1;
    return bytes >= 3 && memcmp(text, LOW_LINE, 3) == 0 ? 3 : 0;
}

size_t metaspace_find(const char *text, size_t bytes, size_t at)
{
    while (at < bytes && metaspace_length(text + at, bytes - at) == 0)
        at++;
    return at < bytes ? at : bytes;
}

bool metaspace_plain(const char *text, size_t bytes, struct buffer *out)
{
    const char *found = memmem(text, bytes, LOW_LINE, 3), *end = text + bytes;
    if (found == NULL)
        return false;
    for (; found != NULL; found = memmem(text, (size_t)(end - text), LOW_LINE, 3)) {
        buffer_append(out, text, (size_t)(found - text));
        buffer_append_char(out, ' ');
        text = found + 3;
    }
    buffer_append(out, text, (size_t)(end - text));
    return true;
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
