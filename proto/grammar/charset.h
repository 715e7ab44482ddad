/* charset.h - sets of Unicode scalar values, and how they are written in bytes.
 *
 * Thread: one. Errors: none; ranges are few (a class of a pattern), adding is cheap, and
 * charset_normalize sorts and joins them once. */
#ifndef REFRAIN_PROTO_GRAMMAR_CHARSET_H
#define REFRAIN_PROTO_GRAMMAR_CHARSET_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/grammar/graph.h"

#define CHAR_MAX_CODE 0x10ffffu

struct charset_range {
    uint32_t lo, hi; /* both in */
};

struct charset {
    struct charset_range *ranges;
    uint32_t count, max;
};

void charset_init(struct charset *set);
void charset_done(struct charset *set);
void charset_add(struct charset *set, uint32_t lo, uint32_t hi);
void charset_add_set(struct charset *set, const struct charset *other);
/* Sorted, joined, surrogates out (no text has them). */
void charset_normalize(struct charset *set);
/* Everything else; normalizes. */
void charset_negate(struct charset *set);

/* How a character is written in the text that the automaton reads. */
enum charset_form {
    CHARSET_PLAIN = 0, /* UTF-8 */
    CHARSET_JSON, /* as in a JSON string, one way for each: UTF-8, \" \\ \b \f \n \r \t, \u00XX for
                   * other control characters */
};

/* One character of the (normalized) set, between two nodes. */
void charset_emit(const struct charset *set, enum charset_form form, struct graph *graph,
                  uint32_t from, uint32_t to);

#endif
