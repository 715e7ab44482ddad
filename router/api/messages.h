/* messages.h - the `messages` and `tools` of a chat, checked and made uniform for the template.
 *
 * content: a string stays; text parts are joined by newline, as vLLM does; null is "" for an
 * assistant, or when there are tool calls. Text of a tool call's arguments becomes an object;
 * empty, "null" or missing arguments become {}; an empty list of calls is no list. Other members
 * are handed on as they are. Thread: any. */
#ifndef REFRAIN_ROUTER_API_MESSAGES_H
#define REFRAIN_ROUTER_API_MESSAGES_H

#include <jansson.h>

#include "router/api/errors.h"

#define MESSAGES_MAX 10000u
#define TOOLS_MAX 1024u
#define TOOL_NAME_BYTES_MAX 64u /* OpenAI's */

/* 0 and a new array that the caller owns, or -EINVAL. */
int messages_read(const json_t *value, json_t **ret_messages, struct api_error *error);
/* *ret_tools is borrowed from `value`; NULL for an empty list. */
int messages_read_tools(const json_t *value, const json_t **ret_tools, struct api_error *error);

#endif
