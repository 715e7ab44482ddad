/* rope_table.c - cosine and sine of every position and pair; in double, so that position 100,000
 * is still exact. */
#include <math.h>

#include "proto/base/mem.h"
#include "worker/model/decoder_private.h"

void rope_table_fill(const struct rope_config *rope, uint32_t dims, uint32_t positions,
                     float *cos_sin)
{
    uint32_t pairs = dims / 2;
    bool is_long = rope->long_after > 0 && positions > rope->long_after;
    const float *divisors = is_long ? rope->long_divisors : rope->divisors;
    double *turns = mem_calloc(pairs + 1, sizeof(*turns));
    for (uint32_t i = 0; i < pairs; i++)
        turns[i] = pow((double)rope->theta, -2.0 * i / dims) / (double)divisors[i];
    for (uint32_t p = 0; p < positions; p++) {
        for (uint32_t i = 0; i < pairs; i++) {
            float *to = cos_sin + ((size_t)p * pairs + i) * 2;
            to[0] = (float)(cos(p * turns[i]) * (double)rope->amplitude);
            to[1] = (float)(sin(p * turns[i]) * (double)rope->amplitude);
        }
    }
    mem_free(turns);
}
