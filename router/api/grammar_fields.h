/* grammar_fields.h - response_format, guided_* and structured_outputs: three spellings of one wish,
 * what the answer's text may be.
 *
 * Each fills request->grammar; a second one is refused. The grammar itself is looked at by
 * grammar_fields_check, once the fields are read. */
#ifndef REFRAIN_ROUTER_API_GRAMMAR_FIELDS_H
#define REFRAIN_ROUTER_API_GRAMMAR_FIELDS_H

#include "proto/grammar/store.h"
#include "router/api/request_json.h"

int grammar_fields_read_response_format(struct field_reader *reader, const struct field *field,
                                        const json_t *value);
/* guided_json, guided_regex, guided_choice, guided_grammar. */
int grammar_fields_read_guided(struct field_reader *reader, const struct field *field,
                               const json_t *value);
/* {"json" | "regex" | "choice" | "grammar" | "json_object": ...} */
int grammar_fields_read_structured(struct field_reader *reader, const struct field *field,
                                   const json_t *value);
/* Does the grammar compile? 0 without one. -EINVAL and a 400 that says what and where. */
int grammar_fields_check(struct grammar_store *store, const struct api_request *request,
                         struct api_error *error);

#endif
