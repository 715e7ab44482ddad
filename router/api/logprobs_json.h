/* logprobs_json.h - log probabilities of an answer's tokens in the two OpenAI shapes.
 *
 * chat:        {"content":[{"token","logprob","bytes","top_logprobs":[...]}]}
 * completions: {"text_offset":[],"token_logprobs":[],"tokens":[],"top_logprobs":[{token:logprob}]}
 * Collects entries; _write() gives them out and starts anew (one stream chunk). -inf is written as
 * -9999, as vLLM does: JSON has no infinity. Thread: one. */
#ifndef REFRAIN_ROUTER_API_LOGPROBS_JSON_H
#define REFRAIN_ROUTER_API_LOGPROBS_JSON_H

#include "proto/base/buffer.h"
#include "proto/wire.pb-c.h"
#include "router/api/request_json.h"
#include "router/text/tokenizer.h"

struct logprobs_json {
    enum api_kind kind;
    const struct tokenizer *tokenizer;
    uint32_t top_max;      /* alternatives per token at most */
    bool as_ids;           /* a token is called "token_id:N" */
    uint32_t count;        /* entries since the last _write() */
    uint64_t text_offset;  /* characters so far */
    struct buffer entries; /* chat: the content list; completions: offsets */
    struct buffer values, tokens, tops;
};

void logprobs_json_init(struct logprobs_json *logprobs, enum api_kind kind,
                        const struct tokenizer *tokenizer, uint32_t top_max);
/* A completion's prompt token that nothing came before: both numbers are null. */
void logprobs_json_add_first(struct logprobs_json *logprobs, uint32_t id);
void logprobs_json_done(struct logprobs_json *logprobs);
void logprobs_json_clear(struct logprobs_json *logprobs); /* forget all: the answer starts anew */
/* `numbers` may be NULL: the worker sent none for this token. */
void logprobs_json_add(struct logprobs_json *logprobs, uint32_t id,
                       const Refrain__Logprobs *numbers);
/* 0, or -ENOBUFS: they are more than fits, and what is there is cut off. */
int logprobs_json_check(const struct logprobs_json *logprobs);
/* Memory of what was collected. */
size_t logprobs_json_bytes(const struct logprobs_json *logprobs);
void logprobs_json_write(struct logprobs_json *logprobs, struct buffer *out);
/* One entry of vLLM's `prompt_logprobs`: {"ID":{"logprob","rank","decoded_token"}...}, the prompt's
 * token first, then at most `top_max` best ones. */
void logprobs_json_prompt_entry(const struct tokenizer *tokenizer, uint32_t id,
                                const Refrain__Logprobs *numbers, uint32_t top_max,
                                struct buffer *out);

#endif
