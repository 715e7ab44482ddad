/* grammars.h - the io thread's side of grammars: from a Submit's text to what the engine runs.
 *
 * The vocabulary's trie and the machine are made with the first grammar that is asked for (some 30
 * ms at 49k tokens), so that a worker without grammars has neither. The machine is the engine
 * thread's from the first command on that names it. Thread: io; freed when the engine has ended. */
#ifndef REFRAIN_WORKER_GRAMMARS_H
#define REFRAIN_WORKER_GRAMMARS_H

#include "proto/grammar/machine.h"
#include "proto/grammar/store.h"

struct grammars;

/* bytes_max: for states and masks (GRAMMAR_MACHINE_BYTES_MIN at least), and as much for compiled
 * grammars. The card outlives it. */
struct grammars *grammars_new(const struct model_card *card, size_t bytes_max);
void grammars_free(struct grammars *grammars); /* NULL is fine */
/* One reference in *ret_grammar. As grammar_store_get; -ENOMEM. */
int grammars_get(struct grammars *grammars, const struct grammar_spec *spec,
                 struct grammar **ret_grammar, struct grammar_machine **ret_machine,
                 struct errmsg *err);

#endif
