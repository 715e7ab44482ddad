/* test_grammar_checks.c - grammars are compiled beside the loop: with its threads held up nothing
 * is compiled, and the loop turns all the same. */
#include <cmocka.h>
#include <errno.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>

#include "router/grammar_checks.h"

#define THREADS 2

struct fixture {
    uv_loop_t loop;
    struct grammar_checks *checks;
    sem_t gate;
    uv_work_t held[THREADS];
    uint32_t calls;
    int r;
    struct errmsg err;
};

static void wait_at_gate(uv_work_t *work)
{
    struct fixture *f = work->data;
    while (sem_wait(&f->gate) < 0) {
    }
}

static void on_passed(uv_work_t *work, int status)
{
    (void)work;
    assert_int_equal(status, 0);
}

static void hold_threads(struct fixture *f)
{
    for (size_t i = 0; i < THREADS; i++) {
        f->held[i].data = f;
        assert_int_equal(uv_queue_work(&f->loop, &f->held[i], wait_at_gate, on_passed), 0);
    }
}

static void release_threads(struct fixture *f)
{
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(sem_post(&f->gate), 0);
}

static int setup(void **state)
{
    static struct fixture f;
    memset(&f, 0, sizeof(f));
    assert_int_equal(uv_loop_init(&f.loop), 0);
    assert_int_equal(sem_init(&f.gate, 0, 0), 0);
    f.checks = grammar_checks_new(&f.loop, 1 << 20);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(uv_run(&f->loop, UV_RUN_DEFAULT), 0);
    grammar_checks_free(f->checks); /* asserts that none is pending */
    assert_int_equal(uv_loop_close(&f->loop), 0);
    assert_int_equal(sem_destroy(&f->gate), 0);
    return 0;
}

static void on_checked(void *user, int r, const struct errmsg *err)
{
    struct fixture *f = user;
    f->calls++;
    f->r = r;
    f->err = *err;
}

static int ask(struct fixture *f, const char *regex, struct grammar_check **ret_check)
{
    char text[64]; /* gone when the thread reads its copy */
    (void)snprintf(text, sizeof(text), "%s", regex);
    const struct grammar_spec spec = {GRAMMAR_REGEX, text, strlen(text)};
    int r = grammar_checks_ask(f->checks, &spec, on_checked, f, ret_check);
    memset(text, 'x', sizeof(text));
    return r;
}

static void test_the_loop_turns_while_a_grammar_is_compiled(void **state)
{
    struct fixture *f = *state;
    struct grammar_check *check = NULL;
    hold_threads(f);
    assert_int_equal(ask(f, "((a?){900}){9}", &check), 1);
    for (int i = 0; i < 100; i++)
        assert_true(uv_run(&f->loop, UV_RUN_NOWAIT) != 0);
    assert_int_equal(f->calls, 0);
    release_threads(f);
    assert_int_equal(uv_run(&f->loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(f->calls, 1);
    assert_int_equal(f->r, 0);
    assert_int_equal(ask(f, "((a?){900}){9}", &check), 0); /* known by now */
}

static void test_what_is_refused_says_where_and_is_not_kept(void **state)
{
    struct fixture *f = *state;
    struct grammar_check *check = NULL;
    for (uint32_t i = 1; i <= 2; i++) {
        assert_int_equal(ask(f, "a(?=b)", &check), 1);
        assert_int_equal(uv_run(&f->loop, UV_RUN_DEFAULT), 0);
        assert_int_equal(f->calls, i);
        assert_int_equal(f->r, -EINVAL);
        assert_non_null(strstr(f->err.text, "before character 4: look-around"));
    }
}

static void test_equal_texts_at_the_same_time_are_all_answered(void **state)
{
    struct fixture *f = *state;
    struct grammar_check *checks[5];
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(ask(f, "ab", &checks[i]), 1);
    assert_int_equal(uv_run(&f->loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(f->calls, 5);
}

static void test_who_has_gone_is_not_called(void **state)
{
    struct fixture *f = *state;
    struct grammar_check *waiting = NULL, *begun = NULL;
    hold_threads(f);
    assert_int_equal(ask(f, "ab", &waiting), 1);
    grammar_check_cancel(waiting); /* before a thread has it */
    release_threads(f);
    assert_int_equal(ask(f, "((a?){900}){9}", &begun), 1);
    grammar_check_cancel(begun); /* at any time */
    grammar_check_cancel(NULL);
    assert_int_equal(uv_run(&f->loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(f->calls, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_the_loop_turns_while_a_grammar_is_compiled, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_what_is_refused_says_where_and_is_not_kept, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_equal_texts_at_the_same_time_are_all_answered, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_who_has_gone_is_not_called, setup, teardown),
    };
    char threads[8];
    (void)snprintf(threads, sizeof(threads), "%d", THREADS);
    (void)setenv("UV_THREADPOOL_SIZE", threads, 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
