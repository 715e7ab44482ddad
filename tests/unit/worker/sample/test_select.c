/* test_select.c - the best few of rows of all sizes, against a sort. */
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>

#include "proto/base/mem.h"
#include "proto/base/rng.h"
#include "worker/sample/select.h"

#define COUNT_MAX 262144u

enum kind { SPREAD, COARSE, EQUAL, HIDDEN, RISING };
#define KINDS 5

struct ranked {
    float value;
    uint32_t id;
};

static int by_rank(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->value != y->value)
        return x->value > y->value ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

static int by_id(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    return x->id < y->id ? -1 : 1;
}

static float value_of(enum kind kind, uint32_t i)
{
    float value = (float)(rng_uniform(kind, i) * 40 - 30);
    switch (kind) {
    case SPREAD:
        return value;
    case COARSE:
        return roundf(value / 8) * 0.5f; /* with -0.0 among them */
    case EQUAL:
        return 1;
    case HIDDEN: /* by a mask: few are left, fewer than are wanted */
        return i % 5000 == 7 ? value : -INFINITY;
    case RISING:
        return (float)i;
    }
    return 0;
}

static void test_the_best_of_any_row_are_those_of_a_sort(void **state)
{
    static const uint32_t counts[] = {1, 2, 127, 128, 129, 5000, 49152, 49153, 131073, COUNT_MAX};
    static const uint32_t keeps[] = {1, 2, 5, 20, 40, 96, 97, 255, 257, 5000};
    struct select_bins *bins = mem_alloc(sizeof(*bins));
    struct ranked *ranked = mem_calloc(COUNT_MAX, sizeof(*ranked));
    float *values = mem_calloc(COUNT_MAX, sizeof(*values));
    uint32_t ids[5000];
    (void)state;
    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
        for (int kind = 0; kind < KINDS; kind++) {
            for (uint32_t i = 0; i < counts[c]; i++) {
                values[i] = value_of((enum kind)kind, i);
                ranked[i] = (struct ranked){.value = values[i], .id = i};
            }
            qsort(ranked, counts[c], sizeof(*ranked), by_rank);
            for (size_t k = 0; k < sizeof(keeps) / sizeof(keeps[0]); k++) {
                struct ranked best[5000];
                if (keeps[k] > counts[c])
                    continue;
                memcpy(best, ranked, keeps[k] * sizeof(*best));
                qsort(best, keeps[k], sizeof(*best), by_id);
                select_best(values, counts[c], keeps[k], bins, ids);
                for (uint32_t i = 0; i < keeps[k]; i++)
                    if (ids[i] != best[i].id)
                        fail_msg("kind %d: best %u of %u: %u is %u, not %u", kind, keeps[k],
                                 counts[c], i, ids[i], best[i].id);
            }
        }
    }
    mem_free(values);
    mem_free(ranked);
    mem_free(bins);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_best_of_any_row_are_those_of_a_sort),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
