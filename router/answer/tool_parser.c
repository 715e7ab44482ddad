/* tool_parser.c - runs a format's steps over the text, one byte at a time.
 *
 *   content --a start--> steps --STEP_END--> content
 *              ^            |
 *              +--- BAD ----+   held bytes become content, then the byte is looked at again
 *
 * Why bytes: the result cannot depend on how the text was cut. (Runs of plain content are copied
 * whole, which comes to the same.) Invariant: `held` is everything since the last byte that went to
 * content or to a call. In content it is white space (which belongs to a call if one follows) and
 * then the first `matched` bytes of a start. When a step breaks off behind a call that is complete,
 * its structure (braces, tags) is dropped, and only what does not fit is content. */
#include "router/answer/tool_parser_private.h"

#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"

#define SPACE_HELD_MAX 256u

static void find_plain(struct tool_parser *parser)
{
    const struct tool_format *format = parser->options.format;

    memset(parser->is_plain, true, sizeof(parser->is_plain));
    for (const char *c = " \n\t\r"; *c; c++)
        parser->is_plain[(unsigned char)*c] = false;
    for (size_t i = 0; i < TOOL_STARTS_MAX && format->starts[i].text; i++)
        parser->is_plain[(unsigned char)format->starts[i].text[0]] = false;
    for (size_t i = 0; i < TOOL_MARKERS_MAX && format->markers[i]; i++)
        parser->is_plain[(unsigned char)format->markers[i][0]] = false;
}

struct tool_parser *tool_parser_new(const struct tool_parser_options *options)
{
    struct tool_parser *parser = mem_zalloc(sizeof(*parser));

    ASSERT(options->format && options->content && options->calls);
    parser->options = *options;
    parser->only_calls = true;
    find_plain(parser);
    buffer_init(&parser->held, TOOL_HELD_MAX + TOOL_TEXT_MAX);
    return parser;
}

void tool_parser_free(struct tool_parser *parser)
{
    if (!parser)
        return;
    buffer_done(&parser->held);
    mem_free(parser);
}

const json_t *tools_find(const json_t *tools, const char *name, size_t bytes)
{
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *function = json_object_get(json_array_get(tools, i), "function");
        const json_t *value = json_object_get(function, "name");
        if (json_string_length(value) == bytes &&
            memcmp(json_string_value(value), name, bytes) == 0)
            return function;
    }
    return NULL;
}

/* ---- what comes out ---- */

/* The marker at the beginning of `text`: its bytes, or 0. */
static size_t marker_at(const struct tool_format *format, const char *text, size_t bytes)
{
    for (size_t i = 0; i < TOOL_MARKERS_MAX && format->markers[i]; i++) {
        size_t length = strlen(format->markers[i]);
        if (length <= bytes && memcmp(text, format->markers[i], length) == 0)
            return length;
    }
    return 0;
}

/* The first `bytes` held are content. */
static void write_held(struct tool_parser *parser, size_t bytes)
{
    const char *text = parser->held.data;
    size_t at = 0;

    ASSERT(bytes <= parser->held.bytes);
    while (at < bytes) {
        size_t marker = parser->options.hide_markers
                            ? marker_at(parser->options.format, text + at, bytes - at)
                            : 0;
        if (marker == 0) {
            buffer_append_char(parser->options.content, text[at]);
            parser->only_calls = parser->only_calls && json_is_space(text[at]);
        }
        at += marker ? marker : 1;
    }
    if (bytes > 0)
        parser->after_call = false;
    buffer_consume(&parser->held, bytes);
}

/* What was held is no call. Behind a complete one, its structure is dropped. */
static void write_unfinished(struct tool_parser *parser)
{
    if (parser->in_call && parser->after_call)
        buffer_consume(&parser->held, parser->call_from);
    if (parser->in_call || !parser->after_call)
        write_held(parser, parser->held.bytes);
    buffer_clear(&parser->held);
    parser->in_call = false;
}

void tool_parser_hold(struct tool_parser *parser, size_t bytes)
{
    ASSERT(bytes <= parser->held.bytes);
    if (!parser->in_call)
        parser->call_from = parser->held.bytes - bytes;
    parser->in_call = true;
}

bool tool_parser_commit(struct tool_parser *parser)
{
    struct tool_calls *calls = parser->options.calls;
    const struct tool_format *format = parser->options.format;

    if (format->strict && !tools_find(parser->options.tools, parser->name, parser->name_bytes))
        return false;
    parser->dropping = parser->options.one_call && calls->count == 1;
    if (!parser->dropping && calls->count == calls->count_max)
        return false;
    if (!parser->dropping)
        tool_calls_add(calls, parser->name, parser->name_bytes);
    buffer_clear(&parser->held);
    parser->in_call = false;
    parser->only_calls = parser->after_call = true;
    return true;
}

void tool_parser_arguments(struct tool_parser *parser, const char *text, size_t bytes)
{
    if (!parser->dropping)
        tool_calls_append(parser->options.calls, text, bytes);
}

/* ---- steps ---- */

static void enter_step(struct tool_parser *parser, const struct tool_step *step)
{
    while (step->kind == STEP_GOTO)
        step = parser->options.format->steps + step->to;
    parser->matched = 0;
    parser->step = step;
    parser->committed = false;
    switch (step->kind) {
    case STEP_END:
        parser->step = NULL;
        buffer_clear(&parser->held);
        break;
    case STEP_ARGUMENTS:
        json_scan_init(&parser->scan);
        break;
    case STEP_OBJECT:
        parser->object = (struct call_object){.state = CALL_OPEN};
        break;
    case STEP_PARAMETERS:
        parser->xml = (struct xml_parameters){.state = XML_BETWEEN};
        break;
    default:
        break;
    }
}

static bool in_word(char c)
{
    return (unsigned char)c > ' ' && !strchr("<>[]{}()\"'`\\", c);
}

static enum tool_take take_name(struct tool_parser *parser, char c)
{
    if (!in_word(c))
        return parser->matched > 0 ? TOOL_PASS : TOOL_BAD;
    if (parser->matched == TOOL_NAME_MAX)
        return TOOL_BAD;
    tool_parser_hold(parser, 1);
    parser->name[parser->matched++] = c;
    parser->name_bytes = parser->matched;
    return TOOL_MORE;
}

static enum tool_take take_arguments(struct tool_parser *parser, char c)
{
    if (!parser->committed && (c != '{' || !tool_parser_commit(parser)))
        return TOOL_BAD;
    parser->committed = true;
    enum json_scan_result result = json_scan_push(&parser->scan, c);
    if (result == JSON_SCAN_BAD)
        return TOOL_BAD;
    tool_parser_arguments(parser, &c, 1);
    buffer_clear(&parser->held);
    return result == JSON_SCAN_DONE ? TOOL_NEXT : TOOL_MORE;
}

static enum tool_take take_byte(struct tool_parser *parser, char c)
{
    const struct tool_step *step = parser->step;

    switch (step->kind) {
    case STEP_TEXT:
        if (step->text[parser->matched] != c)
            return TOOL_BAD;
        return step->text[++parser->matched] ? TOOL_MORE : TOOL_NEXT;
    case STEP_SPACE:
        return json_is_space(c) ? TOOL_MORE : TOOL_PASS;
    case STEP_NAME:
        return take_name(parser, c);
    case STEP_WORD:
        return in_word(c) ? TOOL_MORE : TOOL_PASS;
    case STEP_OBJECT:
        return call_object_take(parser, c);
    case STEP_ARGUMENTS:
        return take_arguments(parser, c);
    default:
        ASSERT(step->kind == STEP_PARAMETERS);
        return xml_parameters_take(parser, c);
    }
}

enum match { MATCH_NONE = 0, MATCH_PART, MATCH_WHOLE };

/* The last `matched` bytes of held against the beginning of `text`. */
static enum match match_text(const struct tool_parser *parser, size_t matched, const char *text)
{
    size_t bytes = strlen(text);

    if (bytes < matched ||
        memcmp(text, parser->held.data + parser->held.bytes - matched, matched) != 0)
        return MATCH_NONE;
    return bytes == matched ? MATCH_WHOLE : MATCH_PART;
}

/* What held ends with: a start, or a control token's text that has no place here (no *ret_start),
 * or the beginning of one. */
static enum match match_start(const struct tool_parser *parser, size_t matched,
                              const struct tool_start **ret_start)
{
    const struct tool_format *format = parser->options.format;
    enum match best = MATCH_NONE;

    for (size_t i = 0; i < TOOL_STARTS_MAX && format->starts[i].text && best != MATCH_WHOLE; i++) {
        const struct tool_start *start = &format->starts[i];
        enum match found = match_text(parser, matched, start->text);
        if (start->bare && !parser->only_calls)
            continue;
        if (found == MATCH_WHOLE)
            *ret_start = start;
        best = found > best ? found : best;
    }
    for (size_t i = 0; i < TOOL_MARKERS_MAX && format->markers[i] && best != MATCH_WHOLE; i++) {
        enum match found = match_text(parser, matched, format->markers[i]);
        if (parser->options.hide_markers && found > best)
            best = found;
    }
    return best;
}

static void push_byte(struct tool_parser *parser, char c);

static void drop_last(struct buffer *held, size_t bytes)
{
    ASSERT(bytes <= held->bytes);
    held->bytes -= bytes;
    held->data[held->bytes] = '\0';
}

static void begin_steps(struct tool_parser *parser, const struct tool_start *start)
{
    enter_step(parser, parser->options.format->steps + start->step);
    if (start->bare) { /* the byte is for the first step */
        drop_last(&parser->held, 1);
        push_byte(parser, start->text[0]);
        return;
    }
    tool_parser_hold(parser, parser->held.bytes);
}

static void push_content(struct tool_parser *parser, char c)
{
    const struct tool_start *start = NULL;
    struct buffer *held = &parser->held;

    buffer_append_char(held, c);
    enum match match = match_start(parser, parser->matched + 1, &start);
    if (match != MATCH_NONE) {
        parser->matched++;
        if (start) {
            begin_steps(parser, start);
        } else if (match == MATCH_WHOLE) { /* dropped, whatever it was meant for */
            drop_last(held, parser->matched);
            parser->matched = 0;
        }
    } else if (parser->matched > 0) { /* what was held is no start; `c` may begin one */
        drop_last(held, 1);
        parser->matched = 0;
        write_held(parser, held->bytes);
        push_content(parser, c);
    } else if (!json_is_space(c) || held->bytes > SPACE_HELD_MAX) {
        write_held(parser, held->bytes);
    }
}

/* The byte at the end of held does not fit. */
static void give_up(struct tool_parser *parser)
{
    char again[TOOL_TEXT_MAX + 1];
    struct buffer *held = &parser->held;
    bool partial = parser->step->kind == STEP_TEXT;
    size_t count = 1 + (partial ? parser->matched : 0);

    ASSERT(count <= sizeof(again) && count <= held->bytes);
    memcpy(again, held->data + held->bytes - count, count);
    drop_last(held, count);
    parser->step = NULL;
    parser->matched = 0;
    write_unfinished(parser);
    for (size_t i = 0; i < count; i++)
        push_byte(parser, again[i]);
}

/* A byte for the steps. */
static void push_step(struct tool_parser *parser, char c)
{
    enum tool_take take = TOOL_PASS;

    buffer_append_char(&parser->held, c);
    if (parser->held.bytes > TOOL_HELD_MAX) {
        tool_parser_hold(parser, parser->held.bytes);
        give_up(parser);
        return;
    }
    while (take == TOOL_PASS) {
        while (parser->step && parser->step->kind == STEP_BRANCH)
            enter_step(parser, parser->step->text[0] == c
                                   ? parser->options.format->steps + parser->step->to
                                   : parser->step + 1);
        if (!parser->step) { /* the format's end was before this byte */
            push_content(parser, c);
            return;
        }
        take = take_byte(parser, c);
        if (take == TOOL_NEXT || take == TOOL_PASS)
            enter_step(parser, parser->step + 1);
        if (take == TOOL_BAD)
            give_up(parser);
    }
}

static void push_byte(struct tool_parser *parser, char c)
{
    if (parser->step)
        push_step(parser, c);
    else
        push_content(parser, c);
}

/* How many of these bytes are content whatever comes behind them. */
static size_t plain_run(const struct tool_parser *parser, const char *text, size_t bytes)
{
    size_t run = 0;

    if (parser->step || parser->held.bytes > 0)
        return 0;
    while (run < bytes) {
        size_t space = json_is_space(text[run]);
        if (run + space == bytes || !parser->is_plain[(unsigned char)text[run + space]])
            break;
        run += space + 1;
    }
    return run;
}

void tool_parser_push(struct tool_parser *parser, const char *text, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        size_t plain = plain_run(parser, text + at, bytes - at);
        if (plain > 0) {
            buffer_append(parser->options.content, text + at, plain);
            parser->only_calls = parser->after_call = false;
            at += plain;
        } else {
            push_byte(parser, text[at++]);
        }
    }
}

void tool_parser_finish(struct tool_parser *parser)
{
    if (!parser->step && parser->matched > 0) /* the beginning of a start, and no more */
        write_held(parser, parser->held.bytes);
    write_unfinished(parser);
    parser->step = NULL;
    parser->matched = 0;
}
