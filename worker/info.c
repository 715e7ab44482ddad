/* info.c - the most that a process of the group may hold: what the start-up line promises.
 *
 *   weights + KV pool + host tier + adapters + work space + logits + grammars
 *           + ids and hashes of every request that may run or wait + the rest
 *
 * The rest is code, stacks, tables, buffers of sockets and what the allocator keeps; it does not
 * grow with load. Pages that nobody has touched yet are in the sum, and in no process. */
#include "worker/info.h"

#include "worker/engine/engine.h"

#define REST_BYTES ((uint64_t)64 << 20)
#define TOKEN_BYTES 6u /* of a request: its id, and hashes and bookkeeping of its blocks */

/* Slots of this rank. */
static uint64_t lora_limits_bytes(const struct worker_info *info)
{
    const struct lora_limits limits = worker_lora_limits(info->settings);
    return limits.slots > 0 ? lora_bytes(&info->model->config, &info->model->shard, &limits) : 0;
}

uint64_t worker_info_bytes_max(const struct worker_info *info)
{
    const struct worker_settings *settings = info->settings;
    const struct rank_model *model = info->model;
    uint64_t bytes =
        model->weights->bytes + worker_info_kv_bytes(info) + worker_settings_tier_bytes(settings) +
        decoder_activation_bytes(model->decoder) + lora_limits_bytes(info) + REST_BYTES;

    if (info->rank > 0)
        return bytes;
    uint64_t requests = (uint64_t)settings->waiting_max + settings->sequences_max;
    return bytes + engine_logits_bytes(settings->sequences_max, &model->config) +
           2 * settings->grammar_bytes + requests * info->pool.context_tokens * TOKEN_BYTES;
}
