/* weight.c - exp(x) = 2^n * exp(r), n = round(x / ln 2), |r| <= ln 2 / 2, Taylor to degree 13.
 *
 * Adding 1.5 * 2^52 rounds to an integer that then lies in the low bits of the double; shifted into
 * the exponent it is 2^n. No branch and no table, so gcc makes two or four of them at once. The
 * next term of the series is 4e-18. ln 2 in two parts (Cody and Waite 1980): n * high is exact. */
#include "worker/sample/weight.h"

#include <string.h>

#define ROUND_MAGIC 0x1.8p52
#define LOG2_E 0x1.71547652b82fep0
#define LN2_HIGH 0x1.62e42fefa0000p-1
#define LN2_LOW 0x1.cf79abc9e3b3ap-40
#define WEIGHT_X_MIN (-700.0)

static inline double exp_down(double x)
{
    double clamped = x < WEIGHT_X_MIN ? WEIGHT_X_MIN : x;
    double rounded = clamped * LOG2_E + ROUND_MAGIC;
    double n = rounded - ROUND_MAGIC;
    double r = clamped - n * LN2_HIGH - n * LN2_LOW;
    uint64_t bits;
    double power, sum;

    memcpy(&bits, &rounded, sizeof(bits));
    bits = (bits + 1023) << 52;
    memcpy(&power, &bits, sizeof(power));
    sum = 1.0 / 6227020800.0;
    sum = sum * r + 1.0 / 479001600.0;
    sum = sum * r + 1.0 / 39916800.0;
    sum = sum * r + 1.0 / 3628800.0;
    sum = sum * r + 1.0 / 362880.0;
    sum = sum * r + 1.0 / 40320.0;
    sum = sum * r + 1.0 / 5040.0;
    sum = sum * r + 1.0 / 720.0;
    sum = sum * r + 1.0 / 120.0;
    sum = sum * r + 1.0 / 24.0;
    sum = sum * r + 1.0 / 6.0;
    sum = sum * r + 0.5;
    sum = sum * r + 1.0;
    sum = sum * r + 1.0;
    return x < WEIGHT_X_MIN ? 0.0 : sum * power;
}

double weight_exp(double x)
{
    return exp_down(x);
}

void weight_fill(const float *values, uint32_t count, float max, double scale, double *ret_weights)
{
    for (uint32_t i = 0; i < count; i++)
        ret_weights[i] = exp_down(((double)values[i] - max) * scale);
}

double weight_sum(const float *values, uint32_t count, float max)
{
    double sum = 0;

    for (uint32_t i = 0; i < count; i++)
        sum += exp_down((double)values[i] - max);
    return sum;
}
