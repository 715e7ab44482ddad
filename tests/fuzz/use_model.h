/* use_model.h - a model that a fuzzer has opened: its weights, whole and the last of three ranks,
 * on the reference backend. */
#ifndef REFRAIN_TESTS_FUZZ_USE_MODEL_H
#define REFRAIN_TESTS_FUZZ_USE_MODEL_H

#include "kernels/backend.h"
#include "proto/base/assert.h"
#include "worker/load/weights.h"
#include "worker/tp/shard.h"

#define WORK_MAX (1u << 18) /* values of a model that is loaded whole */

static inline bool model_is_small(const struct model_config *c)
{
    return (uint64_t)c->layers * c->hidden < WORK_MAX && (uint64_t)c->layers * c->ffn < WORK_MAX &&
           (uint64_t)c->layers * c->q_heads * c->head_dim < WORK_MAX;
}

static inline void model_load_weights(const struct model_source *source,
                                      const struct model_config *config)
{
    const struct backend_settings settings = {.name = "ref", .threads = 1};
    struct backend *backend = NULL;
    struct weights *weights = NULL;
    struct shard shard;
    struct errmsg err = {""};
    int r = backend_open(&settings, &backend, &err);
    ASSERT(r == 0);
    for (uint32_t rank = 0; rank < 3; rank += 2) {
        if (shard_compute(config, rank, rank + 1, &shard, &err) < 0)
            continue;
        const struct weights_slice slice = shard_slice(&shard);
        if (weights_load(source, config, &slice, backend, &weights, &err) == 0)
            weights_free(weights, config, backend);
    }
    backend_close(backend);
}

#endif
