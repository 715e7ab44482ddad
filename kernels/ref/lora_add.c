/* lora_add.c - y[r, :] += b (a x[r, :]), two plain sums over rising k. */
#include "kernels/ref/ref.h"

/* Output n of panels for `inputs` values, the sum starting from `sum`. */
static float output(const float *panels, uint32_t inputs, uint32_t n, const float *x, float sum)
{
    const float *w = panels + (size_t)(n / LORA_PANEL) * LORA_PANEL * inputs + n % LORA_PANEL;
    for (uint32_t k = 0; k < inputs; k++)
        sum += x[k] * w[(size_t)k * LORA_PANEL];
    return sum;
}

static void add_term(const struct lora_term *term, const float *x, uint32_t x_columns, float *low,
                     float *y)
{
    for (uint32_t j = 0; j < term->rank; j++)
        low[j] = output(term->a, x_columns, j, x, 0);
    for (uint32_t n = 0; n < term->columns; n++)
        y[term->first + n] = output(term->b, term->rank, n, low, y[term->first + n]);
}

void ref_lora_add(struct backend *b, struct tensor *y, const struct tensor *x, struct tensor *low,
                  const struct lora_group *groups, size_t count)
{
    for (const struct lora_group *group = groups; group < groups + count; group++) {
        for (uint32_t i = 0; i < group->rows_count; i++) {
            size_t row = group->rows[i];
            for (uint32_t t = 0; t < group->terms_count; t++)
                add_term(&group->terms[t], x->data + row * x->stride, x->columns,
                         low->data + row * low->stride, y->data + row * y->stride);
        }
    }
}
