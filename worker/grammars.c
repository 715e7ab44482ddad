/* grammars.c - store, vocabulary and machine of one worker. */
#include "worker/grammars.h"

#include "proto/base/assert.h"
#include "proto/base/clock.h"
#define LOG_MODULE "grammars"
#include "proto/base/log.h"
#include "proto/base/mem.h"

struct grammars {
    const struct model_card *card;
    size_t bytes_max;
    struct grammar_store *store;
    struct grammar_vocab *vocab; /* NULL before the first grammar */
    struct grammar_machine *machine;
};

struct grammars *grammars_new(const struct model_card *card, size_t bytes_max)
{
    struct grammars *grammars = mem_zalloc(sizeof(*grammars));

    ASSERT(bytes_max >= GRAMMAR_MACHINE_BYTES_MIN);
    *grammars = (struct grammars){
        .card = card, .bytes_max = bytes_max, .store = grammar_store_new(bytes_max)};
    return grammars;
}

void grammars_free(struct grammars *grammars)
{
    if (grammars == NULL)
        return;
    grammar_machine_free(grammars->machine);
    grammar_vocab_free(grammars->vocab);
    grammar_store_free(grammars->store);
    mem_free(grammars);
}

static int make_machine(struct grammars *grammars, struct errmsg *err)
{
    uint64_t start_ms = clock_ms();

    if (grammars->vocab == NULL)
        grammars->vocab = grammar_vocab_new(grammars->card);
    int r = grammar_machine_new(grammars->vocab, grammars->bytes_max, &grammars->machine, err);
    log_info("grammar_vocabulary", "nodes=%u ms=%llu", grammars->vocab->nodes_count,
             (unsigned long long)(clock_ms() - start_ms));
    return r;
}

int grammars_get(struct grammars *grammars, const struct grammar_spec *spec,
                 struct grammar **ret_grammar, struct grammar_machine **ret_machine,
                 struct errmsg *err)
{
    int r = grammars->machine == NULL ? make_machine(grammars, err) : 0;

    if (r == 0)
        r = grammar_store_get(grammars->store, spec, ret_grammar, err);
    if (r == 0)
        *ret_machine = grammars->machine;
    return r;
}
