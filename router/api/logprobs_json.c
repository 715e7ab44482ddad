/* logprobs_json.c - token texts and numbers, appended as JSON while they come.
 *
 * A token may be half a character: then its text has U+FFFD, and `bytes` tells the truth. */
#include "router/api/logprobs_json.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>

#include "proto/base/assert.h"
#include "proto/base/json.h"
#include "proto/base/number.h"
#include "router/text/detokenize.h"

#define BYTES_MAX ((size_t)64 << 20)
#define LOGPROB_LEAST (-9999.0)

void logprobs_json_init(struct logprobs_json *logprobs, enum api_kind kind,
                        const struct tokenizer *tokenizer, uint32_t top_max)
{
    *logprobs = (struct logprobs_json){.kind = kind, .tokenizer = tokenizer, .top_max = top_max};
    buffer_init(&logprobs->entries, BYTES_MAX);
    buffer_init(&logprobs->values, BYTES_MAX);
    buffer_init(&logprobs->tokens, BYTES_MAX);
    buffer_init(&logprobs->tops, BYTES_MAX);
}

void logprobs_json_done(struct logprobs_json *logprobs)
{
    buffer_done(&logprobs->entries);
    buffer_done(&logprobs->values);
    buffer_done(&logprobs->tokens);
    buffer_done(&logprobs->tops);
}

static void start_anew(struct logprobs_json *logprobs)
{
    logprobs->count = 0;
    buffer_clear(&logprobs->entries);
    buffer_clear(&logprobs->values);
    buffer_clear(&logprobs->tokens);
    buffer_clear(&logprobs->tops);
}

void logprobs_json_clear(struct logprobs_json *logprobs)
{
    start_anew(logprobs);
    logprobs->text_offset = 0;
}

int logprobs_json_check(const struct logprobs_json *logprobs)
{
    bool failed = logprobs->entries.failed || logprobs->values.failed || logprobs->tokens.failed ||
                  logprobs->tops.failed;
    return failed ? -ENOBUFS : 0;
}

size_t logprobs_json_bytes(const struct logprobs_json *logprobs)
{
    return logprobs->entries.capacity + logprobs->values.capacity + logprobs->tokens.capacity +
           logprobs->tops.capacity;
}

static void write_logprob(struct buffer *out, double value)
{
    char text[NUMBER_TEXT_MAX];
    number_format(isfinite(value) && value > LOGPROB_LEAST ? value : LOGPROB_LEAST, text);
    buffer_append_text(out, text);
}

/* Text of one token alone, always whole UTF-8. */
static void decode_token(const struct tokenizer *tokenizer, uint32_t id, struct buffer *text)
{
    struct detokenizer detokenizer;
    detokenizer_init(&detokenizer, tokenizer, true, false);
    (void)detokenizer_push(&detokenizer, id, text);
    detokenizer_finish(&detokenizer, text);
}

/* What a token is called. */
static void token_text(const struct logprobs_json *logprobs, uint32_t id, struct buffer *text)
{
    if (logprobs->as_ids)
        buffer_printf(text, "token_id:%u", id);
    else
        decode_token(logprobs->tokenizer, id, text);
}

static void write_bytes(const struct tokenizer *tokenizer, uint32_t id, struct buffer *out)
{
    const char *bytes = "";
    size_t count = 0;
    bool control;

    (void)tokenizer_token_bytes(tokenizer, id, &bytes, &count, &control);
    buffer_append_char(out, '[');
    for (size_t i = 0; i < count; i++)
        buffer_printf(out, i ? ",%u" : "%u", (unsigned char)bytes[i]);
    buffer_append_char(out, ']');
}

static void write_chat_token(const struct logprobs_json *logprobs, uint32_t id, double logprob,
                             struct buffer *out)
{
    struct buffer text;

    buffer_init(&text, BYTES_MAX);
    token_text(logprobs, id, &text);
    buffer_append_text(out, "{\"token\":");
    json_append_string(out, text.data, text.bytes);
    buffer_append_text(out, ",\"logprob\":");
    write_logprob(out, logprob);
    buffer_append_text(out, ",\"bytes\":");
    write_bytes(logprobs->tokenizer, id, out);
    buffer_done(&text);
}

static size_t tops_of(const struct logprobs_json *logprobs, const Refrain__Logprobs *numbers)
{
    size_t count = numbers ? numbers->n_top : 0;
    return count < logprobs->top_max ? count : logprobs->top_max;
}

static void add_chat(struct logprobs_json *logprobs, uint32_t id, const Refrain__Logprobs *numbers)
{
    struct buffer *out = &logprobs->entries;

    if (logprobs->count > 0)
        buffer_append_char(out, ',');
    write_chat_token(logprobs, id, numbers ? numbers->chosen : -INFINITY, out);
    buffer_append_text(out, ",\"top_logprobs\":[");
    for (size_t i = 0; i < tops_of(logprobs, numbers); i++) {
        if (i > 0)
            buffer_append_char(out, ',');
        write_chat_token(logprobs, numbers->top[i]->id, numbers->top[i]->logprob, out);
        buffer_append_char(out, '}');
    }
    buffer_append_text(out, "]}");
}

static uint64_t characters(const struct buffer *text)
{
    uint64_t count = 0;
    for (size_t i = 0; i < text->bytes; i++)
        count += ((unsigned char)text->data[i] & 0xc0) != 0x80;
    return count;
}

/* The chosen token is always among its alternatives, as clients of the old shape expect. */
static void add_tops(struct logprobs_json *logprobs, uint32_t id, const struct buffer *text,
                     const Refrain__Logprobs *numbers)
{
    struct buffer *out = &logprobs->tops;
    bool chosen_seen = false;
    struct buffer other;

    buffer_init(&other, BYTES_MAX);
    buffer_append_char(out, '{');
    for (size_t i = 0; i < tops_of(logprobs, numbers); i++) {
        buffer_clear(&other);
        token_text(logprobs, numbers->top[i]->id, &other);
        if (i > 0)
            buffer_append_char(out, ',');
        json_append_string(out, other.data, other.bytes);
        buffer_append_char(out, ':');
        write_logprob(out, numbers->top[i]->logprob);
        chosen_seen = chosen_seen || numbers->top[i]->id == id;
    }
    if (!chosen_seen) {
        if (tops_of(logprobs, numbers) > 0)
            buffer_append_char(out, ',');
        json_append_string(out, text->data, text->bytes);
        buffer_append_char(out, ':');
        write_logprob(out, numbers ? numbers->chosen : -INFINITY);
    }
    buffer_append_char(out, '}');
    buffer_done(&other);
}

/* Offsets count what the token's text takes, whatever it is called. */
static uint64_t token_characters(const struct logprobs_json *logprobs, uint32_t id,
                                 const struct buffer *text)
{
    struct buffer decoded;

    if (!logprobs->as_ids)
        return characters(text);
    buffer_init(&decoded, BYTES_MAX);
    decode_token(logprobs->tokenizer, id, &decoded);
    uint64_t count = characters(&decoded);
    buffer_done(&decoded);
    return count;
}

/* `first`: there is nothing that the token could be likely after. */
static void add_completion(struct logprobs_json *logprobs, uint32_t id, bool first,
                           const Refrain__Logprobs *numbers)
{
    const char *comma = logprobs->count > 0 ? "," : "";
    struct buffer text;

    buffer_init(&text, BYTES_MAX);
    token_text(logprobs, id, &text);
    buffer_printf(&logprobs->entries, "%s%" PRIu64, comma, logprobs->text_offset);
    buffer_append_text(&logprobs->tokens, comma);
    json_append_string(&logprobs->tokens, text.data, text.bytes);
    buffer_append_text(&logprobs->values, comma);
    buffer_append_text(&logprobs->tops, comma);
    if (first) {
        buffer_append_text(&logprobs->values, "null");
        buffer_append_text(&logprobs->tops, "null");
    } else {
        write_logprob(&logprobs->values, numbers ? numbers->chosen : -INFINITY);
        add_tops(logprobs, id, &text, numbers);
    }
    logprobs->text_offset += token_characters(logprobs, id, &text);
    buffer_done(&text);
}

void logprobs_json_add_first(struct logprobs_json *logprobs, uint32_t id)
{
    ASSERT(logprobs->kind == API_COMPLETIONS && logprobs->count == 0);
    add_completion(logprobs, id, true, NULL);
    logprobs->count++;
}

void logprobs_json_add(struct logprobs_json *logprobs, uint32_t id,
                       const Refrain__Logprobs *numbers)
{
    if (logprobs->kind == API_CHAT)
        add_chat(logprobs, id, numbers);
    else
        add_completion(logprobs, id, false, numbers);
    logprobs->count++;
}

void logprobs_json_write(struct logprobs_json *logprobs, struct buffer *out)
{
    if (logprobs->kind == API_CHAT)
        buffer_printf(out, "{\"content\":[%s]}", logprobs->entries.data);
    else
        buffer_printf(out,
                      "{\"text_offset\":[%s],\"token_logprobs\":[%s],\"tokens\":[%s],"
                      "\"top_logprobs\":[%s]}",
                      logprobs->entries.data, logprobs->values.data, logprobs->tokens.data,
                      logprobs->tops.data);
    start_anew(logprobs);
}

static void write_prompt_token(const struct tokenizer *tokenizer, uint32_t id, double logprob,
                               uint32_t rank, struct buffer *out)
{
    struct buffer text;

    buffer_init(&text, BYTES_MAX);
    decode_token(tokenizer, id, &text);
    buffer_printf(out, "\"%u\":{\"logprob\":", id);
    write_logprob(out, logprob);
    buffer_printf(out, ",\"rank\":%u,\"decoded_token\":", rank);
    json_append_string(out, text.data, text.bytes);
    buffer_append_char(out, '}');
    buffer_done(&text);
}

void logprobs_json_prompt_entry(const struct tokenizer *tokenizer, uint32_t id,
                                const Refrain__Logprobs *numbers, uint32_t top_max,
                                struct buffer *out)
{
    buffer_append_char(out, '{');
    write_prompt_token(tokenizer, id, numbers->chosen, numbers->rank, out);
    for (uint32_t i = 0; i < numbers->n_top && i < top_max; i++) {
        if (numbers->top[i]->id == id)
            continue;
        buffer_append_char(out, ',');
        write_prompt_token(tokenizer, numbers->top[i]->id, numbers->top[i]->logprob, i + 1, out);
    }
    buffer_append_char(out, '}');
}
