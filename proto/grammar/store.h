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
size_t grammar_store_bytes(const struct grammar_store *store);

#endif
