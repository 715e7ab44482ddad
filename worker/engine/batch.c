/* batch.c - plan entries laid end to end.
 *
 * The block table of a step is [sequences, stride] with stride = the longest table in this step, so
 * that a step of short chats copies little; what lies behind a sequence's own blocks is never read.
 * Invariant: a row's position has its block in the table (asserted). */
#include "worker/engine/batch.h"

#include <errno.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "worker/kv/window_blocks.h"

int batch_init(struct batch *batch, uint32_t rows_max, uint32_t sequences_max, uint32_t table_max,
               struct errmsg *err)
{
    void *table = NULL;
    size_t table_bytes = (size_t)sequences_max * table_max * sizeof(uint32_t);
    if (mem_map(table_bytes, &table) < 0)
        return errmsg_set(err, -ENOMEM, "block tables of a step: %zu bytes", table_bytes);
    *batch =
        (struct batch){.ids = mem_calloc(rows_max, sizeof(uint32_t)),
                       .position = mem_calloc(rows_max, sizeof(uint32_t)),
                       .row_first = mem_calloc(sequences_max + 1, sizeof(uint32_t)),
                       .table = table,
                       .adapters = mem_calloc(sequences_max, sizeof(uint32_t)),
                       .out_row = mem_calloc(sequences_max + SCORED_ROWS_MAX, sizeof(uint32_t)),
                       .copies = mem_calloc(2 * (size_t)sequences_max, sizeof(struct step_copy)),
                       .out_entry = mem_calloc(sequences_max + SCORED_ROWS_MAX, sizeof(uint32_t)),
                       .out_score = mem_calloc(sequences_max + SCORED_ROWS_MAX, sizeof(bool)),
                       .rows_max = rows_max,
                       .sequences_max = sequences_max,
                       .table_max = table_max,
                       .full = true};
    return 0;
}

int batch_add_windows(struct batch *batch, const struct block_pool *pool, bool all,
                      struct errmsg *err)
{
    void *table = NULL;
    size_t table_bytes = (size_t)batch->sequences_max * batch->table_max * sizeof(uint32_t);
    if (mem_map(table_bytes, &table) < 0)
        return errmsg_set(err, -ENOMEM, "window tables of a step: %zu bytes", table_bytes);
    batch->window_table = table;
    batch->windows = pool;
    batch->full = !all;
    return 0;
}

void batch_done(struct batch *batch)
{
    mem_free(batch->ids);
    mem_free(batch->position);
    mem_free(batch->row_first);
    if (batch->table != NULL)
        mem_unmap(batch->table, (size_t)batch->sequences_max * batch->table_max * sizeof(uint32_t));
    if (batch->window_table != NULL)
        mem_unmap(batch->window_table,
                  (size_t)batch->sequences_max * batch->table_max * sizeof(uint32_t));
    mem_free(batch->adapters);
    mem_free(batch->out_row);
    mem_free(batch->copies);
    mem_free(batch->out_entry);
    mem_free(batch->out_score);
    memset(batch, 0, sizeof(*batch));
}

/* Blocks that hold positions 0..last of an entry. */
static uint32_t entry_blocks(const struct plan_entry *entry)
{
    return (entry->first_position + entry->rows + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
}

static void point_at_arrays(struct batch *batch, uint32_t rows, uint32_t sequences,
                            uint32_t outputs, uint32_t stride, uint32_t copies)
{
    batch->descriptor.kind = STEP_FORWARD;
    batch->descriptor.number++;
    batch->descriptor.step = (struct step){.rows = rows,
                                           .sequences = sequences,
                                           .ids = batch->ids,
                                           .position = batch->position,
                                           .row_first = batch->row_first,
                                           .table = batch->full ? batch->table : NULL,
                                           .window_table = batch->window_table,
                                           .table_stride = stride,
                                           .out_row = batch->out_row,
                                           .outputs = outputs};
    batch->descriptor.copies = batch->copies;
    batch->descriptor.copies_count = copies;
}

uint32_t batch_prefill_rows(const struct step_plan *plan)
{
    uint32_t rows = 0;
    for (uint32_t s = 0; s < plan->entries_count; s++)
        rows += plan->entries[s].rows > 1 ? plan->entries[s].rows : 0;
    return rows;
}

/* Rows of logits that the entry in place `s`, which begins at `row`, wants. */
static void add_outputs(struct batch *batch, const struct plan_entry *entry, uint32_t s,
                        uint32_t row, uint32_t *outputs)
{
    for (uint32_t i = 0; i < entry->score_rows; i++) {
        batch->out_entry[*outputs] = s;
        batch->out_score[*outputs] = true;
        batch->out_row[(*outputs)++] = row + entry->score_first + i;
    }
    if (!entry->want_token)
        return;
    batch->out_entry[*outputs] = s;
    batch->out_score[*outputs] = false;
    batch->out_row[(*outputs)++] = row + entry->rows - 1;
}

/* Window blocks of the entry's row of the table; what its rows do not see names no block. */
static void fill_windows(struct batch *batch, const struct plan_entry *entry, uint32_t *table,
                         uint32_t stride)
{
    const struct block_table *blocks = &entry->sequence->table;
    uint32_t end = entry_blocks(entry);
    ASSERT(blocks->window_first <=
           window_first_block(window_tokens(batch->windows), entry->first_position));
    ASSERT(end <= blocks->window_end);
    for (uint32_t i = 0; i < stride; i++)
        table[i] = i >= blocks->window_first && i < end
                       ? window_of_block(batch->windows, blocks->ids[i])
                       : BLOCK_NONE;
}

static uint32_t add_copies(struct batch *batch, const struct step_plan *plan)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < plan->copies_count; i++) {
        const struct plan_copy *copy = &plan->copies[i];
        if (batch->full)
            batch->copies[count++] = (struct step_copy){copy->from, copy->to, copy->tokens, 0};
        if (batch->windows != NULL)
            batch->copies[count++] =
                (struct step_copy){copy->window_from, copy->window_to, copy->tokens, 1};
    }
    return count;
}

/* Which adapter each sequence wants; none at all costs the ranks nothing. */
static void add_adapters(struct batch *batch, const struct step_plan *plan)
{
    uint32_t any = 0;
    for (uint32_t s = 0; s < plan->entries_count; s++) {
        batch->adapters[s] = adapter_slot(plan->entries[s].sequence->params.adapter);
        any |= batch->adapters[s];
    }
    batch->descriptor.step.adapters = any != 0 ? batch->adapters : NULL;
}

void batch_build(struct batch *batch, const struct step_plan *plan)
{
    uint32_t rows = 0, outputs = 0, stride = 1;
    ASSERT(plan->scored_rows <= SCORED_ROWS_MAX);
    ASSERT(plan->rows <= batch->rows_max);
    ASSERT(plan->entries_count <= batch->sequences_max);
    ASSERT(plan->copies_count <= batch->sequences_max);

    for (uint32_t s = 0; s < plan->entries_count; s++)
        stride =
            entry_blocks(&plan->entries[s]) > stride ? entry_blocks(&plan->entries[s]) : stride;
    ASSERT(stride <= batch->table_max);
    for (uint32_t s = 0; s < plan->entries_count; s++) {
        const struct plan_entry *entry = &plan->entries[s];
        const struct sequence *seq = entry->sequence;
        ASSERT(entry->rows > 0 && entry->first_position + entry->rows <= seq->ids_count);
        ASSERT(entry_blocks(entry) <= seq->table.count);
        batch->row_first[s] = rows;
        memcpy(batch->ids + rows, seq->ids + entry->first_position, entry->rows * sizeof(uint32_t));
        for (uint32_t i = 0; i < entry->rows; i++)
            batch->position[rows + i] = entry->first_position + i;
        memcpy(batch->table + (size_t)s * stride, seq->table.ids,
               entry_blocks(entry) * sizeof(uint32_t));
        memset(batch->table + (size_t)s * stride + entry_blocks(entry), 0,
               (stride - entry_blocks(entry)) * sizeof(uint32_t));
        if (batch->windows != NULL)
            fill_windows(batch, entry, batch->window_table + (size_t)s * stride, stride);
        add_outputs(batch, entry, s, rows, &outputs);
        rows += entry->rows;
    }
    ASSERT(rows == plan->rows);
    batch->row_first[plan->entries_count] = rows;
    point_at_arrays(batch, rows, plan->entries_count, outputs, stride, add_copies(batch, plan));
    add_adapters(batch, plan);
}

void batch_build_warm_up(struct batch *batch, uint32_t rows)
{
    uint32_t blocks = (rows + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
    ASSERT(rows > 0 && rows <= batch->rows_max && blocks <= batch->table_max);
    memset(batch->ids, 0, rows * sizeof(uint32_t));
    for (uint32_t i = 0; i < rows; i++)
        batch->position[i] = i;
    for (uint32_t i = 0; i < blocks; i++)
        batch->table[i] = i;
    if (batch->windows != NULL)
        memcpy(batch->window_table, batch->table, blocks * sizeof(uint32_t));
    batch->row_first[0] = 0;
    batch->row_first[1] = rows;
    batch->out_row[0] = rows - 1;
    batch->out_score[0] = false;
    point_at_arrays(batch, rows, 1, 1, blocks, 0);
}
