/* best.c - the largest of 49,152 floats in a few microseconds.
 *
 * In pieces of PIECE values: the largest of a piece without an index, LANES at once; only the
 * winning piece is searched for the place. A loop that carries the index along takes 70 us instead
 * of 5, twice a token. By intrinsics: compilers keep so many lanes in registers only where they
 * know the count. */
#include "worker/sample/best.h"

#include <math.h>

#include "worker/sample/avx2.h"

#define LANES 32u
#define PIECE 1024u

struct piece {
    float max;
    bool nan;
};

static struct piece largest(const float *values, uint32_t count)
{
    struct piece piece = {-INFINITY, false};

    for (uint32_t i = 0; i < count; i++) {
        piece.nan |= values[i] != values[i];
        piece.max = values[i] > piece.max ? values[i] : piece.max;
    }
    return piece;
}

#ifdef __x86_64__
#include <immintrin.h>

TARGET_AVX2 static struct piece largest_avx2(const float *values, uint32_t count)
{
    __m256 max[LANES / 8], nan[LANES / 8];
    float lanes[8];
    uint32_t i = 0;

    for (uint32_t v = 0; v < LANES / 8; v++) {
        max[v] = _mm256_set1_ps(-INFINITY);
        nan[v] = _mm256_setzero_ps();
    }
    for (; count - i >= LANES; i += LANES) {
        for (uint32_t v = 0; v < LANES / 8; v++) {
            __m256 x = _mm256_loadu_ps(values + i + v * 8);
            nan[v] = _mm256_or_ps(nan[v], _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
            max[v] = _mm256_max_ps(max[v], x);
        }
    }
    __m256 any = _mm256_or_ps(_mm256_or_ps(nan[0], nan[1]), _mm256_or_ps(nan[2], nan[3]));
    _mm256_storeu_ps(lanes,
                     _mm256_max_ps(_mm256_max_ps(max[0], max[1]), _mm256_max_ps(max[2], max[3])));
    struct piece piece = largest(lanes, 8), rest = largest(values + i, count - i);
    piece.nan |= rest.nan || _mm256_movemask_ps(any) != 0;
    piece.max = rest.max > piece.max ? rest.max : piece.max;
    return piece;
}
#else
#define largest_avx2 largest
#endif

void best_of_pieces(const float *values, uint32_t count, uint32_t piece, float *ret_max)
{
    const bool avx2 = has_avx2();

    for (uint32_t i = 0; i < count; i += piece) {
        uint32_t rest = count - i < piece ? count - i : piece;
        *ret_max++ = (avx2 ? largest_avx2(values + i, rest) : largest(values + i, rest)).max;
    }
}

uint32_t best_find(const float *logits, uint32_t count, bool *ret_nan)
{
    const bool avx2 = has_avx2();
    float max = -INFINITY;
    uint32_t from = 0, at;

    *ret_nan = false;
    for (uint32_t i = 0; i < count; i += PIECE) {
        uint32_t rest = count - i < PIECE ? count - i : PIECE;
        struct piece piece = avx2 ? largest_avx2(logits + i, rest) : largest(logits + i, rest);
        *ret_nan |= piece.nan;
        if (piece.max > max) {
            max = piece.max;
            from = i;
        }
    }
    for (at = from; at < count - 1 && logits[at] != max; at++)
        ;
    return *ret_nan ? 0 : at;
}
