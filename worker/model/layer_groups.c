/* layer_groups.c - counting. */
#include "worker/model/layer_groups.h"

#define WINDOW_MIN 2u /* a token that sees itself only needs no KV of others */

struct layer_groups layer_groups_of(const struct model_config *config, bool whole_windows)
{
    struct layer_groups groups = {.full_layers = config->layers};

    if (whole_windows || config->window < WINDOW_MIN || config->window >= config->context_tokens)
        return groups;
    for (uint32_t layer = 0; layer < config->layers; layer++)
        groups.window_layers += (config->layer_kinds[layer] & LAYER_SLIDING) != 0;
    groups.full_layers -= groups.window_layers;
    groups.window = groups.window_layers > 0 ? config->window : 0;
    return groups;
}
