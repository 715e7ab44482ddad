/* request.h - the life of a client's chat or completion.
 *
 *   PARSED --dispatch--> DISPATCHED --first token, stream--> STREAMING --last token--> DONE
 *                        |     ^ |
 *              worker lost     | +--- last token of a whole answer, error, client gone --> DONE
 *                        +-----+ (at most REQUEST_RETRIES_MAX times, nothing sent yet)
 *
 * Each choice (n per prompt) is a dispatch of its own. After the first byte a lost worker ends the
 * stream with an SSE `error` event; before it the choice goes to another worker. A client that goes
 * away cancels every dispatch at once. The deadline is the same for all requests, so the oldest is
 * always the next to reach it.
 *
 * Ownership: requests_ own all requests; a request lives until its answer is out or its client is
 * gone, and frees itself. Thread: the loop's. */
#ifndef REFRAIN_ROUTER_REQUEST_H
#define REFRAIN_ROUTER_REQUEST_H

#include <uv.h>

#include "router/api/request_json.h"
#include "router/models.h"
#include "router/turn.h"
#include "router/worker_links.h"

#define REQUEST_RETRIES_MAX 2u
#define REQUEST_ARENA_MAX ((size_t)64 << 20)
#define REQUEST_PROMPT_TOKENS_MAX ((size_t)1 << 22)

struct requests;
struct request;
struct http_exchange;

struct requests_parts {
    uv_loop_t *loop;
    struct models *models;
    struct worker_links *links;
    struct metrics *metrics; /* router_metric_specs */
    struct sessions *sessions;
    uint32_t timeout_ms;
    bool exclude_tools; /* tool_choice none keeps tools out of the prompt */
};

struct requests *requests_new(const struct requests_parts *parts);
void requests_free(struct requests *requests); /* none is open */
/* End requests past their deadline. */
void requests_tick(struct requests *requests, uint64_t now_ms);
uint32_t requests_open_count(const struct requests *requests);

/* Parse the body and find the model. NULL: the client has its answer already. */
struct request *request_open(struct requests *requests, struct http_exchange *exchange,
                             enum api_kind kind);
const struct api_request *request_fields(const struct request *request);
const struct served_model *request_model(const struct request *request);
/* Of the model at its workers when the request was opened; never 0. */
uint32_t request_context_tokens(const struct request *request);
/* At most once per prompt of the body; ids and trace move into the request. -EINVAL: no room for
 * the answer, *error is filled. */
int request_add_prompt(struct request *request, struct token_ids *ids, struct prompt_trace *trace,
                       struct api_error *error);
/* Before the prompt of a chat is added. The turn is the request's. */
void request_set_turn(struct request *request, struct turn *turn);
/* Text that the answers of the prompt added last begin with; it must live as long as the body's
 * fields. */
void request_echo_prompt(struct request *request, const char *echo, size_t echo_bytes);
/* The text of the prompt, for the client to see; as long-lived. */
void request_show_prompt(struct request *request, const char *text, size_t bytes);
/* A copy that lives as long as the request; NULL: its memory is used up. */
const char *request_keep_text(struct request *request, const char *text, size_t bytes);
/* Dispatch everything, once its grammar is known to be one; the request is no longer the caller's.
 */
void request_run(struct request *request);
/* Answer with an error; the request is gone. */
void request_refuse(struct request *request, const struct api_error *error);

/* The body's model for handlers that dispatch nothing. NULL: *error is filled. */
struct served_model *request_find_model(struct models *models, const char *name,
                                        struct api_error *error);

#endif
