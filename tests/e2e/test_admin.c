/* test_admin.c - what operators use: the workers' admin sockets (every command that help lists),
 * drain and cancel by hand, and `refrain status`. */
#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/mem.h"
#include "tests/e2e/harness.h"

#define TOKENS 96

static struct cluster cluster;
static struct worker_view group0, group1;

static int setup(void **state)
{
    (void)state;
    cluster_start(&cluster, e2e_smollm2(),
                  (const char *const[]){"--tp", "2", "--kv-cache-memory", "256MiB", NULL});
    return cluster_worker(&cluster, 0, &group0) && cluster_worker(&cluster, 1, &group1) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    cluster_abort(&cluster);
    return 0;
}

static unsigned mode_of(const char *path)
{
    struct stat info;
    assert_int_equal(lstat(path, &info), 0);
    return info.st_mode & 07777;
}

static void test_the_run_dir_is_0700_and_the_sockets_are_0600(void **state)
{
    char *rank1 = mem_printf("%s/worker-0-rank-1.admin.sock", cluster.run_dir);
    char *expected = mem_printf("%s/worker-0.admin.sock", cluster.run_dir);
    (void)state;

    assert_string_equal(group0.admin_socket, expected);
    assert_int_equal(mode_of(cluster.run_dir), 0700);
    assert_int_equal(mode_of(group0.admin_socket), 0600);
    assert_int_equal(mode_of(group1.admin_socket), 0600);
    assert_int_equal(mode_of(rank1), 0600);
    mem_free(expected);
    mem_free(rank1);
}

static void test_every_command_of_help_without_arguments_answers(void **state)
{
    json_t *help = admin_call(group0.admin_socket, "help"), *row;
    size_t i, answered = 0;
    (void)state;

    assert_non_null(help);
    json_array_foreach(json_object_get(help, "commands"), i, row)
    {
        const char *command = json_string_value(json_object_get(row, "command"));
        assert_non_null(command);
        assert_true(strlen(json_string_value(json_object_get(row, "does"))) > 5);
        if (strcmp(command, "drain") == 0 || command[strlen(command) - 1] < 'a')
            continue; /* has arguments, or is tried below */
        json_t *answer = admin_call(group0.admin_socket, command);
        if (!json_is_object(answer) || json_object_get(answer, "error"))
            fail_msg("'%s' does not answer", command);
        json_decref(answer);
        answered++;
    }
    assert_true(answered >= 9);
    json_decref(help);
}

static void test_wrong_lines_get_an_error_and_the_worker_lives(void **state)
{
    static const char *const lines[] = {"frobnicate",   "show",
                                        "show nothing", "",
                                        "drain please", "cancel",
                                        "log kv loud",  "show info now",
                                        "\x01\x02",     "a b c d e f g h i j k l m n o p q r s t"};
    char *text;
    (void)state;

    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        json_t *answer = admin_call(group0.admin_socket, lines[i]);
        if (!json_is_string(json_object_get(answer, "error")))
            fail_msg("'%s' is taken", lines[i]);
        json_decref(answer);
    }
    char *endless = mem_zalloc(20001);
    memset(endless, 'x', 20000);
    text = admin_text(group0.admin_socket, endless); /* the connection is closed, no answer */
    assert_string_equal(text, "");
    mem_free(text);
    mem_free(endless);
    assert_true(proc_is_alive(group0.pids[0]));
}

static void refuse_line(const char *line, const char *part)
{
    json_t *answer = admin_call(group0.admin_socket, line);
    const char *error = json_string_value(json_object_get(answer, "error"));
    if (!error || !strstr(error, part))
        fail_msg("'%s' says '%s'", line, error ? error : "");
    json_decref(answer);
}

/* By the hash of a block, as `dump blocks` has it. */
static void test_a_pinned_prefix_outlives_a_reset_of_the_cache(void **state)
{
    struct chat chat;
    char line[128];
    const char *hash = NULL;
    size_t i;
    json_t *block;
    (void)state;

    chat_init(&chat, cluster.url, CHAT_PATH,
              chat_body(cluster.model, "Say in many words what a lease on memory is good for.", 2));
    chat_send(&chat);
    assert_int_equal(chat.status, 200);
    const struct worker_view *group = chat.group[0] == '0' ? &group0 : &group1;
    chat_done(&chat);
    json_t *dump = admin_call(group->admin_socket, "dump blocks");
    json_array_foreach(json_object_get(dump, "blocks"), i, block)
    {
        const char *text = json_string_value(json_object_get(block, "hash"));
        hash = text ? text : hash;
    }
    assert_non_null(hash);
    (void)snprintf(line, sizeof(line), "pin %s 600", hash);
    json_t *pinned = admin_call(group->admin_socket, line);
    json_int_t blocks = json_integer_value(json_object_get(pinned, "blocks"));
    assert_true(blocks >= 1);
    assert_string_equal(json_string_value(json_object_get(pinned, "pin")), hash);
    json_decref(admin_call(group->admin_socket, "reset_prefix_cache"));
    json_t *counts = admin_call(group->admin_socket, "show blocks");
    assert_int_equal(json_integer_value(json_object_get(counts, "pinned")), blocks);
    assert_int_equal(json_integer_value(json_object_get(counts, "shared")), blocks);
    assert_int_equal(json_integer_value(json_object_get(counts, "cached")), 0);
    json_t *pins = admin_call(group->admin_socket, "show pins");
    assert_int_equal(json_array_size(json_object_get(pins, "pins")), 1);
    (void)snprintf(line, sizeof(line), "unpin %s", hash);
    json_t *ended = admin_call(group->admin_socket, line);
    assert_int_equal(json_integer_value(json_object_get(ended, "unpinned")), 1);
    json_decref(dump);
    json_decref(pinned);
    json_decref(counts);
    json_decref(pins);
    json_decref(ended);
    refuse_line("pin nothing 5", "no request");
    refuse_line("pin 0123456789abcdef0123456789abcdef 5", "no cached block");
    refuse_line("pin nothing 0", "31536000 seconds");
    refuse_line("pin nothing", "usage: pin ID|HASH SECONDS");
    refuse_line("cancel", "usage: cancel ID");
    refuse_line("show info please", "usage: show info");
    refuse_line("show", "unknown command; try help");
}

static void test_show_info_names_the_group_and_its_pids(void **state)
{
    json_t *info = admin_call(group1.admin_socket, "show info");
    const json_t *pids = json_object_get(info, "pids");
    (void)state;

    assert_int_equal(json_integer_value(json_object_get(info, "group")), 1);
    assert_int_equal(json_integer_value(json_object_get(info, "ranks")), 2);
    assert_int_equal(json_array_size(pids), 2);
    assert_int_equal(json_integer_value(json_array_get(pids, 1)), group1.pids[1]);
    assert_string_equal(json_string_value(json_object_get(info, "name")), SMOLLM2_NAME);
    json_decref(info);
}

static void test_a_table_for_people_has_the_same_numbers(void **state)
{
    json_t *blocks = admin_call(group0.admin_socket, "show blocks");
    char *text = admin_text(group0.admin_socket, "table show blocks");
    char total[32];
    (void)state;

    (void)snprintf(total, sizeof(total), "%lld",
                   (long long)json_integer_value(json_object_get(blocks, "total")));
    assert_true(group0.blocks_total > 0);
    assert_int_equal(json_integer_value(json_object_get(blocks, "total")), group0.blocks_total);
    assert_true(strlen(text) > 0 && text[0] != '{');
    json_decref(blocks);
    mem_free(text);
}

struct hunt {
    const struct worker_view *worker;
    char id[80];
};

/* A sequence of either group. */
static bool find_sequence(void *user)
{
    struct hunt *hunt = user;

    hunt->worker = hunt->worker == &group0 ? &group1 : &group0;
    json_t *list = admin_call(hunt->worker->admin_socket, "show sequences");
    const json_t *first = json_array_get(json_object_get(list, "sequences"), 0);
    const char *id = json_string_value(json_object_get(first, "id"));
    (void)snprintf(hunt->id, sizeof(hunt->id), "%s", id ? id : "");
    json_decref(list);
    return hunt->id[0] != '\0';
}

struct drain_watch {
    int group;
    bool draining;
};

static bool is_so(void *user)
{
    const struct drain_watch *watch = user;
    struct worker_view worker;
    return cluster_worker(&cluster, watch->group, &worker) && worker.draining == watch->draining &&
           worker.ready != watch->draining;
}

static bool await_draining(int group, bool draining)
{
    struct drain_watch watch = {group, draining};
    return poll_until(is_so, &watch, 5000);
}

static bool call_is_taken(const struct worker_view *worker, const char *line)
{
    json_t *answer = admin_call(worker->admin_socket, line);
    bool taken = answer && !json_object_get(answer, "error");
    json_decref(answer);
    return taken;
}

static void prepare_stream(struct chat *chat, unsigned tokens)
{
    json_t *body = streamed(chat_body(cluster.model, "Count upwards, one a line.", tokens));
    json_object_set_new(body, "ignore_eos", json_true());
    chat_init(chat, cluster.url, CHAT_PATH, body);
}

static void test_a_drained_group_ends_its_streams_and_gets_no_new_ones(void **state)
{
    struct hunt hunt = {.worker = &group0};
    struct chat chat;
    int elsewhere = 0;
    (void)state;

    prepare_stream(&chat, TOKENS);
    struct chat_crowd *crowd = chat_crowd_start(&chat, 1, 1);
    bool found = poll_until(find_sequence, &hunt, 20000);
    bool drained = call_is_taken(hunt.worker, "drain") && await_draining(hunt.worker->group, true);
    for (int i = 0; i < 6; i++) { /* the same prompt: its prefix is on the drained group */
        struct chat next;
        chat_init(&next, cluster.url, CHAT_PATH,
                  chat_body(cluster.model, "Count upwards, one a line.", 2));
        chat_send(&next);
        elsewhere += next.status == 200 && next.group[0] == '1' - hunt.worker->group;
        chat_done(&next);
    }
    chat_crowd_join(crowd);
    assert_true(found && drained);
    assert_int_equal(elsewhere, 6);
    assert_int_equal(chat.completion_tokens, TOKENS);
    assert_string_equal(chat.finish, "length");
    assert_int_equal(chat.group[0], '0' + hunt.worker->group);
    chat_done(&chat);
    assert_true(call_is_taken(hunt.worker, "undrain"));
    assert_true(await_draining(hunt.worker->group, false));
}

static void test_the_router_s_drain_does_the_same(void **state)
{
    struct http_answer answer;
    (void)state;

    http_post_text(cluster.url, "/v1/refrain/drain?group=0", "", &answer);
    assert_int_equal(answer.status, 200);
    http_answer_done(&answer);
    assert_true(await_draining(0, true));
    http_post_text(cluster.url, "/v1/refrain/drain?group=0&undo=1", "", &answer);
    assert_int_equal(answer.status, 200);
    http_answer_done(&answer);
    assert_true(await_draining(0, false));
}

static void test_cancel_by_its_id_ends_a_stream(void **state)
{
    struct hunt hunt = {.worker = &group0};
    struct chat chat;
    (void)state;

    prepare_stream(&chat, 4000);
    struct chat_crowd *crowd = chat_crowd_start(&chat, 1, 1);
    bool found = poll_until(find_sequence, &hunt, 20000);
    char *line = mem_printf("cancel %s", hunt.id);
    json_t *answer = admin_call(hunt.worker->admin_socket, line);
    bool refused = !answer || json_object_get(answer, "error");
    if (refused)
        (void)kill(hunt.worker->pids[0], SIGKILL); /* or the test would wait a minute */
    chat_crowd_join(crowd);
    assert_true(found);
    assert_false(refused);
    print_message("cancelled after %u chunks: finish '%s', error event: %s\n", chat.chunks,
                  chat.finish, chat.error_event ? chat.error_message : "none");
    assert_true(chat.chunks < 4000);
    assert_true(chat.error_event || chat.finish[0]);
    chat_done(&chat);
    mem_free(line);
    json_decref(answer);
    cluster_assert_idle(&cluster);
}

static void test_refrain_status_prints_a_table_of_groups_and_ranks(void **state)
{
    struct program program;
    char pid[32];
    (void)state;

    program_run(&program, 10000,
                (const char *const[]){"refrain", "status", "--url", cluster.url, NULL});
    assert_int_equal(program.code, 0);
    assert_string_equal(program.err, "");
    for (int group = 0; group < 2; group++) {
        for (uint32_t rank = 0; rank < 2; rank++) {
            (void)snprintf(pid, sizeof(pid), " %d ",
                           (int)(group ? group1.pids[rank] : group0.pids[rank]));
            assert_non_null(strstr(program.out, pid));
        }
    }
    assert_non_null(strstr(program.out, "    0  ready "));
    assert_null(strstr(program.out, "exact")); /* a word of ours */
    assert_non_null(strstr(program.out, "held"));
    assert_non_null(strstr(program.out, "cached"));
    assert_non_null(strstr(program.out, SMOLLM2_NAME));
    assert_non_null(strstr(program.out, "MiB"));
    program_done(&program);
}

static void test_refrain_status_json_is_the_router_s_own(void **state)
{
    struct program program;
    (void)state;

    program_run(&program, 10000,
                (const char *const[]){"refrain", "status", "--json", "--url", cluster.url, NULL});
    assert_int_equal(program.code, 0);
    json_t *status = json_loads(program.out, 0, NULL);
    assert_non_null(status);
    assert_int_equal(json_array_size(json_object_get(status, "workers")), 2);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(status, "router"), "pid")),
                     cluster_router_pid(&cluster));
    json_decref(status);
    program_done(&program);
}

static void test_the_status_page_and_version_are_served(void **state)
{
    struct http_answer answer;
    char type[64];
    (void)state;

    http_get(cluster.url, "/", &answer);
    assert_int_equal(answer.status, 200);
    http_answer_header(&answer, "content-type", type, sizeof(type));
    assert_int_equal(strncmp(type, "text/html", 9), 0);
    assert_null(strstr(answer.body, "src=\"http")); /* no external scripts */
    http_answer_done(&answer);
    http_get(cluster.url, "/version", &answer);
    assert_int_equal(answer.status, 200);
    assert_true(json_is_string(json_object_get(answer.json, "version")));
    http_answer_done(&answer);
}

static void test_the_cluster_stops_and_leaves_nothing(void **state)
{
    (void)state;
    cluster_stop(&cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_run_dir_is_0700_and_the_sockets_are_0600),
        cmocka_unit_test(test_every_command_of_help_without_arguments_answers),
        cmocka_unit_test(test_wrong_lines_get_an_error_and_the_worker_lives),
        cmocka_unit_test(test_a_pinned_prefix_outlives_a_reset_of_the_cache),
        cmocka_unit_test(test_show_info_names_the_group_and_its_pids),
        cmocka_unit_test(test_a_table_for_people_has_the_same_numbers),
        cmocka_unit_test(test_a_drained_group_ends_its_streams_and_gets_no_new_ones),
        cmocka_unit_test(test_the_router_s_drain_does_the_same),
        cmocka_unit_test(test_cancel_by_its_id_ends_a_stream),
        cmocka_unit_test(test_refrain_status_prints_a_table_of_groups_and_ranks),
        cmocka_unit_test(test_refrain_status_json_is_the_router_s_own),
        cmocka_unit_test(test_the_status_page_and_version_are_served),
        cmocka_unit_test(test_the_cluster_stops_and_leaves_nothing),
    };
    e2e_begin();
    (void)e2e_smollm2();
    return e2e_finish(cmocka_run_group_tests(tests, setup, teardown));
}
