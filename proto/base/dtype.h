/* dtype.h - element types of stored weights, GGUF's numbering. */
#ifndef REFRAIN_PROTO_BASE_DTYPE_H
#define REFRAIN_PROTO_BASE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum dtype {
    DTYPE_F32 = 0,
    DTYPE_F16 = 1,
    DTYPE_Q4_0 = 2,
    DTYPE_Q4_1 = 3,
    DTYPE_Q5_0 = 6,
    DTYPE_Q5_1 = 7,
    DTYPE_Q8_0 = 8,
    DTYPE_Q2_K = 10,
    DTYPE_Q3_K = 11,
    DTYPE_Q4_K = 12,
    DTYPE_Q5_K = 13,
    DTYPE_Q6_K = 14,
    DTYPE_IQ4_NL = 20,
    DTYPE_BF16 = 30,
};

struct dtype_info {
    const char *name;      /* "Q4_1" */
    uint32_t block_values; /* values per block: 1, 32 or 256 */
    uint32_t block_bytes;
};

/* NULL: a type that we do not read. */
const struct dtype_info *dtype_info(uint32_t dtype);
/* count values of `dtype` -> f32; count is a multiple of block_values. The definition of each type.
 */
void dtype_to_f32(enum dtype dtype, const void *from, float *to, size_t count);
/* 32 consecutive values of a quantised row: value i = scale[i / 16] * q[i] + min[i / 16], exactly
 * as dtype_to_f32 says. What packers take apart without going through f32. */
struct dtype_group {
    float scale[2]; /* equal but for Q2_K, Q3_K and Q6_K, whose groups are 16 wide */
    float min[2];
    int8_t q[32]; /* 0..3 of 2 bits, -4..3 of 3, 0..15 of 4, 0..31 of 5, -32..31 of 6, any of 8;
                     IQ4_NL: what its 16 codes mean, -127..113 */
};
/* True: a type made of groups of 32 (all but the floats). */
bool dtype_is_quantised(enum dtype dtype);
/* Group `group` of a row that starts at `row`. dtype_is_quantised(dtype). */
void dtype_read_group(enum dtype dtype, const void *row, size_t group,
                      struct dtype_group *ret_group);

float f16_to_f32(uint16_t half);
float bf16_to_f32(uint16_t bits);
uint16_t f32_to_bf16(float value); /* round to nearest even, NaN kept */
uint16_t f32_to_f16(float value);

#endif
