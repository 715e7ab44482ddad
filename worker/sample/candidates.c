/* candidates.c - lists are cut in place, so ids stay in order. */
#include "worker/sample/candidates.h"

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "worker/sample/avx2.h"

void candidates_init(struct candidates *candidates, uint32_t vocab_size)
{
    candidates->ids = mem_calloc(vocab_size, sizeof(*candidates->ids));
    candidates->logits = mem_calloc(vocab_size, sizeof(*candidates->logits));
    candidates->weights = mem_calloc(vocab_size, sizeof(*candidates->weights));
    candidates->count = 0;
}

void candidates_done(struct candidates *candidates)
{
    mem_free(candidates->ids);
    mem_free(candidates->logits);
    mem_free(candidates->weights);
}

void candidates_take_best(struct candidates *candidates, const float *logits, uint32_t vocab_size,
                          uint32_t keep, struct select_bins *bins)
{
    select_best(logits, vocab_size, keep, bins, candidates->ids);
    candidates->count = keep;
    for (uint32_t i = 0; i < keep; i++)
        candidates->logits[i] = logits[candidates->ids[i]];
}

static void add(struct candidates *candidates, uint32_t id, float logit, float weight)
{
    candidates->ids[candidates->count] = id;
    candidates->logits[candidates->count] = logit;
    candidates->weights[candidates->count++] = weight;
}

static void take_heavy(struct candidates *candidates, const float *logits, const float *weights,
                       uint32_t first, uint32_t end, float least)
{
    for (uint32_t i = first; i < end; i++)
        if (weights[i] >= least)
            add(candidates, i, logits[i], weights[i]);
}

#ifdef __x86_64__
#include <immintrin.h>

/* Eight weights become eight bits: no branch where heavy ones are strewn among the others, which
 * took half of a top-p row's time. */
TARGET_AVX2 static void take_heavy_avx2(struct candidates *candidates, const float *logits,
                                        const float *weights, uint32_t count, float least)
{
    const __m256 bound = _mm256_set1_ps(least);
    uint32_t i = 0;

    for (; count - i >= 8; i += 8) {
        __m256 heavy = _mm256_cmp_ps(_mm256_loadu_ps(weights + i), bound, _CMP_GE_OQ);
        for (unsigned bits = (unsigned)_mm256_movemask_ps(heavy); bits != 0; bits &= bits - 1) {
            uint32_t id = i + (uint32_t)__builtin_ctz(bits);
            add(candidates, id, logits[id], weights[id]);
        }
    }
    take_heavy(candidates, logits, weights, i, count, least);
}
#else
static void take_heavy_avx2(struct candidates *candidates, const float *logits,
                            const float *weights, uint32_t count, float least)
{
    take_heavy(candidates, logits, weights, 0, count, least);
}
#endif

void candidates_take_heavy(struct candidates *candidates, const float *logits, const float *weights,
                           uint32_t vocab_size, float least)
{
    candidates->count = 0;
    if (has_avx2())
        take_heavy_avx2(candidates, logits, weights, vocab_size, least);
    else
        take_heavy(candidates, logits, weights, 0, vocab_size, least);
    ASSERT(candidates->count > 0);
}

void candidates_drop_light(struct candidates *candidates, float least)
{
    uint32_t count = candidates->count;

    candidates->count = 0;
    for (uint32_t i = 0; i < count; i++)
        if (candidates->weights[i] >= least)
            add(candidates, candidates->ids[i], candidates->logits[i], candidates->weights[i]);
    ASSERT(candidates->count > 0);
}

void candidates_keep_mass(struct candidates *candidates, double mass, struct select_bins *bins)
{
    uint32_t count = candidates->count;
    struct cut cut = select_mass(candidates->logits, candidates->weights, count, mass, bins);
    uint32_t ties = cut.ties;

    candidates->count = 0;
    for (uint32_t i = 0; i < count; i++)
        if (select_keeps(&cut, candidates->logits[i], &ties))
            add(candidates, candidates->ids[i], candidates->logits[i], candidates->weights[i]);
    ASSERT(candidates->count > 0);
}
