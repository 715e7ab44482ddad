/* unicode.h - UTF-8 and the few Unicode properties that pre-tokenization and NFC ask for.
 *
 * Properties come from utf8proc, a page of 256 code points at a time, on first use: start-up pays
 * nothing and a text of one script touches a few pages. Thread: one. */
#ifndef REFRAIN_ROUTER_TEXT_UNICODE_H
#define REFRAIN_ROUTER_TEXT_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/buffer.h"

/* Bits of a code point. L = letter: UPPER is Lu and Lt, LOWER is Ll, neither is Lm and Lo. */
enum {
    CP_LETTER = 1,
    CP_NUMBER = 2,
    CP_SPACE = 4, /* Unicode White_Space */
    CP_MARK = 8,
    CP_PUNCT = 16,
    CP_SYMBOL = 32,
    CP_UPPER = 64,
    CP_LOWER = 128,
    CP_COMPOSES = 256, /* its presence may make a text not NFC */
};

#define CP_PAGES (0x110000u >> 8)

struct unicode {
    uint16_t *pages[CP_PAGES];
};

void unicode_init(struct unicode *unicode);
void unicode_done(struct unicode *unicode);
/* Fill the page that holds code points page * 256 and up. */
const uint16_t *unicode_page(struct unicode *unicode, uint32_t page);

static inline uint16_t unicode_bits(struct unicode *unicode, uint32_t code_point)
{
    const uint16_t *page = unicode->pages[code_point >> 8];
    if (__builtin_expect(page == NULL, 0))
        page = unicode_page(unicode, code_point >> 8);
    return page[code_point & 255];
}

/* One code point of valid UTF-8. */
static inline uint32_t utf8_decode(const char *text, uint32_t *ret_bytes)
{
    const unsigned char *at = (const unsigned char *)text;
    if (at[0] < 0x80) {
        *ret_bytes = 1;
        return at[0];
    }
    if (at[0] < 0xe0) {
        *ret_bytes = 2;
        return (at[0] & 0x1fu) << 6 | (at[1] & 0x3fu);
    }
    if (at[0] < 0xf0) {
        *ret_bytes = 3;
        return (at[0] & 0x0fu) << 12 | (at[1] & 0x3fu) << 6 | (at[2] & 0x3fu);
    }
    *ret_bytes = 4;
    return (at[0] & 0x07u) << 18 | (at[1] & 0x3fu) << 12 | (at[2] & 0x3fu) << 6 | (at[3] & 0x3fu);
}

/* Bytes 1..4 of code point `cp` in UTF-8. */
uint32_t utf8_encode(uint32_t cp, char ret_text[4]);
/* Length of the well-formed sequence at `text`, or 0: the first byte is bad (or cut off). */
uint32_t utf8_sequence(const char *text, size_t bytes);
/* Length of the longest well-formed beginning. */
size_t utf8_valid_bytes(const char *text, size_t bytes);
/* May these 1..3 bytes still become a character when more follow? */
bool utf8_is_beginning(const unsigned char *bytes, uint32_t count);

enum unicode_form { UNICODE_NFC = 0, UNICODE_NFD, UNICODE_NFKC, UNICODE_NFKD };

/* False: `text` (valid UTF-8) is in that form already, nothing appended. True: its form was
 * appended. O(n log n), however long its runs of combining marks are. */
bool unicode_normalize(struct unicode *unicode, enum unicode_form form, const char *text,
                       size_t bytes, struct buffer *out);
/* A letter, mark, digit, letter number, connector or joiner: \w of the Python stack's matchers. */
bool unicode_is_word(uint32_t code_point);

#endif
