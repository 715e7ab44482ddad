/* cpu/slab.c: alignment, zeros, no overlap, and slabs that outlive the current one. */
#include <cmocka.h>

#include <string.h>

#include "kernels/cpu/slab.h"

#define WEIGHTS 40

static void test_take_when_sizes_vary_gives_zeroed_apart_aligned_memory(void **state)
{
    struct slab *current = NULL, *slab[WEIGHTS];
    unsigned char *memory[WEIGHTS];
    (void)state;
    for (int i = 0; i < WEIGHTS; i++) { /* about 2 MiB each: several slabs */
        size_t bytes = ((size_t)2 << 20) + (size_t)i * 1001 + 1;
        void *pointer;
        assert_int_equal(slab_take(&current, bytes, &slab[i], &pointer), 0);
        memory[i] = pointer;
        assert_int_equal((uintptr_t)pointer % 64, 0);
        assert_int_equal(memory[i][0] | memory[i][bytes / 2] | memory[i][bytes - 1], 0);
        memset(pointer, i + 1, bytes);
    }
    assert_ptr_equal(slab[0], slab[1]); /* small ones share */
    assert_ptr_not_equal(slab[0], slab[WEIGHTS - 1]);
    for (int i = 0; i < WEIGHTS; i += 2)
        slab_unref(slab[i]);
    for (int i = 1; i < WEIGHTS; i += 2) { /* half of each slab is still in use */
        size_t bytes = ((size_t)2 << 20) + (size_t)i * 1001 + 1;
        assert_int_equal(memory[i][0], i + 1);
        assert_int_equal(memory[i][bytes - 1], i + 1);
        slab_unref(slab[i]);
    }
    slab_unref(current);
}

static void test_take_when_bigger_than_a_slab_gets_one_of_its_own(void **state)
{
    struct slab *current = NULL, *big, *small;
    void *pointer;
    (void)state;
    assert_int_equal(slab_take(&current, 100, &small, &pointer), 0);
    assert_int_equal(slab_take(&current, (size_t)100 << 20, &big, &pointer), 0);
    assert_ptr_not_equal(big, small);
    ((unsigned char *)pointer)[((size_t)100 << 20) - 1] = 1;
    slab_unref(big);
    slab_unref(small);
    slab_unref(current);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_take_when_sizes_vary_gives_zeroed_apart_aligned_memory),
        cmocka_unit_test(test_take_when_bigger_than_a_slab_gets_one_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
