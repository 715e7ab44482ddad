/* bench_sample.c - microseconds that one row of logits takes to become a token, by vocabulary and
 * by what the client asks.
 *
 *   bench_sample [seconds per line 0.3]
 *
 * Logits are of a normal distribution with a deviation of 3, new ones for each row. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/clock.h"
#include "proto/base/mem.h"
#include "proto/base/rng.h"
#include "worker/sample/sampler.h"

#define ROWS 16

struct way {
    const char *name;
    struct sample_params params;
};

static const struct way ways[] = {
    {"greedy", {.top_p = 1, .repetition_penalty = 1}},
    {"temperature 1", {.temperature = 1, .top_p = 1, .repetition_penalty = 1}},
    {"temperature 0.7 top_p 0.9", {.temperature = 0.7, .top_p = 0.9, .repetition_penalty = 1}},
    {"temperature 0.7 top_k 40",
     {.temperature = 0.7, .top_k = 40, .top_p = 1, .repetition_penalty = 1}},
    {"temperature 0.7 min_p 0.05",
     {.temperature = 0.7, .min_p = 0.05, .top_p = 1, .repetition_penalty = 1}},
    {"greedy logprobs 5", {.top_p = 1, .repetition_penalty = 1, .logprobs = 6}},
};

static float normal(uint64_t i)
{
    double u = rng_uniform(1, 2 * i) + 1e-12, v = rng_uniform(1, 2 * i + 1);
    return (float)(3 * sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
}

int main(int argc, char **argv)
{
    static const uint32_t vocabularies[] = {49152, 151936, 262144};
    double limit = argc > 1 ? atof(argv[1]) : 0.3;
    printf("vocabulary,how,rows,us_per_row\n");
    for (int v = 0; v < 3; v++) {
        uint32_t size = vocabularies[v];
        struct sampler *sampler = sampler_new(size);
        float *logits = mem_calloc((size_t)ROWS * size, sizeof(float));
        float *row = mem_calloc(size, sizeof(float));
        for (size_t i = 0; i < (size_t)ROWS * size; i++)
            logits[i] = normal(i);
        for (size_t w = 0; w < sizeof(ways) / sizeof(ways[0]); w++) {
            double best = 1e9, total = 0;
            uint32_t position = 0;
            while (total < limit) {
                double s = 0;
                for (int r = 0; r < ROWS; r++) {
                    struct sample_result result;
                    struct sample_row sample = {.params = &ways[w].params, .position = position++};
                    memcpy(row, logits + (size_t)r * size, size * sizeof(float));
                    uint64_t start = clock_ns();
                    if (sampler_sample(sampler, row, &sample, &result) < 0)
                        return 1;
                    s += 1e-9 * (double)(clock_ns() - start);
                }
                total += s;
                best = fmin(best, s);
            }
            printf("%u,%s,%d,%.1f\n", size, ways[w].name, ROWS, 1e6 * best / ROWS);
        }
        mem_free(logits);
        mem_free(row);
        sampler_free(sampler);
    }
    return 0;
}
