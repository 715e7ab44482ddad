/* arena.c: alignment, the bound, and what reset keeps. */
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "proto/base/arena.h"

static struct arena arena;

static int set_up(void **state)
{
    (void)state;
    arena_init(&arena, (size_t)1 << 20);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    if (arena.bytes_used > arena.bytes_max)
        return -1;
    arena_done(&arena);
    return arena.chunks == NULL && arena.bytes_used == 0 ? 0 : -1;
}

static void test_alloc_when_sizes_are_odd_aligns_to_16(void **state)
{
    (void)state;
    for (size_t bytes = 0; bytes < 100; bytes++) {
        char *pointer = arena_alloc(&arena, bytes);

        assert_non_null(pointer);
        assert_int_equal((uintptr_t)pointer % 16, 0);
        memset(pointer, 0x55, bytes);
    }
}

static void test_alloc_when_many_keeps_every_content(void **state)
{
    char *texts[2000];

    (void)state;
    for (int i = 0; i < 2000; i++) {
        texts[i] = arena_printf(&arena, "text %d %*s", i, i % 200, "");
        assert_non_null(texts[i]);
    }
    for (int i = 0; i < 2000; i++) {
        char expected[32];

        (void)snprintf(expected, sizeof(expected), "text %d ", i);
        assert_memory_equal(texts[i], expected, strlen(expected));
    }
}

static void test_alloc_when_the_bound_is_reached_gives_null_and_goes_on(void **state)
{
    (void)state;
    assert_non_null(arena_alloc(&arena, ((size_t)1 << 20) - 64));
    assert_null(arena_alloc(&arena, 65)); /* 80 with alignment, 64 are left */
    assert_non_null(arena_alloc(&arena, 64));
    assert_null(arena_alloc(&arena, 1));
    assert_null(arena_strdup(&arena, "x"));
    assert_null(arena_printf(&arena, "x"));
    assert_int_equal(arena.bytes_used, (size_t)1 << 20);
}

static void test_alloc_when_the_size_is_absurd_gives_null(void **state)
{
    (void)state;
    assert_null(arena_alloc(&arena, SIZE_MAX));
    assert_null(arena_alloc(&arena, SIZE_MAX - 15));
    assert_null(arena_strndup(&arena, "x", SIZE_MAX));
    assert_int_equal(arena.bytes_used, 0);
}

static void test_alloc_when_one_is_big_leaves_the_small_chunk_in_use(void **state)
{
    char *before = arena_alloc(&arena, 16);
    char *big = arena_alloc(&arena, 500000);
    char *after = arena_alloc(&arena, 16);

    (void)state;
    assert_non_null(big);
    memset(big, 1, 500000);
    assert_ptr_equal(after, before + 16);
}

static void test_reset_when_used_keeps_the_first_chunk(void **state)
{
    char *first = arena_alloc(&arena, 16);

    (void)state;
    for (int i = 0; i < 100; i++)
        assert_non_null(arena_alloc(&arena, 4000));
    arena_reset(&arena);
    assert_int_equal(arena.bytes_used, 0);
    assert_ptr_equal(arena_alloc(&arena, 16), first);
    assert_non_null(arena_alloc(&arena, ((size_t)1 << 20) - 16)); /* the whole bound again */
}

static void test_reset_when_never_used_is_harmless(void **state)
{
    (void)state;
    arena_reset(&arena);
    assert_null(arena.chunks);
}

static void test_zalloc_when_memory_was_used_gives_zeros(void **state)
{
    unsigned char *bytes = arena_alloc(&arena, 512);

    (void)state;
    memset(bytes, 0xff, 512);
    arena_reset(&arena);
    bytes = arena_zalloc(&arena, 512);
    for (int i = 0; i < 512; i++)
        assert_int_equal(bytes[i], 0);
}

static void test_strndup_when_text_holds_nul_copies_all_bytes(void **state)
{
    (void)state;
    assert_memory_equal(arena_strndup(&arena, "a\0bc", 3), "a\0b\0", 4);
    assert_string_equal(arena_strndup(&arena, NULL, 0), "");
    assert_string_equal(arena_strdup(&arena, "seal"), "seal");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_alloc_when_sizes_are_odd_aligns_to_16),
        TEST(test_alloc_when_many_keeps_every_content),
        TEST(test_alloc_when_the_bound_is_reached_gives_null_and_goes_on),
        TEST(test_alloc_when_the_size_is_absurd_gives_null),
        TEST(test_alloc_when_one_is_big_leaves_the_small_chunk_in_use),
        TEST(test_reset_when_used_keeps_the_first_chunk),
        TEST(test_reset_when_never_used_is_harmless),
        TEST(test_zalloc_when_memory_was_used_gives_zeros),
        TEST(test_strndup_when_text_holds_nul_copies_all_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
