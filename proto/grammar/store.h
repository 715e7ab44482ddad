/* store.h - compiled grammars by kind and text, so that a repeated one costs a lookup.
 *
 * Holds one reference on each. Bounded by bytes, those in use outside included: what is only here
 * goes first, least recently asked for. Thread: one. */
#ifndef REFRAIN_PROTO_GRAMMAR_STORE_H
#define REFRAIN_PROTO_GRAMMAR_STORE_H

#include <stddef.h>

#include "proto/grammar/grammar.h"

struct grammar_store;

struct grammar_store *grammar_store_new(size_t bytes_max);
void grammar_store_free(struct grammar_store *store); /* NULL is fine */
/* One reference in *ret_grammar. As grammar_compile; -ENOSPC: grammars in use fill the store. */
int grammar_store_get(struct grammar_store *store, const struct grammar_spec *spec,
                      struct grammar **ret_grammar, struct errmsg *err);
/* The same without compiling, for who compiles elsewhere. find: one reference, or NULL. put: takes
 * a reference of its own; not kept where there is no room, or where the text is there already. */
struct grammar *grammar_store_find(struct grammar_store *store, const struct grammar_spec *spec);
void grammar_store_put(struct grammar_store *store, const struct grammar_spec *spec,
                       struct grammar *grammar);
size_t grammar_store_bytes(const struct grammar_store *store);

#endif
