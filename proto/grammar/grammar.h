/* grammar.h - what an answer may be: a text of one of seven kinds -> an automaton over bytes.
 *
 *   router   compiles to refuse what cannot be served, sends kind and text on
 *   worker   compiles again, and asks the automaton which tokens may come next (machine.h)
 *
 * Ownership: counted; immutable once compiled. Thread: any (the count is atomic).
 * Limits: GRAMMAR_*_MAX below; whatever is over one of them is refused with its number, in time
 * and memory proportional to the text. */
#ifndef REFRAIN_PROTO_GRAMMAR_GRAMMAR_H
#define REFRAIN_PROTO_GRAMMAR_GRAMMAR_H

#include <stddef.h>
#include <stdint.h>

#include "proto/base/errmsg.h"

/* The numbers are on the wire. */
enum grammar_kind {
    GRAMMAR_NONE = 0,
    GRAMMAR_JSON_OBJECT, /* any JSON object; no text */
    GRAMMAR_JSON_SCHEMA, /* the schema, JSON */
    GRAMMAR_REGEX,       /* matches the whole answer */
    GRAMMAR_CHOICE,      /* JSON list of strings */
    GRAMMAR_EBNF,        /* GBNF: root ::= ... */
    GRAMMAR_STRUCTURE,   /* {"alternatives":[{"begin":str,"schema":object|bool,"end":str},...],
                          *  "min":1,"max":N,"separator":str}: begin, a JSON value, end; repeated */
    GRAMMAR_TAGS,        /* structural tags: free text with tags in it (tags.c) */
    GRAMMAR_KINDS
};

#define GRAMMAR_TEXT_MAX (256u << 10) /* bytes */
#define GRAMMAR_NODES_MAX (1u << 18)  /* places in the automaton */
#define GRAMMAR_EDGES_MAX (1u << 19)
#define GRAMMAR_RULES_MAX (1u << 16)
#define GRAMMAR_DEPTH_MAX 100u      /* nesting of the text: groups, schemas */
#define GRAMMAR_REPEAT_MAX 1000000u /* of a counted repetition */

/* What a request asks for; the text belongs to the request. */
struct grammar_spec {
    enum grammar_kind kind;
    const char *text;
    size_t bytes;
};

struct grammar;

const char *grammar_kind_name(enum grammar_kind kind);

/* One reference in *ret_grammar. -EINVAL: a sentence that says what is wrong and where (byte, line
 * or path); -E2BIG: over a limit, with the number. Parts of the text may stand in the sentence: it
 * is for the client, not for a log. */
int grammar_compile(const struct grammar_spec *spec, struct grammar **ret_grammar,
                    struct errmsg *err);
struct grammar *grammar_ref(struct grammar *grammar);
void grammar_unref(struct grammar *grammar); /* NULL is fine */
/* Memory that it holds. */
size_t grammar_bytes(const struct grammar *grammar);

#endif
