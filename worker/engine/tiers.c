/* tiers.c - the engine's side of slower KV memory: what goes with a step, and what is told of it.
 */
#include "proto/base/assert.h"
#include "proto/base/clock.h"
#define LOG_MODULE "engine"
#include "proto/base/log.h"
#include "proto/worker_metrics.h"
#include "worker/engine/engine_private.h"
#include "worker/tier/tier_folder.h"

#define SCAN_MS 10000u

/* A rise of a total since it was last looked at. */
static void add(struct metrics *metrics, enum worker_metric id, enum worker_metric_tier tier,
                uint64_t now, uint64_t then)
{
    ASSERT(now >= then);
    metrics_add(metrics, id, tier, (double)(now - then));
}

/* A size that the file system cannot hold is no error: what is in the way may go. But nobody should
 * learn of it weeks later, when the tier says that it is full. */
static void warn_of_size(const struct engine *engine, uint32_t kept)
{
    const struct disk_limits *disk = &engine->settings.limits.disk;
    const uint64_t ranks = engine->settings.model->shard.ranks;
    uint64_t files_bytes = rank_model_block_bytes(engine->settings.model) + TIER_FILE_HEADER_BYTES;
    uint64_t used_bytes = kept * ranks * files_bytes, wanted_bytes = disk->size_bytes * ranks;
    uint64_t free_bytes = tier_folder_free_bytes(disk->path);

    if (free_bytes == UINT64_MAX || wanted_bytes <= used_bytes ||
        wanted_bytes - used_bytes <= free_bytes)
        return;
    log_warn("disk_tier_size",
             "path=%s size_bytes=%llu used_bytes=%llu free_bytes=%llu note=\"--disk-tier-size is "
             "more than its file system has room for\"",
             disk->path, (unsigned long long)wanted_bytes, (unsigned long long)used_bytes,
             (unsigned long long)free_bytes);
}

int engine_scan_tiers(struct engine *engine, struct errmsg *err)
{
    const struct rank_limits *limits = &engine->settings.limits;
    uint64_t start_ms = clock_ms();
    struct tier_tree *files = engine->tier != NULL ? tier_files(engine->tier) : NULL;
    struct tier_scan scan = {.path = limits->disk.path, .time_ms = SCAN_MS};

    if (files == NULL)
        return 0;
    scan.identity =
        rank_model_tier_identity(engine->settings.model, limits, engine->settings.group);
    int r = tier_folder_scan(&scan, files, err);
    if (r < 0)
        return r;
    engine->scan_refused = scan.refused;
    metrics_add(engine->settings.metrics, WM_DISK_ERRORS, WM_DISK_REFUSED, scan.refused);
    log_info("disk_tier", "state=up blocks=%u blocks_max=%u refused=%u removed=%u ms=%llu",
             scan.kept, files->nodes_max, scan.refused, scan.removed,
             (unsigned long long)(clock_ms() - start_ms));
    warn_of_size(engine, scan.kept);
    return 0;
}

void engine_tier_begin(struct engine *engine, uint64_t now_ns)
{
    if (engine->tier != NULL)
        tier_begin(engine->tier, now_ns);
}

bool engine_add_tier_ops(struct engine *engine)
{
    struct step_descriptor *descriptor = &engine->batch.descriptor;

    if (engine->tier == NULL)
        return false;
    tier_add_stores(engine->tier);
    descriptor->tier_ops = tier_ops(engine->tier, &descriptor->tier_ops_count);
    descriptor->disk_ops = tier_file_ops(engine->tier, &descriptor->disk_ops_count);
    return descriptor->tier_ops_count + descriptor->disk_ops_count > 0;
}

void engine_tier_step_done(struct engine *engine, const struct step_plan *plan)
{
    uint64_t copy_ns = engine->settings.model->tier_ns;

    if (engine->tier == NULL)
        return;
    tier_step_done(engine->tier);
    for (uint32_t i = 0; i < plan->entries_count; i++) {
        struct sequence *seq = plan->entries[i].sequence;
        if (seq->loads_in_step && seq->first_token_ns == 0)
            seq->load_copy_ns += copy_ns; /* it waited for all copies of the step */
        seq->loads_in_step = false;
    }
}

void engine_count_cached(struct engine *engine, const struct scheduler_counts *now,
                         const struct scheduler_counts *then)
{
    struct metrics *metrics = engine->settings.metrics;
    uint64_t host = now->cached_host_tokens_total - then->cached_host_tokens_total;
    uint64_t disk = now->cached_disk_tokens_total - then->cached_disk_tokens_total;
    uint64_t cached = now->cached_tokens_total - then->cached_tokens_total;

    ASSERT(host + disk <= cached);
    metrics_add(metrics, WM_CACHED_BY_TIER, WM_TIER_POOL, (double)(cached - host - disk));
    metrics_add(metrics, WM_CACHED_BY_TIER, WM_TIER_HOST, (double)host);
    metrics_add(metrics, WM_CACHED_BY_TIER, WM_TIER_DISK, (double)disk);
    metrics_add(metrics, WM_TIER_ASKED_TOKENS, 0,
                (double)(now->tier_asked_tokens_total - then->tier_asked_tokens_total));
}

static void set_pool(struct engine *engine, const struct engine_status *status)
{
    const struct block_counts *blocks = &status->blocks;
    struct metrics *metrics = engine->settings.metrics;
    double used = blocks->total - blocks->empty;

    metrics_set(metrics, WM_TIER_BLOCKS, WM_TIER_POOL, used);
    metrics_set(metrics, WM_TIER_BLOCKS_MAX, WM_TIER_POOL, blocks->total);
    metrics_set(metrics, WM_TIER_BYTES, WM_TIER_POOL,
                engine_kv_bytes(engine, blocks, &status->windows));
    metrics_set(metrics, WM_TIER_UP, WM_TIER_POOL, engine->settings.prefix_caching);
}

static void count_disk(struct metrics *metrics, size_t block_bytes, const struct tier_counts *now,
                       const struct tier_counts *then)
{
    const struct tier_disk_counts *disk = &now->disk, *before = &then->disk;

    metrics_set(metrics, WM_TIER_BLOCKS, WM_TIER_DISK, disk->used);
    metrics_set(metrics, WM_TIER_BLOCKS_MAX, WM_TIER_DISK, disk->nodes_max);
    metrics_set(metrics, WM_TIER_BYTES, WM_TIER_DISK,
                (double)disk->used * (double)(block_bytes + TIER_FILE_HEADER_BYTES));
    metrics_set(metrics, WM_TIER_UP, WM_TIER_DISK, disk->state == TIER_DISK_UP);
    metrics_set(metrics, WM_DISK_STATE, 0, disk->state);
    add(metrics, WM_TIER_HITS, WM_TIER_DISK, now->disk_hits_total, then->disk_hits_total);
    add(metrics, WM_TIER_MISSES, WM_TIER_DISK, now->disk_misses_total, then->disk_misses_total);
    add(metrics, WM_TIER_STORES, WM_TIER_DISK, disk->stores_total, before->stores_total);
    add(metrics, WM_TIER_DROPS, WM_TIER_DISK, disk->drops_total, before->drops_total);
    add(metrics, WM_TIER_LOST, WM_TIER_DISK, disk->lost_total, before->lost_total);
    for (uint32_t i = TIER_IO_GONE; i < TIER_IO_RESULTS; i++) {
        metrics_add(metrics, WM_DISK_ERRORS, i - TIER_IO_GONE,
                    (double)(disk->errors[i] - before->errors[i]));
        add(metrics, WM_TIER_ERRORS, WM_TIER_DISK, disk->errors[i], before->errors[i]);
    }
}

void engine_count_tiers(struct engine *engine, const struct engine_status *status,
                        struct tier_counts *ret_counts)
{
    struct metrics *metrics = engine->settings.metrics;
    const struct tier_counts then = engine->counted_tiers;
    struct tier_counts *now = &engine->counted_tiers;

    set_pool(engine, status);
    if (engine->tier != NULL) {
        tier_get_counts(engine->tier, now);
        metrics_set(metrics, WM_TIER_BLOCKS, WM_TIER_HOST, now->host_used);
        metrics_set(metrics, WM_TIER_BLOCKS_MAX, WM_TIER_HOST, now->host_slots);
        metrics_set(metrics, WM_TIER_BYTES, WM_TIER_HOST,
                    (double)now->host_used *
                        (double)rank_model_own_block_bytes(engine->settings.model));
        metrics_set(metrics, WM_TIER_UP, WM_TIER_HOST, now->host_slots > 0);
        add(metrics, WM_TIER_HITS, WM_TIER_HOST, now->hits_total, then.hits_total);
        add(metrics, WM_TIER_MISSES, WM_TIER_HOST, now->misses_total, then.misses_total);
        add(metrics, WM_TIER_STORES, WM_TIER_HOST, now->stores_total, then.stores_total);
        add(metrics, WM_TIER_DROPS, WM_TIER_HOST, now->drops_total, then.drops_total);
        add(metrics, WM_TIER_LOST, WM_TIER_HOST, now->lost_total, then.lost_total);
        count_disk(metrics, rank_model_own_block_bytes(engine->settings.model), now, &then);
    }
    *ret_counts = *now;
}

static void append_disk(const struct engine *engine, const struct tier_counts *tiers,
                        uint64_t cached_tokens, struct buffer *out)
{
    const struct tier_disk_counts *disk = &tiers->disk;
    uint64_t errors = 0;

    for (uint32_t i = TIER_IO_GONE; i < TIER_IO_RESULTS; i++)
        errors += disk->errors[i];
    buffer_printf(out,
                  ",\"disk\":{\"state\":\"%s\",\"blocks\":%u,\"blocks_max\":%u,"
                  "\"cached_tokens\":%llu,\"hits\":%llu,\"misses\":%llu,\"stores\":%llu,"
                  "\"loads\":%llu,\"drops\":%llu,\"lost\":%llu,\"refused\":%llu,"
                  "\"errors\":%llu,\"pending\":%u}",
                  tier_disk_state_name(disk->state), disk->used, disk->nodes_max,
                  (unsigned long long)cached_tokens, (unsigned long long)tiers->disk_hits_total,
                  (unsigned long long)tiers->disk_misses_total,
                  (unsigned long long)disk->stores_total, (unsigned long long)disk->loads_total,
                  (unsigned long long)disk->drops_total, (unsigned long long)disk->lost_total,
                  (unsigned long long)disk->errors[TIER_IO_REFUSED] + engine->scan_refused,
                  (unsigned long long)errors, disk->pending);
}

void engine_append_tiers(struct engine *engine, struct buffer *out)
{
    struct scheduler_counts counts;
    struct block_counts blocks;
    struct window_counts windows;
    struct tier_counts tiers = {0};

    scheduler_counts(engine->scheduler, &counts);
    engine_kv_counts(engine, &blocks, &windows);
    if (engine->tier != NULL)
        tier_get_counts(engine->tier, &tiers);
    buffer_printf(out,
                  "{\"block_bytes\":%zu,\"pool\":{\"blocks\":%u,\"blocks_max\":%u,"
                  "\"cached_tokens\":%llu}",
                  rank_model_own_block_bytes(engine->settings.model), blocks.total - blocks.empty,
                  blocks.total,
                  (unsigned long long)(counts.cached_tokens_total -
                                       counts.cached_host_tokens_total -
                                       counts.cached_disk_tokens_total));
    buffer_printf(out,
                  ",\"host\":{\"blocks\":%u,\"blocks_max\":%u,\"cached_tokens\":%llu,"
                  "\"hits\":%llu,\"misses\":%llu,\"stores\":%llu,\"drops\":%llu,\"lost\":%llu}",
                  tiers.host_used, tiers.host_slots,
                  (unsigned long long)counts.cached_host_tokens_total,
                  (unsigned long long)tiers.hits_total, (unsigned long long)tiers.misses_total,
                  (unsigned long long)tiers.stores_total, (unsigned long long)tiers.drops_total,
                  (unsigned long long)tiers.lost_total);
    append_disk(engine, &tiers, counts.cached_disk_tokens_total, out);
    buffer_printf(out, "}");
}
