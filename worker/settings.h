/* settings.h - the flags of refrain-worker (vLLM's names where it has one) and what is checked
 * before anything is opened. Thread: at start; read-only afterwards. */
#ifndef REFRAIN_WORKER_SETTINGS_H
#define REFRAIN_WORKER_SETTINGS_H

#include "kernels/backend.h"
#include "proto/base/log.h"
#include "proto/base/settings.h"
#include "worker/lora/lora.h"

#define WORKER_GROUP_MAX 999u
#define WORKER_ENDPOINTS_MAX 8u
#define WORKER_PATH_MAX 108u /* sun_path */

enum worker_backend { WORKER_BACKEND_CPU = 0, WORKER_BACKEND_REF };
enum worker_kv_dtype { WORKER_KV_AUTO = 0, WORKER_KV_BFLOAT16, WORKER_KV_INT8 };

struct worker_settings {
    char *model, *served_model_name;
    char *run_dir; /* never NULL after worker_settings_parse */
    char *router_endpoints, *data_endpoint, *kv_events_config;
    char *isa;
    char *generation_config, *generation_overrides; /* see struct sampling_rule */
    char *check, *ids;                              /* --check MODEL --ids FILE */
    int backend;                                    /* enum worker_backend */
    int kv_dtype;                                   /* enum worker_kv_dtype */
    int log_level;                                  /* enum log_level */
    int eviction;                                   /* index into eviction_policies */
    char *lora_modules;                             /* NAME=PATH,... */
    uint32_t ranks, group;
    uint32_t context_tokens; /* 0: the model's */
    uint32_t sequences_max, step_tokens_max, step_ms_max, waiting_max;
    uint32_t block_tokens;
    uint32_t loras_max, lora_rank_max;
    uint32_t threads; /* 0: CPUs / ranks */
    uint32_t chunk;
    uint32_t rank_timeout_ms, step_timeout_ms;
    uint64_t kv_bytes, grammar_bytes;
    uint64_t host_tier_bytes; /* 0: no host tier */
    char *disk_tier_path;     /* NULL: no disk tier */
    uint64_t disk_tier_bytes, disk_buffer_bytes;
    uint32_t disk_wait_ms;
    bool prefix_caching, insecure_tcp, reference, lora;
    bool whole_windows;
};

/* Tiers keep whole blocks: with one on, a layer that slides keeps all of its KV. */
static inline bool worker_whole_windows(const struct worker_settings *settings)
{
    return settings->whole_windows || settings->host_tier_bytes > 0 ||
           settings->disk_tier_path != NULL;
}

extern const struct settings_spec worker_settings_spec;

/* SETTINGS_RUN, SETTINGS_EXIT_OK, or a negative errno with a sentence. Values agree with each other
 * and defaults that depend on the machine are filled in. */
int worker_settings_parse(struct worker_settings *ret_settings, int argc, char **argv,
                          struct errmsg *err);
void worker_settings_done(struct worker_settings *settings);
/* Memory of the tiers: host slots, and the disk's buffers; per process of the group. */
uint64_t worker_settings_tier_bytes(const struct worker_settings *settings);

struct backend_settings worker_backend_settings(const struct worker_settings *settings);
/* --kv-cache-dtype as it was given. */
const char *worker_kv_dtype(const struct worker_settings *settings);

/* Slots 0: no adapters are served. */
struct lora_limits worker_lora_limits(const struct worker_settings *settings);
/* RUNDIR/worker-G.sock, RUNDIR/worker-G[-rank-R].admin.sock; fit by worker_settings_parse. */
void worker_data_path(const struct worker_settings *settings, char ret_path[WORKER_PATH_MAX]);
void worker_admin_path(const struct worker_settings *settings, uint32_t rank,
                       char ret_path[WORKER_PATH_MAX]);

/* DIR/worker-G: the folder of the group's disk tier, which there must be. */
#define WORKER_DISK_PATH_MAX 512u
void worker_disk_path(const struct worker_settings *settings, char ret_path[WORKER_DISK_PATH_MAX]);

#endif
