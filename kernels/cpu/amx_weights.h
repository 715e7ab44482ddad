/* amx_weights.h - a group of a by_output panel as bf16: [16 outputs][32 k], an A tile. */
#ifndef REFRAIN_KERNELS_CPU_AMX_WEIGHTS_H
#define REFRAIN_KERNELS_CPU_AMX_WEIGHTS_H

#include "kernels/cpu/family.h"
#include "kernels/cpu/simd_avx512.h"

#define TILE_VALUES (PANEL * GROUP)
#define HEADER (PANEL * 2) /* bytes of one f16 vector */

typedef void (*dequantise_fn)(const uint8_t *group, uint16_t *to);

/* So that lanes of it are broadcast by the load ports: gcc would permute registers instead, on the
 * port that the tables need. */
INLINE void keep_in_memory(float v[PANEL])
{
    __asm__("" : "+m"(*(float(*)[PANEL])v));
}

INLINE void store_bf16(uint16_t *to, __m512 low, __m512 high)
{
    __m512bh both = _mm512_cvtne2ps_pbh(high, low);
    _mm512_storeu_si512(to, (__m512i)both);
}

/* What 16 codes mean, as bf16 in word 2 i + 1: cut off, not rounded. Rounding is in d and m, which
 * headers_cut() makes larger by half a step of bf16, its mean over a binade: no error on average,
 * and values that bf16 holds exactly stay as they are. */
INLINE __m512i table_of(__m512 codes, __m512 d, __m512 m)
{
    return _mm512_castps_si512(_mm512_fmadd_ps(codes, d, m));
}

INLINE void headers_cut(const uint8_t *headers, float to[PANEL])
{
    v16_store(to, _mm512_mul_ps(v16_load_f16(headers), _mm512_set1_ps(1 + 0x1.715476p-9f)));
}

/* Turns that bring nibble i of a word, i = lane / 8, to bits 1 to 4. */
INLINE __m512i nibble_turns(void)
{
    const __m128i left1 = _mm_set1_epi16(15), right3 = _mm_set1_epi16(3),
                  right7 = _mm_set1_epi16(7), right11 = _mm_set1_epi16(11);
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_set_m128i(right3, left1)),
                              _mm256_set_m128i(right11, right7), 1);
}

/* One table holds both halves' meanings: entries 0..3 of the first, 4..7 of the second. */
INLINE void dequantise_u2(const uint8_t *group, uint16_t *to)
{
    const __m512 codes = _mm512_setr_ps(0, 1, 2, 3, 0, 1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0);
    const __m512i turns = nibble_turns(), code = _mm512_set1_epi16(6);
    const __m512i place = _mm512_inserti64x4(_mm512_set1_epi16(1), _mm256_set1_epi16(9), 1);
    float d[2][PANEL], m[2][PANEL];
    for (int h = 0; h < 2; h++) {
        headers_cut(group + h * HEADER, d[h]);
        headers_cut(group + (2 + h) * HEADER, m[h]);
    }
    group += 4 * HEADER;
    UNROLL for (int n = 0; n < PANEL; n++)
    {
        __m512 scale = _mm512_mask_blend_ps(0xf0, _mm512_set1_ps(d[0][n]), _mm512_set1_ps(d[1][n]));
        __m512 min = _mm512_mask_blend_ps(0xf0, _mm512_set1_ps(m[0][n]), _mm512_set1_ps(m[1][n]));
        __m512i words = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)group + n));
        __m512i which = _mm512_and_si512(_mm512_shrdv_epi16(words, words, turns), code);
        __m512i row =
            _mm512_permutexvar_epi16(_mm512_or_si512(which, place), table_of(codes, scale, min));
        _mm512_store_si512(to + n * GROUP, row);
    }
}

INLINE void dequantise_u4(const uint8_t *group, uint16_t *to)
{
    const __m512 codes = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i turns = nibble_turns(), odd = _mm512_set1_epi16(1);
    float d[PANEL], m[PANEL];
    headers_cut(group, d);
    headers_cut(group + HEADER, m);
    keep_in_memory(d);
    keep_in_memory(m);
    group += 2 * HEADER;
    UNROLL for (int n = 0; n < PANEL; n++)
    {
        __m512i words = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)group + n));
        __m512i which = _mm512_or_si512(_mm512_shrdv_epi16(words, words, turns), odd);
        __m512i row = _mm512_permutexvar_epi16(
            which, table_of(codes, _mm512_set1_ps(d[n]), _mm512_set1_ps(m[n])));
        _mm512_store_si512(to + n * GROUP, row);
    }
}

INLINE void dequantise_u5(const uint8_t *group, uint16_t *to)
{
    const __m512 codes = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512 more = _mm512_add_ps(codes, _mm512_set1_ps(16));
    float d[PANEL], m[PANEL];
    v16_store(d, v16_load_f16(group));
    v16_store(m, v16_load_f16(group + HEADER));
    keep_in_memory(d);
    keep_in_memory(m);
    group += 2 * HEADER;
    UNROLL for (int n = 0; n < PANEL; n++)
    {
        __m512 scale = _mm512_set1_ps(d[n]), min = _mm512_set1_ps(m[n]);
        __m512i table = (__m512i)_mm512_cvtne2ps_pbh(_mm512_fmadd_ps(more, scale, min),
                                                     _mm512_fmadd_ps(codes, scale, min));
        __m512i which = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)group + n));
        _mm512_storeu_si512(to + n * GROUP, _mm512_permutexvar_epi16(which, table));
    }
}

INLINE __m512 load_signed(const uint8_t *bytes)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)bytes)));
}

INLINE void dequantise_s6(const uint8_t *group, uint16_t *to)
{
    float d[2][PANEL];
    v16_store(d[0], v16_load_f16(group));
    v16_store(d[1], v16_load_f16(group + HEADER));
    keep_in_memory(d[0]);
    keep_in_memory(d[1]);
    group += 2 * HEADER;
    UNROLL for (int n = 0; n < PANEL; n++) store_bf16(
        to + n * GROUP, _mm512_mul_ps(load_signed(group + n * GROUP), _mm512_set1_ps(d[0][n])),
        _mm512_mul_ps(load_signed(group + n * GROUP + 16), _mm512_set1_ps(d[1][n])));
}

/* 32768 + (q + 128) in a float's fraction, 16 bytes from 16 * part on: 1 + (q + 128) / 32768. */
INLINE __m512 load_fraction(__m512i bytes, int part)
{
    const __m512i one = _mm512_set1_epi32(0x3f800000);
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m512i from = _mm512_slli_epi32(_mm512_add_epi32(lanes, _mm512_set1_epi32(16 * part)), 8);
    return _mm512_castsi512_ps(_mm512_mask_permutexvar_epi8(one, 0x2222222222222222u, from, bytes));
}

/* d * q = (1 + (q + 128) / 32768) * 32768 d - (32768 + 128) d: every factor is exact, so this is
 * what converting q would give, in two steps less. */
INLINE void dequantise_s8(const uint8_t *group, uint16_t *to)
{
    float d[PANEL], m[PANEL];
    v16_store(d, _mm512_mul_ps(v16_load_f16(group), _mm512_set1_ps(32768)));
    v16_store(m, _mm512_mul_ps(v16_load_f16(group), _mm512_set1_ps(-32768 - 128)));
    keep_in_memory(d);
    keep_in_memory(m);
    group += HEADER;
    UNROLL for (int n = 0; n < PANEL; n++)
    {
        __m512 scale = _mm512_set1_ps(d[n]), offset = _mm512_set1_ps(m[n]);
        __m512i bytes = _mm512_castsi256_si512(_mm256_xor_si256(
            _mm256_loadu_si256((const __m256i *)group + n), _mm256_set1_epi8(-128)));
        store_bf16(to + n * GROUP, _mm512_fmadd_ps(load_fraction(bytes, 0), scale, offset),
                   _mm512_fmadd_ps(load_fraction(bytes, 1), scale, offset));
    }
}

#endif
