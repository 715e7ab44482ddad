/* attention.c - op_attention cut into units: (sequence, KV head, tile of positions).
 *
 *   plan    units of at most 48 rows (positions x query heads of one KV head), so that a tile of
 *           KV is loaded once for all of them; few units with a long context are cut again, into
 *           partitions of 512 tokens, whose partial results meet in `partials`
 *   order   most work first (by powers of sqrt 2), so that no thread starts a long one last
 *   run     attend over the pool; then the merges of what was cut
 *
 * Why cutting changes no bit: attend goes through the same partitions when it is not cut. */
#include "kernels/cpu/cpu.h"
#include "proto/base/assert.h"

#define BUCKETS 128 /* 2 per power of two */
#define UNITS_PER_THREAD 4

struct plan {
    struct attention attention;
    attend_fn attend, attend_merge;
    struct cpu_state *state;
    uint32_t units, merges;
    size_t partial_floats; /* used */
    bool may_split;
    const struct heads *heads;
};

static unsigned bucket_of(const struct attention_unit *unit)
{
    uint64_t tokens = (uint64_t)unit->partitions * ATTENTION_PARTITION;
    uint64_t context = (uint64_t)unit->position + unit->positions;
    uint64_t cost = (context < tokens ? context : tokens) * unit->positions * unit->heads;
    unsigned log = 63 - (unsigned)__builtin_clzll(cost | 1);
    unsigned half = log > 0 ? (unsigned)(cost >> (log - 1) & 1) : 0;
    return BUCKETS - 1 - (2 * log + half); /* most work in bucket 0 */
}

/* Counting sort, stable: neighbours in the plan share KV and stay neighbours. */
static void sort_units(struct cpu_state *state, uint32_t units)
{
    uint32_t start[BUCKETS + 1] = {0};
    for (uint32_t i = 0; i < units; i++)
        start[bucket_of(&state->units[i]) + 1]++;
    for (unsigned bucket = 0; bucket < BUCKETS; bucket++)
        start[bucket + 1] += start[bucket];
    for (uint32_t i = 0; i < units; i++)
        state->ordered[start[bucket_of(&state->units[i])]++] = state->units[i];
}

static void attend_piece(void *context, uint32_t piece, unsigned thread)
{
    const struct plan *plan = context;
    plan->attend(&plan->attention, &plan->state->ordered[piece],
                 plan->state->thread_scratch + thread * attention_scratch_floats(HEAD_DIM_MAX));
}

static void merge_piece(void *context, uint32_t piece, unsigned thread)
{
    const struct plan *plan = context;
    plan->attend_merge(&plan->attention, &plan->state->merges[piece],
                       plan->state->thread_scratch +
                           thread * attention_scratch_floats(HEAD_DIM_MAX));
}

/* Run what was planned so far. */
static void flush(struct plan *plan)
{
    sort_units(plan->state, plan->units);
    thread_pool_run(plan->state->pool, attend_piece, plan, plan->units);
    thread_pool_run(plan->state->pool, merge_piece, plan, plan->merges);
    plan->units = 0;
    plan->merges = 0;
    plan->partial_floats = 0;
}

static void add_unit(struct plan *plan, const struct attention_unit *unit)
{
    if (plan->units == ATTENTION_UNITS)
        flush(plan);
    plan->state->units[plan->units++] = *unit;
}

/* One unit, or one per partition and a merge. */
static void plan_unit(struct plan *plan, struct attention_unit unit)
{
    uint32_t window = plan->attention.window, partitions;
    uint32_t last = unit.position + unit.positions - 1;
    uint32_t seen = window > 0 && unit.position >= window ? unit.position - window + 1 : 0;
    unit.partition = seen / ATTENTION_PARTITION;
    unit.partitions = partitions = last / ATTENTION_PARTITION + 1 - unit.partition;

    size_t rows = (size_t)unit.positions * unit.heads;
    size_t floats = rows * (attention_row_floats(plan->attention.head_dim) + 2);
    if (!plan->may_split || partitions < 2 || plan->units + partitions > ATTENTION_UNITS ||
        plan->partial_floats + floats * partitions > ATTENTION_PARTIALS) {
        add_unit(plan, &unit);
        return;
    }
    unit.partial = plan->state->partials + plan->partial_floats;
    plan->partial_floats += floats * partitions;
    plan->state->merges[plan->merges++] = unit;
    unit.partitions = 1;
    for (uint32_t p = 0; p < partitions; p++) {
        add_unit(plan, &unit);
        unit.partition++;
        unit.partial += floats;
    }
}

/* Local query heads of a KV head: [first, end). */
static uint32_t first_q_head(const struct heads *heads, uint32_t kv_head)
{
    uint32_t global = kv_head * heads->group;
    uint32_t local = global > heads->q_offset ? global - heads->q_offset : 0;
    return local < heads->q_heads ? local : heads->q_heads;
}

/* Rows [row, end) of one sequence, all heads; unit.table is set. */
static void plan_rows(struct plan *plan, const struct tensor *out, const struct tensor *qkv,
                      const struct step *step, uint32_t row, uint32_t end, const uint32_t *table)
{
    const struct heads *heads = plan->heads;
    for (uint32_t h = 0; h < heads->kv_heads; h++) {
        uint32_t last = first_q_head(heads, h + 1), count;
        for (uint32_t q = first_q_head(heads, h); q < last; q += count) {
            count = last - q < ATTENTION_ROWS ? last - q : ATTENTION_ROWS;
            uint32_t tile = ATTENTION_ROWS / count;
            for (uint32_t r = row; r < end; r += tile) {
                size_t column = (size_t)q * heads->head_dim;
                plan_unit(plan, (struct attention_unit){
                                    .q = qkv->data + (size_t)r * qkv->stride + column,
                                    .out = out->data + (size_t)r * out->stride + column,
                                    .q_stride = qkv->stride,
                                    .out_stride = out->stride,
                                    .table = table,
                                    .position = step->position[r],
                                    .positions = (uint16_t)(end - r < tile ? end - r : tile),
                                    .heads = (uint16_t)count,
                                    .kv_head = h,
                                });
            }
        }
    }
}

void cpu_attention(struct backend *b, struct tensor *out, const struct tensor *qkv,
                   const struct heads *heads, const struct kv_pool *kv, uint32_t layer,
                   const struct step *step, const struct attention_rule *rule)
{
    struct plan plan = {
        .attention =
            {
                .tiles = cpu_kv_tiles(kv),
                .first_head = layer * heads->kv_heads,
                .head_dim = heads->head_dim,
                .window = rule->window,
                .scale = rule->scale,
                .softcap = rule->softcap,
            },
        .attend = cpu_state(b)->family->attend[kv->dtype],
        .attend_merge = cpu_state(b)->family->attend_merge[kv->dtype],
        .state = cpu_state(b),
        .heads = heads,
    };
    uint32_t tile = heads->group < ATTENTION_ROWS ? ATTENTION_ROWS / heads->group : 1;
    uint64_t units = ((uint64_t)step->rows / tile + step->sequences) * heads->kv_heads;
    plan.may_split = b->threads > 1 && units < (uint64_t)b->threads * UNITS_PER_THREAD;
    for (uint32_t s = 0; s < step->sequences; s++)
        plan_rows(&plan, out, qkv, step, step->row_first[s], step->row_first[s + 1],
                  step->table + (size_t)s * step->table_stride);
    flush(&plan);
}
