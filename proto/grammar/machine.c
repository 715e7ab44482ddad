/* machine.c - states made on demand.
 *
 *   step:     of each config's node, the steps that take the byte      -> places
 *   closure:  from a place without taking bytes: empty jumps, into called rules (push a frame),
 *             back from ended ones (pop)                               -> all places
 *   intern:   places that take a byte, sorted, found by hash           -> a state
 *
 * That is the subset construction, one state at a time, over configs with stacks in place of nodes.
 * Why not the whole automaton beforehand: it may be exponential or infinite, and an answer visits
 * little of it. Left recursion was refused, so a closure ends; its size and all tables are bounded.
 * Invariant: transitions hold numbers of the space in use. Cost: a known step is one load; a new
 * state about 1 us. */
#include "proto/grammar/machine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "proto/grammar/machine_private.h"

#define MASKS_MAX 16384u /* more have no use */
#define CONFIG_WORDS (sizeof(struct config) / sizeof(uint32_t))

_Static_assert(sizeof(struct config) == 12, "configs are hashed as bytes");

/* ---- memory ---- */

static uint32_t power_of_two(size_t at_most)
{
    uint32_t power = 1;

    while ((size_t)power * 2 <= at_most)
        power *= 2;
    return power;
}

/* Carve `bytes` at 64-byte borders off the one mapping. */
static void *carve(char **at, size_t bytes)
{
    void *piece = *at;

    *at += (bytes + 63) / 64 * 64;
    return piece;
}

static size_t space_bytes(const struct grammar_machine *machine)
{
    return machine->states_max * (sizeof(struct state) + 2 * sizeof(uint32_t)) +
           machine->frames_max * (sizeof(struct frame) + 2 * sizeof(uint32_t)) +
           (size_t)machine->words_max * sizeof(uint32_t) + 5 * 64;
}

static void plan_sizes(struct grammar_machine *machine, size_t bytes)
{
    /* A state has some 60 words; a frame serves many states. */
    machine->states_max = power_of_two(bytes / 2048);
    machine->frames_max = machine->states_max;
    machine->words_max = machine->states_max * 64;
    machine->states_mask = machine->states_max * 2 - 1;
    machine->frames_mask = machine->frames_max * 2 - 1;
    machine->mask_words = (machine->vocab->count + 63) / 64;
    size_t left = bytes - 2 * space_bytes(machine);
    size_t each = machine->mask_words * sizeof(uint64_t);
    size_t masks = left / each;
    machine->masks_count = masks < 8 ? 8 : masks < MASKS_MAX ? (uint32_t)masks : MASKS_MAX;
}

static void carve_space(struct grammar_machine *machine, struct space *space, char **at)
{
    space->states = carve(at, machine->states_max * sizeof(*space->states));
    space->words = carve(at, (size_t)machine->words_max * sizeof(*space->words));
    space->frames = carve(at, machine->frames_max * sizeof(*space->frames));
    space->state_table = carve(at, ((size_t)machine->states_mask + 1) * sizeof(uint32_t));
    space->frame_table = carve(at, ((size_t)machine->frames_mask + 1) * sizeof(uint32_t));
}

static void clear_space(struct grammar_machine *machine, struct space *space)
{
    memset(space->state_table, 0, ((size_t)machine->states_mask + 1) * sizeof(uint32_t));
    memset(space->frame_table, 0, ((size_t)machine->frames_mask + 1) * sizeof(uint32_t));
    space->states_count = STATE_FIRST;
    space->frames_count = STACK_FIRST;
    space->words_used = 0;
}

int grammar_machine_new(const struct grammar_vocab *vocab, size_t bytes,
                        struct grammar_machine **ret_machine, struct errmsg *err)
{
    struct grammar_machine *machine = mem_zalloc(sizeof(*machine));
    size_t bits;

    ASSERT(bytes >= GRAMMAR_MACHINE_BYTES_MIN);
    machine->vocab = vocab;
    plan_sizes(machine, bytes);
    bits = (size_t)machine->masks_count * machine->mask_words * sizeof(uint64_t);
    machine->memory_bytes = 2 * space_bytes(machine) + bits + 64;
    if (mem_map(machine->memory_bytes, &machine->memory) < 0) {
        int r = errmsg_set(err, -ENOMEM, "states and masks of grammars: %zu bytes",
                           machine->memory_bytes);
        mem_free(machine);
        return r;
    }
    char *at = machine->memory;
    carve_space(machine, &machine->spaces[0], &at);
    carve_space(machine, &machine->spaces[1], &at);
    machine->mask_bits = carve(&at, bits);
    machine->space = &machine->spaces[0];
    clear_space(machine, machine->space);
    machine->masks = mem_calloc(machine->masks_count, sizeof(*machine->masks));
    list_init(&machine->masks_used);
    for (uint32_t i = 0; i < machine->masks_count; i++)
        list_push_back(&machine->masks_used, &machine->masks[i].link);
    machine->closure.list = mem_calloc(CLOSURE_MAX, sizeof(struct config));
    machine->closure.table = mem_calloc(CLOSURE_TABLE, sizeof(uint32_t));
    machine->closure.stamps = mem_calloc(CLOSURE_TABLE, sizeof(uint32_t));
    machine->path = mem_calloc((size_t)vocab->token_bytes_max + 1, sizeof(uint32_t));
    list_init(&machine->matchers);
    *ret_machine = machine;
    return 0;
}

void grammar_machine_free(struct grammar_machine *machine)
{
    if (machine == NULL)
        return;
    ASSERT(list_empty(&machine->matchers));
    for (uint32_t i = 0; i < machine->slots_count; i++)
        grammar_unref(machine->slots[i].grammar);
    mem_free(machine->slots);
    mem_free(machine->masks);
    mem_free(machine->closure.list);
    mem_free(machine->closure.table);
    mem_free(machine->closure.stamps);
    mem_free(machine->path);
    mem_unmap(machine->memory, machine->memory_bytes);
    mem_free(machine);
}

/* ---- stacks ---- */

static uint32_t hash_config(uint32_t a, uint32_t b, uint32_t c)
{
    uint64_t hash = a * 0x9e3779b97f4a7c15ull ^ (b * 0xc2b2ae3d27d4eb4full + 0x165667b19e3779f9ull);

    hash = (hash ^ hash >> 29) * 0xbf58476d1ce4e5b9ull + c * 0x94d049bb133111ebull;
    return (uint32_t)(hash >> 32 ^ hash >> 7);
}

int machine_push(struct grammar_machine *machine, uint32_t node, uint32_t count, uint32_t parent,
                 uint32_t *ret_stack)
{
    struct space *space = machine->space;
    uint32_t depth = parent < STACK_FIRST ? 1 : space->frames[parent].depth + 1;
    uint32_t at = hash_config(node, count, parent) & machine->frames_mask;

    for (; space->frame_table[at] != 0; at = (at + 1) & machine->frames_mask) {
        const struct frame *frame = &space->frames[space->frame_table[at]];
        if (frame->node == node && frame->count == count && frame->parent == parent) {
            *ret_stack = space->frame_table[at];
            return 0;
        }
    }
    if (depth > GRAMMAR_STACK_MAX)
        return -E2BIG;
    if (space->frames_count == machine->frames_max)
        return -ENOSPC;
    space->frames[space->frames_count] = (struct frame){node, count, parent, depth};
    *ret_stack = space->frame_table[at] = space->frames_count++;
    return 0;
}

/* ---- closure ---- */

static void closure_begin(struct closure *closure)
{
    closure->count = 0;
    closure->complete = closure->bottom = closure->overflow = false;
    if (++closure->stamp == 0) { /* once in 2^32 */
        memset(closure->stamps, 0, CLOSURE_TABLE * sizeof(uint32_t));
        closure->stamp = 1;
    }
}

static void closure_add(struct closure *closure, uint32_t node, uint32_t count, uint32_t stack)
{
    uint32_t at = hash_config(node, count, stack) & (CLOSURE_TABLE - 1);

    for (; closure->stamps[at] == closure->stamp; at = (at + 1) & (CLOSURE_TABLE - 1)) {
        const struct config *known = &closure->list[closure->table[at]];
        if (known->node == node && known->count == count && known->stack == stack)
            return;
    }
    if (closure->count == CLOSURE_MAX) {
        closure->overflow = true;
        return;
    }
    closure->stamps[at] = closure->stamp;
    closure->table[at] = closure->count;
    closure->list[closure->count++] = (struct config){node, count, stack};
}

static void closure_return(struct grammar_machine *machine, uint32_t stack)
{
    if (stack == STACK_EMPTY) {
        machine->closure.complete = true;
    } else if (stack == STACK_BOTTOM) {
        machine->closure.bottom = true;
    } else {
        const struct frame *frame = &machine->space->frames[stack];
        closure_add(&machine->closure, frame->node, frame->count, frame->parent);
    }
}

/* Into the rule; it returns to (node, count). A text that would be too deep is left out. */
static int closure_call(struct grammar_machine *machine, uint32_t start, uint32_t node,
                        uint32_t count, uint32_t stack)
{
    uint32_t pushed = 0;
    int r = machine_push(machine, node, count, stack, &pushed);

    if (r == 0)
        closure_add(&machine->closure, start, 0, pushed);
    return r == -E2BIG ? 0 : r;
}

static int closure_jump(struct grammar_machine *machine, const struct grammar_jump *jump,
                        struct config at)
{
    struct closure *closure = &machine->closure;
    uint32_t begun = at.count + 1;

    switch (jump->kind) {
    case EDGE_CALL:
        if (!jump->tail)
            return closure_call(machine, jump->start, jump->to, 0, at.stack);
        closure_add(closure, jump->start, 0, at.stack);
        return 0;
    case EDGE_COUNT:
        if (at.count >= jump->min)
            closure_add(closure, jump->to, 0, at.stack);
        if (jump->max == GRAPH_NO_MAX)
            begun = begun > jump->min ? jump->min : begun; /* no use in counting on */
        else if (at.count >= jump->max)
            return 0;
        return closure_call(machine, jump->start, at.node, begun, at.stack);
    default:
        closure_add(closure, jump->to, 0, at.stack);
        return 0;
    }
}

/* From what is in the list to the state. */
static int closure_end(struct grammar_machine *machine, uint32_t slot, uint32_t *ret_state)
{
    const struct grammar *grammar = machine_grammar(machine, slot);
    struct closure *closure = &machine->closure;
    uint32_t kept = 0;

    for (uint32_t i = 0; i < closure->count; i++) {
        const struct config at = closure->list[i];
        const struct grammar_node *node = &grammar->nodes[at.node];
        if (node->is_end)
            closure_return(machine, at.stack);
        for (uint32_t j = 0; j < node->jumps_count; j++) {
            int r = closure_jump(machine, &grammar->jumps[node->jumps_at + j], at);
            if (r < 0)
                return r;
        }
        machine->work += 1 + node->jumps_count / 16;
    }
    if (closure->overflow)
        return -E2BIG;
    for (uint32_t i = 0; i < closure->count; i++) {
        if (grammar->nodes[closure->list[i].node].steps_count > 0)
            closure->list[kept++] = closure->list[i];
    }
    uint32_t flags =
        (closure->complete ? STATE_COMPLETE : 0u) | (closure->bottom ? STATE_BOTTOM : 0u);
    return machine_intern(machine, slot, closure->list, kept, flags, ret_state);
}

/* ---- states ---- */

static int by_number(const void *a, const void *b)
{
    const struct config *x = a, *y = b;

    if (x->node != y->node)
        return x->node < y->node ? -1 : 1;
    if (x->count != y->count)
        return x->count < y->count ? -1 : 1;
    return (x->stack > y->stack) - (x->stack < y->stack);
}

/* Sorted, each once; most states have a few. */
static uint32_t sort_configs(struct config *configs, uint32_t count)
{
    uint32_t kept = 0;

    if (count > 8) {
        qsort(configs, count, sizeof(*configs), by_number);
    } else {
        for (uint32_t i = 1; i < count; i++) {
            struct config moving = configs[i];
            uint32_t to = i;
            for (; to > 0 && by_number(&configs[to - 1], &moving) > 0; to--)
                configs[to] = configs[to - 1];
            configs[to] = moving;
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        if (i == 0 || by_number(&configs[i], &configs[kept - 1]) != 0)
            configs[kept++] = configs[i];
    }
    return kept;
}

static bool is_state(const struct grammar_machine *machine, uint32_t number, uint64_t hash,
                     uint32_t slot, const struct config *configs, uint32_t count, uint32_t flags)
{
    const struct state *state = &machine->space->states[number];

    return state->hash == hash && state->slot == slot && state->configs_count == count &&
           (state->flags & (STATE_COMPLETE | STATE_BOTTOM)) == flags &&
           memcmp(state_configs(machine, state), configs, count * sizeof(*configs)) == 0;
}

int machine_intern(struct grammar_machine *machine, uint32_t slot, struct config *configs,
                   uint32_t count, uint32_t flags, uint32_t *ret_state)
{
    struct space *space = machine->space;
    uint32_t classes = machine_grammar(machine, slot)->classes_count;

    if (count == 0 && flags == 0) {
        *ret_state = STATE_DEAD;
        return 0;
    }
    count = sort_configs(configs, count);
    uint64_t hash =
        XXH3_64bits_withSeed(configs, count * sizeof(*configs), (uint64_t)slot << 8 | flags);
    uint32_t at = (uint32_t)hash & machine->states_mask;
    for (; space->state_table[at] != 0; at = (at + 1) & machine->states_mask) {
        if (is_state(machine, space->state_table[at], hash, slot, configs, count, flags)) {
            *ret_state = space->state_table[at];
            return 0;
        }
    }
    size_t words = count * CONFIG_WORDS + classes;
    if (space->states_count == machine->states_max ||
        words > machine->words_max - space->words_used)
        return -ENOSPC;
    struct state *state = &space->states[space->states_count];
    *state = (struct state){.hash = hash,
                            .slot = slot,
                            .words_at = space->words_used,
                            .configs_count = count,
                            .mask = MASK_NONE,
                            .flags = flags};
    space->words_used += (uint32_t)words;
    if (count > 0)
        memcpy(state_configs(machine, state), configs, count * sizeof(*configs));
    memset(state_next(machine, state), 0, classes * sizeof(uint32_t)); /* STATE_UNKNOWN */
    *ret_state = space->state_table[at] = space->states_count++;
    return 0;
}

int machine_start(struct grammar_machine *machine, uint32_t slot, uint32_t *ret_state)
{
    closure_begin(&machine->closure);
    closure_add(&machine->closure, machine_grammar(machine, slot)->start, 0, STACK_EMPTY);
    return closure_end(machine, slot, ret_state);
}

int machine_step(struct grammar_machine *machine, uint32_t number, uint8_t byte,
                 uint32_t *ret_state)
{
    struct state *state = &machine->space->states[number];
    const struct grammar *grammar;
    uint32_t next = STATE_DEAD;

    if (number == STATE_DEAD) {
        *ret_state = STATE_DEAD;
        return 0;
    }
    grammar = machine_grammar(machine, state->slot);
    uint8_t class = grammar->byte_class[byte];
    next = state_next(machine, state)[class];
    if (next != STATE_UNKNOWN) {
        *ret_state = next;
        return 0;
    }
    const struct config *configs = state_configs(machine, state);
    closure_begin(&machine->closure);
    machine->work += state->configs_count;
    for (uint32_t i = 0; i < state->configs_count; i++) {
        const struct grammar_node *node = &grammar->nodes[configs[i].node];
        const struct grammar_step *step = &grammar->steps[node->steps_at];
        for (const struct grammar_step *end = step + node->steps_count; step < end; step++) {
            if (byte >= step->lo && byte <= step->hi)
                closure_add(&machine->closure, step->to, 0, configs[i].stack);
        }
        machine->work += node->steps_count / 16;
    }
    int r = closure_end(machine, state->slot, &next);
    if (r < 0)
        return r;
    state_next(machine, state)[class] = next;
    *ret_state = next;
    return 0;
}

/* ---- forgetting ---- */

/* The same stack in the space in use. */
static int copy_stack(struct grammar_machine *machine, const struct space *old, uint32_t stack,
                      uint32_t *ret_stack)
{
    uint32_t frames[GRAMMAR_STACK_MAX], depth = 0;

    for (; stack >= STACK_FIRST; stack = old->frames[stack].parent)
        frames[depth++] = stack;
    while (depth > 0) {
        const struct frame *frame = &old->frames[frames[--depth]];
        int r = machine_push(machine, frame->node, frame->count, stack, &stack);
        if (r < 0)
            return r;
    }
    *ret_stack = stack;
    return 0;
}

static int copy_state(struct grammar_machine *machine, const struct space *old, uint32_t number,
                      uint32_t *ret_state)
{
    const struct state *state = &old->states[number];
    const struct config *configs =
        (const struct config *)(const void *)(old->words + state->words_at);
    struct config *list = machine->closure.list;

    for (uint32_t i = 0; i < state->configs_count; i++) {
        list[i] = configs[i];
        int r = copy_stack(machine, old, configs[i].stack, &list[i].stack);
        if (r < 0)
            return r;
    }
    return machine_intern(machine, state->slot, list, state->configs_count,
                          state->flags & (STATE_COMPLETE | STATE_BOTTOM), ret_state);
}

void machine_flush(struct grammar_machine *machine)
{
    const struct space *old = machine->space;

    machine->flushes_total++;
    machine_forget_masks(machine);
    machine->space = old == &machine->spaces[0] ? &machine->spaces[1] : &machine->spaces[0];
    clear_space(machine, machine->space);
    LIST_FOR(link, &machine->matchers)
    {
        struct grammar_matcher *matcher = LIST_ENTRY(link, struct grammar_matcher, link);
        uint32_t state = STATE_DEAD;
        if (matcher->state != STATE_DEAD && copy_state(machine, old, matcher->state, &state) < 0)
            matcher->lost = true;
        matcher->state = state;
    }
    for (uint32_t i = 0; i < machine->slots_count; i++) {
        struct slot *slot = &machine->slots[i];
        if (slot->users > 0)
            continue;
        grammar_unref(slot->grammar);
        slot->grammar = NULL;
    }
}

void grammar_machine_check(const struct grammar_machine *machine)
{
    const struct space *space = machine->space;
    uint32_t users = 0, matchers = 0;

    ASSERT(space->states_count <= machine->states_max && space->words_used <= machine->words_max);
    for (uint32_t i = STATE_FIRST; i < space->states_count; i++) {
        const struct state *state = &space->states[i];
        const struct grammar *grammar = machine_grammar(machine, state->slot);
        ASSERT(grammar != NULL);
        ASSERT(state->mask == MASK_NONE || machine->masks[state->mask].state == i);
        for (uint32_t class = 0; class < grammar->classes_count; class ++)
            ASSERT(state_next(machine, state)[class] < space->states_count);
        for (uint32_t c = 0; c < state->configs_count; c++)
            ASSERT(state_configs(machine, state)[c].stack < space->frames_count);
    }
    for (uint32_t i = 0; i < machine->slots_count; i++)
        users += machine->slots[i].users;
    LIST_FOR(link, &machine->matchers)
    {
        const struct grammar_matcher *matcher = LIST_ENTRY(link, struct grammar_matcher, link);
        ASSERT(matcher->state < space->states_count && matcher->state != STATE_UNKNOWN);
        matchers++;
    }
    ASSERT(users == matchers && matchers == machine->matchers_count);
}

void grammar_machine_counts(const struct grammar_machine *machine,
                            struct grammar_machine_counts *ret_counts)
{
    *ret_counts = (struct grammar_machine_counts){
        .masks_total = machine->masks_total,
        .masks_cold_total = machine->masks_cold_total,
        .flushes_total = machine->flushes_total,
        .matchers = machine->matchers_count,
        .states = machine->space->states_count - STATE_FIRST,
    };
}

const struct grammar_vocab *grammar_machine_vocab(const struct grammar_machine *machine)
{
    return machine->vocab;
}
