/* metrics.c - a registry of numbers and its Prometheus text.
 *
 * All values are doubles in one flat array of atomics, in the order of the table:
 *
 *   counter, gauge   for each label value: [value]
 *   histogram        for each label value: [count of bucket 0] ... [count of +Inf] [sum of values]
 *
 * Bucket counts are kept apart and summed up when written ("le" is cumulative), so an observation
 * touches one bucket and the sum, and _count always equals the +Inf bucket. Counts are exact up to
 * 2^53. The flat list for the wire is this array as it stands. Relaxed atomics: a reader may see a
 * bucket before its sum, never a torn number. */
#include "proto/base/metrics.h"

#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "proto/base/number.h"

struct metric {
    size_t first;  /* index of its first value */
    size_t labels; /* label values, 1 when it has no label */
    size_t stride; /* values per label value */
};

struct metrics {
    const struct metric_spec *specs;
    size_t specs_count;
    struct metric *layout;
    _Atomic uint64_t *values; /* bits of doubles: an atomic double has no fetch_add */
    size_t values_count;
};

static size_t count_labels(const struct metric_spec *spec)
{
    size_t count = 0;

    if (spec->label == NULL)
        return 1;
    while (spec->label_values[count] != NULL)
        count++;
    ASSERT(count > 0);
    return count;
}

/* Finite buckets. */
static size_t count_buckets(const struct metric_spec *spec)
{
    size_t count = 0;

    while (!isinf(spec->buckets[count])) {
        ASSERT(count == 0 || spec->buckets[count] > spec->buckets[count - 1]);
        count++;
    }
    return count;
}

struct metrics *metrics_new(const struct metric_spec *specs, size_t specs_count)
{
    struct metrics *metrics = mem_zalloc(sizeof(*metrics));

    metrics->specs = specs;
    metrics->specs_count = specs_count;
    metrics->layout = mem_calloc(specs_count, sizeof(*metrics->layout));
    for (size_t id = 0; id < specs_count; id++) {
        struct metric *metric = &metrics->layout[id];

        ASSERT(specs[id].name != NULL && specs[id].help != NULL);
        metric->first = metrics->values_count;
        metric->labels = count_labels(&specs[id]);
        metric->stride =
            specs[id].type == METRIC_HISTOGRAM ? count_buckets(&specs[id]) + 2 : (size_t)1;
        metrics->values_count += metric->labels * metric->stride;
    }
    /* All bits zero is the double 0. */
    metrics->values = mem_calloc(metrics->values_count, sizeof(*metrics->values));
    return metrics;
}

void metrics_free(struct metrics *metrics)
{
    if (metrics == NULL)
        return;
    mem_free((void *)metrics->values);
    mem_free(metrics->layout);
    mem_free(metrics);
}

static double to_double(uint64_t bits)
{
    double value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

static uint64_t to_bits(double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static double load(const struct metrics *metrics, size_t at)
{
    return to_double(atomic_load_explicit(&metrics->values[at], memory_order_relaxed));
}

static void store(struct metrics *metrics, size_t at, double value)
{
    atomic_store_explicit(&metrics->values[at], to_bits(value), memory_order_relaxed);
}

static void add(struct metrics *metrics, size_t at, double amount)
{
    uint64_t before = atomic_load_explicit(&metrics->values[at], memory_order_relaxed);

    while (!atomic_compare_exchange_weak_explicit(&metrics->values[at], &before,
                                                  to_bits(to_double(before) + amount),
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
}

static size_t locate(const struct metrics *metrics, size_t id, size_t label)
{
    ASSERT(id < metrics->specs_count);
    ASSERT(label < metrics->layout[id].labels);
    return metrics->layout[id].first + label * metrics->layout[id].stride;
}

void metrics_add(struct metrics *metrics, size_t id, size_t label, double amount)
{
    size_t at = locate(metrics, id, label);

    ASSERT(metrics->specs[id].type != METRIC_HISTOGRAM);
    ASSERT(amount >= 0 || metrics->specs[id].type == METRIC_GAUGE);
    add(metrics, at, amount);
}

void metrics_set(struct metrics *metrics, size_t id, size_t label, double value)
{
    size_t at = locate(metrics, id, label);

    ASSERT(metrics->specs[id].type != METRIC_HISTOGRAM);
    store(metrics, at, value);
}

void metrics_observe(struct metrics *metrics, size_t id, size_t label, double value)
{
    size_t at = locate(metrics, id, label);
    size_t stride = metrics->layout[id].stride;
    const double *buckets = metrics->specs[id].buckets;
    size_t bucket = 0;

    ASSERT(metrics->specs[id].type == METRIC_HISTOGRAM && !isnan(value));
    while (bucket < stride - 2 && value > buckets[bucket])
        bucket++;
    add(metrics, at + bucket, 1);
    add(metrics, at + stride - 1, value);
}

double metrics_get(const struct metrics *metrics, size_t id, size_t label)
{
    size_t at = locate(metrics, id, label);
    double count = 0;

    if (metrics->specs[id].type != METRIC_HISTOGRAM)
        return load(metrics, at);
    for (size_t i = 0; i < metrics->layout[id].stride - 1; i++)
        count += load(metrics, at + i);
    return count;
}

void metrics_copy_histogram(const struct metrics *from, size_t from_id, struct metrics *to,
                            size_t to_id)
{
    size_t from_at = locate(from, from_id, 0), to_at = locate(to, to_id, 0);
    size_t stride = from->layout[from_id].stride;

    ASSERT(from->specs[from_id].type == METRIC_HISTOGRAM && to->layout[to_id].stride == stride);
    ASSERT(to->specs[to_id].type == METRIC_HISTOGRAM);
    for (size_t i = 0; i < stride; i++)
        store(to, to_at + i, load(from, from_at + i));
}

/* Escaped as the text format wants it; quotes only inside label values. */
static void append_escaped(struct buffer *out, const char *text, bool quotes)
{
    for (; *text != '\0'; text++) {
        if (*text == '\n') {
            buffer_append_text(out, "\\n");
            continue;
        }
        if (*text == '\\' || (quotes && *text == '"'))
            buffer_append_char(out, '\\');
        buffer_append_char(out, *text);
    }
}

void metrics_append_label(struct buffer *out, const char *text)
{
    append_escaped(out, text, true);
}

void metrics_write_header(const struct metric_spec *spec, struct buffer *out)
{
    static const char *const types[] = {"counter", "gauge", "histogram"};

    buffer_printf(out, "# HELP %s ", spec->name);
    append_escaped(out, spec->help, false);
    buffer_printf(out, "\n# TYPE %s %s\n", spec->name, types[spec->type]);
}

/* One sample line: name + suffix, the registry's labels, the metric's own label, `le`. */
struct sample {
    const struct metric_spec *spec;
    const char *suffix;
    const char *labels; /* NULL or "" : none */
    size_t label;
    const double *le; /* NULL: no bucket */
};

static void write_sample(const struct sample *sample, double value, struct buffer *out)
{
    const struct metric_spec *spec = sample->spec;
    const char *before = "{";
    char number[NUMBER_TEXT_MAX];

    buffer_printf(out, "%s%s", spec->name, sample->suffix);
    if (sample->labels != NULL && sample->labels[0] != '\0') {
        buffer_printf(out, "%s%s", before, sample->labels);
        before = ",";
    }
    if (spec->label != NULL) {
        buffer_printf(out, "%s%s=\"", before, spec->label);
        append_escaped(out, spec->label_values[sample->label], true);
        buffer_append_char(out, '"');
        before = ",";
    }
    if (sample->le != NULL) {
        number_format(*sample->le, number);
        buffer_printf(out, "%sle=\"%s\"", before, number);
        before = ",";
    }
    number_format(value, number);
    buffer_printf(out, "%s %s\n", before[0] == ',' ? "}" : "", number);
}

static void write_histogram(const struct metrics *metrics, size_t id, struct sample *sample,
                            struct buffer *out)
{
    size_t at = locate(metrics, id, sample->label);
    size_t stride = metrics->layout[id].stride;
    double count = 0;

    sample->suffix = "_bucket";
    for (size_t i = 0; i < stride - 1; i++) {
        count += load(metrics, at + i);
        sample->le = &metrics->specs[id].buckets[i]; /* the last is the table's +INFINITY */
        write_sample(sample, count, out);
    }
    sample->le = NULL;
    sample->suffix = "_sum";
    write_sample(sample, load(metrics, at + stride - 1), out);
    sample->suffix = "_count";
    write_sample(sample, count, out);
}

void metrics_write_samples(const struct metrics *metrics, size_t id, const char *labels,
                           struct buffer *out)
{
    ASSERT(id < metrics->specs_count);
    for (size_t label = 0; label < metrics->layout[id].labels; label++) {
        struct sample sample = {
            .spec = &metrics->specs[id], .suffix = "", .labels = labels, .label = label};

        if (metrics->specs[id].type == METRIC_HISTOGRAM)
            write_histogram(metrics, id, &sample, out);
        else
            write_sample(&sample, load(metrics, locate(metrics, id, label)), out);
    }
}

void metrics_write(const struct metrics *metrics, const char *labels, struct buffer *out)
{
    for (size_t id = 0; id < metrics->specs_count; id++) {
        metrics_write_header(&metrics->specs[id], out);
        metrics_write_samples(metrics, id, labels, out);
    }
}

size_t metrics_flat_count(const struct metrics *metrics)
{
    return metrics->values_count;
}

void metrics_flat_get(const struct metrics *metrics, double *ret_values)
{
    for (size_t i = 0; i < metrics->values_count; i++)
        ret_values[i] = load(metrics, i);
}

int metrics_flat_set(struct metrics *metrics, const double *values, size_t count)
{
    if (count != metrics->values_count)
        return -EINVAL;
    for (size_t i = 0; i < count; i++)
        store(metrics, i, values[i]);
    return 0;
}
