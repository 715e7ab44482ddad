/* reader.c - one parser behind the other. */
#include "router/answer/reader.h"

static void begin(struct answer_reader *reader)
{
    const struct answer_reader_plan *plan = reader->plan;

    reader->parser = NULL;
    if (plan->reasoning)
        reasoning_init(&reader->reasoning, plan->reasoning, plan->reasoning_start);
    if (plan->tool_format) {
        const struct tool_parser_options options = {.format = plan->tool_format,
                                                    .tools = plan->tools,
                                                    .hide_markers = plan->hide_markers,
                                                    .one_call = plan->one_call,
                                                    .content = reader->content,
                                                    .calls = &reader->calls};
        reader->parser = tool_parser_new(&options);
    }
}

void answer_reader_init(struct answer_reader *reader, const struct answer_reader_plan *plan,
                        struct buffer *content)
{
    reader->plan = plan;
    reader->content = content;
    buffer_init(&reader->thoughts, plan->bytes_max);
    buffer_init(&reader->visible, plan->bytes_max);
    tool_calls_init(&reader->calls, TOOL_CALLS_MAX,
                    plan->tool_format && plan->tool_format->short_ids, plan->bytes_max);
    begin(reader);
}

void answer_reader_done(struct answer_reader *reader)
{
    tool_parser_free(reader->parser);
    buffer_done(&reader->thoughts);
    buffer_done(&reader->visible);
    tool_calls_done(&reader->calls);
}

void answer_reader_restart(struct answer_reader *reader)
{
    tool_parser_free(reader->parser);
    buffer_clear(&reader->thoughts);
    buffer_clear(&reader->visible);
    tool_calls_clear(&reader->calls);
    begin(reader);
}

static void push_visible(struct answer_reader *reader, const char *text, size_t bytes)
{
    if (reader->parser)
        tool_parser_push(reader->parser, text, bytes);
    else
        buffer_append(reader->content, text, bytes);
}

/* What the reasoning parser gave out. */
static void pass_on(struct answer_reader *reader)
{
    push_visible(reader, reader->visible.data, reader->visible.bytes);
    buffer_clear(&reader->visible);
    if (reader->plan->drop_reasoning)
        buffer_clear(&reader->thoughts);
}

void answer_reader_push(struct answer_reader *reader, const char *text, size_t bytes)
{
    if (!reader->plan->reasoning) {
        push_visible(reader, text, bytes);
        return;
    }
    reasoning_push(&reader->reasoning, text, bytes, &reader->thoughts, &reader->visible);
    pass_on(reader);
}

void answer_reader_finish(struct answer_reader *reader)
{
    if (reader->plan->reasoning) {
        reasoning_finish(&reader->reasoning, &reader->thoughts, &reader->visible);
        pass_on(reader);
    }
    if (reader->parser)
        tool_parser_finish(reader->parser);
}

int answer_reader_check(const struct answer_reader *reader)
{
    int r = buffer_finish(&reader->thoughts);
    return r < 0 ? r : buffer_finish(&reader->calls.arguments);
}

size_t answer_reader_bytes(const struct answer_reader *reader)
{
    return reader->thoughts.capacity + reader->visible.capacity + reader->calls.arguments.capacity;
}
