/* family.c - which instruction set families there are, best first, and what the processor has.
 *
 * CPUID says what the processor can, XCR0 what the system saves on a thread switch; both are
 * needed. Asked once, at open. */
#include "kernels/cpu/family.h"

#include <cpuid.h>
#include <string.h>

static const struct cpu_family *const families[] = {&avx2_family};
#define FAMILIES (sizeof(families) / sizeof(families[0]))

static bool system_saves_ymm(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & 6) == 6;
}

bool cpu_has_avx2(void)
{
    const unsigned wanted = bit_FMA | bit_F16C | bit_AVX | bit_OSXSAVE;
    unsigned a, b, c, d;
    if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & wanted) != wanted || !system_saves_ymm())
        return false;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & bit_AVX2) != 0;
}

const struct cpu_family *cpu_family_find(const char *name)
{
    for (size_t i = 0; i < FAMILIES; i++) {
        if ((name == NULL || strcmp(families[i]->name, name) == 0) && families[i]->is_supported())
            return families[i];
    }
    return NULL;
}
