/* test_grammars.c - grammars of submits: what is not known is made by a thread, and is there from
 * the moment on at which its waiter is popped, not before. */
#include <cmocka.h>
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "tests/unit/worker/words_card.h"
#include "worker/grammars.h"

#define WAIT_MS 20000

static struct grammars *grammars;
static struct model_card *card;

static int setup(void **state)
{
    (void)state;
    card = card_with_words();
    grammars = grammars_new(card, GRAMMAR_MACHINE_BYTES_MIN);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    grammars_free(grammars);
    model_card_unref(card);
    return 0;
}

static struct grammar_spec regex(const char *text)
{
    return (struct grammar_spec){GRAMMAR_REGEX, text, strlen(text)};
}

static int pop(void **ret_waiter, struct errmsg *err)
{
    struct pollfd fd = {.fd = grammars_fd(grammars), .events = POLLIN};
    int r = 1;
    while (!grammars_pop(grammars, ret_waiter, &r, err))
        assert_int_equal(poll(&fd, 1, WAIT_MS), 1);
    return r;
}

static void test_a_grammar_is_known_once_its_waiter_is_popped(void **state)
{
    const struct grammar_spec spec = regex("((a?){900}){9}");
    struct grammar_machine *machine = NULL;
    struct grammar *grammar = NULL;
    struct errmsg err = {""};
    void *waiter = NULL;
    int one = 1, two = 2;
    (void)state;
    assert_int_equal(grammars_ask(grammars, &spec, &one), 1);
    assert_int_equal(grammars_ask(grammars, &spec, &two), 1); /* this thread has made nothing */
    assert_int_equal(pop(&waiter, &err), 0);
    assert_ptr_equal(waiter, &one); /* in order */
    assert_int_equal(grammars_ask(grammars, &spec, NULL), 0);
    assert_int_equal(grammars_get(grammars, &spec, &grammar, &machine, &err), 0);
    assert_non_null(machine);
    grammar_unref(grammar);
    assert_int_equal(pop(&waiter, &err), 0); /* the same, again: kept once */
    assert_ptr_equal(waiter, &two);
    assert_false(grammars_pop(grammars, &waiter, &one, &err));
}

static void test_what_is_refused_comes_with_its_sentence(void **state)
{
    const struct grammar_spec spec = regex("a("), wrong = {(enum grammar_kind)99, "a", 1};
    struct errmsg err = {""};
    void *waiter = NULL;
    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(grammars_ask(grammars, &spec, &err), 1);
        assert_int_equal(pop(&waiter, &err), -EINVAL);
        assert_non_null(strstr(err.text, "a group ( has no )"));
    }
    assert_int_equal(grammars_ask(grammars, &wrong, &err), 1);
    assert_int_equal(pop(&waiter, &err), -EINVAL);
    assert_non_null(strstr(err.text, "unknown kind of grammar: 99"));
}

static void test_only_so_many_are_waited_for_and_a_stop_forgets_them(void **state)
{
    const struct grammar_spec spec = regex("((a?){900}){9}");
    struct errmsg err = {""};
    void *waiter = NULL;
    (void)state;
    for (uint32_t i = 0; i < GRAMMARS_WAITING_MAX; i++)
        assert_int_equal(grammars_ask(grammars, &spec, &err), 1);
    assert_int_equal(grammars_ask(grammars, &spec, &err), -EAGAIN);
    assert_int_equal(pop(&waiter, &err), 0);
    const struct grammar_spec other = regex("b"), third = regex("c");
    assert_int_equal(grammars_ask(grammars, &other, &err), 1); /* room for one */
    assert_int_equal(grammars_ask(grammars, &third, &err), -EAGAIN);
    grammars_stop(grammars);
    int r = 0;
    assert_false(grammars_pop(grammars, &waiter, &r, &err));
    grammars_stop(grammars);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_grammar_is_known_once_its_waiter_is_popped, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_what_is_refused_comes_with_its_sentence, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_only_so_many_are_waited_for_and_a_stop_forgets_them,
                                        setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
