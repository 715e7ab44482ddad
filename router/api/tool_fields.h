/* tool_fields.h - tool_choice and what it needs of the other fields.
 *
 * Thread: any. */
#ifndef REFRAIN_ROUTER_API_TOOL_FIELDS_H
#define REFRAIN_ROUTER_API_TOOL_FIELDS_H

#include "router/api/fields.h"
#include "router/api/request_json.h"

/* read() of the rows: none, auto, required, {"type": "function", "function": {"name": ...}}. */
int tool_fields_read_choice(struct field_reader *reader, const struct field *field,
                            const json_t *value);
/* `functions` and `function_call`: refused, with their new names. */
int tool_fields_refuse_old(struct field_reader *reader, const struct field *field,
                           const json_t *value);
/* All fields are read: the default of tool_choice, and that a choice has its tools. */
int tool_fields_check(struct api_request *request, struct api_error *error);

#endif
