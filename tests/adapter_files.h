/* adapter_files.h - random LoRA adapters in PEFT's format for a model folder, and the same model
 * with them merged: W + factor * B A. Reads and writes safetensors by itself, so that it can be an
 * oracle for the loader. */
#ifndef REFRAIN_TESTS_ADAPTER_FILES_H
#define REFRAIN_TESTS_ADAPTER_FILES_H

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/dtype.h"

#define STORED_MAX 512
#define PEFT_PREFIX "base_model.model."

struct stored_matrix {
    char name[160];
    uint32_t rows, columns; /* rows 0: a vector */
    float *values;
};

struct stored_file {
    struct stored_matrix items[STORED_MAX];
    size_t count;
};

struct adapter_spec {
    uint64_t seed;
    uint32_t rank;
    double alpha;
    int rslora;          /* bool */
    const char *dtype;   /* "F32", "F16", "BF16" */
    const char *targets; /* JSON of target_modules; every matrix whose name ends in a listed
                            module, or all where it is a pattern or "all-linear" */
    const char *only;    /* NULL, or modules with this in their names */
    const char *pattern; /* NULL, or a module of rank `pattern_rank` and 2 * alpha */
    uint32_t pattern_rank;
};

static inline size_t stored_values(const struct stored_matrix *m)
{
    return (size_t)(m->rows == 0 ? 1 : m->rows) * m->columns;
}

static inline void stored_fail(const char *what)
{
    (void)fprintf(stderr, "adapter_files.h: %s: %s\n", what, strerror(errno));
    abort();
}

/* F32 only: what the tiny models are stored in. */
static inline void stored_read(const char *path, struct stored_file *ret)
{
    FILE *in = fopen(path, "rb");
    uint64_t length = 0;
    const char *name;
    json_t *entry;
    memset(ret, 0, sizeof(*ret));
    if (in == NULL || fread(&length, 8, 1, in) != 1)
        stored_fail(path);
    char *text = malloc(length);
    if (fread(text, 1, length, in) != length)
        stored_fail(path);
    json_t *header = json_loadb(text, length, 0, NULL);
    json_object_foreach(header, name, entry)
    {
        const json_t *shape = json_object_get(entry, "shape");
        struct stored_matrix *m = &ret->items[ret->count];
        if (strcmp(name, "__metadata__") == 0)
            continue;
        if (strcmp(json_string_value(json_object_get(entry, "dtype")), "F32") != 0 ||
            ret->count == STORED_MAX)
            stored_fail(name);
        (void)snprintf(m->name, sizeof(m->name), "%s", name);
        m->rows = json_array_size(shape) == 2
                      ? (uint32_t)json_integer_value(json_array_get(shape, 0))
                      : 0;
        m->columns =
            (uint32_t)json_integer_value(json_array_get(shape, json_array_size(shape) - 1));
        long at =
            (long)json_integer_value(json_array_get(json_object_get(entry, "data_offsets"), 0));
        m->values = calloc(stored_values(m), sizeof(float));
        if (fseek(in, (long)(8 + length) + at, SEEK_SET) < 0 ||
            fread(m->values, sizeof(float), stored_values(m), in) != stored_values(m))
            stored_fail(path);
        ret->count++;
    }
    json_decref(header);
    free(text);
    (void)fclose(in);
}

static inline void stored_free(struct stored_file *file)
{
    for (size_t i = 0; i < file->count; i++)
        free(file->items[i].values);
    file->count = 0;
}

/* A value as it comes back from `dtype`, and its bits in `to`. */
static inline float stored_round(const char *dtype, float value, uint8_t *to)
{
    if (strcmp(dtype, "F32") == 0) {
        memcpy(to, &value, 4);
        return value;
    }
    if (strcmp(dtype, "F16") == 0) {
        uint16_t half = f32_to_f16(value);
        memcpy(to, &half, 2);
        return f16_to_f32(half);
    }
    uint32_t bits;
    memcpy(&bits, &value, 4);
    bits &= 0xffff0000u;
    memcpy(&value, &bits, 4);
    uint16_t high = (uint16_t)(bits >> 16);
    memcpy(to, &high, 2);
    return value;
}

/* Values become what the file holds. */
static inline void stored_write(const char *path, struct stored_file *file, const char *dtype)
{
    size_t value_bytes = strcmp(dtype, "F32") == 0 ? 4 : 2;
    json_t *header = json_object();
    json_int_t at = 0;
    FILE *out = fopen(path, "wb");
    if (out == NULL)
        stored_fail(path);
    for (size_t i = 0; i < file->count; i++) {
        const struct stored_matrix *m = &file->items[i];
        json_int_t end = at + (json_int_t)(stored_values(m) * value_bytes);
        json_t *shape = m->rows > 0
                            ? json_pack("[I,I]", (json_int_t)m->rows, (json_int_t)m->columns)
                            : json_pack("[I]", (json_int_t)m->columns);
        (void)json_object_set_new(header, m->name,
                                  json_pack("{s:s,s:o,s:[I,I]}", "dtype", dtype, "shape", shape,
                                            "data_offsets", at, end));
        at = end;
    }
    char *text = json_dumps(header, JSON_COMPACT);
    uint64_t length = strlen(text);
    (void)fwrite(&length, 8, 1, out);
    (void)fwrite(text, 1, length, out);
    for (size_t i = 0; i < file->count; i++) {
        struct stored_matrix *m = &file->items[i];
        for (size_t k = 0; k < stored_values(m); k++) {
            uint8_t bits[4];
            m->values[k] = stored_round(dtype, m->values[k], bits);
            (void)fwrite(bits, value_bytes, 1, out);
        }
    }
    if (fclose(out) != 0)
        stored_fail(path);
    free(text);
    json_decref(header);
}

static inline float adapter_random(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (float)((double)(*seed >> 33) / 2147483648.0 - 0.5) * 0.3f;
}

/* "model.layers.0.self_attn.q_proj" of a base tensor; false: adapters of it are not made here. */
static inline int adapter_module_of(const struct adapter_spec *spec, const struct stored_matrix *m,
                                    char *ret_module, size_t bytes)
{
    static const char *const ends[] = {"q_proj",    "k_proj",   "v_proj",
                                       "o_proj",    "up_proj",  "gate_proj",
                                       "down_proj", "qkv_proj", "gate_up_proj"};
    const char *end = strstr(m->name, ".weight");
    char quoted[64];
    if (m->rows == 0 || end == NULL || strstr(m->name, ".experts.") != NULL ||
        strstr(m->name, "shared_expert") != NULL)
        return 0;
    (void)snprintf(ret_module, bytes, "%.*s", (int)(end - m->name), m->name);
    const char *last = strrchr(ret_module, '.') != NULL ? strrchr(ret_module, '.') + 1 : ret_module;
    if (spec->only != NULL && strstr(ret_module, spec->only) == NULL)
        return 0;
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        (void)snprintf(quoted, sizeof(quoted), "\"%s\"", ends[i]);
        if (strcmp(last, ends[i]) == 0)
            return spec->targets[0] != '[' || strstr(spec->targets, quoted) != NULL;
    }
    return 0;
}

static inline int adapter_is_other(const struct adapter_spec *spec, const char *module)
{
    return spec->pattern != NULL && strstr(module, spec->pattern) != NULL;
}

static inline void adapter_write_config(const char *folder, const struct adapter_spec *spec)
{
    char path[512];
    (void)snprintf(path, sizeof(path), "%s/adapter_config.json", folder);
    FILE *out = fopen(path, "w");
    if (out == NULL)
        stored_fail(path);
    (void)fprintf(out,
                  "{\"peft_type\": \"LORA\", \"task_type\": \"CAUSAL_LM\", \"bias\": \"none\", "
                  "\"use_dora\": false, \"modules_to_save\": null, \"fan_in_fan_out\": false, "
                  "\"init_lora_weights\": true, \"lora_dropout\": 0.05, \"r\": %u, "
                  "\"lora_alpha\": %g, \"use_rslora\": %s, \"target_modules\": %s",
                  spec->rank, spec->alpha, spec->rslora ? "true" : "false", spec->targets);
    if (spec->pattern != NULL)
        (void)fprintf(out, ", \"rank_pattern\": {\"%s\": %u}, \"alpha_pattern\": {\"%s\": %g}",
                      spec->pattern, spec->pattern_rank, spec->pattern, 2 * spec->alpha);
    (void)fprintf(out, "}\n");
    if (fclose(out) != 0)
        stored_fail(path);
}

/* A folder with a random adapter for the matrices of `base`; the adapter as it was stored. */
static inline void adapter_write(const char *folder, const struct adapter_spec *spec,
                                 const struct stored_file *base, struct stored_file *ret_adapter)
{
    char path[512], module[160];
    uint64_t seed = spec->seed;
    memset(ret_adapter, 0, sizeof(*ret_adapter));
    for (size_t i = 0; i < base->count; i++) {
        const struct stored_matrix *m = &base->items[i];
        if (!adapter_module_of(spec, m, module, sizeof(module)))
            continue;
        uint32_t rank = adapter_is_other(spec, module) ? spec->pattern_rank : spec->rank;
        for (int b = 0; b < 2; b++) {
            struct stored_matrix *to = &ret_adapter->items[ret_adapter->count++];
            (void)snprintf(to->name, sizeof(to->name), PEFT_PREFIX "%.120s.lora_%c.weight", module,
                           b ? 'B' : 'A');
            to->rows = b ? m->rows : rank;
            to->columns = b ? rank : m->columns;
            to->values = calloc(stored_values(to), sizeof(float));
            for (size_t k = 0; k < stored_values(to); k++)
                to->values[k] = adapter_random(&seed);
        }
    }
    if (mkdir(folder, 0700) < 0 && errno != EEXIST)
        stored_fail(folder);
    adapter_write_config(folder, spec);
    (void)snprintf(path, sizeof(path), "%s/adapter_model.safetensors", folder);
    stored_write(path, ret_adapter, spec->dtype);
}

/* base += factor * B A, as peft's merge does it. */
static inline void adapter_merge(struct stored_file *base, const struct adapter_spec *spec,
                                 const struct stored_file *adapter)
{
    char module[160];
    size_t next = 0;
    for (size_t i = 0; i < base->count; i++) {
        struct stored_matrix *m = &base->items[i];
        if (!adapter_module_of(spec, m, module, sizeof(module)))
            continue;
        const struct stored_matrix *a = &adapter->items[next], *b = &adapter->items[next + 1];
        double alpha = adapter_is_other(spec, module) ? 2 * spec->alpha : spec->alpha;
        double factor = spec->rslora ? alpha / sqrt(a->rows) : alpha / a->rows;
        next += 2;
        for (uint32_t n = 0; n < m->rows; n++) {
            for (uint32_t k = 0; k < m->columns; k++) {
                double sum = 0;
                for (uint32_t j = 0; j < a->rows; j++)
                    sum +=
                        (double)b->values[n * a->rows + j] * (double)a->values[j * m->columns + k];
                m->values[(size_t)n * m->columns + k] += (float)(factor * sum);
            }
        }
    }
}

static inline void adapter_remove(const char *folder)
{
    static const char *const names[] = {"adapter_config.json", "adapter_model.safetensors"};
    char path[512];
    for (int i = 0; i < 2; i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        (void)unlink(path);
    }
    (void)rmdir(folder);
}

#endif
