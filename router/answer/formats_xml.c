/* formats_xml.c - calls whose arguments are tagged texts, typed by the tool's schema:
 *
 *   <tool_call><function=f><parameter=a>text</parameter>...</function></tool_call>
 *
 *   qwen3_coder   the outer tags are sometimes forgotten
 *   seed_oss      the same within <seed:tool_call> */
#include "router/answer/tool_format.h"

enum { XML_NAME = 2 };

static const struct tool_step qwen_steps[] = {
    {.kind = STEP_SPACE},
    {STEP_TEXT, "<function=", 0},
    [XML_NAME] = {.kind = STEP_NAME},
    {STEP_TEXT, ">", 0},
    {.kind = STEP_PARAMETERS},
    {.kind = STEP_SPACE},
    {STEP_TEXT, "</tool_call>", 0},
    {.kind = STEP_END},
};

static const struct tool_format qwen3_coder = {
    .name = "qwen3_coder",
    .starts = {{"<tool_call>", 0, false}, {"<function=", XML_NAME, false}},
    .steps = qwen_steps,
    .markers = {"<tool_call>", "</tool_call>"},
    .needles = {"<tool_call>", "<function=", "<parameter="},
};

static const struct tool_step seed_steps[] = {
    {.kind = STEP_SPACE},
    {STEP_TEXT, "<function=", 0},
    {.kind = STEP_NAME},
    {STEP_TEXT, ">", 0},
    {.kind = STEP_PARAMETERS},
    {.kind = STEP_SPACE},
    {STEP_TEXT, "</seed:tool_call>", 0},
    {.kind = STEP_END},
};

static const struct tool_format seed_oss = {
    .name = "seed_oss",
    .starts = {{"<seed:tool_call>", 0, false}},
    .steps = seed_steps,
    .markers = {"<seed:tool_call>", "</seed:tool_call>"},
    .needles = {"<seed:tool_call>"},
    .token = "<seed:tool_call>",
};

const struct tool_format *const tool_formats_xml[] = {&seed_oss, &qwen3_coder, NULL};
