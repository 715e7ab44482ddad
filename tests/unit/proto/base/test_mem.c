/* mem.c: what comes back is usable, zeroed where promised, and big failures are answers. */
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "proto/base/mem.h"

static void test_alloc_when_nothing_is_asked_for_gives_a_pointer(void **state)
{
    void *a = mem_alloc(0);
    void *b = mem_calloc(0, 8);

    (void)state;
    assert_non_null(a);
    assert_non_null(b);
    mem_free(a);
    mem_free(b);
    mem_free(NULL);
}

static void test_zalloc_when_memory_is_reused_gives_zeros(void **state)
{
    (void)state;
    for (int round = 0; round < 4; round++) {
        unsigned char *bytes = mem_zalloc(1000);

        for (int i = 0; i < 1000; i++)
            assert_int_equal(bytes[i], 0);
        memset(bytes, 0xff, 1000);
        mem_free(bytes);
    }
}

static void test_realloc_when_grown_keeps_the_content(void **state)
{
    char *text = mem_strdup("block");

    (void)state;
    text = mem_realloc(text, 4096);
    assert_string_equal(text, "block");
    mem_free(text);
}

static void test_strndup_when_text_holds_nul_copies_all_bytes(void **state)
{
    char *copy = mem_strndup("a\0b", 3);

    (void)state;
    assert_memory_equal(copy, "a\0b\0", 4);
    mem_free(copy);
}

static void test_printf_when_given_arguments_formats_them(void **state)
{
    char *text = mem_printf("%s=%d", "blocks", 16);

    (void)state;
    assert_string_equal(text, "blocks=16");
    mem_free(text);
}

static void test_map_when_small_is_aligned_zeroed_and_writable(void **state)
{
    void *pointer = NULL;
    unsigned char *bytes;

    (void)state;
    assert_int_equal(mem_map(5000, &pointer), 0);
    assert_int_equal((uintptr_t)pointer % 64, 0);
    bytes = pointer;
    assert_int_equal(bytes[0], 0);
    assert_int_equal(bytes[4999], 0);
    memset(bytes, 1, 5000);
    mem_unmap(pointer, 5000);
}

static void test_map_when_big_lies_on_a_huge_page_border(void **state)
{
    size_t bytes = ((size_t)5 << 20) + 1;
    void *pointer = NULL;

    (void)state;
    assert_int_equal(mem_map(bytes, &pointer), 0);
    assert_int_equal((uintptr_t)pointer % ((size_t)2 << 20), 0);
    assert_int_equal(((unsigned char *)pointer)[bytes - 1], 0);
    memset(pointer, 7, bytes);
    mem_unmap(pointer, bytes);
    mem_unmap(NULL, 0);
}

static void test_map_when_too_much_is_asked_for_answers_enomem(void **state)
{
    int marker;
    void *pointer = &marker;

    (void)state;
    assert_int_equal(mem_map(SIZE_MAX, &pointer), -ENOMEM);
    assert_int_equal(mem_map((size_t)1 << 60, &pointer), -ENOMEM);
    assert_ptr_equal(pointer, &marker); /* untouched */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alloc_when_nothing_is_asked_for_gives_a_pointer),
        cmocka_unit_test(test_zalloc_when_memory_is_reused_gives_zeros),
        cmocka_unit_test(test_realloc_when_grown_keeps_the_content),
        cmocka_unit_test(test_strndup_when_text_holds_nul_copies_all_bytes),
        cmocka_unit_test(test_printf_when_given_arguments_formats_them),
        cmocka_unit_test(test_map_when_small_is_aligned_zeroed_and_writable),
        cmocka_unit_test(test_map_when_big_lies_on_a_huge_page_border),
        cmocka_unit_test(test_map_when_too_much_is_asked_for_answers_enomem),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
