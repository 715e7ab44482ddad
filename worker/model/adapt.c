/* adapt.c - which rows of a step want which adapter, and their terms at each site of a layer.
 *
 *   once a step    rows sorted by slot: a list of rows per adapter
 *   at each site   y[rows] += b (a x[rows]), behind the base's product and before bias and
 * all-reduce
 *
 * A step without adapters costs one comparison per site. */
#include <errno.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "worker/model/decoder_private.h"

struct decoder_adapters {
    const struct lora *lora;
    float *low; /* [rows_max, lora_low_columns] */
    size_t low_bytes;
    uint32_t *rows; /* [rows_max], adapter by adapter */
    struct lora_group groups[LORA_SLOTS_MAX];
    uint32_t slots[LORA_SLOTS_MAX]; /* of the groups */
    uint32_t count;                 /* groups in this step */
};

int decoder_adapters_new(const struct lora *lora, uint32_t rows_max,
                         struct decoder_adapters **ret_adapters, struct errmsg *err)
{
    size_t bytes = (size_t)rows_max * lora_low_columns(lora) * sizeof(float);
    void *low = NULL;
    if (mem_map(bytes, &low) < 0)
        return errmsg_set(err, -ENOMEM, "no memory for %zu bytes of adapters' activations", bytes);
    struct decoder_adapters *adapters = mem_zalloc(sizeof(*adapters));
    adapters->lora = lora;
    adapters->low = low;
    adapters->low_bytes = bytes;
    adapters->rows = mem_calloc(rows_max, sizeof(*adapters->rows));
    *ret_adapters = adapters;
    return 0;
}

void decoder_adapters_free(struct decoder_adapters *adapters)
{
    if (adapters == NULL)
        return;
    mem_unmap(adapters->low, adapters->low_bytes);
    mem_free(adapters->rows);
    mem_free(adapters);
}

void decoder_group_rows(struct decoder *decoder, const struct step *step)
{
    struct decoder_adapters *adapters = decoder->adapters;
    uint32_t counts[LORA_SLOTS_MAX] = {0}, *at[LORA_SLOTS_MAX], *next;
    ASSERT(step->adapters == NULL || adapters != NULL);
    if (adapters == NULL)
        return;
    adapters->count = 0;
    if (step->adapters == NULL)
        return;
    for (uint32_t s = 0; s < step->sequences; s++) {
        ASSERT(step->adapters[s] <= lora_slots(adapters->lora));
        if (step->adapters[s] > 0)
            counts[step->adapters[s] - 1] += step->row_first[s + 1] - step->row_first[s];
    }
    next = adapters->rows;
    for (uint32_t slot = 0; slot < lora_slots(adapters->lora); slot++) {
        at[slot] = next;
        if (counts[slot] == 0)
            continue;
        adapters->slots[adapters->count] = slot;
        adapters->groups[adapters->count++] =
            (struct lora_group){.rows = next, .rows_count = counts[slot]};
        next += counts[slot];
    }
    for (uint32_t s = 0; s < step->sequences; s++) {
        for (uint32_t row = step->row_first[s];
             step->adapters[s] > 0 && row < step->row_first[s + 1]; row++)
            *at[step->adapters[s] - 1]++ = row;
    }
}

bool decoder_adapts(const struct decoder *decoder)
{
    return decoder->adapters != NULL && decoder->adapters->count > 0;
}

void decoder_adapt(struct decoder *decoder, uint32_t layer, enum lora_site site, struct tensor *y,
                   const struct tensor *x)
{
    struct decoder_adapters *adapters = decoder->adapters;
    if (!decoder_adapts(decoder) || layer == DECODER_NO_LAYER)
        return;
    struct tensor low = tensor_of(adapters->low, x->rows, lora_low_columns(adapters->lora));
    for (uint32_t i = 0; i < adapters->count; i++)
        adapters->groups[i].terms_count =
            lora_terms(adapters->lora, adapters->slots[i], layer, site, adapters->groups[i].terms);
    op_lora_add(decoder->settings.backend, y, x, &low, adapters->groups, adapters->count);
}
