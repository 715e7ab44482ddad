/* test_info.c - what a process of a group may come to: adapters' slots of all ranks count for rank
 * 0, which fills them. */
#include <cmocka.h>

#include "kernels/backend.h"
#include "worker/info.h"
#include "worker/model/decoder_private.h"

/* One layer; 3 KV heads over 2 ranks: 2 and 1. */
static struct model_config config = {.layers = 1,
                                     .hidden = 64,
                                     .ffn = 96,
                                     .vocab_size = 32,
                                     .q_heads = 6,
                                     .kv_heads = 3,
                                     .head_dim = 16,
                                     .value_dim = 16};
static struct decoder decoder = {.bytes = 1000};
static struct weights weights = {.bytes = 5000};

static uint64_t bytes_of(uint32_t rank, uint32_t ranks, bool lora, uint64_t *ret_slots)
{
    const struct worker_settings settings = {.lora = lora, .loras_max = 3, .lora_rank_max = 8};
    struct backend backend = {.threads = 1};
    struct rank_model model = {
        .config = config, .weights = &weights, .decoder = &decoder, .backend = &backend};
    const struct worker_info info = {.settings = &settings, .model = &model, .rank = rank};
    const struct lora_limits limits = worker_lora_limits(&settings);
    assert_int_equal(shard_compute(&config, rank, ranks, &model.shard, NULL), 0);
    *ret_slots = lora ? lora_bytes(&config, &model.shard, &limits) : 0;
    return worker_info_bytes_max(&info);
}

static void test_bytes_when_adapters_are_served_count_the_slots_a_rank_touches(void **state)
{
    uint64_t slots = 0, first = 0;
    (void)state;
    uint64_t more = bytes_of(0, 1, true, &slots) - bytes_of(0, 1, false, &first);
    assert_int_equal(more, slots);
    assert_true(slots > 3u * 8 * (64 + 96)); /* three slots of rank 8 */
    more = bytes_of(1, 2, true, &slots) - bytes_of(1, 2, false, &first);
    assert_int_equal(more, slots);
    more = bytes_of(0, 2, true, &first) - bytes_of(0, 2, false, &slots);
    assert_int_equal(more, 2 * first); /* the other has fewer heads and as much room */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_when_adapters_are_served_count_the_slots_a_rank_touches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
