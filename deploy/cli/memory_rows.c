/* memory_rows.c - families of the metrics page -> kinds of rows.
 *
 * What a process may hold besides what is counted: KV pages are counted from the start and become
 * resident when a block is first used, so a worker's resident memory is explained by its blocks
 * that are not empty; caches and purposes explain what they count. */
#include "deploy/cli/memory_rows.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "deploy/cli/http_get.h"
#include "deploy/cli/metrics_page.h"
#include "proto/base/assert.h"
#include "proto/base/mem.h"

/* Purposes that keep things on purpose, each with a limit. The prefix index follows the blocks of
 * the workers; compiled grammars, chats and texts have settings. */
static const enum mem_purpose caches[] = {MEM_TEXT_CACHE, MEM_SESSIONS, MEM_GRAMMAR, MEM_ROUTING};

static bool is_cache(const char *labels)
{
    char wanted[64];

    for (size_t i = 0; i < sizeof(caches) / sizeof(caches[0]); i++) {
        (void)snprintf(wanted, sizeof(wanted), "purpose=\"%s\"", mem_purpose_name(caches[i]));
        if (strstr(labels, wanted))
            return true;
    }
    return false;
}

struct family {
    const char *name;
    enum memory_kind kind;
    const char *shown; /* before the labels */
};

static const struct family families[] = {
    {"refrain_router_requests_open", MEMORY_ZERO, "router: open requests"},
    {"refrain_router_inflight", MEMORY_ZERO, "router: dispatches"},
    {"refrain_requests_running", MEMORY_ZERO, "running sequences"},
    {"refrain_requests_waiting", MEMORY_ZERO, "waiting sequences"},
    {"refrain_router_memory_bytes", MEMORY_HELD, "router bytes"},
    {"refrain_memory_bytes", MEMORY_HELD, "worker bytes"},
    {"refrain_router_resident_bytes", MEMORY_RESIDENT, "router resident"},
    {"refrain_process_resident_bytes", MEMORY_RESIDENT, "worker resident"},
};

void memory_rows_init(struct memory_rows *rows)
{
    rows->rows = mem_calloc(MEMORY_ROWS_MAX, sizeof(*rows->rows));
    rows->count = 0;
}

void memory_rows_done(struct memory_rows *rows)
{
    mem_free(rows->rows);
    *rows = (struct memory_rows){0};
}

/* The row of this name; made when it is new. */
static struct memory_row *row_of(struct memory_rows *rows, const char *name, enum memory_kind kind)
{
    for (size_t i = 0; i < rows->count; i++) {
        if (strcmp(rows->rows[i].name, name) == 0)
            return &rows->rows[i];
    }
    if (rows->count == MEMORY_ROWS_MAX)
        return &rows->rows[MEMORY_ROWS_MAX - 1]; /* hundreds of groups: the rest share a row */
    struct memory_row *row = &rows->rows[rows->count++];
    (void)snprintf(row->name, sizeof(row->name), "%s", name);
    row->kind = kind;
    return row;
}

static void set(struct memory_row *row, int round, double value, double explained)
{
    if (round < 0) {
        row->before = value;
        return;
    }
    row->values[round] = value;
    row->explained[round] = explained;
}

/* group="0",rank="1",purpose="text" -> "group 0 rank 1 text": our labels hold no quotes. */
static void format_labels(const char *labels, char *ret, size_t bytes_max)
{
    size_t used = 0;

    ret[0] = '\0';
    for (const char *at = labels; *at != '\0';) {
        size_t key = strcspn(at, "=");
        const char *value = at + key + (at[key] != '\0') + (at[key] != '\0' && at[key + 1] == '"');
        size_t bytes = strcspn(value, "\"");
        bool named = strncmp(at, "purpose", key) != 0 && strncmp(at, "state", key) != 0;
        int n = snprintf(ret + used, bytes_max - used, "%s%.*s%s%.*s", used ? " " : "",
                         named ? (int)key : 0, at, named ? " " : "", (int)bytes, value);
        if (n < 0 || (size_t)n >= bytes_max - used)
            return; /* cut: the name is for people */
        used += (size_t)n;
        at = value + bytes;
        at += strspn(at, "\",");
    }
}

static double sum_of(const struct metrics_page *page, const char *name, const char *labels)
{
    double sum = 0;
    for (size_t i = 0; i < page->count; i++) {
        if (strcmp(page->samples[i].name, name) == 0 && strstr(page->samples[i].labels, labels))
            sum += page->samples[i].value;
    }
    return sum;
}

/* Bytes of a group's blocks that are not empty, on one rank. */
static double touched_blocks(const struct metrics_page *page, const char *labels)
{
    char group[64], empty_group[96];
    (void)snprintf(group, sizeof(group), "%.*s,", (int)strcspn(labels, ","), labels);
    /* Rank 0 keeps the books of all. */
    (void)snprintf(empty_group, sizeof(empty_group), "%srank=\"0\",state=\"empty\"", group);
    double all = sum_of(page, "refrain_blocks", group);
    double empty = sum_of(page, "refrain_blocks", empty_group);
    return all > 0 ? (all - empty) / all * sum_of(page, "refrain_kv_bytes", labels) : 0;
}

/* Bytes of a process that are counted and can move. */
static double counted(const struct metrics_page *page, const char *name, const char *labels)
{
    static const char *const fixed[] = {"weights", "kv_pool", "kernels"};
    double sum = sum_of(page, name, labels);
    for (size_t i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++) {
        char wanted[160];
        (void)snprintf(wanted, sizeof(wanted), "%s%spurpose=\"%s\"", labels, labels[0] ? "," : "",
                       fixed[i]);
        sum -= sum_of(page, name, wanted);
    }
    return sum;
}

static void take_sample(struct memory_rows *rows, const struct metrics_page *page,
                        const struct page_sample *sample, const struct family *family, int round)
{
    char labels[64], name[VERDICT_NAME_MAX];
    enum memory_kind kind = family->kind;
    double explained = 0;

    if (kind == MEMORY_HELD && is_cache(sample->labels))
        kind = MEMORY_CACHE;
    if (kind == MEMORY_RESIDENT)
        explained = strcmp(family->name, "refrain_router_resident_bytes") == 0
                        ? counted(page, "refrain_router_memory_bytes", "")
                        : counted(page, "refrain_memory_bytes", sample->labels) +
                              touched_blocks(page, sample->labels);
    format_labels(sample->labels, labels, sizeof(labels));
    (void)snprintf(name, sizeof(name), "%s%s%s", family->shown, labels[0] ? ", " : "", labels);
    set(row_of(rows, name, kind), round, sample->value, explained);
}

/* Blocks that sequences hold: two states of one family. */
static void take_blocks(struct memory_rows *rows, const struct page_sample *sample, int round)
{
    char labels[64], name[VERDICT_NAME_MAX];

    if (!strstr(sample->labels, "state=\"private\"") && !strstr(sample->labels, "state=\"shared\""))
        return;
    format_labels(sample->labels, labels, sizeof(labels));
    (void)snprintf(name, sizeof(name), "KV blocks held, %s", labels);
    set(row_of(rows, name, MEMORY_ZERO), round, sample->value, 0);
}

static int get_page(const struct memory_source *source, struct metrics_page *ret_page,
                    struct errmsg *err)
{
    char *text = NULL;

    int r = http_get_text(source->url, "/metrics", source->api_key, &text, err);
    if (r < 0)
        return r;
    r = metrics_page_parse(text, ret_page, err);
    mem_free(text);
    return r;
}

static int take_page(struct memory_rows *rows, const struct memory_source *source, int round,
                     struct errmsg *err)
{
    struct metrics_page page;

    int r = get_page(source, &page, err);
    if (r < 0)
        return r;
    for (size_t i = 0; i < page.count; i++) {
        const struct page_sample *sample = &page.samples[i];
        if (strcmp(sample->name, "refrain_blocks") == 0)
            take_blocks(rows, sample, round);
        for (size_t f = 0; f < sizeof(families) / sizeof(families[0]); f++) {
            if (strcmp(sample->name, families[f].name) == 0)
                take_sample(rows, &page, sample, &families[f], round);
        }
    }
    metrics_page_done(&page);
    return 0;
}

int memory_rows_take(struct memory_rows *rows, const struct memory_source *source, int round,
                     struct errmsg *err)
{
    json_t *status = NULL, *worker;
    size_t i;

    ASSERT(round < (int)VERDICT_ROUNDS_MAX);
    int r = take_page(rows, source, round, err);
    if (r == 0)
        r = http_get_json(source->url, "/v1/refrain/status", source->api_key, &status, err);
    if (r < 0)
        return r;
    json_array_foreach(json_object_get(status, "workers"), i, worker)
    {
        char name[VERDICT_NAME_MAX];
        (void)snprintf(name, sizeof(name), "router: tickets, group %lld",
                       (long long)json_integer_value(json_object_get(worker, "group")));
        set(row_of(rows, name, MEMORY_ZERO), round,
            json_number_value(json_object_get(worker, "inflight")), 0);
    }
    json_decref(status);
    return 0;
}

int memory_is_idle(const struct memory_source *source, bool *ret_idle, struct errmsg *err)
{
    static const char *const busy[] = {"refrain_router_requests_open", "refrain_requests_running",
                                       "refrain_requests_waiting"};
    struct metrics_page page;
    double sum = 0;

    int r = get_page(source, &page, err);
    if (r < 0)
        return r;
    for (size_t i = 0; i < sizeof(busy) / sizeof(busy[0]); i++)
        sum += sum_of(&page, busy[i], "");
    metrics_page_done(&page);
    *ret_idle = sum == 0;
    return 0;
}
