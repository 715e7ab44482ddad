/* schema.h - JSON Schema -> graph: what the files of it share. Private to proto/grammar.
 *
 *   schema.c         walk: references, alternatives, types, enum
 *   schema_words.c   which keywords there are: used, said and ignored, or refused by name
 *   schema_merge.c   allOf, and what stands beside $ref and anyOf
 *   schema_object.c  schema_array.c  schema_string.c  schema_number.c   a file per type
 *
 * Sound, not complete: every text that the automaton takes is valid under the schema; not every
 * valid text can be written (properties come in the schema's order, numbers have at most 18 digits,
 * what is not declared is left out unless the schema asks for it). A keyword that restricts and is
 * not understood is refused by name, never dropped. oneOf is taken as anyOf. */
#ifndef REFRAIN_PROTO_GRAMMAR_SCHEMA_H
#define REFRAIN_PROTO_GRAMMAR_SCHEMA_H

#include <jansson.h>

#include "proto/base/map.h"
#include "proto/grammar/json_text.h"

#define SCHEMA_VISITS_MAX 20000u          /* schemas looked at, a reference's target once */
#define SCHEMA_MERGE_STEPS_MAX (1u << 19) /* members and values copied or compared */
#define SCHEMA_PATH_MAX 200u

struct schema {
    struct graph *graph;
    struct json_text text;
    const json_t *root;
    struct map *refs; /* reference -> rule + 1 */
    json_t *pending;  /* references whose rule has no body yet, in order */
    json_t *made;     /* keeps merged schemas alive */
    uint32_t visits, depth, merge_steps;
    char path[SCHEMA_PATH_MAX]; /* for sentences */
};

/* "schema at '#/a/b': " and the sentence, by graph_fail. */
void schema_fail(struct schema *schema, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Add a part to the path; give the result back to schema_leave. */
size_t schema_enter(struct schema *schema, const char *part, const char *name);
void schema_leave(struct schema *schema, size_t path_bytes);

/* A value that is valid under `node`, between two nodes of the graph. */
void schema_emit(struct schema *schema, const json_t *node, uint32_t from, uint32_t to);
/* The same as a rule of its own. */
uint32_t schema_rule(struct schema *schema, const json_t *node);

/* ---- schema_words.c ---- */

/* Fails at a keyword that restricts and is not supported. */
void schema_check_words(struct schema *schema, const json_t *node);
/* Says nothing about values: title, description, default... and words that nobody knows. */
bool schema_word_is_note(const char *word);
/* A keyword's number from 0 on; `otherwise` when it is absent. Fails when it is no such number. */
uint32_t schema_count(struct schema *schema, const json_t *node, const char *word,
                      uint32_t otherwise);

/* ---- schema_merge.c ---- */

/* What a local reference points at, or NULL (failed). */
const json_t *schema_resolve(struct schema *schema, const char *reference);
/* `node` without $ref, allOf and oneOf on top: merged into one object, or a boolean. */
const json_t *schema_flat(struct schema *schema, const json_t *node);
/* Both at once, flat. */
const json_t *schema_both(struct schema *schema, const json_t *a, const json_t *b);

/* ---- one type each; node is flat ---- */

void schema_object(struct schema *schema, const json_t *node, uint32_t from, uint32_t to);
void schema_array(struct schema *schema, const json_t *node, uint32_t from, uint32_t to);
void schema_string(struct schema *schema, const json_t *node, uint32_t from, uint32_t to);
void schema_number(struct schema *schema, const json_t *node, bool integer, uint32_t from,
                   uint32_t to);

#endif
