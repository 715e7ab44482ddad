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

uint64_t worker_info_adapter_bytes(const struct worker_info *info)
{
    const struct lora_limits limits = worker_lora_limits(info->settings);
    if (limits.slots == 0)
        return 0;
    if (info->rank == 0)
        return rank_model_adapter_bytes(info->model, limits);
    return lora_bytes(&info->model->config, &info->model->shard, &limits);
}

struct rank_limits worker_info_limits(const struct worker_info *info)
{
    const struct worker_settings *settings = info->settings;
    struct rank_limits limits = {.rows_max = info->step_tokens_max,
                                 .sequences_max = settings->sequences_max,
                                 .context_tokens_max = info->pool.context_tokens,
                                 .kv_blocks =
                                     info->model->groups.full_layers > 0 ? info->pool.blocks : 0,
                                 .rank_timeout_ms = settings->rank_timeout_ms,
                                 .host_tier_bytes = settings->host_tier_bytes,
                                 .window_blocks = info->pool.window_blocks,
                                 .lora = worker_lora_limits(settings)};

    if (info->disk_path[0] != '\0')
        limits.disk = (struct disk_limits){.path = info->disk_path,
                                           .size_bytes = settings->disk_tier_bytes,
                                           .buffer_bytes = settings->disk_buffer_bytes,
                                           .fingerprint =
                                               info->card != NULL ? info->card->fingerprint : NULL};
    return limits;
}

uint64_t worker_info_bytes_max(const struct worker_info *info)
{
    const struct worker_settings *settings = info->settings;
    const struct rank_model *model = info->model;
    uint64_t bytes =
        model->weights->bytes + worker_info_kv_bytes(info) + worker_settings_tier_bytes(settings) +
        decoder_activation_bytes(model->decoder) + worker_info_adapter_bytes(info) + REST_BYTES;

    if (info->rank > 0)
        return bytes;
    uint64_t requests = (uint64_t)settings->waiting_max + settings->sequences_max;
    return bytes + engine_logits_bytes(settings->sequences_max, &model->config) +
           engine_samplers_bytes(model) + 2 * settings->grammar_bytes +
           requests * info->pool.context_tokens * TOKEN_BYTES;
}
