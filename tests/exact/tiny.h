/* tiny.h - the random models of 90,432 weights, for tests that play many schedules. */
#ifndef REFRAIN_TESTS_EXACT_TINY_H
#define REFRAIN_TESTS_EXACT_TINY_H

#include <stdio.h>
#include <unistd.h>

#include "proto/base/log.h"
#include "tests/exact/exact.h"

#define TINY_F32 SHARED_DIR "/golden/tiny/llama-gguf-f32/model.gguf"
#define TINY_Q8_0 SHARED_DIR "/golden/tiny/llama-gguf-q8_0/model.gguf"
#define TINY_MISTRAL SHARED_DIR "/golden/tiny/mistral"
#define TINY_GEMMA2 SHARED_DIR "/golden/tiny/gemma2"
#define TINY_GEMMA3 SHARED_DIR "/golden/tiny/gemma3"
#define SKIPPED 77

static const char *family; /* of the cpu backend; NULL: the best */

static inline struct exact *tiny_open(const char *model, uint32_t ranks, uint64_t seed)
{
    const struct exact_settings settings = {
        .model = model, .ranks = ranks, .threads = 1, .seed = seed, .isa = family};
    struct exact *exact = NULL;
    struct errmsg err = {""};
    if (exact_open(&settings, &exact, &err) < 0)
        fail_msg("%s: %s", model, err.text);
    return exact;
}

/* false, and a word about it: the models are not there. */
static inline bool tiny_there(void)
{
    log_init("test", LOG_WARN);
    if (access(TINY_F32, R_OK) == 0 && access(TINY_Q8_0, R_OK) == 0)
        return true;
    (void)fprintf(stderr, "skipped: %s is not there\n", TINY_F32);
    return false;
}

#endif
