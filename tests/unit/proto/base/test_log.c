/* log.c: the line's form, levels per module, and that no value can break the line. */
#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOG_MODULE "sched"
#include "proto/base/log.h"

static int stderr_before;
static int capture_fd;
static char captured[300000];

/* From here to stop_capture() stderr is a file. */
static void start_capture(void)
{
    FILE *file = tmpfile();

    assert_non_null(file);
    capture_fd = dup(fileno(file));
    assert_true(capture_fd >= 0);
    (void)fclose(file);
    stderr_before = dup(STDERR_FILENO);
    assert_int_equal(dup2(capture_fd, STDERR_FILENO), STDERR_FILENO);
}

static const char *stop_capture(void)
{
    ssize_t bytes;

    assert_int_equal(dup2(stderr_before, STDERR_FILENO), STDERR_FILENO);
    (void)close(stderr_before);
    bytes = pread(capture_fd, captured, sizeof(captured) - 1, 0);
    (void)close(capture_fd);
    assert_true(bytes >= 0);
    captured[bytes] = '\0';
    return captured;
}

static int set_up(void **state)
{
    (void)state;
    unsetenv("JOURNAL_STREAM");
    log_init("worker.0.1", LOG_INFO);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return log_set_level(NULL, LOG_INFO);
}

static void test_write_when_to_a_terminal_has_time_level_process_module_event(void **state)
{
    const char *line;
    int year, month, day, hour, minute, second, millisecond, end = 0;

    (void)state;
    start_capture();
    log_info("admit", "req=%s hit_tokens=%d", "c41", 512);
    line = stop_capture();
    assert_int_equal(sscanf(line, "%4d-%2d-%2dT%2d:%2d:%2d.%3dZ%n", &year, &month, &day, &hour,
                            &minute, &second, &millisecond, &end),
                     7);
    assert_int_equal(end, 24);
    assert_string_equal(line + 24, " info worker.0.1 sched event=admit req=c41 hit_tokens=512\n");
}

static void test_write_when_under_the_journal_has_a_priority_and_no_time(void **state)
{
    char stream[64];
    struct stat st;

    (void)state;
    start_capture();
    assert_int_equal(fstat(STDERR_FILENO, &st), 0);
    (void)snprintf(stream, sizeof(stream), "%llu:%llu", (unsigned long long)st.st_dev,
                   (unsigned long long)st.st_ino);
    setenv("JOURNAL_STREAM", stream, 1);
    log_init("router", LOG_DEBUG);
    log_error("a", "x=1");
    log_warn("b", "x=2");
    log_info("c", "x=3");
    log_debug("d", "x=4");
    assert_string_equal(stop_capture(), "<3>error router sched event=a x=1\n"
                                        "<4>warn router sched event=b x=2\n"
                                        "<6>info router sched event=c x=3\n"
                                        "<7>debug router sched event=d x=4\n");
}

static void test_init_when_the_journal_is_somebody_elses_keeps_the_time(void **state)
{
    (void)state;
    setenv("JOURNAL_STREAM", "1:1", 1);
    log_init("router", LOG_INFO);
    start_capture();
    log_info("a", "x=1");
    assert_int_equal(stop_capture()[0], '2');
}

static void test_write_when_a_value_holds_newlines_stays_one_line(void **state)
{
    const char *line;

    (void)state;
    start_capture();
    log_info("x", "path=%s", "a\nb\r\tc\x7f\x1b[0m");
    line = stop_capture();
    assert_string_equal(strstr(line, "path="), "path=a b  c  [0m\n");
}

static void test_write_when_too_long_is_cut_at_4096_bytes(void **state)
{
    char value[10000];
    const char *line;

    (void)state;
    memset(value, 'v', sizeof(value) - 1);
    value[sizeof(value) - 1] = '\0';
    start_capture();
    log_info("x", "v=%s", value);
    log_info("y", "v=%s", "short");
    line = stop_capture();
    assert_int_equal(strcspn(line, "\n"), 4095);
    assert_non_null(strstr(line + 4096, "event=y v=short\n"));
}

static void test_write_when_names_are_too_long_stays_in_bounds(void **state)
{
    char event[5000];
    const char *line;

    (void)state;
    memset(event, 'e', sizeof(event) - 1);
    event[sizeof(event) - 1] = '\0';
    log_init("a-process-name-of-more-than-thirty-one-bytes", LOG_INFO);
    start_capture();
    log_info(event, "v=%d", 1);
    log_info("z", "v=%d", 2);
    line = stop_capture();
    assert_int_equal(strcspn(line, "\n"), 4095);
    assert_non_null(strstr(line, " info a-process-name-of-more-than-thi sched event=z v=2\n"));
}

static void test_write_when_errno_is_set_leaves_it(void **state)
{
    (void)state;
    start_capture();
    errno = ENOTSUP;
    log_info("x", "a=%d", 1);
    assert_int_equal(errno, ENOTSUP);
    (void)stop_capture();
}

static void test_level_when_set_for_a_module_changes_that_module_only(void **state)
{
    (void)state;
    assert_true(log_enabled(LOG_INFO, "kv"));
    assert_false(log_enabled(LOG_DEBUG, "kv"));
    assert_int_equal(log_set_level("kv", LOG_DEBUG), 0);
    assert_int_equal(log_set_level("io", LOG_ERROR), 0);
    assert_true(log_enabled(LOG_DEBUG, "kv"));
    assert_false(log_enabled(LOG_DEBUG, "sched"));
    assert_false(log_enabled(LOG_WARN, "io"));
    assert_int_equal(log_set_level("io", LOG_WARN), 0);
    assert_true(log_enabled(LOG_WARN, "io"));
    assert_int_equal(log_set_level(NULL, LOG_WARN), 0); /* all, also those that differed */
    assert_false(log_enabled(LOG_INFO, "kv"));
    assert_true(log_enabled(LOG_WARN, "io"));
}

static void test_level_when_33_modules_differ_refuses_the_last(void **state)
{
    char module[16];

    (void)state;
    for (int i = 0; i < 32; i++) {
        (void)snprintf(module, sizeof(module), "m%d", i);
        assert_int_equal(log_set_level(module, LOG_DEBUG), 0);
    }
    assert_int_equal(log_set_level("one-more", LOG_DEBUG), -ENOSPC);
    assert_int_equal(log_set_level("one-more", LOG_INFO), 0); /* the default needs no room */
    assert_int_equal(log_set_level("m7", LOG_INFO), 0);       /* gives its room back */
    assert_int_equal(log_set_level("one-more", LOG_DEBUG), 0);
    assert_true(log_enabled(LOG_DEBUG, "one-more"));
    assert_true(log_enabled(LOG_DEBUG, "m31"));
    assert_false(log_enabled(LOG_DEBUG, "m7"));
}

static void test_level_when_parsed_takes_the_four_names_only(void **state)
{
    enum log_level level = LOG_DEBUG;

    (void)state;
    for (int i = LOG_ERROR; i <= LOG_DEBUG; i++) {
        assert_int_equal(log_level_parse(log_level_name((enum log_level)i), &level), 0);
        assert_int_equal(level, i);
    }
    assert_int_equal(log_level_parse("INFO", &level), -EINVAL);
    assert_int_equal(log_level_parse("", &level), -EINVAL);
    assert_int_equal(level, LOG_DEBUG);
}

static void *write_lines(void *argument)
{
    for (int i = 0; i < 500; i++)
        log_info("t", "thread=%d line=%d", *(int *)argument, i);
    return NULL;
}

static void test_write_when_four_threads_write_no_lines_mix(void **state)
{
    pthread_t threads[4];
    int ids[4] = {0, 1, 2, 3};
    int next[4] = {0};
    int lines = 0;
    char *rest;

    (void)state;
    start_capture();
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, write_lines, &ids[i]), 0);
    for (int i = 0; i < 100; i++)
        (void)log_set_level("kv", i % 2 ? LOG_DEBUG : LOG_WARN); /* while they read levels */
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    (void)stop_capture();
    for (char *line = strtok_r(captured, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        int thread;
        int number;

        assert_int_equal(
            sscanf(line, "%*s info worker.0.1 sched event=t thread=%d line=%d", &thread, &number),
            2);
        assert_int_equal(number, next[thread]);
        next[thread]++;
        lines++;
    }
    assert_int_equal(lines, 2000);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_write_when_to_a_terminal_has_time_level_process_module_event),
        TEST(test_write_when_under_the_journal_has_a_priority_and_no_time),
        TEST(test_init_when_the_journal_is_somebody_elses_keeps_the_time),
        TEST(test_write_when_a_value_holds_newlines_stays_one_line),
        TEST(test_write_when_too_long_is_cut_at_4096_bytes),
        TEST(test_write_when_names_are_too_long_stays_in_bounds),
        TEST(test_write_when_errno_is_set_leaves_it),
        TEST(test_level_when_set_for_a_module_changes_that_module_only),
        TEST(test_level_when_33_modules_differ_refuses_the_last),
        TEST(test_level_when_parsed_takes_the_four_names_only),
        TEST(test_write_when_four_threads_write_no_lines_mix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
