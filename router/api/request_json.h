/* request_json.h - a request's body -> checked values.
 *
 * Every field is checked for type and range; the first mistake is answered with its name and the
 * numbers. What the router does not know is ignored. Defaults of the model are filled in later,
 * because they need the model: API_UNSET stands where the client said nothing.
 *
 * Ownership: lists are in the caller's arena; texts live in `root`, so api_request_done() comes
 * last. Thread: any. */
#ifndef REFRAIN_ROUTER_API_REQUEST_JSON_H
#define REFRAIN_ROUTER_API_REQUEST_JSON_H

#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/arena.h"
#include "router/api/errors.h"
#include "router/session/history.h"

enum api_kind { API_CHAT = 0, API_COMPLETIONS, API_TOKENIZE, API_DETOKENIZE };

#define API_STOP_MAX 16u
#define API_STOP_IDS_MAX 64u
#define API_CHOICES_MAX 128u /* prompts times n */
#define API_N_MAX 16u
#define API_TOP_LOGPROBS_MAX 20u
#define API_TOP_K_UNSET INT64_MIN

/* Which calls an answer may have; NONE without tools. */
enum api_tool_choice { API_TOOLS_NONE = 0, API_TOOLS_AUTO, API_TOOLS_REQUIRED, API_TOOLS_NAMED };

/* One prompt of /v1/completions: a text, or token ids. */
struct api_prompt {
    const char *text; /* NULL: ids */
    size_t bytes;
    const uint32_t *ids;
    size_t ids_count;
};

struct api_request {
    enum api_kind kind;
    json_t *root;
    const char *model; /* NULL: not given */

    json_t *messages; /* own copy, made uniform: content is a string, arguments are objects */
    const json_t *tools, *documents, *kwargs; /* NULL: none */
    enum api_tool_choice tool_choice;
    bool tool_choice_given;
    const json_t *tool_name; /* NAMED: a string, one of `tools` */
    bool parallel_tool_calls, include_reasoning;
    bool add_generation_prompt, continue_final_message;
    bool generation_prompt_given;
    bool add_special_tokens;

    struct api_prompt *prompts;
    size_t prompts_count;
    bool echo;
    bool return_token_strs; /* tokenize */

    double temperature, top_p, min_p; /* NAN: not given */
    double repetition_penalty, presence_penalty, frequency_penalty;
    int64_t top_k; /* API_TOP_K_UNSET: not given; 0: off */
    bool has_seed;
    int64_t seed;
    uint32_t tokens_max; /* 0: not given */
    uint32_t tokens_min;
    const char *stop[API_STOP_MAX];
    size_t stop_bytes[API_STOP_MAX];
    size_t stop_count;
    const uint32_t *stop_ids;
    size_t stop_ids_count;
    bool ignore_eos, include_stop, skip_special_tokens;
    uint32_t logprobs; /* 0: none; n + 1: the chosen token and n best */

    uint32_t n;
    bool stream, include_usage, continuous_usage;
    int32_t priority;
    const char *cache_salt; /* "" */
    const char *session;    /* NULL: none */
    bool explain;
    bool turn_memory; /* refrain.turn_memory: the prompt may go on with ids that the model wrote */
    bool has_history; /* refrain.history */
    struct history_policy history; /* kind and limit only */
};

/* 0, or -EINVAL with *error filled (a status of 400). *ret is ready for api_request_done() in both
 * cases. */
int request_json_parse(enum api_kind kind, const void *body, size_t bytes, struct arena *arena,
                       struct api_request *ret, struct api_error *error);
void api_request_done(struct api_request *request);

#endif
