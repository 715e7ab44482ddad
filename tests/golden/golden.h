/* golden.h - what the golden tests share: reading golden files, distances between distributions. */
#ifndef REFRAIN_TESTS_GOLDEN_GOLDEN_H
#define REFRAIN_TESTS_GOLDEN_GOLDEN_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/json.h"
#include "proto/base/mem.h"
#include "tests/model_path.h"

#define GOLDEN_SKIPPED 77

/* The whole file, terminated; NULL: it is not there. mem_free() it. */
static inline char *golden_read_file(const char *path, size_t *ret_bytes)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return NULL;
    size_t bytes = 0, capacity = 1 << 16, got = 0;
    char *data = mem_alloc(capacity + 1);
    while ((got = fread(data + bytes, 1, capacity - bytes, file)) > 0) {
        bytes += got;
        if (bytes == capacity) {
            capacity *= 2;
            data = mem_realloc(data, capacity + 1);
        }
    }
    (void)fclose(file);
    data[bytes] = '\0';
    *ret_bytes = bytes;
    return data;
}

static inline json_t *golden_read_json(const char *path)
{
    size_t bytes = 0;
    json_t *value = NULL;
    struct errmsg err = {""};
    char *text = golden_read_file(path, &bytes);
    if (text == NULL)
        return NULL;
    if (json_parse(text, bytes, 64u << 20, &value, &err) < 0)
        (void)fprintf(stderr, "%s: %s\n", path, err.text);
    mem_free(text);
    return value;
}

/* An array of integers; mem_free() it. */
static inline uint32_t *golden_ids(const json_t *array, uint32_t *ret_count)
{
    size_t count = json_array_size(array);
    uint32_t *ids = mem_calloc(count + 1, sizeof(*ids));
    for (size_t i = 0; i < count; i++)
        ids[i] = (uint32_t)json_integer_value(json_array_get(array, i));
    *ret_count = (uint32_t)count;
    return ids;
}

static inline double golden_number(const json_t *array, size_t i)
{
    return json_number_value(json_array_get(array, i));
}

static inline uint32_t golden_argmax(const float *logits, uint32_t count)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < count; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
}

static inline double golden_logsumexp(const float *logits, uint32_t count)
{
    double max = (double)logits[golden_argmax(logits, count)], sum = 0;
    for (uint32_t i = 0; i < count; i++)
        sum += exp((double)logits[i] - max);
    return max + log(sum);
}

/* Where the tiny model of that name lies: with us (make_tiny.py) or with the shared data. */
static inline const char *golden_tiny_root(const char *folder)
{
    char path[512];
    (void)snprintf(path, sizeof(path), SOURCE_DIR "/tests/golden/tiny/%s", folder);
    return access(path, F_OK) == 0 ? SOURCE_DIR "/tests/golden/tiny" : SHARED_DIR "/golden/tiny";
}

#endif
