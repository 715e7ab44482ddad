/* check.h - what the kernel tests share: backends and weights made of stored rows. */
#ifndef REFRAIN_TESTS_UNIT_KERNELS_CHECK_H
#define REFRAIN_TESTS_UNIT_KERNELS_CHECK_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/backend.h"
#include "kernels/ops.h"
#include "tests/unit/proto/base/stored.h"

static inline struct weight_part part_of(const struct stored *s)
{
    return (struct weight_part){
        .dtype = s->dtype, .data = s->data, .row_bytes = s->row_bytes, .rows = s->rows};
}

/* NULL where the backend or family is not there. */
static inline struct backend *open_backend(const char *name, unsigned threads)
{
    const struct backend_settings settings = {.name = name, .threads = threads};
    struct backend *b = NULL;
    return backend_open(&settings, &b, NULL) == 0 ? b : NULL;
}

static inline struct weight *make_weight(struct backend *b, const struct stored *s,
                                         enum weight_use use)
{
    struct weight_part part = part_of(s);
    struct weight *weight = NULL;
    if (op_weight_new(b, use, &part, 1, s->columns, &weight, NULL) < 0)
        abort();
    return weight;
}

#endif
