/* router_side.h - a router as a worker sees it, for tests of the whole worker process: registration
 * socket, data socket, an index of the blocks that the worker's events describe.
 *
 * Every wait has a deadline; while waiting, KvEvents, Snapshots and Heartbeats are applied and
 * checked: contiguous sequence numbers, no block stored twice, digest equal to our own. */
#ifndef REFRAIN_TESTS_ROUTER_SIDE_H
#define REFRAIN_TESTS_ROUTER_SIDE_H

#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

#include "proto/base/clock.h"
#include "proto/base/json.h"
#include "proto/base/map.h"
#include "proto/base/mem.h"
#include "proto/base/process.h"
#include "proto/frame.h"
#include "proto/wire.pb-c.h"

#define MODEL SHARED_DIR "/golden/tiny/llama-gguf-f32/model.gguf"
#define GOLDEN SHARED_DIR "/golden/tiny/llama-gguf-f32/golden.json"
#define WAIT_MS 60000u /* far above what is needed: sanitizers on a busy machine */
#define TOKENS_MAX 512

/* The worker process under test. */
struct process {
    char run_dir[64];
    pid_t pid;
    int pidfd;
};

/* One router. */
struct side {
    void *context, *registration, *data;
    char path[96];      /* of the registration socket */
    struct map *blocks; /* hash -> itself */
    uint64_t kv_sequence, digest;
    bool snapshot_done;
    uint32_t beats_compared, kv_events;
    Refrain__Hello *hello;
    struct frame hello_frame;
    struct frame last; /* what side_next gave out last */
    char uuid[33];     /* "": not attached */
    uint64_t attached_ms;
};

struct answer {
    uint32_t ids[TOKENS_MAX];
    uint32_t count, cached_tokens, computed_tokens, firsts;
    Refrain__Finish finish;
    int code;
    char text[256];
    uint32_t tops; /* logprobs seen */
    float chosen;
};

/* ---- the process ---- */

static inline void process_start(struct process *process, const char *const *flags)
{
    struct errmsg err = {""};
    char *argv[32] = {(char *)BUILD_DIR "/refrain-worker", (char *)"--model=" MODEL,
                      mem_printf("--run-dir=%s", process->run_dir), (char *)"--log-level=warn",
                      (char *)"--threads=1"};
    size_t count = 5;
    while (flags != NULL && *flags != NULL)
        argv[count++] = (char *)(uintptr_t)*flags++;
    process->pid = process_spawn(argv, NULL, 0, -1, -1, SIGKILL, &err);
    mem_free(argv[2]);
    assert_true(process->pid > 0);
    process->pidfd = process_pidfd(process->pid);
    assert_true(process->pidfd >= 0);
}

static inline void process_init(struct process *process, const char *const *flags)
{
    (void)snprintf(process->run_dir, sizeof(process->run_dir), "/tmp/refrain-unit-XXXXXX");
    assert_non_null(mkdtemp(process->run_dir));
    process_start(process, flags);
}

static inline bool fd_readable_within(int fd, int timeout_ms)
{
    struct pollfd item = {.fd = fd, .events = POLLIN};
    return poll(&item, 1, timeout_ms) == 1;
}

/* Exit code, or 128 + signal. */
static inline int process_wait(struct process *process, int timeout_ms)
{
    int status = 0;
    assert_true(fd_readable_within(process->pidfd, timeout_ms));
    assert_int_equal(waitpid(process->pid, &status, 0), process->pid);
    (void)close(process->pidfd);
    process->pid = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static inline uint32_t files_in(const char *path)
{
    uint32_t count = 0;
    DIR *folder = opendir(path);
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        if (entry->d_name[0] == '.')
            continue;
        print_message("left in %s: %s\n", path, entry->d_name);
        count++;
    }
    (void)closedir(folder);
    return count;
}

/* SIGTERM, exit code 0, nothing left in the run dir. The router's side is closed before. */
static inline void process_stop(struct process *process)
{
    assert_int_equal(kill(process->pid, SIGTERM), 0);
    assert_int_equal(process_wait(process, WAIT_MS), 0);
    assert_int_equal(files_in(process->run_dir), 0);
    assert_int_equal(rmdir(process->run_dir), 0);
}

/* ---- the router ---- */

/* At RUNDIR/`name`, which the worker's --router-endpoint names (router.sock by default). */
static inline void side_open_at(struct side *side, const struct process *process, const char *name)
{
    char endpoint[112];
    int zero = 0;
    memset(side, 0, sizeof(*side));
    (void)snprintf(side->path, sizeof(side->path), "%.60s/%.20s", process->run_dir, name);
    (void)snprintf(endpoint, sizeof(endpoint), "ipc://%s", side->path);
    side->blocks = map_new(0);
    side->context = zmq_ctx_new();
    side->registration = zmq_socket(side->context, ZMQ_ROUTER);
    side->data = zmq_socket(side->context, ZMQ_DEALER);
    assert_int_equal(zmq_setsockopt(side->registration, ZMQ_LINGER, &zero, sizeof(zero)), 0);
    assert_int_equal(zmq_setsockopt(side->data, ZMQ_LINGER, &zero, sizeof(zero)), 0);
    assert_int_equal(zmq_bind(side->registration, endpoint), 0);
}

static inline void side_open(struct side *side, const struct process *process)
{
    side_open_at(side, process, "router.sock");
}

static inline void side_close(struct side *side)
{
    frame_done(&side->last);
    frame_done(&side->hello_frame);
    (void)zmq_close(side->registration);
    (void)zmq_close(side->data);
    (void)zmq_ctx_term(side->context);
    (void)unlink(side->path); /* ZeroMQ leaves it */
    map_free(side->blocks);
}

static inline struct block_hash_bytes {
    uint64_t low, high;
} hash_at(const ProtobufCBinaryData *data, size_t i)
{
    struct block_hash_bytes hash;
    memcpy(&hash, data->data + 16 * i, 16);
    return hash;
}

static inline void index_add(struct side *side, struct block_hash_bytes hash)
{
    void *old = NULL;
    assert_int_equal(map_set(side->blocks, &hash, sizeof(hash), side, &old), 0);
    assert_null(old); /* stored twice */
    side->digest ^= hash.low;
}

static inline void apply_kv_events(struct side *side, const Refrain__KvEvents *events)
{
    assert_true(side->snapshot_done);
    assert_int_equal(events->sequence, side->kv_sequence + 1);
    side->kv_sequence++;
    side->kv_events++;
    for (size_t run = 0; run < events->n_stored; run++) {
        assert_int_equal(events->stored[run]->parent.len, 16);
        for (size_t i = 0; i < events->stored[run]->hashes.len / 16; i++)
            index_add(side, hash_at(&events->stored[run]->hashes, i));
    }
    for (size_t i = 0; i < events->removed.len / 16; i++) {
        struct block_hash_bytes hash = hash_at(&events->removed, i);
        assert_non_null(map_remove(side->blocks, &hash, sizeof(hash)));
        side->digest ^= hash.low;
    }
}

static inline void apply_snapshot(struct side *side, const Refrain__Snapshot *snapshot)
{
    if (snapshot->first) {
        map_free(side->blocks);
        side->blocks = map_new(0);
        side->digest = 0;
    }
    for (size_t i = 0; i < snapshot->hashes.len / 16; i++)
        index_add(side, hash_at(&snapshot->hashes, i));
    side->kv_sequence = snapshot->barrier;
    side->snapshot_done = snapshot->last;
}

static inline void apply_heartbeat(struct side *side, const Refrain__Heartbeat *beat)
{
    if (!side->snapshot_done)
        return;
    assert_int_equal(beat->kv_sequence, side->kv_sequence); /* one ordered pipe */
    assert_int_equal(beat->kv_blocks, map_count(side->blocks));
    assert_int_equal(beat->kv_digest, side->digest);
    side->beats_compared++;
}

static inline void side_send(struct side *side, enum frame_kind kind,
                             const ProtobufCMessage *message)
{
    assert_int_equal(frame_send(side->data, NULL, kind, message), 0);
}

static inline void side_send_attach(struct side *side, const char *uuid)
{
    Refrain__Attach attach = REFRAIN__ATTACH__INIT;
    attach.router_uuid = (char *)(uintptr_t)uuid;
    side_send(side, FRAME_ATTACH, &attach.base);
    (void)snprintf(side->uuid, sizeof(side->uuid), "%s", uuid);
    side->attached_ms = clock_ms();
}

/* As a router does: else the worker lets go after 5 s. */
static inline void side_keep_alive(struct side *side)
{
    char uuid[33];
    memcpy(uuid, side->uuid, sizeof(uuid));
    if (uuid[0] != '\0' && clock_ms() > side->attached_ms + 1000)
        side_send_attach(side, uuid);
}

/* The next message; book-keeping done. It stays valid until the next call. */
static inline const struct frame *side_next(struct side *side)
{
    zmq_pollitem_t item = {.socket = side->data, .events = ZMQ_POLLIN};
    struct errmsg err = {""};
    frame_done(&side->last);
    side_keep_alive(side);
    assert_int_equal(zmq_poll(&item, 1, WAIT_MS), 1);
    assert_int_equal(frame_recv(side->data, 0, &side->last, &err), 0);
    switch (side->last.kind) {
    case FRAME_KV_EVENTS:
        apply_kv_events(side, (const Refrain__KvEvents *)side->last.message);
        break;
    case FRAME_SNAPSHOT:
        apply_snapshot(side, (const Refrain__Snapshot *)side->last.message);
        break;
    case FRAME_HEARTBEAT:
        apply_heartbeat(side, (const Refrain__Heartbeat *)side->last.message);
        break;
    default:
        break;
    }
    return &side->last;
}

/* Skip until one of this kind. */
static inline const ProtobufCMessage *side_wait(struct side *side, enum frame_kind kind)
{
    const struct frame *frame = side_next(side);
    while (frame->kind != kind)
        frame = side_next(side);
    return frame->message;
}

/* Announce -> connect -> Attach -> Hello -> Snapshot. */
static inline void side_attach(struct side *side)
{
    zmq_pollitem_t item = {.socket = side->registration, .events = ZMQ_POLLIN};
    struct errmsg err = {""};
    struct frame frame;
    assert_int_equal(zmq_poll(&item, 1, WAIT_MS), 1);
    assert_int_equal(frame_recv(side->registration, 1, &frame, &err), 0);
    assert_int_equal(frame.kind, FRAME_ANNOUNCE);
    const Refrain__Announce *announce = (const Refrain__Announce *)frame.message;
    assert_int_equal(strlen(announce->worker_uuid), 32);
    assert_int_equal(zmq_connect(side->data, announce->data_endpoint), 0);
    frame_done(&frame);

    side_send_attach(side, "0123456789abcdef0123456789abcdef");
    (void)side_wait(side, FRAME_HELLO);
    side->hello_frame = side->last;
    side->last.message = NULL; /* kept */
    side->hello = (Refrain__Hello *)side->hello_frame.message;
    while (!side->snapshot_done)
        (void)side_wait(side, FRAME_SNAPSHOT);
}

/* ---- requests ---- */

static inline void sampling_greedy(Refrain__Sampling *sampling, uint32_t tokens_max)
{
    refrain__sampling__init(sampling);
    sampling->top_p = 1;
    sampling->repetition_penalty = 1;
    sampling->tokens_max = tokens_max;
    sampling->ignore_eos = true;
}

static inline void side_submit_with(struct side *side, const char *id, const uint32_t *ids,
                                    size_t count, Refrain__Sampling *sampling)
{
    Refrain__Submit submit = REFRAIN__SUBMIT__INIT;
    submit.request_id = (char *)(uintptr_t)id;
    submit.ids = (ProtobufCBinaryData){count * 4, (uint8_t *)(uintptr_t)ids};
    submit.sampling = sampling;
    side_keep_alive(side); /* attaches again when another test took long */
    side_send(side, FRAME_SUBMIT, &submit.base);
}

static inline void side_submit(struct side *side, const char *id, const uint32_t *ids, size_t count,
                               uint32_t tokens_max)
{
    Refrain__Sampling sampling;
    sampling_greedy(&sampling, tokens_max);
    side_submit_with(side, id, ids, count, &sampling);
}

static inline void take_item(struct answer *answer, const Refrain__StepItem *item)
{
    size_t count = 0;
    assert_int_equal(answer->finish, 0); /* nothing comes after the end */
    assert_int_equal(frame_unpack_ids(&item->ids, answer->ids + answer->count,
                                      TOKENS_MAX - answer->count, &count),
                     0);
    answer->count += (uint32_t)count;
    if (item->first) {
        answer->firsts++;
        answer->cached_tokens = item->cached_tokens;
        answer->computed_tokens = item->computed_tokens;
    }
    if (item->n_logprobs > 0) {
        answer->tops += (uint32_t)item->logprobs[0]->n_top;
        answer->chosen = item->logprobs[0]->chosen;
    }
    answer->finish = item->finish;
    answer->code = item->error_code;
    (void)snprintf(answer->text, sizeof(answer->text), "%s", item->error_text);
}

/* Items of `count` requests until all have ended, or until each has `tokens` (0: the end). */
static inline void side_collect(struct side *side, const char *const *ids, struct answer *answers,
                                size_t count, uint32_t tokens)
{
    size_t done = 0;
    memset(answers, 0, count * sizeof(*answers));
    while (done < count) {
        const Refrain__StepOutput *output =
            (const Refrain__StepOutput *)side_wait(side, FRAME_STEP_OUTPUT);
        for (size_t i = 0; i < output->n_items; i++) {
            for (size_t a = 0; a < count; a++) {
                if (strcmp(ids[a], output->items[i]->request_id) == 0)
                    take_item(&answers[a], output->items[i]);
            }
        }
        done = 0;
        for (size_t a = 0; a < count; a++)
            done += answers[a].finish != 0 || (tokens > 0 && answers[a].count >= tokens);
    }
}

static inline void side_ask(struct side *side, const char *id, const uint32_t *ids, size_t count,
                            uint32_t tokens_max, struct answer *ret_answer)
{
    side_submit(side, id, ids, count, tokens_max);
    side_collect(side, &id, ret_answer, 1, 0);
}

/* ---- golden ---- */

struct golden {
    json_t *root;
};

static inline bool golden_open(struct golden *golden)
{
    golden->root = json_load_file(GOLDEN, 0, NULL);
    return golden->root != NULL && access(MODEL, R_OK) == 0;
}

/* prompts[prompt].name as u32. */
static inline size_t golden_ids(const struct golden *golden, size_t prompt, const char *name,
                                uint32_t *ret_ids)
{
    const json_t *list =
        json_object_get(json_array_get(json_object_get(golden->root, "prompts"), prompt), name);
    for (size_t i = 0; i < json_array_size(list); i++)
        ret_ids[i] = (uint32_t)json_integer_value(json_array_get(list, i));
    return json_array_size(list);
}

/* All three prompts at once: the answers are the golden ones. */
/* Tokens of prompts[prompt] up to the first that is ahead of the second best by less than what bf16
 * rounding may turn (golden/README.md). */
static inline size_t golden_firm(const struct golden *golden, size_t prompt)
{
    const json_t *list = json_object_get(
        json_array_get(json_object_get(golden->root, "prompts"), prompt), "greedy_margin");
    size_t firm = 0;
    while (firm < json_array_size(list) && json_real_value(json_array_get(list, firm)) >= 0.05)
        firm++;
    return firm;
}

static inline void assert_golden_answers(struct side *side, const struct golden *golden)
{
    static const char *const names[3] = {"g0", "g1", "g2"};
    uint32_t ids[TOKENS_MAX];
    struct answer answers[3];
    size_t firm = 0;
    for (size_t p = 0; p < 3; p++)
        side_submit(side, names[p], ids, golden_ids(golden, p, "ids", ids), 16);
    side_collect(side, names, answers, 3, 0);
    for (size_t p = 0; p < 3; p++) {
        assert_int_equal(golden_ids(golden, p, "greedy", ids), 16);
        assert_int_equal(answers[p].finish, REFRAIN__FINISH__FINISH_LENGTH);
        assert_int_equal(answers[p].count, 16);
        assert_int_equal(answers[p].firsts, 1);
        assert_memory_equal(answers[p].ids, ids, golden_firm(golden, p) * sizeof(ids[0]));
        firm += golden_firm(golden, p);
    }
    assert_true(firm > 16);
}

#endif
