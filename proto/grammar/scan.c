/* scan.c - characters, numbers and places of a text. */
#include "proto/grammar/scan.h"

#include <string.h>

/* Bytes of the character at text[0], 0: it is not UTF-8. */
static unsigned char_bytes(const unsigned char *text, size_t bytes)
{
    unsigned count = text[0] < 0x80 ? 1 : text[0] >= 0xf0 ? 4 : text[0] >= 0xe0 ? 3 : 2;

    if (count == 1)
        return 1;
    if (text[0] < 0xc2 || text[0] > 0xf4 || count > bytes)
        return 0;
    for (unsigned i = 1; i < count; i++) {
        if (text[i] >> 6 != 2)
            return 0;
    }
    if ((text[0] == 0xe0 && text[1] < 0xa0) || (text[0] == 0xed && text[1] > 0x9f) ||
        (text[0] == 0xf0 && text[1] < 0x90) || (text[0] == 0xf4 && text[1] > 0x8f))
        return 0;
    return count;
}

bool scan_utf8_valid(const char *text, size_t bytes, size_t *ret_at)
{
    for (size_t at = 0; at < bytes;) {
        unsigned count = char_bytes((const unsigned char *)text + at, bytes - at);
        if (count == 0) {
            *ret_at = at;
            return false;
        }
        at += count;
    }
    return true;
}

static uint32_t decode(const struct scan *scan, unsigned *ret_bytes)
{
    const unsigned char *text = (const unsigned char *)scan->text + scan->at;
    unsigned count = text[0] < 0x80 ? 1 : text[0] >= 0xf0 ? 4 : text[0] >= 0xe0 ? 3 : 2;
    uint32_t code = count == 1 ? text[0] : text[0] & (0x7fu >> count);

    for (unsigned i = 1; i < count; i++)
        code = code << 6 | (text[i] & 0x3f);
    *ret_bytes = count;
    return code;
}

uint32_t scan_peek(const struct scan *scan)
{
    unsigned bytes;

    return scan->at < scan->bytes ? decode(scan, &bytes) : SCAN_END;
}

uint32_t scan_next(struct scan *scan)
{
    unsigned bytes = 0;

    if (scan->at >= scan->bytes)
        return SCAN_END;
    uint32_t code = decode(scan, &bytes);
    scan->at += bytes;
    return code;
}

bool scan_take(struct scan *scan, char c)
{
    if (scan->at >= scan->bytes || scan->text[scan->at] != c)
        return false;
    scan->at++;
    return true;
}

bool scan_take_text(struct scan *scan, const char *text)
{
    size_t bytes = strlen(text);

    if (scan->bytes - scan->at < bytes || memcmp(scan->text + scan->at, text, bytes) != 0)
        return false;
    scan->at += bytes;
    return true;
}

bool scan_number(struct scan *scan, uint32_t *ret_value)
{
    uint64_t value = 0;
    size_t from = scan->at;

    for (; scan->at < scan->bytes; scan->at++) {
        char c = scan->text[scan->at];
        if (c < '0' || c > '9')
            break;
        value = value * 10 + (uint64_t)(c - '0');
        value = value > UINT32_MAX ? UINT32_MAX : value;
    }
    *ret_value = (uint32_t)value;
    return scan->at > from;
}

bool scan_hex(struct scan *scan, unsigned digits, uint32_t *ret_value)
{
    uint32_t value = 0;

    for (unsigned i = 0; i < digits; i++) {
        uint32_t c = scan_next(scan);
        uint32_t lower = c | 0x20;
        if (c >= '0' && c <= '9')
            value = value << 4 | (c - '0');
        else if (lower >= 'a' && lower <= 'f' && c < 0x80)
            value = value << 4 | (lower - 'a' + 10);
        else
            return false;
    }
    *ret_value = value;
    return true;
}

void scan_place(const struct scan *scan, size_t *ret_line, size_t *ret_column)
{
    *ret_line = *ret_column = 1;
    for (size_t i = 0; i < scan->at && i < scan->bytes; i++) {
        if (scan->text[i] == '\n') {
            ++*ret_line;
            *ret_column = 1;
        } else if (((unsigned char)scan->text[i] & 0xc0) != 0x80) {
            ++*ret_column;
        }
    }
}
