/* machine.h - grammars at work: which tokens may come next.
 *
 *   machine    states, stacks and masks of all grammars of one model, in memory of a fixed size
 *   matcher    one answer: a grammar and the state in it
 *
 * A state is everything that can be going on in the automaton at once; it is made when it is first
 * met, and remembered with its transitions and the mask of tokens that it allows. Answers with the
 * same grammar share states, so that after some use a mask is a lookup. When the memory is full,
 * what no matcher stands on is forgotten.
 *
 * Thread: one at a time (the engine's). The vocabulary outlives the machine, the machine its
 * matchers. Nothing here depends on time or addresses: the same bytes give the same masks. */
#ifndef REFRAIN_PROTO_GRAMMAR_MACHINE_H
#define REFRAIN_PROTO_GRAMMAR_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/errmsg.h"
#include "proto/grammar/grammar.h"
#include "proto/grammar/vocab.h"

#define GRAMMAR_STACK_MAX 512u /* rules inside each other: a deeper text is not allowed */
#define GRAMMAR_MACHINE_BYTES_MIN ((size_t)8 << 20)

struct grammar_machine;
struct grammar_matcher;

/* All of `bytes` is address space now and memory when used: about half for masks. -ENOMEM. */
int grammar_machine_new(const struct grammar_vocab *vocab, size_t bytes,
                        struct grammar_machine **ret_machine, struct errmsg *err);
/* No matcher may be left. NULL is fine. */
void grammar_machine_free(struct grammar_machine *machine);

struct grammar_machine_counts {
    uint64_t masks_total;      /* asked for */
    uint64_t masks_cold_total; /* of these, computed */
    uint64_t flushes_total;    /* the memory was full */
    uint32_t matchers, states;
};
void grammar_machine_counts(const struct grammar_machine *machine,
                            struct grammar_machine_counts *ret_counts);

/* At the beginning of an answer. Takes a reference on the grammar. -E2BIG: the grammar is too
 * ambiguous to begin with; -ENOSPC: too many answers at once. */
int grammar_matcher_new(struct grammar_machine *machine, struct grammar *grammar,
                        struct grammar_matcher **ret_matcher, struct errmsg *err);
void grammar_matcher_free(struct grammar_matcher *matcher); /* NULL is fine */
/* Another answer that has begun in the same way. Cheap. */
struct grammar_matcher *grammar_matcher_copy(struct grammar_matcher *matcher);

struct grammar_mask {
    const uint64_t *bits; /* one per id; stays until the next call with this machine */
    bool any;             /* a bit is set: the answer can go on */
    bool complete;        /* it may end here */
};

/* Which tokens may come next. 0; -E2BIG: the grammar is so ambiguous here that looking through the
 * vocabulary would take too long; -ENOSPC. The sentence is for the client. */
int grammar_matcher_mask(struct grammar_matcher *matcher, struct grammar_mask *ret_mask,
                         struct errmsg *err);
/* The answer goes on with these bytes. 0; -EINVAL: the grammar does not allow them, the matcher is
 * where it was; -E2BIG, -ENOSPC as above. */
int grammar_matcher_take(struct grammar_matcher *matcher, const char *bytes, size_t count);
/* The same with a token's bytes; -ENOENT: it has none. */
int grammar_matcher_take_token(struct grammar_matcher *matcher, uint32_t id);
bool grammar_matcher_complete(const struct grammar_matcher *matcher);
const struct grammar_vocab *grammar_machine_vocab(const struct grammar_machine *machine);
/* Asserts all invariants; for tests. */
void grammar_machine_check(const struct grammar_machine *machine);

#endif
