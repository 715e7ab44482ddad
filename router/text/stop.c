/* stop.c - the strings that end an answer, found across the borders of what was generated.
 *
 *   text so far   ...............|xxxx      behind the bar: held, because it is the beginning of
 * some written      held    stop string and the rest may still come
 *
 * One Knuth-Morris-Pratt automaton per string: its state is how much of the string the text ends
 * with just now. The longest state is what must be held; a full one is the match. All automata see
 * each byte, so the first byte that completes anything decides, and among several the longest
 * string.
 *
 * Invariant: held_bytes is the greatest state. Nothing of a match was ever written, since the match
 * lay in the held part from its first byte on.
 * Cost: amortised two steps per byte and string; at most STOP_BYTES_MAX bytes held. */
#include "router/text/stop.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"

struct stop_string {
    char *text;
    size_t bytes;
    uint16_t *borders; /* [i]: longest proper border of the first i + 1 bytes */
    size_t state;
};

struct stop_matcher {
    struct stop_string strings[STOP_STRINGS_MAX];
    size_t count;
    bool include;
    bool found;
    size_t which;
    char held[STOP_BYTES_MAX];
    size_t held_bytes;
};

static void make_borders(struct stop_string *string)
{
    size_t border = 0;
    string->borders = mem_calloc(string->bytes, sizeof(*string->borders));
    for (size_t i = 1; i < string->bytes; i++) {
        while (border > 0 && string->text[i] != string->text[border])
            border = string->borders[border - 1];
        if (string->text[i] == string->text[border])
            border++;
        string->borders[i] = (uint16_t)border;
    }
}

int stop_matcher_new(const char *const *strings, const size_t *bytes, size_t count,
                     bool include_in_output, struct stop_matcher **ret_matcher)
{
    if (count > STOP_STRINGS_MAX)
        return -E2BIG;
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] == 0)
            return -EINVAL;
        if (bytes[i] > STOP_BYTES_MAX)
            return -E2BIG;
    }
    struct stop_matcher *matcher = mem_zalloc(sizeof(*matcher));
    matcher->count = count;
    matcher->include = include_in_output;
    for (size_t i = 0; i < count; i++) {
        matcher->strings[i].text = mem_strndup(strings[i], bytes[i]);
        matcher->strings[i].bytes = bytes[i];
        make_borders(&matcher->strings[i]);
    }
    *ret_matcher = matcher;
    return 0;
}

void stop_matcher_free(struct stop_matcher *matcher)
{
    if (matcher == NULL)
        return;
    for (size_t i = 0; i < matcher->count; i++) {
        mem_free(matcher->strings[i].text);
        mem_free(matcher->strings[i].borders);
    }
    mem_free(matcher);
}

/* One byte; true: the string is complete. */
static bool string_step(struct stop_string *string, char byte)
{
    ASSERT(string->state < string->bytes);
    while (string->state > 0 && string->text[string->state] != byte)
        string->state = string->borders[string->state - 1];
    if (string->text[string->state] == byte)
        string->state++;
    return string->state == string->bytes;
}

/* All strings see one byte. Returns the greatest state; the longest complete string in *ret_which.
 */
static size_t matcher_step(struct stop_matcher *matcher, char byte, bool *ret_found,
                           size_t *ret_which)
{
    size_t longest = 0, longest_found = 0;
    for (size_t i = 0; i < matcher->count; i++) {
        struct stop_string *string = &matcher->strings[i];
        if (string_step(string, byte) && string->bytes > longest_found) {
            longest_found = string->bytes;
            *ret_which = i;
            *ret_found = true;
        }
        if (string->state > longest)
            longest = string->state;
    }
    return longest;
}

/* Write the first `bytes` of held + text[0..text_bytes), keep the rest of it held. */
static void write_first(struct stop_matcher *matcher, const char *text, size_t text_bytes,
                        size_t bytes, struct buffer *out)
{
    size_t all = matcher->held_bytes + text_bytes;
    size_t from_held = bytes < matcher->held_bytes ? bytes : matcher->held_bytes;
    ASSERT(bytes <= all && all - bytes <= STOP_BYTES_MAX);
    buffer_append(out, matcher->held, from_held);
    buffer_append(out, text, bytes - from_held);
    memmove(matcher->held, matcher->held + from_held, matcher->held_bytes - from_held);
    matcher->held_bytes -= from_held;
    memcpy(matcher->held + matcher->held_bytes, text + (bytes - from_held),
           text_bytes - (bytes - from_held));
    matcher->held_bytes = all - bytes;
}

bool stop_matcher_push(struct stop_matcher *matcher, const char *text, size_t bytes,
                       struct buffer *out, size_t *ret_which)
{
    size_t hold = matcher->held_bytes, used = 0;
    while (!matcher->found && used < bytes)
        hold = matcher_step(matcher, text[used++], &matcher->found, &matcher->which);
    if (matcher->found && used > 0) {
        size_t match = matcher->strings[matcher->which].bytes;
        size_t before = matcher->held_bytes + used - match;
        write_first(matcher, text, used, matcher->include ? before + match : before, out);
        matcher->held_bytes = 0;
    } else if (used > 0) {
        write_first(matcher, text, used, matcher->held_bytes + used - hold, out);
    }
    if (matcher->found)
        *ret_which = matcher->which;
    return matcher->found;
}

void stop_matcher_finish(struct stop_matcher *matcher, struct buffer *out)
{
    buffer_append(out, matcher->held, matcher->held_bytes);
    matcher->held_bytes = 0;
    for (size_t i = 0; i < matcher->count; i++)
        matcher->strings[i].state = 0;
}
