/* test_architectures.c - the list of what can be run holds whole names, however long it may be. */
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/load/architectures.h"

static bool is_name(bool gguf, const char *item)
{
    char whole[128];
    if (gguf)
        return architecture_of_gguf(item, strlen(item)) != NULL;
    (void)snprintf(whole, sizeof(whole), "%s" ARCHITECTURE_HF_SUFFIX, item);
    return architecture_of_hf(item) != NULL || architecture_of_hf(whole) != NULL;
}

/* Names, and those that are only counted at the end; all items are one of the two. */
static void count_items(bool gguf, char *text, size_t *ret_names, size_t *ret_more)
{
    char *rest = NULL;
    *ret_names = *ret_more = 0;
    for (char *item = strtok_r(text, ",", &rest); item; item = strtok_r(NULL, ",", &rest)) {
        char *end = NULL;
        item += *item == ' ';
        unsigned long more = strtoul(item, &end, 10);
        assert_int_equal(*ret_more, 0); /* nothing after the count */
        if (end != item && strcmp(end, " more") == 0)
            *ret_more = more;
        else if (is_name(gguf, item))
            (*ret_names)++;
        else
            fail_msg("'%s' is no name", item);
    }
}

static void check_lists(bool gguf, size_t least)
{
    char text[2048];
    size_t all = 0, names = 0, more = 0, before = 0;

    architecture_list(gguf, text, sizeof(text));
    count_items(gguf, text, &all, &more);
    assert_int_equal(more, 0);
    assert_true(all >= least);
    for (size_t max = ARCHITECTURE_LIST_MIN; max < sizeof(text); max++) {
        memset(text, '#', sizeof(text));
        architecture_list(gguf, text, max);
        assert_true(strlen(text) < max);
        count_items(gguf, text, &names, &more);
        assert_int_equal(names + more, all);
        assert_true(names > 0 && names >= before);
        before = names;
    }
    assert_int_equal(before, all);
}

static void test_lists_when_cut_hold_whole_names_and_count_the_rest(void **state)
{
    (void)state;
    check_lists(true, 14);
    check_lists(false, 18);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lists_when_cut_hold_whole_names_and_count_the_rest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
