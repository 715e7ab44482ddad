/* matcher.c - answers: where each one is in its grammar.
 *
 * A full table is emptied and the call tried again, once: what is left is what answers stand on.
 * Grammars without an answer stay until the next flush, so that the next request with the same one
 * finds its states; too many of them cause one. */
#include <errno.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "proto/grammar/machine_private.h"

#define SLOTS_MAX (1u << 20)

/* Too much kept for nobody. */
static bool is_crowded(const struct grammar_machine *machine)
{
    size_t bytes = 0, idle = 0;

    for (uint32_t i = 0; i < machine->slots_count; i++) {
        const struct slot *slot = &machine->slots[i];
        if (slot->grammar == NULL || slot->users > 0)
            continue;
        idle++;
        bytes += grammar_bytes(slot->grammar);
    }
    return idle > GRAMMARS_IDLE_MAX || bytes > GRAMMARS_IDLE_BYTES_MAX;
}

/* The grammar's slot, with one user more. */
static int take_slot(struct grammar_machine *machine, struct grammar *grammar, uint32_t *ret_slot)
{
    uint32_t free_slot = machine->slots_count;

    for (uint32_t i = 0; i < machine->slots_count; i++) {
        if (machine->slots[i].grammar == grammar) {
            machine->slots[i].users++;
            *ret_slot = i;
            return 0;
        }
        if (machine->slots[i].grammar == NULL)
            free_slot = i;
    }
    if (free_slot == machine->slots_max) {
        if (machine->slots_max == SLOTS_MAX)
            return -ENOSPC;
        machine->slots_max = machine->slots_max == 0 ? 16 : machine->slots_max * 2;
        machine->slots = mem_realloc(machine->slots, machine->slots_max * sizeof(*machine->slots));
    }
    if (free_slot == machine->slots_count)
        machine->slots_count++;
    machine->slots[free_slot] = (struct slot){grammar_ref(grammar), 1};
    *ret_slot = free_slot;
    return 0;
}

static struct grammar_matcher *add_matcher(struct grammar_machine *machine, uint32_t slot)
{
    struct grammar_matcher *matcher = mem_zalloc(sizeof(*matcher));

    matcher->machine = machine;
    matcher->slot = slot;
    matcher->state = STATE_DEAD;
    list_push_back(&machine->matchers, &matcher->link);
    machine->matchers_count++;
    return matcher;
}

/* Even an emptied table is too small for this one step: that is the grammar's fault. */
static int second_try(int r)
{
    return r == -ENOSPC ? -E2BIG : r;
}

static int tell(int r, struct errmsg *err)
{
    if (r == -E2BIG)
        return errmsg_set(err, r,
                          "the grammar is too ambiguous: one step of it needs more states "
                          "or places than a worker looks at");
    return errmsg_set(err, r, "the worker's memory for grammars is full");
}

int grammar_matcher_new(struct grammar_machine *machine, struct grammar *grammar,
                        struct grammar_matcher **ret_matcher, struct errmsg *err)
{
    uint32_t slot = 0;

    if (is_crowded(machine))
        machine_flush(machine);
    int r = take_slot(machine, grammar, &slot);
    if (r < 0)
        return tell(r, err);
    struct grammar_matcher *matcher = add_matcher(machine, slot);
    r = machine_start(machine, slot, &matcher->state);
    if (r == -ENOSPC) {
        machine_flush(machine);
        r = second_try(machine_start(machine, slot, &matcher->state));
    }
    if (r < 0) {
        grammar_matcher_free(matcher);
        return tell(r, err);
    }
    *ret_matcher = matcher;
    return 0;
}

void grammar_matcher_free(struct grammar_matcher *matcher)
{
    if (matcher == NULL)
        return;
    struct slot *slot = &matcher->machine->slots[matcher->slot];
    ASSERT(slot->users > 0);
    slot->users--;
    matcher->machine->matchers_count--;
    list_remove(&matcher->link);
    mem_free(matcher);
}

struct grammar_matcher *grammar_matcher_copy(struct grammar_matcher *matcher)
{
    struct grammar_matcher *copy = add_matcher(matcher->machine, matcher->slot);

    matcher->machine->slots[matcher->slot].users++;
    copy->state = matcher->state;
    copy->lost = matcher->lost;
    return copy;
}

int grammar_matcher_mask(struct grammar_matcher *matcher, struct grammar_mask *ret_mask,
                         struct errmsg *err)
{
    int r = matcher->lost ? -ENOSPC : machine_mask(matcher->machine, matcher->state, ret_mask);

    if (r == -ENOSPC && !matcher->lost) {
        machine_flush(matcher->machine);
        r = matcher->lost ? -ENOSPC
                          : second_try(machine_mask(matcher->machine, matcher->state, ret_mask));
    }
    return r < 0 ? tell(r, err) : 0;
}

static int take(struct grammar_matcher *matcher, const char *bytes, size_t count)
{
    uint32_t state = matcher->state;

    for (size_t i = 0; i < count; i++) {
        int r = machine_step(matcher->machine, state, (uint8_t)bytes[i], &state);
        if (r < 0)
            return r;
        if (state == STATE_DEAD)
            return -EINVAL;
    }
    matcher->state = state;
    return 0;
}

int grammar_matcher_take(struct grammar_matcher *matcher, const char *bytes, size_t count)
{
    if (matcher->lost)
        return -ENOSPC;
    int r = take(matcher, bytes, count);
    if (r != -ENOSPC)
        return r;
    machine_flush(matcher->machine);
    return matcher->lost ? -ENOSPC : second_try(take(matcher, bytes, count));
}

int grammar_matcher_take_token(struct grammar_matcher *matcher, uint32_t id)
{
    size_t count;
    const char *bytes = grammar_vocab_text(matcher->machine->vocab, id, &count);

    return count > 0 ? grammar_matcher_take(matcher, bytes, count) : -ENOENT;
}

bool grammar_matcher_complete(const struct grammar_matcher *matcher)
{
    return matcher->state != STATE_DEAD &&
           (matcher->machine->space->states[matcher->state].flags & STATE_COMPLETE) != 0;
}
