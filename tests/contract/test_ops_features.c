/* Ops that only some architectures use: values against double or worked out by hand, on every
 * backend, and bits per row. */
#include <cmocka.h>

#include "tests/unit/kernels/check.h"

static const char *const names[] = {"ref", "cpu"};

static void test_gelu_mul_when_widths_vary_is_the_formula(void **state)
{
    static const uint32_t widths[] = {1, 15, 16, 72, 531};
    uint64_t seed = 2;
    for (int b = 0; b < 2; b++) {
        struct backend *backend = open_backend(names[b], 2);
        for (size_t i = 0; i < 5; i++) {
            uint32_t n = widths[i];
            float *x = random_floats(&seed, 40 * 2 * n), *y = mem_calloc(40 * n + 1, sizeof(*y));
            for (uint32_t k = 0; k < 80 * n; k++)
                x[k] *= 3;
            x[0] = -60;
            x[n - 1] = 60;
            y[40 * n] = 77;
            struct tensor tx = tensor_of(x, 40, 2 * n), ty = tensor_of(y, 40, n);
            op_gelu_mul(backend, &ty, &tx);
            for (uint32_t r = 0; r < 40; r++) {
                for (uint32_t k = 0; k < n; k++) {
                    double g = x[r * 2 * n + k], up = x[r * 2 * n + n + k];
                    double u = sqrt(2 / M_PI) * (g + 0.044715 * g * g * g);
                    double expected = g / 2 * (1 + tanh(u)) * up;
                    assert_true(fabs(y[r * n + k] - expected) <=
                                1e-6 * fabs(expected) + 4e-7 * fabs(g * up));
                }
            }
            assert_true(y[40 * n] == 77);
            mem_free(x);
            mem_free(y);
        }
        backend_close(backend);
    }
}

static void test_bias_scale_and_softcap_when_rows_are_strided_leave_the_gaps(void **state)
{
    const float bias[3] = {1, 20, 300};
    for (int b = 0; b < 2; b++) {
        struct backend *backend = open_backend(names[b], 1);
        float x[8] = {1, 2, 3, 99, 4, 5, 6, 99};
        struct tensor t = {x, 2, 3, 4};
        op_add_bias(backend, &t, bias);
        assert_true(x[0] == 2 && x[1] == 22 && x[2] == 303 && x[4] == 5 && x[6] == 306);
        op_scale(backend, &t, 0.5f);
        assert_true(x[0] == 1 && x[2] == 151.5f && x[5] == 12.5f);
        op_softcap(backend, &t, 30);
        assert_true(fabs(x[0] - 30 * tanh(1.0 / 30)) < 1e-6);
        assert_true(fabs(x[2] - 30 * tanh(151.5 / 30)) < 1e-5);
        assert_true(x[3] == 99 && x[7] == 99);
        backend_close(backend);
    }
}

static void test_head_norm_when_run_equals_the_norm_of_each_head(void **state)
{
    uint64_t seed = 5;
    float *x = random_floats(&seed, 9 * 70), *w = random_floats(&seed, 20);
    for (int b = 0; b < 2; b++) {
        struct backend *backend = open_backend(names[b], 3);
        float y[9 * 70], expected[20];
        memcpy(y, x, sizeof(y));
        struct tensor t = {y, 9, 60, 70};
        op_head_norm(backend, &t, 20, w, 1e-5f);
        for (uint32_t r = 0; r < 9; r++) {
            for (uint32_t h = 0; h < 3; h++) {
                struct tensor head = tensor_of(x + r * 70 + h * 20, 1, 20);
                struct tensor to = tensor_of(expected, 1, 20);
                op_rmsnorm(backend, &to, &head, w, 1e-5f);
                assert_memory_equal(y + r * 70 + h * 20, expected, sizeof(expected));
            }
            assert_memory_equal(y + r * 70 + 60, x + r * 70 + 60, 10 * sizeof(*x));
        }
        backend_close(backend);
    }
    mem_free(x);
    mem_free(w);
}

/* Two parts of 30 and 70 columns against the whole row. */
static void test_norm_by_sums_when_a_row_is_in_two_parts_equals_the_whole(void **state)
{
    uint64_t seed = 6;
    float *x = random_floats(&seed, 7 * 100), *w = random_floats(&seed, 100);
    for (int b = 0; b < 2; b++) {
        struct backend *backend = open_backend(names[b], 2);
        float y[7 * 100], whole[7 * 100], left[7], right[7];
        memcpy(y, x, sizeof(y));
        struct tensor a = {y, 7, 30, 100}, c = {y + 30, 7, 70, 100};
        struct tensor all = tensor_of(x, 7, 100), to = tensor_of(whole, 7, 100);
        op_square_sums(backend, left, &a);
        op_square_sums(backend, right, &c);
        for (int r = 0; r < 7; r++)
            left[r] += right[r];
        op_norm_by_sums(backend, &a, left, 100, w, 1e-6f);
        op_norm_by_sums(backend, &c, left, 100, w + 30, 1e-6f);
        op_rmsnorm(backend, &to, &all, w, 1e-6f);
        for (int i = 0; i < 700; i++)
            assert_true(fabsf(y[i] - whole[i]) <= 1e-6f * fabsf(whole[i]) + 1e-9f);
        backend_close(backend);
    }
    mem_free(x);
    mem_free(w);
}

static void test_copy_heads_when_steps_differ_moves_and_repeats(void **state)
{
    for (int b = 0; b < 2; b++) {
        struct backend *backend = open_backend(names[b], 1);
        float x[2 * 6] = {0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 15}, y[2 * 8] = {0};
        struct tensor tx = tensor_of(x, 2, 6), ty = tensor_of(y, 2, 8);
        const struct head_copy move = {.heads = 2, .dim = 2, .x_step = 3, .y_step = 4};
        op_copy_heads(backend, &ty, &tx, &move);
        const float moved[16] = {0, 1, 0, 0, 3, 4, 0, 0, 10, 11, 0, 0, 13, 14, 0, 0};
        assert_memory_equal(y, moved, sizeof(y));
        struct tensor last = {x + 5, 2, 1, 6}, third = {y + 3, 2, 5, 8};
        const struct head_copy repeat = {.heads = 2, .dim = 1, .x_step = 0, .y_step = 4};
        op_copy_heads(backend, &third, &last, &repeat);
        assert_true(y[3] == 5 && y[7] == 5 && y[11] == 15 && y[15] == 15 && y[2] == 0);
        backend_close(backend);
    }
}

static void test_scatter_add_when_rows_are_scaled_adds_to_those_only(void **state)
{
    const uint32_t rows[2] = {2, 0};
    const float scale[2] = {0.5f, 2};
    for (int b = 0; b < 2; b++) {
        struct backend *backend = open_backend(names[b], 1);
        float x[4] = {2, 4, 1, 3}, y[6] = {1, 1, 7, 7, 1, 1};
        struct tensor tx = tensor_of(x, 2, 2), ty = tensor_of(y, 3, 2);
        op_scatter_add(backend, &ty, &tx, rows, scale);
        const float expected[6] = {3, 7, 7, 7, 2, 3};
        assert_memory_equal(y, expected, sizeof(y));
        backend_close(backend);
    }
}

struct route_case {
    struct router router;
    float logits[4], bias[4];
    uint32_t ids[2];
    float weights[2];
};

/* exp of the logits: 1, 8, 2, 5; sum 16. Sigmoid of 0, +-ln 3: 0.5, 0.75, 0.25. */
static const struct route_case routes[] = {
    {{.experts = 4, .chosen = 2, .groups = 1, .groups_chosen = 1, .scale = 1},
     {0, 2.0794415f, 0.6931472f, 1.6094379f},
     {0, 0, 0, 0},
     {1, 3},
     {0.5f, 0.3125f}},
    {{.experts = 4, .chosen = 2, .groups = 1, .groups_chosen = 1, .normalise = true, .scale = 1},
     {0, 2.0794415f, 0.6931472f, 1.6094379f},
     {0, 0, 0, 0},
     {1, 3},
     {8 / 13.0f, 5 / 13.0f}},
    {{.experts = 4, .chosen = 2, .groups = 2, .groups_chosen = 1, .scale = 2}, /* best expert: 1 */
     {0, 2.0794415f, 0.6931472f, 1.6094379f},
     {0, 0, 0, 0},
     {0, 1},
     {0.125f, 1.0f}},
    {{.experts = 4,
      .chosen = 2,
      .groups = 2,
      .groups_chosen = 1,
      .sigmoid = true,
      .group_by_two = true, /* 0.75 + 0.25 against 0.5 + 0.75 */
      .scale = 1},
     {1.0986123f, -1.0986123f, 0, 1.0986123f},
     {0, 0, 0, 0},
     {2, 3},
     {0.5f, 0.75f}},
    {{.experts = 4, .chosen = 1, .groups = 1, .groups_chosen = 1, .sigmoid = true, .scale = 1},
     {1.0986123f, -1.0986123f, 0, 1.0986123f},
     {0, 0, 1, 0}, /* a bias ranks, and is not weighed */
     {2, 0},
     {0.5f, 0}},
};

static void test_route_when_rules_vary_chooses_and_weighs(void **state)
{
    const float none[4] = {0};
    for (int b = 0; b < 2; b++) {
        struct backend *backend = open_backend(names[b], 1);
        for (size_t i = 0; i < sizeof(routes) / sizeof(routes[0]); i++) {
            const struct route_case *c = &routes[i];
            uint32_t ids[2] = {0, 0};
            float weights[2] = {0, 0}, logits[4];
            memcpy(logits, c->logits, sizeof(logits));
            struct tensor t = tensor_of(logits, 1, 4);
            bool biased = memcmp(c->bias, none, sizeof(none)) != 0;
            op_route(backend, ids, weights, &t, biased ? c->bias : NULL, &c->router);
            for (uint32_t n = 0; n < c->router.chosen; n++) {
                assert_int_equal(ids[n], c->ids[n]);
                assert_true(fabsf(weights[n] - c->weights[n]) < 1e-6f);
            }
        }
        backend_close(backend);
    }
}

static void test_route_when_equal_takes_the_first(void **state)
{
    const struct router router = {
        .experts = 4, .chosen = 2, .groups = 1, .groups_chosen = 1, .scale = 1};
    struct backend *backend = open_backend("cpu", 2);
    float logits[3 * 4] = {0, 0, 0, 0, 1, 0, 1, 1, 0, 1, 0, 1}, weights[6];
    uint32_t ids[6];
    struct tensor t = tensor_of(logits, 3, 4);
    op_route(backend, ids, weights, &t, NULL, &router);
    const uint32_t expected[6] = {0, 1, 0, 2, 1, 3};
    assert_memory_equal(ids, expected, sizeof(ids));
    backend_close(backend);
}

/* A damaged file's weights, or an adapter that overflows. */
static void test_route_when_logits_are_no_numbers_takes_each_expert_once(void **state)
{
    const struct router rules[] = {
        {.experts = 4, .chosen = 2, .groups = 1, .groups_chosen = 1, .scale = 1},
        {.experts = 4, .chosen = 2, .groups = 2, .groups_chosen = 1, .sigmoid = true, .scale = 1},
    };
    for (int b = 0; b < 2; b++) {
        struct backend *backend = open_backend(names[b], 1);
        for (size_t i = 0; i < 2 * 5; i++) { /* one is none, or all are */
            float logits[4] = {3, 1, 2, 0}, weights[2];
            uint32_t ids[2] = {UINT32_MAX, UINT32_MAX};
            struct tensor t = tensor_of(logits, 1, 4);
            for (size_t e = 0; e < 4; e++)
                logits[e] = i % 5 == 4 || i % 5 == e ? NAN : logits[e];
            op_route(backend, ids, weights, &t, NULL, &rules[i / 5]);
            assert_true(ids[0] < ids[1] && ids[1] < 4);
        }
        backend_close(backend);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gelu_mul_when_widths_vary_is_the_formula),
        cmocka_unit_test(test_bias_scale_and_softcap_when_rows_are_strided_leave_the_gaps),
        cmocka_unit_test(test_head_norm_when_run_equals_the_norm_of_each_head),
        cmocka_unit_test(test_norm_by_sums_when_a_row_is_in_two_parts_equals_the_whole),
        cmocka_unit_test(test_copy_heads_when_steps_differ_moves_and_repeats),
        cmocka_unit_test(test_scatter_add_when_rows_are_scaled_adds_to_those_only),
        cmocka_unit_test(test_route_when_rules_vary_chooses_and_weighs),
        cmocka_unit_test(test_route_when_equal_takes_the_first),
        cmocka_unit_test(test_route_when_logits_are_no_numbers_takes_each_expert_once),
    };
    if (!choose_family(argc, argv))
        return FAMILY_SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
