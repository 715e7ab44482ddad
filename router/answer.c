/* answer.c - what a client reads of a request: a whole answer, or a stream of chunks.
 *
 * A stream begins with the first token, not with the request: so its headers can name the group,
 * and everything that fails before has a proper status. Chunks of a choice: a delta with the role,
 * deltas with content (one per step that brought tokens, as vLLM does, even when their text is
 * still held back), or, where the answer is read for reasoning and calls, deltas with what was
 * found; a last one with finish_reason and no content. After the last choice: usage, if
 * asked for, and [DONE]. */
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/json.h"
#include "router/http/server.h"
#include "router/http/sse.h"
#include "router/metrics.h"
#include "router/request_private.h"
#include "router/session/miss.h"

void answer_usage(const struct request *request, struct chunk_usage *ret_usage)
{
    *ret_usage = (struct chunk_usage){.reasons = request->plan.answer.reader.reasoning != NULL};
    for (uint32_t i = 0; i < request->prompts_count; i++)
        ret_usage->prompt_tokens += request->prompts[i].ids.count;
    for (uint32_t i = 0; i < request->choices_count; i++) {
        const struct choice *choice = &request->choices[i];
        ret_usage->completion_tokens += choice->tokens;
        ret_usage->reasoning_tokens += choice->reasoning_tokens;
        if (choice->index % request->fields.best_of == 0) /* once per prompt */
            ret_usage->cached_tokens += choice->cached_tokens;
    }
}

static void explain(const struct request *request, struct chunk_explain *ret_explain)
{
    const struct choice *choice = &request->choices[0];
    *ret_explain = (struct chunk_explain){.cached_tokens = choice->cached_tokens,
                                          .computed_tokens = choice->computed_tokens,
                                          .queue_ms = choice->queue_seconds * 1e3,
                                          .cached_host_tokens = choice->cached_host_tokens,
                                          .cached_disk_tokens = choice->cached_disk_tokens,
                                          .load_ms = choice->load_seconds * 1e3,
                                          .prefill_ms = choice->prefill_seconds * 1e3,
                                          .group = choice->group,
                                          .turn_memory_tokens =
                                              request->prompts[choice->prompt].trace.turn_tokens,
                                          .why = choice->why};
}

/* Of a completion only the worker knows something. */
static void write_worker_miss(const char *miss, struct buffer *out)
{
    if (!miss[0]) {
        buffer_append_text(out, ",\"miss\":null");
        return;
    }
    buffer_append_text(out, ",\"miss\":{");
    if (strcmp(miss, "off") == 0) /* the one word that is a cause */
        buffer_printf(out, "\"cause\":\"%s\",", miss_words[MISS_REUSE_OFF]);
    buffer_append_text(out, "\"worker\":");
    json_append_string(out, miss, strlen(miss));
    buffer_append_char(out, '}');
}

/* Everything of the "refrain" object; `explained` and the request's scratch must outlive the chunk.
 */
static void add_refrain(struct request *request, struct chunk *chunk,
                        struct chunk_explain *explained)
{
    struct buffer *members = &request->requests->refrain;
    bool wanted = request->fields.explain || sessions_explain(request->requests->parts.sessions);

    buffer_clear(members);
    if (wanted) {
        explain(request, explained);
        chunk->explain = explained;
    }
    if (request->turn)
        turn_write(request->turn, wanted, request->choices[0].miss, members);
    else if (wanted)
        write_worker_miss(request->choices[0].miss, members);
    chunk->refrain = members->data;
}

static struct chunk_head head_of(const struct request *request)
{
    return (struct chunk_head){.kind = request->fields.kind,
                               .stream = request->fields.stream,
                               .id = request->api_id,
                               .model = served_model_name(request->model),
                               .created = request->created_s};
}

static void add_group_header(struct request *request, const struct choice *choice)
{
    char group[16];
    (void)snprintf(group, sizeof(group), "%u", choice->group);
    http_exchange_add_header(request->exchange, "x-refrain-group", group);
}

static void fill_finish(const struct request *request, const struct choice *choice,
                        struct chunk_choice *out)
{
    out->finish_reason = choice->finish_reason;
    out->stop = choice->stop_kind;
    out->stop_id = choice->stop_id;
    if (choice->stop_kind == CHUNK_STOP_TEXT) {
        out->stop_text = request->fields.stop[choice->stop_which];
        out->stop_bytes = request->fields.stop_bytes[choice->stop_which];
    }
}

/* ---- stream ---- */

static void send_chunk(struct request *request, const struct chunk *chunk)
{
    struct buffer *json = &request->requests->scratch;
    struct chunk_head head = head_of(request);

    buffer_clear(json);
    chunk_json_write(json, &head, chunk);
    ASSERT(buffer_finish(json) == 0);
    sse_data(request->exchange, json->data, json->bytes);
}

/* The prompt's ids, where the client asked for them: beside a chat's choices, in each completion.
 */
static void fill_prompt_ids(const struct request *request, const struct choice *choice,
                            struct chunk *chunk, struct chunk_choice *part)
{
    const struct token_ids *ids = &request->prompts[choice->prompt].ids;

    if (!request->fields.return_ids)
        return;
    if (request->fields.kind == API_CHAT) {
        chunk->prompt_ids = ids->ids;
        chunk->prompt_ids_count = ids->count;
    } else {
        part->prompt_ids = ids->ids;
        part->prompt_ids_count = ids->count;
    }
}

/* Once, with the first chunk. */
static void show_prompt(struct request *request, struct chunk *chunk)
{
    chunk->prompt_text = request->prompt_text;
    chunk->prompt_text_bytes = request->prompt_text_bytes;
    request->prompt_text = NULL;
}

static void send_choice(struct request *request, struct choice *choice, struct chunk_choice *part,
                        bool last)
{
    struct chunk chunk = {.choices = part, .choices_count = 1};
    struct chunk_usage usage = {0};
    struct chunk_explain explained;

    if (request->fields.include_usage && request->fields.continuous_usage) {
        usage.prompt_tokens = request->prompts[choice->prompt].ids.count;
        usage.completion_tokens = choice->tokens;
        usage.cached_tokens = choice->cached_tokens;
        usage.reasons = request->plan.answer.reader.reasoning != NULL;
        usage.reasoning_tokens = choice->reasoning_tokens;
        chunk.usage = &usage;
    }
    chunk.usage_null = request->fields.include_usage;
    if (last && !request->fields.include_usage)
        add_refrain(request, &chunk, &explained);
    if (!choice->sent)
        fill_prompt_ids(request, choice, &chunk, part);
    show_prompt(request, &chunk);
    choice->sent = true;
    if (request->fields.return_ids && !part->role)
        part->token_ids = choice->ids.data;
    send_chunk(request, &chunk);
    if (part->token_ids)
        buffer_clear(&choice->ids);
}

static void begin(struct request *request, const struct choice *choice)
{
    add_group_header(request, choice);
    sse_begin(request->exchange);
    metrics_add(request->requests->parts.metrics, RM_STREAMS, 0, 1);
    request_set_state(request, REQUEST_STREAMING, "first token");
}

/* What the client got as the answer's content, for the next turn. */
static void note_content(const struct request *request, const struct choice *choice)
{
    if (request->turn)
        turn_content(request->turn, choice->text.data, choice->text.bytes);
}

/* JSON of the tokens since the last chunk, or NULL. */
static const char *take_logprobs(struct request *request, struct choice *choice)
{
    struct buffer *logprobs = &request->requests->logprobs;

    if (choice->logprobs.count == 0)
        return NULL;
    buffer_clear(logprobs);
    logprobs_json_write(&choice->logprobs, logprobs);
    ASSERT(buffer_finish(logprobs) == 0);
    return logprobs->data;
}

/* What has come of calls since the last chunk: first the call, then its arguments in pieces. */
static void send_calls(struct request *request, struct choice *choice)
{
    struct tool_calls *calls = &choice->reader.calls;
    struct chunk_call piece = {0};
    struct chunk_choice part = {.index = choice->index, .calls = &piece, .calls_count = 1};

    for (uint32_t i = 0; i < calls->count; i++) {
        struct tool_call *call = &calls->list[i];
        piece = (struct chunk_call){.index = i, .arguments = ""};
        if (!call->head_sent) {
            piece.id = call->id;
            piece.name = call->name;
            send_choice(request, choice, &part, false);
            call->head_sent = true;
        }
        piece = (struct chunk_call){.index = i,
                                    .arguments = tool_call_arguments(calls, call) + call->sent,
                                    .arguments_bytes = call->bytes - call->sent};
        if (piece.arguments_bytes > 0)
            send_choice(request, choice, &part, false);
        call->sent = call->bytes;
    }
}

/* Reasoning, content and calls each have chunks of their own; log probabilities are in the first.
 */
static void send_parts(struct request *request, struct choice *choice)
{
    struct buffer *thoughts = &choice->reader.thoughts;
    struct chunk_choice part = {.index = choice->index, .logprobs = take_logprobs(request, choice)};

    if (thoughts->bytes > 0) {
        part.reasoning = thoughts->data;
        part.reasoning_bytes = thoughts->bytes;
        send_choice(request, choice, &part, false);
        part = (struct chunk_choice){.index = choice->index};
        buffer_clear(thoughts);
    }
    if (choice->text.bytes > 0 || part.logprobs) {
        part.text = choice->text.data;
        part.text_bytes = choice->text.bytes;
        send_choice(request, choice, &part, false);
        note_content(request, choice);
        buffer_clear(&choice->text);
    }
    send_calls(request, choice);
}

static void send_text(struct request *request, struct choice *choice)
{
    struct chunk_choice part = {.index = choice->index,
                                .text = choice->text.data,
                                .text_bytes = choice->text.bytes,
                                .logprobs = take_logprobs(request, choice)};

    if (choice->done && !part.logprobs && part.text_bytes == 0)
        return;
    send_choice(request, choice, &part, false);
    note_content(request, choice);
    buffer_clear(&choice->text);
}

static void send_end(struct request *request)
{
    struct chunk chunk = {0};
    struct chunk_usage usage;
    struct chunk_explain explained;

    if (request->fields.include_usage) {
        answer_usage(request, &usage);
        chunk.usage = &usage;
        add_refrain(request, &chunk, &explained);
        send_chunk(request, &chunk);
    }
    sse_done(request->exchange);
    request->exchange = NULL;
}

void answer_stream(struct request *request, struct choice *choice)
{
    if (request->state == REQUEST_DISPATCHED)
        begin(request, choice);
    if (!choice->role_sent && request->fields.kind == API_CHAT) {
        struct chunk_choice part = {.index = choice->index, .role = true, .text = ""};
        choice->role_sent = true;
        send_choice(request, choice, &part, false);
    }
    if (request->plan.answer.reads)
        send_parts(request, choice);
    else
        send_text(request, choice);
    if (choice->done) {
        struct chunk_choice part = {.index = choice->index};
        fill_finish(request, choice, &part);
        send_choice(request, choice, &part, request->choices_open == 0);
    }
    if (request->choices_open == 0)
        send_end(request);
}

/* ---- whole ---- */

/* False: the calls are more than a request may hold. */
static bool fill_read(struct request *request, struct choice *choice, struct chunk_choice *out)
{
    const struct answer_reader *reader = &choice->reader;
    const struct tool_calls *calls = &reader->calls;

    if (reader->thoughts.bytes > 0) {
        out->reasoning = reader->thoughts.data;
        out->reasoning_bytes = reader->thoughts.bytes;
    }
    if (choice->text.bytes == 0 && (out->reasoning || calls->count > 0))
        out->text = NULL;
    if (calls->count == 0)
        return true;
    struct chunk_call *list = arena_alloc(&request->arena, calls->count * sizeof(*list));
    for (uint32_t i = 0; i < calls->count && list; i++) {
        const struct tool_call *call = &calls->list[i];
        list[i] = (struct chunk_call){.index = i,
                                      .id = call->id,
                                      .name = call->name,
                                      .arguments = tool_call_arguments(calls, call),
                                      .arguments_bytes = call->bytes};
    }
    out->calls = list;
    out->calls_count = calls->count;
    return list != NULL;
}

/* False: calls or logprobs are more than a request may hold. */
static bool fill_whole(struct request *request, struct choice *choice, struct chunk_choice *out)
{
    *out = (struct chunk_choice){
        .index = choice->index, .text = choice->text.data, .text_bytes = choice->text.bytes};
    fill_finish(request, choice, out);
    if (request->plan.answer.reads && !fill_read(request, choice, out))
        return false;
    note_content(request, choice);
    if (request->fields.return_ids)
        out->token_ids = choice->ids.data;
    if (request->fields.prompt_logprobs && request->fields.kind == API_COMPLETIONS)
        out->prompt_logprobs = choice->prompt_logprobs.data;
    if (!request->fields.logprobs)
        return true;
    struct buffer logprobs;
    buffer_init(&logprobs, SIZE_MAX); /* bounded by the parts it is made of */
    logprobs_json_write(&choice->logprobs, &logprobs);
    out->logprobs = arena_strndup(&request->arena, logprobs.data, logprobs.bytes);
    buffer_done(&logprobs);
    return out->logprobs != NULL;
}

/* Which choices the client gets: of each prompt's `best_of` the n with the highest mean log
 * probability, the best first; equal ones, and all without best_of, as they were dispatched. */
static void choose(const struct request *request, uint32_t ret_chosen[API_CHOICES_MAX])
{
    uint32_t n = request->fields.n, runs = request->fields.best_of;
    double means[API_CHOICES_MAX]; /* of what is in ret_chosen */
    uint32_t *best = ret_chosen;

    for (uint32_t i = 0; i < request->choices_count; i++) {
        double mean = runs > n ? choice_mean_logprob(&request->choices[i]) : 0;
        uint32_t first = i / runs * n, at = first + (i % runs < n ? i % runs : n);
        for (; at > first && means[at - 1] < mean; at--) {
            if (at < first + n) {
                best[at] = best[at - 1];
                means[at] = means[at - 1];
            }
        }
        if (at < first + n) {
            best[at] = i;
            means[at] = mean;
        }
    }
}

static int answer_too_large(struct request *request)
{
    struct api_error error;
    (void)api_error_set(&error, 500, "answer_too_large", NULL, "The answer has too many bytes.");
    answer_error(request, &error);
    return error.status;
}

int answer_whole(struct request *request)
{
    struct buffer *json = &request->requests->scratch;
    struct chunk_head head = head_of(request);
    struct chunk chunk = {0};
    struct chunk_usage usage;
    struct chunk_explain explained;
    uint32_t count = request->prompts_count * request->fields.n;
    struct chunk_choice *parts = arena_alloc(&request->arena, count * sizeof(*parts));
    uint32_t chosen[API_CHOICES_MAX];

    ASSERT(request->choices_open == 0);
    if (!parts)
        return answer_too_large(request);
    choose(request, chosen);
    for (uint32_t i = 0; i < count; i++) {
        struct choice *choice = &request->choices[chosen[i]];
        if (!fill_whole(request, choice, &parts[i]))
            return answer_too_large(request);
        parts[i].index = i;
        fill_prompt_ids(request, choice, &chunk, &parts[i]);
    }
    show_prompt(request, &chunk);
    if (request->fields.prompt_logprobs && request->fields.kind == API_CHAT)
        chunk.prompt_logprobs = request->choices[0].prompt_logprobs.data;
    answer_usage(request, &usage);
    chunk.choices = parts;
    chunk.choices_count = count;
    chunk.usage = &usage;
    add_refrain(request, &chunk, &explained);
    buffer_clear(json);
    chunk_json_write(json, &head, &chunk);
    if (buffer_finish(json) < 0)
        return answer_too_large(request);
    add_group_header(request, &request->choices[0]);
    http_exchange_reply(request->exchange, 200, "application/json", json->data, json->bytes);
    request->exchange = NULL;
    return 200;
}

void answer_error(struct request *request, const struct api_error *error)
{
    if (!http_exchange_begun(request->exchange)) {
        api_error_reply(request->exchange, error);
    } else {
        struct buffer *json = &request->requests->scratch;
        buffer_clear(json);
        api_error_json(json, error);
        sse_error(request->exchange, json->data, json->bytes);
    }
    request->exchange = NULL;
}
