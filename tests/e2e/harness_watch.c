/* harness_watch.c - what a running cluster says of itself: status, metrics, admin sockets. */
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/mem.h"
#include "tests/e2e/harness.h"

#define IDLE_DEADLINE_MS 10000u
#define ADMIN_DEADLINE_MS 10000u

/* ---- status ---- */

static json_t *status_json(const struct cluster *cluster)
{
    struct http_answer answer;
    const struct http_request request = {
        .path = "/v1/refrain/status",
        .timeout_s = 5,
        .headers = cluster->bearer[0] ? (const char *const[]){cluster->bearer, NULL} : NULL};
    http_send(cluster->url, &request, &answer);
    json_t *status = answer.status == 200 ? json_incref(answer.json) : NULL;
    http_answer_done(&answer);
    return status;
}

static uint32_t number(const json_t *object, const char *key)
{
    return (uint32_t)json_number_value(json_object_get(object, key));
}

static void copy_text(char *to, size_t to_max, const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    (void)snprintf(to, to_max, "%s", text ? text : "");
}

static void read_worker(const json_t *json, struct worker_view *worker)
{
    const json_t *blocks = json_object_get(json, "blocks");
    const json_t *pids = json_object_get(json, "pids");

    *worker = (struct worker_view){
        .group = (int)number(json, "group"),
        .ready = json_is_true(json_object_get(json, "ready")),
        .draining = json_is_true(json_object_get(json, "draining")),
        .ranks = number(json, "ranks"),
        .running = number(json, "running"),
        .waiting = number(json, "waiting"),
        .inflight = number(json, "inflight"),
        .blocks_total = number(blocks, "total"),
        .blocks_referenced = number(blocks, "referenced"),
        .blocks_cached = number(blocks, "cached"),
        .blocks_empty = number(blocks, "empty"),
    };
    copy_text(worker->state, sizeof(worker->state), json, "state");
    copy_text(worker->admin_socket, sizeof(worker->admin_socket), json, "admin_socket");
    copy_text(worker->model, sizeof(worker->model), json, "model");
    for (size_t rank = 0; rank < json_array_size(pids) && rank < RANKS_MAX; rank++)
        worker->pids[rank] = (pid_t)json_integer_value(json_array_get(pids, rank));
}

static int compare_groups(const void *a, const void *b)
{
    return ((const struct worker_view *)a)->group - ((const struct worker_view *)b)->group;
}

size_t cluster_workers(const struct cluster *cluster, struct worker_view ret_workers[WORKERS_MAX])
{
    json_t *status = status_json(cluster), *worker;
    size_t i, count = 0;

    json_array_foreach(json_object_get(status, "workers"), i, worker)
    {
        if (count < WORKERS_MAX)
            read_worker(worker, &ret_workers[count++]);
    }
    json_decref(status);
    qsort(ret_workers, count, sizeof(*ret_workers), compare_groups);
    return count;
}

bool cluster_worker(const struct cluster *cluster, int group, struct worker_view *ret_worker)
{
    struct worker_view workers[WORKERS_MAX];
    size_t count = cluster_workers(cluster, workers);
    bool found = false;

    for (size_t i = 0; i < count; i++) { /* a dead one may stand beside its successor */
        if (workers[i].group != group || (found && !workers[i].ready))
            continue;
        *ret_worker = workers[i];
        found = true;
    }
    return found;
}

pid_t cluster_router_pid(const struct cluster *cluster)
{
    json_t *status = status_json(cluster);
    pid_t pid = (pid_t)number(json_object_get(status, "router"), "pid");
    json_decref(status);
    return pid;
}

struct ready_watch {
    const struct cluster *cluster;
    size_t wanted;
};

static bool are_ready(void *user)
{
    const struct ready_watch *watch = user;
    struct worker_view workers[WORKERS_MAX];
    size_t count = cluster_workers(watch->cluster, workers), ready = 0;

    for (size_t i = 0; i < count; i++)
        ready += workers[i].ready;
    return ready == watch->wanted && count == watch->wanted;
}

void cluster_await_ready(const struct cluster *cluster, size_t count, uint32_t deadline_ms)
{
    struct ready_watch watch = {cluster, count};
    if (!poll_until(are_ready, &watch, deadline_ms))
        fail_msg("not %zu ready groups after %u ms", count, deadline_ms);
}

/* ---- idle ---- */

struct idle_watch {
    const struct cluster *cluster;
    char why[256];
};

static bool is_idle(void *user)
{
    struct idle_watch *watch = user;
    struct worker_view workers[WORKERS_MAX];
    size_t count = cluster_workers(watch->cluster, workers);
    int fds = proc_fds(cluster_router_pid(watch->cluster));

    (void)snprintf(watch->why, sizeof(watch->why), "no worker, or no router");
    for (size_t i = 0; i < count; i++) {
        const struct worker_view *w = &workers[i];
        (void)snprintf(watch->why, sizeof(watch->why),
                       "group %d: running %u waiting %u inflight %u referenced %u", w->group,
                       w->running, w->waiting, w->inflight, w->blocks_referenced);
        if (w->running + w->waiting + w->inflight + w->blocks_referenced > 0)
            return false;
        if (w->blocks_cached + w->blocks_empty != w->blocks_total)
            return false;
    }
    if (count > 0)
        (void)snprintf(watch->why, sizeof(watch->why), "the router has %d fds, idle it had %d", fds,
                       watch->cluster->router_fds_idle);
    return count > 0 && fds == watch->cluster->router_fds_idle;
}

void cluster_assert_idle(const struct cluster *cluster)
{
    struct idle_watch watch = {.cluster = cluster};
    if (!poll_until(is_idle, &watch, IDLE_DEADLINE_MS))
        fail_msg("not idle: %s", watch.why);
}

/* ---- metrics ---- */

double metric_sum(const char *text, const char *name, const char *label, size_t *ret_samples)
{
    size_t name_bytes = strlen(name), samples = 0;
    double sum = 0;

    for (const char *line = text; line && *line;) {
        const char *end = strchr(line, '\n');
        size_t bytes = end ? (size_t)(end - line) : strlen(line);
        const char *value = memrchr(line, ' ', bytes);
        if (strncmp(line, name, name_bytes) == 0 && value &&
            (line[name_bytes] == '{' || line[name_bytes] == ' ') &&
            memmem(line, bytes, label, strlen(label))) {
            sum += strtod(value, NULL);
            samples++;
        }
        line = end ? end + 1 : NULL;
    }
    if (ret_samples)
        *ret_samples = samples;
    return sum;
}

double cluster_metric(const struct cluster *cluster, const char *name, const char *label,
                      size_t *ret_samples)
{
    struct http_answer answer;
    http_get(cluster->url, "/metrics", &answer);
    double sum = metric_sum(answer.body, name, label, ret_samples);
    http_answer_done(&answer);
    return sum;
}

/* ---- admin sockets ---- */

char *admin_text(const char *socket_path, const char *line)
{
    bool closed;
    int fd = raw_connect_unix(socket_path);

    if (fd < 0)
        return mem_strdup("");
    char *whole = mem_printf("%s\n", line);
    bool sent = raw_write(fd, whole, strlen(whole));
    char *text = sent ? raw_read(fd, "\n", ADMIN_DEADLINE_MS, &closed) : mem_strdup("");
    mem_free(whole);
    (void)close(fd);
    return text;
}

json_t *admin_call(const char *socket_path, const char *line)
{
    char *text = admin_text(socket_path, line);
    json_t *json = json_loads(text, 0, NULL);
    mem_free(text);
    return json;
}

/* ---- asking ---- */

json_t *cluster_post(const struct cluster *cluster, const char *path, json_t *body, int status)
{
    struct http_answer answer;
    char *text = json_dumps(body, JSON_COMPACT);

    json_decref(body);
    http_post_text(cluster->url, path, text, &answer);
    if (answer.status != status || !answer.json)
        fail_msg("%s %.300s\nwanted %d, got %d %.600s%s", path, text, status, answer.status,
                 answer.body, answer.failure);
    json_t *json = json_incref(answer.json);
    http_answer_done(&answer);
    free(text); /* jansson's */
    return json;
}

json_t *cluster_admin(const struct cluster *cluster, int group, const char *line)
{
    struct worker_view worker;

    assert_true(cluster_worker(cluster, group, &worker));
    json_t *answer = admin_call(worker.admin_socket, line);
    assert_non_null(answer);
    return answer;
}

void cluster_assert_pool(const struct cluster *cluster, int group)
{
    json_t *answer = cluster_admin(cluster, group, "check");

    assert_null(json_object_get(answer, "error"));
    assert_string_equal(json_string_value(json_object_get(answer, "check")), "ok");
    json_decref(answer);
}

uint64_t json_count(const json_t *json, const char *object, const char *name)
{
    const json_t *value = json_object_get(object ? json_object_get(json, object) : json, name);

    if (!json_is_integer(value))
        fail_msg("no number '%s' in '%s'", name, object ? object : "");
    return (uint64_t)json_integer_value(value);
}
