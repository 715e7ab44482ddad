/* chunk_json.c - member by member, in the order in which OpenAI and vLLM write them. */
#include "router/api/chunk_json.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/json.h"
#include "proto/base/number.h"

static void write_text(struct buffer *out, const char *text)
{
    json_append_string(out, text, strlen(text));
}

static void write_number(struct buffer *out, double value)
{
    char text[NUMBER_TEXT_MAX];
    number_format(isfinite(value) ? value : 0, text);
    buffer_append_text(out, text);
}

static const char *object_name(const struct chunk_head *head)
{
    if (head->kind == API_COMPLETIONS)
        return "text_completion";
    return head->stream ? "chat.completion.chunk" : "chat.completion";
}

static void write_delta(struct buffer *out, const struct chunk_choice *choice)
{
    buffer_append_text(out, ",\"delta\":{");
    if (choice->role)
        buffer_append_text(out, "\"role\":\"assistant\"");
    if (choice->text) {
        buffer_append_text(out, choice->role ? ",\"content\":" : "\"content\":");
        json_append_string(out, choice->text, choice->text_bytes);
    }
    buffer_append_char(out, '}');
}

static void write_stop_reason(struct buffer *out, const struct chunk_choice *choice)
{
    buffer_append_text(out, ",\"stop_reason\":");
    if (choice->stop == CHUNK_STOP_TEXT)
        json_append_string(out, choice->stop_text, choice->stop_bytes);
    else if (choice->stop == CHUNK_STOP_ID)
        buffer_printf(out, "%u", choice->stop_id);
    else
        buffer_append_text(out, "null");
}

static void write_choice(struct buffer *out, const struct chunk_head *head,
                         const struct chunk_choice *choice)
{
    buffer_printf(out, "{\"index\":%u", choice->index);
    if (head->kind == API_CHAT && head->stream) {
        write_delta(out, choice);
    } else {
        ASSERT(choice->text || head->stream);
        buffer_append_text(out, head->kind == API_CHAT
                                    ? ",\"message\":{\"role\":\"assistant\",\"content\":"
                                    : ",\"text\":");
        json_append_string(out, choice->text ? choice->text : "", choice->text_bytes);
        if (head->kind == API_CHAT)
            buffer_append_char(out, '}');
    }
    buffer_printf(
        out, ",\"logprobs\":%s,\"finish_reason\":", choice->logprobs ? choice->logprobs : "null");
    if (!choice->finish_reason) {
        buffer_append_text(out, "null}");
        return;
    }
    write_text(out, choice->finish_reason);
    write_stop_reason(out, choice);
    buffer_append_char(out, '}');
}

static void write_usage(struct buffer *out, const struct chunk_usage *usage)
{
    buffer_printf(out,
                  ",\"usage\":{\"prompt_tokens\":%" PRIu64 ",\"completion_tokens\":%" PRIu64
                  ",\"total_tokens\":%" PRIu64
                  ",\"prompt_tokens_details\":{\"cached_tokens\":%" PRIu64 "}}",
                  usage->prompt_tokens, usage->completion_tokens,
                  usage->prompt_tokens + usage->completion_tokens, usage->cached_tokens);
}

static void write_explain(struct buffer *out, const struct chunk_explain *explain)
{
    buffer_printf(out,
                  ",\"refrain\":{\"cached_tokens\":%" PRIu64 ",\"computed_tokens\":%" PRIu64
                  ",\"queue_ms\":",
                  explain->cached_tokens, explain->computed_tokens);
    write_number(out, round(explain->queue_ms * 1e3) / 1e3);
    buffer_append_text(out, ",\"prefill_ms\":");
    write_number(out, round(explain->prefill_ms * 1e3) / 1e3);
    buffer_printf(out,
                  ",\"turn_memory_tokens\":%u,\"group\":%u,\"why\":", explain->turn_memory_tokens,
                  explain->group);
    write_text(out, explain->why);
    buffer_append_text(out, ",\"miss\":");
    write_text(out, explain->miss);
    buffer_append_char(out, '}');
}

void chunk_json_write(struct buffer *out, const struct chunk_head *head, const struct chunk *chunk)
{
    ASSERT(head->kind == API_CHAT || head->kind == API_COMPLETIONS);
    buffer_append_text(out, "{\"id\":");
    write_text(out, head->id);
    buffer_printf(out, ",\"object\":\"%s\",\"created\":%" PRIu64 ",\"model\":", object_name(head),
                  head->created);
    write_text(out, head->model);
    buffer_append_text(out, ",\"choices\":[");
    for (size_t i = 0; i < chunk->choices_count; i++) {
        if (i > 0)
            buffer_append_char(out, ',');
        write_choice(out, head, &chunk->choices[i]);
    }
    buffer_append_char(out, ']');
    if (chunk->usage)
        write_usage(out, chunk->usage);
    else if (chunk->usage_null)
        buffer_append_text(out, ",\"usage\":null");
    if (chunk->explain)
        write_explain(out, chunk->explain);
    buffer_append_char(out, '}');
}
