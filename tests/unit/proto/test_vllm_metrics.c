/* test_vllm_metrics.c - vLLM's names follow the worker's values: counters rise, gauges follow,
 * histograms are whole copies, labels have vLLM's words. */
#include <cmocka.h>
#include <stdbool.h>
#include <string.h>

#include "proto/base/mem.h"
#include "proto/vllm_metrics.h"

struct pair {
    struct metrics *worker, *vllm;
    struct buffer page;
};

static int setup(void **state)
{
    struct pair *pair = mem_zalloc(sizeof(*pair));
    pair->worker = metrics_new(worker_metric_specs, WORKER_METRICS);
    pair->vllm = metrics_new(vllm_metric_specs, VLLM_METRICS);
    buffer_init(&pair->page, 1 << 20);
    *state = pair;
    return 0;
}

static int teardown(void **state)
{
    struct pair *pair = *state;
    buffer_done(&pair->page);
    metrics_free(pair->worker);
    metrics_free(pair->vllm);
    mem_free(pair);
    return 0;
}

static void expect(struct pair *pair, const char *line)
{
    vllm_metrics_fill(pair->worker, pair->vllm);
    buffer_clear(&pair->page);
    metrics_write(pair->vllm, "model_name=\"m\",engine=\"0\"", &pair->page);
    assert_int_equal(buffer_finish(&pair->page), 0);
    if (!strstr(pair->page.data, line))
        fail_msg("not on the page: %s", line);
}

#define LABELS "{model_name=\"m\",engine=\"0\"}"

static void test_every_row_has_a_name_of_its_own_and_the_right_shape(void **state)
{
    (void)state;
    for (size_t i = 0; i < VLLM_METRICS; i++) {
        const struct metric_spec *spec = &vllm_metric_specs[i];
        assert_int_equal(strncmp(spec->name, "vllm:", 5), 0);
        assert_int_equal(spec->type == METRIC_HISTOGRAM, spec->buckets != NULL);
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(spec->name, vllm_metric_specs[j].name);
    }
}

static void test_gauges_follow_and_counters_only_rise(void **state)
{
    struct pair *pair = *state;
    metrics_set(pair->worker, WM_RUNNING, 0, 4);
    metrics_set(pair->worker, WM_KV_USAGE_RATIO, 0, 0.25);
    metrics_add(pair->worker, WM_PROMPT_TOKENS, 0, 100);
    metrics_add(pair->worker, WM_CACHED_TOKENS, 0, 64);
    metrics_set(pair->worker, WM_WAITING_BY_REASON, WM_WAIT_CAPACITY, 3);
    metrics_set(pair->worker, WM_WAITING_BY_REASON, WM_WAIT_DEFERRED, 2);
    expect(pair, "vllm:num_requests_running" LABELS " 4\n");
    expect(pair, "vllm:num_requests_waiting_by_reason{model_name=\"m\",engine=\"0\","
                 "reason=\"capacity\"} 3\n");
    expect(pair, "reason=\"deferred\"} 2\n");
    metrics_set(pair->worker, WM_RUNNING, 0, 2);
    metrics_add(pair->worker, WM_PROMPT_TOKENS, 0, 10);
    expect(pair, "vllm:num_requests_running" LABELS " 2\n");
    expect(pair, "vllm:kv_cache_usage_perc" LABELS " 0.25\n");
    expect(pair, "vllm:gpu_cache_usage_perc" LABELS " 0.25\n");
    expect(pair, "vllm:prefix_cache_queries_total" LABELS " 110\n"); /* no double counting */
    expect(pair, "vllm:prefix_cache_hits_total" LABELS " 64\n");
}

static void test_hit_rate_is_minus_one_without_a_cache(void **state)
{
    struct pair *pair = *state;
    expect(pair, "vllm:gpu_prefix_cache_hit_rate" LABELS " -1\n");
    metrics_set(pair->worker, WM_PREFIX_CACHING, 0, 1);
    expect(pair, "vllm:gpu_prefix_cache_hit_rate" LABELS " 0\n");
    metrics_add(pair->worker, WM_LOOKUP_BLOCKS, 0, 8);
    metrics_add(pair->worker, WM_HIT_BLOCKS, 0, 2);
    expect(pair, "vllm:gpu_prefix_cache_hit_rate" LABELS " 0.25\n");
    expect(pair, "vllm:cpu_prefix_cache_hit_rate" LABELS " -1\n");
}

static void test_finishes_and_sources_have_vllm_s_words(void **state)
{
    struct pair *pair = *state;
    metrics_add(pair->worker, WM_REQUESTS, WM_FINISH_STOP, 1);
    metrics_add(pair->worker, WM_REQUESTS, WM_FINISH_LENGTH, 2);
    metrics_add(pair->worker, WM_REQUESTS, WM_FINISH_CANCELLED, 3);
    metrics_add(pair->worker, WM_REQUESTS, WM_FINISH_DEADLINE, 4);
    metrics_add(pair->worker, WM_REQUESTS, WM_FINISH_ERROR, 5);
    metrics_add(pair->worker, WM_REQUESTS, WM_FINISH_REPETITION, 6);
    metrics_add(pair->worker, WM_COMPUTED_TOKENS, 0, 30);
    metrics_add(pair->worker, WM_CACHED_TOKENS, 0, 70);
    metrics_add(pair->worker, WM_CACHED_BY_TIER, WM_TIER_POOL, 45);
    metrics_add(pair->worker, WM_CACHED_BY_TIER, WM_TIER_HOST, 20);
    metrics_add(pair->worker, WM_CACHED_BY_TIER, WM_TIER_DISK, 5);
    expect(pair, "engine=\"0\",finished_reason=\"stop\"} 1\n");
    expect(pair, "engine=\"0\",finished_reason=\"length\"} 2\n");
    expect(pair, "engine=\"0\",finished_reason=\"abort\"} 7\n");
    expect(pair, "engine=\"0\",finished_reason=\"error\"} 5\n");
    expect(pair, "engine=\"0\",finished_reason=\"repetition\"} 6\n");
    expect(pair, "source=\"local_compute\"} 30\n");
    expect(pair, "source=\"local_cache_hit\"} 45\n");
    expect(pair, "source=\"external_kv_transfer\"} 25\n");
}

static void test_host_tier_is_vllm_s_cpu_cache_and_tiers_its_external_ones(void **state)
{
    struct pair *pair = *state;
    expect(pair, "vllm:cpu_cache_usage_perc" LABELS " 0\n");
    metrics_set(pair->worker, WM_TIER_UP, WM_TIER_HOST, 1);
    metrics_set(pair->worker, WM_TIER_BLOCKS, WM_TIER_HOST, 30);
    metrics_set(pair->worker, WM_TIER_BLOCKS_MAX, WM_TIER_HOST, 40);
    metrics_add(pair->worker, WM_TIER_HITS, WM_TIER_HOST, 1);
    metrics_add(pair->worker, WM_TIER_MISSES, WM_TIER_HOST, 4);
    metrics_add(pair->worker, WM_TIER_ASKED_TOKENS, 0, 90);
    metrics_add(pair->worker, WM_CACHED_TOKENS, 0, 70);
    metrics_add(pair->worker, WM_CACHED_BY_TIER, WM_TIER_HOST, 20);
    metrics_add(pair->worker, WM_CACHED_BY_TIER, WM_TIER_DISK, 6);
    expect(pair, "vllm:cpu_cache_usage_perc" LABELS " 0.75\n");
    expect(pair, "vllm:cpu_prefix_cache_hit_rate" LABELS " 0.2\n");
    expect(pair, "vllm:external_prefix_cache_queries_total" LABELS " 90\n");
    expect(pair, "vllm:external_prefix_cache_hits_total" LABELS " 26\n");
    expect(pair, "vllm:prefix_cache_hits_total" LABELS " 44\n");
}

static void test_histograms_are_copies_with_vllm_s_buckets(void **state)
{
    struct pair *pair = *state;
    metrics_observe(pair->worker, WM_GAP_SECONDS, 0, 0.03);
    metrics_observe(pair->worker, WM_GAP_SECONDS, 0, 0.6);
    vllm_metrics_fill(pair->worker, pair->vllm); /* twice: nothing doubles */
    expect(pair, "vllm:time_per_output_token_seconds_bucket{model_name=\"m\",engine=\"0\","
                 "le=\"0.05\"} 1\n");
    expect(pair, "vllm:inter_token_latency_seconds_count" LABELS " 2\n");
    expect(pair, "vllm:inter_token_latency_seconds_sum" LABELS " 0.63\n");
    metrics_observe(pair->worker, WM_REQUEST_SECONDS, 0, 0.9);
    expect(pair, "vllm:e2e_request_latency_seconds_bucket{model_name=\"m\",engine=\"0\","
                 "le=\"0.8\"} 0\n");
    expect(pair, "vllm:e2e_request_latency_seconds_bucket{model_name=\"m\",engine=\"0\","
                 "le=\"1\"} 1\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_row_has_a_name_of_its_own_and_the_right_shape),
        cmocka_unit_test_setup_teardown(test_gauges_follow_and_counters_only_rise, setup, teardown),
        cmocka_unit_test_setup_teardown(test_hit_rate_is_minus_one_without_a_cache, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_finishes_and_sources_have_vllm_s_words, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(
            test_host_tier_is_vllm_s_cpu_cache_and_tiers_its_external_ones, setup, teardown),
        cmocka_unit_test_setup_teardown(test_histograms_are_copies_with_vllm_s_buckets, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
