/* formats_json.c - calls that are one JSON object: {"name": "f", "arguments": {...}}.
 *
 *   hermes        <tool_call>{...}</tool_call>, several: Hermes 2 Pro, Qwen2.5, Qwen3, SmolLM3
 *   llama3_json   <|python_tag|>{"name", "parameters"}; {...}, the tag may be missing: Llama 3
 *   firefunction  functools[{...}, {...}]
 *   json          bare objects, as llama3_json without a tag: what a grammar forces */
#include "router/answer/tool_format.h"

static const struct tool_step hermes_steps[] = {
    {.kind = STEP_SPACE},           {.kind = STEP_OBJECT}, {.kind = STEP_SPACE},
    {STEP_TEXT, "</tool_call>", 0}, {.kind = STEP_END},
};

static const struct tool_format hermes = {
    .name = "hermes",
    .starts = {{"<tool_call>", 0, false}},
    .steps = hermes_steps,
    .markers = {"<tool_call>", "</tool_call>"},
    .force = {"<tool_call>\n{\"name\": ", ", \"arguments\": ", "}\n</tool_call>", "\n", false,
              true},
    .needles = {"<tool_call>"},
    .token = "<tool_call>",
};

enum { BARE_OBJECT = 0, BARE_NEXT = 4 };

static const struct tool_step bare_steps[] = {
    {.kind = STEP_SPACE},
    {.kind = STEP_OBJECT},
    {.kind = STEP_SPACE},
    {STEP_BRANCH, ";", BARE_NEXT + 1},
    [BARE_NEXT] = {.kind = STEP_END},
    {STEP_TEXT, ";", 0},
    {.kind = STEP_GOTO, .to = BARE_OBJECT},
};

static const struct tool_format llama3_json = {
    .name = "llama3_json",
    .starts = {{"<|python_tag|>", 0, false}, {"{", 0, true}},
    .steps = bare_steps,
    .strict = true,
    .markers = {"<|python_tag|>"},
    .force = {"{\"name\": ", ", \"parameters\": ", "}", "; ", false, false},
    .needles = {"{\"name\": function name, \"parameters\""},
    .token = "<|python_tag|>",
};

static const struct tool_format json = {
    .name = "json",
    .starts = {{"{", 0, true}},
    .steps = bare_steps,
    .strict = true,
    .force = {"{\"name\": ", ", \"arguments\": ", "}", "; ", false, false},
};

enum { LIST_OBJECT = 0, LIST_COMMA = 6 };

static const struct tool_step list_steps[] = {
    {.kind = STEP_SPACE},
    {.kind = STEP_OBJECT},
    {.kind = STEP_SPACE},
    {STEP_BRANCH, ",", LIST_COMMA},
    {STEP_TEXT, "]", 0},
    {.kind = STEP_END},
    [LIST_COMMA] = {STEP_TEXT, ",", 0},
    {.kind = STEP_GOTO, .to = LIST_OBJECT},
};

static const struct tool_format firefunction = {
    .name = "firefunction",
    .starts = {{"functools[", 0, false}},
    .steps = list_steps,
    .needles = {"functools["},
};

const struct tool_format *const tool_formats_json[] = {&hermes, &llama3_json, &firefunction, &json,
                                                       NULL};

const struct tool_format *tool_format_plain(void)
{
    return &json;
}
