/* mask.c - from a state to the tokens that it allows.
 *
 *   narrow   what of the state can matter to one token: the top frames of its stacks, and counters
 *            no further than a token is long. Many states are one state then
 *   walk     the vocabulary's trie, depth first, a state per byte; a dead one skips the subtree
 *   keep     a bit per id with the narrow state, the least recently used one given up
 *
 * Few frames are tried first. When the walk returns past the last of them and there are more bytes
 * to look at, the state says DEEPER and twice as many are tried, up to all. So the
 * inside of a string has one mask wherever it stands, and `"}}` is still judged exactly.
 * Cost: warm two loads; cold one transition for each trie node that is reached (0.3 ms for the
 * inside of a string at 49k tokens). Bounded by WORK_MAX configs and STATES_MAX new states. */
#include <errno.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/grammar/machine_private.h"

#define FRAMES_FIRST 2u
#define SUBTREE_MIN 16u                     /* nodes, from which on it pays to look for loops */
#define WORK_MAX 4000000u                   /* configs of one mask */
#define STATES_MAX(m) ((m)->states_max / 4) /* new ones of one mask */

/* ---- narrow ---- */

/* A counter that is further from its limits than a token has bytes is as good as one at its start
 * (below min) or at min. */
static uint32_t clip_count(const struct grammar *grammar, uint32_t node, uint32_t count,
                           uint32_t bytes_max)
{
    const struct grammar_node *at = &grammar->nodes[node];
    const struct grammar_jump *jump = &grammar->jumps[at->jumps_at];

    if (at->jumps_count == 0 || jump->kind != EDGE_COUNT)
        return count;
    if (count < jump->min)
        return jump->min - count > bytes_max ? 0 : count;
    if (jump->max == GRAPH_NO_MAX)
        return count;
    return jump->max - count > bytes_max ? jump->min : count;
}

static int narrow_stack(struct grammar_machine *machine, const struct grammar *grammar,
                        uint32_t stack, uint32_t frames_max, uint32_t *ret_stack)
{
    struct frame kept[GRAMMAR_STACK_MAX];
    uint32_t count = 0;

    while (stack >= STACK_FIRST && count < frames_max) {
        kept[count] = machine->space->frames[stack];
        stack = kept[count++].parent;
    }
    if (stack >= STACK_FIRST)
        stack = STACK_BOTTOM;
    while (count > 0) {
        const struct frame *frame = &kept[--count];
        uint32_t clipped =
            clip_count(grammar, frame->node, frame->count, machine->vocab->token_bytes_max);
        int r = machine_push(machine, frame->node, clipped, stack, &stack);
        if (r < 0)
            return r;
    }
    *ret_stack = stack;
    return 0;
}

/* A stack so deep that a token could reach the limit has to be kept whole: then it does. */
static bool near_limit(const struct grammar_machine *machine, uint32_t stack)
{
    return stack >= STACK_FIRST && machine->space->frames[stack].depth > GRAMMAR_STACK_MAX / 2;
}

static int narrow(struct grammar_machine *machine, uint32_t number, uint32_t frames_max,
                  uint32_t *ret_state)
{
    const struct state *state = &machine->space->states[number];
    const struct grammar *grammar = machine_grammar(machine, state->slot);
    struct config *list = machine->closure.list;

    for (uint32_t i = 0; i < state->configs_count; i++) {
        list[i] = state_configs(machine, state)[i];
        uint32_t frames = near_limit(machine, list[i].stack) ? GRAMMAR_STACK_MAX : frames_max;
        int r = narrow_stack(machine, grammar, list[i].stack, frames, &list[i].stack);
        if (r < 0)
            return r;
    }
    return machine_intern(machine, state->slot, list, state->configs_count,
                          state->flags & STATE_COMPLETE, ret_state);
}

/* ---- walk ---- */

struct walk {
    struct grammar_machine *machine;
    uint64_t *bits;
    uint32_t states_end; /* no more than this many */
    bool any, deeper;
};

/* The tokens of nodes [first, end). */
static inline void allow(struct walk *walk, uint32_t first, uint32_t end)
{
    const struct grammar_vocab *vocab = walk->machine->vocab;
    const uint32_t *id = &vocab->tokens[vocab->nodes[first].first_token];
    const uint32_t *last = &vocab->tokens[vocab->nodes[end].first_token];

    walk->any |= id < last;
    for (; id < last; id++)
        walk->bits[*id / 64] |= (uint64_t)1 << *id % 64;
}

static int slow_step(struct walk *walk, uint32_t state, uint8_t byte, uint32_t *ret_state)
{
    int r = machine_step(walk->machine, state, byte, ret_state);

    if (r == 0 &&
        (walk->machine->work > WORK_MAX || walk->machine->space->states_count > walk->states_end))
        return -E2BIG;
    return r;
}

/* Which buckets change nothing: whole subtrees of plain text are then allowed at once. */
static int find_loops(struct walk *walk, uint32_t number)
{
    struct state *state = &walk->machine->space->states[number];
    uint64_t others = 0, all = 0;

    for (unsigned byte = 0; byte < 256; byte++) {
        uint64_t bucket = (uint64_t)1 << vocab_bucket((uint8_t)byte);
        uint32_t next = STATE_DEAD;
        all |= bucket;
        if ((others & bucket) != 0)
            continue;
        int r = slow_step(walk, number, (uint8_t)byte, &next);
        if (r < 0)
            return r;
        others |= next != number ? bucket : 0;
    }
    state->loops = all & ~others;
    state->flags |= STATE_LOOPS;
    return 0;
}

/* A node is allowed and leads to `number`. *ret_next: where to go on. */
static int enter(struct walk *walk, uint32_t node, uint32_t number, uint32_t *ret_next)
{
    const struct vocab_node *at = &walk->machine->vocab->nodes[node];
    const struct state *state = &walk->machine->space->states[number];

    *ret_next = node + 1;
    if (at->end == node + 1)
        return 0;
    if ((state->flags & STATE_BOTTOM) != 0) {
        walk->deeper = true;
        return 0;
    }
    if (at->end - node >= SUBTREE_MIN) {
        int r = (state->flags & STATE_LOOPS) == 0 ? find_loops(walk, number) : 0;
        if (r < 0)
            return r;
    }
    if ((at->below & ~state->loops) == 0) {
        allow(walk, node + 1, at->end);
        *ret_next = at->end;
    }
    walk->machine->path[at->depth] = number;
    return 0;
}

static int walk_trie(struct walk *walk, uint32_t state)
{
    struct grammar_machine *machine = walk->machine;
    const struct grammar_vocab *vocab = machine->vocab;
    const struct space *space = machine->space;
    const uint8_t *classes = machine_grammar(machine, space->states[state].slot)->byte_class;

    machine->path[0] = state;
    for (uint32_t i = 1; i < vocab->nodes_count && !walk->deeper;) {
        const struct vocab_node *node = &vocab->nodes[i];
        uint32_t from = machine->path[node->depth - 1];
        uint32_t next = state_next(machine, &space->states[from])[classes[node->byte]];
        int r = 0;
        if (next == STATE_UNKNOWN)
            r = slow_step(walk, from, node->byte, &next);
        if (r < 0)
            return r;
        if (next == STATE_DEAD) {
            i = node->end;
            continue;
        }
        allow(walk, i, i + 1);
        r = enter(walk, i, next, &i);
        if (r < 0)
            return r;
    }
    return 0;
}

/* ---- kept masks ---- */

void machine_forget_masks(struct grammar_machine *machine)
{
    for (uint32_t i = 0; i < machine->masks_count; i++)
        machine->masks[i].state = 0;
}

static struct mask *take_mask(struct grammar_machine *machine)
{
    struct mask *mask = LIST_ENTRY(machine->masks_used.next, struct mask, link);

    if (mask->state != 0)
        machine->space->states[mask->state].mask = MASK_NONE;
    mask->state = 0;
    return mask;
}

static uint64_t *bits_of(const struct grammar_machine *machine, const struct mask *mask)
{
    return machine->mask_bits + (size_t)(mask - machine->masks) * machine->mask_words;
}

/* Sets the state's mask, or its DEEPER. */
static int compute(struct grammar_machine *machine, uint32_t number)
{
    struct mask *mask = take_mask(machine);
    struct state *state = &machine->space->states[number];
    struct walk walk = {.machine = machine,
                        .bits = bits_of(machine, mask),
                        .states_end = machine->space->states_count + STATES_MAX(machine)};

    memset(walk.bits, 0, machine->mask_words * sizeof(uint64_t));
    int r = walk_trie(&walk, number);
    if (r < 0)
        return r;
    if (walk.deeper) {
        state->flags |= STATE_DEEPER;
        return 0;
    }
    mask->state = number;
    mask->any = walk.any;
    state->mask = (uint32_t)(mask - machine->masks);
    return 0;
}

/* The state whose mask it is. */
static int find_narrow(struct grammar_machine *machine, uint32_t number, uint32_t *ret_state)
{
    uint32_t found = 0;
    bool cold = false;

    for (uint32_t frames = FRAMES_FIRST; frames <= GRAMMAR_STACK_MAX; frames *= 2) {
        int r = narrow(machine, number, frames, &found);
        if (r < 0)
            return r;
        struct state *state = &machine->space->states[found];
        if ((state->flags & STATE_DEEPER) == 0 && state->mask == MASK_NONE) {
            machine->masks_cold_total += !cold;
            cold = true;
            r = compute(machine, found);
            if (r < 0)
                return r;
        }
        if ((state->flags & STATE_DEEPER) == 0)
            break;
    }
    ASSERT(machine->space->states[found].mask != MASK_NONE);
    *ret_state = found;
    return 0;
}

int machine_mask(struct grammar_machine *machine, uint32_t number, struct grammar_mask *ret_mask)
{
    struct state *state = &machine->space->states[number];
    bool known = state->narrow != 0 && machine->space->states[state->narrow].mask != MASK_NONE;

    if (!known) {
        machine->work = 0;
        int r = find_narrow(machine, number, &state->narrow);
        if (r < 0)
            return r;
    }
    struct mask *mask = &machine->masks[machine->space->states[state->narrow].mask];
    list_remove(&mask->link);
    list_push_back(&machine->masks_used, &mask->link);
    machine->masks_total++;
    *ret_mask = (struct grammar_mask){.bits = bits_of(machine, mask),
                                      .any = mask->any,
                                      .complete = (state->flags & STATE_COMPLETE) != 0};
    return 0;
}
