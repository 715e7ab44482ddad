/* test_heap_trim.c - when memory goes back to the kernel, and that it does: many small blocks,
 * freed below one that stays. Under a sanitizer malloc is not glibc's and keeps what it has. */
#include <cmocka.h>

#include "proto/base/mem.h"
#include "proto/base/proc_stat.h"
#include "router/heap_trim.h"
#include "tests/sanitized.h"

#define MIB ((uint64_t)1 << 20)
#define BLOCKS 400000u
#define BLOCK_BYTES 400u /* 160 MB in all */

static void test_a_trim_is_due_past_a_quarter_and_the_slack(void **state)
{
    (void)state;
    assert_false(heap_trim_due(64 * MIB, 0, true));
    assert_true(heap_trim_due(64 * MIB + 1, 0, true));
    assert_false(heap_trim_due(512 * MIB, 0, false));
    assert_true(heap_trim_due(512 * MIB + 1, 0, false));
    assert_false(heap_trim_due(125 * MIB + 64 * MIB, 100 * MIB, true));
    assert_true(heap_trim_due(125 * MIB + 64 * MIB + 1, 100 * MIB, true));
    assert_false(heap_trim_due(0, 100 * MIB, true)); /* /proc cannot be read */
}

static uint64_t resident(void)
{
    struct proc_stat stat = {.name = ""};
    assert_int_equal(proc_stat_read("/proc/self/stat", &stat), 0);
    return stat.resident_bytes;
}

static void test_free_pages_below_a_block_in_use_go_back(void **state)
{
    char **blocks = mem_calloc(BLOCKS, sizeof(*blocks));
    struct heap_trim trim = {0};
    (void)state;
    for (uint32_t i = 0; i < BLOCKS; i++)
        blocks[i] = mem_zalloc(BLOCK_BYTES);
    for (uint32_t i = 0; i + 1 < BLOCKS; i++)
        mem_free(blocks[i]);
    uint64_t before = resident();
    assert_true(before > 150 * MIB);
    assert_false(heap_trim_tick(&trim, 1000, false));                        /* busy: not so much */
    assert_false(heap_trim_tick(&trim, 1000 + HEAP_TRIM_LOOK_MS - 1, true)); /* not looked at */
    assert_true(heap_trim_tick(&trim, 1000 + HEAP_TRIM_LOOK_MS, true));
    if (!SANITIZED)
        assert_true(resident() < before - 120 * MIB);
    assert_int_equal(trim.next_ms, 1000 + HEAP_TRIM_LOOK_MS + HEAP_TRIM_PAUSE_MS);
    mem_free(blocks[BLOCKS - 1]);
    mem_free(blocks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_trim_is_due_past_a_quarter_and_the_slack),
        cmocka_unit_test(test_free_pages_below_a_block_in_use_go_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
