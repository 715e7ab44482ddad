/* grammars.h - the io thread's side of grammars: from a Submit's text to what the engine runs.
 *
 * A thread of its own compiles: a large grammar takes up to 0.1 s, for which no token of others
 * waits. The vocabulary's trie and the machine are made there too, with the first grammar that is
 * asked for (some 30 ms at 49k tokens), so that a worker without grammars has neither. The machine
 * is the engine thread's from the first command on that names it.
 *
 *   ask --known--> 0, get
 *    +--1--> (thread) --> pop --> get, or the reason why not
 *
 * Thread: io; freed when the engine has ended. */
#ifndef REFRAIN_WORKER_GRAMMARS_H
#define REFRAIN_WORKER_GRAMMARS_H

#include <stdbool.h>

#include "proto/grammar/machine.h"
#include "proto/grammar/store.h"

#define GRAMMARS_WAITING_MAX 64u /* each with its whole Submit */

struct grammars;

/* bytes_max: for states and masks (GRAMMAR_MACHINE_BYTES_MIN at least), and as much for compiled
 * grammars. The card outlives it. */
struct grammars *grammars_new(const struct model_card *card, size_t bytes_max);
void grammars_free(struct grammars *grammars); /* NULL is fine */

/* 0: grammars_get has it. 1: the thread makes it, and grammars_pop gives `waiter` back; the text
 * stays until then. -EAGAIN: GRAMMARS_WAITING_MAX are waited for. */
int grammars_ask(struct grammars *grammars, const struct grammar_spec *spec, void *waiter);
/* For poll(POLLIN): something can be popped. */
int grammars_fd(const struct grammars *grammars);
/* One that is done: *ret_r 0, or grammar_compile's, -ENOMEM, with *err. False: none is. */
bool grammars_pop(struct grammars *grammars, void **ret_waiter, int *ret_r, struct errmsg *err);
/* The thread ends; who waits is forgotten. Harmless the second time. */
void grammars_stop(struct grammars *grammars);

/* One reference in *ret_grammar. As grammar_store_get; -ENOMEM. Of one that was not asked for it is
 * compiled here: for tests. */
int grammars_get(struct grammars *grammars, const struct grammar_spec *spec,
                 struct grammar **ret_grammar, struct grammar_machine **ret_machine,
                 struct errmsg *err);

#endif
