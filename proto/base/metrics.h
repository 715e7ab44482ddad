/* metrics.h - counters, gauges and histograms, written in Prometheus text format 0.0.4.
 *
 * A program declares its metrics in one table (metrics.c of the program); the registry allocates
 * the values once. Updates are relaxed atomics: any thread, no lock. Labels: one set of label text
 * per registry (e.g. group="0",rank="1"), and at most one label with a fixed list of values per
 * metric (e.g. reason), so that cardinality is bounded by the source code. */
#ifndef REFRAIN_PROTO_BASE_METRICS_H
#define REFRAIN_PROTO_BASE_METRICS_H

#include <stddef.h>
#include <stdint.h>

#include "proto/base/buffer.h"

enum metric_type { METRIC_COUNTER = 0, METRIC_GAUGE, METRIC_HISTOGRAM };

struct metric_spec {
    const char *name; /* refrain_<noun>_<unit>, counters end in _total; or vllm:... */
    enum metric_type type;
    const char *help;
    const char *label;               /* NULL: none */
    const char *const *label_values; /* NULL-terminated, when label is set */
    const double *buckets; /* histogram: rising upper bounds, ended by +INFINITY (not counted) */
};

struct metrics; /* a registry: one value per (spec, label value) */

struct metrics *metrics_new(const struct metric_spec *specs, size_t specs_count);
void metrics_free(struct metrics *metrics);
/* `id` is the index in the table, `label` the index of the label value (0 when there is none). */
void metrics_add(struct metrics *metrics, size_t id, size_t label, double amount); /* counter */
void metrics_set(struct metrics *metrics, size_t id, size_t label, double value);  /* gauge */
void metrics_observe(struct metrics *metrics, size_t id, size_t label, double value);
/* A counter's or gauge's value; a histogram's number of observations. */
double metrics_get(const struct metrics *metrics, size_t id, size_t label);
/* Histogram to_id of `to` := histogram from_id of `from`; both have the same buckets. */
void metrics_copy_histogram(const struct metrics *from, size_t from_id, struct metrics *to,
                            size_t to_id);
/* Text for inside the quotes of a label. */
void metrics_append_label(struct buffer *out, const char *text);

/* Append everything: HELP, TYPE and samples. `labels` as `group="0",rank="1"` or NULL. Use
 * metrics_write_family to put several registries' samples of one family under one HELP/TYPE. */
void metrics_write(const struct metrics *metrics, const char *labels, struct buffer *out);
void metrics_write_header(const struct metric_spec *spec, struct buffer *out);
void metrics_write_samples(const struct metrics *metrics, size_t id, const char *labels,
                           struct buffer *out);

/* Flat list of numbers for the wire: a worker sends them, the router writes them with the worker's
 * labels, both using the same table. Count depends on the table only. */
size_t metrics_flat_count(const struct metrics *metrics);
void metrics_flat_get(const struct metrics *metrics, double *ret_values);
/* -EINVAL when count differs from metrics_flat_count(). */
int metrics_flat_set(struct metrics *metrics, const double *values, size_t count);

#endif
