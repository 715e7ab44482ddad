/* immintrin.h - AVX-512 and AMX on a processor that has AVX2 alone: the intrinsics that the avx512
 * and amx families use. First in the include path where emulate.cmake compiles their files.
 *
 * Each gives the bits of its instruction (not a NaN's payload) under the MXCSR that is set. Where
 * the processor would fault, the process aborts. One that is not here does not compile: the real
 * one cannot be inlined without its target. */
#ifndef REFRAIN_TESTS_EMULATE_IMMINTRIN_H
#define REFRAIN_TESTS_EMULATE_IMMINTRIN_H

#include_next <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/emulate/tiles.h"

#define EMULATED static inline __attribute__((always_inline, unused))
#define ZMM_REGISTER "m" /* where matmul_vnni.h keeps sums */

union emu512 {
    __m512 ps;
    __m512d pd;
    __m512i si;
    __m256 f[2];
    __m256d d[2];
    __m256i i[2];
    __m128i x[4];
    uint16_t u16[32];
    uint8_t u8[64];
};

typedef int32_t emu_i32 __attribute__((vector_size(64)));
typedef uint16_t emu_u16 __attribute__((vector_size(64)));
typedef int8_t emu_i8 __attribute__((vector_size(64)));

/* --- all lanes alike: the compiler's vectors ---------------------------------------------------
 */

#define _mm512_castps_pd(v) ((__m512d)(__m512)(v))
#define _mm512_castpd_ps(v) ((__m512)(__m512d)(v))
#define _mm512_castps_si512(v) ((__m512i)(__m512)(v))
#define _mm512_castsi512_ps(v) ((__m512)(__m512i)(v))
#define _mm512_cvtss_f32(v) (((__m512)(v))[0])

#define _mm512_setzero_ps() ((__m512){0})
#define _mm512_setzero_si512() ((__m512i){0})
#define _mm512_set1_ps(value) emu_set1((float)(value))
#define _mm512_set1_epi32(value) ((__m512i)((emu_i32){0} + (int32_t)(value)))
#define _mm512_set1_epi16(value) ((__m512i)((emu_u16){0} + (uint16_t)(value)))
#define _mm512_set1_epi8(value) ((__m512i)((emu_i8){0} + (int8_t)(value)))
#define _mm512_setr_ps(...) ((__m512){__VA_ARGS__})
#define _mm512_setr_epi32(...) ((__m512i)(emu_i32){__VA_ARGS__})

EMULATED __m512 emu_set1(float x)
{
    return (__m512){x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x};
}

#define _mm512_add_ps(a, b) ((__m512)(a) + (__m512)(b))
#define _mm512_sub_ps(a, b) ((__m512)(a) - (__m512)(b))
#define _mm512_mul_ps(a, b) ((__m512)(a) * (__m512)(b))
#define _mm512_div_ps(a, b) ((__m512)(a) / (__m512)(b))
#define _mm512_add_epi32(a, b) ((__m512i)((emu_i32)(a) + (emu_i32)(b)))
#define _mm512_add_epi8(a, b) ((__m512i)((emu_i8)(a) + (emu_i8)(b)))
#define _mm512_and_si512(a, b) ((__m512i)(a) & (__m512i)(b))
#define _mm512_or_si512(a, b) ((__m512i)(a) | (__m512i)(b))
#define _mm512_xor_si512(a, b) ((__m512i)(a) ^ (__m512i)(b))
#define _mm512_andnot_ps(a, b) ((__m512)(~(__m512i)(a) & (__m512i)(b)))
#define _mm512_slli_epi32(v, count) ((__m512i)((emu_i32)(v) << (count)))
#define _mm512_srli_epi16(v, count) ((__m512i)((emu_u16)(v) >> (count)))

/* --- two halves: AVX2's instructions -----------------------------------------------------------
 */

EMULATED __m512 emu_ps(__m256 low, __m256 high)
{
    return ((union emu512){.f = {low, high}}).ps;
}

EMULATED __m512i emu_si(__m256i low, __m256i high)
{
    return ((union emu512){.i = {low, high}}).si;
}

#define EMU_HALF_PS(v, h) (((union emu512){.ps = (v)}).f[h])
#define EMU_HALF_PD(v, h) (((union emu512){.pd = (v)}).d[h])
#define EMU_HALF_SI(v, h) (((union emu512){.si = (v)}).i[h])

#define EMU_2_PS(name)                                                      \
    EMULATED __m512 emu_##name(__m512 a, __m512 b)                          \
    {                                                                       \
        return emu_ps(_mm256_##name(EMU_HALF_PS(a, 0), EMU_HALF_PS(b, 0)),  \
                      _mm256_##name(EMU_HALF_PS(a, 1), EMU_HALF_PS(b, 1))); \
    }
#define EMU_2_PD(name)                                                                      \
    EMULATED __m512d emu_##name(__m512d a, __m512d b)                                       \
    {                                                                                       \
        return ((union emu512){.d = {_mm256_##name(EMU_HALF_PD(a, 0), EMU_HALF_PD(b, 0)),   \
                                     _mm256_##name(EMU_HALF_PD(a, 1), EMU_HALF_PD(b, 1))}}) \
            .pd;                                                                            \
    }
#define EMU_3_PS(name)                                                                         \
    EMULATED __m512 emu_##name(__m512 a, __m512 b, __m512 c)                                   \
    {                                                                                          \
        return emu_ps(_mm256_##name(EMU_HALF_PS(a, 0), EMU_HALF_PS(b, 0), EMU_HALF_PS(c, 0)),  \
                      _mm256_##name(EMU_HALF_PS(a, 1), EMU_HALF_PS(b, 1), EMU_HALF_PS(c, 1))); \
    }

EMU_2_PS(max_ps)
EMU_2_PS(min_ps)
EMU_2_PS(unpacklo_ps)
EMU_2_PS(unpackhi_ps)
EMU_2_PD(unpacklo_pd)
EMU_2_PD(unpackhi_pd)
EMU_3_PS(fmadd_ps)
EMU_3_PS(fnmadd_ps)

#define _mm512_max_ps emu_max_ps
#define _mm512_min_ps emu_min_ps
#define _mm512_unpacklo_ps emu_unpacklo_ps
#define _mm512_unpackhi_ps emu_unpackhi_ps
#define _mm512_unpacklo_pd emu_unpacklo_pd
#define _mm512_unpackhi_pd emu_unpackhi_pd
#define _mm512_fmadd_ps emu_fmadd_ps
#define _mm512_fnmadd_ps emu_fnmadd_ps

#define _mm512_castps512_ps256(v) EMU_HALF_PS(v, 0)
#define _mm512_extractf32x8_ps(v, part) EMU_HALF_PS(v, part)
#define _mm512_inserti64x4(v, half, part) emu_insert(v, half, part)
/* What the upper half holds is not defined: rubbish. */
#define _mm512_castsi256_si512(half) emu_si(half, _mm256_set1_epi8(0x5a))
#define _mm512_broadcast_i32x4(quarter) emu_broadcast(_mm256_broadcastsi128_si256(quarter))

EMULATED __m512i emu_insert(__m512i v, __m256i half, int part)
{
    union emu512 u = {.si = v};
    u.i[part] = half;
    return u.si;
}

EMULATED __m512i emu_broadcast(__m256i twice)
{
    return emu_si(twice, twice);
}

EMULATED __m512 emu_shuffle_quarters(__m512 a, __m512 b, unsigned imm)
{
    const union emu512 u = {.ps = a}, v = {.ps = b};
    return ((union emu512){
                .x = {u.x[imm & 3], u.x[imm >> 2 & 3], v.x[imm >> 4 & 3], v.x[imm >> 6 & 3]}})
        .ps;
}
#define _mm512_shuffle_f32x4 emu_shuffle_quarters

/* --- numbers to other types --------------------------------------------------------------------
 */

#define _mm512_cvtepi32_ps(v) \
    emu_ps(_mm256_cvtepi32_ps(EMU_HALF_SI(v, 0)), _mm256_cvtepi32_ps(EMU_HALF_SI(v, 1)))
#define _mm512_cvtps_epi32(v) \
    emu_si(_mm256_cvtps_epi32(EMU_HALF_PS(v, 0)), _mm256_cvtps_epi32(EMU_HALF_PS(v, 1)))
#define _mm512_cvtepi8_epi32(bytes) \
    emu_si(_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))
#define _mm512_cvtepu8_epi16(bytes)                             \
    emu_si(_mm256_cvtepu8_epi16(_mm256_castsi256_si128(bytes)), \
           _mm256_cvtepu8_epi16(_mm256_extracti128_si256(bytes, 1)))
#define _mm512_cvtph_ps(halves)                             \
    emu_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(halves)), \
           _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1)))

EMULATED __m128i emu_narrow(__m512i v)
{
    const union emu512 u = {.si = v};
    return _mm_packs_epi16(_mm_packs_epi32(u.x[0], u.x[1]), _mm_packs_epi32(u.x[2], u.x[3]));
}
#define _mm512_cvtsepi32_epi8 emu_narrow

/* To nearest even whatever MXCSR says; denormals are zeros; a NaN becomes a quiet one. */
EMULATED __m256i emu_bf16(__m256 v)
{
    const __m256i bits = _mm256_castps_si256(v), one = _mm256_set1_epi32(1);
    const __m256i sign = _mm256_set1_epi32((int32_t)0x80000000u);
    const __m256i exponent = _mm256_set1_epi32(0x7f800000);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), one);
    __m256i r = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    __m256i tiny = _mm256_cmpeq_epi32(_mm256_and_si256(bits, exponent), _mm256_setzero_si256());
    __m256i nan = _mm256_cmpgt_epi32(_mm256_andnot_si256(sign, bits), exponent);
    r = _mm256_blendv_epi8(r, _mm256_and_si256(bits, sign), tiny);
    r = _mm256_blendv_epi8(r, _mm256_or_si256(bits, _mm256_set1_epi32(0x400000)), nan);
    return _mm256_srli_epi32(r, 16);
}

/* Eight lanes of 16 bits from two vectors each: in order. */
EMULATED __m256i emu_bf16_pair(__m512 v)
{
    __m256i packed = _mm256_packus_epi32(emu_bf16(EMU_HALF_PS(v, 0)), emu_bf16(EMU_HALF_PS(v, 1)));
    return _mm256_permute4x64_epi64(packed, 0xd8);
}
#define _mm512_cvtneps_pbh(v) ((__m256bh)emu_bf16_pair(v))
#define _mm512_cvtne2ps_pbh(high, low) ((__m512bh)emu_si(emu_bf16_pair(low), emu_bf16_pair(high)))

/* --- floats ------------------------------------------------------------------------------------
 */

#define _mm512_roundscale_ps(v, imm) \
    emu_ps(_mm256_round_ps(EMU_HALF_PS(v, 0), imm), _mm256_round_ps(EMU_HALF_PS(v, 1), imm))

/* v - floor(v), -0 where that is zero, 0 of an infinity: no other rounding is used. */
EMULATED __m256 emu_rest(__m256 v)
{
    const __m256 minus0 = _mm256_set1_ps(-0.0f), infinity = _mm256_set1_ps(INFINITY);
    __m256 rest = _mm256_sub_ps(v, _mm256_floor_ps(v));
    __m256 zero = _mm256_cmp_ps(rest, minus0, _CMP_EQ_OQ);
    __m256 endless = _mm256_cmp_ps(_mm256_andnot_ps(minus0, v), infinity, _CMP_EQ_OQ);
    return _mm256_andnot_ps(endless, _mm256_blendv_ps(rest, minus0, zero));
}
#define _mm512_reduce_ps(v, imm)                                            \
    ((imm) == (_MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)                   \
         ? emu_ps(emu_rest(EMU_HALF_PS(v, 0)), emu_rest(EMU_HALF_PS(v, 1))) \
         : (abort(), (__m512){0}))

/* a * 2^floor(b), rounded once; 2^n is made in f64's exponent. */
EMULATED __m128 emu_scale4(__m128 a, __m128 b)
{
    const __m256d most = _mm256_set1_pd(600), bias = _mm256_set1_pd(0x1.8p52 + 1023);
    __m256d n = _mm256_floor_pd(_mm256_cvtps_pd(b));
    n = _mm256_max_pd(_mm256_min_pd(n, most), _mm256_sub_pd(_mm256_setzero_pd(), most));
    __m256i power = _mm256_slli_epi64(_mm256_castpd_si256(_mm256_add_pd(n, bias)), 52);
    __m128 y = _mm256_cvtpd_ps(_mm256_mul_pd(_mm256_cvtps_pd(a), _mm256_castsi256_pd(power)));
    return _mm_blendv_ps(y, b, _mm_cmpunord_ps(b, b));
}

EMULATED __m256 emu_scale8(__m256 a, __m256 b)
{
    return _mm256_set_m128(emu_scale4(_mm256_extractf128_ps(a, 1), _mm256_extractf128_ps(b, 1)),
                           emu_scale4(_mm256_castps256_ps128(a), _mm256_castps256_ps128(b)));
}
#define _mm512_scalef_ps(a, b)                               \
    emu_ps(emu_scale8(EMU_HALF_PS(a, 0), EMU_HALF_PS(b, 0)), \
           emu_scale8(EMU_HALF_PS(a, 1), EMU_HALF_PS(b, 1)))

/* --- masks -------------------------------------------------------------------------------------
 */

/* Lane i: from b where bit i of the mask is set, else from a. */
EMULATED __m512 emu_blend(unsigned mask, __m512 a, __m512 b)
{
    const emu_i32 bits = {1,      1 << 1, 1 << 2,  1 << 3,  1 << 4,  1 << 5,  1 << 6,  1 << 7,
                          1 << 8, 1 << 9, 1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14, 1 << 15};
    emu_i32 set = (bits & (int32_t)mask) != 0;
    return (__m512)((set & (emu_i32)b) | (~set & (emu_i32)a));
}
#define _mm512_mask_blend_ps emu_blend
#define _mm512_mask_mov_ps(otherwise, mask, v) emu_blend(mask, otherwise, v)
#define _mm512_maskz_mov_ps(mask, v) emu_blend(mask, (__m512){0}, v)
#define _mm512_cmp_ps_mask(a, b, how)                                                           \
    ((__mmask16)(_mm256_movemask_ps(_mm256_cmp_ps(EMU_HALF_PS(a, 0), EMU_HALF_PS(b, 0), how)) | \
                 _mm256_movemask_ps(_mm256_cmp_ps(EMU_HALF_PS(a, 1), EMU_HALF_PS(b, 1), how))   \
                     << 8))

/* --- memory ------------------------------------------------------------------------------------
 */

EMULATED const void *emu_aligned(const void *p)
{
    if ((uintptr_t)p % 64 != 0)
        abort();
    return p;
}

EMULATED __m512i emu_load(const void *from)
{
    __m512i v;
    memcpy(&v, from, sizeof(v));
    return v;
}

EMULATED void emu_store(void *to, __m512i v)
{
    memcpy(to, &v, sizeof(v));
}

#define _mm512_loadu_si512(from) emu_load(from)
#define _mm512_loadu_ps(from) ((__m512)emu_load(from))
#define _mm512_load_ps(from) ((__m512)emu_load(emu_aligned(from)))
#define _mm512_storeu_si512(to, v) emu_store(to, v)
#define _mm512_storeu_ps(to, v) emu_store(to, (__m512i)(v))
#define _mm512_store_si512(to, v) emu_store((void *)(uintptr_t)emu_aligned(to), v)
#define _mm512_store_ps(to, v) emu_store((void *)(uintptr_t)emu_aligned(to), (__m512i)(v))

/* What is masked is not touched. */
EMULATED __m512 emu_load_some(unsigned mask, const float *from)
{
    __m512 v = {0};
    if (mask == 0xffff)
        return (__m512)emu_load(from);
    for (int i = 0; i < 16; i++) {
        if ((mask >> i & 1) != 0)
            v[i] = from[i];
    }
    return v;
}

EMULATED void emu_store_some(float *to, unsigned mask, __m512 v)
{
    if (mask == 0xffff) {
        emu_store(to, (__m512i)v);
        return;
    }
    for (int i = 0; i < 16; i++) {
        if ((mask >> i & 1) != 0)
            to[i] = v[i];
    }
}
#define _mm512_maskz_loadu_ps emu_load_some
#define _mm512_mask_storeu_ps emu_store_some

/* --- bytes and words ---------------------------------------------------------------------------
 */

/* Unsigned bytes of w times signed ones of q, four each to a sum. */
EMULATED __m256i emu_dot(__m256i sum, __m256i w, __m256i q)
{
    const __m256i low = _mm256_set1_epi16(0xff);
    __m256i even =
        _mm256_madd_epi16(_mm256_and_si256(w, low), _mm256_srai_epi16(_mm256_slli_epi16(q, 8), 8));
    __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(w, 8), _mm256_srai_epi16(q, 8));
    return _mm256_add_epi32(sum, _mm256_add_epi32(even, odd));
}
#define _mm256_dpbusd_epi32 emu_dot
#define _mm512_dpbusd_epi32(sum, w, q)                                         \
    emu_si(emu_dot(EMU_HALF_SI(sum, 0), EMU_HALF_SI(w, 0), EMU_HALF_SI(q, 0)), \
           emu_dot(EMU_HALF_SI(sum, 1), EMU_HALF_SI(w, 1), EMU_HALF_SI(q, 1)))

/* The low words of (high:low) >> count. */
EMULATED __m512i emu_shift_pairs(__m512i low, __m512i high, __m512i count)
{
    emu_u16 right = (emu_u16)count & 15;
    /* in two steps: none is by 16 */
    return (__m512i)(((emu_u16)low >> right) | ((emu_u16)high << 1 << (15 - right)));
}
#define _mm512_shrdv_epi16 emu_shift_pairs

EMULATED __m512i emu_permute_words(__m512i which, __m512i from)
{
    union emu512 r, w = {.si = which}, f = {.si = from};
    for (int i = 0; i < 32; i++)
        r.u16[i] = f.u16[w.u16[i] % 32];
    return r.si;
}
#define _mm512_permutexvar_epi16 emu_permute_words

EMULATED __m512i emu_permute_bytes(__m512i otherwise, uint64_t mask, __m512i which, __m512i from)
{
    union emu512 r = {.si = otherwise}, w = {.si = which}, f = {.si = from};
    for (int i = 0; i < 64; i++) {
        if ((mask >> i & 1) != 0)
            r.u8[i] = f.u8[w.u8[i] % 64];
    }
    return r.si;
}
#define _mm512_mask_permutexvar_epi8 emu_permute_bytes

/* --- tiles -------------------------------------------------------------------------------------
 */

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stream_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#define _tile_loadconfig emulated_tile_loadconfig
#define _tile_release emulated_tile_release
#define _tile_zero emulated_tile_zero
#define _tile_loadd emulated_tile_loadd
#define _tile_stream_loadd emulated_tile_loadd
#define _tile_stored emulated_tile_stored
#define _tile_dpbf16ps emulated_tile_dpbf16ps

#endif
