/* Hostile templates get an error that names line and cause, in bounded time and memory, on the C
 * stack of a test process; wrong ones are refused when they are loaded. */
#include "template_cases.h"

#include "proto/base/buffer.h"

static const struct render_input nothing = {.add_generation_prompt = true};

static void fails(const char *source, int code, const char *text)
{
    struct errmsg err = {""};
    struct rendered out;
    int r = render_source(source, &nothing, &out, &err);
    if (r != code || strstr(err.text, text) == NULL)
        fail_msg("%.200s: %d \"%s\", expected %d \"%s\"", source, r, err.text, code, text);
}

static void renders(const char *source, const char *expected)
{
    struct errmsg err = {""};
    struct rendered out;
    if (render_source(source, &nothing, &out, &err) < 0)
        fail_msg("%s: %s", source, err.text);
    assert_string_equal(out.text.data, expected);
    rendered_done(&out);
}

/* before + middle * times + after */
static char *repeated(const char *before, const char *middle, size_t times, const char *after)
{
    struct buffer text;
    buffer_init(&text, 8u << 20);
    buffer_append_text(&text, before);
    for (size_t i = 0; i < times; i++)
        buffer_append_text(&text, middle);
    buffer_append_text(&text, after);
    assert_int_equal(buffer_finish(&text), 0);
    return buffer_take(&text, NULL);
}

static void fails_repeated(const char *before, const char *middle, size_t times, const char *after,
                           int code, const char *text)
{
    char *source = repeated(before, middle, times, after);
    fails(source, code, text);
    mem_free(source);
}

static void test_syntax_errors_when_loaded_name_line_and_cause(void **state)
{
    (void)state;
    fails("a\n{% if x %}", -EINVAL, "line 2: the template ends where 'endif' is expected");
    fails("a\n\n{{ 1 + }}", -EINVAL, "line 3: expected an expression, got end of print statement");
    fails("{% foo %}", -EINVAL, "line 1: unknown or unsupported tag 'foo'");
    fails("{% include 'x' %}", -EINVAL, "unsupported tag 'include'");
    fails("{{ x", -EINVAL, "line 1: the template ends inside a tag");
    fails("{# x", -EINVAL, "line 1: a comment is not closed");
    fails("{% raw %}x", -EINVAL, "line 1: a raw block is not closed");
    fails("{{ 'x }}", -EINVAL, "line 1: a string is not closed");
    fails("{{ (1] }}", -EINVAL, "line 1: unexpected ']', expected ')'");
    fails("{{ 99999999999999999999 }}", -EINVAL, "not valid or too big");
    fails("{{ '\\ud800' }}", -EINVAL, "escape");
    fails("{% break %}", -EINVAL, "line 1: 'break' outside of a loop");
    fails("{% for x in y %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}", -EINVAL,
          "outside of a loop");
    fails("{% endif %}", -EINVAL, "unknown or unsupported tag 'endif'");
    fails("{{ a b }}", -EINVAL, "expected end of print statement, got 'b'");
    fails("{% set 1 = 2 %}", -EINVAL, "expected a name to assign to");
    fails("{{ \xff }}", -EINVAL, "not valid UTF-8");
    fails("{{ f(a=1, 2) }}", -EINVAL, "invalid syntax for function call");
}

static void test_unknown_filters_are_refused_unless_a_condition_guards_them(void **state)
{
    (void)state;
    fails("a\n{{ 1|nofilter }}", -EINVAL, "line 2: no filter named 'nofilter'");
    fails("{% for x in [] %}{{ 1 is notest }}{% endfor %}", -EINVAL, "no test named 'notest'");
    fails("{% if 0 %}{% for x in [] %}{{ 1|nofilter }}{% endfor %}{% endif %}", -EINVAL,
          "no filter named 'nofilter'");
    fails("{% if 1 %}{{ 1|nofilter }}{% endif %}", -EINVAL, "no filter named 'nofilter'");
    renders("{% if 0 %}{{ 1|nofilter }}{% else %}a{% endif %}", "a");
    renders("{{ 1|nofilter if 0 else 'a' }}", "a");
    renders("{{ x|trim if 'nofilter' is filter else 'a' }}", "a");
}

static void test_type_errors_when_rendered_name_line_and_cause(void **state)
{
    (void)state;
    fails("\n{{ 1 + 'a' }}", -EINVAL, "line 2: unsupported operand type(s) for +: 'int' and 'str'");
    fails("{{ 'a' + 1 }}", -EINVAL, "line 1: can only concatenate str (not \"int\") to str");
    fails("{{ x.y.z }}", -EINVAL, "line 1: 'x' is undefined");
    fails("{{ {}.y.z }}", -EINVAL, "line 1: 'dict object' has no attribute 'y'");
    fails("{{ messages[0].role }}", -EINVAL, "line 1: list object has no element 0");
    fails("{{ [].append(1) }}", -EINVAL, "access to attribute 'append' of 'list object' is unsafe");
    fails("{{ 1 // 0 }}", -EINVAL, "division by zero");
    fails("{{ 9223372036854775807 + 1 }}", -EINVAL, "integer overflow");
    fails("{{ 3 ** 99 }}", -EINVAL, "integer overflow");
    fails("{% for x in none %}{% endfor %}", -EINVAL, "'NoneType' object is not iterable");
    fails("{{ {[]: 1} }}", -EINVAL, "unhashable type: 'list'");
    fails("{{ undefined_function() }}", -EINVAL, "'undefined_function' is undefined");
    fails("{% set a, b = [1] %}", -EINVAL, "not enough values to unpack");
    fails("{{ x|tojson }}", -EINVAL, "Object of type Undefined is not JSON serializable");
    fails("{% set x = {} %}{% set x.y = 1 %}", -EINVAL, "non-namespace object");
}

static void test_raise_exception_gives_the_templates_own_sentence_and_line(void **state)
{
    struct errmsg err = {""};
    struct rendered out = {.spans_count = 77};
    struct chat_template *template = NULL;
    uint32_t line = 0;
    const char *source = "a\nb\n{{ raise_exception('Roles must ' ~ 'alternate') }}";
    (void)state;
    assert_int_equal(chat_template_new(source, strlen(source), &template, &err), 0);
    assert_int_equal(chat_template_render(template, &nothing, &out, &line, &err), -EINVAL);
    assert_string_equal(err.text, "Roles must alternate");
    assert_int_equal(line, 3);
    assert_int_equal(out.spans_count, 77); /* untouched */
    chat_template_free(template);
}

static void test_sources_too_big_are_refused(void **state)
{
    struct errmsg err = {""};
    struct chat_template *template = NULL;
    char *source = repeated("", "aaaaaaaaaaaaaaaa", (CHAT_TEMPLATE_SOURCE_MAX >> 4) + 1, "");
    (void)state;
    assert_int_equal(chat_template_new(source, strlen(source), &template, &err), -E2BIG);
    assert_non_null(strstr(err.text, "at most 1048576"));
    assert_int_equal(chat_template_new(source, CHAT_TEMPLATE_SOURCE_MAX, &template, &err), 0);
    chat_template_free(template);
    mem_free(source);
}

static void test_deep_nesting_when_loaded_is_refused(void **state)
{
    (void)state;
    fails_repeated("{{ ", "(", 30000, "", -EINVAL, "nested too deep");
    fails_repeated("{{ ", "(", 900, "", -EINVAL, "line 1: ");
    fails_repeated("{{ ", "[[", 450, "", -EINVAL, "line 1: ");
    char brackets[2 * 300 + 16];
    memset(brackets, '(', sizeof(brackets));
    memcpy(brackets, "{{ ", 3);
    memcpy(brackets + 303, "1", 1);
    memset(brackets + 304, ')', 300);
    memcpy(brackets + 604, " }}", 4);
    fails(brackets, -EINVAL, "levels deep");
    fails_repeated("{{ ", "not ", 20000, "1 }}", -EINVAL, "levels deep");
    fails_repeated("{{ ", "-", 100000, "1 }}", -EINVAL, "levels deep");
    fails_repeated("{{ a", ".b", 40000, " }}", -EINVAL, "levels deep");
    fails_repeated("{{ a", "[0]", 20000, " }}", -EINVAL, "levels deep");
    fails_repeated("{{ a", "()", 20000, " }}", -EINVAL, "levels deep");
    fails_repeated("{{ a", "|trim", 10000, " }}", -EINVAL, "levels deep");
    fails_repeated("{{ ", "1 if 1 else ", 8000, "1 }}", -EINVAL, "levels deep");
    fails_repeated("", "{% if 1 %}", 9000, "", -EINVAL, "levels deep");
    fails_repeated("", "{% for x in y %}", 6000, "", -EINVAL, "levels deep");
    fails_repeated("{% for ", "(", 900, "", -EINVAL, "line 1: ");
    fails_repeated("{% if 1 is in ", "[", 900, "", -EINVAL, "line 1: ");
}

static void test_long_chains_are_not_deep(void **state)
{
    char *source = repeated("{{ 1", " + 1", 100000, " }}");
    (void)state;
    renders(source, "100001");
    mem_free(source);
    source = repeated("{{ 0", " or 0", 100000, " }}");
    renders(source, "0");
    mem_free(source);
    source = repeated("{{ [", "1, ", 100000, "]|length }}");
    renders(source, "100000");
    mem_free(source);
    source = repeated("{% if 0 %}", "{% elif 0 %}", 50000, "{% else %}x{% endif %}");
    renders(source, "x");
    mem_free(source);
    fails_repeated("{{ 1", " if 1", 100000, " }}", -E2BIG, "nested too deep");
}

static void test_endless_recursion_is_stopped(void **state)
{
    (void)state;
    fails("{% macro m() %}{{ m() }}{% endmacro %}\n{{ m() }}", -E2BIG, "200 macro calls");
    fails("{% macro m(n) %}{% if n %}{% for x in [n] %}{% if x %}{% filter trim %}{{ [[[m(n + "
          "1)]]] }}"
          "{% endfilter %}{% endif %}{% endfor %}{% endif %}{% endmacro %}{{ m(1) }}",
          -E2BIG, "nested too deep");
    fails("{% macro m() %}{{ caller() }}{% endmacro %}{% macro n() %}{% call m() %}{{ n() }}"
          "{% endcall %}{% endmacro %}{{ n() }}",
          -E2BIG, "macro calls");
    fails("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", -E2BIG, "nested too deep");
}

static void test_data_that_contains_itself_is_stopped(void **state)
{
    (void)state;
    fails("{% set n = namespace() %}{% set n.a = n %}{{ n }}", -E2BIG, "nested too deep");
    fails("{% set n = namespace(a=[]) %}{% for i in range(100000) %}{% set n.a = [n.a] %}"
          "{% endfor %}{{ n.a }}",
          -E2BIG, "nested too deep");
    fails("{% set n = namespace(a=[]) %}{% for i in range(100000) %}{% set n.a = [n.a] %}"
          "{% endfor %}{{ n.a|tojson }}",
          -E2BIG, "nested too deep");
    fails("{% set n = namespace(a=(), b=()) %}{% for i in range(9999) %}{% set n.a = (n.a,) %}"
          "{% set n.b = (n.b,) %}{% endfor %}{{ n.a == n.b }}",
          -E2BIG, "nested too deep");
    fails("{% set n = namespace(a=()) %}{% for i in range(9999) %}{% set n.a = (n.a,) %}"
          "{% endfor %}{{ {n.a: 1} }}",
          -EINVAL, "unhashable");
}

static void test_work_without_end_is_stopped(void **state)
{
    const char *endless =
        "{% for a in range(10000) %}{% for b in range(10000) %}{% endfor %}{% endfor %}";
    struct chat_template *template = NULL;
    struct errmsg err = {""};
    struct rendered out;
    (void)state;
    assert_int_equal(chat_template_new(endless, strlen(endless), &template, &err), 0);
    chat_template_distrust(template);
    assert_int_equal(chat_template_render(template, &nothing, &out, NULL, &err), -E2BIG);
    assert_non_null(strstr(err.text, "2000000 steps"));
    chat_template_free(template);
    /* A model's own, in strides: a list is compared with itself at a step per element. */
    renders("{% set l = [0] * 1000000 %}{% for a in range(48) %}{% set x = l == l %}{% endfor %}",
            "");
    fails("{% set l = [0] * 1000000 %}{% for a in range(50) %}{% set x = l == l %}{% endfor %}",
          -E2BIG, "50000000 steps");
    fails("{{ range(1000000) }}", -E2BIG, "Range too big");
    fails("{{ range(0, 9223372036854775807, 9223372036854775807) }}", -E2BIG, "too big");
}

static void test_text_without_end_is_stopped(void **state)
{
    (void)state;
    fails("{{ 'a' * 10**9 }}", -E2BIG, "passes 67108864 bytes");
    fails("{{ 'aaaa' * 10**15 * 10**15 }}", -E2BIG, "passes 67108864 bytes");
    fails("{% set n = namespace(t='x') %}{% for i in range(60) %}{% set n.t = n.t ~ n.t %}"
          "{% endfor %}{{ n.t }}",
          -E2BIG, "a string of more than 67108864 bytes");
    fails("{% set n = namespace(t='xy') %}{% for i in range(60) %}{% set n.t = [n.t, n.t]|join %}"
          "{% endfor %}",
          -E2BIG, "bytes");
    fails("{% for i in range(1000) %}{{ 'x' * 1000000 }}{% endfor %}", -E2BIG, "bytes");
    fails("{{ 'a'.center(10**10) }}", -E2BIG, "67108864 bytes");
    fails("{{ 'a\nb'|indent(10**10) }}", -E2BIG, "67108864 bytes");
    fails("{{ '%99999999999999999999d' % 1 }}", -E2BIG, "width");
    fails("{{ '{:99999999999d}'.format(1) }}", -E2BIG, "width");
    fails("{{ ('a' * 1000000)|replace('', 'a' * 100) }}", -E2BIG, "bytes");
}

static void test_memory_without_end_is_stopped(void **state)
{
    (void)state;
    fails("{{ [0] * 10**9 }}", -E2BIG, "too big");
    fails("{% set n = namespace(l=[1]) %}{% for i in range(60) %}{% set n.l = n.l + n.l %}"
          "{% endfor %}",
          -E2BIG, "bytes of memory");
    fails("{{ ('a' * 5000000)|list|length }}", -E2BIG, "bytes of memory");
    fails("{{ ('a,' * 5000000).split(',')|length }}", -E2BIG, "bytes of memory");
    fails("{{ [1]|batch(10**9, 'x')|list }}", -E2BIG, "memory");
    fails("{{ [1]|slice(10**9)|list }}", -EINVAL, "out of range");
}

static void test_long_sums_of_strings_are_linear(void **state)
{
    (void)state; /* a rope of 100,000 pieces: written and flattened without recursion */
    renders("{% set n = namespace(t='') %}{% for i in range(100000) %}"
            "{% set n.t = n.t ~ 'abcdefghijabcdefghijabcdefghijabcdefghij' %}{% endfor %}"
            "{{ n.t|length }}",
            "4000000");
    renders("{% set n = namespace(t='') %}{% for i in range(100000) %}"
            "{% set n.t = 'abcdefghijabcdefghijabcdefghijabcdefghij' ~ n.t %}{% endfor %}"
            "{{ n.t|length }}",
            "4000000");
}

static void test_a_template_after_an_error_renders_again(void **state)
{
    struct errmsg err = {""};
    struct rendered out;
    struct chat_template *template = NULL;
    json_t *kwargs = json_pack("{s:b}", "bad", 1);
    struct render_input input = {.kwargs = kwargs};
    const char *source = "{{ 'text' }}{% if bad %}{{ [] + 1 }}{% endif %}";
    (void)state;
    assert_int_equal(chat_template_new(source, strlen(source), &template, &err), 0);
    for (int i = 0; i < 3; i++) {
        input.kwargs = kwargs;
        assert_int_equal(chat_template_render(template, &input, &out, NULL, &err), -EINVAL);
        input.kwargs = NULL;
        assert_int_equal(chat_template_render(template, &input, &out, NULL, &err), 0);
        assert_string_equal(out.text.data, "text");
        rendered_done(&out);
    }
    chat_template_free(template);
    json_decref(kwargs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_syntax_errors_when_loaded_name_line_and_cause),
        cmocka_unit_test(test_unknown_filters_are_refused_unless_a_condition_guards_them),
        cmocka_unit_test(test_type_errors_when_rendered_name_line_and_cause),
        cmocka_unit_test(test_raise_exception_gives_the_templates_own_sentence_and_line),
        cmocka_unit_test(test_sources_too_big_are_refused),
        cmocka_unit_test(test_deep_nesting_when_loaded_is_refused),
        cmocka_unit_test(test_long_chains_are_not_deep),
        cmocka_unit_test(test_endless_recursion_is_stopped),
        cmocka_unit_test(test_data_that_contains_itself_is_stopped),
        cmocka_unit_test(test_work_without_end_is_stopped),
        cmocka_unit_test(test_text_without_end_is_stopped),
        cmocka_unit_test(test_memory_without_end_is_stopped),
        cmocka_unit_test(test_long_sums_of_strings_are_linear),
        cmocka_unit_test(test_a_template_after_an_error_renders_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
