/* dtype.c - stored element types, taken apart in one place.
 *
 *   Q4_0  [d f16][16 x 2 nibbles]            nibble l: low = value l, high = value l + 16
 *   Q4_1  [d][m][16 nibble bytes]            Q5_0 [d][32 high bits][16]   Q5_1 [d][m][bits][16]
 *   Q8_0  [d][32 x int8]
 *   Q4_K  [d][dmin][12: 8 x (6-bit scale, 6-bit min)][128 nibble bytes]             256 values
 *   Q5_K  as Q4_K with [32: fifth bits] before the nibbles
 *   Q6_K  [128 low nibbles][64: 2 high bits][16 x int8 scale][d]
 *   Q2_K  [16 x (4-bit scale, 4-bit min)][64: 2 bits each][d][dmin]
 *   Q3_K  [32: third bits][64: 2 bits each][12: 16 x 6-bit scale][d]
 *   IQ4_NL  as Q4_0, but a nibble is a place in a table of 16 values
 *
 * Why groups of 32: every quantised type is a row of them, so the reference (f32) and the packers
 * (integers) read the formats through dtype_read_group and cannot drift apart.
 * Invariant: scale * q is exact in f32 for every type, so a value is rounded at most once, in the
 * sum with min. Rows may be unaligned (files are mapped). */
#include "proto/base/dtype.h"

#include <string.h>

#include "proto/base/assert.h"

#define GROUP 32

static const struct dtype_info infos[] = {
    [DTYPE_F32] = {"F32", 1, 4},       [DTYPE_F16] = {"F16", 1, 2},
    [DTYPE_Q4_0] = {"Q4_0", 32, 18},   [DTYPE_Q4_1] = {"Q4_1", 32, 20},
    [DTYPE_Q5_0] = {"Q5_0", 32, 22},   [DTYPE_Q5_1] = {"Q5_1", 32, 24},
    [DTYPE_Q8_0] = {"Q8_0", 32, 34},   [DTYPE_Q4_K] = {"Q4_K", 256, 144},
    [DTYPE_Q5_K] = {"Q5_K", 256, 176}, [DTYPE_Q6_K] = {"Q6_K", 256, 210},
    [DTYPE_Q2_K] = {"Q2_K", 256, 84},  [DTYPE_Q3_K] = {"Q3_K", 256, 110},
    [DTYPE_BF16] = {"BF16", 1, 2},     [DTYPE_IQ4_NL] = {"IQ4_NL", 32, 18},
};

const struct dtype_info *dtype_info(uint32_t dtype)
{
    if (dtype >= sizeof(infos) / sizeof(infos[0]) || infos[dtype].name == NULL)
        return NULL;
    return &infos[dtype];
}

bool dtype_is_quantised(enum dtype dtype)
{
    return infos[dtype].block_values > 1;
}

static uint32_t float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static float bits_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

float bf16_to_f32(uint16_t bits)
{
    return bits_float((uint32_t)bits << 16);
}

uint16_t f32_to_bf16(float value)
{
    uint32_t bits = float_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40); /* quiet, so that it cannot round to infinity */
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

float f16_to_f32(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t exponent = half >> 10 & 0x1f;
    uint32_t fraction = half & 0x3ff;
    if (exponent == 0x1f)
        return bits_float(sign | 0x7f800000u | fraction << 13);
    if (exponent != 0)
        return bits_float(sign | (exponent + 112) << 23 | fraction << 13);
    float tiny = (float)fraction * 0x1p-24f; /* zero or subnormal, exact */
    return bits_float(sign | float_bits(tiny));
}

uint16_t f32_to_f16(float value)
{
    uint32_t bits = float_bits(value);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
    if (magnitude >= 0x477ff000u) /* 65520 and up round to infinity */
        return (uint16_t)(sign | 0x7c00);
    if (magnitude < 0x38800000u) { /* below 2^-14: adding 0.5 leaves the subnormal's bits below */
        float shifted = bits_float(magnitude) + 0.5f;
        return (uint16_t)(sign | (float_bits(shifted) - 0x3f000000u));
    }
    uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1);
    return (uint16_t)(sign | (rounded - 0x38000000u) >> 13);
}

static float read_f16(const uint8_t *bytes)
{
    uint16_t half;
    memcpy(&half, bytes, sizeof(half));
    return f16_to_f32(half);
}

static void set_scale(struct dtype_group *group, float scale, float min)
{
    group->scale[0] = scale;
    group->scale[1] = scale;
    group->min[0] = min;
    group->min[1] = min;
}

/* Nibbles in the order of the 32-value types. */
static void read_nibbles(const uint8_t *bytes, int8_t *q)
{
    for (int i = 0; i < 16; i++) {
        q[i] = (int8_t)(bytes[i] & 0xf);
        q[i + 16] = (int8_t)(bytes[i] >> 4);
    }
}

static void add_fifth_bits(const uint8_t *bytes, int8_t *q)
{
    uint32_t bits;
    memcpy(&bits, bytes, sizeof(bits));
    for (int i = 0; i < GROUP; i++)
        q[i] = (int8_t)(q[i] | (bits >> i & 1) << 4);
}

static void read_q4_0(const uint8_t *block, struct dtype_group *group)
{
    float d = read_f16(block);
    set_scale(group, d, -8 * d);
    read_nibbles(block + 2, group->q);
}

static void read_q4_1(const uint8_t *block, struct dtype_group *group)
{
    set_scale(group, read_f16(block), read_f16(block + 2));
    read_nibbles(block + 4, group->q);
}

static void read_q5_0(const uint8_t *block, struct dtype_group *group)
{
    float d = read_f16(block);
    set_scale(group, d, -16 * d);
    read_nibbles(block + 6, group->q);
    add_fifth_bits(block + 2, group->q);
}

static void read_q5_1(const uint8_t *block, struct dtype_group *group)
{
    set_scale(group, read_f16(block), read_f16(block + 2));
    read_nibbles(block + 8, group->q);
    add_fifth_bits(block + 4, group->q);
}

static void read_q8_0(const uint8_t *block, struct dtype_group *group)
{
    set_scale(group, read_f16(block), 0);
    memcpy(group->q, block + 2, GROUP);
}

/* 6-bit scale and min of group j (0..7) out of the 12 packed bytes of a Q4_K or Q5_K block. */
static void read_k_scale(const uint8_t *block, unsigned j, struct dtype_group *group)
{
    const uint8_t *s = block + 4;
    unsigned scale, min;
    if (j < 4) {
        scale = s[j] & 63u;
        min = s[j + 4] & 63u;
    } else {
        scale = (s[j + 4] & 0xfu) | (s[j - 4] >> 6) << 4;
        min = (unsigned)(s[j + 4] >> 4) | (s[j] >> 6) << 4;
    }
    set_scale(group, read_f16(block) * (float)scale, -(read_f16(block + 2) * (float)min));
}

/* Groups 2i and 2i + 1 are the low and the high nibbles of the same 32 bytes. */
static void read_k_nibbles(const uint8_t *nibbles, unsigned j, int8_t *q)
{
    for (int i = 0; i < GROUP; i++)
        q[i] = (int8_t)(nibbles[j / 2 * GROUP + (unsigned)i] >> (j % 2 * 4) & 0xf);
}

static void read_q4_k(const uint8_t *block, unsigned j, struct dtype_group *group)
{
    read_k_scale(block, j, group);
    read_k_nibbles(block + 16, j, group->q);
}

static void read_q5_k(const uint8_t *block, unsigned j, struct dtype_group *group)
{
    read_k_scale(block, j, group);
    read_k_nibbles(block + 48, j, group->q);
    for (int i = 0; i < GROUP; i++)
        group->q[i] = (int8_t)(group->q[i] | (block[16 + i] >> j & 1) << 4);
}

/* Groups 4h..4h+3 are one half (128 values) of the block; inside it group r takes nibble r / 2 of
 * the 32 bytes r % 2, and bits 2r of the 32 bytes of high bits. */
static void read_q6_k(const uint8_t *block, unsigned j, struct dtype_group *group)
{
    unsigned half = j / 4, r = j % 4;
    const uint8_t *low = block + half * 64 + r % 2 * 32;
    const uint8_t *high = block + 128 + half * 32;
    const int8_t *scales = (const int8_t *)block + 192 + half * 8 + r * 2;
    float d = read_f16(block + 208);
    group->scale[0] = d * (float)scales[0];
    group->scale[1] = d * (float)scales[1];
    group->min[0] = 0;
    group->min[1] = 0;
    for (int i = 0; i < GROUP; i++) {
        int q = (low[i] >> (r / 2 * 4) & 0xf) | (high[i] >> (r * 2) & 3) << 4;
        group->q[i] = (int8_t)(q - 32);
    }
}

/* Two bits each: group j takes bits 2 (j % 4) of the 32 bytes of its half of the block. */
static void read_pairs(const uint8_t *bytes, unsigned j, int8_t *q)
{
    for (unsigned i = 0; i < GROUP; i++)
        q[i] = (int8_t)(bytes[j / 4 * GROUP + i] >> (j % 4 * 2) & 3);
}

static void read_q2_k(const uint8_t *block, unsigned j, struct dtype_group *group)
{
    float d = read_f16(block + 80), dmin = read_f16(block + 82);
    for (unsigned h = 0; h < 2; h++) {
        unsigned both = block[2 * j + h];
        group->scale[h] = d * (float)(both & 0xf);
        group->min[h] = -(dmin * (float)(both >> 4));
    }
    read_pairs(block + 16, j, group->q);
}

/* 6-bit scale i (0..15), less 32: four low bits in nibbles of 8 bytes, two high ones in 4 bytes. */
static float q3_k_scale(const uint8_t *s, unsigned i)
{
    unsigned low = s[i % 8] >> (i / 8 * 4) & 0xfu, high = s[8 + i % 4] >> (i / 4 * 2) & 3u;
    return (float)(int)(low | high << 4) - 32;
}

/* Bit j of the 32 bytes of third bits; none: 4 less. */
static void read_q3_k(const uint8_t *block, unsigned j, struct dtype_group *group)
{
    float d = read_f16(block + 108);
    for (unsigned h = 0; h < 2; h++) {
        group->scale[h] = d * q3_k_scale(block + 96, 2 * j + h);
        group->min[h] = 0;
    }
    read_pairs(block + 32, j, group->q);
    for (int i = 0; i < GROUP; i++)
        group->q[i] = (int8_t)(group->q[i] - ((block[i] >> j & 1) != 0 ? 0 : 4));
}

static void read_iq4_nl(const uint8_t *block, struct dtype_group *group)
{
    static const int8_t meaning[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                       1,    13,   25,  38,  53,  69,  89,  113};
    set_scale(group, read_f16(block), 0);
    read_nibbles(block + 2, group->q);
    for (int i = 0; i < GROUP; i++)
        group->q[i] = meaning[group->q[i]];
}

void dtype_read_group(enum dtype dtype, const void *row, size_t group,
                      struct dtype_group *ret_group)
{
    const struct dtype_info *info = &infos[dtype];
    size_t groups = info->block_values / GROUP; /* per block */
    ASSERT(groups > 0);
    const uint8_t *block = (const uint8_t *)row + group / groups * info->block_bytes;
    unsigned j = (unsigned)(group % groups);
    switch (dtype) {
    case DTYPE_Q4_0:
        read_q4_0(block, ret_group);
        break;
    case DTYPE_Q4_1:
        read_q4_1(block, ret_group);
        break;
    case DTYPE_Q5_0:
        read_q5_0(block, ret_group);
        break;
    case DTYPE_Q5_1:
        read_q5_1(block, ret_group);
        break;
    case DTYPE_Q8_0:
        read_q8_0(block, ret_group);
        break;
    case DTYPE_Q4_K:
        read_q4_k(block, j, ret_group);
        break;
    case DTYPE_Q5_K:
        read_q5_k(block, j, ret_group);
        break;
    case DTYPE_Q6_K:
        read_q6_k(block, j, ret_group);
        break;
    case DTYPE_Q2_K:
        read_q2_k(block, j, ret_group);
        break;
    case DTYPE_Q3_K:
        read_q3_k(block, j, ret_group);
        break;
    case DTYPE_IQ4_NL:
        read_iq4_nl(block, ret_group);
        break;
    default:
        ASSERT(!"a quantised type");
    }
}

static void floats_to_f32(enum dtype dtype, const uint8_t *from, float *to, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint16_t bits;
        memcpy(&bits, from + 2 * i, sizeof(bits));
        to[i] = dtype == DTYPE_F16 ? f16_to_f32(bits) : bf16_to_f32(bits);
    }
}

void dtype_to_f32(enum dtype dtype, const void *from, float *to, size_t count)
{
    ASSERT(dtype_info(dtype) != NULL);
    ASSERT(count % infos[dtype].block_values == 0);
    if (dtype == DTYPE_F32) {
        memcpy(to, from, count * sizeof(*to));
        return;
    }
    if (!dtype_is_quantised(dtype)) {
        floats_to_f32(dtype, from, to, count);
        return;
    }
    for (size_t g = 0; g < count / GROUP; g++) {
        struct dtype_group group;
        dtype_read_group(dtype, from, g, &group);
        for (size_t i = 0; i < GROUP; i++)
            to[g * GROUP + i] = group.scale[i / 16] * (float)group.q[i] + group.min[i / 16];
    }
}
