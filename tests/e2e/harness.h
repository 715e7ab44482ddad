/* harness.h - a whole cluster as a child of the test, and the promise that nothing is left of it.
 *
 *   cluster_start --ready line--> SERVING --cluster_stop: idle, SIGTERM, code 0, all gone-->
 * STOPPED
 *                                    +-----cluster_abort (teardown): SIGKILL what is left-->
 * STOPPED
 *
 * Each cluster has a folder of its own under /tmp with the run dir and the log, and a word in its
 * environment by which every process of it is found. A failed assertion jumps out of the test;
 * cluster_abort in the teardown cleans up, e2e_finish prints the logs. Thread: main. */
#ifndef REFRAIN_TESTS_E2E_HARNESS_H
#define REFRAIN_TESTS_E2E_HARNESS_H

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "tests/e2e/harness_chat.h"
#include "tests/e2e/harness_http.h"
#include "tests/e2e/harness_proc.h"

#define E2E_SKIPPED 77
#define SMOLLM2_NAME "SmolLM2-135M-Instruct.Q4_1"
#define TINY_NAME "model" /* of all tiny models: their file is model.gguf */
#define RANKS_MAX 8
#define WORKERS_MAX 8

struct cluster {
    pid_t pid; /* refrain up; 0: not running */
    uint16_t port;
    char url[64];
    const char *model;    /* served name: model_name */
    char model_name[96];  /* the file's name without suffix, or the folder's */
    const char *programs; /* folder of refrain and the others; NULL: BUILD_DIR */
    char bearer[128];     /* "Authorization: Bearer KEY" of the first key of --api-key; "" */
    char folder[64];      /* /tmp/refrain-e2e-XXXXXX */
    char run_dir[PATH_MAX];
    char log_path[96];
    char mark[96]; /* in every process's environment */
    int stdout_fd;
    char *shm_before;
    int router_fds_idle;
    double ready_s;
    bool stopped;
};

/* One worker group as /v1/refrain/status shows it. */
struct worker_view {
    int group;
    bool ready, draining;
    char state[16], admin_socket[128], model[96];
    uint32_t ranks;
    pid_t pids[RANKS_MAX];
    uint32_t running, waiting, inflight;
    uint32_t blocks_total, blocks_referenced, blocks_cached, blocks_empty;
};

/* First and last line of main(). finish: prints the logs when `failed` is not 0; returns it. */
void e2e_begin(void);
int e2e_finish(int failed);
/* A real model, or a "skipped: ..." line and exit(77). */
const char *e2e_smollm2(void);
const char *e2e_gemma3(void);
/* golden/tiny/NAME/model.gguf, or skipped. */
const char *e2e_tiny(const char *name);
/* Print "skipped: ..." and exit(77). */
_Noreturn void e2e_skip(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A JSON file of shared/; NULL when absent. */
json_t *e2e_json(const char *path);

/* refrain up --model MODEL --port 0 --run-dir ... FLAGS; waits for the ready line. */
void cluster_start(struct cluster *cluster, const char *model, const char *const *flags);
/* The same without --run-dir and with XDG_RUNTIME_DIR=parent. */
void cluster_start_in(struct cluster *cluster, const char *model, const char *const *flags,
                      const char *runtime_dir);
/* The same with the programs of another folder. */
void cluster_start_from(struct cluster *cluster, const char *programs, const char *model,
                        const char *const *flags);
/* The first half of cluster_start: does not wait. */
void cluster_launch(struct cluster *cluster, const char *model, const char *const *flags);
/* Idle, SIGTERM, exit code 0, nothing left. */
void cluster_stop(struct cluster *cluster);
/* As cluster_stop without asking whether it is idle, by another signal (0: it was sent). */
void cluster_end(struct cluster *cluster, int signal_number);
/* The process is expected to be gone or going: asserts that all of it is, within deadline_ms, and
 * that /dev/shm is as before. */
void cluster_assert_gone(struct cluster *cluster, uint32_t deadline_ms);
void cluster_abort(struct cluster *cluster);

/* ---- looking ---- */

/* Groups in the status, sorted by group; 0 while the router does not answer. */
size_t cluster_workers(const struct cluster *cluster, struct worker_view ret_workers[WORKERS_MAX]);
bool cluster_worker(const struct cluster *cluster, int group, struct worker_view *ret_worker);
pid_t cluster_router_pid(const struct cluster *cluster); /* 0: does not answer */
/* Wait until `count` groups are ready. */
void cluster_await_ready(const struct cluster *cluster, size_t count, uint32_t deadline_ms);
/* running = waiting = inflight = 0, no referenced block, the router's fds at the idle value. */
void cluster_assert_idle(const struct cluster *cluster);
/* Sum of the samples of /metrics whose line begins with `name` and holds `label` ("" for any);
 * *ret_samples (may be NULL) says how many. */
double cluster_metric(const struct cluster *cluster, const char *name, const char *label,
                      size_t *ret_samples);
double metric_sum(const char *text, const char *name, const char *label, size_t *ret_samples);

/* ---- programs ---- */

struct program {
    int code; /* exit code; -N: signal N; -1000: did not end within the deadline (killed) */
    char *out, *err;
    pid_t pid; /* from program_start to program_wait, else 0 */
    char folder[32];
};
/* Start BUILD_DIR/NAME (or a path with '/'). */
void program_start(struct program *ret_program, const char *const *argv);
/* To its end, or kill it then: code, out and err stand after it. */
void program_wait(struct program *program, uint32_t deadline_ms);
/* Both. */
void program_run(struct program *ret_program, uint32_t deadline_ms, const char *const *argv);
void program_done(struct program *program);
/* The Python packages that clients/ needs, once per build folder; skips without PyPI. */
void python_install_clients(void);
/* clients/SCRIPT URL MODEL KEY must end with "all passed". */
void python_assert_passes(const char *script, const struct cluster *cluster, const char *key,
                          uint32_t deadline_ms);
/* One line to an admin socket, one line back, as JSON (owned by the caller). */
json_t *admin_call(const char *socket_path, const char *line);
char *admin_text(const char *socket_path, const char *line); /* mem_free() it */

/* ---- asking: each asserts that there is an answer ---- */

/* POST, taking the reference to `body`; the answer, which must be JSON with this status (owned by
 * the caller). */
json_t *cluster_post(const struct cluster *cluster, const char *path, json_t *body, int status);
/* A line to the admin socket of rank 0 of a group (owned by the caller). */
json_t *cluster_admin(const struct cluster *cluster, int group, const char *line);
/* All invariants of a group's block pool. */
void cluster_assert_pool(const struct cluster *cluster, int group);
/* json[object][name], or json[name] where object is NULL; an integer that is there. */
uint64_t json_count(const json_t *json, const char *object, const char *name);

#endif
