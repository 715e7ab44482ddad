/* tool_force.h - the grammar that makes a model call a tool: tool_choice required, or a name.
 *
 * The model writes the calls in its own format where a grammar can produce that, else as bare JSON
 * (tool_format_plain); the answer is read by the format that was forced. Thread: any. */
#ifndef REFRAIN_ROUTER_ANSWER_TOOL_FORCE_H
#define REFRAIN_ROUTER_ANSWER_TOOL_FORCE_H

#include <jansson.h>

#include "proto/base/buffer.h"
#include "router/answer/tool_format.h"

/* The format to force for a model of this one (NULL: none is known). A grammar produces text, so
 * markers that are control tokens of the vocabulary cannot be forced. */
const struct tool_format *tool_force_format(const struct tool_format *format,
                                            bool markers_are_control);
/* The text of a GRAMMAR_STRUCTURE (proto/grammar/grammar.h): 1 to calls_max calls of any of
 * `tools`, or of the one named. `format` is tool_force_format()'s; `tools` are checked and hold the
 * name. */
void tool_force_write(const struct tool_format *format, const json_t *tools, const char *name,
                      uint32_t calls_max, struct buffer *out);

#endif
