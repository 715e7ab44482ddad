/* test_doctor.c - `refrain doctor memory` passes a clean cluster and finds each planted leak: a
 * block, a ticket, memory that we count and memory that we do not. */
#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/mem.h"
#include "tests/e2e/harness.h"

#define MODEL "llama-gguf-f32"
#define LEAKS BUILD_DIR "/leaks/"
#define DOCTOR_DEADLINE_MS 240000u

static struct cluster cluster;

static const char *const flags[] = {"--groups", "1", "--kv-cache-memory", "8MiB", NULL};

static int teardown(void **state)
{
    (void)state;
    cluster_abort(&cluster);
    return 0;
}

static void examine(struct program *ret_program)
{
    program_run(ret_program, DOCTOR_DEADLINE_MS,
                (const char *const[]){"refrain", "doctor", "memory", "--url", cluster.url,
                                      "--rounds", "6", "--requests", "24", "--prompt-tokens", "40",
                                      "--answer-tokens", "4", NULL});
    if (ret_program->err[0])
        print_message("%s", ret_program->err);
}

static void test_a_clean_cluster_passes(void **state)
{
    struct program program;
    (void)state;

    cluster_start(&cluster, e2e_tiny(MODEL), flags);
    examine(&program);
    if (program.code != 0)
        fail_msg("%d\n%s", program.code, program.out);
    assert_non_null(strstr(program.out, "no leak"));
    assert_non_null(strstr(program.out, "144 chats of about 40 tokens, 144 answered"));
    program_done(&program);
    program_run(&program, 30000,
                (const char *const[]){"refrain", "doctor", "memory", "--url", cluster.url,
                                      "--prompt-tokens", "9000", NULL});
    assert_int_equal(program.code, 1); /* what the router says of it is told */
    if (!strstr(program.err, "status 400: ") || !strstr(program.err, "maximum context length"))
        fail_msg("%s", program.err);
    program_done(&program);
    cluster_stop(&cluster);
}

/* The programs of LEAKS NAME are found out, in a row that says where. */
static void expect_leak(const char *name, const char *row)
{
    struct program program;
    char folder[512];

    (void)snprintf(folder, sizeof(folder), LEAKS "%s", name);
    if (access(folder, F_OK) != 0)
        skip(); /* a sanitizer's build has none */
    cluster_start_from(&cluster, folder, e2e_tiny(MODEL), flags);
    examine(&program);
    const char *verdict = strstr(program.out, "\nLEAK:\n");
    if (program.code != 1 || !verdict || !strstr(verdict, row))
        fail_msg("%d, no leak in '%s':\n%s", program.code, row, program.out);
    program_done(&program);
    cluster_abort(&cluster); /* what it leaks, it may also assert at its end */
}

static void test_a_lost_block_is_found(void **state)
{
    (void)state;
    expect_leak("block", "KV blocks held, group 0");
}

static void test_a_lost_ticket_is_found(void **state)
{
    (void)state;
    expect_leak("ticket", "router: tickets, group 0");
}

static void test_lost_memory_is_found_by_its_purpose(void **state)
{
    (void)state;
    expect_leak("malloc", "router bytes, router");
}

static void test_memory_lost_by_a_library_is_found_in_what_is_resident(void **state)
{
    (void)state;
    expect_leak("library", "router resident");
}

static void test_a_router_that_is_not_there_is_no_verdict(void **state)
{
    struct program program;
    (void)state;
    program_run(
        &program, 30000,
        (const char *const[]){"refrain", "doctor", "memory", "--url", "http://127.0.0.1:1", NULL});
    assert_int_equal(program.code, 1);
    assert_string_equal(program.out, "");
    assert_non_null(strstr(program.err, "nobody answers there"));
    program_done(&program);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_a_clean_cluster_passes, teardown),
        cmocka_unit_test_teardown(test_a_lost_block_is_found, teardown),
        cmocka_unit_test_teardown(test_a_lost_ticket_is_found, teardown),
        cmocka_unit_test_teardown(test_lost_memory_is_found_by_its_purpose, teardown),
        cmocka_unit_test_teardown(test_memory_lost_by_a_library_is_found_in_what_is_resident,
                                  teardown),
        cmocka_unit_test(test_a_router_that_is_not_there_is_no_verdict),
    };
    e2e_begin();
    (void)e2e_tiny(MODEL);
    return e2e_finish(cmocka_run_group_tests(tests, NULL, NULL));
}
