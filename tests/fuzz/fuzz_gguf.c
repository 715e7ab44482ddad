/* fuzz_gguf.c - any bytes as a model file: open, config, card, weights; nothing may be read past
 * the end. */
#include <stdlib.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/files/gguf.h"
#include "tests/fuzz/use_model.h"
#include "worker/load/card.h"
#include "worker/load/model_config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void read_tensors(const struct gguf *gguf)
{
    volatile uint8_t sum = 0;
    for (size_t i = 0; i < gguf_tensors_count(gguf); i++) {
        const struct gguf_tensor *tensor = gguf_tensor_at(gguf, i);
        const uint8_t *values = tensor->data;
        ASSERT(tensor->bytes > 0);
        sum = (uint8_t)(sum + values[0] + values[tensor->bytes - 1]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct gguf *gguf = NULL;
    struct model_config config;
    struct model_card *card = NULL;
    struct errmsg err = {""};
    void *copy = NULL;
    if (posix_memalign(&copy, 64, bytes + 1) != 0) /* as a mapping would be */
        return 0;
    memcpy(copy, data, bytes);
    if (gguf_open_memory(copy, bytes, &gguf, &err) == 0) {
        read_tensors(gguf);
        struct model_source *source = model_source_of_gguf(gguf);
        if (model_config_read(source, &config, &err) == 0) {
            if (card_from_source(source, &config, "fuzz", NULL, &card, &err) == 0)
                model_card_unref(card);
            if (model_is_small(&config))
                model_load_weights(source, &config);
        }
        model_source_close(source);
    }
    free(copy);
    return 0;
}
