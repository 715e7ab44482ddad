/* op_rmsnorm, op_layernorm, op_silu_mul, op_add, op_gather_rows: values against double, bits per
 * row. */
#include <cmocka.h>

#include <float.h>
#include <stdatomic.h>

#include "kernels/cpu/family.h"
#include "tests/unit/kernels/check.h"

static const char *const names[] = {"ref", "cpu"};
static const uint32_t widths[] = {1, 7, 8, 31, 72, 576, 1531};
#define WIDTHS (sizeof(widths) / sizeof(widths[0]))

static void test_rmsnorm_when_widths_vary_is_the_formula(void **state)
{
    uint64_t seed = 1;
    (void)state;
    for (int b = 0; b < 2; b++) {
        struct backend *backend = open_backend(names[b], 3);
        for (size_t i = 0; i < WIDTHS; i++) {
            uint32_t n = widths[i];
            float *x = random_floats(&seed, 50 * (n + 1)), *w = random_floats(&seed, n);
            float *y = mem_calloc(50 * n, sizeof(*y));
            struct tensor tx = {x, 50, n, n + 1}, ty = tensor_of(y, 50, n);
            op_rmsnorm(backend, &ty, &tx, w, 1e-5f);
            for (uint32_t r = 0; r < 50; r++) {
                double sum = 0;
                for (uint32_t k = 0; k < n; k++)
                    sum += (double)x[r * (n + 1) + k] * x[r * (n + 1) + k];
                for (uint32_t k = 0; k < n; k++) {
                    double expected = x[r * (n + 1) + k] / sqrt(sum / n + 1e-5f) * w[k];
                    assert_true(fabs(y[r * n + k] - expected) <= 4e-7 * fabs(expected) + 1e-12);
                }
            }
            struct tensor in_place = {x, 50, n, n + 1}; /* y may be x */
            op_rmsnorm(backend, &in_place, &tx, w, 1e-5f);
            for (uint32_t r = 0; r < 50; r++)
                assert_memory_equal(x + r * (n + 1), y + r * n, n * sizeof(*x));
            mem_free(x);
            mem_free(w);
            mem_free(y);
        }
        backend_close(backend);
    }
}

/* Of rows whose mean is far from 0, whole or in two heads with weights of their own. */
static void compare_layernorm(const struct tensor *y, const struct tensor *x, uint32_t dim,
                              const float *w)
{
    for (uint32_t i = 0; i < x->rows * x->columns / dim; i++) {
        uint32_t row = i / (x->columns / dim), first = i % (x->columns / dim) * dim;
        const float *from = x->data + (size_t)row * x->stride + first;
        const float *to = y->data + (size_t)row * y->stride + first;
        double sum = 0, squares = 0;
        for (uint32_t k = 0; k < dim; k++)
            sum += (double)from[k];
        for (uint32_t k = 0; k < dim; k++)
            squares += pow((double)from[k] - sum / dim, 2);
        double factor = 1 / sqrt(squares / dim + 1e-5f);
        for (uint32_t k = 0; k < dim; k++) {
            double expected = ((double)from[k] - sum / dim) * factor * w[first + k];
            assert_true(fabs(to[k] - expected) <=
                        1e-6 * fabs(expected) + 4e-7 * fabs(sum / dim * factor * w[first + k]));
        }
    }
}

static void test_layernorm_when_widths_vary_is_the_formula(void **state)
{
    uint64_t seed = 4;
    (void)state;
    for (int b = 0; b < 2; b++) {
        struct backend *backend = open_backend(names[b], 3);
        for (size_t i = 0; i < WIDTHS; i++) {
            uint32_t n = 2 * widths[i];
            float *x = random_floats(&seed, 50 * (n + 1)), *w = random_floats(&seed, n);
            float *y = mem_calloc(50 * n, sizeof(*y));
            struct tensor tx = {x, 50, n, n + 1}, ty = tensor_of(y, 50, n);
            for (uint32_t k = 0; k < 50 * (n + 1); k++)
                x[k] += 3;
            op_layernorm(backend, &ty, &tx, n / 2, w, 1e-5f);
            compare_layernorm(&ty, &tx, n / 2, w);
            op_layernorm(backend, &ty, &tx, n, w, 1e-5f);
            compare_layernorm(&ty, &tx, n, w);
            struct tensor in_place = {x, 50, n, n + 1}; /* y may be x */
            float between = x[n];
            op_layernorm(backend, &in_place, &tx, n, w, 1e-5f);
            for (uint32_t r = 0; r < 50; r++)
                assert_memory_equal(x + r * (n + 1), y + r * n, n * sizeof(*x));
            assert_true(x[n] == between);
            mem_free(x);
            mem_free(w);
            mem_free(y);
        }
        backend_close(backend);
    }
}

static void test_silu_mul_when_widths_vary_is_the_formula(void **state)
{
    uint64_t seed = 2;
    (void)state;
    for (int b = 0; b < 2; b++) {
        struct backend *backend = open_backend(names[b], 2);
        for (size_t i = 0; i < WIDTHS; i++) {
            uint32_t n = widths[i];
            float *x = random_floats(&seed, 40 * 2 * n), *y = mem_calloc(40 * n + 1, sizeof(*y));
            for (uint32_t k = 0; k < 80 * n; k++)
                x[k] *= 12;
            x[0] = -200;
            x[n - 1] = 200;
            y[40 * n] = 77;
            struct tensor tx = tensor_of(x, 40, 2 * n), ty = tensor_of(y, 40, n);
            op_silu_mul(backend, &ty, &tx);
            for (uint32_t r = 0; r < 40; r++) {
                for (uint32_t k = 0; k < n; k++) {
                    double gate = x[r * 2 * n + k], up = x[r * 2 * n + n + k];
                    double expected = gate / (1 + exp(-gate)) * up;
                    assert_true(fabs(y[r * n + k] - expected) <= 8e-7 * fabs(expected) + 1e-30);
                }
            }
            assert_true(y[40 * n] == 77);
            mem_free(x);
            mem_free(y);
        }
        backend_close(backend);
    }
}

static void test_add_and_gather_when_strides_differ_touch_the_right_rows(void **state)
{
    (void)state;
    for (int b = 0; b < 2; b++) {
        struct backend *backend = open_backend(names[b], 2);
        float x[3 * 5], y[2 * 4], z[3 * 4];
        const uint32_t rows[2] = {2, 0};
        for (int i = 0; i < 15; i++)
            x[i] = (float)i;
        struct tensor tx = {x, 3, 4, 5}, ty = tensor_of(y, 2, 4), tz = tensor_of(z, 3, 4);
        op_gather_rows(backend, &ty, &tx, rows);
        assert_true(y[0] == 10 && y[3] == 13 && y[4] == 0 && y[7] == 3);
        for (int i = 0; i < 12; i++)
            z[i] = 100;
        op_add(backend, &tz, &tx);
        assert_true(z[0] == 100 && z[4] == 105 && z[11] == 113);
        backend_close(backend);
    }
}

static void test_rows_when_run_alone_have_the_bits_of_the_batch(void **state)
{
    uint64_t seed = 3;
    uint32_t n = 300, rows = 200;
    float *x = random_floats(&seed, rows * 2 * n), *w = random_floats(&seed, n);
    float *norm = mem_calloc(rows * n, sizeof(*norm)), *silu = mem_calloc(rows * n, sizeof(*silu));
    float *layer = mem_calloc(rows * n, sizeof(*layer));
    (void)state;
    struct backend *many = open_backend("cpu", 3), *one = open_backend("cpu", 1);
    struct tensor gate_up = tensor_of(x, rows, 2 * n), half = {x, rows, n, 2 * n};
    struct tensor ty = tensor_of(norm, rows, n), ts = tensor_of(silu, rows, n);
    struct tensor tl = tensor_of(layer, rows, n);
    op_rmsnorm(many, &ty, &half, w, 1e-6f);
    op_layernorm(many, &tl, &half, n, w, 1e-6f);
    op_silu_mul(many, &ts, &gate_up);
    for (uint32_t r = 0; r < rows; r++) {
        float y[300];
        struct tensor single = tensor_of(y, 1, n);
        struct tensor row = tensor_of(x + r * 2 * n, 1, n);
        op_rmsnorm(one, &single, &row, w, 1e-6f);
        assert_memory_equal(y, norm + r * n, n * sizeof(*y));
        op_layernorm(one, &single, &row, n, w, 1e-6f);
        assert_memory_equal(y, layer + r * n, n * sizeof(*y));
        row.columns = row.stride = 2 * n;
        op_silu_mul(one, &single, &row);
        assert_memory_equal(y, silu + r * n, n * sizeof(*y));
    }
    mem_free(x);
    mem_free(w);
    mem_free(norm);
    mem_free(layer);
    mem_free(silu);
    backend_close(many);
    backend_close(one);
}

static void test_exp_when_compared_with_double_is_within_2_ulp(void **state)
{
    float x[8], y[8];
    (void)state;
    const struct cpu_family *f = cpu_family_find(family);
    if (f == NULL)
        skip();
    for (double at = -87.2; at < 88.2; at += 8 * 0.00037) {
        for (int i = 0; i < 8; i++)
            x[i] = (float)(at + i * 0.00037);
        f->exp_values(x, y, 8);
        for (int i = 0; i < 8; i++) {
            double expected = exp((double)x[i]);
            double ulp = nextafterf((float)expected, INFINITY) - (float)expected;
            assert_true(fabs(y[i] - expected) <= 2 * ulp);
        }
    }
    const float edges[8] = {0, -INFINITY, -87.5f, -1000, 89, 1000, -0.0f, 1};
    f->exp_values(edges, y, 8);
    assert_true(y[0] == 1 && y[6] == 1 && y[1] == 0 && y[2] == 0 && y[3] == 0);
    assert_true(y[4] == y[5] && y[4] > 2e38f && y[4] < FLT_MAX);
}

#define PIECES_MAX 1000

static void count_piece(void *context, uint32_t piece)
{
    _Atomic uint32_t *times = context;
    (void)atomic_fetch_add(&times[piece], 1);
}

static void test_run_pieces_runs_each_once(void **state)
{
    static const uint32_t counts[] = {0, 1, 2, 3, 7, PIECES_MAX};
    (void)state;
    for (int b = 0; b < 2; b++) {
        struct backend *backend = open_backend(names[b], 3);
        for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
            _Atomic uint32_t times[PIECES_MAX] = {0};
            op_run_pieces(backend, count_piece, times, counts[i]);
            for (uint32_t p = 0; p < PIECES_MAX; p++)
                assert_int_equal(atomic_load(&times[p]), p < counts[i]);
        }
        backend_close(backend);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_run_pieces_runs_each_once),
        cmocka_unit_test(test_rmsnorm_when_widths_vary_is_the_formula),
        cmocka_unit_test(test_layernorm_when_widths_vary_is_the_formula),
        cmocka_unit_test(test_silu_mul_when_widths_vary_is_the_formula),
        cmocka_unit_test(test_add_and_gather_when_strides_differ_touch_the_right_rows),
        cmocka_unit_test(test_rows_when_run_alone_have_the_bits_of_the_batch),
        cmocka_unit_test(test_exp_when_compared_with_double_is_within_2_ulp),
    };
    if (!choose_family(argc, argv))
        return FAMILY_SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
