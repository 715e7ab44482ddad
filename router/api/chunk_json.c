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

static void write_call(struct buffer *out, const struct chunk_call *call, bool stream)
{
    buffer_append_char(out, '{');
    if (stream)
        buffer_printf(out, "\"index\":%u,", call->index);
    if (call->id) {
        buffer_append_text(out, "\"id\":");
        write_text(out, call->id);
        buffer_append_text(out, ",\"type\":\"function\",\"function\":{\"name\":");
        write_text(out, call->name);
        buffer_append_char(out, ',');
    } else {
        buffer_append_text(out, "\"function\":{");
    }
    buffer_append_text(out, "\"arguments\":");
    json_append_string(out, call->arguments, call->arguments_bytes);
    buffer_append_text(out, "}}");
}

static void write_name(struct buffer *out, const char *name, bool *first)
{
    buffer_printf(out, *first ? "\"%s\":" : ",\"%s\":", name);
    *first = false;
}

/* A message, or a delta with the members that it brings. Reasoning has its old and its new name. */
static void write_message(struct buffer *out, const struct chunk_choice *choice, bool stream)
{
    static const char *const names[] = {"reasoning_content", "reasoning"};
    bool first = true;

    buffer_append_text(out, stream ? ",\"delta\":{" : ",\"message\":{");
    if (choice->role || !stream) {
        write_name(out, "role", &first);
        buffer_append_text(out, "\"assistant\"");
    }
    if (choice->text || !stream)
        write_name(out, "content", &first);
    if (choice->text)
        json_append_string(out, choice->text, choice->text_bytes);
    else if (!stream)
        buffer_append_text(out, "null");
    for (size_t i = 0; i < 2 && choice->reasoning; i++) {
        write_name(out, names[i], &first);
        json_append_string(out, choice->reasoning, choice->reasoning_bytes);
    }
    if (choice->calls_count > 0)
        write_name(out, "tool_calls", &first);
    for (size_t i = 0; i < choice->calls_count; i++) {
        buffer_append_char(out, i == 0 ? '[' : ',');
        write_call(out, &choice->calls[i], stream);
    }
    buffer_append_text(out, choice->calls_count > 0 ? "]}" : "}");
}

static void write_stop_reason(struct buffer *out, const struct chunk_choice *choice)
{
    buffer_append_text(out, ",\"stop_reason\":");
    if (choice->stop == CHUNK_STOP_TEXT)
        json_append_string(out, choice->stop_text, choice->stop_bytes);
    else if (choice->stop == CHUNK_STOP_ID)
        buffer_printf(out, "%u", choice->stop_id);
    else
        buffer_append_text(out, choice->stop == CHUNK_STOP_REPETITION ? "\"repetition_detected\""
                                                                      : "null");
}

/* vLLM's members about tokens, where asked for. */
static void write_prompt(struct buffer *out, const char *logprobs, const uint32_t *ids,
                         size_t count)
{
    if (logprobs) {
        buffer_append_text(out, ",\"prompt_logprobs\":[");
        buffer_append_text(out, logprobs);
        buffer_append_char(out, ']');
    }
    if (!ids)
        return;
    buffer_append_text(out, ",\"prompt_token_ids\":[");
    for (size_t i = 0; i < count; i++)
        buffer_printf(out, i ? ",%u" : "%u", ids[i]);
    buffer_append_char(out, ']');
}

static void write_choice(struct buffer *out, const struct chunk_head *head,
                         const struct chunk_choice *choice)
{
    buffer_printf(out, "{\"index\":%u", choice->index);
    if (head->kind == API_CHAT) {
        write_message(out, choice, head->stream);
    } else {
        ASSERT(choice->text || head->stream);
        buffer_append_text(out, ",\"text\":");
        json_append_string(out, choice->text ? choice->text : "", choice->text_bytes);
    }
    write_prompt(out, choice->prompt_logprobs, choice->prompt_ids, choice->prompt_ids_count);
    if (choice->token_ids) {
        buffer_append_text(out, ",\"token_ids\":[");
        buffer_append_text(out, choice->token_ids);
        buffer_append_char(out, ']');
    }
    buffer_append_text(out, ",\"logprobs\":");
    buffer_append_text(out, choice->logprobs ? choice->logprobs : "null");
    buffer_append_text(out, ",\"finish_reason\":");
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
                  ",\"prompt_tokens_details\":{\"cached_tokens\":%" PRIu64 "}",
                  usage->prompt_tokens, usage->completion_tokens,
                  usage->prompt_tokens + usage->completion_tokens, usage->cached_tokens);
    if (usage->reasons)
        buffer_printf(out, ",\"completion_tokens_details\":{\"reasoning_tokens\":%" PRIu64 "}",
                      usage->reasoning_tokens);
    buffer_append_char(out, '}');
}

static void write_explain(struct buffer *out, const struct chunk_explain *explain)
{
    uint64_t slower = explain->cached_host_tokens + explain->cached_disk_tokens;

    buffer_printf(out, "\"cached_tokens\":%" PRIu64 ",\"computed_tokens\":%" PRIu64,
                  explain->cached_tokens, explain->computed_tokens);
    buffer_printf(out,
                  ",\"cached_by_tier\":{\"pool\":%" PRIu64 ",\"host\":%" PRIu64 ",\"disk\":%" PRIu64
                  "},\"queue_ms\":",
                  explain->cached_tokens > slower ? explain->cached_tokens - slower : 0,
                  explain->cached_host_tokens, explain->cached_disk_tokens);
    write_number(out, round(explain->queue_ms * 1e3) / 1e3);
    buffer_append_text(out, ",\"tier_load_ms\":");
    write_number(out, round(explain->load_ms * 1e3) / 1e3);
    buffer_append_text(out, ",\"prefill_ms\":");
    write_number(out, round(explain->prefill_ms * 1e3) / 1e3);
    buffer_printf(out,
                  ",\"turn_memory_tokens\":%u,\"group\":%u,\"why\":", explain->turn_memory_tokens,
                  explain->group);
    write_text(out, explain->why);
}

static void write_refrain(struct buffer *out, const struct chunk *chunk)
{
    const char *more = chunk->refrain ? chunk->refrain : "";

    if (!chunk->explain && !more[0])
        return;
    buffer_append_text(out, ",\"refrain\":{");
    if (chunk->explain)
        write_explain(out, chunk->explain);
    buffer_append_text(out, chunk->explain ? more : more + 1);
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
    write_prompt(out, chunk->prompt_logprobs, chunk->prompt_ids, chunk->prompt_ids_count);
    if (chunk->prompt_text) {
        buffer_append_text(out, ",\"prompt_text\":");
        json_append_string(out, chunk->prompt_text, chunk->prompt_text_bytes);
    }
    if (chunk->usage)
        write_usage(out, chunk->usage);
    else if (chunk->usage_null)
        buffer_append_text(out, ",\"usage\":null");
    write_refrain(out, chunk);
    buffer_append_char(out, '}');
}
