/* family.c - which instruction set families there are, best first, and what the processor has.
 *
 * CPUID says what the processor can, XCR0 what the system saves on a thread switch; both are
 * needed. Model names are never asked: virtual machines make them up. */
#include "kernels/cpu/family.h"

#include <cpuid.h>
#include <string.h>

static const struct cpu_family *const families[] = {&amx_bf16_family, &amx_family, &avx512_family,
                                                    &avx2_family};
#define FAMILIES (sizeof(families) / sizeof(families[0]))

enum { EBX, ECX, EDX, EAX };

struct feature {
    enum cpu_feature feature;
    const char *name;
    unsigned leaf, subleaf, word, bits;
    uint32_t saved; /* XCR0 bits of the registers that it uses */
};

#define SAVED_YMM 0x6u
#define SAVED_ZMM 0xe6u
#define SAVED_TILES 0x60000u

static const struct feature features[] = {
    {CPU_AVX2, "AVX2", 7, 0, EBX, 1u << 5, SAVED_YMM},
    {CPU_FMA, "FMA", 1, 0, ECX, 1u << 12, SAVED_YMM},
    {CPU_F16C, "F16C", 1, 0, ECX, 1u << 29, SAVED_YMM},
    {CPU_AVX512, "AVX-512 (F, BW, DQ, VL)", 7, 0, EBX, 1u << 16 | 1u << 30 | 1u << 17 | 1u << 31,
     SAVED_ZMM},
    {CPU_VNNI, "AVX-512 VNNI", 7, 0, ECX, 1u << 11, SAVED_ZMM},
    {CPU_VBMI2, "AVX-512 VBMI2", 7, 0, ECX, 1u << 6 | 1u << 1, SAVED_ZMM},
    {CPU_BF16, "AVX-512 BF16", 7, 1, EAX, 1u << 5, SAVED_ZMM},
    {CPU_AMX, "AMX (tiles, int8, bf16)", 7, 0, EDX, 1u << 24 | 1u << 25 | 1u << 22, SAVED_TILES},
};
#define FEATURES (sizeof(features) / sizeof(features[0]))

static uint32_t system_saves(void)
{
    unsigned a, b, c, d;
    uint32_t low, high;
    if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & bit_OSXSAVE) == 0)
        return 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

static bool has(const struct feature *f, uint32_t saves)
{
    unsigned words[4];
    if (__get_cpuid_count(f->leaf, f->subleaf, &words[EAX], &words[EBX], &words[ECX],
                          &words[EDX]) == 0)
        return false;
    return (words[f->word] & f->bits) == f->bits && (saves & f->saved) == f->saved;
}

const char *cpu_family_missing(const struct cpu_family *family)
{
    uint32_t saves = system_saves();
    for (size_t i = 0; i < FEATURES; i++) {
        if ((family->needs & features[i].feature) != 0 && !has(&features[i], saves))
            return features[i].name;
    }
    return family->prepare == NULL || family->prepare() == 0 ? NULL : family->prepare_name;
}

const struct cpu_family *cpu_family_at(size_t i)
{
    return i < FAMILIES ? families[i] : NULL;
}

const struct cpu_family *cpu_family_find(const char *name)
{
    for (size_t i = 0; i < FAMILIES; i++) {
        if ((name == NULL || strcmp(families[i]->name, name) == 0) &&
            cpu_family_missing(families[i]) == NULL)
            return families[i];
    }
    return NULL;
}
