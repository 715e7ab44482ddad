/* rank_model.c - the loading order of a rank, and its undoing.
 *
 *   source -> config -> shard -> backend || weights -> communicator -> decoder (with the KV pool)
 */
#include "worker/engine/rank_model.h"

#include <errno.h>
#include <unistd.h>

#include "proto/base/assert.h"
#include "proto/base/clock.h"
#include "proto/base/mem.h"
#include "worker/sched/scheduler.h"
#include "worker/tier/tier_folder.h"

int rank_model_open(const struct rank_model_settings *settings, struct rank_model **ret_model,
                    struct errmsg *err)
{
    struct rank_model *model = mem_zalloc(sizeof(*model));
    int r = model_source_open(settings->path, &model->source, err);
    if (r == 0)
        r = model_config_read(model->source, &model->config, err);
    if (r == 0)
        model->groups = layer_groups_of(&model->config, settings->whole_windows);
    if (r == 0)
        r = shard_compute(&model->config, settings->rank, settings->ranks, &model->shard, err);
    if (r == 0)
        r = backend_open(&settings->backend, &model->backend, err);
    if (r < 0) {
        rank_model_close(model);
        return r;
    }
    *ret_model = model;
    return 0;
}

static size_t own_bytes(const struct rank_model *model, uint32_t layers)
{
    return op_kv_block_bytes(model->backend, layers, model->shard.kv_count, model->config.head_dim);
}

size_t rank_model_own_block_bytes(const struct rank_model *model)
{
    return own_bytes(model, model->groups.full_layers);
}

size_t rank_model_own_window_block_bytes(const struct rank_model *model)
{
    return own_bytes(model, model->groups.window_layers);
}

struct tier_identity rank_model_tier_identity(const struct rank_model *model,
                                              const struct rank_limits *limits,
                                              const struct group *group)
{
    const char *fingerprint = limits->disk.fingerprint;

    if (fingerprint == NULL)
        fingerprint = group != NULL ? group_tag(group) : "";
    return tier_identity_make(fingerprint, model->backend->kv_format, model->shard.rank,
                              model->shard.ranks, rank_model_own_block_bytes(model));
}

/* Memory of host slots and buffers, and the disk's thread. */
static int open_tiers(struct rank_model *model, const struct rank_limits *limits,
                      struct group *group, struct errmsg *err)
{
    const struct tier_settings tiers = rank_model_tiers(model, limits);
    const size_t block_bytes = rank_model_own_block_bytes(model);
    struct tier_io_settings io = {.folder = -1, .fs = &tier_fs_system};
    int r = tier_slots_init(&model->tier_slots, tiers.host_slots + tiers.disk.buffers, block_bytes,
                            err);

    if (r < 0 || tiers.disk.nodes_max == 0)
        return r;
    io.identity = rank_model_tier_identity(model, limits, group);
    io.buffers_count = tiers.disk.buffers;
    io.buffers = model->tier_slots.bytes; /* host slots come behind */
    io.done = group != NULL ? group_tier_done(group, model->shard.rank) : model->tier_done;
    r = tier_folder_open(limits->disk.path, model->shard.rank, &io.folder, err);
    if (r == 0)
        r = tier_io_new(&io, &model->tier_io, err);
    if (r < 0 && io.folder >= 0)
        (void)close(io.folder);
    return r;
}

int rank_model_load(struct rank_model *model, const struct rank_limits *limits, struct group *group,
                    struct errmsg *err)
{
    const struct shard *shard = &model->shard;
    const struct weights_slice slice = shard_slice(shard);
    ASSERT((group != NULL) == (shard->ranks > 1));
    int r =
        weights_load(model->source, &model->config, &slice, model->backend, &model->weights, err);
    if (r < 0)
        return r;
    model->comm = group != NULL ? comm_shm_new(group) : comm_single_new();
    model->comm->deadline_ms = limits->rank_timeout_ms;
    if (limits->lora.slots > 0)
        r = lora_new(&model->config, shard, &limits->lora,
                     group != NULL ? group_adapters(group, shard->rank) : NULL, &model->lora, err);
    if (r < 0)
        return r;
    const struct decoder_settings decoder = {.config = &model->config,
                                             .shard = shard,
                                             .weights = model->weights,
                                             .backend = model->backend,
                                             .comm = model->comm,
                                             .lora = model->lora,
                                             .rows_max = limits->rows_max,
                                             .outputs_max = limits->sequences_max + SCORED_ROWS_MAX,
                                             .positions_max = limits->context_tokens_max,
                                             .kv_blocks = limits->kv_blocks,
                                             .window_blocks = limits->window_blocks,
                                             .groups = model->groups};
    r = decoder_new(&decoder, &model->decoder, err);
    if (r == 0)
        r = open_tiers(model, limits, group, err);
    if (r == 0 && group != NULL)
        group_set_bytes(group, model->weights->bytes,
                        (uint64_t)limits->kv_blocks * rank_model_own_block_bytes(model) +
                            (uint64_t)limits->window_blocks *
                                rank_model_own_window_block_bytes(model));
    return r;
}

void rank_model_close(struct rank_model *model)
{
    if (model == NULL)
        return;
    if (tier_io_free(model->tier_io) == 0) /* else its thread is stuck in our buffers */
        tier_slots_done(&model->tier_slots);
    if (model->decoder != NULL)
        decoder_free(model->decoder);
    lora_free(model->lora);
    if (model->comm != NULL)
        comm_free(model->comm);
    if (model->weights != NULL)
        weights_free(model->weights, &model->config, model->backend);
    backend_close(model->backend);
    model_source_close(model->source);
    mem_free(model);
}

static size_t most_bytes(const struct rank_model *model, uint32_t layers)
{
    return op_kv_block_bytes(model->backend, layers,
                             shard_kv_heads_max(&model->config, model->shard.ranks),
                             model->config.head_dim);
}

size_t rank_model_block_bytes(const struct rank_model *model)
{
    return most_bytes(model, model->groups.full_layers);
}

size_t rank_model_window_block_bytes(const struct rank_model *model)
{
    return most_bytes(model, model->groups.window_layers);
}

/* What a file takes of the disk: whole pages. */
static uint64_t file_bytes(size_t block_bytes)
{
    return (TIER_FILE_HEADER_BYTES + (uint64_t)block_bytes + 4095) / 4096 * 4096;
}

static uint32_t table_max(const struct rank_limits *limits)
{
    return (limits->context_tokens_max + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
}

struct tier_settings rank_model_tiers(const struct rank_model *model,
                                      const struct rank_limits *limits)
{
    struct tier_settings tiers = {.sequence_blocks = table_max(limits)};

    if (limits->host_tier_bytes == 0 && limits->disk.path == NULL)
        return tiers;
    const size_t block_bytes = rank_model_block_bytes(model);
    if (limits->host_tier_bytes > 0)
        tiers.host_slots = tier_slots_within(limits->host_tier_bytes, block_bytes);
    if (limits->disk.path == NULL)
        return tiers;
    uint64_t buffers = limits->disk.buffer_bytes / block_bytes;
    uint64_t files = limits->disk.size_bytes / file_bytes(block_bytes);
    tiers.disk = (struct tier_disk_settings){
        .nodes_max = files > TIER_NODES_MAX ? TIER_NODES_MAX
                     : files > 1            ? (uint32_t)files - 1
                                            : 0,
        .buffers = buffers > TIER_DISK_BUFFERS_MAX ? TIER_DISK_BUFFERS_MAX : (uint32_t)buffers,
        .pool_blocks = limits->kv_blocks,
        .ranks = model->shard.ranks,
    };
    return tiers;
}

int rank_model_check_disk(const struct rank_model *model, const struct rank_limits *limits,
                          struct errmsg *err)
{
    if (limits->disk.path == NULL)
        return 0;
    const struct tier_settings tiers = rank_model_tiers(model, limits);
    const size_t block_bytes = rank_model_block_bytes(model);
    if (tiers.disk.nodes_max < TIER_DISK_BUFFERS_MIN)
        return errmsg_set(err, -EINVAL,
                          "--disk-tier-size: a block of this model is a file of %llu bytes, and %u "
                          "of them are the least",
                          (unsigned long long)file_bytes(block_bytes), TIER_DISK_BUFFERS_MIN + 1);
    if (tiers.disk.buffers < TIER_DISK_BUFFERS_MIN)
        return errmsg_set(err, -EINVAL,
                          "--disk-tier-buffer: a block of this model has %zu bytes, and %u of them "
                          "are the least",
                          block_bytes, TIER_DISK_BUFFERS_MIN);
    return 0;
}

/* Of the rank that needs the most. */
static size_t adapter_bytes_max(const struct rank_model *model, const struct lora_limits *limits)
{
    size_t bytes_max = 0;
    for (uint32_t rank = 0; rank < model->shard.ranks && limits->slots > 0; rank++) {
        struct shard shard;
        int r = shard_compute(&model->config, rank, model->shard.ranks, &shard, NULL);
        ASSERT(r == 0);
        size_t bytes = lora_bytes(&model->config, &shard, limits);
        bytes_max = bytes > bytes_max ? bytes : bytes_max;
    }
    return bytes_max;
}

uint64_t rank_model_adapter_bytes(const struct rank_model *model, struct lora_limits limits)
{
    return (uint64_t)model->shard.ranks * adapter_bytes_max(model, &limits);
}

struct group_limits rank_model_group_limits(const struct rank_model *model,
                                            const struct rank_limits *limits)
{
    const struct tier_settings tiers = rank_model_tiers(model, limits);
    const struct step_sizes sizes = {.rows = limits->rows_max,
                                     .sequences = limits->sequences_max,
                                     .table = table_max(limits),
                                     .copies = 2 * limits->sequences_max,
                                     .tables = model->groups.window_layers > 0 ? 2 : 1,
                                     .tier_ops = tier_ops_max(&tiers),
                                     .disk_ops = tier_disk_ops_max(&tiers.disk)};
    return (struct group_limits){
        .ranks = model->shard.ranks,
        .step_bytes_max = step_ring_bytes_max(&sizes),
        .reduce_floats_max = (size_t)limits->rows_max * model->config.hidden,
        .ids_max = model->config.vocab_size,
        .blocks_max = model->groups.full_layers > 0 ? limits->kv_blocks : 0,
        .window_tokens = model->groups.window,
        .window_blocks_max = model->groups.window_layers > 0 ? limits->window_blocks : 0,
        .tier_slots = tiers.host_slots + tiers.disk.buffers,
        .tier_buffers = tiers.disk.buffers,
        .tag = limits->disk.fingerprint,
        .kv_format = model->backend->kv_format,
        .adapter_slots = limits->lora.slots,
        .adapter_bytes = adapter_bytes_max(model, &limits->lora),
        .step_deadline_ms = limits->rank_timeout_ms,
    };
}

static void apply_tier_ops(struct rank_model *model, const struct step_descriptor *descriptor)
{
    uint64_t start_ns = clock_ns();

    model->tier_ns = 0;
    if (descriptor->tier_ops_count > 0) {
        tier_slots_apply(&model->tier_slots, model->backend, decoder_kv(model->decoder),
                         descriptor->tier_ops, descriptor->tier_ops_count);
        model->tier_ns = clock_ns() - start_ns;
    }
    if (model->tier_io != NULL) /* after the copies: what they read or fill is a file's now */
        tier_io_submit(model->tier_io, descriptor->disk_ops, descriptor->disk_ops_count);
}

int rank_model_forward(struct rank_model *model, const struct step_descriptor *descriptor,
                       float *ret_logits)
{
    apply_tier_ops(model, descriptor);
    for (uint32_t i = 0; i < descriptor->copies_count; i++) {
        const struct step_copy *copy = &descriptor->copies[i];
        if (copy->window != 0)
            decoder_copy_window_block(model->decoder, copy->from, copy->to, copy->tokens);
        else
            decoder_copy_block(model->decoder, copy->from, copy->to, copy->tokens);
    }
    return decoder_forward(model->decoder, &descriptor->step, ret_logits);
}
