/* fuzz_tool_parser: a format, how to cut, then an answer. Cut anywhere, reasoning, content and
 * calls are the same as in one piece; where there is no call, no byte is lost. */
#include <stdint.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/json.h"
#include "proto/reasoning.h"
#include "router/answer/tool_parser.h"

#define OUTPUT_BYTES_MAX ((size_t)8 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static const char *const formats[] = {"hermes",       "llama3_json", "json",
                                      "mistral",      "deepseek_v3", "functionary",
                                      "firefunction", "qwen3_coder", "seed_oss"};
#define FORMATS (sizeof(formats) / sizeof(formats[0]))

static const char tools_text[] =
    "[{\"function\": {\"name\": \"f\", \"parameters\": {\"properties\": {\"s\": {\"type\": "
    "\"string\"}, \"n\": {\"type\": \"integer\"}, \"m\": {\"type\": [\"string\", \"null\"]}}}}},"
    "{\"function\": {\"name\": \"g\"}}]";

struct output {
    struct buffer thoughts, content, text;
    struct tool_calls calls;
};

struct input {
    const struct tool_format *format;
    const json_t *tools;
    bool hide_markers, one_call;
    uint8_t cut;
    const char *text;
    size_t bytes;
};

static void read_answer(const struct input *input, bool whole, struct output *ret)
{
    const struct reasoning_format *tags = reasoning_find("qwen3");
    struct reasoning reasoning;
    uint32_t random = input->cut;
    size_t at = 0;

    buffer_init(&ret->thoughts, OUTPUT_BYTES_MAX);
    buffer_init(&ret->content, OUTPUT_BYTES_MAX);
    buffer_init(&ret->text, OUTPUT_BYTES_MAX);
    tool_calls_init(&ret->calls, 8, input->format->short_ids, OUTPUT_BYTES_MAX);
    const struct tool_parser_options options = {.format = input->format,
                                                .tools = input->tools,
                                                .hide_markers = input->hide_markers,
                                                .one_call = input->one_call,
                                                .content = &ret->content,
                                                .calls = &ret->calls};
    struct tool_parser *parser = tool_parser_new(&options);
    reasoning_init(&reasoning, tags, REASONING_START);
    while (at < input->bytes) {
        random = random * 1664525u + 1013904223u;
        size_t count = whole ? input->bytes : 1 + (random >> 24) % (1 + input->cut % 16);
        count = count > input->bytes - at ? input->bytes - at : count;
        reasoning_push(&reasoning, input->text + at, count, &ret->thoughts, &ret->text);
        tool_parser_push(parser, ret->text.data, ret->text.bytes);
        buffer_clear(&ret->text);
        at += count;
    }
    reasoning_finish(&reasoning, &ret->thoughts, &ret->text);
    tool_parser_push(parser, ret->text.data, ret->text.bytes);
    tool_parser_finish(parser);
    tool_parser_free(parser);
    ASSERT(buffer_finish(&ret->content) == 0 && buffer_finish(&ret->calls.arguments) == 0);
}

static void output_done(struct output *output)
{
    buffer_done(&output->thoughts);
    buffer_done(&output->content);
    buffer_done(&output->text);
    tool_calls_done(&output->calls);
}

static bool same(const struct buffer *a, const struct buffer *b)
{
    return a->bytes == b->bytes && memcmp(a->data, b->data, a->bytes) == 0;
}

static void check_nothing_lost(const struct input *input, const struct output *output)
{
    if (output->calls.count > 0 || output->thoughts.bytes > 0 || input->hide_markers ||
        memmem(input->text, input->bytes, "<think>", 7))
        return;
    ASSERT(output->content.bytes == input->bytes);
    ASSERT(memcmp(output->content.data, input->text, input->bytes) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct output whole, cut;

    if (bytes < 3)
        return 0;
    json_t *tools = json_loads(tools_text, 0, NULL);
    const struct input input = {.format = tool_format_find(formats[data[0] % FORMATS]),
                                .tools = tools,
                                .hide_markers = data[1] & 1,
                                .one_call = data[1] & 2,
                                .cut = data[2],
                                .text = (const char *)data + 3,
                                .bytes = bytes - 3};
    read_answer(&input, true, &whole);
    read_answer(&input, false, &cut);
    ASSERT(same(&whole.thoughts, &cut.thoughts));
    ASSERT(same(&whole.content, &cut.content));
    ASSERT(same(&whole.calls.arguments, &cut.calls.arguments));
    ASSERT(whole.calls.count == cut.calls.count);
    for (uint32_t i = 0; i < whole.calls.count; i++) {
        ASSERT(strcmp(whole.calls.list[i].name, cut.calls.list[i].name) == 0);
        ASSERT(whole.calls.list[i].from == cut.calls.list[i].from);
        ASSERT(whole.calls.list[i].bytes == cut.calls.list[i].bytes);
    }
    check_nothing_lost(&input, &whole);
    output_done(&whole);
    output_done(&cut);
    json_decref(tools);
    return 0;
}
