/* rank_model.h - what one rank has loaded: its shard of the model and everything to run it.
 *
 * Opened in two parts: numbers first (fast; rank 0 sizes the pool and starts the other ranks from
 * them), weights and KV pool after. Thread: one; rank 0 opens in main and loads in the engine. */
#ifndef REFRAIN_WORKER_ENGINE_RANK_MODEL_H
#define REFRAIN_WORKER_ENGINE_RANK_MODEL_H

#include "kernels/backend.h"
#include "worker/load/model_config.h"
#include "worker/load/model_source.h"
#include "worker/load/weights.h"
#include "worker/model/decoder.h"
#include "worker/tier/tier.h"
#include "worker/tier/tier_io.h"
#include "worker/tier/tier_slots.h"
#include "worker/tp/comm.h"
#include "worker/tp/group.h"
#include "worker/tp/shard.h"
#include "worker/tp/step_ring.h"

struct rank_model {
    struct model_source *source;
    struct model_config config;
    struct layer_groups groups;
    struct shard shard;
    struct backend *backend;
    struct weights *weights; /* these from rank_model_load on */
    struct comm *comm;
    struct lora *lora; /* NULL: no adapters are served */
    struct decoder *decoder;
    struct tier_slots tier_slots;              /* the disk tier's buffers, then host slots */
    struct tier_io *tier_io;                   /* NULL: no disk tier */
    uint32_t tier_done[GROUP_TIER_TOKENS_MAX]; /* its words, where there is no group */
    uint64_t tier_ns;                          /* that the tier ops of the last step took */
};

struct rank_model_settings {
    const char *path; /* a GGUF file, or a Hugging Face folder */
    uint32_t rank, ranks;
    struct backend_settings backend;
    bool whole_windows; /* layers that slide keep all of their KV: one group of layers */
};

/* 0; the loader's or the backend's error. */
int rank_model_open(const struct rank_model_settings *settings, struct rank_model **ret_model,
                    struct errmsg *err);

/* The disk tier of one rank. */
struct disk_limits {
    const char *path;        /* of the group: DIR/worker-GROUP; NULL: no disk tier */
    uint64_t size_bytes;     /* of its files */
    uint64_t buffer_bytes;   /* of blocks on their way */
    const char *fingerprint; /* NULL: the group's tag */
};

struct rank_limits {
    uint32_t rows_max, sequences_max, context_tokens_max, kv_blocks;
    uint32_t rank_timeout_ms;
    uint64_t host_tier_bytes; /* per rank */
    uint32_t window_blocks;   /* of the layers that slide; kv_blocks are of the others */
    struct disk_limits disk;
    struct lora_limits lora; /* slots 0: none */
};

/* group: NULL with one rank; outlives the model. */
int rank_model_load(struct rank_model *model, const struct rank_limits *limits, struct group *group,
                    struct errmsg *err);
void rank_model_close(struct rank_model *model); /* NULL is fine */

/* KV bytes of a block, and of a window block, on the rank that holds the most KV heads. 0: there
 * are no such layers. */
size_t rank_model_block_bytes(const struct rank_model *model);
size_t rank_model_window_block_bytes(const struct rank_model *model);
/* Of this rank. */
size_t rank_model_own_block_bytes(const struct rank_model *model);
size_t rank_model_own_window_block_bytes(const struct rank_model *model);
/* The tiers that these limits ask for. */
struct tier_settings rank_model_tiers(const struct rank_model *model,
                                      const struct rank_limits *limits);
/* 0; -EINVAL: the disk tier's size or buffers are too small for blocks of this model. */
int rank_model_check_disk(const struct rank_model *model, const struct rank_limits *limits,
                          struct errmsg *err);
/* Whose the files of this rank are. */
struct tier_identity rank_model_tier_identity(const struct rank_model *model,
                                              const struct rank_limits *limits,
                                              const struct group *group);
/* What the group's shared memory must hold under these limits. */
struct group_limits rank_model_group_limits(const struct rank_model *model,
                                            const struct rank_limits *limits);
/* Tier ops, copies, then the forward pass of one step. ret_logits: rank 0's, else NULL. */
int rank_model_forward(struct rank_model *model, const struct step_descriptor *descriptor,
                       float *ret_logits);
/* Of all ranks together: what the slots of adapters take. */
uint64_t rank_model_adapter_bytes(const struct rank_model *model, struct lora_limits limits);

#endif
