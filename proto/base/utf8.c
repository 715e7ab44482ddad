/* utf8.c - one character after the other: no overlong forms, no surrogates, nothing past U+10FFFF.
 */
#include "proto/base/utf8.h"

/* Bytes of the character at `text`, 0 when it is not valid UTF-8 (Unicode 15, table 3-7). */
static size_t utf8_character(const unsigned char *text, size_t bytes)
{
    unsigned char c = text[0];
    unsigned char low = 0x80, high = 0xbf; /* bounds of the second byte */
    size_t count = c < 0xc2 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf5 ? 4 : 0;

    if (c < 0x80)
        return 1;
    if (count == 0 || bytes < count)
        return 0;
    if (c == 0xe0)
        low = 0xa0; /* no overlong forms */
    else if (c == 0xed)
        high = 0x9f; /* no surrogates */
    else if (c == 0xf0)
        low = 0x90;
    else if (c == 0xf4)
        high = 0x8f; /* nothing past U+10FFFF */
    for (size_t i = 1; i < count; i++) {
        if (text[i] < low || text[i] > high)
            return 0;
        low = 0x80;
        high = 0xbf;
    }
    return count;
}

size_t utf8_span(const char *text, size_t bytes)
{
    size_t at = 0;

    while (at < bytes) {
        size_t count = utf8_character((const unsigned char *)text + at, bytes - at);

        if (count == 0)
            break;
        at += count;
    }
    return at;
}
