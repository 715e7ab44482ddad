/* lora.c - shapes of a rank's slots, and adapters into them.
 *
 * Fused modules (qkv, gate_up) become the terms that plain ones would be, with the same a: a rank's
 * rows of q, k and v are not neighbours in them.
 * GGUFs of the Llama kin hold q and k rows permuted for pairs (2i, 2i + 1); adapters come from the
 * model as it was before, so rows of b are turned in the same way.
 * Cost: slots * sum over matrices of (inputs + outputs) * rank floats, page-faulted when filled. */
#include "worker/lora/lora.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"

#define PARTS (ADAPTER_DOWN + 1u) /* what a fused module becomes, too */
#define SLOT_UNIT 1024u           /* floats: a page */

/* A rank's slice of one matrix pair, and where it lies in a slot. */
struct part {
    uint32_t inputs, outputs; /* 0: this rank has nothing of it */
    size_t a, b;              /* floats from the slot's start */
};

struct lora {
    const struct model_config *config;
    struct shard shard;
    struct lora_limits limits;
    struct part *parts; /* [layers][PARTS] */
    size_t slot_floats;
    float *memory;
    void *own; /* what was allocated here, or NULL */
};

static const struct {
    uint32_t first, count;
} sites[LORA_SITES] = {
    [LORA_QKV] = {ADAPTER_Q, 3},
    [LORA_OUTPUT] = {ADAPTER_OUTPUT, 1},
    [LORA_GATE_UP] = {ADAPTER_GATE, 2},
    [LORA_DOWN] = {ADAPTER_DOWN, 1},
};

/* --- layout ---------------------------------------------------------------------------------- */

/* The module that holds a part in this model: itself, or the fused one. */
static enum adapter_module module_of(const struct model_config *c, uint32_t part)
{
    if (part <= ADAPTER_V && model_has(c, MODEL_FUSED_QKV))
        return ADAPTER_QKV;
    if ((part == ADAPTER_GATE || part == ADAPTER_UP) && model_has(c, MODEL_FUSED_GATE_UP))
        return ADAPTER_GATE_UP;
    return (enum adapter_module)part;
}

static struct part shape_of(const struct model_config *c, const struct shard *s, uint32_t layer,
                            uint32_t part)
{
    uint32_t inputs = 0, outputs = 0;
    if (!adapter_module_shape(c, module_of(c, part), layer, &inputs, &outputs))
        return (struct part){0};
    const uint32_t columns[PARTS] = {[ADAPTER_Q] = s->q_count * c->head_dim,
                                     [ADAPTER_K] = s->kv_count * c->head_dim,
                                     [ADAPTER_V] = s->kv_count * c->head_dim,
                                     [ADAPTER_OUTPUT] = c->hidden,
                                     [ADAPTER_GATE] = s->ffn_count,
                                     [ADAPTER_UP] = s->ffn_count,
                                     [ADAPTER_DOWN] = c->hidden};
    if (part == ADAPTER_OUTPUT)
        inputs = s->q_count * c->value_dim;
    else if (part == ADAPTER_DOWN)
        inputs = s->ffn_count;
    if (inputs == 0 || columns[part] == 0)
        return (struct part){0};
    return (struct part){.inputs = inputs, .outputs = columns[part]};
}

static size_t head_floats(const struct model_config *c)
{
    return ((size_t)c->layers * PARTS + LORA_PANEL - 1) / LORA_PANEL * LORA_PANEL;
}

/* Floats of a slot; fills `parts` [layers][PARTS] unless it is NULL. */
static size_t lay_out(const struct model_config *c, const struct shard *shard, uint32_t rank,
                      struct part *parts)
{
    size_t at = head_floats(c);
    for (uint32_t layer = 0; layer < c->layers; layer++) {
        for (uint32_t i = 0; i < PARTS; i++) {
            struct part part = shape_of(c, shard, layer, i);
            if (part.outputs > 0) {
                part.a = at;
                part.b = at + (size_t)lora_padded(rank) * part.inputs;
                at = part.b + (size_t)lora_padded(part.outputs) * rank;
                at = (at + LORA_PANEL - 1) / LORA_PANEL * LORA_PANEL;
            }
            if (parts != NULL)
                parts[(size_t)layer * PARTS + i] = part;
        }
    }
    return (at + SLOT_UNIT - 1) / SLOT_UNIT * SLOT_UNIT;
}

size_t lora_bytes(const struct model_config *config, const struct shard *shard,
                  const struct lora_limits *limits)
{
    return limits->slots * lay_out(config, shard, limits->rank, NULL) * sizeof(float);
}

int lora_new(const struct model_config *config, const struct shard *shard,
             const struct lora_limits *limits, void *memory, struct lora **ret_lora,
             struct errmsg *err)
{
    size_t bytes = lora_bytes(config, shard, limits);
    void *own = NULL;
    ASSERT(limits->slots > 0 && limits->slots <= LORA_SLOTS_MAX);
    ASSERT(limits->rank > 0 && limits->rank <= LORA_RANK_MAX);
    if (memory == NULL && mem_map(bytes, &own) < 0)
        return errmsg_set(err, -ENOMEM, "no memory for %u adapters of rank %u: %zu bytes",
                          limits->slots, limits->rank, bytes);
    struct lora *lora = mem_zalloc(sizeof(*lora));
    lora->config = config;
    lora->shard = *shard;
    lora->limits = *limits;
    lora->parts = mem_calloc((size_t)config->layers * PARTS, sizeof(*lora->parts));
    lora->slot_floats = lay_out(config, shard, limits->rank, lora->parts);
    lora->memory = memory != NULL ? memory : own;
    lora->own = own;
    *ret_lora = lora;
    return 0;
}

void lora_free(struct lora *lora)
{
    if (lora == NULL)
        return;
    if (lora->own != NULL)
        mem_unmap(lora->own, lora_bytes(lora->config, &lora->shard, &lora->limits));
    mem_free(lora->parts);
    mem_free(lora);
}

uint32_t lora_slots(const struct lora *lora)
{
    return lora->limits.slots;
}

uint32_t lora_low_columns(const struct lora *lora)
{
    return LORA_TERMS_MAX * lora_padded(lora->limits.rank);
}

static float *slot_of(const struct lora *lora, uint32_t slot)
{
    ASSERT(slot < lora->limits.slots);
    return lora->memory + slot * lora->slot_floats;
}

/* --- filling --------------------------------------------------------------------------------- */

/* Rows and columns of a stored matrix that become panels. */
struct slice {
    const struct safetensor *tensor;
    uint32_t row, rows, column, columns;
    uint32_t head_dim; /* rows are turned head by head for pairs (2i, 2i + 1); 0: they are not */
    float factor;
};

/* Where row i of the slice is stored, from slice.row on. */
static uint32_t stored_row(const struct slice *slice, uint32_t i)
{
    uint32_t dim = slice->head_dim;
    return dim == 0 ? i : i / dim * dim + i % 2 * (dim / 2) + i % dim / 2;
}

/* `values`: room for a stored row. false: a value is not finite. */
static bool pack(const struct slice *slice, float *values, float *panels)
{
    const struct safetensor *tensor = slice->tensor;
    uint32_t stored = (uint32_t)tensor->dims[1];
    size_t row_bytes = tensor->bytes / tensor->dims[0];
    memset(panels, 0, (size_t)lora_padded(slice->rows) * slice->columns * sizeof(float));
    for (uint32_t i = 0; i < slice->rows; i++) {
        size_t row = slice->row + stored_row(slice, i);
        float *to =
            panels + (size_t)(i / LORA_PANEL) * LORA_PANEL * slice->columns + i % LORA_PANEL;
        dtype_to_f32(tensor->dtype, (const char *)tensor->data + row * row_bytes, values, stored);
        for (uint32_t k = 0; k < slice->columns; k++) {
            float value = values[slice->column + k] * slice->factor;
            if (!isfinite(value))
                return false;
            to[(size_t)k * LORA_PANEL] = value;
        }
    }
    return true;
}

/* First row of a part's slice in the module that holds it. */
static uint32_t first_row(const struct lora *lora, uint32_t part)
{
    const struct model_config *c = lora->config;
    const struct shard *s = &lora->shard;
    uint32_t dim = c->head_dim, q = c->q_heads * dim, kv = c->kv_heads * dim;
    bool fused_qkv = model_has(c, MODEL_FUSED_QKV);
    bool fused_ffn = model_has(c, MODEL_FUSED_GATE_UP);
    switch (part) {
    case ADAPTER_Q:
        return s->q_first * dim;
    case ADAPTER_K:
        return (fused_qkv ? q : 0) + s->kv_first * dim;
    case ADAPTER_V:
        return (fused_qkv ? q + kv : 0) + s->kv_first * dim;
    case ADAPTER_GATE:
        return s->ffn_first;
    case ADAPTER_UP:
        return (fused_ffn ? c->ffn : 0) + s->ffn_first;
    default:
        return 0;
    }
}

static int fill_part(const struct lora *lora, float *slot, uint32_t index,
                     const struct adapter_pair *pair, float *values, struct errmsg *err)
{
    const struct model_config *c = lora->config;
    const struct shard *s = &lora->shard;
    const struct part *part = &lora->parts[index];
    uint32_t which = index % PARTS;
    bool turned = c->from_gguf && model_has(c, MODEL_INTERLEAVED) && which <= ADAPTER_K;
    const struct slice a = {.tensor = pair->a,
                            .rows = pair->rank,
                            .column = which == ADAPTER_OUTPUT ? s->q_first * c->value_dim
                                      : which == ADAPTER_DOWN ? s->ffn_first
                                                              : 0,
                            .columns = part->inputs,
                            .factor = 1};
    const struct slice b = {.tensor = pair->b,
                            .row = first_row(lora, which),
                            .rows = part->outputs,
                            .columns = pair->rank,
                            .head_dim = turned ? c->head_dim : 0,
                            .factor = pair->factor};
    if (!pack(&a, values, slot + part->a))
        return errmsg_set(err, -EINVAL, "tensor '%.100s' holds a value that is not finite",
                          pair->a->name);
    if (!pack(&b, values, slot + part->b))
        return errmsg_set(err, -EINVAL, "tensor '%.100s' holds a value that is not finite",
                          pair->b->name);
    ((uint32_t *)(void *)slot)[index] = pair->rank;
    return 0;
}

int lora_fill(struct lora *lora, uint32_t slot, const struct adapter *adapter, struct errmsg *err)
{
    const struct model_config *c = lora->config;
    float *to = slot_of(lora, slot);
    uint32_t widest = c->hidden > c->ffn ? c->hidden : c->ffn;
    int r = 0;
    if (adapter->rank_max > lora->limits.rank)
        return errmsg_set(err, -EINVAL, "its rank is %u; --max-lora-rank is %u", adapter->rank_max,
                          lora->limits.rank);
    if (c->q_heads * c->head_dim > widest)
        widest = c->q_heads * c->head_dim;
    float *values = mem_calloc(widest + LORA_RANK_MAX, sizeof(*values));
    memset(to, 0, head_floats(c) * sizeof(float));
    for (uint32_t index = 0; index < c->layers * PARTS && r == 0; index++) {
        const struct adapter_pair *pair =
            adapter_pair(adapter, index / PARTS, module_of(c, index % PARTS));
        if (pair->a != NULL && lora->parts[index].outputs > 0)
            r = fill_part(lora, to, index, pair, values, err);
    }
    if (r < 0)
        memset(to, 0, head_floats(c) * sizeof(float));
    mem_free(values);
    return r;
}

/* --- reading --------------------------------------------------------------------------------- */

uint32_t lora_terms(const struct lora *lora, uint32_t slot, uint32_t layer, enum lora_site site,
                    struct lora_term *ret_terms)
{
    const float *base = slot_of(lora, slot);
    const uint32_t *ranks = (const uint32_t *)(const void *)base;
    uint32_t terms = 0, first = 0;
    for (uint32_t i = sites[site].first; i < sites[site].first + sites[site].count; i++) {
        size_t index = (size_t)layer * PARTS + i;
        const struct part *part = &lora->parts[index];
        uint32_t rank = ranks[index];
        ASSERT(rank <= lora->limits.rank); /* it stands in memory of rank 0, too */
        if (rank > 0 && part->outputs > 0)
            ret_terms[terms++] = (struct lora_term){.a = base + part->a,
                                                    .b = base + part->b,
                                                    .rank = rank,
                                                    .first = first,
                                                    .columns = part->outputs};
        first += part->outputs;
    }
    return terms;
}
