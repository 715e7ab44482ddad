/* prompt_trace.c: the list is bounded, the end is known past the bound. */
#include <cmocka.h>

#include <string.h>

#include "router/text/prompt_trace.h"

static void test_seams_past_the_bound_are_counted_and_the_end_is_kept(void **state)
{
    struct prompt_trace trace = {0};
    (void)state;
    for (uint32_t i = 1; i <= PROMPT_TRACE_SEAMS_MAX + 2; i++) {
        const struct prompt_seam seam = {.hash = i, .text_end = 10 * i, .ids_count = 2 * i};
        prompt_trace_add(&trace, &seam);
    }
    assert_int_equal(trace.seams_count, PROMPT_TRACE_SEAMS_MAX);
    assert_int_equal(trace.seams_total, PROMPT_TRACE_SEAMS_MAX + 2);
    assert_int_equal(trace.seams[0].text_end, 10);
    assert_int_equal(trace.seams[PROMPT_TRACE_SEAMS_MAX - 1].hash, PROMPT_TRACE_SEAMS_MAX);
    assert_int_equal(trace.end.hash, PROMPT_TRACE_SEAMS_MAX + 2);
    assert_int_equal(trace.end.ids_count, 2 * (PROMPT_TRACE_SEAMS_MAX + 2));
    prompt_trace_done(&trace);
    assert_null(trace.seams);
}

static void test_a_tail_is_copied_or_too_long(void **state)
{
    static char text[PROMPT_TRACE_TAIL_MAX + 1];
    struct prompt_trace trace = {0};
    (void)state;
    memset(text, 'x', sizeof(text));
    prompt_trace_set_tail(&trace, text, sizeof(text), false);
    assert_null(trace.tail);
    prompt_trace_set_tail(&trace, text, sizeof(text) - 1, true);
    assert_int_equal(trace.tail_bytes, PROMPT_TRACE_TAIL_MAX);
    assert_true(trace.tail_trim && trace.tail != text);
    assert_int_equal(trace.tail[PROMPT_TRACE_TAIL_MAX - 1], 'x');
    prompt_trace_done(&trace);
    prompt_trace_set_tail(&trace, "", 0, false);
    assert_non_null(trace.tail); /* an empty tail is one */
    prompt_trace_done(&trace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_seams_past_the_bound_are_counted_and_the_end_is_kept),
        cmocka_unit_test(test_a_tail_is_copied_or_too_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
