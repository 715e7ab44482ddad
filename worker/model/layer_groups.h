/* layer_groups.h - layers by what they see of a sequence: two groups at most, each with KV blocks
 * of its own (worker/kv/window_blocks.h). Pure. */
#ifndef REFRAIN_WORKER_MODEL_LAYER_GROUPS_H
#define REFRAIN_WORKER_MODEL_LAYER_GROUPS_H

#include "worker/load/model_config.h"

struct layer_groups {
    uint32_t full_layers;   /* see everything */
    uint32_t window_layers; /* see `window` tokens */
    uint32_t window;        /* 0: there are none */
};

/* whole_windows: windows are masks only, every layer keeps all of its KV. So they are in any case
 * where the window is no shorter than the model's context. */
struct layer_groups layer_groups_of(const struct model_config *config, bool whole_windows);

#endif
