/* formats_named.c - calls with the name outside of the JSON.
 *
 *   mistral      [TOOL_CALLS]f[ARGS]{...}, with or without [CALL_ID]id and [ARGS], several (from
 *                tokenizer v11 on); [TOOL_CALLS] [{"name": "f", "arguments": {...}}] (before)
 *   deepseek_v3  begin marks around f and {...} (V3.1), or around "function", f and a code fence
 *                with {...} (V3, R1)
 *   functionary  <function=f>{...}</function>, several (v3.1) */
#include "router/answer/tool_format.h"

enum {
    MISTRAL_JSON = 4,
    MISTRAL_BRACKET = 7,
    MISTRAL_ARGS = 9,
    MISTRAL_ID = 11,
    MISTRAL_LIST = 15,
    MISTRAL_OBJECT = 16,
    MISTRAL_COMMA = 22
};

static const struct tool_step mistral_steps[] = {
    {.kind = STEP_SPACE},
    {STEP_BRANCH, "[", MISTRAL_LIST},
    {.kind = STEP_NAME},
    {STEP_BRANCH, "[", MISTRAL_BRACKET},
    [MISTRAL_JSON] = {.kind = STEP_SPACE},
    {.kind = STEP_ARGUMENTS},
    {.kind = STEP_END},
    [MISTRAL_BRACKET] = {STEP_TEXT, "[", 0},
    {STEP_BRANCH, "C", MISTRAL_ID},
    [MISTRAL_ARGS] = {STEP_TEXT, "ARGS]", 0},
    {.kind = STEP_GOTO, .to = MISTRAL_JSON},
    [MISTRAL_ID] = {STEP_TEXT, "CALL_ID]", 0},
    {.kind = STEP_WORD},
    {STEP_TEXT, "[", 0},
    {.kind = STEP_GOTO, .to = MISTRAL_ARGS},
    [MISTRAL_LIST] = {STEP_TEXT, "[", 0},
    [MISTRAL_OBJECT] = {.kind = STEP_SPACE},
    {.kind = STEP_OBJECT},
    {.kind = STEP_SPACE},
    {STEP_BRANCH, ",", MISTRAL_COMMA},
    {STEP_TEXT, "]", 0},
    {.kind = STEP_END},
    [MISTRAL_COMMA] = {STEP_TEXT, ",", 0},
    {.kind = STEP_GOTO, .to = MISTRAL_OBJECT},
};

static const struct tool_format mistral = {
    .name = "mistral",
    .starts = {{"[TOOL_CALLS]", 0, false}},
    .steps = mistral_steps,
    .short_ids = true,
    .markers = {"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"},
    .force = {"[TOOL_CALLS]", "[ARGS]", "", "", true, true},
    .needles = {"[TOOL_CALLS]"},
    .token = "[TOOL_CALLS]",
};

#define DEEPSEEK_CALLS "<\uff5ctool\u2581calls\u2581begin\uff5c>"
#define DEEPSEEK_CALL "<\uff5ctool\u2581call\u2581begin\uff5c>"
#define DEEPSEEK_SEP "<\uff5ctool\u2581sep\uff5c>"
#define DEEPSEEK_CALL_END "<\uff5ctool\u2581call\u2581end\uff5c>"
#define DEEPSEEK_CALLS_END "<\uff5ctool\u2581calls\u2581end\uff5c>"

enum {
    DEEPSEEK_NAME = 2,
    DEEPSEEK_JSON = 8,
    DEEPSEEK_FENCE = 17,
    DEEPSEEK_CLOSE = 11,
    DEEPSEEK_LAST = 20
};

static const struct tool_step deepseek_steps[] = {
    {.kind = STEP_SPACE},
    {STEP_TEXT, DEEPSEEK_CALL, 0},
    [DEEPSEEK_NAME] = {.kind = STEP_NAME}, /* in V3 the type, "function": the name comes behind */
    {STEP_TEXT, DEEPSEEK_SEP, 0},
    {STEP_BRANCH, "{", DEEPSEEK_JSON},
    {.kind = STEP_NAME},
    {.kind = STEP_SPACE},
    {STEP_TEXT, "```json\n", 0},
    [DEEPSEEK_JSON] = {.kind = STEP_ARGUMENTS},
    {.kind = STEP_SPACE},
    {STEP_BRANCH, "`", DEEPSEEK_FENCE},
    [DEEPSEEK_CLOSE] = {STEP_TEXT, DEEPSEEK_CALL_END, 0},
    {.kind = STEP_SPACE},
    {STEP_TEXT, "<\uff5ctool\u2581call", 0},
    {STEP_BRANCH, "s", DEEPSEEK_LAST},
    {STEP_TEXT, "\u2581begin\uff5c>", 0},
    {.kind = STEP_GOTO, .to = DEEPSEEK_NAME},
    [DEEPSEEK_FENCE] = {STEP_TEXT, "```", 0},
    {.kind = STEP_SPACE},
    {.kind = STEP_GOTO, .to = DEEPSEEK_CLOSE},
    [DEEPSEEK_LAST] = {STEP_TEXT, "s\u2581end\uff5c>", 0},
    {.kind = STEP_END},
};

static const struct tool_format deepseek_v3 = {
    .name = "deepseek_v3",
    .starts = {{DEEPSEEK_CALLS, 0, false}},
    .steps = deepseek_steps,
    .markers = {DEEPSEEK_CALLS, DEEPSEEK_CALL, DEEPSEEK_SEP, DEEPSEEK_CALL_END, DEEPSEEK_CALLS_END},
    .needles = {DEEPSEEK_CALLS},
    .token = DEEPSEEK_CALLS,
};

static const struct tool_step functionary_steps[] = {
    {.kind = STEP_NAME},      {STEP_TEXT, ">", 0},  {.kind = STEP_SPACE},
    {.kind = STEP_ARGUMENTS}, {.kind = STEP_SPACE}, {STEP_TEXT, "</function>", 0},
    {.kind = STEP_END},
};

static const struct tool_format functionary = {
    .name = "functionary",
    .starts = {{"<function=", 0, false}},
    .steps = functionary_steps,
    .force = {"<function=", ">", "</function>", "", true, false},
    .needles = {"<function=", "<function=example_function_name>{"},
};

const struct tool_format *const tool_formats_named[] = {&mistral, &deepseek_v3, &functionary, NULL};
