/* links_report.c - what the router says of its workers: Prometheus text and status JSON. */
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/json.h"
#include "proto/vllm_metrics.h"
#include "router/worker_link.h"

#define LABELS_BYTES_MAX 4096u

/* Groups of two machines may have one number: then their endpoints tell them apart. */
static void add_endpoint(const struct worker_link *link, struct buffer *out)
{
    LIST_FOR(item, &link->links->all)
    {
        const struct worker_link *other = LIST_ENTRY(item, struct worker_link, link);
        if (other == link || other->group != link->group || !other->rank_metrics[0])
            continue;
        buffer_append_text(out, ",endpoint=\"");
        metrics_append_label(out, link->endpoint);
        buffer_append_char(out, '"');
        return;
    }
}

static void own_labels(const struct worker_link *link, uint32_t rank, struct buffer *out)
{
    buffer_clear(out);
    buffer_printf(out, "group=\"%u\",rank=\"%u\"", link->group, rank);
    add_endpoint(link, out);
    ASSERT(buffer_finish(out) == 0); /* an endpoint is bounded */
}

/* vLLM's labels: the served name and the number of the engine, which is our group. */
static void vllm_labels(const struct worker_link *link, struct buffer *out)
{
    buffer_clear(out);
    buffer_append_text(out, "model_name=\"");
    metrics_append_label(out, link->model ? link->model->card->name : "");
    buffer_printf(out, "\",engine=\"%u\"", link->group);
    add_endpoint(link, out);
    ASSERT(buffer_finish(out) == 0); /* a card's name is bounded */
}

static void write_family(const struct worker_links *links, size_t id, struct buffer *out)
{
    bool header = false;
    struct buffer labels;

    buffer_init(&labels, LABELS_BYTES_MAX);
    LIST_FOR(item, &links->all)
    {
        const struct worker_link *link = LIST_ENTRY(item, struct worker_link, link);
        for (uint32_t rank = 0; rank < link->ranks; rank++) {
            if (!link->rank_metrics[rank])
                continue;
            own_labels(link, rank, &labels);
            if (!header)
                metrics_write_header(&worker_metric_specs[id], out);
            header = true;
            metrics_write_samples(link->rank_metrics[rank], id, labels.data, out);
        }
    }
    buffer_done(&labels);
}

/* No ranks there: rank 0 schedules, so its numbers are the engine's. */
static void write_vllm_family(const struct worker_links *links, size_t id, struct buffer *out)
{
    bool header = false;
    struct buffer labels;

    buffer_init(&labels, LABELS_BYTES_MAX);
    LIST_FOR(item, &links->all)
    {
        const struct worker_link *link = LIST_ENTRY(item, struct worker_link, link);
        if (!link->vllm_metrics)
            continue;
        vllm_labels(link, &labels);
        if (!header)
            metrics_write_header(&vllm_metric_specs[id], out);
        header = true;
        metrics_write_samples(link->vllm_metrics, id, labels.data, out);
    }
    buffer_done(&labels);
}

/* A gauge of 1 whose labels are the settings; those of vLLM that have no meaning here are left
 * out. */
static void write_cache_config(const struct worker_links *links, struct buffer *out)
{
    static const struct metric_spec spec = {.name = "vllm:cache_config_info",
                                            .type = METRIC_GAUGE,
                                            .help = "Settings of the KV cache, as labels."};
    bool header = false;
    struct buffer labels;

    buffer_init(&labels, LABELS_BYTES_MAX);
    LIST_FOR(item, &links->all)
    {
        const struct worker_link *link = LIST_ENTRY(item, struct worker_link, link);
        if (!link->vllm_metrics)
            continue;
        vllm_labels(link, &labels);
        if (!header)
            metrics_write_header(&spec, out);
        header = true;
        buffer_printf(out, "%s{%s,block_size=\"%u\",cache_dtype=\"", spec.name, labels.data,
                      link->block_tokens);
        metrics_append_label(out, link->kv_cache_dtype);
        buffer_printf(out,
                      "\",num_gpu_blocks=\"%u\",num_cpu_blocks=\"0\","
                      "enable_prefix_caching=\"%s\"} 1\n",
                      link->blocks_total, link->prefix_caching ? "True" : "False");
    }
    buffer_done(&labels);
}

void links_write_metrics(const struct worker_links *links, struct buffer *out)
{
    uint32_t ready = 0;
    LIST_FOR(item, &links->all)
    {
        ready += worker_link_takes_requests(LIST_ENTRY(item, struct worker_link, link));
    }
    metrics_set(links->metrics, LM_WORKERS, 0, ready);
    metrics_set(links->metrics, LM_INFLIGHT, 0, (double)map_count(links->dispatches));
    metrics_set(links->metrics, LM_INDEX_ENTRIES, 0, (double)prefix_index_entries(links->index));
    metrics_set(links->metrics, LM_INDEX_BYTES, 0, (double)prefix_index_bytes(links->index));
    metrics_write(links->metrics, NULL, out);
    for (size_t id = 0; id < WORKER_METRICS; id++)
        write_family(links, id, out);
    for (size_t id = 0; id < VLLM_METRICS; id++)
        write_vllm_family(links, id, out);
    write_cache_config(links, out);
}

static void write_text(struct buffer *out, const char *key, const char *value)
{
    buffer_printf(out, ",\"%s\":", key);
    json_append_string(out, value ? value : "", value ? strlen(value) : 0);
}

static void write_worker(const struct worker_link *link, struct buffer *out)
{
    buffer_printf(out, "{\"group\":%u,\"state\":\"%s\",\"ready\":%s,\"draining\":%s,\"refused\":%s",
                  link->group, link_state_name(link->state),
                  worker_link_takes_requests(link) ? "true" : "false",
                  link->draining ? "true" : "false", link->refused ? "true" : "false");
    write_text(out, "uuid", link->uuid);
    write_text(out, "endpoint", link->endpoint);
    write_text(out, "version", link->version);
    write_text(out, "admin_socket", link->admin_socket);
    write_text(out, "model", link->model ? link->model->card->name : NULL);
    write_text(out, "kv_cache_dtype", link->kv_cache_dtype);
    buffer_printf(out, ",\"ranks\":%u,\"pids\":[", link->ranks);
    for (uint32_t rank = 0; rank < link->ranks; rank++)
        buffer_printf(out, "%s%d", rank ? "," : "", link->pids[rank]);
    buffer_printf(out,
                  "],\"max_model_len\":%u,\"block_tokens\":%u,\"running\":%u,\"waiting\":%u,"
                  "\"inflight\":%u,\"blocks\":{\"total\":%u,"
                  "\"referenced\":%u,\"cached\":%u,\"empty\":%u}",
                  link->context_tokens_max, link->block_tokens, link->running, link->waiting,
                  link->load.count, link->blocks_total, link->blocks_referenced,
                  link->blocks_cached, link->blocks_empty);
    buffer_printf(out,
                  ",\"queued_seconds\":%.6f,\"prefill_tokens_per_second\":%.1f,"
                  "\"step_seconds\":%.6f,\"index_blocks\":%llu,\"kv_sequence\":%llu}",
                  (double)link->load.queued_ns / 1e9,
                  link->speed.seconds_per_token > 0 ? 1 / link->speed.seconds_per_token : 0,
                  link->step_seconds,
                  (unsigned long long)prefix_index_count(link->links->index, link->slot),
                  (unsigned long long)link->kv_sequence);
}

void links_write_status(const struct worker_links *links, struct buffer *out)
{
    bool first = true;
    buffer_append_char(out, '[');
    for (uint32_t slot = 0; slot < PREFIX_INDEX_WORKERS_MAX; slot++) {
        if (!links->slots[slot])
            continue;
        if (!first)
            buffer_append_char(out, ',');
        first = false;
        write_worker(links->slots[slot], out);
    }
    buffer_append_char(out, ']');
}
