/* step_ring.c - step descriptors in shared memory, written by rank 0, read in place by the others.
 *
 *   slot   struct wire_step | ids | positions | row_first | block tables | window tables | out_row
 * | copies | tier ops | disk ops | adapters (of each sequence, or of none)
 *
 *   rank 0   wait until all are done with step n - 4 --> write slot n % 4 --> post n
 *   others   wait for n --> check every number --> use it in place --> post done n
 *
 * Why the checks: rank 0 is another process; a number it got wrong must not become an address here.
 * The counts are copied out before they are checked; the arrays stay where they are.
 * Tables are written only as wide as the longest sequence of the step needs.
 * Cost: one copy of the step on rank 0; one pass of comparisons on each follower. */
#include "worker/tp/step_ring.h"

#include <errno.h>
#include <string.h>

#include "proto/base/assert.h"
#include "worker/tp/group_private.h"

struct wire_step {
    uint64_t number;
    uint32_t kind, rows, sequences, table_stride, outputs, copies, tier_ops;
    uint32_t tables; /* enum table_bit */
    uint32_t disk_ops, reserved;
};
enum table_bit { /* which are there, in this order; adapters behind everything */
                 TABLE_FULL = 1 << 0,
                 TABLE_WINDOW = 1 << 1,
                 TABLE_ADAPTERS = 1 << 2
};
_Static_assert(sizeof(struct wire_step) == 48, "no padding");
#define COPY_ITEMS (sizeof(struct step_copy) / sizeof(uint32_t))
#define TIER_OP_ITEMS (sizeof(struct step_tier_op) / sizeof(uint32_t))
#define DISK_OP_ITEMS (sizeof(struct step_disk_op) / sizeof(uint32_t))

/* u32 items after the struct. */
static uint64_t items_of(const struct wire_step *wire)
{
    uint64_t table = (uint64_t)wire->sequences * wire->table_stride;
    uint64_t tables =
        (wire->tables & TABLE_FULL) / TABLE_FULL + (wire->tables & TABLE_WINDOW) / TABLE_WINDOW;
    return 2 * (uint64_t)wire->rows + wire->sequences + 1 + tables * table + wire->outputs +
           COPY_ITEMS * (uint64_t)wire->copies + TIER_OP_ITEMS * (uint64_t)wire->tier_ops +
           DISK_OP_ITEMS * (uint64_t)wire->disk_ops +
           (wire->tables & TABLE_ADAPTERS ? wire->sequences : 0);
}

size_t step_ring_bytes_max(const struct step_sizes *max)
{
    const struct wire_step largest = {
        .rows = max->rows,
        .sequences = max->sequences,
        .table_stride = max->table,
        .outputs = max->rows,
        .copies = max->copies,
        .tables = (max->tables > 1 ? TABLE_FULL | TABLE_WINDOW : TABLE_FULL) | TABLE_ADAPTERS,
        .tier_ops = max->tier_ops,
        .disk_ops = max->disk_ops};
    return sizeof(largest) + items_of(&largest) * sizeof(uint32_t);
}

/* --- rank 0 ---------------------------------------------------------------------------------- */

static uint32_t blocks_of(const struct step *step, uint32_t sequence)
{
    uint32_t end = step->row_first[sequence + 1];
    if (end == step->row_first[sequence])
        return 0;
    return step->position[end - 1] / KV_BLOCK_TOKENS + 1;
}

static struct wire_step describe(const struct step_descriptor *descriptor)
{
    struct wire_step wire = {.number = descriptor->number, .kind = (uint32_t)descriptor->kind};
    const struct step *step = &descriptor->step;
    if (descriptor->kind != STEP_FORWARD)
        return wire;
    wire.rows = step->rows;
    wire.sequences = step->sequences;
    wire.outputs = step->outputs;
    wire.copies = descriptor->copies_count;
    wire.tier_ops = descriptor->tier_ops_count;
    wire.tables = (step->table != NULL ? TABLE_FULL : 0u) |
                  (step->window_table != NULL ? TABLE_WINDOW : 0u) |
                  (step->adapters != NULL ? TABLE_ADAPTERS : 0u);
    wire.disk_ops = descriptor->disk_ops_count;
    for (uint32_t s = 0; s < step->sequences; s++) {
        uint32_t blocks = blocks_of(step, s);
        ASSERT(blocks <= step->table_stride);
        wire.table_stride = blocks > wire.table_stride ? blocks : wire.table_stride;
    }
    return wire;
}

static uint32_t *put(uint32_t *at, const void *items, size_t count)
{
    if (count > 0)
        memcpy(at, items, count * sizeof(*at));
    return at + count;
}

static uint32_t *put_table(uint32_t *at, const struct wire_step *wire, const struct step *step,
                           const uint32_t *table)
{
    for (uint32_t s = 0; s < wire->sequences && table != NULL; s++)
        at = put(at, table + (size_t)s * step->table_stride, wire->table_stride);
    return at;
}

static void write_slot(void *slot, const struct wire_step *wire,
                       const struct step_descriptor *descriptor)
{
    const struct step *step = &descriptor->step;
    memcpy(slot, wire, sizeof(*wire));
    uint32_t *at = (uint32_t *)((char *)slot + sizeof(*wire));
    if (wire->kind != STEP_FORWARD)
        return;
    at = put(at, step->ids, wire->rows);
    at = put(at, step->position, wire->rows);
    if (wire->sequences == 0)
        *at++ = 0;
    else
        at = put(at, step->row_first, (size_t)wire->sequences + 1);
    at = put_table(at, wire, step, step->table);
    at = put_table(at, wire, step, step->window_table);
    at = put(at, step->out_row, wire->outputs);
    at = put(at, descriptor->copies, (size_t)wire->copies * COPY_ITEMS);
    at = put(at, descriptor->tier_ops, (size_t)wire->tier_ops * TIER_OP_ITEMS);
    at = put(at, descriptor->disk_ops, (size_t)wire->disk_ops * DISK_OP_ITEMS);
    if (step->adapters != NULL)
        (void)put(at, step->adapters, wire->sequences);
}

int step_ring_publish(struct group *group, const struct step_descriptor *descriptor)
{
    ASSERT(group->rank == 0);
    ASSERT(descriptor->kind == STEP_FORWARD || descriptor->kind == STEP_STOP);
    struct wire_step wire = describe(descriptor);
    if (sizeof(wire) + items_of(&wire) * sizeof(uint32_t) > group->header->step_bytes)
        return -EMSGSIZE;
    if (group_aborted(group) != NULL)
        return -ECANCELED;
    uint32_t n = group->steps + 1;
    for (uint32_t i = 1; i < group->ranks; i++) {
        int r = group_wait(group, &group->header->rank[i].done, n - STEP_RING_SLOTS, i,
                           group->step_deadline_ms, "step ring");
        if (r < 0)
            return r;
    }
    write_slot(group_step_slot(group, n % STEP_RING_SLOTS), &wire, descriptor);
    group_post(&group->header->published, n);
    group->steps = n;
    return 0;
}

/* --- the others ------------------------------------------------------------------------------ */

static bool counts_fit(const struct wire_step *wire, uint64_t bytes_max)
{
    uint64_t items_max = bytes_max / sizeof(uint32_t);
    if (wire->rows > items_max || wire->sequences > items_max || wire->table_stride > items_max ||
        wire->outputs > items_max || wire->copies > items_max || wire->tier_ops > items_max ||
        wire->disk_ops > items_max)
        return false; /* now no product below overflows */
    return sizeof(*wire) + items_of(wire) * sizeof(uint32_t) <= bytes_max;
}

/* Blocks [first, last] of the table row that begins at `at`; no table, or 0 blocks_max: nothing is
 * known of them. */
static bool blocks_are_sound(const uint32_t *table, size_t at, uint32_t first, uint32_t last,
                             uint32_t blocks_max)
{
    for (uint32_t i = first; table != NULL && blocks_max != 0 && i <= last; i++) {
        if (table[at + i] >= blocks_max)
            return false;
    }
    return true;
}

static bool sequence_is_sound(const struct group_header *header, const struct step *step,
                              uint32_t s)
{
    uint32_t first = step->row_first[s], end = step->row_first[s + 1];
    if (first > end || end > step->rows)
        return false;
    for (uint32_t i = first; i < end; i++) {
        if (header->ids_max != 0 && step->ids[i] >= header->ids_max)
            return false;
        if (i > first && step->position[i] != step->position[i - 1] + 1)
            return false;
    }
    if (first == end)
        return true;
    uint32_t last = step->position[end - 1];
    if (last < step->position[first] || last / KV_BLOCK_TOKENS >= step->table_stride)
        return false;
    size_t at = (size_t)s * step->table_stride;
    uint32_t seen = step_first_block(step->position[first], header->window_tokens);
    return blocks_are_sound(step->table, at, 0, last / KV_BLOCK_TOKENS, header->blocks_max) &&
           blocks_are_sound(step->window_table, at, seen, last / KV_BLOCK_TOKENS,
                            header->window_blocks_max);
}

static bool copy_is_sound(const struct group_header *header, const struct step_copy *copy)
{
    uint32_t blocks_max = copy->window != 0 ? header->window_blocks_max : header->blocks_max;
    if (copy->tokens > KV_BLOCK_TOKENS || copy->window > 1)
        return false;
    return blocks_max == 0 || (copy->from < blocks_max && copy->to < blocks_max);
}

static bool tier_op_is_sound(const struct group_header *header, const struct step_tier_op *op)
{
    if (op->kind != STEP_TIER_STORE && op->kind != STEP_TIER_LOAD)
        return false;
    return op->slot < header->tier_slots && op->block < header->blocks_max;
}

static bool disk_op_is_sound(const struct group_header *header, const struct step_disk_op *op)
{
    if (op->kind < STEP_DISK_WRITE || op->kind > STEP_DISK_CLEAR)
        return false;
    bool needs_buffer = op->kind == STEP_DISK_WRITE || op->kind == STEP_DISK_READ;
    return op->tokens <= KV_BLOCK_TOKENS && (!needs_buffer || op->tokens > 0) &&
           op->token < header->tier_buffers + (needs_buffer ? 0 : 1) && header->tier_buffers > 0;
}

static bool step_is_sound(const struct group_header *header,
                          const struct step_descriptor *descriptor)
{
    const struct step *step = &descriptor->step;
    if (step->row_first[0] != 0 || step->row_first[step->sequences] != step->rows ||
        step->outputs > step->rows)
        return false;
    if (step->sequences > 0 && ((step->table == NULL && header->blocks_max != 0) ||
                                (step->window_table != NULL) != (header->window_blocks_max != 0)))
        return false;
    for (uint32_t s = 0; s < step->sequences; s++) {
        if (!sequence_is_sound(header, step, s))
            return false;
    }
    for (uint32_t s = 0; s < step->sequences && step->adapters != NULL; s++) {
        if (step->adapters[s] > header->adapter_slots)
            return false;
    }
    for (uint32_t i = 0; i < step->outputs; i++) {
        if (step->out_row[i] >= step->rows || (i > 0 && step->out_row[i] <= step->out_row[i - 1]))
            return false;
    }
    for (uint32_t i = 0; i < descriptor->copies_count; i++) {
        if (!copy_is_sound(header, &descriptor->copies[i]))
            return false;
    }
    for (uint32_t i = 0; i < descriptor->tier_ops_count; i++) {
        if (!tier_op_is_sound(header, &descriptor->tier_ops[i]))
            return false;
    }
    for (uint32_t i = 0; i < descriptor->disk_ops_count; i++) {
        if (!disk_op_is_sound(header, &descriptor->disk_ops[i]))
            return false;
    }
    return true;
}

static struct step_descriptor view_of(const void *slot, const struct wire_step *wire)
{
    const uint32_t *ids = (const uint32_t *)((const char *)slot + sizeof(*wire));
    const uint32_t *position = ids + wire->rows;
    const uint32_t *row_first = position + wire->rows;
    const uint32_t *table = row_first + wire->sequences + 1;
    const size_t table_items = (size_t)wire->sequences * wire->table_stride;
    const uint32_t *window_table = table + (wire->tables & TABLE_FULL ? table_items : 0);
    const uint32_t *out_row = window_table + (wire->tables & TABLE_WINDOW ? table_items : 0);
    const uint32_t *copies = out_row + wire->outputs;
    const uint32_t *tier_ops = copies + COPY_ITEMS * (size_t)wire->copies;
    const uint32_t *disk_ops = tier_ops + TIER_OP_ITEMS * (size_t)wire->tier_ops;
    const uint32_t *adapters = disk_ops + DISK_OP_ITEMS * (size_t)wire->disk_ops;
    return (struct step_descriptor){
        .kind = STEP_FORWARD,
        .number = wire->number,
        .step = {.rows = wire->rows,
                 .sequences = wire->sequences,
                 .ids = ids,
                 .position = position,
                 .row_first = row_first,
                 .table = wire->tables & TABLE_FULL ? table : NULL,
                 .window_table = wire->tables & TABLE_WINDOW ? window_table : NULL,
                 .table_stride = wire->table_stride,
                 .out_row = out_row,
                 .outputs = wire->outputs,
                 .adapters = wire->tables & TABLE_ADAPTERS ? adapters : NULL},
        .copies = (const struct step_copy *)copies,
        .copies_count = wire->copies,
        .tier_ops = (const struct step_tier_op *)tier_ops,
        .tier_ops_count = wire->tier_ops,
        .disk_ops = (const struct step_disk_op *)disk_ops,
        .disk_ops_count = wire->disk_ops,
    };
}

static int read_slot(struct group *group, const void *slot, struct step_descriptor *ret_descriptor)
{
    struct wire_step wire;
    memcpy(&wire, slot, sizeof(wire));
    if (group->steps > 0 && wire.number != group->step_number + 1)
        return -EPROTO;
    if (wire.kind == STEP_STOP) {
        *ret_descriptor = (struct step_descriptor){.kind = STEP_STOP, .number = wire.number};
        return 0;
    }
    if (wire.kind != STEP_FORWARD || wire.tables > (TABLE_FULL | TABLE_WINDOW | TABLE_ADAPTERS) ||
        !counts_fit(&wire, group->header->step_bytes))
        return -EPROTO;
    struct step_descriptor descriptor = view_of(slot, &wire);
    if (!step_is_sound(group->header, &descriptor))
        return -EPROTO;
    *ret_descriptor = descriptor;
    return 0;
}

int step_ring_wait(struct group *group, struct step_descriptor *ret_descriptor)
{
    ASSERT(group->rank > 0);
    uint32_t n = group->steps + 1;
    int r = group_wait(group, &group->header->published, n, 0, GROUP_NO_DEADLINE, "step ring");
    if (r < 0)
        return r;
    r = read_slot(group, group_step_slot(group, n % STEP_RING_SLOTS), ret_descriptor);
    if (r < 0) {
        group_abort(group, "a step descriptor has numbers out of range");
        return r;
    }
    group->steps = n;
    group->step_number = ret_descriptor->number;
    return 0;
}

void step_ring_done(struct group *group)
{
    ASSERT(group->rank > 0);
    group_post(&group->header->rank[group->rank].done, group->steps);
}
