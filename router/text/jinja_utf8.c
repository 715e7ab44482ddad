/* jinja_utf8.c - code points of valid UTF-8, counted and classified as Python's str does.
 *
 * Case mapping is the simple mapping of utf8proc plus the multi-letter cases of everyday text
 * (sharp s, ligatures, dotted I); the rest of Unicode's SpecialCasing.txt is left out. */
#include "router/text/jinja_utf8.h"

#include <utf8proc.h>

uint32_t jinja_utf8_decode(const char *data, const char *end, uint32_t *ret_bytes)
{
    const unsigned char *p = (const unsigned char *)data;
    size_t left = (size_t)(end - data);
    if (p[0] < 0x80) {
        *ret_bytes = 1;
        return p[0];
    }
    if (p[0] >= 0xf0 && left >= 4) {
        *ret_bytes = 4;
        return (uint32_t)(p[0] & 0x07) << 18 | (uint32_t)(p[1] & 0x3f) << 12 |
               (uint32_t)(p[2] & 0x3f) << 6 | (uint32_t)(p[3] & 0x3f);
    }
    if (p[0] >= 0xe0 && p[0] < 0xf0 && left >= 3) {
        *ret_bytes = 3;
        return (uint32_t)(p[0] & 0x0f) << 12 | (uint32_t)(p[1] & 0x3f) << 6 |
               (uint32_t)(p[2] & 0x3f);
    }
    if (p[0] >= 0xc0 && p[0] < 0xe0 && left >= 2) {
        *ret_bytes = 2;
        return (uint32_t)(p[0] & 0x1f) << 6 | (uint32_t)(p[1] & 0x3f);
    }
    *ret_bytes = 1;
    return 0xfffd;
}

uint32_t jinja_utf8_decode_last(const char *data, const char *end, uint32_t *ret_bytes)
{
    const char *p = end - 1;
    uint32_t bytes;
    while (p > data && ((unsigned char)*p & 0xc0) == 0x80)
        p--;
    uint32_t code_point = jinja_utf8_decode(p, end, &bytes);
    *ret_bytes = (uint32_t)(end - p);
    return code_point;
}

bool jinja_utf8_valid(const char *data, size_t bytes)
{
    static const uint32_t smallest[5] = {0, 0, 0x80, 0x800, 0x10000};
    const char *end = data + bytes;
    while (data < end) {
        uint32_t length;
        if ((unsigned char)*data < 0x80) {
            data++;
            continue;
        }
        uint32_t c = jinja_utf8_decode(data, end, &length);
        if (length == 1 || c < smallest[length] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
            return false;
        for (uint32_t i = 1; i < length; i++) {
            if (((unsigned char)data[i] & 0xc0) != 0x80)
                return false;
        }
        data += length;
    }
    return true;
}

uint32_t jinja_utf8_count(const char *data, size_t bytes)
{
    uint32_t count = 0;
    for (size_t i = 0; i < bytes; i++)
        count += ((unsigned char)data[i] & 0xc0) != 0x80;
    return count;
}

uint32_t jinja_utf8_encode(uint32_t c, char ret_data[4])
{
    if (c < 0x80) {
        ret_data[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        ret_data[0] = (char)(0xc0 | c >> 6);
        ret_data[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        ret_data[0] = (char)(0xe0 | c >> 12);
        ret_data[1] = (char)(0x80 | (c >> 6 & 0x3f));
        ret_data[2] = (char)(0x80 | (c & 0x3f));
        return 3;
    }
    ret_data[0] = (char)(0xf0 | c >> 18);
    ret_data[1] = (char)(0x80 | (c >> 12 & 0x3f));
    ret_data[2] = (char)(0x80 | (c >> 6 & 0x3f));
    ret_data[3] = (char)(0x80 | (c & 0x3f));
    return 4;
}

uint32_t jinja_utf8_offset(const char *data, size_t bytes, uint32_t index)
{
    size_t at = 0;
    while (at < bytes && index > 0) {
        at++;
        while (at < bytes && ((unsigned char)data[at] & 0xc0) == 0x80)
            at++;
        index--;
    }
    return (uint32_t)at;
}

bool jinja_is_space(uint32_t c)
{
    if (c <= 0x20)
        return c == 0x20 || (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x1f);
    return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
           c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool jinja_is_line_end(uint32_t c)
{
    return (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
           c == 0x2029;
}

bool jinja_is_printable(uint32_t c)
{
    if (c < 0x7f)
        return c >= 0x20;
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
        return false;
    default:
        return true;
    }
}

bool jinja_is_alpha(uint32_t c)
{
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool jinja_is_decimal(uint32_t c)
{
    return utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_ND;
}

bool jinja_is_numeric(uint32_t c)
{
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}

bool jinja_is_upper(uint32_t c)
{
    return utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_LU;
}

bool jinja_is_lower(uint32_t c)
{
    return utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_LL || c == 0xaa || c == 0xba;
}

uint32_t jinja_to_upper(uint32_t c, uint32_t ret[3])
{
    static const struct {
        uint32_t from, count, to[3];
    } special[] = {
        {0xdf, 2, {'S', 'S', 0}},     {0x149, 2, {0x2bc, 'N', 0}},  {0x1f0, 2, {'J', 0x30c, 0}},
        {0xfb00, 2, {'F', 'F', 0}},   {0xfb01, 2, {'F', 'I', 0}},   {0xfb02, 2, {'F', 'L', 0}},
        {0xfb03, 3, {'F', 'F', 'I'}}, {0xfb04, 3, {'F', 'F', 'L'}}, {0xfb05, 2, {'S', 'T', 0}},
        {0xfb06, 2, {'S', 'T', 0}},
    };
    if (c < 0x80) {
        ret[0] = c >= 'a' && c <= 'z' ? c - 32 : c;
        return 1;
    }
    for (size_t i = 0; i < sizeof(special) / sizeof(special[0]); i++) {
        if (special[i].from != c)
            continue;
        for (uint32_t k = 0; k < special[i].count; k++)
            ret[k] = special[i].to[k];
        return special[i].count;
    }
    ret[0] = (uint32_t)utf8proc_toupper((utf8proc_int32_t)c);
    return 1;
}

uint32_t jinja_to_lower(uint32_t c, uint32_t ret[3])
{
    if (c < 0x80) {
        ret[0] = c >= 'A' && c <= 'Z' ? c + 32 : c;
        return 1;
    }
    if (c == 0x130) {
        ret[0] = 'i';
        ret[1] = 0x307;
        return 2;
    }
    ret[0] = (uint32_t)utf8proc_tolower((utf8proc_int32_t)c);
    return 1;
}

uint32_t jinja_to_title(uint32_t c, uint32_t ret[3])
{
    if (c < 0x80)
        return jinja_to_upper(c, ret);
    uint32_t count = jinja_to_upper(c, ret);
    if (count > 1) { /* sharp s and ligatures: only the first letter is big */
        for (uint32_t i = 1; i < count; i++)
            ret[i] = ret[i] < 0x80 ? ret[i] | 0x20 : ret[i];
        return count;
    }
    ret[0] = (uint32_t)utf8proc_totitle((utf8proc_int32_t)c);
    return 1;
}
