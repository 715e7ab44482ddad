/* machine_private.h - tables of the machine, shared by machine.c (states and steps), mask.c
 * (tokens) and matcher.c (answers).
 *
 *   config   a node, with a stack: one of the things that can be going on. Only nodes that take a
 *            byte are kept
 *   frame    where a called rule returns to: node, how often a counted one has been begun, parent
 *   state    set of configs, sorted; plus: may end here (COMPLETE), may return to a frame that was
 *            cut off (BOTTOM). Number 1 is the dead one
 *
 * Stacks and states are found by hash, so equal ones have one number. Two spaces of all tables:
 * when one is full, what matchers stand on is copied to the other one and the rest forgotten. */
#ifndef REFRAIN_PROTO_GRAMMAR_MACHINE_PRIVATE_H
#define REFRAIN_PROTO_GRAMMAR_MACHINE_PRIVATE_H

#include "proto/base/list.h"
#include "proto/grammar/automaton.h"
#include "proto/grammar/machine.h"

#define STACK_EMPTY 0u
#define STACK_BOTTOM 1u /* something was cut off here */
#define STACK_FIRST 2u

#define STATE_UNKNOWN 0u /* of a transition: not computed yet */
#define STATE_DEAD 1u
#define STATE_FIRST 2u

#define MASK_NONE UINT32_MAX
#define GRAMMARS_IDLE_MAX 64u /* kept for answers to come */
#define GRAMMARS_IDLE_BYTES_MAX ((size_t)16 << 20)

enum state_flag {
    STATE_COMPLETE = 1,
    STATE_BOTTOM = 2,
    STATE_DEEPER = 4, /* its mask needs more of the stack */
    STATE_LOOPS = 8   /* `loops` is known */
};

struct config {
    uint32_t node, count, stack;
};

struct frame {
    uint32_t node, count, parent, depth;
};

struct state {
    uint64_t hash;
    uint64_t loops; /* buckets all of whose bytes lead back to it; with STATE_LOOPS */
    uint32_t slot;
    uint32_t words_at; /* configs, then one transition per class */
    uint32_t configs_count;
    uint32_t mask;   /* of this state, MASK_NONE */
    uint32_t narrow; /* the state whose mask is this one's, 0: not known */
    uint32_t flags;
};

struct space {
    struct state *states;
    uint32_t *words;
    struct frame *frames;
    uint32_t *state_table, *frame_table; /* hash -> number, 0: empty */
    uint32_t states_count, words_used, frames_count;
};

/* A grammar in use. Numbers are given again only after a flush, since states name them. */
struct slot {
    struct grammar *grammar; /* NULL: free */
    uint32_t users;
};

struct mask {
    struct list link; /* least recently used first */
    uint32_t state;   /* 0: free */
    bool any;
};

/* What one step of the automaton has reached so far. */
struct closure {
    struct config *list; /* [CLOSURE_MAX] */
    uint32_t count;
    uint32_t *table; /* hash -> index, valid where the stamp is the current one */
    uint32_t *stamps;
    uint32_t stamp;
    bool complete, bottom, overflow;
};

struct grammar_machine {
    const struct grammar_vocab *vocab;
    void *memory;
    size_t memory_bytes;
    uint32_t states_max, words_max, frames_max; /* of one space */
    uint32_t states_mask, frames_mask;          /* of the tables: slots - 1 */
    struct space spaces[2];
    struct space *space; /* the one in use */
    struct slot *slots;
    uint32_t slots_count, slots_max;
    struct mask *masks;
    uint64_t *mask_bits;
    uint32_t masks_count, mask_words;
    struct list masks_used; /* struct mask */
    struct closure closure;
    uint32_t *path; /* [token_bytes_max + 1], states */
    uint64_t work;  /* configs, and edges by 16, looked at since it was set to 0 */
    struct list matchers;
    uint32_t matchers_count;
    uint64_t masks_total, masks_cold_total, flushes_total;
};

struct grammar_matcher {
    struct list link;
    struct grammar_machine *machine;
    uint32_t slot, state;
    bool lost; /* a flush found no room for its state */
};

#define CLOSURE_MAX 16384u
#define CLOSURE_TABLE (CLOSURE_MAX * 2)

static inline const struct grammar *machine_grammar(const struct grammar_machine *machine,
                                                    uint32_t slot)
{
    return machine->slots[slot].grammar;
}

static inline struct config *state_configs(const struct grammar_machine *machine,
                                           const struct state *state)
{
    return (struct config *)(void *)(machine->space->words + state->words_at);
}

static inline uint32_t *state_next(const struct grammar_machine *machine, const struct state *state)
{
    return machine->space->words + state->words_at +
           state->configs_count * (sizeof(struct config) / sizeof(uint32_t));
}

/* machine.c */

/* The stack with one frame more. -ENOSPC: no room; -E2BIG: too deep. */
int machine_push(struct grammar_machine *machine, uint32_t node, uint32_t count, uint32_t parent,
                 uint32_t *ret_stack);
/* The state of these configs (sorted here), made if it is new. -ENOSPC: no room. */
int machine_intern(struct grammar_machine *machine, uint32_t slot, struct config *configs,
                   uint32_t count, uint32_t flags, uint32_t *ret_state);
/* The state at the start of a grammar. -E2BIG, -ENOSPC. */
int machine_start(struct grammar_machine *machine, uint32_t slot, uint32_t *ret_state);
/* The transition, computed if it is not known. STATE_DEAD is a result. -E2BIG, -ENOSPC. */
int machine_step(struct grammar_machine *machine, uint32_t number, uint8_t byte,
                 uint32_t *ret_state);
/* Forget all but what matchers stand on. */
void machine_flush(struct grammar_machine *machine);

/* mask.c */

/* Masks of forgotten states. */
void machine_forget_masks(struct grammar_machine *machine);
int machine_mask(struct grammar_machine *machine, uint32_t number, struct grammar_mask *ret_mask);

#endif
