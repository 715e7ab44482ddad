/* cpu_features.c - what the processor has, the system saves and the process may use.
 *
 * CPUID says what the processor can, XCR0 what the system saves on a thread switch; both are
 * needed. Model names are never asked: virtual machines make them up. */
#include "kernels/cpu/cpu_features.h"

#include <cpuid.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ARCH_REQ_XCOMP_PERM 0x1023
#define XFEATURE_XTILEDATA 18

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

static const struct feature table[] = {
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
#define FEATURES (sizeof(table) / sizeof(table[0]))

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

/* For the whole process, once; asking again is harmless. Threads started later inherit it. */
static bool may_use_tiles(void)
{
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

const char *cpu_features_missing(uint32_t features)
{
    uint32_t saves = system_saves();
    for (size_t i = 0; i < FEATURES; i++) {
        if ((features & table[i].feature) != 0 && !has(&table[i], saves))
            return table[i].name;
    }
    return (features & CPU_AMX) == 0 || may_use_tiles() ? NULL
                                                        : "the system's permission for AMX tiles";
}
