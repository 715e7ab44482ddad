/* test_model_file.c - which file a path names, and what it is called. */
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/mem.h"
#include "worker/model_file.h"

static void touch(const char *path)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fclose(file), 0);
}

static void test_a_folder_with_one_model_names_it_and_with_two_it_does_not(void **state)
{
    char folder[] = "/tmp/refrain-unit-XXXXXX";
    struct errmsg err = {""};
    char *file = NULL;
    (void)state;
    assert_non_null(mkdtemp(folder));
    char *a = mem_printf("%s/a.gguf", folder), *b = mem_printf("%s/b.gguf", folder);
    assert_int_equal(model_file_find(folder, &file, &err), -ENOENT);
    touch(a);
    assert_int_equal(model_file_find(folder, &file, &err), 0);
    assert_string_equal(file, a);
    mem_free(file);
    assert_int_equal(model_file_find(a, &file, &err), 0);
    assert_string_equal(file, a);
    mem_free(file);
    touch(b);
    assert_int_equal(model_file_find(folder, &file, &err), -EINVAL);
    assert_non_null(strstr(err.text, "2 files"));
    assert_int_equal(unlink(a) + unlink(b), 0);
    assert_int_equal(rmdir(folder), 0);
    assert_int_equal(model_file_find(a, &file, &err), -ENOENT);
    mem_free(a);
    mem_free(b);
}

static void test_a_split_model_is_its_first_part_and_safetensors_are_their_folder(void **state)
{
    char folder[] = "/tmp/refrain-unit-XXXXXX";
    struct errmsg err = {""};
    char *file = NULL;
    (void)state;
    assert_non_null(mkdtemp(folder));
    char *weights = mem_printf("%s/model.safetensors", folder);
    touch(weights);
    assert_int_equal(model_file_find(folder, &file, &err), 0);
    assert_string_equal(file, folder);
    mem_free(file);
    char *first = mem_printf("%s/best-of-n-00001-of-00002.gguf", folder);
    char *second = mem_printf("%s/best-of-n-00002-of-00002.gguf", folder);
    touch(first);
    touch(second);
    assert_int_equal(model_file_find(folder, &file, &err), 0);
    assert_string_equal(file, first);
    mem_free(file);
    assert_int_equal(unlink(first) + unlink(second) + unlink(weights), 0);
    assert_int_equal(rmdir(folder), 0);
    mem_free(weights);
    mem_free(first);
    mem_free(second);
}

static void test_names_lose_folder_and_suffix(void **state)
{
    static const char *const cases[][2] = {
        {"/m/SmolLM2.Q4_1.gguf", "SmolLM2.Q4_1"},
        {"x.gguf", "x"},
        {"/m/folder/", "folder"},
        {"plain", "plain"},
        {".gguf", ".gguf"},
        {"/m/Big.Q4_K-00001-of-00004.gguf", "Big.Q4_K"},
        {"best-of-n-00001-of-00002.gguf", "best-of-n"},
        {"m-00001-of-00004", "m-00001-of-00004"}, /* a folder's own name */
        {"m-00001-of-00004-v2.gguf", "m-00001-of-00004-v2"},
        {"m-0001-of-0004.gguf", "m-0001-of-0004"},
        {"-00001-of-00004.gguf", "-00001-of-00004"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *name = model_file_name(cases[i][0]);
        assert_string_equal(name, cases[i][1]);
        mem_free(name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_folder_with_one_model_names_it_and_with_two_it_does_not),
        cmocka_unit_test(test_a_split_model_is_its_first_part_and_safetensors_are_their_folder),
        cmocka_unit_test(test_names_lose_folder_and_suffix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
