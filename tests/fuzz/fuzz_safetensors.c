/* fuzz_safetensors.c - any bytes as a model folder: config.json up to the first NUL, then the
 * weights' file. Open, numbers, weights on the reference backend; nothing may be read past the end
 * of the file. */
#include <stdlib.h>
#include <string.h>

#include "kernels/backend.h"
#include "proto/base/assert.h"
#include "worker/load/weights.h"
#include "worker/tp/shard.h"

#define WORK_MAX (1u << 18) /* values of a model that is loaded whole */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void read_tensors(const struct safetensors *file)
{
    volatile uint8_t sum = 0;
    for (size_t i = 0; i < safetensors_count(file); i++) {
        const struct safetensor *tensor = safetensors_at(file, i);
        const uint8_t *values = tensor->data;
        ASSERT(safetensors_find(file, tensor->name) == tensor);
        if (tensor->bytes > 0)
            sum = (uint8_t)(sum + values[0] + values[tensor->bytes - 1]);
    }
}

static bool is_small(const struct model_config *c)
{
    return (uint64_t)c->layers * c->hidden < WORK_MAX && (uint64_t)c->layers * c->ffn < WORK_MAX &&
           (uint64_t)c->layers * c->q_heads * c->head_dim < WORK_MAX;
}

static void load_weights(const struct model_source *source, const struct model_config *config)
{
    const struct backend_settings settings = {.name = "ref", .threads = 1};
    struct backend *backend = NULL;
    struct weights *weights = NULL;
    struct shard shard;
    struct errmsg err = {""};
    int r = backend_open(&settings, &backend, &err);
    ASSERT(r == 0);
    for (uint32_t rank = 0; rank < 3; rank += 2) { /* the whole, and the third of three */
        if (shard_compute(config, rank, rank + 1, &shard, &err) < 0)
            continue;
        const struct weights_slice slice = shard_slice(&shard);
        if (weights_load(source, config, &slice, backend, &weights, &err) == 0)
            weights_free(weights, config, backend);
    }
    backend_close(backend);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const uint8_t *end = memchr(data, '\0', bytes);
    size_t config_bytes = end == NULL ? 0 : (size_t)(end - data);
    size_t file_bytes = end == NULL ? bytes : bytes - config_bytes - 1;
    struct safetensors *file = NULL;
    struct model_config config;
    struct errmsg err = {""};
    json_t *object = NULL;
    void *copy = malloc(file_bytes + 1); /* its own block: a read past it is seen */
    if (copy == NULL)
        return 0;
    memcpy(copy, data + bytes - file_bytes, file_bytes);
    if (safetensors_open_memory(copy, file_bytes, &file, &err) == 0) {
        read_tensors(file);
        if (json_parse((const char *)data, config_bytes, 1 << 20, &object, &err) < 0)
            object = json_object();
        struct model_source *source = model_source_of_safetensors(object, file);
        if (model_config_read(source, &config, &err) == 0 && is_small(&config))
            load_weights(source, &config);
        model_source_close(source);
    }
    free(copy);
    return 0;
}
