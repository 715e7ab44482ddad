/* links_report.c - what the router says of its workers: Prometheus text and status JSON. */
#include <string.h>

#include "proto/base/json.h"
#include "proto/worker_metrics.h"
#include "router/worker_link.h"

static void write_family(const struct worker_links *links, const struct metric_spec *spec,
                         size_t id, bool vllm, struct buffer *out)
{
    bool header = false;

    LIST_FOR(item, &links->all)
    {
        const struct worker_link *link = LIST_ENTRY(item, struct worker_link, link);
        for (uint32_t rank = 0; rank < link->ranks; rank++) {
            const struct metrics *metrics =
                vllm ? link->vllm_metrics[rank] : link->rank_metrics[rank];
            char labels[64];
            if (!metrics || (vllm && rank > 0)) /* vLLM has no ranks: one number per engine */
                continue;
            (void)snprintf(labels, sizeof(labels), "group=\"%u\",rank=\"%u\"", link->group, rank);
            if (!header)
                metrics_write_header(spec, out);
            header = true;
            metrics_write_samples(metrics, id, labels, out);
        }
    }
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
        write_family(links, &worker_metric_specs[id], id, false, out);
    for (size_t id = 0; id < VLLM_METRICS; id++)
        write_family(links, &vllm_metric_specs[id], id, true, out);
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
    buffer_printf(out, ",\"ranks\":%u,\"pids\":[", link->ranks);
    for (uint32_t rank = 0; rank < link->ranks; rank++)
        buffer_printf(out, "%s%d", rank ? "," : "", link->pids[rank]);
    buffer_printf(out,
                  "],\"running\":%u,\"waiting\":%u,\"inflight\":%u,\"blocks\":{\"total\":%u,"
                  "\"referenced\":%u,\"cached\":%u,\"empty\":%u}",
                  link->running, link->waiting, link->load.count, link->blocks_total,
                  link->blocks_referenced, link->blocks_cached, link->blocks_empty);
    buffer_printf(out,
                  ",\"queued_seconds\":%.6f,\"prefill_tokens_per_second\":%.1f,"
                  "\"step_seconds\":%.6f,\"index_blocks\":%llu,\"kv_sequence\":%llu}",
                  (double)link->load.queued_ns / 1e9,
                  link->seconds_per_token > 0 ? 1 / link->seconds_per_token : 0, link->step_seconds,
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
