/* prompt.h - what a client sent -> token ids: the template, the tokenizer and the rule about
 * control tokens in one place.
 *
 * Chat: the model's template writes the text. Whatever came from the client (content, roles, tools,
 * documents, kwargs) is a literal span, so it can never become a control token. Templates write BOS
 * themselves, so none is added unless the client asks and the text does not begin with it.
 * Completions: the text is the client's own prompt, control tokens in it are what they say. */
#ifndef REFRAIN_ROUTER_API_PROMPT_H
#define REFRAIN_ROUTER_API_PROMPT_H

#include "router/api/request_json.h"
#include "router/text/chat_template.h"
#include "router/text/text_cache.h"

struct prompt_maker {
    struct tokenizer *tokenizer;
    uint64_t tokenizer_id;                     /* see struct text_owner */
    struct text_cache *cache;                  /* NULL: none, and no traces */
    bool turn_memory;                          /* unless the request does not want it */
    const struct chat_template *chat_template; /* NULL: the model has none */
    const struct chat_template *tool_template; /* of requests with tools; NULL: the same */
    size_t token_bytes_max;                    /* of the vocabulary's longest token; 0: not known */
};

/* The longest token of a card, as stored (never shorter than the text it stands for). */
size_t prompt_token_bytes_max(const struct model_card *card);

/* A prompt that is cut (truncate_prompt_tokens) is tokenized whole first: so much text at most. */
#define PROMPT_TRUNCATE_BYTES_MAX ((size_t)2 << 20)

/* Append the ids to *out, which is empty; cut as the request says: its last ones, or its first.
 * -EINVAL: *error is filled; past out->count_max, the model's context, it is 400
 * context_length_exceeded. *ret_trace (all zeroes before) is filled for texts that are not cut;
 * NULL: not wanted. */
int prompt_from_chat(const struct prompt_maker *maker, const struct api_request *request,
                     struct token_ids *out, struct prompt_trace *ret_trace,
                     struct api_error *error);
/* Its two halves, for those who look at the text as well: *ret is the caller's (rendered_done).
 * now: what a template that asks for the date is told, unix seconds. */
int prompt_render(const struct prompt_maker *maker, const struct api_request *request, double now,
                  struct rendered *ret, struct api_error *error);
int prompt_encode(const struct prompt_maker *maker, const struct api_request *request,
                  const struct rendered *rendered, struct token_ids *out,
                  struct prompt_trace *ret_trace, struct api_error *error);
int prompt_from_completion(const struct prompt_maker *maker, const struct api_request *request,
                           const struct api_prompt *prompt, struct token_ids *out,
                           struct prompt_trace *ret_trace, struct api_error *error);
/* Whose texts the request's are, for the cache. /tokenize says what a tokenizer would, so it has no
 * turn memory. */
struct text_owner prompt_owner(const struct prompt_maker *maker, const struct api_request *request);

#endif
