/* front.h - one function per kind of grammar: text -> rule `root` of the graph.
 *
 * The text is valid UTF-8 and not over GRAMMAR_TEXT_MAX. Mistakes go by graph_fail. Thread: one. */
#ifndef REFRAIN_PROTO_GRAMMAR_FRONT_H
#define REFRAIN_PROTO_GRAMMAR_FRONT_H

#include <jansson.h>

#include "proto/grammar/graph.h"

void front_json_object(const struct grammar_spec *spec, struct graph *graph, uint32_t root);
void front_json_schema(const struct grammar_spec *spec, struct graph *graph, uint32_t root);
void front_regex(const struct grammar_spec *spec, struct graph *graph, uint32_t root);
void front_choice(const struct grammar_spec *spec, struct graph *graph, uint32_t root);
void front_ebnf(const struct grammar_spec *spec, struct graph *graph, uint32_t root);
void front_structure(const struct grammar_spec *spec, struct graph *graph, uint32_t root);
void front_tags(const struct grammar_spec *spec, struct graph *graph, uint32_t root);

/* A value that is valid under the schema, between two nodes. */
void schema_into(const json_t *root, struct graph *graph, uint32_t from, uint32_t to);
/* The text as JSON, or NULL and graph_fail; `what` begins the sentence. */
json_t *front_parse_json(const struct grammar_spec *spec, struct graph *graph, const char *what);

#endif
