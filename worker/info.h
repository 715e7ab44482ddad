/* info.h - what is fixed once a worker is loaded: read by its io thread, its admin socket, Hello.
 *
 * Filled by main before the threads that read it start; constant afterwards. */
#ifndef REFRAIN_WORKER_INFO_H
#define REFRAIN_WORKER_INFO_H

#include <sys/types.h>

#include "proto/model_card.h"
#include "worker/engine/rank_model.h"
#include "worker/pool_plan.h"
#include "worker/settings.h"

struct worker_info {
    const struct worker_settings *settings;
    const struct rank_model *model; /* loaded: only its constants are read */
    const struct model_card *card;  /* NULL on ranks > 0 */
    void *card_packed;
    size_t card_packed_bytes;
    char uuid[33];
    uint64_t epoch;
    uint64_t started_ms;
    uint32_t rank;
    pid_t pids[TP_RANKS_MAX];
    struct pool_plan pool;
    uint32_t step_tokens_max;               /* --max-num-batched-tokens, whole blocks */
    size_t block_bytes, window_block_bytes; /* KV bytes of a block on this rank */
    char data_endpoint[WORKER_PATH_MAX + 8];
    char admin_path[WORKER_PATH_MAX];
    char disk_path[WORKER_DISK_PATH_MAX]; /* of the group; "": no disk tier */
};

/* Blocks of KV memory: window blocks where every layer slides. */
static inline uint32_t worker_info_blocks(const struct worker_info *info)
{
    return info->model->groups.full_layers > 0 ? info->pool.blocks : info->pool.window_blocks;
}

static inline uint64_t worker_info_kv_bytes(const struct worker_info *info)
{
    return (uint64_t)info->pool.blocks * info->block_bytes +
           (uint64_t)info->pool.window_blocks * info->window_block_bytes;
}

/* What this rank loads within. Settings, sizes, model and disk_path stand already, and on rank 0
 * with a disk tier the card: files bear its fingerprint, which other ranks have from the group. The
 * limits point into *info. */
struct rank_limits worker_info_limits(const struct worker_info *info);

/* Slots of adapters that this process touches: its own; rank 0 fills those of all ranks, in memory
 * that they share. */
uint64_t worker_info_adapter_bytes(const struct worker_info *info);
/* What this rank's process may come to; worked out in info.c. Call it when the model is loaded. */
uint64_t worker_info_bytes_max(const struct worker_info *info);

#endif
