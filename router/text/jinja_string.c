/* jinja_string.c - strings with provenance, and the text under construction.
 *
 * A string is flat (bytes somewhere that outlive the render) or a rope of two strings; joining long
 * strings costs a node, and the bytes are copied once, into the output. A rope is flattened in
 * place when somebody needs to look inside. Short joins are copied at once.
 * Marks: enum span_source per run of bytes. Views and copies keep them, see jinja_string.h. */
#include "router/text/jinja_string.h"

#include <errno.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "router/text/jinja_eval.h"
#include "router/text/jinja_utf8.h"

#define JOIN_COPY_MAX 64  /* shorter results of one origin are copied instead of joined */
#define WALK_DEPTH_MAX 48 /* deeper ropes are flattened before they are written */

static const struct jinja_origin template_origin = {0, -1};

struct jinja_str *jinja_str_view(struct jinja_eval *ev, const char *data, size_t bytes,
                                 struct jinja_origin origin)
{
    if (bytes > CHAT_TEMPLATE_OUTPUT_MAX) {
        jinja_fail(ev, -E2BIG, "a string of more than %u bytes", CHAT_TEMPLATE_OUTPUT_MAX);
        return NULL;
    }
    struct jinja_str *string = jinja_alloc(ev, sizeof(*string));
    if (string == NULL)
        return NULL;
    *string = (struct jinja_str){.data = bytes ? data : "",
                                 .bytes = (uint32_t)bytes,
                                 .chars = UINT32_MAX,
                                 .source = origin.source,
                                 .message = origin.message};
    return string;
}

struct jinja_str *jinja_str_copy(struct jinja_eval *ev, const char *data, size_t bytes,
                                 struct jinja_origin origin)
{
    char *copy = bytes ? jinja_alloc(ev, bytes) : NULL;
    if (bytes > 0 && copy == NULL)
        return NULL;
    if (bytes > 0)
        memcpy(copy, data, bytes);
    return jinja_str_view(ev, copy, bytes, origin);
}

/* The first run that ends after `at`. */
static size_t find_run(const struct text_span *runs, size_t count, size_t at)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (runs[middle].end <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Give `string` the marks of [start, end) in runs, moved by -start. */
static int set_runs(struct jinja_eval *ev, struct jinja_str *string, const struct text_span *runs,
                    size_t count, uint32_t start, uint32_t end)
{
    size_t first = find_run(runs, count, start);
    size_t last = find_run(runs, count, end);
    string->source = 0;
    string->message = -1;
    if (last < count && runs[last].start < end)
        last++;
    if (last == first)
        return 0;
    if (last - first == 1 && runs[first].start <= start && runs[first].end >= end) {
        string->source = (uint8_t)runs[first].source;
        string->message = runs[first].message;
        return 0;
    }
    struct text_span *own = jinja_alloc(ev, (last - first) * sizeof(*own));
    if (own == NULL)
        return ev->code;
    for (size_t i = first; i < last; i++) {
        own[i - first] = runs[i];
        own[i - first].start = runs[i].start > start ? runs[i].start - start : 0;
        own[i - first].end = (runs[i].end < end ? runs[i].end : end) - start;
    }
    string->runs = own;
    string->runs_count = (uint32_t)(last - first);
    return 0;
}

struct jinja_str *jinja_str_sub(struct jinja_eval *ev, struct jinja_str *string, uint32_t start,
                                uint32_t end)
{
    ASSERT(string->data != NULL && start <= end && end <= string->bytes);
    if (start == 0 && end == string->bytes)
        return string;
    struct jinja_str *sub = jinja_str_view(ev, string->data + start, end - start,
                                           (struct jinja_origin){string->source, string->message});
    if (sub == NULL)
        return NULL;
    sub->markup = string->markup;
    if (string->chars == string->bytes)
        sub->chars = sub->bytes;
    if (string->runs != NULL && set_runs(ev, sub, string->runs, string->runs_count, start, end) < 0)
        return NULL;
    return sub;
}

static bool same_origin(const struct jinja_str *a, const struct jinja_str *b)
{
    return a->runs == NULL && b->runs == NULL && a->source == b->source &&
           (a->source == 0 || a->message == b->message);
}

struct jinja_str *jinja_str_concat(struct jinja_eval *ev, struct jinja_str *left,
                                   struct jinja_str *right)
{
    size_t bytes = (size_t)left->bytes + right->bytes;
    if (right->bytes == 0)
        return left;
    if (left->bytes == 0)
        return right;
    struct jinja_origin origin = {left->source, left->message};
    if (bytes <= JOIN_COPY_MAX && left->data && right->data && same_origin(left, right)) {
        char *data = jinja_alloc(ev, bytes);
        if (data == NULL)
            return NULL;
        memcpy(data, left->data, left->bytes);
        memcpy(data + left->bytes, right->data, right->bytes);
        return jinja_str_view(ev, data, bytes, origin);
    }
    struct jinja_str *rope = jinja_str_view(ev, NULL, bytes, template_origin);
    if (rope == NULL)
        return NULL;
    rope->data = NULL;
    rope->left = left;
    rope->right = right;
    rope->depth = 1 + (left->depth > right->depth ? left->depth : right->depth);
    return rope;
}

/* Write the leaves of a rope in order. `stack` has room for depth + 1 strings. */
static int write_leaves(struct jinja_eval *ev, struct jinja_str *rope, struct jinja_str **stack)
{
    size_t count = 0;
    stack[count++] = rope;
    while (count > 0) {
        struct jinja_str *string = stack[--count];
        if (string->data == NULL) {
            stack[count++] = string->right;
            stack[count++] = string->left;
            continue;
        }
        int r = jinja_write_sub(ev, string, 0, string->bytes);
        if (r < 0)
            return r;
    }
    return 0;
}

static int flatten(struct jinja_eval *ev, struct jinja_str *rope)
{
    struct jinja_capture capture;
    struct value flat;
    struct jinja_str **stack = mem_alloc(((size_t)rope->depth + 2) * sizeof(struct jinja_str *));
    jinja_capture_begin(ev, &capture);
    int r = write_leaves(ev, rope, stack);
    mem_free(stack);
    if (r >= 0)
        r = jinja_charge(ev, rope->bytes / 64 + rope->depth);
    if (r >= 0)
        r = jinja_capture_end(ev, &capture, &flat);
    if (r < 0)
        return r;
    bool markup = rope->markup;
    *rope = *flat.string;
    rope->markup = markup;
    return 0;
}

const char *jinja_str_data(struct jinja_eval *ev, struct jinja_str *string)
{
    if (string->data == NULL && flatten(ev, string) < 0)
        return NULL;
    return string->data;
}

uint32_t jinja_str_chars(struct jinja_str *string)
{
    ASSERT(string->data != NULL);
    if (string->chars == UINT32_MAX)
        string->chars = jinja_utf8_count(string->data, string->bytes);
    return string->chars;
}

uint32_t jinja_str_offset(struct jinja_str *string, uint32_t index)
{
    if (jinja_str_chars(string) == string->bytes)
        return index < string->bytes ? index : string->bytes;
    return jinja_utf8_offset(string->data, string->bytes, index);
}

struct jinja_origin jinja_str_origin_at(const struct jinja_str *string, uint32_t at, uint32_t *run)
{
    if (string->runs == NULL)
        return (struct jinja_origin){string->source, string->message};
    while (*run < string->runs_count && string->runs[*run].end <= at)
        (*run)++;
    if (*run < string->runs_count && string->runs[*run].start <= at)
        return (struct jinja_origin){(uint8_t)string->runs[*run].source,
                                     string->runs[*run].message};
    return template_origin;
}

struct jinja_origin jinja_str_origin(const struct jinja_str *string)
{
    ASSERT(string->data != NULL);
    if (string->runs_count > 0)
        return (struct jinja_origin){(uint8_t)string->runs[0].source, string->runs[0].message};
    return (struct jinja_origin){string->source, string->message};
}

static int add_span(struct jinja_eval *ev, size_t start, size_t end, uint8_t source,
                    int32_t message)
{
    if (ev->spans_count > ev->spans_floor) {
        struct text_span *last = &ev->spans[ev->spans_count - 1];
        if (last->end == start && last->source == (enum span_source)source &&
            last->message == message) {
            last->end = (uint32_t)end;
            return 0;
        }
    }
    if (ev->spans_count == ev->spans_capacity) {
        if (ev->spans_count >= JINJA_SPANS_MAX)
            return jinja_fail(ev, -E2BIG, "more than %u marked pieces of text", JINJA_SPANS_MAX);
        ev->spans_capacity = ev->spans_capacity ? ev->spans_capacity * 2 : 128;
        ev->spans = mem_realloc(ev->spans, ev->spans_capacity * sizeof(*ev->spans));
    }
    ev->spans[ev->spans_count++] = (struct text_span){.start = (uint32_t)start,
                                                      .end = (uint32_t)end,
                                                      .source = (enum span_source)source,
                                                      .message = message};
    return 0;
}

int jinja_write(struct jinja_eval *ev, const char *data, size_t bytes, struct jinja_origin origin)
{
    size_t start = ev->out->bytes;
    if (bytes == 0)
        return 0;
    buffer_append(ev->out, data, bytes);
    if (ev->out->failed)
        return jinja_fail(ev, -E2BIG, "the text grows past %u bytes", CHAT_TEMPLATE_OUTPUT_MAX);
    if (origin.source == 0)
        return 0;
    return add_span(ev, start, start + bytes, origin.source, origin.message);
}

int jinja_write_text(struct jinja_eval *ev, const char *text)
{
    return jinja_write(ev, text, strlen(text), template_origin);
}

int jinja_write_char(struct jinja_eval *ev, uint32_t code_point, struct jinja_origin origin)
{
    char data[4];
    return jinja_write(ev, data, jinja_utf8_encode(code_point, data), origin);
}

int jinja_write_sub(struct jinja_eval *ev, const struct jinja_str *string, uint32_t start,
                    uint32_t end)
{
    size_t base = ev->out->bytes;
    ASSERT(string->data != NULL && start <= end && end <= string->bytes);
    int r = jinja_write(ev, string->data + start, end - start,
                        (struct jinja_origin){string->runs ? 0 : string->source, string->message});
    size_t i = find_run(string->runs, string->runs_count, start);
    for (; r >= 0 && i < string->runs_count && string->runs[i].start < end; i++) {
        const struct text_span *run = &string->runs[i];
        uint32_t from = run->start > start ? run->start : start;
        uint32_t to = run->end < end ? run->end : end;
        if (from < to)
            r = add_span(ev, base + from - start, base + to - start, (uint8_t)run->source,
                         run->message);
    }
    return r;
}

int jinja_write_str(struct jinja_eval *ev, struct jinja_str *string)
{
    struct jinja_str *stack[WALK_DEPTH_MAX + 2];
    if (string->data == NULL && string->depth <= WALK_DEPTH_MAX)
        return write_leaves(ev, string, stack);
    if (jinja_str_data(ev, string) == NULL)
        return ev->code;
    return jinja_write_sub(ev, string, 0, string->bytes);
}

void jinja_capture_begin(struct jinja_eval *ev, struct jinja_capture *capture)
{
    *capture = (struct jinja_capture){ev->out->bytes, ev->spans_count, ev->spans_floor};
    ev->spans_floor = ev->spans_count;
}

int jinja_capture_end(struct jinja_eval *ev, const struct jinja_capture *capture, struct value *ret)
{
    ASSERT(ev->out->bytes >= capture->bytes && ev->spans_count >= capture->spans);
    struct jinja_str *string = jinja_str_copy(ev, ev->out->data + capture->bytes,
                                              ev->out->bytes - capture->bytes, template_origin);
    if (string == NULL)
        return ev->code;
    if (ev->spans_count > capture->spans &&
        set_runs(ev, string, ev->spans + capture->spans, ev->spans_count - capture->spans,
                 (uint32_t)capture->bytes, (uint32_t)ev->out->bytes) < 0)
        return ev->code;
    if (string->bytes > 0) { /* an empty buffer may have no memory of its own */
        ev->out->bytes = capture->bytes;
        ev->out->data[ev->out->bytes] = '\0';
    }
    ev->spans_count = capture->spans;
    ev->spans_floor = capture->floor;
    *ret = jinja_string(string);
    return 0;
}

int jinja_to_str(struct jinja_eval *ev, const struct value *value, struct jinja_str **ret)
{
    struct jinja_capture capture;
    struct value text = {0};
    if (value->type == VALUE_STRING) {
        *ret = value->string;
        return jinja_str_data(ev, value->string) ? 0 : ev->code;
    }
    jinja_capture_begin(ev, &capture);
    int r = jinja_write_value(ev, value);
    if (r >= 0)
        r = jinja_capture_end(ev, &capture, &text);
    if (r >= 0)
        *ret = text.string;
    return r;
}

int jinja_write_escaped(struct jinja_eval *ev, struct jinja_str *string)
{
    const char *data = jinja_str_data(ev, string);
    uint32_t start = 0, run = 0;
    int r = 0;
    if (data == NULL)
        return ev->code;
    for (uint32_t i = 0; r >= 0 && i < string->bytes; i++) {
        const char *entity = data[i] == '&'    ? "&amp;"
                             : data[i] == '<'  ? "&lt;"
                             : data[i] == '>'  ? "&gt;"
                             : data[i] == '\'' ? "&#39;"
                             : data[i] == '"'  ? "&#34;"
                                               : NULL;
        if (entity == NULL)
            continue;
        r = jinja_write_sub(ev, string, start, i);
        if (r >= 0)
            r = jinja_write(ev, entity, strlen(entity), jinja_str_origin_at(string, i, &run));
        start = i + 1;
    }
    return r < 0 ? r : jinja_write_sub(ev, string, start, string->bytes);
}

int jinja_escape(struct jinja_eval *ev, struct jinja_str *string, struct jinja_str **ret)
{
    struct jinja_capture capture;
    struct value text = {0};
    jinja_capture_begin(ev, &capture);
    int r = jinja_write_escaped(ev, string);
    if (r >= 0)
        r = jinja_capture_end(ev, &capture, &text);
    if (r < 0)
        return r;
    text.string->markup = true;
    *ret = text.string;
    return 0;
}
