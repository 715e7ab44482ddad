/* test_safetensors.c - a safetensors file is what its header says, or is refused by name. */
#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "worker/load/safetensors.h"

/* A file of this header and `data` bytes of tensors 0, 1, 2...; free() it. */
static uint8_t *make_file(const char *header, size_t data, size_t *ret_bytes)
{
    uint64_t length = strlen(header);
    uint8_t *file = malloc(8 + length + data);
    assert_non_null(file);
    memcpy(file, &length, 8);
    memcpy(file + 8, header, length);
    for (size_t i = 0; i < data; i++)
        file[8 + length + i] = (uint8_t)i;
    *ret_bytes = 8 + length + data;
    return file;
}

static void refuse(const char *header, size_t data, const char *sentence)
{
    struct safetensors *file = NULL;
    struct errmsg err = {""};
    size_t bytes = 0;
    uint8_t *memory = make_file(header, data, &bytes);
    assert_int_equal(safetensors_open_memory(memory, bytes, &file, &err), -EINVAL);
    if (strstr(err.text, sentence) == NULL)
        fail_msg("'%s' does not say '%s'", err.text, sentence);
    free(memory);
}

static void test_file_when_well_formed_has_its_tensors(void **state)
{
    struct safetensors *file = NULL;
    size_t bytes = 0;
    uint8_t *memory =
        make_file("{\"__metadata__\":{\"format\":\"pt\"},"
                  "\"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[4,16]},"
                  "\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
                  "\"n\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[16,24]},"
                  "\"e\":{\"dtype\":\"F16\",\"shape\":[0,7],\"data_offsets\":[16,16]}}   ",
                  24, &bytes);
    assert_int_equal(safetensors_open_memory(memory, bytes, &file, NULL), 0);
    assert_int_equal(safetensors_count(file), 4);
    const struct safetensor *b = safetensors_find(file, "b");
    assert_non_null(b);
    assert_int_equal(b->dtype, DTYPE_BF16);
    assert_int_equal(b->dims_count, 2);
    assert_true(b->dims[0] == 2 && b->dims[1] == 3);
    assert_int_equal(b->bytes, 12);
    assert_int_equal(*(const uint8_t *)b->data, 4);
    assert_int_equal(safetensors_find(file, "a")->dims_count, 0);
    assert_null(safetensors_find(file, "n")->info); /* no weight is of this type */
    assert_string_equal(safetensors_find(file, "n")->type_name, "I64");
    assert_int_equal(safetensors_find(file, "e")->bytes, 0);
    assert_null(safetensors_find(file, "__metadata__"));
    safetensors_close(file);
    free(memory);
}

#define ONE(rest) "{\"t\":{\"dtype\":\"F32\"," rest "}}"

static void test_tensor_when_it_does_not_fit_is_refused(void **state)
{
    refuse(ONE("\"shape\":[2],\"data_offsets\":[0,8]"), 7, "the data, which has 7");
    refuse(ONE("\"shape\":[2],\"data_offsets\":[8,0]"), 8, "tensor 't' lies at bytes 8 to 0");
    refuse(ONE("\"shape\":[3],\"data_offsets\":[0,8]"), 8, "'t' has 8 bytes, its shape wants 12");
    refuse(ONE("\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]"), 0, "overflow");
    refuse(ONE("\"shape\":[-1],\"data_offsets\":[0,0]"), 0, "dimension 0 is not a size");
    refuse(ONE("\"shape\":[1,1,1,1,1],\"data_offsets\":[0,4]"), 4, "at most 4 dimensions");
    refuse(ONE("\"shape\":[1],\"data_offsets\":[0]"), 4, "data_offsets are not two sizes");
    refuse(ONE("\"shape\":[1],\"data_offsets\":[0,1e3]"), 4, "data_offsets are not two sizes");
    refuse("{\"t\":{\"dtype\":\"F31\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "no known dtype");
    refuse("{\"t\":[]}", 0, "no known dtype");
}

#define TWO(a, b)                                                      \
    "{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":" a "}," \
    "\"y\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":" b "}}"

static void test_tensors_when_they_overlap_or_leave_holes_are_refused(void **state)
{
    refuse(TWO("[0,4]", "[0,4]"), 4, "overlaps");
    refuse(TWO("[0,4]", "[2,6]"), 6, "'y' overlaps");
    refuse(TWO("[0,4]", "[5,9]"), 9, "'y' leaves a hole");
    refuse(TWO("[1,5]", "[5,9]"), 9, "'x' leaves a hole");
    refuse(TWO("[0,4]", "[4,8]"), 11, "3 bytes at the end belong to no tensor");
}

static void test_header_when_cut_or_not_an_object_is_refused(void **state)
{
    struct safetensors *file = NULL;
    struct errmsg err = {""};
    uint8_t huge[9] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, '{'};
    refuse("[]", 0, "not an object");
    refuse("{\"a\":", 0, "header");
    assert_int_equal(safetensors_open_memory(huge, 7, &file, &err), -EINVAL);
    assert_int_equal(safetensors_open_memory(huge, 9, &file, &err), -EINVAL);
    assert_non_null(strstr(err.text, "truncated"));
    assert_int_equal(safetensors_open("/nonexistent", &file, &err), -ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_file_when_well_formed_has_its_tensors),
        cmocka_unit_test(test_tensor_when_it_does_not_fit_is_refused),
        cmocka_unit_test(test_tensors_when_they_overlap_or_leave_holes_are_refused),
        cmocka_unit_test(test_header_when_cut_or_not_an_object_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
