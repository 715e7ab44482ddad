/* fuzz_safetensors.c - any bytes as a model folder: config.json up to the first NUL, then the
 * weights' file. Open, numbers, weights on the reference backend; nothing may be read past the end
 * of the file. */
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/use_model.h"

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
        if (model_config_read(source, &config, &err) == 0 && model_is_small(&config))
            model_load_weights(source, &config);
        model_source_close(source);
    }
    free(copy);
    return 0;
}
