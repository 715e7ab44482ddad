/* test_fp8.c - codes of e4m3 by hand, which scales a matrix has, and which quantisations are
 * refused by name. Whole models of them: tests/golden/test_tiny_formats. */
#include <cmocka.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/mem.h"
#include "worker/load/fp8.h"

static void test_codes_when_read_are_sign_exponent_and_fraction(void **state)
{
    (void)state;
    assert_true(fp8_e4m3_to_f32(0x00) == 0 && fp8_e4m3_to_f32(0x80) == 0);
    assert_true(signbit(fp8_e4m3_to_f32(0x80)));
    assert_true(fp8_e4m3_to_f32(0x01) == 0x1p-9f); /* the smallest subnormal */
    assert_true(fp8_e4m3_to_f32(0x07) == 7 * 0x1p-9f);
    assert_true(fp8_e4m3_to_f32(0x08) == 0x1p-6f); /* the smallest normal one */
    assert_true(fp8_e4m3_to_f32(0x38) == 1 && fp8_e4m3_to_f32(0x3c) == 1.5f);
    assert_true(fp8_e4m3_to_f32(0xc9) == -4.5f);
    assert_true(fp8_e4m3_to_f32(0x7e) == 448); /* the largest: there is no infinity */
    assert_true(isnan(fp8_e4m3_to_f32(0x7f)) && isnan(fp8_e4m3_to_f32(0xff)));
}

/* --- scales ---------------------------------------------------------------------------------- */

static struct model_source *source;
static uint8_t *memory;

/* A file with "w" of 3 x 4 codes 0x38 (1), and the tensors of `more`, whose bytes are `scales`. */
static void open_file(const char *config, const char *more, const float *scales, size_t count)
{
    struct safetensors *file = NULL;
    struct errmsg err = {""};
    json_t *object = NULL;
    char *header = mem_printf(
        "{\"w\":{\"dtype\":\"F8_E4M3\",\"shape\":[3,4],\"data_offsets\":[0,12]}%s}", more);
    uint64_t length = strlen(header);
    size_t bytes = 8 + length + 12 + count * sizeof(float);
    memory = malloc(bytes);
    assert_non_null(memory);
    memcpy(memory, &length, 8);
    memcpy(memory + 8, header, length);
    memset(memory + 8 + length, 0x38, 12);
    if (count > 0)
        memcpy(memory + 8 + length + 12, scales, count * sizeof(float));
    if (safetensors_open_memory(memory, bytes, &file, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(json_parse(config, strlen(config), 1 << 20, &object, &err), 0);
    source = model_source_of_safetensors(object, file);
    mem_free(header);
}

static int close_file(void **state)
{
    (void)state;
    model_source_close(source);
    free(memory);
    source = NULL;
    memory = NULL;
    return 0;
}

static void expect(const float *expected)
{
    struct model_tensor tensor;
    struct errmsg err = {""};
    uint16_t values[12];
    if (model_source_tensor(source, "w", &tensor, &err) < 0)
        fail_msg("%s", err.text);
    assert_true(tensor.fp8);
    fp8_to_bf16(&tensor, 0, 3, values);
    for (int i = 0; i < 12; i++)
        assert_true(bf16_to_f32(values[i]) == expected[i]);
    fp8_to_bf16(&tensor, 2, 1, values);
    for (int i = 0; i < 4; i++)
        assert_true(bf16_to_f32(values[i]) == expected[8 + i]);
}

static void refuse(int code, const char *sentence)
{
    struct model_tensor tensor;
    struct errmsg err = {""};
    assert_int_equal(model_source_tensor(source, "w", &tensor, &err), code);
    if (strstr(err.text, sentence) == NULL)
        fail_msg("'%s' does not say '%s'", err.text, sentence);
    (void)close_file(NULL);
}

#define SCALES(name, shape, end) \
    ",\"" name "\":{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":[12," end "]}"

static void test_a_scale_covers_a_matrix_a_row_or_a_block(void **state)
{
    static const float s[] = {2, 3, 5, 7};
    static const float matrix[12] = {2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2};
    static const float rows[12] = {2, 2, 2, 2, 3, 3, 3, 3, 5, 5, 5, 5};
    static const float blocks[12] = {2, 2, 2, 3, 2, 2, 2, 3, 5, 5, 5, 7}; /* of 2 x 3 */
    (void)state;
    open_file("{}", SCALES("w_scale", "[]", "16"), s, 1);
    expect(matrix);
    (void)close_file(NULL);
    open_file("{}", SCALES("w_scale", "[3,1]", "24"), s, 3);
    expect(rows);
    (void)close_file(NULL);
    open_file("{}", SCALES("w_scale", "[3]", "24"), s, 3);
    expect(rows);
    (void)close_file(NULL);
    open_file("{\"quantization_config\":{\"weight_block_size\":[2,3]}}",
              SCALES("w_scale_inv", "[2,2]", "28"), s, 4);
    expect(blocks);
}

static void test_a_matrix_without_scales_that_fit_is_refused(void **state)
{
    static const float s[] = {2, 3, 5, 7};
    (void)state;
    open_file("{}", "", NULL, 0);
    refuse(-EINVAL, "tensor 'w' is of type F8_E4M3, but there is no 'w_scale' or 'w_scale_inv'");
    open_file("{}", SCALES("w_scale", "[2,2]", "28"), s, 4); /* blocks of 128 would be one */
    refuse(-EINVAL, "'w_scale' (2 x 2) has scales for neither");
    open_file("{}", ",\"w_scale\":{\"dtype\":\"I32\",\"shape\":[],\"data_offsets\":[12,16]}", s, 1);
    refuse(-ENOTSUP, "tensor 'w_scale' is of type I32");
    open_file("{}",
              ",\"w_scale\":{\"dtype\":\"F8_E4M3\",\"shape\":[4],\"data_offsets\":[12,16]}"
              ",\"w_scale_scale\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[16,20]}",
              s, 2);
    refuse(-EINVAL, "'w_scale' (1 x 4) has scales for neither");
}

/* --- config.json ----------------------------------------------------------------------------- */

static int check(const char *text, struct errmsg *err)
{
    json_t *config = json_loads(text, 0, NULL);
    assert_non_null(config);
    int r = fp8_check_config(config, err);
    json_decref(config);
    return r;
}

#define GROUPS(type, bits, strategy)                                                  \
    "\"config_groups\":{\"g\":{\"weights\":{\"type\":\"" type "\",\"num_bits\":" bits \
    ",\"strategy\":\"" strategy "\"}}}"

static void test_quantisations_are_known_or_refused_by_name(void **state)
{
    static const char *const known[] = {
        "{}",
        "{\"quantization_config\":null}",
        "{\"quantization_config\":{\"quant_method\":\"fp8\",\"weight_block_size\":[128,128]}}",
        "{\"quantization_config\":{\"quant_method\":\"fbgemm_fp8\"}}",
        "{\"quantization_config\":{\"quant_method\":\"compressed-tensors\"," GROUPS("float", "8",
                                                                                    "tensor") "}}",
        "{\"compression_config\":{\"quant_method\":\"compressed-tensors\"," GROUPS("float", "8",
                                                                                   "channel") "}}",
    };
    static const char *const refused[][2] = {
        {"{\"quantization_config\":{\"quant_method\":\"awq\"}}", "method 'awq' is not supported; "},
        {"{\"quantization_config\":{\"quant_method\":\"fp8\",\"fmt\":\"e5m2\"}}", "method 'fp8'"},
        {"{\"quantization_config\":{\"quant_method\":\"compressed-tensors\"}}",
         "'compressed-tensors' with these config_groups"},
        {"{\"quantization_config\":{\"quant_method\":\"compressed-tensors\"," GROUPS(
             "int", "8", "channel") "}}",
         "'compressed-tensors' with these config_groups"},
        {"{\"quantization_config\":{\"quant_method\":\"compressed-tensors\"," GROUPS("float", "4",
                                                                                     "tensor") "}}",
         "supported: fp8 (e4m3), fbgemm_fp8, compressed-tensors with 8-bit floats"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        assert_int_equal(check(known[i], NULL), 0);
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        struct errmsg err = {""};
        assert_int_equal(check(refused[i][0], &err), -ENOTSUP);
        if (strstr(err.text, refused[i][1]) == NULL)
            fail_msg("'%s' does not say '%s'", err.text, refused[i][1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_codes_when_read_are_sign_exponent_and_fraction),
        cmocka_unit_test_teardown(test_a_scale_covers_a_matrix_a_row_or_a_block, close_file),
        cmocka_unit_test(test_a_matrix_without_scales_that_fit_is_refused),
        cmocka_unit_test(test_quantisations_are_known_or_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
