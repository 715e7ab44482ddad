/* token_text.c - the three stored forms, one function each; the table of them is token_text.h.
 *
 * Text that is not in the byte alphabet although its model says so is taken as it stands. */
#include "proto/token_text.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define ALPHABET_END 0x144u /* one past the last code point of the byte alphabet */

static bool stands_for_itself(uint32_t byte)
{
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

uint32_t token_text_alphabet(unsigned char byte)
{
    if (stands_for_itself(byte))
        return byte;
    return 0x100u + (byte <= 0x20 ? byte : byte == 0xad ? 0x43u : byte - 0x7fu + 0x21u);
}

/* The byte of a code point of the byte alphabet, or -1. */
static int alphabet_byte(uint32_t cp)
{
    if (cp < 0x100)
        return stands_for_itself(cp) ? (int)cp : -1;
    if (cp >= ALPHABET_END)
        return -1;
    uint32_t n = cp - 0x100; /* the n-th byte that does not stand for itself: 0-20, 7f-a0, ad */
    return n <= 0x20 ? (int)n : n <= 0x42 ? (int)(n - 0x21 + 0x7f) : 0xad;
}

/* False: not in the byte alphabet, nothing is promised about ret_bytes. The alphabet ends below
 * U+0144, so its characters have one or two bytes. */
static bool decode_alphabet(const char *stored, size_t count, char *ret_bytes, size_t *ret_count)
{
    size_t out = 0;
    for (size_t at = 0; at < count; at++) {
        uint32_t cp = (unsigned char)stored[at];
        if (cp >= 0x80) {
            if (cp < 0xc2 || cp > 0xc5 || at + 1 == count ||
                ((unsigned char)stored[at + 1] >> 6) != 2)
                return false;
            cp = (cp & 0x1f) << 6 | ((unsigned char)stored[++at] & 0x3f);
        }
        int byte = alphabet_byte(cp);
        if (byte < 0)
            return false;
        ret_bytes[out++] = (char)byte;
    }
    *ret_count = out;
    return true;
}

bool token_text_is_byte(const char *stored, size_t count, unsigned char *ret_byte)
{
    char byte[2];
    size_t bytes = 0;
    if (count == 0 || count > sizeof(byte) || !decode_alphabet(stored, count, byte, &bytes) ||
        bytes != 1)
        return false;
    *ret_byte = (unsigned char)byte[0];
    return true;
}

static size_t decode_spaces(const char *stored, size_t count, char *ret_bytes)
{
    size_t out = 0;
    for (size_t at = 0; at < count;) {
        if (count - at >= 3 && memcmp(stored + at, "\xe2\x96\x81", 3) == 0) {
            ret_bytes[out++] = ' ';
            at += 3;
        } else {
            ret_bytes[out++] = stored[at++];
        }
    }
    return out;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* "<0xE2>" -> 0xe2, or -1. */
static int decode_byte_token(const char *stored, size_t count)
{
    if (count != 6 || memcmp(stored, "<0x", 3) != 0 || stored[5] != '>')
        return -1;
    int high = hex_digit(stored[3]), low = hex_digit(stored[4]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

size_t token_text_decode(enum tokenizer_model model, enum token_type type, const char *stored,
                         size_t count, char *ret_bytes)
{
    bool byte_level = model == TOKENIZER_BPE;
    size_t out = 0;
    if (type == TOKEN_BYTE && decode_byte_token(stored, count) >= 0) {
        ret_bytes[0] = (char)decode_byte_token(stored, count);
        return 1;
    }
    if (type == TOKEN_CONTROL || type == TOKEN_UNKNOWN ||
        (type == TOKEN_USER_DEFINED && byte_level)) {
        memcpy(ret_bytes, stored, count);
        return count;
    }
    if (!byte_level)
        return decode_spaces(stored, count, ret_bytes);
    if (!decode_alphabet(stored, count, ret_bytes, &out)) {
        memcpy(ret_bytes, stored, count);
        return count;
    }
    return out;
}
