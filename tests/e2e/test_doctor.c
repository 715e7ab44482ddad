/* test_doctor.c - `refrain doctor memory` passes a clean cluster and finds each planted leak: a
 * block, a ticket, memory that we count and memory that we do not. */
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/mem.h"
#include "tests/e2e/harness.h"

#define MODEL "llama-gguf-f32"
#define LEAKS BUILD_DIR "/leaks/"
#define DOCTOR_DEADLINE_MS 240000u

/* A doctor mostly waits for numbers to settle, so all of them work at the same time. */
enum { CLEAN = 0, BLOCK, TICKET, MALLOC, LIBRARY, PATIENTS };

struct patient {
    const char *programs; /* a sanitizer's build has none with leaks */
    struct cluster cluster;
    struct program doctor;
};

static struct patient patients[PATIENTS] = {[CLEAN] = {.programs = BUILD_DIR},
                                            [BLOCK] = {.programs = LEAKS "block"},
                                            [TICKET] = {.programs = LEAKS "ticket"},
                                            [MALLOC] = {.programs = LEAKS "malloc"},
                                            [LIBRARY] = {.programs = LEAKS "library"}};

static const char *const flags[] = {"--groups", "1", "--kv-cache-memory", "8MiB", NULL};

static int call_all(void **state)
{
    (void)state;
    for (size_t i = 0; i < PATIENTS; i++) {
        struct patient *patient = &patients[i];
        if (access(patient->programs, F_OK) != 0)
            continue;
        cluster_start_from(&patient->cluster, patient->programs, e2e_tiny(MODEL), flags);
        program_start(&patient->doctor,
                      (const char *const[]){"refrain", "doctor", "memory", "--url",
                                            patient->cluster.url, "--rounds", "6", "--requests",
                                            "24", "--prompt-tokens", "40", "--answer-tokens", "4",
                                            NULL});
    }
    return 0;
}

static int end_all(void **state)
{
    (void)state;
    for (size_t i = 0; i < PATIENTS; i++) {
        if (patients[i].doctor.pid > 0)
            program_wait(&patients[i].doctor, 0);
        program_done(&patients[i].doctor);
        cluster_abort(&patients[i].cluster);
    }
    return 0;
}

/* What the doctor says of it; NULL: there are no such programs. */
static const struct program *examine(struct patient *patient)
{
    if (patient->doctor.pid == 0)
        return NULL;
    program_wait(&patient->doctor, DOCTOR_DEADLINE_MS);
    if (patient->doctor.err[0])
        print_message("%s", patient->doctor.err);
    return &patient->doctor;
}

/* The table is longer than what cmocka prints. */
static void fail_with_table(const struct program *doctor, const char *expected)
{
    (void)fprintf(stderr, "%s", doctor->out);
    fail_msg("code %d; expected: %s", doctor->code, expected);
}

static void test_a_clean_cluster_passes(void **state)
{
    struct program program;
    const struct program *doctor = examine(&patients[CLEAN]);
    (void)state;

    assert_non_null(doctor);
    if (doctor->code != 0)
        fail_with_table(doctor, "it is clean");
    assert_non_null(strstr(doctor->out, "no leak"));
    assert_non_null(strstr(doctor->out, "144 chats of about 40 tokens, 144 answered"));
    program_run(&program, 30000,
                (const char *const[]){"refrain", "doctor", "memory", "--url",
                                      patients[CLEAN].cluster.url, "--prompt-tokens", "9000",
                                      NULL});
    assert_int_equal(program.code, 1); /* what the router says of it is told */
    if (!strstr(program.err, "status 400: ") || !strstr(program.err, "maximum context length"))
        fail_msg("%s", program.err);
    program_done(&program);
    cluster_stop(&patients[CLEAN].cluster);
}

/* The leak is found out, in a row that says where. */
static void expect_leak(struct patient *patient, const char *row)
{
    const struct program *doctor = examine(patient);

    if (doctor == NULL)
        skip();
    const char *verdict = strstr(doctor->out, "\nLEAK:\n");
    if (doctor->code != 1 || !verdict || !strstr(verdict, row))
        fail_with_table(doctor, row);
}

static void test_a_lost_block_is_found(void **state)
{
    (void)state;
    expect_leak(&patients[BLOCK], "KV blocks held, group 0");
}

static void test_a_lost_ticket_is_found(void **state)
{
    (void)state;
    expect_leak(&patients[TICKET], "router: tickets, group 0");
}

static void test_lost_memory_is_found_by_its_purpose(void **state)
{
    (void)state;
    expect_leak(&patients[MALLOC], "router bytes, router");
}

static void test_memory_lost_by_a_library_is_found_in_what_is_resident(void **state)
{
    (void)state;
    expect_leak(&patients[LIBRARY], "router resident");
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
        cmocka_unit_test(test_a_clean_cluster_passes),
        cmocka_unit_test(test_a_lost_block_is_found),
        cmocka_unit_test(test_a_lost_ticket_is_found),
        cmocka_unit_test(test_lost_memory_is_found_by_its_purpose),
        cmocka_unit_test(test_memory_lost_by_a_library_is_found_in_what_is_resident),
        cmocka_unit_test(test_a_router_that_is_not_there_is_no_verdict),
    };
    e2e_begin();
    /* What AddressSanitizer keeps back of freed memory, up to 256 MiB, looks like a leak. */
    (void)setenv("ASAN_OPTIONS", "quarantine_size_mb=1", 0);
    (void)e2e_tiny(MODEL);
    return e2e_finish(cmocka_run_group_tests(tests, call_all, end_all));
}
