/* answer_formats.c - a model's formats, once per model; a request's plan, once per request. */
#include "router/answer_formats.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/assert.h"
#include "router/answer/tool_force.h"
#include "router/text/detokenize.h"

#define NAMES_BYTES_MAX 256u /* all names of a table */
#define FORCED_CALLS_MAX 16u /* of one answer */
#define TAIL_TOKENS 48u      /* a tag is a few tokens, even letter by letter */

static void add_name(char names[NAMES_BYTES_MAX], const char *name)
{
    size_t used = strlen(names);
    int bytes =
        snprintf(names + used, NAMES_BYTES_MAX - used, used ? ", %s" : "auto, none, %s", name);
    ASSERT(bytes > 0 && (size_t)bytes < NAMES_BYTES_MAX - used);
}

static int refuse_reasoning(const char *name, struct errmsg *err)
{
    char names[NAMES_BYTES_MAX] = "";
    const struct reasoning_format *format;

    for (size_t i = 0; (format = reasoning_format_at(i)) != NULL; i++)
        add_name(names, format->name);
    return errmsg_set(err, -EINVAL, "--reasoning-parser: '%.60s' is not known; there are %s", name,
                      names);
}

static int refuse_tools(const char *name, struct errmsg *err)
{
    char names[NAMES_BYTES_MAX] = "";
    const struct tool_format *format;

    for (size_t i = 0; (format = tool_format_at(i)) != NULL; i++)
        add_name(names, format->name);
    return errmsg_set(err, -EINVAL, "--tool-call-parser: '%.60s' is not known; there are %s", name,
                      names);
}

static bool is_switch(const char *name)
{
    return strcmp(name, "auto") == 0 || strcmp(name, "none") == 0;
}

int answer_settings_check(const struct answer_settings *settings, struct errmsg *err)
{
    const char *reasoning = settings->reasoning_parser;
    const char *tools = settings->tool_call_parser;

    if (!is_switch(reasoning) && !reasoning_find(reasoning))
        return refuse_reasoning(reasoning, err);
    if (!is_switch(tools) && !tool_format_find(tools))
        return refuse_tools(tools, err);
    return 0;
}

/* The token of that text, if it is a control token; else TOKEN_ID_NONE. */
static uint32_t control_token(const struct tokenizer *tokenizer, const char *text)
{
    uint32_t id = tokenizer_find(tokenizer, text);
    const char *bytes;
    size_t count;
    bool control = false;

    if (id == TOKEN_ID_NONE || tokenizer_token_bytes(tokenizer, id, &bytes, &count, &control) < 0)
        return TOKEN_ID_NONE;
    return control ? id : TOKEN_ID_NONE;
}

static void keep(const struct tokenizer *tokenizer, const char *text, uint32_t *ids,
                 uint32_t *count)
{
    uint32_t id = control_token(tokenizer, text);
    if (id != TOKEN_ID_NONE)
        ids[(*count)++] = id;
}

static const struct tool_format *pick_tools(const char *name, const struct tokenizer *tokenizer,
                                            const char *source, size_t bytes)
{
    const struct tool_format *format = source ? tool_format_of_template(source, bytes) : NULL;
    const char *token;

    if (strcmp(name, "none") == 0)
        return NULL;
    if (strcmp(name, "auto") != 0)
        return tool_format_find(name);
    for (size_t i = 0; !format && (format = tool_format_by_token(i, &token)) != NULL; i++) {
        if (tokenizer_find(tokenizer, token) == TOKEN_ID_NONE)
            format = NULL;
    }
    return format;
}

static const struct reasoning_format *pick_reasoning(const char *name, const char *source,
                                                     size_t bytes)
{
    if (strcmp(name, "auto") != 0)
        return reasoning_find(name);
    return source ? reasoning_of_template(source, bytes) : NULL;
}

/* The end tag as the model would write it. Not as tokens, or as too many: none. */
static void find_end_ids(struct tokenizer *tokenizer, struct answer_formats *formats)
{
    const struct tokenize_options options = {.parse_special = true};
    const char *end = formats->reasoning->end;
    struct token_ids ids;

    token_ids_init(&ids, THINKING_END_IDS_MAX);
    if (tokenizer_encode(tokenizer, end, strlen(end), &options, &ids) == 0 && ids.count > 0) {
        memcpy(formats->end_ids, ids.ids, ids.count * sizeof(*ids.ids));
        formats->end_ids_count = (uint32_t)ids.count;
    }
    token_ids_done(&ids);
}

void answer_formats_pick(const struct answer_settings *settings, struct tokenizer *tokenizer,
                         const char *source, size_t bytes, struct answer_formats *ret_formats)
{
    struct answer_formats *formats = ret_formats;

    *formats = (struct answer_formats){.auto_tools = !settings->no_auto_tools};
    formats->reasoning = pick_reasoning(settings->reasoning_parser, source, bytes);
    formats->tools = pick_tools(settings->tool_call_parser, tokenizer, source, bytes);
    if (formats->reasoning) {
        keep(tokenizer, formats->reasoning->begin, formats->kept_reasoning,
             &formats->kept_reasoning_count);
        keep(tokenizer, formats->reasoning->end, formats->kept_reasoning,
             &formats->kept_reasoning_count);
        find_end_ids(tokenizer, formats);
    }
    for (size_t i = 0; formats->tools && i < TOOL_MARKERS_MAX && formats->tools->markers[i]; i++)
        keep(tokenizer, formats->tools->markers[i], formats->kept_tools,
             &formats->kept_tools_count);
    formats->markers_are_control = formats->kept_tools_count > 0;
}

/* ---- a request ---- */

static enum reasoning_state start_of(const struct answer_formats *formats,
                                     const struct tokenizer *tokenizer,
                                     const struct api_request *request, const uint32_t *ids,
                                     size_t ids_count)
{
    struct detokenizer detokenizer;
    struct buffer tail;
    size_t messages = json_array_size(request->messages);

    if (request->continue_final_message) {
        const json_t *last = json_array_get(request->messages, messages - 1);
        const json_t *content = json_object_get(last, "content");
        return reasoning_after_message(formats->reasoning, json_string_value(content),
                                       json_string_length(content));
    }
    buffer_init(&tail, SIZE_MAX); /* a few tokens */
    detokenizer_init(&detokenizer, tokenizer, true, false);
    for (size_t i = ids_count > TAIL_TOKENS ? ids_count - TAIL_TOKENS : 0; i < ids_count; i++)
        (void)detokenizer_push(&detokenizer, ids[i], &tail);
    enum reasoning_state start = reasoning_after_prompt(formats->reasoning, tail.data, tail.bytes);
    buffer_done(&tail);
    return start;
}

static void keep_all(struct answer_plan *plan, const uint32_t *ids, uint32_t count)
{
    ASSERT(plan->kept_count + count <= ANSWER_KEPT_MAX);
    memcpy(plan->kept + plan->kept_count, ids, count * sizeof(*ids));
    plan->kept_count += count;
}

static bool forces_calls(const struct api_request *request)
{
    return request->tool_choice == API_TOOLS_REQUIRED || request->tool_choice == API_TOOLS_NAMED;
}

static bool one_call(const struct api_request *request)
{
    return !request->parallel_tool_calls || request->tool_choice == API_TOOLS_NAMED;
}

int answer_force_calls(const struct answer_formats *formats, struct arena *arena,
                       struct api_request *request, struct api_error *error)
{
    const struct tool_format *format =
        tool_force_format(formats->tools, formats->markers_are_control);
    struct buffer spec;

    if (!forces_calls(request))
        return 0;
    buffer_init(&spec, GRAMMAR_TEXT_MAX);
    tool_force_write(format, request->tools, json_string_value(request->tool_name),
                     one_call(request) ? 1 : FORCED_CALLS_MAX, &spec);
    bool fits = buffer_finish(&spec) == 0;
    char *text = fits ? arena_strndup(arena, spec.data, spec.bytes) : NULL;
    request->grammar = (struct grammar_spec){GRAMMAR_STRUCTURE, text, spec.bytes};
    request->grammar_param = "tools";
    buffer_done(&spec);
    if (text)
        return 0;
    return api_error_bad(error, "tools",
                         "The schemas of 'tools' have more than %u bytes; with 'tool_choice' "
                         "required or a name they must be shorter.",
                         GRAMMAR_TEXT_MAX);
}

/* The format in which this request's calls are written, or NULL: none are looked for. */
static const struct tool_format *calls_format(const struct answer_formats *formats,
                                              const struct api_request *request)
{
    if (forces_calls(request))
        return tool_force_format(formats->tools, formats->markers_are_control);
    return request->tool_choice == API_TOOLS_AUTO && formats->auto_tools ? formats->tools : NULL;
}

void answer_plan_make(const struct answer_formats *formats, const struct tokenizer *tokenizer,
                      const struct api_request *request, const uint32_t *ids, size_t ids_count,
                      size_t bytes_max, struct answer_plan *ret_plan)
{
    struct answer_plan *plan = ret_plan;
    const struct tool_format *calls = calls_format(formats, request);
    /* A grammar begins with the answer: what it allows leaves no room to think. */
    bool thinks = formats->reasoning && request->grammar.kind == GRAMMAR_NONE;

    *plan = (struct answer_plan){.reader.bytes_max = bytes_max};
    if (request->kind != API_CHAT || (!calls && !thinks))
        return;
    plan->reads = true;
    if (calls) {
        plan->reader.tool_format = calls;
        plan->reader.tools = request->tools;
        plan->reader.hide_markers = formats->markers_are_control && request->skip_special_tokens;
        plan->reader.one_call = one_call(request);
        plan->calls_end_answer = request->tool_choice != API_TOOLS_NAMED;
        keep_all(plan, formats->kept_tools, formats->kept_tools_count);
        plan->kept_calls = plan->kept_count;
    }
    if (thinks) {
        plan->reader.reasoning = formats->reasoning;
        plan->reader.reasoning_start = start_of(formats, tokenizer, request, ids, ids_count);
        plan->reader.drop_reasoning = !request->include_reasoning;
        keep_all(plan, formats->kept_reasoning, formats->kept_reasoning_count);
    }
}

int answer_budget_check(const struct answer_formats *formats, const struct api_request *request,
                        struct api_error *error)
{
    if (request->thinking_tokens_max < 0 || (formats->reasoning && formats->end_ids_count > 0))
        return 0;
    return api_error_bad(error, "thinking_token_budget",
                         "'thinking_token_budget' needs a model with marks around its thinking; "
                         "this one has none that --reasoning-parser knows.");
}

static ProtobufCBinaryData bytes_of(const void *data, size_t bytes)
{
    return (ProtobufCBinaryData){bytes, (uint8_t *)(uintptr_t)data};
}

bool answer_budget_make(const struct answer_formats *formats, const struct tokenizer *tokenizer,
                        const struct api_request *request, const uint32_t *ids, size_t ids_count,
                        Refrain__Thinking *ret_thinking)
{
    const struct reasoning_format *format = formats->reasoning;

    if (request->thinking_tokens_max < 0 || request->grammar.kind != GRAMMAR_NONE)
        return false;
    enum reasoning_state start = start_of(formats, tokenizer, request, ids, ids_count);
    if (start == REASONING_AFTER)
        return false;
    refrain__thinking__init(ret_thinking);
    ret_thinking->tokens_max = (uint32_t)request->thinking_tokens_max;
    ret_thinking->begin = bytes_of(format->begin, strlen(format->begin));
    ret_thinking->end = bytes_of(format->end, strlen(format->end));
    ret_thinking->inside = start == REASONING_INSIDE;
    ret_thinking->opened = format->opened;
    ret_thinking->end_ids = bytes_of(formats->end_ids, formats->end_ids_count * sizeof(uint32_t));
    return true;
}
