/* mem.c: what comes back is usable, zeroed where promised, and big failures are answers. */
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "proto/base/arena.h"
#include "proto/base/buffer.h"
#include "proto/base/json.h"
#include "proto/base/map.h"
#include "proto/base/mem.h"
#include "proto/base/queue.h"

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

static struct mem_usage usage_of(enum mem_purpose purpose)
{
    struct mem_usage usage;
    mem_usage(purpose, &usage);
    return usage;
}

static void test_usage_is_what_is_held_by_purpose(void **state)
{
    struct mem_usage before = usage_of(MEM_TEXT), other = usage_of(MEM_OTHER);
    (void)state;

    char *text = mem_alloc_as(MEM_TEXT, 1000);
    void *zeros = mem_calloc_as(MEM_TEXT, 10, 50);
    assert_int_equal(usage_of(MEM_TEXT).bytes - before.bytes, 1500);
    assert_int_equal(usage_of(MEM_TEXT).blocks - before.blocks, 2);
    text = mem_realloc(text, 400); /* keeps its purpose, whoever moves it */
    assert_int_equal(usage_of(MEM_TEXT).bytes - before.bytes, 900);
    assert_int_equal(usage_of(MEM_OTHER).bytes, other.bytes);
    mem_free(text);
    mem_free(zeros);
    assert_int_equal(usage_of(MEM_TEXT).bytes, before.bytes);
    assert_int_equal(usage_of(MEM_TEXT).blocks, before.blocks);
}

static void test_mapped_pages_count_as_soon_as_they_are_there(void **state)
{
    struct mem_usage before = usage_of(MEM_KV_POOL);
    void *pages = NULL;
    (void)state;

    assert_int_equal(mem_map_as(MEM_KV_POOL, 5000, &pages), 0);
    assert_int_equal(usage_of(MEM_KV_POOL).bytes - before.bytes, 8192); /* whole pages */
    mem_unmap_as(MEM_KV_POOL, pages, 5000);
    assert_int_equal(usage_of(MEM_KV_POOL).bytes, before.bytes);
    assert_int_equal(usage_of(MEM_KV_POOL).blocks, before.blocks);
}

static void test_buffers_arenas_maps_and_queues_count_for_their_maker(void **state)
{
    struct mem_usage before = usage_of(MEM_HTTP);
    struct buffer buffer;
    struct arena arena;
    (void)state;

    buffer_init_as(&buffer, MEM_HTTP, 1 << 20);
    arena_init_as(&arena, MEM_HTTP, 1 << 20);
    buffer_append(&buffer, "0123456789", 10);
    assert_true(usage_of(MEM_HTTP).bytes > before.bytes);
    assert_non_null(arena_alloc(&arena, 100));
    struct map *map = map_new_as(MEM_HTTP, 10);
    struct queue *queue = queue_new_as(MEM_HTTP, 10);
    assert_int_equal(map_set_text(map, "a key that is longer than what fits in a slot", map), 0);
    assert_true(usage_of(MEM_HTTP).blocks >= before.blocks + 6);
    map_free(map);
    queue_free(queue);
    arena_done(&arena);
    buffer_done(&buffer);
    assert_int_equal(usage_of(MEM_HTTP).bytes, before.bytes);
    assert_int_equal(usage_of(MEM_HTTP).blocks, before.blocks);
}

static void test_every_purpose_has_a_name_of_its_own(void **state)
{
    (void)state;
    for (enum mem_purpose a = 0; a < MEM_PURPOSE_COUNT; a++) {
        assert_true(strlen(mem_purpose_name(a)) > 0);
        for (enum mem_purpose b = 0; b < a; b++)
            assert_string_not_equal(mem_purpose_name(a), mem_purpose_name(b));
    }
}

static void test_json_counts_when_told_to(void **state)
{
    struct mem_usage before = usage_of(MEM_JSON);
    (void)state;

    json_count_memory();
    json_t *value = json_pack("{s:[i,i,i]}", "list", 1, 2, 3);
    assert_true(usage_of(MEM_JSON).blocks > before.blocks);
    json_decref(value);
    assert_int_equal(usage_of(MEM_JSON).bytes, before.bytes);
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
        cmocka_unit_test(test_usage_is_what_is_held_by_purpose),
        cmocka_unit_test(test_mapped_pages_count_as_soon_as_they_are_there),
        cmocka_unit_test(test_buffers_arenas_maps_and_queues_count_for_their_maker),
        cmocka_unit_test(test_every_purpose_has_a_name_of_its_own),
        cmocka_unit_test(test_json_counts_when_told_to),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
