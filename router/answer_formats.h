/* answer_formats.h - how a model's answers are read: which tags, which calls, by settings, template
 * and vocabulary.
 *
 * Control tokens are not text that a client sees, but some of them are marks that a parser must
 * see: those are kept. Thread: any. */
#ifndef REFRAIN_ROUTER_ANSWER_FORMATS_H
#define REFRAIN_ROUTER_ANSWER_FORMATS_H

#include "proto/sampling_limits.h"
#include "proto/wire.pb-c.h"
#include "router/answer/reader.h"
#include "router/api/request_json.h"
#include "router/text/tokenizer.h"

#define ANSWER_KEPT_MAX (TOOL_MARKERS_MAX + 2)

struct answer_settings {
    const char *reasoning_parser, *tool_call_parser; /* a name, "auto" or "none" */
    bool no_auto_tools; /* calls are read only where the request forces them */
};

struct answer_formats {
    const struct reasoning_format *reasoning; /* NULL: none */
    const struct tool_format *tools;          /* NULL: none */
    bool auto_tools;
    bool markers_are_control; /* of `tools` */
    uint32_t kept_reasoning[2], kept_tools[TOOL_MARKERS_MAX];
    uint32_t kept_reasoning_count, kept_tools_count;
    uint32_t end_ids[THINKING_END_IDS_MAX]; /* of reasoning->end */
    uint32_t end_ids_count;                 /* 0: no tokens that fit */
};

/* -EINVAL: no such name; *err lists the names. */
int answer_settings_check(const struct answer_settings *settings, struct errmsg *err);
/* `source`: the model's template, NULL if it has none. Checked settings. */
void answer_formats_pick(const struct answer_settings *settings, struct tokenizer *tokenizer,
                         const char *source, size_t bytes, struct answer_formats *ret_formats);

/* tool_choice required, or a name: the grammar that makes the model call, in request->grammar,
 * whose text is in `arena`. It takes the place of response_format's. -EINVAL: *error is filled. */
int answer_force_calls(const struct answer_formats *formats, struct arena *arena,
                       struct api_request *request, struct api_error *error);

/* How one request's answers are read; what it points to must outlive them. */
struct answer_plan {
    bool reads; /* false: all text is content */
    struct answer_reader_plan reader;
    /* Control tokens whose text is for the parsers: marks of calls, then tags of reasoning, which
     * are no more looked for when the reasoning is over. */
    uint32_t kept[ANSWER_KEPT_MAX];
    uint32_t kept_calls, kept_count;
    bool calls_end_answer; /* finish_reason is "tool_calls" where there are calls */
};

/* ids: the prompt; its last ones say whether the model is thinking already. */
void answer_plan_make(const struct answer_formats *formats, const struct tokenizer *tokenizer,
                      const struct api_request *request, const uint32_t *ids, size_t ids_count,
                      size_t bytes_max, struct answer_plan *ret_plan);

/* thinking_token_budget: has the model marks by which its thinking could end? -EINVAL: *error is
 * filled. */
int answer_budget_check(const struct answer_formats *formats, const struct api_request *request,
                        struct api_error *error);
/* What the worker must know to keep the budget behind this prompt. False: there is none, or no
 * thinking comes. *ret_thinking points into the formats. */
bool answer_budget_make(const struct answer_formats *formats, const struct tokenizer *tokenizer,
                        const struct api_request *request, const uint32_t *ids, size_t ids_count,
                        Refrain__Thinking *ret_thinking);

#endif
