/* op_lora_add: values against double, and bits: a row gets the same alone and among others, with
 * any number of threads; rows and columns of nobody stay as they are. */
#include <cmocka.h>

#include "tests/unit/kernels/check.h"

#define ROWS 120u
#define GROUPS 3u

static const char *const names[] = {"ref", "cpu"};

struct shape {
    uint32_t inputs, terms;
    uint32_t rank[LORA_TERMS_MAX], columns[LORA_TERMS_MAX];
};

/* Ranks and widths on and off borders of panels; more inputs than a block of k. */
static const struct shape shapes[] = {
    {1, 1, {1}, {1}},
    {64, 3, {8, 8, 8}, {64, 32, 32}},
    {576, 3, {16, 3, 40}, {100, 33, 7}},
    {1030, 2, {33, 16}, {20, 131}},
};
#define SHAPES (sizeof(shapes) / sizeof(shapes[0]))

/* Plain matrices [outputs, inputs] and the same in panels. */
struct matrix {
    float *plain, *panels;
    uint32_t outputs, inputs;
};

struct world {
    const struct shape *shape;
    float *x, *y;
    uint32_t y_columns, low_columns;
    struct matrix a[GROUPS][LORA_TERMS_MAX], b[GROUPS][LORA_TERMS_MAX];
    uint32_t rows[GROUPS][ROWS];
    struct lora_group groups[GROUPS];
};

static float *random_aligned(uint64_t *seed, size_t count)
{
    float *values = random_floats(seed, count),
          *aligned = aligned_alloc(64, (count + 16) * 4 / 64 * 64 + 64);
    memcpy(aligned, values, count * sizeof(*values));
    mem_free(values);
    return aligned;
}

static struct matrix make_matrix(uint64_t *seed, uint32_t outputs, uint32_t inputs)
{
    struct matrix m = {random_floats(seed, (size_t)outputs * inputs), NULL, outputs, inputs};
    size_t bytes = (size_t)lora_padded(outputs) * inputs * sizeof(float);
    m.panels = aligned_alloc(64, bytes);
    memset(m.panels, 0, bytes);
    for (uint32_t n = 0; n < outputs; n++) {
        for (uint32_t k = 0; k < inputs; k++)
            m.panels[(size_t)(n / 16 * 16) * inputs + k * 16 + n % 16] =
                m.plain[(size_t)n * inputs + k];
    }
    return m;
}

static void free_matrix(struct matrix *m)
{
    mem_free(m->plain);
    free(m->panels);
}

/* Rows by turns: nobody's, group 0's, 1's, 2's, but for a long run of group 1 (a prompt). */
static void deal_rows(struct world *w)
{
    for (uint32_t r = 0; r < ROWS; r++) {
        uint32_t group = r >= 20 && r < 90 ? 1 : r % 4 - 1;
        if (group < GROUPS)
            w->rows[group][w->groups[group].rows_count++] = r;
    }
}

static void make_world(struct world *w, const struct shape *shape)
{
    uint64_t seed = 3;
    memset(w, 0, sizeof(*w));
    w->shape = shape;
    for (uint32_t t = 0; t < shape->terms; t++) {
        w->y_columns += shape->columns[t] + 1; /* one of nobody behind each */
        w->low_columns += lora_padded(shape->rank[t]);
    }
    w->x = random_aligned(&seed, (size_t)ROWS * shape->inputs);
    w->y = random_aligned(&seed, (size_t)ROWS * w->y_columns);
    for (uint32_t g = 0; g < GROUPS; g++) {
        uint32_t first = 0;
        struct lora_group *group = &w->groups[g];
        group->rows = w->rows[g];
        group->terms_count = g == 2 ? 1 : shape->terms;
        for (uint32_t t = 0; t < shape->terms; t++) {
            w->a[g][t] = make_matrix(&seed, shape->rank[t], shape->inputs);
            w->b[g][t] = make_matrix(&seed, shape->columns[t], shape->rank[t]);
            group->terms[t] = (struct lora_term){w->a[g][t].panels, w->b[g][t].panels,
                                                 shape->rank[t], first, shape->columns[t]};
            first += shape->columns[t] + 1;
        }
    }
    deal_rows(w);
}

static void free_world(struct world *w)
{
    free(w->x);
    free(w->y);
    for (uint32_t g = 0; g < GROUPS; g++) {
        for (uint32_t t = 0; t < w->shape->terms; t++) {
            free_matrix(&w->a[g][t]);
            free_matrix(&w->b[g][t]);
        }
    }
}

/* y + all groups, or one row of a group alone. */
static float *run(struct world *w, const char *name, unsigned threads,
                  const struct lora_group *groups, size_t count)
{
    struct backend *backend = open_backend(name, threads);
    size_t bytes = (size_t)ROWS * w->y_columns * sizeof(float);
    float *y = aligned_alloc(64, bytes / 64 * 64 + 64);
    float *low = aligned_alloc(64, (size_t)ROWS * w->low_columns * sizeof(float));
    memcpy(y, w->y, bytes);
    memset(low, 0x7f, (size_t)ROWS * w->low_columns * sizeof(float));
    struct tensor tx = tensor_of(w->x, ROWS, w->shape->inputs);
    struct tensor ty = tensor_of(y, ROWS, w->y_columns);
    struct tensor tl = tensor_of(low, ROWS, w->low_columns);
    op_lora_add(backend, &ty, &tx, &tl, groups, count);
    backend_close(backend);
    free(low);
    return y;
}

/* Group of row r, GROUPS: nobody's. */
static uint32_t group_of(const struct world *w, uint32_t r)
{
    for (uint32_t g = 0; g < GROUPS; g++) {
        for (uint32_t i = 0; i < w->groups[g].rows_count; i++) {
            if (w->rows[g][i] == r)
                return g;
        }
    }
    return GROUPS;
}

static double expected_value(const struct world *w, uint32_t g, uint32_t t, uint32_t r, uint32_t n,
                             double *ret_size)
{
    const struct matrix *a = &w->a[g][t], *b = &w->b[g][t];
    double sum = 0;
    *ret_size = 0;
    for (uint32_t j = 0; j < a->outputs; j++) {
        double low = 0, size = 0;
        for (uint32_t k = 0; k < a->inputs; k++) {
            double value = (double)w->x[(size_t)r * a->inputs + k] * a->plain[j * a->inputs + k];
            low += value;
            size += fabs(value);
        }
        sum += low * b->plain[n * b->inputs + j];
        *ret_size += size * fabs(b->plain[n * b->inputs + j]);
    }
    return sum;
}

static void check_row(const struct world *w, const float *y, uint32_t r)
{
    uint32_t g = group_of(w, r), first = 0;
    for (uint32_t t = 0; t < w->shape->terms; t++) {
        bool touched = g < GROUPS && t < w->groups[g].terms_count;
        for (uint32_t n = 0; n <= w->shape->columns[t]; n++) {
            size_t at = (size_t)r * w->y_columns + first + n;
            double size = 0, delta = 0;
            if (touched && n < w->shape->columns[t])
                delta = expected_value(w, g, t, r, n, &size);
            if (!touched || n == w->shape->columns[t])
                assert_true(y[at] == w->y[at]);
            else
                assert_true(fabs((double)y[at] - ((double)w->y[at] + delta)) <= 1e-6 + 2e-6 * size);
        }
        first += w->shape->columns[t] + 1;
    }
}

static void test_lora_add_when_shapes_vary_is_the_formula(void **state)
{
    for (size_t s = 0; s < SHAPES; s++) {
        struct world w;
        make_world(&w, &shapes[s]);
        for (int b = 0; b < 2; b++) {
            float *y = run(&w, names[b], 2, w.groups, GROUPS);
            for (uint32_t r = 0; r < ROWS; r += s < 2 ? 1 : 17)
                check_row(&w, y, r);
            free(y);
        }
        free_world(&w);
    }
}

static void test_lora_add_when_a_row_is_alone_or_threads_vary_has_the_same_bits(void **state)
{
    for (size_t s = 0; s < SHAPES; s++) {
        struct world w;
        make_world(&w, &shapes[s]);
        size_t row_bytes = w.y_columns * sizeof(float);
        for (int b = 0; b < 2; b++) {
            float *all = run(&w, names[b], 1, w.groups, GROUPS);
            for (unsigned threads = 2; threads <= 3; threads++) {
                float *y = run(&w, names[b], threads, w.groups, GROUPS);
                assert_memory_equal(y, all, ROWS * row_bytes);
                free(y);
            }
            for (uint32_t r = 0; r < ROWS; r += 13) {
                uint32_t g = group_of(&w, r);
                if (g == GROUPS)
                    continue;
                struct lora_group one = w.groups[g];
                one.rows = &r;
                one.rows_count = 1;
                float *y = run(&w, names[b], 1, &one, 1);
                assert_memory_equal((char *)y + r * row_bytes, (char *)all + r * row_bytes,
                                    row_bytes);
                free(y);
            }
            free(all);
        }
        free_world(&w);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lora_add_when_shapes_vary_is_the_formula),
        cmocka_unit_test(test_lora_add_when_a_row_is_alone_or_threads_vary_has_the_same_bits),
    };
    if (!choose_family(argc, argv))
        return FAMILY_SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
