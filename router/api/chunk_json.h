/* chunk_json.h - answers and stream chunks in OpenAI's shapes. Pure formatting.
 *
 * Numbers are always finite. All texts must be valid UTF-8 (what comes out of a detokenizer is).
 * Thread: any. */
#ifndef REFRAIN_ROUTER_API_CHUNK_JSON_H
#define REFRAIN_ROUTER_API_CHUNK_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/buffer.h"
#include "router/api/request_json.h"

struct chunk_head {
    enum api_kind kind; /* API_CHAT or API_COMPLETIONS */
    bool stream;
    const char *id; /* "chatcmpl-..." */
    const char *model;
    uint64_t created; /* unix seconds */
};

/* Why the answer ended there, past finish_reason. */
enum chunk_stop { CHUNK_STOP_NONE = 0, CHUNK_STOP_TEXT, CHUNK_STOP_ID, CHUNK_STOP_REPETITION };

/* A tool call, or in a stream a piece of one. */
struct chunk_call {
    uint32_t index;
    const char *id; /* NULL: not the call's first piece, so no name either */
    const char *name;
    const char *arguments; /* a JSON text, or a piece of it */
    size_t arguments_bytes;
};

struct chunk_choice {
    uint32_t index;
    bool role;        /* first delta of a stream */
    const char *text; /* NULL: nothing (last delta of a stream), or in a whole chat null */
    size_t text_bytes;
    const char *reasoning; /* NULL: none */
    size_t reasoning_bytes;
    const struct chunk_call *calls;
    size_t calls_count;
    const char *logprobs;        /* JSON, NULL: null */
    const char *token_ids;       /* "5,6,7", NULL: no such member */
    const char *prompt_logprobs; /* completions: JSON entries, NULL: no such member */
    const uint32_t *prompt_ids;  /* completions, NULL: no such member */
    size_t prompt_ids_count;
    const char *finish_reason; /* NULL: null */
    enum chunk_stop stop;
    const char *stop_text;
    size_t stop_bytes;
    uint32_t stop_id;
};

struct chunk_usage {
    uint64_t prompt_tokens, completion_tokens, cached_tokens;
    bool reasons; /* reasoning_tokens are known */
    uint64_t reasoning_tokens;
};

/* Of the "refrain" object: what the first token cost. */
struct chunk_explain {
    uint64_t cached_tokens, computed_tokens;
    uint64_t cached_host_tokens, cached_disk_tokens; /* of cached_tokens */
    double queue_ms, load_ms, prefill_ms;
    uint32_t group;
    uint32_t turn_memory_tokens; /* of the prompt: ids that a model wrote, found by their text */
    const char *why;
};

struct chunk {
    const struct chunk_choice *choices;
    size_t choices_count;
    const struct chunk_usage *usage; /* NULL: none, or null with usage_null */
    bool usage_null;
    const struct chunk_explain *explain; /* NULL: none */
    const char *refrain; /* more members of "refrain", as JSON with a comma before each; NULL, "" */
    /* Chats have these beside the choices. */
    const char *prompt_logprobs; /* JSON entries, NULL: no such member */
    const uint32_t *prompt_ids;  /* NULL: no such member */
    size_t prompt_ids_count;
    const char *prompt_text; /* NULL: no such member */
    size_t prompt_text_bytes;
};

/* One line of JSON. */
void chunk_json_write(struct buffer *out, const struct chunk_head *head, const struct chunk *chunk);

#endif
