/* stored.h - numbered random data and stored rows of any type, for tests of who reads them. */
#ifndef REFRAIN_TESTS_UNIT_PROTO_BASE_STORED_H
#define REFRAIN_TESTS_UNIT_PROTO_BASE_STORED_H

#include <math.h>
#include <string.h>

#include "proto/base/dtype.h"
#include "proto/base/mem.h"
#include "proto/base/rng.h"

static inline uint32_t random_u32(uint64_t *seed)
{
    return (uint32_t)(rng_uniform(77, (*seed)++) * 4294967296.0);
}

/* About normal, mean 0, variance 1. */
static inline float random_normal(uint64_t *seed)
{
    double sum = 0;
    for (int i = 0; i < 4; i++)
        sum += rng_uniform(78, (*seed)++);
    return (float)((sum - 2) * 1.7320508);
}

static inline float *random_floats(uint64_t *seed, size_t count)
{
    float *values = mem_calloc(count, sizeof(*values));
    for (size_t i = 0; i < count; i++)
        values[i] = random_normal(seed);
    return values;
}

static inline void put_half(uint8_t *to, float value)
{
    uint16_t half = f32_to_f16(value);
    memcpy(to, &half, sizeof(half));
}

/* One block of `dtype`: random codes, scales of weights of size about 0.05. */
static inline void random_block(uint64_t *seed, enum dtype dtype, uint8_t *block)
{
    const struct dtype_info *info = dtype_info(dtype);
    for (uint32_t i = 0; i < info->block_bytes; i++)
        block[i] = (uint8_t)(random_u32(seed) >> 24);
    float value = random_normal(seed) * 0.05f;
    uint16_t bits = f32_to_bf16(value);
    switch (dtype) {
    case DTYPE_F32:
        memcpy(block, &value, sizeof(value));
        break;
    case DTYPE_F16:
        put_half(block, value);
        break;
    case DTYPE_BF16:
        memcpy(block, &bits, sizeof(bits));
        break;
    case DTYPE_Q6_K:
        put_half(block + 208, value / 2000);
        break;
    case DTYPE_Q2_K:
        put_half(block + 80, fabsf(value) / 20);
        put_half(block + 82, fabsf(value) / 8);
        break;
    case DTYPE_Q3_K:
        put_half(block + 108, value / 60);
        break;
    case DTYPE_IQ4_NL:
        put_half(block, value / 100);
        break;
    case DTYPE_Q4_K:
    case DTYPE_Q5_K:
        put_half(block, fabsf(value) / 400);
        put_half(block + 2, fabsf(value) / 40);
        break;
    case DTYPE_Q4_1:
    case DTYPE_Q5_1:
        put_half(block, fabsf(value) / 8);
        put_half(block + 2, -fabsf(value));
        break;
    case DTYPE_Q8_0:
        put_half(block, value / 100);
        break;
    default:
        put_half(block, value / 8);
        break;
    }
}

struct stored { /* a matrix as a file has it */
    enum dtype dtype;
    uint32_t rows, columns;
    size_t row_bytes;
    uint8_t *data;
};

static inline struct stored random_stored(uint64_t *seed, enum dtype dtype, uint32_t rows,
                                          uint32_t columns)
{
    const struct dtype_info *info = dtype_info(dtype);
    struct stored s = {dtype, rows, columns,
                       (size_t)columns / info->block_values * info->block_bytes, NULL};
    s.data = mem_calloc(rows, s.row_bytes);
    for (size_t at = 0; at < rows * s.row_bytes; at += info->block_bytes)
        random_block(seed, dtype, s.data + at);
    return s;
}

#endif
