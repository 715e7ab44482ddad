/* op_matmul and op_embed: values against the reference within a bound that follows from the type,
 * and bits that do not depend on rows, order or threads. */
#include <cmocka.h>

#include <errno.h>

#include "tests/unit/kernels/check.h"

static const enum dtype all_types[] = {DTYPE_F32,  DTYPE_F16,  DTYPE_BF16, DTYPE_Q4_0,   DTYPE_Q4_1,
                                       DTYPE_Q5_0, DTYPE_Q5_1, DTYPE_Q8_0, DTYPE_IQ4_NL, DTYPE_Q2_K,
                                       DTYPE_Q3_K, DTYPE_Q4_K, DTYPE_Q5_K, DTYPE_Q6_K};
#define TYPES (sizeof(all_types) / sizeof(all_types[0]))

static struct backend *ref, *cpu;

static int set_up(void **state)
{
    (void)state;
    ref = open_backend("ref", 1);
    cpu = open_backend("cpu", 2);
    return ref != NULL && cpu != NULL ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    backend_close(ref);
    backend_close(cpu);
    return 0;
}

static bool is_k_type(enum dtype dtype)
{
    return dtype_info(dtype)->block_values == 256;
}

/* Whether the family rounds activations to bf16 for bf16 weights, and for quantised ones: those are
 * rounded too then, which is still within the bound of int8. */
static bool rounds_to_bf16(void)
{
    return strncmp(cpu->isa, "amx", 3) == 0;
}

static bool rounds_all_to_bf16(void)
{
    return strcmp(cpu->isa, "amx-bf16") == 0;
}

/* How far y[n] = x . w may be off: rounding of f32 sums; for quantised types half a step of each
 * activation (absmax / 254 of its group), and 2^-11 per weight where scales became f16. */
static double error_bound(enum dtype dtype, const float *x, const float *w, uint32_t columns)
{
    double products = 0, steps = 0;
    for (uint32_t k = 0; k < columns; k++)
        products += fabs((double)x[k] * w[k]);
    double bound = products * columns * 0x1p-23 + 1e-30;
    if (dtype == DTYPE_BF16 && rounds_to_bf16())
        return bound + products * 0x1p-9;
    if (!dtype_is_quantised(dtype))
        return bound;
    double min_part = 0;
    for (uint32_t g = 0; g < columns; g += 32) {
        double absmax = 0, sum = 0;
        for (uint32_t k = g; k < g + 32; k++) {
            absmax = fmax(absmax, fabs((double)x[k]));
            sum += fabs((double)w[k]);
        }
        steps += absmax / 254 * sum;
        min_part += absmax * 32; /* d * q and m cancel in a weight: each is rounded apart */
    }
    return bound + steps * 1.001 + (is_k_type(dtype) ? (products + min_part * 0.3) * 0x1p-11 : 0);
}

static void check_values(enum dtype dtype, uint32_t rows, uint32_t n, uint32_t k, bool accumulate)
{
    uint64_t seed = rows * 1000 + n + k + dtype;
    struct stored s = random_stored(&seed, dtype, n, k);
    struct weight *w_ref = make_weight(ref, &s, WEIGHT_MATMUL);
    struct weight *w_cpu = make_weight(cpu, &s, WEIGHT_MATMUL);
    float *x = random_floats(&seed, (size_t)rows * (k + 3));
    float *y_ref = random_floats(&seed, (size_t)rows * n), *w = mem_calloc(k, sizeof(*w));
    float *y_cpu = mem_calloc((size_t)rows * (n + 5), sizeof(*y_cpu));
    struct tensor tx = {x, rows, k, k + 3}, tr = tensor_of(y_ref, rows, n);
    struct tensor tc = {y_cpu, rows, n, n + 5};
    for (size_t i = 0; i < (size_t)rows * (n + 5); i++)
        y_cpu[i] = i % (n + 5) < n ? y_ref[i / (n + 5) * n + i % (n + 5)] : 1234;
    op_matmul(ref, &tr, &tx, w_ref, accumulate);
    op_matmul(cpu, &tc, &tx, w_cpu, accumulate);

    double errors = 0, values = 0;
    for (uint32_t j = 0; j < n; j++) {
        dtype_to_f32(dtype, s.data + j * s.row_bytes, w, k);
        for (uint32_t i = 0; i < rows; i++) {
            double error = (double)y_cpu[i * (n + 5) + j] - y_ref[i * n + j];
            assert_true(fabs(error) <= error_bound(dtype, x + i * (k + 3), w, k) + 1e-6);
            errors += error * error;
            values += (double)y_ref[i * n + j] * y_ref[i * n + j];
        }
    }
    if ((size_t)rows * n >= 32) /* on average far better than the bound */
        assert_true(sqrt(errors / values) < (rounds_all_to_bf16() && dtype_is_quantised(dtype)
                                                 ? 0.006
                                             : rounds_to_bf16() && dtype == DTYPE_BF16 ? 0.003
                                             : dtype_is_quantised(dtype)               ? 0.012
                                                                                       : 1e-6));
    for (uint32_t i = 0; i < rows; i++)
        assert_true(y_cpu[i * (n + 5) + n] == 1234); /* nothing written past the row */
    op_weight_free(ref, w_ref);
    op_weight_free(cpu, w_cpu);
    mem_free(s.data);
    mem_free(x);
    mem_free(w);
    mem_free(y_ref);
    mem_free(y_cpu);
}

static void test_matmul_when_types_and_shapes_vary_stays_within_the_bound(void **state)
{
    static const uint32_t rows[] = {1, 2, 3, 4, 5, 6, 7, 13};
    (void)state;
    for (size_t t = 0; t < TYPES; t++) {
        uint32_t unit = dtype_info(all_types[t])->block_values;
        uint32_t k = unit == 1 ? 45 : unit == 32 ? 96 : 512;
        for (size_t m = 0; m < sizeof(rows) / sizeof(rows[0]); m++) {
            check_values(all_types[t], rows[m], 37, k, false);
            check_values(all_types[t], rows[m], 64, unit == 1 ? k + 16 : k, true);
        }
        check_values(all_types[t], 5, 1, k, false);
        check_values(all_types[t], 33, 16, unit == 256 ? 2304 : 1504, true); /* blocks of K */
    }
}

static void test_matmul_when_rows_exceed_a_pass_stays_within_the_bound(void **state)
{
    (void)state;
    check_values(DTYPE_Q4_1, 1100, 40, 64, true);
    check_values(DTYPE_Q8_0, 700, 24, 64, false);
    check_values(DTYPE_F32, 600, 24, 20, false);
}

/* More than 64 rows: other tiles, blocks of K, panels by twos and one left over. */
static void test_matmul_when_rows_are_many_stays_within_the_bound(void **state)
{
    (void)state;
    for (size_t t = 0; t < TYPES; t++) {
        uint32_t unit = dtype_info(all_types[t])->block_values;
        check_values(all_types[t], 71, 40, unit == 1 ? 61 : unit, true);
        check_values(all_types[t], 97, 33, unit == 256 ? 1280 : 1184, false);
    }
}

static void test_matmul_when_activations_are_extreme_does_not_overflow(void **state)
{
    /* Weights and activations at the ends of their ranges: the 16-bit sums are at their peak. */
    static const struct {
        enum dtype dtype;
        int fill;     /* byte of all codes */
        float weight; /* that they mean, with d = 0.5 */
    } cases[] = {{DTYPE_Q4_0, 0xff, 0.5f * 7},
                 {DTYPE_Q5_0, 0xff, 0.5f * 15},
                 {DTYPE_Q6_K, 0x00, 0.5f * -127 * -32},
                 {DTYPE_Q8_0, 0x80, 0.5f * -128}};
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct dtype_info *info = dtype_info(cases[i].dtype);
        uint32_t k = info->block_values;
        uint8_t block[210];
        float x[256], y[1];
        memset(block, cases[i].fill, sizeof(block));
        if (cases[i].dtype == DTYPE_Q6_K)
            memset(block + 192, -127, 16);
        put_half(block + (cases[i].dtype == DTYPE_Q6_K ? 208 : 0), 0.5f);
        for (uint32_t c = 0; c < k; c++)
            x[c] = -127;
        struct stored s = {cases[i].dtype, 1, k, info->block_bytes, block};
        struct weight *w = make_weight(cpu, &s, WEIGHT_MATMUL);
        struct tensor tx = tensor_of(x, 1, k), ty = tensor_of(y, 1, 1);
        op_matmul(cpu, &ty, &tx, w, false);
        float expected = -127 * (float)k * cases[i].weight;
        assert_true(fabsf(y[0] - expected) <= 1e-5f * fabsf(expected));
        op_weight_free(cpu, w);
    }
}

static void test_matmul_when_a_row_is_zero_gives_zero(void **state)
{
    uint64_t seed = 5;
    float x[64] = {0}, y[16];
    (void)state;
    for (size_t t = 3; t < 9; t++) { /* groups of 32 */
        struct stored s = random_stored(&seed, all_types[t], 16, 64);
        struct weight *w = make_weight(cpu, &s, WEIGHT_MATMUL);
        struct tensor tx = tensor_of(x, 1, 64), ty = tensor_of(y, 1, 16);
        op_matmul(cpu, &ty, &tx, w, false);
        for (int j = 0; j < 16; j++)
            assert_true(y[j] == 0);
        op_weight_free(cpu, w);
        mem_free(s.data);
    }
}

/* Every row of a big batch again in batches of `rows`, in `b`, in falling order: same bits. */
static void check_bits(struct backend *b, const struct stored *s, const float *x, uint32_t total,
                       const float *expected, uint32_t rows)
{
    struct weight *w = make_weight(b, s, WEIGHT_MATMUL);
    float *part = mem_calloc((size_t)rows * s->columns, sizeof(*part));
    float *y = mem_calloc((size_t)rows * s->rows, sizeof(*y));
    for (uint32_t first = 0; first < total; first += rows) {
        uint32_t count = total - first < rows ? total - first : rows;
        for (uint32_t i = 0; i < count; i++) /* reversed inside the batch */
            memcpy(part + (size_t)i * s->columns, x + (size_t)(first + count - 1 - i) * s->columns,
                   s->columns * sizeof(*x));
        struct tensor tx = tensor_of(part, count, s->columns), ty = tensor_of(y, count, s->rows);
        op_matmul(b, &ty, &tx, w, false);
        for (uint32_t i = 0; i < count; i++)
            assert_memory_equal(y + (size_t)i * s->rows,
                                expected + (size_t)(first + count - 1 - i) * s->rows,
                                s->rows * sizeof(*y));
    }
    op_weight_free(b, w);
    mem_free(part);
    mem_free(y);
}

static void check_invariance(const char *name, enum dtype dtype, uint32_t total)
{
    static const uint32_t batches[] = {1, 2, 3, 4, 5, 7, 16, 40};
    uint64_t seed = 900 + dtype;
    uint32_t k = dtype_info(dtype)->block_values == 256 ? 1280 : 1120, n = 152;
    struct stored s = random_stored(&seed, dtype, n, k);
    float *x = random_floats(&seed, (size_t)total * k);
    float *y = mem_calloc((size_t)total * n, sizeof(*y));
    struct backend *one = open_backend(name, 1);
    struct weight *w = make_weight(one, &s, WEIGHT_MATMUL);
    struct tensor tx = tensor_of(x, total, k), ty = tensor_of(y, total, n);
    op_matmul(one, &ty, &tx, w, false);
    op_weight_free(one, w);
    backend_close(one);
    for (unsigned threads = 1; threads <= 3; threads++) {
        struct backend *b = open_backend(name, threads);
        for (size_t i = 0; i < sizeof(batches) / sizeof(batches[0]); i++)
            check_bits(b, &s, x, total < 80 ? total : 80, y, batches[i]);
        check_bits(b, &s, x, total, y, total);
        backend_close(b);
    }
    mem_free(s.data);
    mem_free(x);
    mem_free(y);
}

static void test_matmul_when_rows_order_or_threads_change_keeps_the_bits(void **state)
{
    (void)state;
    for (size_t t = 0; t < TYPES; t++)
        check_invariance("cpu", all_types[t], 81);
    check_invariance("cpu", DTYPE_Q4_1, 512);
    check_invariance("ref", DTYPE_Q4_1, 81);
}

/* avx512 does what avx2 does, in the same order. */
static void test_matmul_of_avx512_gives_the_bits_of_avx2(void **state)
{
    static const uint32_t rows[] = {1, 3, 16, 67};
    const struct backend_settings settings = {.name = "cpu", .threads = 1, .isa = "avx2"};
    struct backend *avx2 = NULL;
    uint64_t seed = 60;
    (void)state;
    if (strcmp(cpu->isa, "avx512") != 0 || backend_open(&settings, &avx2, NULL) < 0)
        skip();
    for (size_t t = 0; t < TYPES; t++) {
        struct stored s = random_stored(&seed, all_types[t], 56, 1280);
        float *x = random_floats(&seed, 67 * 1280), y[2][67 * 56];
        struct backend *backends[2] = {avx2, cpu};
        for (size_t m = 0; m < 4; m++) {
            for (int i = 0; i < 2; i++) {
                struct tensor tx = tensor_of(x, rows[m], 1280), ty = tensor_of(y[i], rows[m], 56);
                struct weight *w = make_weight(backends[i], &s, WEIGHT_MATMUL);
                op_matmul(backends[i], &ty, &tx, w, false);
                op_weight_free(backends[i], w);
            }
            assert_memory_equal(y[0], y[1], rows[m] * 56 * sizeof(float));
        }
        mem_free(s.data);
        mem_free(x);
    }
    backend_close(avx2);
}

static void test_weight_when_put_together_from_parts_equals_its_parts(void **state)
{
    /* Three types, one of them in reordered rows, one a slice of its columns. */
    uint64_t seed = 40;
    struct stored q = random_stored(&seed, DTYPE_Q4_K, 24, 256);
    struct stored k = random_stored(&seed, DTYPE_Q4_1, 10, 256);
    struct stored v = random_stored(&seed, DTYPE_Q6_K, 7, 512);
    uint32_t order[10];
    (void)state;
    for (uint32_t i = 0; i < 10; i++)
        order[i] = (i * 7 + 3) % 10;
    struct weight_part parts[3] = {part_of(&q), part_of(&k), part_of(&v)};
    parts[1].row_order = order;
    parts[2].column = 256;
    struct weight *whole[2];
    struct backend *backends[2] = {ref, cpu};
    float *x = random_floats(&seed, 2 * 256), y[2][2 * 41], w[256];
    for (int i = 0; i < 2; i++) {
        struct tensor tx = tensor_of(x, 2, 256), ty = tensor_of(y[i], 2, 41);
        assert_int_equal(op_weight_new(backends[i], WEIGHT_MATMUL, parts, 3, 256, &whole[i], NULL),
                         0);
        assert_int_equal(op_weight_rows(whole[i]), 41);
        assert_int_equal(op_weight_columns(whole[i]), 256);
        op_matmul(backends[i], &ty, &tx, whole[i], false);
    }
    for (uint32_t n = 0; n < 41; n++) {
        const struct stored *s = n < 24 ? &q : n < 34 ? &k : &v;
        const uint8_t *row = n < 24   ? q.data + n * q.row_bytes
                             : n < 34 ? k.data + order[n - 24] * k.row_bytes
                                      : v.data + (n - 34) * v.row_bytes + 210;
        dtype_to_f32(s->dtype, row, w, 256);
        for (uint32_t i = 0; i < 2; i++) {
            double sum = 0;
            for (int c = 0; c < 256; c++)
                sum += (double)x[i * 256 + (uint32_t)c] * w[c];
            assert_true(fabs(y[0][i * 41 + n] - sum) < 1e-4);
            assert_true(fabs(y[1][i * 41 + n] - sum) <=
                        error_bound(s->dtype, x + i * 256, w, 256) + 1e-5);
        }
    }
    op_weight_free(ref, whole[0]);
    op_weight_free(cpu, whole[1]);
    mem_free(q.data);
    mem_free(k.data);
    mem_free(v.data);
    mem_free(x);
}

static void test_weight_when_shapes_do_not_fit_is_refused(void **state)
{
    uint64_t seed = 41;
    struct stored s = random_stored(&seed, DTYPE_Q8_0, 4, 64);
    struct weight_part part = part_of(&s);
    struct weight *weight = NULL;
    struct errmsg err;
    (void)state;
    assert_int_equal(op_weight_new(cpu, WEIGHT_MATMUL, &part, 1, 48, &weight, &err), -EINVAL);
    assert_int_equal(op_weight_new(cpu, WEIGHT_MATMUL, &part, 1, 96, &weight, &err), -EINVAL);
    part.column = 32;
    assert_int_equal(op_weight_new(cpu, WEIGHT_MATMUL, &part, 1, 64, &weight, &err), -EINVAL);
    part.column = 0;
    part.dtype = (enum dtype)15;
    assert_int_equal(op_weight_new(cpu, WEIGHT_MATMUL, &part, 1, 64, &weight, &err), -ENOTSUP);
    assert_null(weight);
    mem_free(s.data);
}

static void test_embed_when_types_vary_gives_the_stored_row(void **state)
{
    uint64_t seed = 50;
    const uint32_t ids[5] = {18, 0, 7, 18, 15};
    (void)state;
    for (size_t t = 0; t < TYPES; t++) {
        struct stored s = random_stored(&seed, all_types[t], 19, 512);
        struct backend *backends[2] = {ref, cpu};
        for (int i = 0; i < 2; i++) {
            float x[5 * 512], w[512];
            struct tensor tx = tensor_of(x, 5, 512);
            struct weight *weight = make_weight(backends[i], &s, WEIGHT_EMBED);
            op_embed(backends[i], &tx, weight, ids);
            for (int r = 0; r < 5; r++) {
                dtype_to_f32(s.dtype, s.data + ids[r] * s.row_bytes, w, 512);
                for (int k = 0; k < 512; k++)
                    assert_true(fabsf(x[r * 512 + k] - w[k]) <=
                                (is_k_type(s.dtype) && i == 1 ? 1e-3f * 0.3f : 0));
            }
            op_weight_free(backends[i], weight);
        }
        mem_free(s.data);
    }
}

static void test_open_when_name_or_family_is_unknown_says_what_there_is(void **state)
{
    struct backend *b = NULL;
    struct errmsg err;
    struct backend_settings settings = {.name = "gpu", .threads = 1};
    (void)state;
    assert_int_equal(backend_open(&settings, &b, &err), -ENOENT);
    assert_non_null(strstr(err.text, "cpu"));
    settings.name = "cpu";
    settings.isa = "mmx";
    assert_int_equal(backend_open(&settings, &b, &err), -ENOENT);
    assert_non_null(strstr(err.text, "avx2"));
    assert_null(b);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matmul_when_types_and_shapes_vary_stays_within_the_bound),
        cmocka_unit_test(test_matmul_when_rows_exceed_a_pass_stays_within_the_bound),
        cmocka_unit_test(test_matmul_when_rows_are_many_stays_within_the_bound),
        cmocka_unit_test(test_matmul_when_activations_are_extreme_does_not_overflow),
        cmocka_unit_test(test_matmul_when_a_row_is_zero_gives_zero),
        cmocka_unit_test(test_matmul_when_rows_order_or_threads_change_keeps_the_bits),
        cmocka_unit_test(test_matmul_of_avx512_gives_the_bits_of_avx2),
        cmocka_unit_test(test_weight_when_put_together_from_parts_equals_its_parts),
        cmocka_unit_test(test_weight_when_shapes_do_not_fit_is_refused),
        cmocka_unit_test(test_embed_when_types_vary_gives_the_stored_row),
        cmocka_unit_test(test_open_when_name_or_family_is_unknown_says_what_there_is),
    };
    if (!choose_family(argc, argv))
        return FAMILY_SKIPPED;
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
