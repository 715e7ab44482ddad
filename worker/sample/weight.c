/* weight.c - exp(x) = 2^n * exp(r), n = round(x / ln 2), |r| <= ln 2 / 2, Taylor to degree 7.
 *
 * Adding 1.5 * 2^23 rounds to an integer that then lies in the low bits of the float; shifted into
 * the exponent it is 2^n. No branch and no table, so eight are made at once. The next term of the
 * series is 5e-9. ln 2 in two parts (Cody and Waite 1980): n * high is exact.
 * Why not doubles: they take 140 us in place of 35 for 49k tokens; a draw that falls within 1e-6 of
 * a border may take the neighbour, as with every server that samples in float32.
 * The AVX2 path is the same source without fused operations, hence the same bits. */
#include "worker/sample/weight.h"

#include <string.h>

#include "worker/sample/avx2.h"

#define LANES 8u
#define CHAINS 8u /* of additions that do not wait for each other */
#define ROUND_MAGIC 0x1.8p23f
#define LOG2_E 0x1.715476p0f
#define LN2_HIGH 0x1.63p-1f
#define LN2_LOW (-0x1.bd0106p-13f)
#define WEIGHT_X_MIN (-87.0f)

typedef float lanes __attribute__((vector_size(LANES * sizeof(float))));
typedef int32_t mask __attribute__((vector_size(LANES * sizeof(float))));

/* By pointer: vectors as arguments would have another ABI with AVX2 than without. */
static inline __attribute__((always_inline)) void exp_down(lanes *x)
{
    mask keep = *x >= WEIGHT_X_MIN;
    lanes clamped = (lanes)((mask)*x & keep); /* 0 where it does not matter */
    lanes rounded = clamped * LOG2_E + ROUND_MAGIC;
    lanes n = rounded - ROUND_MAGIC;
    lanes r = clamped - n * LN2_HIGH - n * LN2_LOW;
    lanes sum = r * (1.0f / 5040) + 1.0f / 720;

    sum = sum * r + 1.0f / 120;
    sum = sum * r + 1.0f / 24;
    sum = sum * r + 1.0f / 6;
    sum = sum * r + 0.5f;
    sum = sum * r + 1.0f;
    sum = sum * r + 1.0f;
    *x = sum * (lanes)((((mask)rounded + 127) << 23) & keep);
}

float weight_exp(float x)
{
    lanes all = {x, x, x, x, x, x, x, x};

    exp_down(&all);
    return all[0];
}

static inline __attribute__((always_inline)) void fill(const float *values, uint32_t count,
                                                       float max, float scale, float *ret_weights)
{
    uint32_t i = 0;

    for (; count - i >= LANES; i += LANES) {
        lanes x;
        memcpy(&x, values + i, sizeof(x));
        x = (x - max) * scale;
        exp_down(&x);
        memcpy(ret_weights + i, &x, sizeof(x));
    }
    for (; i < count; i++)
        ret_weights[i] = weight_exp((values[i] - max) * scale);
}

TARGET_AVX2 static void fill_avx2(const float *values, uint32_t count, float max, float scale,
                                  float *ret_weights)
{
    fill(values, count, max, scale, ret_weights);
}

void weight_fill(const float *values, uint32_t count, float max, float scale, float *ret_weights)
{
    if (has_avx2())
        fill_avx2(values, count, max, scale, ret_weights);
    else
        fill(values, count, max, scale, ret_weights);
}

double weight_sum(const float *weights, uint32_t count)
{
    double chains[CHAINS] = {0};
    uint32_t i = 0;

    for (; count - i >= CHAINS; i += CHAINS)
        for (uint32_t c = 0; c < CHAINS; c++)
            chains[c] += weights[i + c];
    for (; i < count; i++)
        chains[0] += weights[i];
    return ((chains[0] + chains[1]) + (chains[2] + chains[3])) +
           ((chains[4] + chains[5]) + (chains[6] + chains[7]));
}
