/* text_lines.c - see text_lines.h.
 *
 *   read() -> line being gathered -> answer -> out -> write() once all whole lines are answered
 *
 * A line that grows past the limit is dropped as it comes and answered when it ends, so memory
 * stays bounded. */
#include "deploy/cli/text_lines.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define READ_BYTES 65536
#define WRITE_BYTES ((size_t)1 << 20) /* out is written at least this often */

struct lines {
    text_line_fn answer;
    void *owner;
    struct buffer line, out, one;
    struct errmsg *err;
};

static void add_error(struct lines *lines, const char *text, uint32_t line)
{
    buffer_append_text(&lines->out, "{\"error\":");
    json_append_sentence(&lines->out, text);
    if (line > 0)
        buffer_printf(&lines->out, ",\"line\":%u", line);
    buffer_append_text(&lines->out, "}\n");
}

/* One line whoever counts lines: Unicode has three more line ends than '\n', which JSON allows in
 * strings. */
static void add_answer(struct lines *lines)
{
    const char *text = lines->one.data;
    size_t bytes = lines->one.bytes, copied = 0;
    for (size_t at = 0; at + 1 < bytes; at++) {
        bool next_line = memcmp(text + at, "\xc2\x85", 2) == 0;
        bool separator = at + 2 < bytes && (memcmp(text + at, "\xe2\x80\xa8", 3) == 0 ||
                                            memcmp(text + at, "\xe2\x80\xa9", 3) == 0);
        if (!next_line && !separator)
            continue;
        buffer_append(&lines->out, text + copied, at - copied);
        buffer_append_text(&lines->out, next_line                ? "\\u0085"
                                        : text[at + 2] == '\xa8' ? "\\u2028"
                                                                 : "\\u2029");
        copied = at + (next_line ? 2 : 3);
        at = copied - 1;
    }
    buffer_append(&lines->out, text + copied, bytes - copied);
    buffer_append_char(&lines->out, '\n');
}

static void answer_line(struct lines *lines)
{
    struct errmsg why = {""};
    json_t *object = NULL;
    uint32_t line = 0;
    int r =
        lines->line.failed
            ? errmsg_set(&why, -E2BIG, "a line of more than %zu bytes", TEXT_LINE_BYTES_MAX)
            : json_parse(lines->line.data, lines->line.bytes, TEXT_LINE_BYTES_MAX, &object, &why);
    if (r == 0 && !json_is_object(object))
        r = errmsg_set(&why, -EINVAL, "a line is not a JSON object");
    if (r == 0)
        r = lines->answer(lines->owner, object, &lines->one, &line, &why);
    if (r == 0 && buffer_finish(&lines->one) < 0)
        r = errmsg_set(&why, -E2BIG, "an answer of more than %zu bytes", TEXT_ANSWER_BYTES_MAX);
    if (r < 0) {
        add_error(lines, why.text, line);
    } else {
        add_answer(lines);
    }
    json_decref(object);
    buffer_clear(&lines->one);
    buffer_clear(&lines->line);
}

static int write_out(struct lines *lines)
{
    for (size_t at = 0; at < lines->out.bytes;) {
        ssize_t put = write(STDOUT_FILENO, lines->out.data + at, lines->out.bytes - at);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return errmsg_errno(lines->err, "write to stdout");
        at += (size_t)put;
    }
    buffer_clear(&lines->out);
    return 0;
}

static int take(struct lines *lines, const char *data, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        const char *newline = memchr(data + at, '\n', bytes - at);
        size_t end = newline == NULL ? bytes : (size_t)(newline - data);
        buffer_append(&lines->line, data + at, end - at);
        at = end + 1;
        if (newline == NULL)
            break;
        answer_line(lines);
        int r = lines->out.bytes >= WRITE_BYTES ? write_out(lines) : 0;
        if (r < 0)
            return r;
    }
    return write_out(lines);
}

int text_lines_run(text_line_fn answer, void *owner, struct errmsg *err)
{
    struct lines lines = {.answer = answer, .owner = owner, .err = err};
    char data[READ_BYTES];
    int r = 0;
    buffer_init(&lines.line, TEXT_LINE_BYTES_MAX);
    buffer_init(&lines.one, TEXT_ANSWER_BYTES_MAX);
    buffer_init(&lines.out, TEXT_ANSWER_BYTES_MAX + 2 * WRITE_BYTES);
    while (r == 0) {
        ssize_t got = read(STDIN_FILENO, data, sizeof(data));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            r = errmsg_errno(err, "read from stdin");
        if (got <= 0)
            break;
        r = take(&lines, data, (size_t)got);
    }
    if (r == 0 && (lines.line.bytes > 0 || lines.line.failed)) { /* the last one, unfinished */
        answer_line(&lines);
        r = write_out(&lines);
    }
    buffer_done(&lines.line);
    buffer_done(&lines.one);
    buffer_done(&lines.out);
    return r;
}
