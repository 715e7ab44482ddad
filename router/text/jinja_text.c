/* jinja_text.c - what filters and string methods of the same name share: case, strip, replace,
 * split, padding, and numbers in text.
 *
 * Marks: strip and split give views; the others write pieces with the mark of each byte they come
 * from. Cost: linear in the text. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "router/text/jinja_eval.h"
#include "router/text/jinja_utf8.h"

const char *jinja_find(const char *data, size_t bytes, const char *needle, size_t needle_bytes)
{
    if (needle_bytes == 1)
        return memchr(data, needle[0], bytes);
    return memmem(data, bytes, needle, needle_bytes);
}

/* str.title starts words at letters after non-letters; the title filter has its own rule. */
static uint32_t map_char(enum case_kind kind, uint32_t c, bool first, bool after_letter,
                         uint32_t ret[3])
{
    switch (kind) {
    case CASE_UPPER:
        return jinja_to_upper(c, ret);
    case CASE_LOWER:
        return jinja_to_lower(c, ret);
    case CASE_CAPITALIZE:
        return first ? jinja_to_title(c, ret) : jinja_to_lower(c, ret);
    case CASE_TITLE:
        return after_letter ? jinja_to_lower(c, ret) : jinja_to_title(c, ret);
    default:
        return jinja_is_upper(c) ? jinja_to_lower(c, ret) : jinja_to_upper(c, ret);
    }
}

int jinja_change_case(struct jinja_eval *ev, struct jinja_str *string, enum case_kind kind,
                      struct value *ret)
{
    struct jinja_capture capture;
    bool after_letter = false;
    uint32_t run = 0, bytes;
    const char *data = jinja_str_data(ev, string);
    if (data == NULL || jinja_charge(ev, string->bytes / 4) < 0)
        return ev->code;
    jinja_capture_begin(ev, &capture);
    for (uint32_t at = 0; at < string->bytes; at += bytes) {
        uint32_t mapped[3];
        uint32_t c = jinja_utf8_decode(data + at, data + string->bytes, &bytes);
        uint32_t count = map_char(kind, c, at == 0, after_letter, mapped);
        struct jinja_origin origin = jinja_str_origin_at(string, at, &run);
        for (uint32_t i = 0; i < count; i++) {
            if (jinja_write_char(ev, mapped[i], origin) < 0)
                return ev->code;
        }
        after_letter = jinja_is_alpha(c);
    }
    int r = jinja_capture_end(ev, &capture, ret);
    if (r >= 0)
        ret->string->markup = string->markup;
    return r;
}

static bool strips(uint32_t c, const struct jinja_str *chars)
{
    if (chars == NULL)
        return jinja_is_space(c);
    for (uint32_t at = 0; at < chars->bytes;) {
        uint32_t bytes;
        if (jinja_utf8_decode(chars->data + at, chars->data + chars->bytes, &bytes) == c)
            return true;
        at += bytes;
    }
    return false;
}

int jinja_strip(struct jinja_eval *ev, struct jinja_str *string, struct jinja_str *chars, bool left,
                bool right, struct value *ret)
{
    uint32_t bytes;
    const char *data = jinja_str_data(ev, string);
    if (data == NULL)
        return ev->code;
    uint32_t start = 0, end = string->bytes;
    while (left && start < end &&
           strips(jinja_utf8_decode(data + start, data + end, &bytes), chars))
        start += bytes;
    while (right && end > start &&
           strips(jinja_utf8_decode_last(data + start, data + end, &bytes), chars))
        end -= bytes;
    uint64_t work = (uint64_t)(string->bytes - (end - start)) * (chars ? chars->bytes + 1 : 1);
    struct jinja_str *sub = jinja_str_sub(ev, string, start, end);
    if (sub == NULL || jinja_charge(ev, work / 16) < 0)
        return ev->code;
    *ret = jinja_string(sub);
    return 0;
}

/* ''.replace('', x): between all characters. */
static int replace_nothing(struct jinja_eval *ev, struct jinja_str *string,
                           struct jinja_str *new_text, int64_t count)
{
    uint32_t at = 0;
    for (;;) {
        uint32_t bytes;
        if (count-- == 0)
            return jinja_write_sub(ev, string, at, string->bytes);
        int r = jinja_write_str(ev, new_text);
        if (r < 0 || at >= string->bytes)
            return r;
        (void)jinja_utf8_decode(string->data + at, string->data + string->bytes, &bytes);
        r = jinja_write_sub(ev, string, at, at + bytes);
        if (r < 0 || jinja_charge(ev, 1) < 0)
            return ev->code;
        at += bytes;
    }
}

static int replace_text(struct jinja_eval *ev, struct jinja_str *string, struct jinja_str *old,
                        struct jinja_str *new_text, int64_t count)
{
    uint32_t at = 0;
    while (count-- != 0) {
        const char *found =
            jinja_find(string->data + at, string->bytes - at, old->data, old->bytes);
        if (found == NULL)
            break;
        int r = jinja_write_sub(ev, string, at, (uint32_t)(found - string->data));
        if (r >= 0)
            r = jinja_write_str(ev, new_text);
        if (r < 0 || jinja_charge(ev, 1) < 0)
            return ev->code;
        at = (uint32_t)(found - string->data) + old->bytes;
    }
    return jinja_write_sub(ev, string, at, string->bytes);
}

int jinja_replace(struct jinja_eval *ev, struct jinja_str *string, struct jinja_str *old,
                  struct jinja_str *new_text, int64_t count, struct value *ret)
{
    struct jinja_capture capture;
    int r = 0;
    if (jinja_str_data(ev, string) == NULL || jinja_str_data(ev, old) == NULL ||
        jinja_str_data(ev, new_text) == NULL)
        return ev->code;
    if (jinja_charge(ev, string->bytes / 32) < 0)
        return ev->code;
    if (old->bytes > 0 && jinja_find(string->data, string->bytes, old->data, old->bytes) == NULL) {
        *ret = jinja_string(string);
        return 0;
    }
    if (string->markup && !new_text->markup)
        r = jinja_escape(ev, new_text, &new_text);
    if (r < 0)
        return r;
    jinja_capture_begin(ev, &capture);
    r = old->bytes == 0 ? replace_nothing(ev, string, new_text, count)
                        : replace_text(ev, string, old, new_text, count);
    if (r >= 0)
        r = jinja_capture_end(ev, &capture, ret);
    if (r >= 0)
        ret->string->markup = string->markup;
    return r;
}

int jinja_split_lines(struct jinja_eval *ev, struct jinja_str *string, bool keep_ends,
                      struct jinja_vec *ret)
{
    uint32_t start = 0, bytes;
    const char *data = jinja_str_data(ev, string);
    if (data == NULL || jinja_charge(ev, string->bytes / 8) < 0)
        return ev->code;
    *ret = (struct jinja_vec){0};
    for (uint32_t at = 0; at < string->bytes;) {
        uint32_t c = jinja_utf8_decode(data + at, data + string->bytes, &bytes);
        uint32_t after = at + bytes;
        bool last = after == string->bytes;
        bool line_end = jinja_is_line_end(c);
        if (c == '\r' && !last && data[after] == '\n')
            after++;
        if (line_end || last) {
            uint32_t end = line_end && !keep_ends ? at : after;
            struct jinja_str *line = jinja_str_sub(ev, string, start, end);
            if (line == NULL)
                return ev->code;
            struct value item = jinja_string(line);
            if (jinja_vec_push(ev, ret, &item) < 0)
                return ev->code;
            start = after;
        }
        at = after;
    }
    return 0;
}

int jinja_pad(struct jinja_eval *ev, struct jinja_str *string, int64_t left, int64_t right,
              uint32_t fill, struct value *ret)
{
    struct jinja_capture capture;
    const struct jinja_origin origin = jinja_str_origin(string);
    if (left > CHAT_TEMPLATE_OUTPUT_MAX || right > CHAT_TEMPLATE_OUTPUT_MAX)
        return jinja_fail(ev, -E2BIG, "text padded to more than %u bytes",
                          CHAT_TEMPLATE_OUTPUT_MAX);
    jinja_capture_begin(ev, &capture);
    int r = jinja_charge(ev, (uint64_t)((left > 0 ? left : 0) + (right > 0 ? right : 0)) / 4);
    for (int64_t i = 0; r >= 0 && i < left; i++)
        r = jinja_write_char(ev, fill, origin);
    if (r >= 0)
        r = jinja_write_sub(ev, string, 0, string->bytes);
    for (int64_t i = 0; r >= 0 && i < right; i++)
        r = jinja_write_char(ev, fill, origin);
    if (r >= 0)
        r = jinja_capture_end(ev, &capture, ret);
    if (r >= 0)
        ret->string->markup = string->markup;
    return r;
}

static const char *skip_blanks(const char *text, const char *end)
{
    while (text < end) {
        uint32_t bytes;
        if (!jinja_is_space(jinja_utf8_decode(text, end, &bytes)))
            break;
        text += bytes;
    }
    return text;
}

static const char *skip_blanks_back(const char *text, const char *end)
{
    while (end > text) {
        uint32_t bytes;
        if (!jinja_is_space(jinja_utf8_decode_last(text, end, &bytes)))
            break;
        end -= bytes;
    }
    return end;
}

static int digit_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'Z')
        return c - 'A' + 10;
    return 99;
}

bool jinja_parse_int(const char *text, size_t bytes, int base, int64_t *ret)
{
    const char *end = skip_blanks_back(text, text + bytes);
    const char *p = skip_blanks(text, end);
    bool negative = p < end && *p == '-';
    bool digit_before = false;
    int64_t result = 0;
    if (p < end && (*p == '-' || *p == '+'))
        p++;
    if (end - p > 2 && p[0] == '0') {
        char c = (char)(p[1] | 0x20);
        int prefix = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 0;
        if (prefix != 0 && (base == prefix || base == 0)) {
            base = prefix;
            p += 2;
            digit_before = true; /* 0x_1 is allowed */
        }
    }
    if (base == 0)
        base = 10;
    if (base < 2 || base > 36 || p == end)
        return false;
    for (; p < end; p++) {
        if (*p == '_' && digit_before && p + 1 < end) {
            digit_before = false;
            continue;
        }
        int digit = digit_value(*p);
        if (digit >= base || __builtin_mul_overflow(result, base, &result) ||
            __builtin_sub_overflow(result, digit, &result)) /* negative holds one more */
            return false;
        digit_before = true;
    }
    if (!digit_before || (!negative && result == INT64_MIN))
        return false;
    *ret = negative ? result : -result;
    return true;
}

bool jinja_parse_float(const char *text, size_t bytes, double *ret)
{
    char copy[400];
    const char *end = skip_blanks_back(text, text + bytes);
    const char *p = skip_blanks(text, end);
    size_t count = 0;
    bool word = false;
    if (p == end || end - p >= (ptrdiff_t)sizeof(copy))
        return false;
    for (const char *q = p; q < end; q++) {
        if (*q == '_' && q > p && q + 1 < end && isdigit((unsigned char)q[-1]) &&
            isdigit((unsigned char)q[1]))
            continue;
        if (strchr("0123456789+-.eE", *q) == NULL || *q == '\0')
            word = true;
        copy[count++] = *q;
    }
    copy[count] = '\0';
    const char *name = copy[0] == '-' || copy[0] == '+' ? copy + 1 : copy;
    if (word && strcasecmp(name, "inf") != 0 && strcasecmp(name, "infinity") != 0 &&
        strcasecmp(name, "nan") != 0)
        return false;
    char *stop;
    *ret = strtod(copy, &stop);
    return stop == copy + count;
}
