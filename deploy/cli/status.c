/* status.c - `refrain status`: what the router knows of its groups, as a table.
 *
 * One GET of /v1/refrain/status. Memory of each rank is read from /proc, so it is shown for
 * processes of this machine only ("-" elsewhere). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "deploy/cli/cli.h"
#include "deploy/cli/http_get.h"
#include "deploy/cli/table.h"
#include "proto/base/mem.h"
#include "proto/base/settings.h"

struct status_settings {
    char *url;
    char *api_key;
    bool json;
};

#define SETTING_STRUCT struct status_settings
static const struct setting status_table[] = {
    SETTING_TEXT("url", url, "http://127.0.0.1:8000", "Where the router listens."),
    SETTING_TEXT("api-key", api_key, NULL, "Bearer key, when the router asks for one."),
    SETTING_BOOL("json", json, "false", "The router's own JSON instead of a table."),
    SETTING_END,
};

static const struct settings_spec status_spec = {
    .program = "refrain status",
    .summary = "Shows the router, its groups, their ranks and KV blocks.",
    .section = "status",
    .table = status_table,
};

static long long number(const json_t *object, const char *key)
{
    return (long long)json_number_value(json_object_get(object, key));
}

static const char *text(const json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));
    return value && value[0] ? value : "-";
}

/* Resident MiB of a process of this machine, or "-". */
static void resident(long long pid, char *ret_text, size_t text_max)
{
    char path[64], line[128];
    char *end;

    (void)snprintf(ret_text, text_max, "-");
    (void)snprintf(path, sizeof(path), "/proc/%lld/statm", pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return;
    if (fgets(line, sizeof(line), file)) { /* "total resident ...", in pages */
        (void)strtoull(line, &end, 10);
        unsigned long long pages = strtoull(end, NULL, 10);
        (void)snprintf(ret_text, text_max, "%llu MiB",
                       pages * (unsigned long long)sysconf(_SC_PAGESIZE) >> 20);
    }
    (void)fclose(file);
}

/* For people: "exact" is about the router's index of the group's blocks. */
static const char *state_of(const json_t *worker)
{
    if (json_is_true(json_object_get(worker, "draining")))
        return "draining";
    if (json_is_true(json_object_get(worker, "refused")))
        return "refused";
    return strcmp(text(worker, "state"), "exact") == 0 ? "ready" : text(worker, "state");
}

/* The two largest units: "3 d 4 h". */
static void duration(long long seconds, char *ret_text, size_t text_max)
{
    if (seconds >= 86400)
        (void)snprintf(ret_text, text_max, "%lld d %lld h", seconds / 86400,
                       seconds % 86400 / 3600);
    else if (seconds >= 3600)
        (void)snprintf(ret_text, text_max, "%lld h %lld min", seconds / 3600, seconds % 3600 / 60);
    else if (seconds >= 60)
        (void)snprintf(ret_text, text_max, "%lld min %lld s", seconds / 60, seconds % 60);
    else
        (void)snprintf(ret_text, text_max, "%lld s", seconds);
}

static void add_group(struct table *table, const json_t *worker)
{
    const json_t *blocks = json_object_get(worker, "blocks");
    const json_t *pids = json_object_get(worker, "pids");
    long long total = number(blocks, "total");

    for (size_t rank = 0; rank == 0 || rank < json_array_size(pids); rank++) {
        long long pid = (long long)json_integer_value(json_array_get(pids, rank));
        char memory[32];
        resident(pid, memory, sizeof(memory));
        table_begin_row(table);
        if (rank == 0) {
            table_cell(table, "%lld", number(worker, "group"));
            table_cell(table, "%s", state_of(worker));
        } else {
            table_cell(table, " ");
            table_cell(table, " ");
        }
        table_cell(table, "%zu", rank);
        table_cell(table, "%lld", pid);
        table_cell(table, "%s", memory);
        if (rank > 0)
            continue;
        table_cell(table, "%lld", number(worker, "running"));
        table_cell(table, "%lld", number(worker, "waiting"));
        table_cell(table, "%lld", number(worker, "inflight"));
        table_cell(table, "%lld", number(blocks, "referenced"));
        table_cell(table, "%lld", number(blocks, "cached"));
        table_cell(table, "%lld", number(blocks, "empty"));
        table_cell(table, "%.1f %%",
                   total ? 100.0 * (double)number(blocks, "referenced") / (double)total : 0.0);
        table_cell(table, "%s", text(worker, "model"));
    }
}

static void print_status(const char *url, const json_t *status)
{
    static const char *const columns[] = {"group",   "state",    "rank",     "pid",  "memory",
                                          "running", "waiting",  "inflight", "held", "cached",
                                          "empty",   "held/all", "model",    NULL};
    const json_t *router = json_object_get(status, "router");
    const json_t *workers = json_object_get(status, "workers");
    struct table table;
    size_t i;
    json_t *worker;
    char memory[32], up[48];

    resident(number(router, "pid"), memory, sizeof(memory));
    duration(number(router, "uptime_s"), up, sizeof(up));
    fprintf(stdout, "router  %s  pid %lld  %s  version %s  up %s  %s\n\n", url,
            number(router, "pid"), memory, text(router, "version"), up,
            json_is_true(json_object_get(router, "ready")) ? "ready" : "not ready");
    if (json_array_size(workers) == 0) {
        fprintf(stdout, "no group is attached\n");
        return;
    }
    table_init(&table, columns);
    json_array_foreach(workers, i, worker) add_group(&table, worker);
    table_print(&table, stdout);
    table_done(&table);
    fprintf(stdout, "\nKV blocks of 16 tokens: held by requests, cached (reclaimable), empty\n");
}

int command_status(int argc, char **argv)
{
    struct status_settings settings;
    struct errmsg err;
    json_t *status = NULL;
    int code = EXIT_DONE;

    int r = settings_parse(&status_spec, &settings, argc, argv, &err);
    if (r == SETTINGS_EXIT_OK)
        return EXIT_DONE;
    if (r < 0) {
        fprintf(stderr, "refrain status: %s\n", err.text);
        return EXIT_USAGE;
    }
    r = http_get_json(settings.url, "/v1/refrain/status", settings.api_key, &status, &err);
    if (r < 0) {
        fprintf(stderr, "refrain status: %s\n", err.text);
        code = EXIT_FAILED;
        goto out;
    }
    if (settings.json) {
        (void)json_dumpf(status, stdout, JSON_INDENT(2) | JSON_ENSURE_ASCII);
        fprintf(stdout, "\n");
    } else {
        print_status(settings.url, status);
    }
    json_decref(status);
out:
    settings_done(&status_spec, &settings);
    return code;
}
