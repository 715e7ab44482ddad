/* dtype.c: each stored type against values worked out by hand, and the 16-bit floats. */
#include <cmocka.h>
#include <stdlib.h>

#include "tests/unit/proto/base/stored.h"

static void test_f16_when_every_code_is_tried_round_trips(void **state)
{
    (void)state;
    for (uint32_t code = 0; code < 65536; code++) {
        float value = f16_to_f32((uint16_t)code);
        if (isnan(value))
            assert_true(isnan(f16_to_f32(f32_to_f16(value))));
        else
            assert_int_equal(f32_to_f16(value), code);
    }
    assert_true(f16_to_f32(0x3c00) == 1.0f);
    assert_true(f16_to_f32(0x0001) == 0x1p-24f);
    assert_true(f16_to_f32(0x7bff) == 65504.0f);
}

static void test_f16_when_between_two_codes_rounds_to_even(void **state)
{
    (void)state;
    assert_int_equal(f32_to_f16(1.0f + 0x1p-11f), 0x3c00);   /* half way, even below */
    assert_int_equal(f32_to_f16(1.0f + 0x1.8p-10f), 0x3c02); /* half way, even above */
    assert_int_equal(f32_to_f16(1.0f + 0x1.002p-11f), 0x3c01);
    assert_int_equal(f32_to_f16(65519.0f), 0x7bff);
    assert_int_equal(f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(f32_to_f16(-0x1p-25f), 0x8000);
    assert_int_equal(f32_to_f16(0x1.8p-24f), 0x0002);
}

static void test_bf16_when_between_two_codes_rounds_to_even(void **state)
{
    (void)state;
    assert_int_equal(f32_to_bf16(1.0f), 0x3f80);
    assert_int_equal(f32_to_bf16(1.0f + 0x1p-8f), 0x3f80);
    assert_int_equal(f32_to_bf16(1.0f + 0x1.8p-7f), 0x3f82);
    assert_int_equal(f32_to_bf16(-3.0f), 0xc040);
    assert_int_equal(f32_to_bf16(INFINITY), 0x7f80);
    assert_true(isnan(bf16_to_f32(f32_to_bf16(NAN))));
    assert_true(bf16_to_f32(0x3f81) == 1.0078125f);
}

static void test_info_when_the_type_is_unknown_is_null(void **state)
{
    (void)state;
    assert_null(dtype_info(4));
    assert_null(dtype_info(15));
    assert_null(dtype_info(29));
    assert_null(dtype_info(4000000000u));
    assert_int_equal(dtype_info(DTYPE_Q6_K)->block_bytes, 210);
    assert_string_equal(dtype_info(DTYPE_Q4_1)->name, "Q4_1");
}

/* d = 0.5, m = -1; nibble byte i: low = i % 16, high = 15 - i. */
static void fill_small(uint8_t *block, size_t nibbles_at, bool with_min)
{
    put_half(block, 0.5f);
    if (with_min)
        put_half(block + 2, -1.0f);
    for (int i = 0; i < 16; i++)
        block[nibbles_at + (size_t)i] = (uint8_t)(i | (15 - i) << 4);
}

static void test_4_bit_blocks_when_read_give_scale_times_nibble(void **state)
{
    uint8_t block[20];
    float values[32];
    (void)state;
    fill_small(block, 2, false);
    dtype_to_f32(DTYPE_Q4_0, block, values, 32);
    assert_true(values[0] == -4.0f && values[3] == -2.5f && values[16] == 3.5f);
    fill_small(block, 4, true);
    dtype_to_f32(DTYPE_Q4_1, block, values, 32);
    assert_true(values[0] == -1.0f && values[3] == 0.5f && values[17] == 6.0f);
}

static void test_5_bit_blocks_when_read_take_the_fifth_bit(void **state)
{
    uint8_t block[24];
    float values[32];
    const uint8_t bits[4] = {0x08, 0, 0x02, 0}; /* values 3 and 17 */
    (void)state;
    fill_small(block, 6, false);
    memcpy(block + 2, bits, 4);
    dtype_to_f32(DTYPE_Q5_0, block, values, 32);
    assert_true(values[0] == -8.0f && values[3] == 1.5f && values[17] == 7.0f);
    fill_small(block, 8, true);
    memcpy(block + 4, bits, 4);
    dtype_to_f32(DTYPE_Q5_1, block, values, 32);
    assert_true(values[0] == -1.0f && values[3] == 8.5f && values[17] == 14.0f);
}

static void test_q8_0_when_read_gives_scale_times_byte(void **state)
{
    uint8_t block[34] = {0};
    float values[32];
    (void)state;
    put_half(block, 0.25f);
    block[2] = 0x80; /* -128 */
    block[33] = 127;
    dtype_to_f32(DTYPE_Q8_0, block, values, 32);
    assert_true(values[0] == -32.0f && values[1] == 0.0f && values[31] == 31.75f);
}

/* Scales: groups 0..3 have scale j + 1, min j; groups 4..7 scale 32 + j, min 48 + j - 4. */
static void fill_k_scales(uint8_t *s)
{
    for (int j = 0; j < 4; j++) {
        unsigned scale = (unsigned)(32 + j + 4), min = (unsigned)(48 + j);
        s[j] = (uint8_t)((unsigned)(j + 1) | (scale >> 4) << 6);
        s[j + 4] = (uint8_t)((unsigned)j | (min >> 4) << 6);
        s[j + 8] = (uint8_t)((scale & 0xf) | (min & 0xf) << 4);
    }
}

static void test_q4_k_and_q5_k_when_read_use_the_packed_scales(void **state)
{
    uint8_t block[176] = {0};
    float values[256];
    (void)state;
    put_half(block, 0.5f);
    put_half(block + 2, 0.25f);
    fill_k_scales(block + 4);
    block[16] = 0x73;           /* value 0: 3; value 32: 7 */
    block[16 + 96 + 31] = 0xf2; /* value 192 + 31: 2; value 224 + 31: 15 */
    dtype_to_f32(DTYPE_Q4_K, block, values, 256);
    assert_true(values[0] == 0.5f * 1 * 3 - 0.25f * 0);
    assert_true(values[32] == 0.5f * 2 * 7 - 0.25f * 1);
    assert_true(values[223] == 0.5f * 38 * 2 - 0.25f * 50);
    assert_true(values[255] == 0.5f * 39 * 15 - 0.25f * 51);

    memmove(block + 48, block + 16, 128);
    memset(block + 16, 0, 32);
    block[16] = 0x02;      /* fifth bit of value 32 */
    block[16 + 31] = 0x80; /* fifth bit of value 255 */
    dtype_to_f32(DTYPE_Q5_K, block, values, 256);
    assert_true(values[0] == 0.5f * 1 * 3 - 0.25f * 0);
    assert_true(values[32] == 0.5f * 2 * 23 - 0.25f * 1);
    assert_true(values[255] == 0.5f * 39 * 31 - 0.25f * 51);
}

static void test_q6_k_when_read_puts_low_and_high_bits_together(void **state)
{
    uint8_t block[210] = {0};
    float values[256];
    (void)state;
    for (int i = 0; i < 16; i++)
        block[192 + i] = (uint8_t)(int8_t)(i - 8); /* scale of values 16 i .. */
    put_half(block + 208, 0.5f);
    block[0] = 0x95;            /* value 0 low 5, value 64 low 9 */
    block[128] = 0x31;          /* high: value 0: 1, 32: 0, 64: 3, 96: 0 */
    block[64 + 32 + 5] = 0xa0;  /* second half: value 128 + 96 + 5 low 10 */
    block[128 + 32 + 5] = 0x80; /* its high bits: 2 */
    dtype_to_f32(DTYPE_Q6_K, block, values, 256);
    assert_true(values[0] == 0.5f * -8 * (21 - 32));
    assert_true(values[64] == 0.5f * -4 * (57 - 32));
    assert_true(values[32] == 0.5f * -6 * -32);
    assert_true(values[229] == 0.5f * 6 * (42 - 32));
}

/* Bytes of a linear congruential generator with d = 0.5 (and dmin = 0.25) put in, read by the numpy
 * code of the `gguf` package (0.17): four values, and the sum of value i times i + 1. */
static const struct oracle {
    enum dtype dtype;
    int halves[2]; /* where d and dmin are; -1: there is none */
    float first, value17, value31, last;
    double weighted;
} oracle[] = {
    {DTYPE_Q4_0, {0, -1}, -3.5f, 1.5f, -1.5f, -1.5f, -42.5},
    {DTYPE_Q4_1, {0, 2}, 6.25f, 2.75f, 4.25f, 4.25f, 2263.0},
    {DTYPE_Q5_0, {0, -1}, 3, -4, -7.5f, -7.5f, -247.0},
    {DTYPE_Q5_1, {0, 2}, 2.25f, 13.25f, 10.75f, 10.75f, 4003.5},
    {DTYPE_Q8_0, {0, -1}, -63.5f, -60, -2.5f, -2.5f, 1117.5},
    {DTYPE_Q2_K, {80, 82}, -0.75f, 19.75f, -1.25f, 7.25f, 150419.5},
    {DTYPE_Q3_K, {108, -1}, 10.5f, -25.5f, 0, 54, 87544.0},
    {DTYPE_Q4_K, {0, 2}, 71, 65, 71, 185.75f, 3613016.5},
    {DTYPE_Q5_K, {0, 2}, 41, 179, 89, 99.75f, 7586484.0},
    {DTYPE_Q6_K, {208, -1}, -574, 1007, 689, 0, -2928651.5},
    {DTYPE_IQ4_NL, {0, -1}, -52, 19, -17.5f, -17.5f, -362.5},
};
#define ORACLE_TYPES (sizeof(oracle) / sizeof(oracle[0]))

static void test_every_type_when_read_agrees_with_the_gguf_package(void **state)
{
    (void)state;
    for (size_t t = 0; t < ORACLE_TYPES; t++) {
        const struct oracle *o = &oracle[t];
        const struct dtype_info *info = dtype_info(o->dtype);
        uint8_t block[256];
        float v[256];
        double weighted = 0;
        uint32_t x = 1;
        for (uint32_t i = 0; i < info->block_bytes; i++) {
            x = x * 1664525 + 1013904223;
            block[i] = (uint8_t)(x >> 24);
        }
        put_half(block + o->halves[0], 0.5f);
        if (o->halves[1] >= 0)
            put_half(block + o->halves[1], 0.25f);
        dtype_to_f32(o->dtype, block, v, info->block_values);
        for (uint32_t i = 0; i < info->block_values; i++)
            weighted += (double)v[i] * (i + 1);
        assert_true(v[0] == o->first && v[17] == o->value17 && v[31] == o->value31);
        assert_true(v[info->block_values - 1] == o->last);
        assert_true(weighted == o->weighted);
    }
}

static void test_groups_when_read_one_by_one_equal_the_row(void **state)
{
    uint64_t seed = 1;
    (void)state;
    for (size_t t = 0; t < ORACLE_TYPES; t++) {
        enum dtype dtype = oracle[t].dtype;
        struct stored s = random_stored(&seed, dtype, 1, 512);
        float values[512];
        dtype_to_f32(dtype, s.data, values, 512);
        for (size_t i = 0; i < 512; i++) {
            struct dtype_group group;
            dtype_read_group(dtype, s.data, i / 32, &group);
            size_t half = i % 32 / 16;
            assert_true(values[i] == group.scale[half] * (float)group.q[i % 32] + group.min[half]);
        }
        mem_free(s.data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f16_when_every_code_is_tried_round_trips),
        cmocka_unit_test(test_f16_when_between_two_codes_rounds_to_even),
        cmocka_unit_test(test_bf16_when_between_two_codes_rounds_to_even),
        cmocka_unit_test(test_info_when_the_type_is_unknown_is_null),
        cmocka_unit_test(test_4_bit_blocks_when_read_give_scale_times_nibble),
        cmocka_unit_test(test_5_bit_blocks_when_read_take_the_fifth_bit),
        cmocka_unit_test(test_q8_0_when_read_gives_scale_times_byte),
        cmocka_unit_test(test_q4_k_and_q5_k_when_read_use_the_packed_scales),
        cmocka_unit_test(test_q6_k_when_read_puts_low_and_high_bits_together),
        cmocka_unit_test(test_every_type_when_read_agrees_with_the_gguf_package),
        cmocka_unit_test(test_groups_when_read_one_by_one_equal_the_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
