/* test_block_pool_property.c - the pool against a naive model: ten million operations (one million
 * under a sanitizer), wide hashes and narrow ones that collide, caching on and off. */
#include <cmocka.h>
#include <stdbool.h>

#include "tests/sanitized.h"
#include "tests/unit/worker/kv/pool_model.h"

#define OPERATIONS (SANITIZED ? 1000000u : 10000000u)
#define RUNS 200u

static uint32_t draw_random(void *user, uint32_t below)
{
    uint64_t *random = user;

    *random = *random * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX */
    return (uint32_t)((*random >> 33) % below);
}

static void run(uint64_t seed)
{
    static struct pool_model model;
    uint64_t random = seed;

    const struct block_pool_settings settings = {
        .blocks_total = 1 + draw_random(&random, MODEL_BLOCKS_MAX),
        .prefix_caching = seed % 10 != 0,
        .pinned_blocks_max = draw_random(&random, MODEL_BLOCKS_MAX),
        .eviction = eviction_policies[seed / 2 % eviction_policies_count()],
    };
    model_init(&model, &settings, seed % 2 != 0, draw_random, &random);
    for (uint32_t i = 0; i < OPERATIONS / RUNS; i++) {
        model_op(&model);
        if (i % 4 == 0)
            model_compare(&model);
        if (i % 64 == 0)
            block_pool_check(model.pool);
    }
    model_done(&model);
}

static void test_random_operations_agree_with_the_naive_model(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= RUNS; seed++)
        run(seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_operations_agree_with_the_naive_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
