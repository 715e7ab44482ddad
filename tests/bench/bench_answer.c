/* bench_answer.c - reading answers: ns per byte, in pieces of a token's length, and whether twice
 * the text takes twice the time.
 *
 * Prints CSV: what, bytes, ns_per_byte. The answer is checked first: pieces give what the whole
 * gives. Texts are the worst of their kind: prose with beginnings of markers, one long argument,
 * many short calls, a call that turns out to be none. */
#include <stdio.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/clock.h"
#include "router/answer/reader.h"

#define TEXT_BYTES ((size_t)512 << 10)
#define PIECE_BYTES 4u
#define ROUNDS 3

struct text {
    const char *what, *format;
    const char *begin, *repeat, *end;
};

static const struct text texts[] = {
    {"prose", "hermes", "", "1 < 2, <tool> and </b>, so be it. ", ""},
    {"thinking", "hermes", "<think>", "if a < b then </think ", "</think>"},
    {"one call", "hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {\"s\": \"", "word \\n ",
     "\"}}</tool_call>"},
    {"many calls", "hermes", "", "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>\n",
     ""},
    {"no call", "hermes", "<tool_call>{\"arguments\": {\"s\": \"", "word ", "\"}, 1"},
    {"bare json", "llama3_json", "{\"a\": [", "{\"b\": \"c\"}, ", "1]}"},
    {"xml", "qwen3_coder", "<function=f><parameter=s>", "a < b\n", "</parameter></function>"},
};

static void read_text(const struct answer_reader_plan *plan, const struct buffer *text,
                      size_t piece, struct answer_reader *reader, struct buffer *content)
{
    buffer_init(content, SIZE_MAX);
    answer_reader_init(reader, plan, content);
    for (size_t at = 0; at < text->bytes; at += piece)
        answer_reader_push(reader, text->data + at,
                           piece < text->bytes - at ? piece : text->bytes - at);
    answer_reader_finish(reader);
}

static void check(const struct answer_reader_plan *plan, const struct buffer *text)
{
    struct answer_reader whole, cut;
    struct buffer whole_content, cut_content;

    read_text(plan, text, text->bytes, &whole, &whole_content);
    read_text(plan, text, PIECE_BYTES, &cut, &cut_content);
    ASSERT(whole_content.bytes == cut_content.bytes && whole.calls.count == cut.calls.count);
    ASSERT(memcmp(whole_content.data, cut_content.data, cut_content.bytes) == 0);
    ASSERT(whole.calls.arguments.bytes == cut.calls.arguments.bytes);
    answer_reader_done(&whole);
    answer_reader_done(&cut);
    buffer_done(&whole_content);
    buffer_done(&cut_content);
}

static double ns_per_byte(const struct answer_reader_plan *plan, const struct buffer *text)
{
    double best = 1e9;

    for (int round = 0; round < ROUNDS; round++) {
        struct answer_reader reader;
        struct buffer content;
        uint64_t began = clock_ns();
        read_text(plan, text, PIECE_BYTES, &reader, &content);
        double ns = (double)(clock_ns() - began) / (double)text->bytes;
        best = ns < best ? ns : best;
        answer_reader_done(&reader);
        buffer_done(&content);
    }
    return best;
}

int main(void)
{
    fprintf(stdout, "what,bytes,ns_per_byte\n");
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        const struct answer_reader_plan plan = {.reasoning = reasoning_find("qwen3"),
                                                .tool_format = tool_format_find(texts[i].format),
                                                .bytes_max = SIZE_MAX};
        for (size_t bytes = TEXT_BYTES / 2; bytes <= TEXT_BYTES; bytes *= 2) {
            struct buffer text;
            buffer_init(&text, SIZE_MAX);
            buffer_append_text(&text, texts[i].begin);
            while (text.bytes < bytes)
                buffer_append_text(&text, texts[i].repeat);
            buffer_append_text(&text, texts[i].end);
            check(&plan, &text);
            fprintf(stdout, "%s,%zu,%.1f\n", texts[i].what, text.bytes, ns_per_byte(&plan, &text));
            buffer_done(&text);
        }
    }
    return 0;
}
