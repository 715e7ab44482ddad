/* test_layer_groups.c - which layers have KV blocks of their own. */
#include <cmocka.h>

#include "worker/model/layer_groups.h"

static struct layer_groups groups_of(uint32_t sliding, uint32_t window, bool whole)
{
    struct model_config config = {.layers = 6, .context_tokens = 512, .window = window};
    for (uint32_t layer = 0; layer < sliding; layer++)
        config.layer_kinds[layer] = LAYER_SLIDING | LAYER_NO_ROPE;
    return layer_groups_of(&config, whole);
}

static void assert_groups(struct layer_groups groups, uint32_t full, uint32_t sliding,
                          uint32_t window)
{
    assert_int_equal(groups.full_layers, full);
    assert_int_equal(groups.window_layers, sliding);
    assert_int_equal(groups.window, window);
}

static void test_layers_fall_into_those_that_slide_and_the_others(void **state)
{
    (void)state;
    assert_groups(groups_of(0, 0, false), 6, 0, 0);
    assert_groups(groups_of(5, 64, false), 1, 5, 64);
    assert_groups(groups_of(6, 64, false), 0, 6, 64);
    assert_groups(groups_of(0, 64, false), 6, 0, 0); /* a window that no layer has */
}

static void test_windows_are_masks_where_they_save_nothing(void **state)
{
    (void)state;
    assert_groups(groups_of(5, 64, true), 6, 0, 0);
    assert_groups(groups_of(6, 512, false), 6, 0, 0); /* no shorter than the context */
    assert_groups(groups_of(6, 511, false), 0, 6, 511);
    assert_groups(groups_of(6, 1, false), 6, 0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layers_fall_into_those_that_slide_and_the_others),
        cmocka_unit_test(test_windows_are_masks_where_they_save_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
