/* request_private.h - what request.c (states, dispatch) and answer.c (bytes to the client) share.
 */
#ifndef REFRAIN_ROUTER_REQUEST_PRIVATE_H
#define REFRAIN_ROUTER_REQUEST_PRIVATE_H

#include "proto/base/arena.h"
#include "proto/base/buffer.h"
#include "router/api/token_rules.h"
#include "router/beams.h"
#include "router/choice.h"
#include "router/grammar_checks.h"
#include "router/request.h"
#include "router/sampling.h"

#define REQUEST_CLIENT_ID_MAX 128u

enum request_state {
    REQUEST_PARSED = 0,
    REQUEST_DISPATCHED,
    REQUEST_STREAMING,
    REQUEST_DONE,
    REQUEST_STATES
};

struct request_prompt {
    struct token_ids ids;
    struct prompt_trace trace; /* all zeroes: a prompt of ids */
    uint32_t tokens_max;       /* of each answer */
    Refrain__Thinking thinking;
    bool thinks; /* `thinking` is in force */
    const char *echo;
    size_t echo_bytes;
};

struct requests {
    struct requests_parts parts;
    struct list open; /* struct request, oldest first */
    uint32_t open_count;
    uint64_t next_id;
    char prefix[7];        /* random, so that ids of two routers differ at a worker */
    struct buffer scratch; /* JSON of the chunk being written */
    struct buffer logprobs;
    struct buffer refrain; /* members of the "refrain" object */
    struct grammar_checks *grammars;
};

struct request {
    struct list link;
    struct requests *requests;
    struct http_exchange *exchange; /* NULL: answered, or the client is gone */
    enum request_state state;
    struct arena arena;
    struct api_request fields;
    struct served_model *model;
    uint32_t context_tokens; /* of the model at its workers */
    char id[32];             /* ours: logs, dispatches */
    const char *api_id;      /* "chatcmpl-..." */
    uint64_t created_s, began_ns, first_ns, deadline_ms;

    struct turn *turn; /* of a chat; NULL: a completion */
    struct choice_plan plan;
    struct token_rules rules;
    struct grammar_check *grammar_check; /* PARSED, and its grammar is being compiled */
    struct sampling_parts sampling;
    uint64_t prompt_values;  /* log probabilities that were asked for of prompts */
    const char *prompt_text; /* that the client wants to see and has not got; NULL: none */
    size_t prompt_text_bytes;
    size_t held_bytes; /* of all choices: what came and is not sent */
    struct request_prompt *prompts;
    uint32_t prompts_count;
    struct beams *beams; /* NULL: no beam search */
    struct choice *choices;
    uint32_t choices_count, choices_open;
};

/* What both kinds of dispatches (choices, beams) have in common; the caller has set id, ids,
 * sampling, callbacks and avoid_group. -EINVAL: *error is filled. */
int request_dispatch(struct request *request, struct dispatch *dispatch, struct api_error *error);
/* Why a worker ended it. */
void request_worker_error(const struct request *request, const Refrain__StepItem *item,
                          struct api_error *error);
/* The first token of a prompt came from `group`; `first`: of the request's first one. */
void request_first_token(struct request *request, bool first, const Refrain__StepItem *item,
                         uint32_t group);
/* Beam search is over and has filled all choices; negative: how it failed (as choice_take). The
 * request is gone then. */
void request_beams_over(struct request *request, int r);
/* The choice has more text, or is done: write what a stream can send. */
void answer_stream(struct request *request, struct choice *choice);
/* All choices are done: the whole answer, or an error when it is too large. The status. */
int answer_whole(struct request *request);
/* A response, or an SSE event when the stream has begun. */
void answer_error(struct request *request, const struct api_error *error);
/* Sums over all prompts and choices. */
void answer_usage(const struct request *request, struct chunk_usage *ret_usage);
/* learn.c: what is kept of the answers. Called once, when the client has all that it will get: the
 * whole answer (`whole`), or what was streamed until then. */
void request_learn(struct request *request, bool whole);
void request_set_state(struct request *request, enum request_state next, const char *why);

#endif
