/* family.c - which instruction set families there are, best first. */
#include "kernels/cpu/family.h"

#include <string.h>

static const struct cpu_family *const families[] = {&amx_bf16_family, &amx_family, &avx512_family,
                                                    &avx2_family};
#define FAMILIES (sizeof(families) / sizeof(families[0]))

const char *cpu_family_missing(const struct cpu_family *family)
{
    return cpu_features_missing(family->needs);
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
