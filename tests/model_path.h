/* model_path.h - where deploy/common.sh puts downloaded models, for tests and benches. */
#ifndef REFRAIN_TESTS_MODEL_PATH_H
#define REFRAIN_TESTS_MODEL_PATH_H

#include <stdio.h>
#include <stdlib.h>

#define SMOLLM2_FILE "SmolLM2-135M-Instruct.Q4_1.gguf"
#define GEMMA3_FILE "gemma-3-270m-q4_k_m.gguf"

/* ${XDG_CACHE_HOME:-~/.cache}/refrain/models/NAME, in a static buffer; it need not be there. */
static inline const char *model_path(const char *name)
{
    static char path[4096];
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (cache != NULL && cache[0] != '\0')
        (void)snprintf(path, sizeof(path), "%s/refrain/models/%s", cache, name);
    else
        (void)snprintf(path, sizeof(path), "%s/.cache/refrain/models/%s", home == NULL ? "" : home,
                       name);
    return path;
}

#endif
