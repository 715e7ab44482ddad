/* test_worker_metrics.c - the table is complete and goes over the wire. */
#include <cmocka.h>
#include <stdbool.h>
#include <string.h>

#include "proto/base/mem.h"
#include "proto/worker_metrics.h"

static void test_every_line_of_the_table_is_filled_and_named_by_the_rules(void **state)
{
    (void)state;
    for (size_t id = 0; id < WORKER_METRICS; id++) {
        const struct metric_spec *spec = &worker_metric_specs[id];
        size_t length = strlen(spec->name);
        assert_int_equal(strncmp(spec->name, "refrain_", 8), 0);
        assert_true(strlen(spec->help) > 0);
        bool total = length > 6 && strcmp(spec->name + length - 6, "_total") == 0;
        assert_int_equal(total, spec->type == METRIC_COUNTER);
        assert_int_equal(spec->buckets != NULL, spec->type == METRIC_HISTOGRAM);
    }
}

static void test_flat_list_carries_values_to_the_other_side(void **state)
{
    struct metrics *worker = metrics_new(worker_metric_specs, WORKER_METRICS);
    struct metrics *router = metrics_new(worker_metric_specs, WORKER_METRICS);
    size_t count = metrics_flat_count(worker);
    double *flat = mem_calloc(count, sizeof(*flat));
    (void)state;
    metrics_add(worker, WM_REQUESTS, WM_FINISH_ERROR, 3);
    metrics_set(worker, WM_BLOCKS, WM_BLOCK_CACHED, 17);
    metrics_observe(worker, WM_QUEUE_SECONDS, 0, 1000); /* past the last bucket */
    metrics_flat_get(worker, flat);
    assert_int_equal(metrics_flat_set(router, flat, count), 0);
    assert_true(metrics_get(router, WM_REQUESTS, WM_FINISH_ERROR) == 3);
    assert_true(metrics_get(router, WM_BLOCKS, WM_BLOCK_CACHED) == 17);
    mem_free(flat);
    metrics_free(worker);
    metrics_free(router);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_line_of_the_table_is_filled_and_named_by_the_rules),
        cmocka_unit_test(test_flat_list_carries_values_to_the_other_side),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
