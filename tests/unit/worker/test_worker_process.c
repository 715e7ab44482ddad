/* test_worker_process.c - the whole refrain-worker with one rank, on the tiny llama, over its real
 * sockets. One process serves all tests but the last ones; each test leaves it idle. */
#include "tests/unit/worker/router_side.h"

#include "proto/grammar/grammar.h"

#include <math.h>
#include <sys/socket.h>
#include <sys/un.h>

struct fixture {
    struct process process;
    struct side side;
    struct golden golden;
    uint32_t prompt[TOKENS_MAX]; /* the golden prompt of 130 tokens */
    size_t prompt_count;
};

static int setup(void **state)
{
    struct fixture *f = mem_zalloc(sizeof(*f));
    if (!golden_open(&f->golden)) {
        print_message("skipped: %s is not there\n", MODEL);
        _exit(77);
    }
    f->prompt_count = golden_ids(&f->golden, 2, "ids", f->prompt);
    process_init(&f->process, NULL);
    side_open(&f->side, &f->process);
    side_attach(&f->side);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    side_close(&f->side);
    process_stop(&f->process);
    json_decref(f->golden.root);
    mem_free(f);
    return 0;
}

/* One command to the admin socket of `rank`, its answer as JSON. */
static json_t *admin(const struct process *process, uint32_t rank, const char *command)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char text[65536];
    size_t bytes = 0;
    json_t *value = NULL;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    (void)snprintf(address.sun_path, sizeof(address.sun_path),
                   rank == 0 ? "%.60s/worker-0.admin.sock" : "%.60s/worker-0-rank-%u.admin.sock",
                   process->run_dir, rank);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(send(fd, command, strlen(command), 0), (ssize_t)strlen(command));
    do {
        assert_true(fd_readable_within(fd, WAIT_MS));
        ssize_t n = recv(fd, text + bytes, sizeof(text) - bytes, 0);
        assert_true(n > 0);
        bytes += (size_t)n;
    } while (text[bytes - 1] != '\n');
    (void)close(fd);
    assert_int_equal(json_parse(text, bytes - 1, sizeof(text), &value, NULL), 0);
    return value;
}

static void test_hello_says_what_runs(void **state)
{
    struct fixture *f = *state;
    const Refrain__Hello *hello = f->side.hello;
    assert_int_equal(hello->group, 0);
    assert_int_equal(hello->ranks, 1);
    assert_int_equal(hello->n_pids, 1);
    assert_int_equal(hello->pids[0], f->process.pid);
    assert_int_equal(hello->block_tokens, 16);
    assert_int_equal(hello->sequences_max, 256);
    assert_int_equal(hello->context_tokens_max, 512);
    assert_true(hello->prefix_caching);
    assert_string_equal(hello->kv_cache_dtype, "auto");
    assert_true(hello->card.len > 1000);
    assert_true(hello->prefill_seconds_per_token > 0);
    assert_int_equal(access(hello->admin_socket, R_OK), 0);
}

static void test_greedy_answers_are_the_golden_ones(void **state)
{
    struct fixture *f = *state;
    assert_golden_answers(&f->side, &f->golden);
}

static void test_the_same_prompt_again_is_reused_and_answered_alike(void **state)
{
    struct fixture *f = *state;
    struct answer first, again;
    side_ask(&f->side, "a1", f->prompt, f->prompt_count, 16, &first);
    side_ask(&f->side, "a2", f->prompt, f->prompt_count, 16, &again);
    assert_int_equal(f->prompt_count, 130);
    assert_true(again.cached_tokens >= 128); /* 8 full blocks */
    assert_true(again.cached_tokens < 130);
    assert_int_equal(again.cached_tokens + again.computed_tokens, 130);
    assert_memory_equal(first.ids, again.ids, 16 * sizeof(first.ids[0]));
    assert_true(map_count(f->side.blocks) >= 9); /* 130 + 15 computed tokens: 9 full blocks */
}

static void test_heartbeats_agree_with_the_events(void **state)
{
    struct fixture *f = *state;
    f->side.beats_compared = 0;
    while (f->side.beats_compared < 5)
        (void)side_next(&f->side);
    assert_true(f->side.kv_events > 0);
    const Refrain__Heartbeat *beat =
        (const Refrain__Heartbeat *)side_wait(&f->side, FRAME_HEARTBEAT);
    while (beat->n_metrics == 0)
        beat = (const Refrain__Heartbeat *)side_wait(&f->side, FRAME_HEARTBEAT);
    assert_int_equal(beat->n_metrics, 1);
    assert_true(beat->metrics[0]->n_values > 50);
    assert_int_equal(beat->running, 0);
}

static void test_a_snapshot_equals_what_the_events_made(void **state)
{
    struct fixture *f = *state;
    Refrain__SnapshotRequest request = REFRAIN__SNAPSHOT_REQUEST__INIT;
    uint64_t digest = f->side.digest;
    size_t blocks = map_count(f->side.blocks);
    side_send(&f->side, FRAME_SNAPSHOT_REQUEST, &request.base);
    (void)side_wait(&f->side, FRAME_SNAPSHOT);
    assert_int_equal(f->side.digest, digest);
    assert_int_equal(map_count(f->side.blocks), blocks);
}

static void test_reset_removes_every_block(void **state)
{
    struct fixture *f = *state;
    Refrain__ResetPrefixCache reset = REFRAIN__RESET_PREFIX_CACHE__INIT;
    struct answer answer;
    side_ask(&f->side, "r1", f->prompt, f->prompt_count, 2, &answer);
    side_send(&f->side, FRAME_RESET_PREFIX_CACHE, &reset.base);
    while (map_count(f->side.blocks) > 0)
        (void)side_wait(&f->side, FRAME_KV_EVENTS);
    assert_int_equal(f->side.digest, 0);
    side_ask(&f->side, "r2", f->prompt, f->prompt_count, 2, &answer);
    assert_int_equal(answer.cached_tokens, 0);
    assert_int_equal(answer.computed_tokens, 130);
}

static void test_cancel_ends_within_a_step(void **state)
{
    struct fixture *f = *state;
    static const char *const id = "c1";
    Refrain__Cancel cancel = REFRAIN__CANCEL__INIT;
    struct answer answer, rest;
    side_submit(&f->side, id, f->prompt, 7, 500);
    side_collect(&f->side, &id, &answer, 1, 1);
    cancel.request_id = (char *)(uintptr_t)id;
    side_send(&f->side, FRAME_CANCEL, &cancel.base);
    side_collect(&f->side, &id, &rest, 1, 0);
    assert_int_equal(rest.finish, REFRAIN__FINISH__FINISH_CANCELLED);
    assert_true(answer.count + rest.count < 500);
    cancel.request_id = (char *)(uintptr_t) "never-seen";
    side_send(&f->side, FRAME_CANCEL, &cancel.base); /* no answer, no harm */
}

static void submit_guided(struct fixture *f, const char *id, const char *regex, size_t bytes)
{
    Refrain__Sampling sampling;
    sampling_greedy(&sampling, 4);
    sampling.grammar_kind = GRAMMAR_REGEX;
    sampling.grammar_text = (ProtobufCBinaryData){bytes, (uint8_t *)(uintptr_t)regex};
    side_submit_with(&f->side, id, f->prompt, 7, &sampling);
}

/* A large one is waited for, may be cancelled meanwhile, and is known afterwards; what is none is
 * refused, in order behind it; and others are answered. */
static void test_grammars_are_waited_for_cancelled_and_refused(void **state)
{
    struct fixture *f = *state;
    static const char *const ids[] = {"w2", "w3", "w4"};
    static char large[4 * 4000];
    Refrain__Cancel cancel = REFRAIN__CANCEL__INIT;
    struct answer answers[3];

    for (size_t i = 0; i < sizeof(large); i += 4)
        memcpy(large + i, "[^x]", 4);
    submit_guided(f, "w1", large, sizeof(large));
    cancel.request_id = (char *)(uintptr_t) "w1";
    side_send(&f->side, FRAME_CANCEL, &cancel.base);
    submit_guided(f, "w2", large, sizeof(large));
    submit_guided(f, "w3", "a(", 2);
    side_submit(&f->side, "w4", f->prompt, 7, 4);
    side_collect(&f->side, ids, answers, 3, 0);
    assert_int_equal(answers[0].finish, REFRAIN__FINISH__FINISH_LENGTH);
    assert_int_equal(answers[0].count, 4);
    assert_int_equal(answers[1].finish, REFRAIN__FINISH__FINISH_ERROR);
    assert_int_equal(answers[1].code, 400);
    assert_non_null(strstr(answers[1].text, "a group ( has no )"));
    assert_int_equal(answers[2].count, 4);
}

static void test_bad_requests_get_an_error_item_with_numbers(void **state)
{
    struct fixture *f = *state;
    Refrain__Sampling sampling;
    static const char *const id = "e1";
    struct answer answer;
    uint32_t ids[600] = {1, 2, 3};

    ids[1] = 320;
    side_ask(&f->side, id, ids, 3, 4, &answer);
    assert_int_equal(answer.code, 400);
    assert_string_equal(answer.text, "token id 320 at position 1; the vocabulary has 320");
    side_ask(&f->side, id, ids, 0, 4, &answer);
    assert_string_equal(answer.text, "the prompt has no tokens");
    side_ask(&f->side, id, ids, 600, 4, &answer);
    assert_int_equal(answer.code, 400);
    assert_non_null(strstr(answer.text, "600"));
    assert_non_null(strstr(answer.text, "512"));
    ids[1] = 2;
    side_ask(&f->side, id, ids, 512, 4, &answer); /* no room for one new token */
    assert_int_equal(answer.code, 400);
    assert_non_null(strstr(answer.text, "512"));
    side_ask(&f->side, id, ids, 3, 0, &answer);
    assert_int_equal(answer.code, 400);

    sampling_greedy(&sampling, 4);
    sampling.temperature = NAN;
    side_submit_with(&f->side, id, ids, 3, &sampling);
    side_collect(&f->side, &id, &answer, 1, 0);
    assert_int_equal(answer.finish, REFRAIN__FINISH__FINISH_ERROR);
    assert_int_equal(answer.code, 400);
    assert_non_null(strstr(answer.text, "temperature"));
}

static void test_a_running_id_again_is_answered_with_error_and_goes_on(void **state)
{
    struct fixture *f = *state;
    static const char *const id = "d1";
    struct answer answer;
    side_submit(&f->side, id, f->prompt, 7, 60);
    side_submit(&f->side, id, f->prompt, 7, 60);
    const Refrain__Error *error = NULL;
    memset(&answer, 0, sizeof(answer));
    while (answer.finish == 0 || error == NULL) {
        const struct frame *frame = side_next(&f->side);
        if (frame->kind == FRAME_ERROR) {
            error = (const Refrain__Error *)frame->message;
            assert_int_equal(error->code, -EEXIST);
            assert_string_equal(error->request_id, id);
        } else if (frame->kind == FRAME_STEP_OUTPUT) {
            const Refrain__StepOutput *output = (const Refrain__StepOutput *)frame->message;
            for (size_t i = 0; i < output->n_items; i++)
                take_item(&answer, output->items[i]);
        }
    }
    assert_int_equal(answer.count, 60);
}

static void test_stop_id_seed_and_logprobs(void **state)
{
    struct fixture *f = *state;
    static const char *const ids[2] = {"s1", "s2"};
    Refrain__Sampling sampling;
    struct answer answers[2];
    uint32_t greedy[16], stop;
    (void)golden_ids(&f->golden, 0, "greedy", greedy);
    uint32_t prompt[8];
    size_t count = golden_ids(&f->golden, 0, "ids", prompt);

    sampling_greedy(&sampling, 16);
    stop = greedy[3];
    uint32_t first = 0;
    while (greedy[first] != stop)
        first++;
    sampling.n_stop_ids = 1;
    sampling.stop_ids = &stop;
    sampling.logprobs = 6;
    side_submit_with(&f->side, ids[0], prompt, count, &sampling);
    side_collect(&f->side, ids, answers, 1, 0);
    assert_int_equal(answers[0].finish, REFRAIN__FINISH__FINISH_STOP);
    assert_int_equal(answers[0].count, first + 1); /* the stop id is reported */
    assert_int_equal(answers[0].tops, 5 * answers[0].count);
    assert_true(answers[0].chosen < 0 && answers[0].chosen > -20);

    sampling_greedy(&sampling, 16);
    sampling.temperature = 1;
    sampling.seed = 42;
    side_submit_with(&f->side, ids[0], prompt, count, &sampling);
    side_submit_with(&f->side, ids[1], prompt, count, &sampling);
    side_collect(&f->side, ids, answers, 2, 0);
    assert_int_equal(answers[0].count, 16);
    assert_memory_equal(answers[0].ids, answers[1].ids, 16 * sizeof(uint32_t));
}

static void test_drain_refuses_new_requests_until_undone(void **state)
{
    struct fixture *f = *state;
    Refrain__Drain drain = REFRAIN__DRAIN__INIT;
    struct answer answer;
    side_send(&f->side, FRAME_DRAIN, &drain.base);
    side_ask(&f->side, "n1", f->prompt, 7, 2, &answer);
    assert_int_equal(answer.code, 503);
    while (!((const Refrain__Heartbeat *)side_wait(&f->side, FRAME_HEARTBEAT))->draining)
        ;
    drain.undo = true;
    side_send(&f->side, FRAME_DRAIN, &drain.base);
    side_ask(&f->side, "n2", f->prompt, 7, 2, &answer);
    assert_int_equal(answer.finish, REFRAIN__FINISH__FINISH_LENGTH);
}

static void assert_error(struct side *side, uint32_t kind, int code)
{
    const Refrain__Error *error = (const Refrain__Error *)side_wait(side, FRAME_ERROR);
    assert_int_equal(error->kind, kind);
    assert_int_equal(error->code, code);
}

static void test_bad_frames_are_answered_and_change_nothing(void **state)
{
    struct fixture *f = *state;
    unsigned char header[FRAME_HEADER_BYTES];
    Refrain__Hello hello = REFRAIN__HELLO__INIT;
    Refrain__Submit submit = REFRAIN__SUBMIT__INIT;
    struct answer answer;
    void *data = f->side.data;

    assert_int_equal(zmq_send(data, "x", 1, 0), 1);
    assert_error(&f->side, 0, -EPROTO);
    frame_encode_header(FRAME_SUBMIT, 3, header);
    assert_int_equal(zmq_send(data, header, 16, ZMQ_SNDMORE), 16);
    assert_int_equal(zmq_send(data, "\xff\xff\xff", 3, 0), 3);
    assert_error(&f->side, FRAME_SUBMIT, -EPROTO);
    header[6] = 99;
    assert_int_equal(zmq_send(data, header, 16, ZMQ_SNDMORE), 16);
    assert_int_equal(zmq_send(data, "", 0, 0), 0);
    assert_error(&f->side, 0, -ENOSYS);
    side_send(&f->side, FRAME_HELLO, &hello.base);
    assert_error(&f->side, FRAME_HELLO, -ENOSYS);
    submit.request_id = (char *)(uintptr_t) "a \"b\"";
    side_send(&f->side, FRAME_SUBMIT, &submit.base);
    assert_error(&f->side, FRAME_SUBMIT, -EINVAL);
    side_ask(&f->side, "f1", f->prompt, 7, 2, &answer);
    assert_int_equal(answer.count, 2);
}

static void test_a_stranger_must_attach_first(void **state)
{
    struct fixture *f = *state;
    struct side other;
    Refrain__Drain drain = REFRAIN__DRAIN__INIT;
    side_open_at(&other, &f->process, "other.sock");
    char *endpoint = mem_printf("ipc://%s/worker-0.sock", f->process.run_dir);
    assert_int_equal(zmq_connect(other.data, endpoint), 0);
    mem_free(endpoint);
    side_send(&other, FRAME_DRAIN, &drain.base);
    assert_error(&other, FRAME_DRAIN, -ENOTCONN);
    side_close(&other);
}

static void test_two_routers_may_use_one_request_id(void **state)
{
    struct fixture *f = *state;
    static const char *const id = "same";
    struct side other;
    struct answer mine, its;
    side_open_at(&other, &f->process, "other.sock");
    char *endpoint = mem_printf("ipc://%s/worker-0.sock", f->process.run_dir);
    assert_int_equal(zmq_connect(other.data, endpoint), 0);
    mem_free(endpoint);
    side_send_attach(&other, "router-two");
    while (!other.snapshot_done)
        (void)side_wait(&other, FRAME_SNAPSHOT);
    assert_int_equal(other.digest, f->side.digest);
    side_submit(&f->side, id, f->prompt, 7, 30);
    side_submit(&other, id, f->prompt, 33, 20);
    side_collect(&f->side, &id, &mine, 1, 0);
    side_collect(&other, &id, &its, 1, 0);
    assert_int_equal(mine.count, 30);
    assert_int_equal(its.count, 20);

    /* The other one goes in the middle of an answer: its sequence ends, mine go on. */
    side_submit(&other, id, f->prompt, 7, 480);
    side_collect(&other, &id, &its, 1, 1);
    side_close(&other);
    while (((const Refrain__Heartbeat *)side_wait(&f->side, FRAME_HEARTBEAT))->running > 0)
        ;
    side_ask(&f->side, id, f->prompt, 7, 5, &mine);
    assert_int_equal(mine.count, 5);
}

static void test_a_router_is_kept_when_the_worker_was_stopped_for_long(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(kill(f->process.pid, SIGSTOP), 0);
    (void)sleep(6); /* longer than the silence after which a router is forgotten */
    assert_int_equal(kill(f->process.pid, SIGCONT), 0);
    f->side.attached_ms = clock_ms(); /* no Attach before it: one that was let go gets -ENOTCONN */
    side_submit(&f->side, "p1", f->prompt, 7, 1);
    while (side_next(&f->side)->kind != FRAME_STEP_OUTPUT)
        assert_int_not_equal(f->side.last.kind, FRAME_ERROR);
}

static void test_admin_socket_shows_and_cancels(void **state)
{
    struct fixture *f = *state;
    static const char *const id = "adm-1";
    struct answer answer;
    const struct process *process = &f->process;
    side_submit(&f->side, id, f->prompt, 33, 470);
    side_collect(&f->side, &id, &answer, 1, 1);
    json_t *shown = admin(process, 0, "show sequences\n");
    const json_t *list = json_object_get(shown, "sequences");
    assert_int_equal(json_array_size(list), 1);
    assert_string_equal(json_string_value(json_object_get(json_array_get(list, 0), "id")), id);
    json_decref(shown);
    json_t *cancelled = admin(process, 0, "cancel adm-1\n");
    assert_int_equal(json_integer_value(json_object_get(cancelled, "cancelled")), 1);
    json_decref(cancelled);
    side_collect(&f->side, &id, &answer, 1, 0);
    assert_int_equal(answer.finish, REFRAIN__FINISH__FINISH_CANCELLED);

    json_t *info = admin(process, 0, "show info\n");
    assert_int_equal(json_integer_value(json_object_get(info, "pid")), process->pid);
    assert_int_equal(json_integer_value(json_object_get(info, "routers")), 1);
    assert_string_equal(json_string_value(json_object_get(info, "kv_cache_dtype")), "bfloat16");
    json_decref(info);
    json_t *checked = admin(process, 0, "check\n");
    assert_string_equal(json_string_value(json_object_get(checked, "check")), "ok");
    json_decref(checked);
    json_t *unknown = admin(process, 0, "show\n");
    assert_non_null(json_object_get(unknown, "error"));
    json_decref(unknown);
}

static void test_many_requests_at_once_all_end_and_no_block_is_lost(void **state)
{
    struct fixture *f = *state;
    const char *ids[64];
    struct answer *answers = mem_calloc(64, sizeof(*answers));
    for (size_t i = 0; i < 64; i++) {
        ids[i] = mem_printf("m%zu", i);
        side_submit(&f->side, ids[i], f->prompt + i % 8, 5 + i, 8);
    }
    side_collect(&f->side, ids, answers, 64, 0);
    for (size_t i = 0; i < 64; i++) {
        assert_int_equal(answers[i].count, 8);
        mem_free((void *)(uintptr_t)ids[i]);
    }
    mem_free(answers);
    const Refrain__Heartbeat *beat =
        (const Refrain__Heartbeat *)side_wait(&f->side, FRAME_HEARTBEAT);
    while (beat->running + beat->waiting > 0)
        beat = (const Refrain__Heartbeat *)side_wait(&f->side, FRAME_HEARTBEAT);
    assert_int_equal(beat->blocks_referenced, 0);
    json_decref(admin(&f->process, 0, "check\n"));
}

static void test_stop_ends_running_requests_with_503(void **state)
{
    struct process process;
    struct side side;
    static const char *const id = "late";
    struct answer answer;
    struct fixture *f = *state;
    process_init(&process, NULL);
    side_open(&side, &process);
    side_attach(&side);
    side_submit(&side, id, f->prompt, 7, 500);
    side_collect(&side, &id, &answer, 1, 1);
    assert_int_equal(kill(process.pid, SIGTERM), 0);
    side_collect(&side, &id, &answer, 1, 0);
    assert_int_equal(answer.finish, REFRAIN__FINISH__FINISH_ERROR);
    assert_int_equal(answer.code, 503);
    side_close(&side);
    assert_int_equal(process_wait(&process, WAIT_MS), 0);
    assert_int_equal(files_in(process.run_dir), 0);
    assert_int_equal(rmdir(process.run_dir), 0);
}

static void test_second_worker_of_a_group_is_refused_and_a_killed_one_replaced(void **state)
{
    struct process process, second;
    struct side side;
    (void)state;
    process_init(&process, NULL);
    side_open(&side, &process);
    side_attach(&side);
    memcpy(second.run_dir, process.run_dir, sizeof(second.run_dir));
    process_start(&second, NULL);
    assert_int_equal(process_wait(&second, WAIT_MS), 1);
    assert_int_equal(kill(process.pid, SIGKILL), 0);
    assert_int_equal(process_wait(&process, WAIT_MS), 128 + SIGKILL);
    side_close(&side);
    process_start(&second, NULL); /* over the sockets that the killed one left */
    side_open(&side, &second);
    side_attach(&side);
    side_close(&side);
    process_stop(&second);
}

static void test_without_prefix_caching_nothing_is_reused(void **state)
{
    static const char *const flags[] = {"--no-enable-prefix-caching", NULL};
    struct fixture *f = *state;
    struct process process;
    struct side side;
    struct answer answer;
    process_init(&process, flags);
    side_open(&side, &process);
    side_attach(&side);
    assert_false(side.hello->prefix_caching);
    side_ask(&side, "1", f->prompt, f->prompt_count, 4, &answer);
    side_ask(&side, "2", f->prompt, f->prompt_count, 4, &answer);
    assert_int_equal(answer.cached_tokens, 0);
    assert_int_equal(side.kv_events, 0);
    side_close(&side);
    process_stop(&process);
}

/* 40 blocks for 12 requests of 10: evictions, preemptions, and the same tokens. */
static void test_answers_do_not_change_when_blocks_are_short(void **state)
{
    static const char *const flags[] = {"--kv-cache-memory=160KiB", "--max-num-batched-tokens=64",
                                        "--max-num-seqs=64", NULL};
    struct fixture *f = *state;
    struct process process;
    struct side side;
    const char *ids[12];
    struct answer *answers = mem_calloc(12, sizeof(*answers)), alone;
    process_init(&process, flags);
    side_open(&side, &process);
    side_attach(&side);
    assert_int_equal(side.hello->blocks_total, 40);
    for (size_t i = 0; i < 12; i++) {
        ids[i] = mem_printf("p%zu", i);
        side_submit(&side, ids[i], f->prompt + i, 100, 60);
    }
    side_collect(&side, ids, answers, 12, 0);
    json_t *stats = admin(&process, 0, "show stats\n");
    assert_true(json_integer_value(json_object_get(stats, "preemptions")) > 0);
    assert_true(json_integer_value(json_object_get(stats, "evictions")) > 0);
    json_decref(stats);
    json_decref(admin(&process, 0, "check\n"));
    side.beats_compared = 0;
    while (side.beats_compared < 2)
        (void)side_next(&side);
    for (size_t i = 0; i < 12; i++) {
        side_ask(&f->side, ids[i], f->prompt + i, 100, 60, &alone); /* in the big pool */
        assert_int_equal(answers[i].count, 60);
        assert_memory_equal(answers[i].ids, alone.ids, 60 * sizeof(alone.ids[0]));
        mem_free((void *)(uintptr_t)ids[i]);
    }
    mem_free(answers);
    side_close(&side);
    process_stop(&process);
}

static void test_a_full_queue_and_a_passed_deadline_are_told(void **state)
{
    static const char *const flags[] = {"--max-num-seqs=1", "--waiting-max=2", NULL};
    static const char *const ids[] = {"w0", "w1", "w2", "w3", "w4", "w5"};
    struct fixture *f = *state;
    struct process process;
    struct side side;
    struct answer answers[6];
    uint32_t full = 0;
    process_init(&process, flags);
    side_open(&side, &process);
    side_attach(&side);
    for (size_t i = 0; i < 6; i++)
        side_submit(&side, ids[i], f->prompt, 7, 40);
    side_collect(&side, ids, answers, 6, 0);
    for (size_t i = 0; i < 6; i++) {
        assert_true(answers[i].count == 40 || answers[i].code == 429);
        full += answers[i].code == 429;
    }
    assert_in_range(full, 1, 4); /* 1 runs, 2 wait; more when it had not been read yet */

    Refrain__Submit submit = REFRAIN__SUBMIT__INIT;
    Refrain__Sampling sampling;
    sampling_greedy(&sampling, 480);
    submit.request_id = (char *)(uintptr_t)ids[0];
    submit.ids = (ProtobufCBinaryData){28, (uint8_t *)f->prompt};
    submit.sampling = &sampling;
    submit.deadline_ms = 5;
    side_send(&side, FRAME_SUBMIT, &submit.base);
    side_collect(&side, ids, answers, 1, 0);
    assert_int_equal(answers[0].finish, REFRAIN__FINISH__FINISH_DEADLINE);
    assert_true(answers[0].count < 480);
    side_close(&side);
    process_stop(&process);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hello_says_what_runs),
        cmocka_unit_test(test_greedy_answers_are_the_golden_ones),
        cmocka_unit_test(test_the_same_prompt_again_is_reused_and_answered_alike),
        cmocka_unit_test(test_heartbeats_agree_with_the_events),
        cmocka_unit_test(test_a_snapshot_equals_what_the_events_made),
        cmocka_unit_test(test_reset_removes_every_block),
        cmocka_unit_test(test_cancel_ends_within_a_step),
        cmocka_unit_test(test_grammars_are_waited_for_cancelled_and_refused),
        cmocka_unit_test(test_bad_requests_get_an_error_item_with_numbers),
        cmocka_unit_test(test_a_running_id_again_is_answered_with_error_and_goes_on),
        cmocka_unit_test(test_stop_id_seed_and_logprobs),
        cmocka_unit_test(test_drain_refuses_new_requests_until_undone),
        cmocka_unit_test(test_bad_frames_are_answered_and_change_nothing),
        cmocka_unit_test(test_a_stranger_must_attach_first),
        cmocka_unit_test(test_two_routers_may_use_one_request_id),
        cmocka_unit_test(test_a_router_is_kept_when_the_worker_was_stopped_for_long),
        cmocka_unit_test(test_admin_socket_shows_and_cancels),
        cmocka_unit_test(test_many_requests_at_once_all_end_and_no_block_is_lost),
        cmocka_unit_test(test_answers_do_not_change_when_blocks_are_short),
        cmocka_unit_test(test_a_full_queue_and_a_passed_deadline_are_told),
        cmocka_unit_test(test_stop_ends_running_requests_with_503),
        cmocka_unit_test(test_second_worker_of_a_group_is_refused_and_a_killed_one_replaced),
        cmocka_unit_test(test_without_prefix_caching_nothing_is_reused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
