/* test_gguf.c - valid files read back; every kind of broken file is refused with its own sentence.
 */
#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/unit/proto/files/gguf_writer.h"

static struct gguf_writer w;

static int setup(void **state)
{
    writer_init(&w);
    return 0;
}

static int teardown(void **state)
{
    writer_done(&w);
    return 0;
}

static void refuse_bytes(const void *data, size_t bytes, const char *sentence)
{
    struct errmsg err = {""};
    struct gguf *gguf = NULL;
    assert_int_equal(gguf_open_memory(data, bytes, &gguf, &err), -EINVAL);
    assert_null(gguf);
    if (strstr(err.text, sentence) == NULL)
        fail_msg("'%s' does not say '%s'", err.text, sentence);
}

static void refuse(const char *sentence)
{
    size_t bytes = 0;
    void *data = writer_finish(&w, &bytes);
    refuse_bytes(data, bytes, sentence);
    free(data);
}

/* --- valid ----------------------------------------------------------------------------------- */

static void check_scalars(const struct gguf *gguf)
{
    uint32_t u = 0;
    float f = 0;
    bool b = false;
    struct gguf_string s;
    assert_int_equal(gguf_get_u32(gguf, "u8", &u), 0);
    assert_int_equal(u, 200);
    assert_int_equal(gguf_get_u32(gguf, "i16", &u), -EINVAL); /* -2 */
    assert_int_equal(gguf_get_u32(gguf, "u64", &u), 0);
    assert_int_equal(u, 4000000000u);
    assert_int_equal(gguf_get_u32(gguf, "big", &u), -EINVAL); /* 2^32 */
    assert_int_equal(gguf_get_u32(gguf, "yes", &u), 0);
    assert_int_equal(u, 1);
    assert_int_equal(gguf_get_u32(gguf, "f64", &u), -EINVAL);
    assert_int_equal(gguf_get_f32(gguf, "f64", &f), 0);
    assert_true(f == 0.5f);
    assert_int_equal(gguf_get_f32(gguf, "i16", &f), 0);
    assert_true(f == -2.0f);
    assert_int_equal(gguf_get_f32(gguf, "text", &f), -EINVAL);
    assert_int_equal(gguf_get_bool(gguf, "yes", &b), 0);
    assert_true(b);
    assert_int_equal(gguf_get_bool(gguf, "u8", &b), -EINVAL);
    assert_int_equal(gguf_get_string(gguf, "text", &s), 0);
    assert_int_equal(s.bytes, 5);
    assert_memory_equal(s.text, "hello", 5);
    assert_int_equal(gguf_get_string(gguf, "none", &s), -ENOENT);
    assert_int_equal(gguf_get_u32(gguf, "none", &u), -ENOENT);
}

static void test_scalars_when_types_differ_convert_or_are_refused(void **state)
{
    const uint8_t u8 = 200;
    const int16_t i16 = -2;
    const uint64_t u64 = 4000000000u, big = 1ull << 32;
    const double f64 = 0.5;
    struct gguf *gguf = NULL;
    size_t bytes = 0;
    write_key(&w, "u8", 0, &u8, 1);
    write_key(&w, "i16", 3, &i16, 2);
    write_key(&w, "u64", 10, &u64, 8);
    write_key(&w, "big", 10, &big, 8);
    write_key(&w, "f64", 12, &f64, 8);
    write_bool(&w, "yes", true);
    write_text(&w, "text", "hello");
    void *data = writer_finish(&w, &bytes);
    assert_int_equal(gguf_open_memory(data, bytes, &gguf, NULL), 0);
    check_scalars(gguf);
    gguf_close(gguf);
    free(data);
}

static void test_arrays_when_at_odd_addresses_read_right(void **state)
{
    const int32_t types[] = {1, -3, 3};
    const uint32_t ids[] = {7, 0x80000000u};
    const float scores[] = {1.5f, -2.5f};
    const char *const texts[] = {"a", "", "ccc"};
    const int32_t *i32 = NULL;
    const float *f32 = NULL;
    const struct gguf_string *strings = NULL;
    uint32_t count = 0;
    struct gguf *gguf = NULL;
    size_t bytes = 0;
    write_bool(&w, "odd", true); /* shifts what follows by one byte */
    write_array(&w, "types", 5, 3, types, sizeof(types));
    write_array(&w, "ids", 4, 2, ids, sizeof(ids));
    write_array(&w, "scores", 6, 2, scores, sizeof(scores));
    write_texts(&w, "texts", texts, 3);
    write_array(&w, "empty", 8, 0, NULL, 0);
    void *data = writer_finish(&w, &bytes);
    assert_int_equal(gguf_open_memory(data, bytes, &gguf, NULL), 0);
    assert_int_equal(gguf_array_i32(gguf, "types", &i32, &count), 0);
    assert_int_equal(count, 3);
    assert_int_equal((uintptr_t)i32 % 4, 0);
    assert_memory_equal(i32, types, sizeof(types));
    assert_int_equal(gguf_array_i32(gguf, "ids", &i32, &count), -EINVAL); /* past INT32_MAX */
    assert_int_equal(gguf_array_f32(gguf, "scores", &f32, &count), 0);
    assert_memory_equal(f32, scores, sizeof(scores));
    assert_int_equal(gguf_array_f32(gguf, "types", &f32, &count), -EINVAL);
    assert_int_equal(gguf_array_strings(gguf, "texts", &strings, &count), 0);
    assert_int_equal(count, 3);
    assert_int_equal(strings[1].bytes, 0);
    assert_memory_equal(strings[2].text, "ccc", 3);
    assert_int_equal(gguf_array_count(gguf, "empty", &count), 0);
    assert_int_equal(count, 0);
    assert_int_equal(gguf_array_count(gguf, "odd", &count), -EINVAL);
    gguf_close(gguf);
    free(data);
}

static void test_tensors_when_valid_are_found_with_their_values(void **state)
{
    const float values[] = {1, 2, 3, 4, 5, 6};
    struct gguf *gguf = NULL;
    size_t bytes = 0;
    write_tensor(&w, "norm", 1, 3, values);
    write_tensor(&w, "matrix", 2, 3, values);
    void *data = writer_finish(&w, &bytes);
    assert_int_equal(gguf_open_memory(data, bytes, &gguf, NULL), 0);
    assert_int_equal(gguf_tensors_count(gguf), 2);
    const struct gguf_tensor *matrix = gguf_tensor(gguf, "matrix");
    assert_ptr_equal(matrix, gguf_tensor_at(gguf, 1));
    assert_int_equal(matrix->dims[0], 3); /* columns come first */
    assert_int_equal(matrix->dims[1], 2);
    assert_int_equal(matrix->dims[2], 1);
    assert_int_equal(matrix->bytes, 24);
    assert_int_equal(((uintptr_t)matrix->data - (uintptr_t)data) % 32, 0);
    assert_memory_equal(matrix->data, values, sizeof(values));
    assert_null(gguf_tensor(gguf, "matri"));
    gguf_close(gguf);
    free(data);
}

static void test_version_2_when_read_is_the_same(void **state)
{
    struct gguf *gguf = NULL;
    size_t bytes = 0;
    w.version = 2;
    write_u32(&w, "a", 1);
    void *data = writer_finish(&w, &bytes);
    assert_int_equal(gguf_open_memory(data, bytes, &gguf, NULL), 0);
    gguf_close(gguf);
    free(data);
}

/* --- broken ---------------------------------------------------------------------------------- */

static void test_header_when_broken_is_refused(void **state)
{
    refuse_bytes("GG", 2, "truncated");
    refuse_bytes("PK\3\4aaaaaaaaaaaaaaaaaaaa", 24, "not a GGUF file");
    w.version = 1;
    refuse("GGUF version 1");
    w.version = 4;
    refuse("GGUF version 4");
    w.version = 3u << 24;
    refuse("big-endian");
}

static void test_counts_when_absurd_are_refused(void **state)
{
    w.tensors_count = 1ull << 60;
    refuse("tensor count");
    w.tensors_count = 0;
    w.keys_count = 5; /* but no bytes follow */
    refuse("key count");
    w.keys_count = UINT64_MAX;
    refuse("key count");
}

static void test_every_prefix_of_a_valid_file_when_opened_is_refused(void **state)
{
    const char *const texts[] = {"one", "two"};
    const float values[3] = {1, 2, 3};
    size_t bytes = 0;
    write_u32(&w, "number", 1);
    write_texts(&w, "texts", texts, 2);
    write_tensor(&w, "norm", 1, 3, values);
    void *data = writer_finish(&w, &bytes);
    for (size_t cut = 0; cut < bytes; cut++) {
        struct gguf *gguf = NULL;
        void *copy = malloc(cut + 1);
        memcpy(copy, data, cut);
        assert_int_equal(gguf_open_memory(copy, cut, &gguf, NULL), -EINVAL);
        free(copy);
    }
    free(data);
}

static void test_strings_when_past_the_end_are_refused(void **state)
{
    put_string(&w.keys, "key");
    put_u32(&w.keys, 8);
    put_u64(&w.keys, UINT64_MAX - 3);
    w.keys_count = 1;
    refuse("key 'key': a string of 18446744073709551612 bytes");
}

static void test_names_when_empty_long_or_with_nul_are_refused(void **state)
{
    char name[300];
    memset(name, 'n', sizeof(name));
    name[299] = '\0';
    write_u32(&w, name, 1);
    refuse("a key at byte 24");
    teardown(NULL);
    setup(NULL);
    write_u32(&w, "", 1);
    refuse("a key at byte 24");
    teardown(NULL);
    setup(NULL);
    put_u64(&w.keys, 2);
    buffer_append(&w.keys, "a\0", 2);
    put_u32(&w.keys, 4);
    put_u32(&w.keys, 1);
    w.keys_count = 1;
    refuse("NUL");
}

static void test_keys_when_twice_are_refused(void **state)
{
    write_u32(&w, "general.x", 1);
    write_u32(&w, "general.x", 2);
    refuse("key 'general.x' stands in the file twice");
}

static void test_values_when_of_unknown_type_are_refused(void **state)
{
    write_key(&w, "k", 13, "\0\0\0\0\0\0\0", 8);
    refuse("key 'k' has unknown type 13");
}

static void test_bools_when_neither_0_nor_1_are_refused(void **state)
{
    write_key(&w, "k", 7, "\2", 1);
    refuse("key 'k' is a bool of value 2");
}

static void test_arrays_when_nested_or_unknown_are_refused(void **state)
{
    write_array(&w, "k", 9, 1, "\4\0\0\0\0\0\0\0", 8);
    refuse("key 'k' is an array of arrays");
    teardown(NULL);
    setup(NULL);
    write_array(&w, "k", 77, 1, "\4\0\0\0\0\0\0\0", 8);
    refuse("items of unknown type 77");
}

static void test_arrays_when_longer_than_the_file_are_refused(void **state)
{
    write_array(&w, "k", 4, 1ull << 61, "\0\0\0", 4);
    refuse("key 'k' has 2305843009213693952 items");
    teardown(NULL);
    setup(NULL);
    write_array(&w, "k", 8, 1u << 20, "\0\0\0", 4);
    refuse("key 'k' has 1048576 items");
}

static void test_names_when_not_printable_are_shown_with_question_marks(void **state)
{
    write_key(&w, "k\x1b[31m'\xff", 99, NULL, 0);
    refuse("key 'k?[31m?"
           "?'"); /* apart: no trigraph */
}

static void test_alignment_when_not_a_power_of_two_is_refused(void **state)
{
    write_u32(&w, "general.alignment", 24);
    refuse("general.alignment is 24");
    teardown(NULL);
    setup(NULL);
    write_u32(&w, "general.alignment", 1u << 31);
    refuse("general.alignment is 2147483648");
    teardown(NULL);
    setup(NULL);
    write_text(&w, "general.alignment", "x");
    refuse("general.alignment");
}

static void refuse_tensor(uint32_t dims_count, const uint64_t *dims, uint32_t type, uint64_t offset,
                          const char *sentence)
{
    teardown(NULL);
    setup(NULL);
    write_info(&w, "t", dims_count, dims, type, offset);
    for (size_t i = 0; i < 64; i++)
        buffer_append_char(&w.data, '\0');
    refuse(sentence);
}

static void test_tensors_when_broken_are_refused_by_name(void **state)
{
    const uint64_t small[4] = {4, 1, 1, 1}, zero[2] = {4, 0}, odd[1] = {33};
    const uint64_t wraps[4] = {1ull << 32, 1ull << 32, 2, 1}, many[2] = {1ull << 61, 4};
    const uint64_t exact[1] = {1ull << 62};
    refuse_tensor(0, small, 0, 0, "tensor 't' has 0 dimensions");
    refuse_tensor(2, zero, 0, 0, "tensor 't': dimension 1 is 0");
    refuse_tensor(1, small, 4, 0, "tensor 't' has type 4");
    refuse_tensor(1, odd, 8, 0, "rows of 33 values are not whole Q8_0 blocks of 32");
    refuse_tensor(3, wraps, 0, 0, "tensor 't': its dimensions overflow");
    refuse_tensor(2, many, 0, 0, "tensor 't': its dimensions overflow");
    refuse_tensor(1, exact, 0, 0, "tensor 't': its dimensions overflow"); /* 2^64 bytes */
    refuse_tensor(1, small, 0, 8, "tensor 't' is misaligned: offset 8");
    refuse_tensor(1, small, 0, 64, "tensor 't' needs 16 bytes at offset 64");
    refuse_tensor(1, small, 0, UINT64_MAX - 31, "tensor 't' needs 16 bytes");
}

static void test_dimension_count_when_5_is_refused(void **state)
{
    const uint64_t dims[5] = {1, 1, 1, 1, 1};
    write_info(&w, "t", 5, dims, 0, 0);
    refuse("tensor 't' has 5 dimensions");
}

static void test_tensors_when_overlapping_or_twice_are_refused(void **state)
{
    const uint64_t ten[1] = {10}, four[1] = {4};
    write_info(&w, "b", 1, four, 0, 32);
    write_info(&w, "a", 1, ten, 0, 0); /* bytes 0..40 */
    for (size_t i = 0; i < 64; i++)
        buffer_append_char(&w.data, '\0');
    refuse("tensors 'a' and 'b' overlap");
    teardown(NULL);
    setup(NULL);
    write_tensor(&w, "a", 1, 4, NULL);
    write_tensor(&w, "a", 1, 4, NULL);
    refuse("tensor 'a' stands in the file twice");
}

/* --- files ----------------------------------------------------------------------------------- */

static void test_files_when_missing_or_folders_are_refused_by_path(void **state)
{
    struct errmsg err = {""};
    struct gguf *gguf = NULL;
    assert_int_equal(gguf_open("/nonexistent/x.gguf", &gguf, &err), -ENOENT);
    assert_non_null(strstr(err.text, "/nonexistent/x.gguf"));
    assert_int_equal(gguf_open("/", &gguf, &err), -EINVAL);
    assert_non_null(strstr(err.text, "is a directory"));
    assert_int_equal(gguf_open("/dev/null", &gguf, &err), -EINVAL);
    assert_non_null(strstr(err.text, "not a regular file"));
}

static void test_files_when_mapped_read_like_memory_even_after_pages_were_dropped(void **state)
{
    char path[] = "/tmp/test_gguf_XXXXXX";
    const float values[3] = {7, 8, 9};
    struct gguf *gguf = NULL;
    size_t bytes = 0;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    write_tensor(&w, "norm", 1, 3, values);
    void *data = writer_finish(&w, &bytes);
    assert_int_equal(write(fd, data, bytes), (ssize_t)bytes);
    assert_int_equal(gguf_open(path, &gguf, NULL), 0);
    (void)unlink(path);
    (void)close(fd);
    const struct gguf_tensor *norm = gguf_tensor(gguf, "norm");
    gguf_drop_pages(gguf, norm->data, norm->bytes);
    assert_memory_equal(norm->data, values, sizeof(values));
    gguf_close(gguf);
    free(data);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_scalars_when_types_differ_convert_or_are_refused),
        TEST(test_arrays_when_at_odd_addresses_read_right),
        TEST(test_tensors_when_valid_are_found_with_their_values),
        TEST(test_version_2_when_read_is_the_same),
        TEST(test_header_when_broken_is_refused),
        TEST(test_counts_when_absurd_are_refused),
        TEST(test_every_prefix_of_a_valid_file_when_opened_is_refused),
        TEST(test_strings_when_past_the_end_are_refused),
        TEST(test_names_when_empty_long_or_with_nul_are_refused),
        TEST(test_keys_when_twice_are_refused),
        TEST(test_values_when_of_unknown_type_are_refused),
        TEST(test_bools_when_neither_0_nor_1_are_refused),
        TEST(test_arrays_when_nested_or_unknown_are_refused),
        TEST(test_arrays_when_longer_than_the_file_are_refused),
        TEST(test_names_when_not_printable_are_shown_with_question_marks),
        TEST(test_alignment_when_not_a_power_of_two_is_refused),
        TEST(test_tensors_when_broken_are_refused_by_name),
        TEST(test_dimension_count_when_5_is_refused),
        TEST(test_tensors_when_overlapping_or_twice_are_refused),
        TEST(test_files_when_missing_or_folders_are_refused_by_path),
        TEST(test_files_when_mapped_read_like_memory_even_after_pages_were_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
