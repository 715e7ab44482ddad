/* assert.c: a broken invariant names itself on stderr and ends the process by SIGABRT. */
#include <cmocka.h>

#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"

/* Run `body` in a child; its stderr is in text, its wait status is the answer. */
static int run_in_child(void (*body)(void), char *text, size_t text_max)
{
    int fds[2];
    size_t bytes = 0;
    ssize_t got;
    int status;
    pid_t pid;

    assert_int_equal(pipe(fds), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        const struct rlimit no_core = {0, 0};
        (void)setrlimit(RLIMIT_CORE, &no_core);
        (void)signal(SIGABRT, SIG_DFL);
        (void)dup2(fds[1], STDERR_FILENO);
        body();
        _exit(0);
    }
    close(fds[1]);
    while (bytes < text_max - 1 && (got = read(fds[0], text + bytes, text_max - 1 - bytes)) > 0)
        bytes += (size_t)got;
    text[bytes] = '\0';
    close(fds[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void break_an_invariant(void)
{
    int blocks_free = 3;
    ASSERT(blocks_free == 4);
}

static void keep_an_invariant(void)
{
    int blocks_free = 4;
    ASSERT(blocks_free == 4);
}

static void overflow_a_count(void)
{
    mem_free(mem_calloc(SIZE_MAX / 2, 3));
}

static void test_assert_when_false_names_the_place_and_aborts(void **state)
{
    char text[1024];
    int status = run_in_child(break_an_invariant, text, sizeof(text));

    (void)state;
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
    assert_non_null(strstr(text, "test_assert.c:"));
    assert_non_null(strstr(text, "break_an_invariant: ASSERT(blocks_free == 4)\n"));
}

static void test_assert_when_true_says_nothing_and_goes_on(void **state)
{
    char text[1024];
    int status = run_in_child(keep_an_invariant, text, sizeof(text));

    (void)state;
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_string_equal(text, "");
}

static void test_calloc_when_the_product_overflows_aborts(void **state)
{
    char text[1024];
    int status = run_in_child(overflow_a_count, text, sizeof(text));

    (void)state;
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
    assert_non_null(strstr(text, "out of memory"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_assert_when_false_names_the_place_and_aborts),
        cmocka_unit_test(test_assert_when_true_says_nothing_and_goes_on),
        cmocka_unit_test(test_calloc_when_the_product_overflows_aborts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
