/* check.h - what the kernel tests share: backends and weights made of stored rows. */
#ifndef REFRAIN_TESTS_UNIT_KERNELS_CHECK_H
#define REFRAIN_TESTS_UNIT_KERNELS_CHECK_H

#include <math.h>
#include <stdio.h>
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

static enum kv_dtype kv_dtype; /* of the backends that are opened next */
static const char *family;     /* of the cpu backend: what this run tests; NULL: the best */

/* NULL where the backend or family is not there. */
static inline struct backend *open_backend(const char *name, unsigned threads)
{
    const char *isa = strcmp(name, "cpu") == 0 ? family : NULL;
    const struct backend_settings settings = {name, threads, isa, kv_dtype};
    struct backend *b = NULL;
    return backend_open(&settings, &b, NULL) == 0 ? b : NULL;
}

#define FAMILY_SKIPPED 77

/* main of a contract test: argv[1] names the family (none: the best). True: run the tests; false:
 * return FAMILY_SKIPPED, since this machine lacks it. */
static inline bool choose_family(int argc, char **argv)
{
    const char *name, *missing = "such a family";
    if (argc < 2)
        return true;
    for (size_t i = 0; (name = backend_cpu_family(i, &missing)) != NULL; i++) {
        if (strcmp(name, argv[1]) != 0)
            continue;
        family = name;
        if (missing != NULL)
            (void)printf("skipped: no %s, which family %s needs\n", missing, name);
        return missing == NULL;
    }
    (void)printf("skipped: no family %s\n", argv[1]);
    return false;
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
