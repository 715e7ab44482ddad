/* test_stop.c - stop strings: whole, cut anywhere, overlapping, one a part of the other. */
#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "router/text/stop.h"

#define NO_MATCH ((size_t)-1)

struct result {
    struct buffer out;
    size_t which; /* NO_MATCH: none */
    size_t held_max;
};

static struct stop_matcher *make(const char *const *strings, size_t count, bool include)
{
    struct stop_matcher *matcher = NULL;
    size_t bytes[STOP_STRINGS_MAX];
    for (size_t i = 0; i < count; i++)
        bytes[i] = strlen(strings[i]);
    assert_int_equal(stop_matcher_new(strings, bytes, count, include, &matcher), 0);
    return matcher;
}

/* Feed `text` in pieces of `piece` bytes, then finish. */
static struct result feed(const char *const *strings, size_t count, bool include, const char *text,
                          size_t piece)
{
    struct stop_matcher *matcher = make(strings, count, include);
    struct result result = {.which = NO_MATCH};
    size_t bytes = strlen(text);
    bool found = false;
    buffer_init(&result.out, 1u << 20);
    for (size_t at = 0; at < bytes && !found; at += piece) {
        size_t fed = at + piece < bytes ? at + piece : bytes;
        found = stop_matcher_push(matcher, text + at, fed - at, &result.out, &result.which);
        if (!found && fed - result.out.bytes > result.held_max)
            result.held_max = fed - result.out.bytes;
    }
    if (!found)
        stop_matcher_finish(matcher, &result.out);
    stop_matcher_free(matcher);
    return result;
}

/* The same answer however the text is cut. */
static void check(const char *const *strings, size_t count, const char *text, const char *expected,
                  size_t which)
{
    for (size_t piece = 1; piece <= strlen(text); piece++) {
        struct result result = feed(strings, count, false, text, piece);
        assert_string_equal(result.out.data, expected);
        assert_int_equal(result.which, which);
        buffer_done(&result.out);
    }
}

static void test_text_without_a_stop_string_comes_out_whole(void **state)
{
    const char *strings[] = {"END", "\n\n"};
    (void)state;
    check(strings, 2, "nothing ENDs... EN D \n x", "nothing ", 0);
    check(strings, 2, "nothing EN D \n x", "nothing EN D \n x", NO_MATCH);
    check(NULL, 0, "no strings at all", "no strings at all", NO_MATCH);
}

static void test_match_drops_the_string_and_all_after_it(void **state)
{
    const char *strings[] = {"</s>"};
    (void)state;
    check(strings, 1, "hello </s> world", "hello ", 0);
    check(strings, 1, "</s>", "", 0);
    check(strings, 1, "a<</s>b", "a<", 0);
    check(strings, 1, "a<</</s", "a<</</s", NO_MATCH);
}

static void test_of_several_the_earliest_end_wins_then_the_longest(void **state)
{
    const char *inside[] = {"abcdef", "cd"};
    const char *same_end[] = {"cd", "abcd", "d"};
    (void)state;
    check(inside, 2, "xxabcdefyy", "xxab", 1); /* "cd" is complete first */
    check(same_end, 3, "xxabcdyy", "xx", 1);   /* all end at d */
    check(same_end, 3, "xxacdyy", "xxa", 0);
}

static void test_self_overlapping_string_is_found(void **state)
{
    const char *strings[] = {"aabaab"};
    const char *letters[] = {"aaa"};
    (void)state;
    check(strings, 1, "aabaaabaabc", "aaba", 0); /* found at the second try, from byte 4 on */
    check(letters, 1, "aabaaaa", "aab", 0);
}

static void test_include_writes_the_string_too(void **state)
{
    const char *strings[] = {"STOP"};
    (void)state;
    for (size_t piece = 1; piece < 12; piece++) {
        struct result result = feed(strings, 1, true, "go on STOP here", piece);
        assert_string_equal(result.out.data, "go on STOP");
        assert_int_equal(result.which, 0);
        buffer_done(&result.out);
    }
}

static void test_only_a_possible_beginning_is_held_back(void **state)
{
    const char *strings[] = {"STOP"};
    (void)state;
    struct result result = feed(strings, 1, false, "S ST STO S.T.O.P", 1);
    assert_int_equal(result.held_max, 3);
    buffer_done(&result.out);
    result = feed(strings, 1, false, "nothing begins like it", 1);
    assert_int_equal(result.held_max, 0);
    buffer_done(&result.out);
}

static void test_push_after_a_match_is_ignored(void **state)
{
    const char *strings[] = {"x"};
    struct stop_matcher *matcher = make(strings, 1, false);
    struct buffer out;
    size_t which = NO_MATCH;
    (void)state;
    buffer_init(&out, 100);
    assert_true(stop_matcher_push(matcher, "axb", 3, &out, &which));
    which = NO_MATCH;
    assert_true(stop_matcher_push(matcher, "cxd", 3, &out, &which));
    assert_int_equal(which, 0);
    stop_matcher_finish(matcher, &out);
    assert_string_equal(out.data, "a");
    buffer_done(&out);
    stop_matcher_free(matcher);
}

static void test_empty_push_changes_nothing(void **state)
{
    const char *strings[] = {"ab"};
    struct stop_matcher *matcher = make(strings, 1, false);
    struct buffer out;
    size_t which = NO_MATCH;
    (void)state;
    buffer_init(&out, 100);
    assert_false(stop_matcher_push(matcher, "xa", 2, &out, &which));
    assert_false(stop_matcher_push(matcher, "", 0, &out, &which));
    assert_string_equal(out.data, "x");
    assert_true(stop_matcher_push(matcher, "b", 1, &out, &which));
    assert_string_equal(out.data, "x");
    buffer_done(&out);
    stop_matcher_free(matcher);
}

static void test_longest_allowed_string_is_held_and_found(void **state)
{
    static char stop[STOP_BYTES_MAX + 2], text[3 * STOP_BYTES_MAX];
    const char *strings[] = {stop};
    size_t bytes = STOP_BYTES_MAX;
    struct stop_matcher *matcher = NULL;
    (void)state;
    memset(stop, 'a', STOP_BYTES_MAX);
    stop[STOP_BYTES_MAX - 1] = 'b';
    memset(text, 'a', 2000);
    strcpy(text + 2000, "bc");
    for (size_t piece = 1; piece < 2000; piece += 333) {
        struct result result = feed(strings, 1, false, text, piece);
        assert_int_equal(result.which, 0);
        assert_int_equal(result.out.bytes, 2001 - STOP_BYTES_MAX);
        buffer_done(&result.out);
    }
    bytes = STOP_BYTES_MAX + 1;
    assert_int_equal(stop_matcher_new(strings, &bytes, 1, false, &matcher), -E2BIG);
    bytes = 0;
    assert_int_equal(stop_matcher_new(strings, &bytes, 1, false, &matcher), -EINVAL);
    assert_null(matcher);
}

static void test_too_many_strings_are_refused(void **state)
{
    const char *strings[STOP_STRINGS_MAX + 1];
    size_t bytes[STOP_STRINGS_MAX + 1];
    struct stop_matcher *matcher = NULL;
    (void)state;
    for (size_t i = 0; i <= STOP_STRINGS_MAX; i++) {
        strings[i] = "x";
        bytes[i] = 1;
    }
    assert_int_equal(stop_matcher_new(strings, bytes, STOP_STRINGS_MAX + 1, false, &matcher),
                     -E2BIG);
    assert_int_equal(stop_matcher_new(strings, bytes, STOP_STRINGS_MAX, false, &matcher), 0);
    stop_matcher_free(matcher);
}

/* Against the plain definition, on random text over two letters. */
static void test_random_text_agrees_with_a_plain_search(void **state)
{
    uint32_t seed = 12345;
    (void)state;
    for (int round = 0; round < 3000; round++) {
        char text[64], stops[3][8];
        const char *strings[3] = {stops[0], stops[1], stops[2]};
        size_t best_end = NO_MATCH, best = NO_MATCH;
        for (size_t i = 0; i < 63; i++)
            text[i] = (seed = seed * 1664525u + 1013904223u) >> 31 ? 'a' : 'b';
        text[63] = '\0';
        for (size_t s = 0; s < 3; s++) {
            size_t bytes = 3 + ((seed = seed * 1664525u + 1013904223u) >> 30);
            for (size_t i = 0; i < bytes; i++)
                stops[s][i] = (seed = seed * 1664525u + 1013904223u) >> 31 ? 'a' : 'b';
            stops[s][bytes] = '\0';
            const char *found = strstr(text, stops[s]);
            size_t end = found == NULL ? NO_MATCH : (size_t)(found - text) + bytes;
            if (end < best_end ||
                (end != NO_MATCH && end == best_end && bytes > strlen(stops[best]))) {
                best_end = end;
                best = s;
            }
        }
        struct result result = feed(strings, 3, false, text, 1 + (size_t)round % 7);
        size_t expected = best == NO_MATCH ? 63 : best_end - strlen(stops[best]);
        assert_int_equal(result.which, best);
        assert_int_equal(result.out.bytes, expected);
        assert_memory_equal(result.out.data, text, expected);
        buffer_done(&result.out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_without_a_stop_string_comes_out_whole),
        cmocka_unit_test(test_match_drops_the_string_and_all_after_it),
        cmocka_unit_test(test_of_several_the_earliest_end_wins_then_the_longest),
        cmocka_unit_test(test_self_overlapping_string_is_found),
        cmocka_unit_test(test_include_writes_the_string_too),
        cmocka_unit_test(test_only_a_possible_beginning_is_held_back),
        cmocka_unit_test(test_push_after_a_match_is_ignored),
        cmocka_unit_test(test_empty_push_changes_nothing),
        cmocka_unit_test(test_longest_allowed_string_is_held_and_found),
        cmocka_unit_test(test_too_many_strings_are_refused),
        cmocka_unit_test(test_random_text_agrees_with_a_plain_search),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
