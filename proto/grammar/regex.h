/* regex.h - a regular expression as part of the graph.
 *
 * Taken: characters, ., classes, \d \w \s and their opposites (ASCII), escapes \n \xHH \uHHHH
 * \u{H..}, groups (named ones too), |, * + ? {m} {m,} {m,n} (lazy ones are the same language), ^
 * and $ where they say nothing new. Refused, by name and place: look-around, back references, word
 * borders, \p{..}, flags, possessive and atomic parts.
 * Thread: one. */
#ifndef REFRAIN_PROTO_GRAMMAR_REGEX_H
#define REFRAIN_PROTO_GRAMMAR_REGEX_H

#include "proto/grammar/charset.h"

enum regex_match {
    REGEX_WHOLE = 0, /* the whole text, as guided_regex */
    REGEX_SEARCH, /* anywhere in it, as "pattern" of JSON Schema; ^ and $ of an alternative count */
};

/* text: valid UTF-8. Fails by graph_fail. */
void regex_emit(const char *text, size_t bytes, enum regex_match match, enum charset_form form,
                struct graph *graph, uint32_t from, uint32_t to);

#endif
