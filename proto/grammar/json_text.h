/* json_text.h - how JSON is written: the rules that every JSON grammar shares.
 *
 *   space   nothing, one blank, or a line end and up to 20 blanks: compact, json.dumps and indented
 *           JSON, and no model can write blanks for ever
 *   colon   ':' and perhaps one blank
 *   string  any; escapes as in RFC 8259, \u of a surrogate only as a pair
 *   number  up to 18 digits before and after the point, exponents of up to two digits
 *
 * Rules are made when first asked for. Thread: one. */
#ifndef REFRAIN_PROTO_GRAMMAR_JSON_TEXT_H
#define REFRAIN_PROTO_GRAMMAR_JSON_TEXT_H

#include "proto/grammar/graph.h"

enum json_rule {
    JSON_RULE_SPACE = 0,
    JSON_RULE_CHAR, /* one character of a string, escaped or not */
    JSON_RULE_STRING,
    JSON_RULE_NUMBER,
    JSON_RULE_INTEGER,
    JSON_RULE_VALUE,
    JSON_RULE_OBJECT,
    JSON_RULE_ARRAY,
    JSON_RULES
};

struct json_text {
    struct graph *graph;
    uint32_t rules[JSON_RULES]; /* + 1; 0: not made yet */
};

#define JSON_DIGITS_MAX 18u

void json_text_init(struct json_text *json, struct graph *graph);
uint32_t json_text_rule(struct json_text *json, enum json_rule which);
void json_text_call(struct json_text *json, uint32_t from, enum json_rule which, uint32_t to);
/* c and then a space: "{", "[", ",". */
void json_text_open(struct json_text *json, uint32_t from, char c, uint32_t to);
/* A space and then c: "}", "]". */
void json_text_close(struct json_text *json, uint32_t from, char c, uint32_t to);
void json_text_colon(struct json_text *json, uint32_t from, uint32_t to);
/* min..max (GRAPH_NO_MAX) decimal digits. */
void json_text_digits(struct json_text *json, uint32_t from, uint32_t min, uint32_t max,
                      uint32_t to);
/* An object of any members whose values are of the rule; an array likewise. */
void json_text_object(struct json_text *json, uint32_t from, uint32_t value, uint32_t to);
void json_text_array(struct json_text *json, uint32_t from, uint32_t value, uint32_t to);

#endif
