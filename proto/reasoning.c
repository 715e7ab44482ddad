/* reasoning.c - the table of tags, and the splitter.
 *
 * Invariant: `held` is text of which nothing was written: white space, then the first `matched`
 * bytes of the tag that is looked for. A tag has its first byte only once, so when a byte does not
 * go on with it, all that was held is plain, and the byte is looked at again as a first byte.
 * Cost: one comparison per byte; text without the tag's first byte is copied as a whole. */
#include "proto/reasoning.h"

#include <string.h>

#include "proto/base/assert.h"

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* vLLM's names. The first whose tag a template mentions is "auto". */
static const struct reasoning_format formats[] = {
    {"seed_oss", "<seed:think>", "</seed:think>", false},
    {"mistral", "[THINK]", "[/THINK]", false},
    {"qwen3", "<think>", "</think>", false},
    {"deepseek_r1", "<think>", "</think>", true},
    {"deepseek_v3", "<think>", "</think>", false},
    {"glm45", "<think>", "</think>", false},
    {NULL, NULL, NULL, false},
};

const struct reasoning_format *reasoning_format_at(size_t index)
{
    return index + 1 < sizeof(formats) / sizeof(formats[0]) ? &formats[index] : NULL;
}

const struct reasoning_format *reasoning_find(const char *name)
{
    for (const struct reasoning_format *format = formats; format->name; format++) {
        if (strcmp(format->name, name) == 0)
            return format;
    }
    return NULL;
}

const struct reasoning_format *reasoning_of_template(const char *source, size_t bytes)
{
    for (const struct reasoning_format *format = formats; format->name; format++) {
        if (memmem(source, bytes, format->end, strlen(format->end)))
            return format;
    }
    return NULL;
}

/* Where `tag` stands last, or NULL. */
static const char *find_last(const char *text, size_t bytes, const char *tag)
{
    const char *found = NULL;
    const char *end = text + bytes;
    const char *next = text;

    while ((next = memmem(next, (size_t)(end - next), tag, strlen(tag))) != NULL)
        found = next++;
    return found;
}

static bool ends_with(const char *text, size_t bytes, const char *tag)
{
    size_t length = strlen(tag);
    return bytes >= length && memcmp(text + bytes - length, tag, length) == 0;
}

enum reasoning_state reasoning_after_prompt(const struct reasoning_format *format,
                                            const char *prompt, size_t bytes)
{
    while (bytes > 0 && is_space(prompt[bytes - 1]))
        bytes--;
    if (ends_with(prompt, bytes, format->end))
        return REASONING_AFTER;
    return ends_with(prompt, bytes, format->begin) ? REASONING_INSIDE : REASONING_START;
}

enum reasoning_state reasoning_after_message(const struct reasoning_format *format,
                                             const char *message, size_t bytes)
{
    const char *begin = find_last(message, bytes, format->begin);
    const char *end = find_last(message, bytes, format->end);

    if (bytes == 0)
        return REASONING_START;
    return begin && (!end || end < begin) ? REASONING_INSIDE : REASONING_AFTER;
}

static void reasoning_set_state(struct reasoning *reasoning, enum reasoning_state next)
{
    ASSERT(next > reasoning->state && next < REASONING_STATES);
    reasoning->state = next;
    reasoning->held_bytes = reasoning->matched = 0;
}

void reasoning_init(struct reasoning *reasoning, const struct reasoning_format *format,
                    enum reasoning_state start)
{
    *reasoning = (struct reasoning){.format = format, .state = start};
}

static void write_held(struct reasoning *reasoning, struct buffer *out)
{
    buffer_append(out, reasoning->held, reasoning->held_bytes);
    reasoning->held_bytes = reasoning->matched = 0;
}

/* True: `c` was held, or completed `tag`. */
static bool match(struct reasoning *reasoning, const char *tag, char c, bool *ret_complete)
{
    if (tag[reasoning->matched] != c)
        return false;
    ASSERT(reasoning->held_bytes < REASONING_HELD_MAX);
    reasoning->held[reasoning->held_bytes++] = c;
    *ret_complete = tag[++reasoning->matched] == '\0';
    return true;
}

/* White space, then the begin tag; else the model does not think today, or did not say so. */
static bool push_start(struct reasoning *reasoning, char c, struct buffer *thoughts,
                       struct buffer *content)
{
    bool opened = reasoning->format->opened;
    const char *begin = reasoning->format->begin;
    bool complete = false;

    if (reasoning->matched == 0 && is_space(c) &&
        reasoning->held_bytes + strlen(begin) < REASONING_HELD_MAX) {
        reasoning->held[reasoning->held_bytes++] = c;
        return true;
    }
    if (!match(reasoning, begin, c, &complete)) {
        write_held(reasoning, opened ? thoughts : content);
        reasoning_set_state(reasoning, opened ? REASONING_INSIDE : REASONING_AFTER);
        return false;
    }
    if (complete)
        reasoning_set_state(reasoning, REASONING_INSIDE);
    return true;
}

static bool push_inside(struct reasoning *reasoning, char c, struct buffer *thoughts)
{
    bool complete = false;

    if (match(reasoning, reasoning->format->end, c, &complete)) {
        if (complete)
            reasoning_set_state(reasoning, REASONING_AFTER);
        return true;
    }
    if (reasoning->held_bytes == 0) {
        buffer_append_char(thoughts, c);
        return true;
    }
    write_held(reasoning, thoughts);
    return false;
}

void reasoning_push(struct reasoning *reasoning, const char *text, size_t bytes,
                    struct buffer *thoughts, struct buffer *content)
{
    size_t at = 0;

    while (at < bytes) {
        if (reasoning->state == REASONING_AFTER) {
            buffer_append(content, text + at, bytes - at);
            return;
        }
        if (reasoning->state == REASONING_INSIDE && reasoning->held_bytes == 0) {
            const char *next = memchr(text + at, reasoning->format->end[0], bytes - at);
            size_t plain = next ? (size_t)(next - text) - at : bytes - at;
            buffer_append(thoughts, text + at, plain);
            at += plain;
            if (at == bytes)
                return;
        }
        if (reasoning->state == REASONING_START ? push_start(reasoning, text[at], thoughts, content)
                                                : push_inside(reasoning, text[at], thoughts))
            at++;
    }
}

void reasoning_finish(struct reasoning *reasoning, struct buffer *thoughts, struct buffer *content)
{
    bool inside = reasoning->state == REASONING_INSIDE ||
                  (reasoning->state == REASONING_START && reasoning->format->opened);
    write_held(reasoning, inside ? thoughts : content);
}
