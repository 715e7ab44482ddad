/* grammar_fields.h - response_format, guided_* and structured_outputs: three spellings of one wish,
 * what the answer's text may be.
 *
 * Each fills request->grammar; a second one is refused. The grammar itself is looked at by
 * grammar_checks.h, once the fields are read. */
#ifndef REFRAIN_ROUTER_API_GRAMMAR_FIELDS_H
#define REFRAIN_ROUTER_API_GRAMMAR_FIELDS_H

#include "router/api/request_json.h"

int grammar_fields_read_response_format(struct field_reader *reader, const struct field *field,
                                        const json_t *value);
/* guided_json, guided_regex, guided_choice, guided_grammar; and the names that llama.cpp and SGLang
 * have for them. */
int grammar_fields_read_guided(struct field_reader *reader, const struct field *field,
                               const json_t *value);
/* {"json" | "regex" | "choice" | "grammar" | "json_object": ...} */
int grammar_fields_read_structured(struct field_reader *reader, const struct field *field,
                                   const json_t *value);
/* The grammar does not compile: -EINVAL and a 400 that says what and where. */
int grammar_fields_refuse(const struct api_request *request, const struct errmsg *err,
                          struct api_error *error);

#endif
