/* json.c - jansson behind our bounds.
 *
 * jansson parses by recursion, up to 2048 levels, after it has allocated for each of them. A scan
 * over the brackets first costs a nanosecond per byte and refuses a deep text before anything is
 * built. jansson 2.14 also refuses an escaped NUL in an object's key, which is valid JSON: then the
 * text is parsed again with U+FFFD in its place, in the same number of bytes, so that offsets in
 * messages stay true; no key of ours holds either.
 *
 * Error texts never quote the input: they reach logs, the input is a user's prompt.
 * Numbers are written shortest, where jansson writes 17 digits (0.1 as 0.10000000000000001). */
#include "proto/base/json.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "proto/base/number.h"
#include "proto/base/utf8.h"

/* Values that we build ourselves may wrap a parsed one. */
#define WRITE_DEPTH_MAX (2 * JSON_DEPTH_MAX)

/* Offset behind the string that opens at `at`, or `bytes` when it never closes. */
static size_t skip_string(const char *text, size_t bytes, size_t at)
{
    for (at++; at < bytes; at++) {
        if (text[at] == '"')
            return at + 1;
        if (text[at] == '\\')
            at++;
    }
    return bytes;
}

/* Depth, count; and no NUL outside of strings, which jansson takes for the end after a number. */
static int check_first(const char *text, size_t bytes, size_t values_max, struct errmsg *err)
{
    size_t depth = 0, values = 1;

    for (size_t at = 0; at < bytes;) {
        switch (text[at]) {
        case '"':
            at = skip_string(text, bytes, at);
            continue;
        case '[':
        case '{':
            if (++depth > JSON_DEPTH_MAX)
                return errmsg_set(err, -E2BIG, "JSON nests deeper than %d levels at byte %zu",
                                  JSON_DEPTH_MAX, at);
            values++;
            break;
        case ',':
            values++;
            break;
        case ']':
        case '}':
            if (depth > 0)
                depth--; /* below zero is malformed: jansson says so */
            break;
        case '\0':
            return errmsg_set(err, -EINVAL, "JSON: NUL at byte %zu", at);
        default:
            break;
        }
        if (values > values_max)
            return errmsg_set(err, -E2BIG, "JSON has more than %zu values at byte %zu", values_max,
                              at);
        at++;
    }
    return 0;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* A copy whose keys have U+FFFD for an escaped NUL. A string before a colon is a key. */
static char *replace_nul_in_keys(const char *text, size_t bytes)
{
    char *copy = mem_strndup(text, bytes);

    for (size_t at = 0; at < bytes;) {
        size_t end;
        size_t after;

        if (copy[at] != '"') {
            at++;
            continue;
        }
        end = skip_string(copy, bytes, at);
        after = end;
        while (after < bytes && is_space(copy[after]))
            after++;
        for (; after < bytes && copy[after] == ':' && at + 6 < end; at++) {
            if (copy[at] != '\\')
                continue;
            if (memcmp(copy + at, "\\u0000", 6) == 0)
                memcpy(copy + at, "\\ufffd", 6);
            at++; /* over the escaped character */
        }
        at = end;
    }
    return copy;
}

/* "text near 'input'": only what jansson says itself. */
static int refuse(const json_error_t *error, struct errmsg *err)
{
    const char *near = strstr(error->text, " near '");
    int text_bytes = (int)(near != NULL ? (size_t)(near - error->text) : strlen(error->text));

    return errmsg_set(err, -EINVAL, "JSON: %.*s at byte %d, line %d", text_bytes, error->text,
                      error->position, error->line);
}

static void *json_alloc(size_t bytes)
{
    return mem_try_alloc_as(MEM_JSON, bytes);
}

void json_count_memory(void)
{
    json_set_alloc_funcs(json_alloc, mem_free);
}

int json_parse(const char *text, size_t bytes, size_t bytes_max, json_t **ret_value,
               struct errmsg *err)
{
    if (bytes > bytes_max)
        return errmsg_set(err, -E2BIG, "JSON of %zu bytes, at most %zu are allowed", bytes,
                          bytes_max);
    return json_parse_values(text, bytes, SIZE_MAX, ret_value, err);
}

int json_parse_values(const char *text, size_t bytes, size_t values_max, json_t **ret_value,
                      struct errmsg *err)
{
    const size_t flags = JSON_DECODE_ANY | JSON_ALLOW_NUL;
    json_error_t error;
    json_t *value;
    int r = check_first(text, bytes, values_max, err);

    if (r < 0)
        return r;
    value = json_loadb(text, bytes, flags, &error);
    if (value == NULL && json_error_code(&error) == json_error_null_byte_in_key) {
        char *copy = replace_nul_in_keys(text, bytes);

        value = json_loadb(copy, bytes, flags, &error);
        mem_free(copy);
    }
    if (value == NULL)
        return refuse(&error, err);
    *ret_value = value;
    return 0;
}

static void append_escape(struct buffer *out, unsigned char c)
{
    static const char letters[32] = {
        ['\b'] = 'b', ['\f'] = 'f', ['\n'] = 'n', ['\r'] = 'r', ['\t'] = 't'};

    if (c >= 0x20) { /* quote or backslash */
        buffer_append_char(out, '\\');
        buffer_append_char(out, (char)c);
    } else if (letters[c] != '\0') {
        buffer_append_char(out, '\\');
        buffer_append_char(out, letters[c]);
    } else {
        buffer_printf(out, "\\u%04x", c);
    }
}

void json_append_string(struct buffer *out, const char *text, size_t bytes)
{
    size_t from = 0; /* of the run that needs no escape */

    buffer_append_char(out, '"');
    for (size_t at = 0; at < bytes; at++) {
        unsigned char c = (unsigned char)text[at];

        if (c >= 0x20 && c != '"' && c != '\\')
            continue;
        buffer_append(out, text + from, at - from);
        append_escape(out, c);
        from = at + 1;
    }
    buffer_append(out, text + from, bytes - from);
    buffer_append_char(out, '"');
}

void json_append_sentence(struct buffer *out, const char *text)
{
    size_t bytes = strlen(text);
    struct buffer clean;

    if (utf8_span(text, bytes) == bytes) {
        json_append_string(out, text, bytes);
        return;
    }
    buffer_init(&clean, bytes);
    for (size_t at = 0; at < bytes; at++) {
        size_t span = utf8_span(text + at, bytes - at);
        buffer_append(&clean, text + at, span);
        at += span;
        if (at < bytes)
            buffer_append_char(&clean, '?');
    }
    json_append_string(out, clean.data, clean.bytes);
    buffer_done(&clean);
}

static void append_real(struct buffer *out, double value)
{
    char text[NUMBER_TEXT_MAX];

    ASSERT(isfinite(value)); /* jansson makes no other */
    number_format(value, text);
    buffer_append_text(out, text);
    if (strpbrk(text, ".e") == NULL)
        buffer_append_text(out, ".0"); /* a real stays a real */
}

static void append_at_depth(struct buffer *out, const json_t *value, int depth);

static void append_object(struct buffer *out, const json_t *value, int depth)
{
    json_t *object = (json_t *)(uintptr_t)value; /* jansson's iterators want it mutable */
    const char *comma = "";

    buffer_append_char(out, '{');
    for (void *at = json_object_iter(object); at != NULL; at = json_object_iter_next(object, at)) {
        buffer_append_text(out, comma);
        json_append_string(out, json_object_iter_key(at), json_object_iter_key_len(at));
        buffer_append_char(out, ':');
        append_at_depth(out, json_object_iter_value(at), depth + 1);
        comma = ",";
    }
    buffer_append_char(out, '}');
}

static void append_at_depth(struct buffer *out, const json_t *value, int depth)
{
    ASSERT(depth <= WRITE_DEPTH_MAX);
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        append_object(out, value, depth);
        break;
    case JSON_ARRAY:
        buffer_append_char(out, '[');
        for (size_t i = 0; i < json_array_size(value); i++) {
            if (i > 0)
                buffer_append_char(out, ',');
            append_at_depth(out, json_array_get(value, i), depth + 1);
        }
        buffer_append_char(out, ']');
        break;
    case JSON_STRING:
        json_append_string(out, json_string_value(value), json_string_length(value));
        break;
    case JSON_INTEGER:
        buffer_printf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        break;
    case JSON_REAL:
        append_real(out, json_real_value(value));
        break;
    case JSON_TRUE:
        buffer_append_text(out, "true");
        break;
    case JSON_FALSE:
        buffer_append_text(out, "false");
        break;
    case JSON_NULL:
        buffer_append_text(out, "null");
        break;
    }
}

void json_append_value(struct buffer *out, const json_t *value)
{
    append_at_depth(out, value, 1);
}
