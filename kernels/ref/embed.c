/* embed.c - rows of the embedding by token id, out of the panels that matmul uses too. */
#include "kernels/ref/ref.h"

void ref_embed(struct backend *b, struct tensor *x, const struct weight *weight,
               const uint32_t *ids)
{
    const struct ref_weight *ref = (const struct ref_weight *)weight;
    for (uint32_t i = 0; i < x->rows; i++) {
        const float *from = ref->panels + (size_t)(ids[i] / REF_PANEL) * x->columns * REF_PANEL +
                            ids[i] % REF_PANEL;
        float *to = x->data + (size_t)i * x->stride;
        for (uint32_t k = 0; k < x->columns; k++)
            to[k] = from[(size_t)k * REF_PANEL];
    }
}
