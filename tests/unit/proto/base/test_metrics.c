/* metrics.c: the exact text, the flat list, and threads. */
#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "proto/base/metrics.h"

enum { REQUESTS = 0, BLOCKS, MISSES, TTFT };

static const char *const causes[] = {"new", "evicted", "say \"hi\"\\\n", NULL};
static const double bounds[] = {0.005, 0.1, 1, INFINITY};
static const struct metric_spec specs[] = {
    {.name = "refrain_requests_total", .type = METRIC_COUNTER, .help = "Requests."},
    {.name = "refrain_kv_blocks", .type = METRIC_GAUGE, .help = "Blocks\\used,\nnow."},
    {.name = "refrain_prefix_miss_total",
     .type = METRIC_COUNTER,
     .help = "Misses.",
     .label = "cause",
     .label_values = causes},
    {.name = "refrain_ttft_seconds",
     .type = METRIC_HISTOGRAM,
     .help = "Time to the first token.",
     .buckets = bounds},
};
#define SPECS (sizeof(specs) / sizeof(specs[0]))

static struct metrics *metrics;
static struct buffer out;

static int set_up(void **state)
{
    (void)state;
    metrics = metrics_new(specs, SPECS);
    buffer_init(&out, 65536);
    return 0;
}

static int tear_down(void **state)
{
    int r = buffer_finish(&out);

    (void)state;
    metrics_free(metrics);
    buffer_done(&out);
    return r;
}

static void test_write_when_all_kinds_have_values_is_prometheus_text(void **state)
{
    (void)state;
    metrics_add(metrics, REQUESTS, 0, 3);
    metrics_set(metrics, BLOCKS, 0, 12.5);
    metrics_add(metrics, MISSES, 1, 2);
    metrics_observe(metrics, TTFT, 0, 0.005); /* a bound belongs to its bucket */
    metrics_observe(metrics, TTFT, 0, 0.25);
    metrics_observe(metrics, TTFT, 0, 7);
    metrics_write(metrics, "group=\"0\",rank=\"1\"", &out);
    assert_string_equal(
        out.data,
        "# HELP refrain_requests_total Requests.\n"
        "# TYPE refrain_requests_total counter\n"
        "refrain_requests_total{group=\"0\",rank=\"1\"} 3\n"
        "# HELP refrain_kv_blocks Blocks\\\\used,\\nnow.\n"
        "# TYPE refrain_kv_blocks gauge\n"
        "refrain_kv_blocks{group=\"0\",rank=\"1\"} 12.5\n"
        "# HELP refrain_prefix_miss_total Misses.\n"
        "# TYPE refrain_prefix_miss_total counter\n"
        "refrain_prefix_miss_total{group=\"0\",rank=\"1\",cause=\"new\"} 0\n"
        "refrain_prefix_miss_total{group=\"0\",rank=\"1\",cause=\"evicted\"} 2\n"
        "refrain_prefix_miss_total{group=\"0\",rank=\"1\",cause=\"say \\\"hi\\\"\\\\\\n\"} 0\n"
        "# HELP refrain_ttft_seconds Time to the first token.\n"
        "# TYPE refrain_ttft_seconds histogram\n"
        "refrain_ttft_seconds_bucket{group=\"0\",rank=\"1\",le=\"0.005\"} 1\n"
        "refrain_ttft_seconds_bucket{group=\"0\",rank=\"1\",le=\"0.1\"} 1\n"
        "refrain_ttft_seconds_bucket{group=\"0\",rank=\"1\",le=\"1\"} 2\n"
        "refrain_ttft_seconds_bucket{group=\"0\",rank=\"1\",le=\"+Inf\"} 3\n"
        "refrain_ttft_seconds_sum{group=\"0\",rank=\"1\"} 7.255\n"
        "refrain_ttft_seconds_count{group=\"0\",rank=\"1\"} 3\n");
}

static void test_write_when_there_are_no_labels_has_no_braces(void **state)
{
    (void)state;
    metrics_write_samples(metrics, REQUESTS, NULL, &out);
    metrics_write_samples(metrics, BLOCKS, "", &out);
    metrics_write_samples(metrics, TTFT, NULL, &out);
    assert_string_equal(out.data, "refrain_requests_total 0\n"
                                  "refrain_kv_blocks 0\n"
                                  "refrain_ttft_seconds_bucket{le=\"0.005\"} 0\n"
                                  "refrain_ttft_seconds_bucket{le=\"0.1\"} 0\n"
                                  "refrain_ttft_seconds_bucket{le=\"1\"} 0\n"
                                  "refrain_ttft_seconds_bucket{le=\"+Inf\"} 0\n"
                                  "refrain_ttft_seconds_sum 0\n"
                                  "refrain_ttft_seconds_count 0\n");
}

static void test_get_when_values_changed_gives_the_last(void **state)
{
    (void)state;
    metrics_add(metrics, REQUESTS, 0, 1);
    metrics_add(metrics, REQUESTS, 0, 1.5);
    metrics_set(metrics, BLOCKS, 0, 9);
    metrics_set(metrics, BLOCKS, 0, -2);
    metrics_add(metrics, BLOCKS, 0, -1);
    metrics_observe(metrics, TTFT, 0, 0.2);
    metrics_observe(metrics, TTFT, 0, 200);
    assert_true(metrics_get(metrics, REQUESTS, 0) == 2.5);
    assert_true(metrics_get(metrics, BLOCKS, 0) == -3);
    assert_true(metrics_get(metrics, MISSES, 2) == 0);
    assert_true(metrics_get(metrics, TTFT, 0) == 2); /* observations */
}

static void test_flat_when_sent_to_another_registry_writes_the_same_text(void **state)
{
    struct metrics *other = metrics_new(specs, SPECS);
    struct buffer other_out;
    double values[10]; /* 1 + 1 + 3 + (3 bounds + Inf + sum) */

    (void)state;
    metrics_add(metrics, REQUESTS, 0, 3);
    metrics_add(metrics, MISSES, 2, 1);
    metrics_observe(metrics, TTFT, 0, 0.05);
    assert_int_equal(metrics_flat_count(metrics), 10);
    metrics_flat_get(metrics, values);
    assert_true(values[0] == 3 && values[4] == 1 && values[6] == 1 && values[9] == 0.05);
    assert_int_equal(metrics_flat_set(other, values, 9), -EINVAL);
    assert_int_equal(metrics_flat_set(other, values, 11), -EINVAL);
    assert_int_equal(metrics_flat_set(other, values, 10), 0);
    buffer_init(&other_out, 65536);
    metrics_write(metrics, NULL, &out);
    metrics_write(other, NULL, &other_out);
    assert_string_equal(out.data, other_out.data);
    buffer_done(&other_out);
    metrics_free(other);
}

static void *count_up(void *argument)
{
    for (int i = 0; i < 20000; i++) {
        metrics_add(metrics, REQUESTS, 0, 1);
        metrics_observe(metrics, TTFT, 0, 0.5);
    }
    return argument;
}

static void test_add_when_four_threads_count_loses_nothing(void **state)
{
    pthread_t threads[4];

    (void)state;
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, count_up, NULL), 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_true(metrics_get(metrics, REQUESTS, 0) == 80000);
    assert_true(metrics_get(metrics, TTFT, 0) == 80000);
    metrics_write_samples(metrics, TTFT, NULL, &out);
    assert_non_null(strstr(out.data, "refrain_ttft_seconds_sum 40000\n"));
}

static void test_new_when_the_table_is_empty_writes_nothing(void **state)
{
    struct metrics *empty = metrics_new(NULL, 0);

    (void)state;
    assert_int_equal(metrics_flat_count(empty), 0);
    metrics_write(empty, NULL, &out);
    assert_string_equal(out.data, "");
    metrics_free(empty);
    metrics_free(NULL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_write_when_all_kinds_have_values_is_prometheus_text),
        TEST(test_write_when_there_are_no_labels_has_no_braces),
        TEST(test_get_when_values_changed_gives_the_last),
        TEST(test_flat_when_sent_to_another_registry_writes_the_same_text),
        TEST(test_add_when_four_threads_count_loses_nothing),
        TEST(test_new_when_the_table_is_empty_writes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
