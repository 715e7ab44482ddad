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
#include "proto/grammar/grammar.h"
#include "router/api/errors.h"
#include "router/api/fields.h"
#include "router/session/history.h"

enum api_kind { API_CHAT = 0, API_COMPLETIONS, API_TOKENIZE, API_DETOKENIZE };

#define API_STOP_MAX 16u
#define API_STOP_IDS_MAX 64u
#define API_CHOICES_MAX 128u /* prompts times n, or best_of */
#define API_N_MAX 128u
#define API_TOP_LOGPROBS_MAX 20u
#define API_TOP_K_UNSET INT64_MIN
#define API_TRUNCATE_MODEL_MAX UINT32_MAX

/* A piece of text that lives in the body. */
struct api_word {
    const char *text;
    size_t bytes;
};

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
    const char *chat_template; /* the client's own; NULL: the model's */
    size_t chat_template_bytes;
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
    bool score_only;     /* max_tokens is 0: with echo, the prompt alone is answered */
    uint32_t tokens_min;
    const char *stop[API_STOP_MAX];
    size_t stop_bytes[API_STOP_MAX];
    size_t stop_count;
    const uint32_t *stop_ids;
    size_t stop_ids_count;
    bool ignore_eos, include_stop, skip_special_tokens;
    uint32_t logprobs;           /* 0: none; n + 1: the chosen token and n best */
    bool tokens_as_ids;          /* in logprobs a token is called "token_id:N" */
    const uint32_t *logprob_ids; /* each once; not NULL: logprobs are of these, not of the best */
    size_t logprob_ids_count;

    int64_t thinking_tokens_max;                               /* -1: as long as the model likes */
    uint32_t repetition_max, repetition_min, repetition_count; /* max 0: off */

    /* Rules about tokens (token_rules.h). */
    const uint32_t *bias_ids, *allowed_ids;
    const float *bias_values;
    size_t bias_count, allowed_count;
    const struct api_word *bad_words;
    size_t bad_words_count;

    struct grammar_spec grammar; /* kind NONE: any text (grammar_fields.h) */
    const char *grammar_param;   /* the field that asked for it */

    uint32_t prompt_logprobs; /* as logprobs, of the prompt's tokens; asked for by name */
    uint32_t truncate;        /* tokens of the prompt to keep; 0: all; API_TRUNCATE_MODEL_MAX */
    bool truncate_right;      /* keep the first ones, not the last */
    bool return_ids;
    bool return_prompt_text; /* a chat's prompt as the template wrote it */
    const char *request_id;  /* a label; NULL: none */

    uint32_t n;       /* answers per prompt that the client gets */
    uint32_t best_of; /* answers per prompt that are written: n or more */
    bool beam_search; /* n beams */
    double length_penalty;
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
/* What a worker must tell of the prompt's tokens, as `prompt_logprobs`: completions that echo want
 * the log probabilities of what they echo. */
static inline uint32_t api_request_prompt_logprobs(const struct api_request *request)
{
    uint32_t asked = request->prompt_logprobs;
    bool echoed = request->kind == API_COMPLETIONS && request->echo;
    return echoed && request->logprobs > asked ? request->logprobs : asked;
}
/* The field table, for tests: ends with a row without a name. */
const struct field *request_json_table(void);

#endif
