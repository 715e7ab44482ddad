/* test_worker_metrics.c - the table is complete, goes over the wire, and has vLLM's names. */
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

static void test_vllm_names_follow_the_same_values(void **state)
{
    struct metrics *worker = metrics_new(worker_metric_specs, WORKER_METRICS);
    struct metrics *vllm = metrics_new(vllm_metric_specs, VLLM_METRICS);
    struct buffer out;
    (void)state;
    metrics_set(worker, WM_RUNNING, 0, 4);
    metrics_set(worker, WM_KV_USAGE_RATIO, 0, 0.25);
    metrics_add(worker, WM_PROMPT_TOKENS, 0, 100);
    metrics_add(worker, WM_CACHED_TOKENS, 0, 64);
    vllm_metrics_fill(worker, vllm);
    metrics_set(worker, WM_RUNNING, 0, 2);
    metrics_add(worker, WM_PROMPT_TOKENS, 0, 10);
    vllm_metrics_fill(worker, vllm); /* again: no double counting */
    buffer_init(&out, 1 << 20);
    metrics_write(vllm, "engine=\"0\"", &out);
    assert_non_null(strstr(out.data, "vllm:num_requests_running{engine=\"0\"} 2\n"));
    assert_non_null(strstr(out.data, "vllm:kv_cache_usage_perc{engine=\"0\"} 0.25\n"));
    assert_non_null(strstr(out.data, "vllm:prefix_cache_queries_total{engine=\"0\"} 110\n"));
    assert_non_null(strstr(out.data, "vllm:prefix_cache_hits_total{engine=\"0\"} 64\n"));
    buffer_done(&out);
    metrics_free(worker);
    metrics_free(vllm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_line_of_the_table_is_filled_and_named_by_the_rules),
        cmocka_unit_test(test_flat_list_carries_values_to_the_other_side),
        cmocka_unit_test(test_vllm_names_follow_the_same_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
