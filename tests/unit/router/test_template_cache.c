/* template_cache.c: compiled once, found by its bytes, bounded. */
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/mem.h"
#include "router/template_cache.h"

static const struct chat_template *get(struct template_cache *cache, const char *source)
{
    const struct chat_template *template = NULL;
    struct errmsg err;
    assert_int_equal(template_cache_get(cache, source, strlen(source), &template, &err), 0);
    assert_non_null(template);
    return template;
}

static void test_a_template_is_compiled_once(void **state)
{
    struct template_cache *cache = template_cache_new();
    (void)state;
    const struct chat_template *one = get(cache, "one {{ messages|length }}");
    const struct chat_template *two = get(cache, "two {{ messages|length }}");
    assert_ptr_not_equal(one, two);
    assert_ptr_equal(get(cache, "one {{ messages|length }}"), one);
    assert_int_equal(template_cache_compiled(cache), 2);
    template_cache_free(cache);
}

static void test_the_one_not_used_for_the_longest_goes(void **state)
{
    struct template_cache *cache = template_cache_new();
    char source[32];
    (void)state;
    for (unsigned i = 0; i < TEMPLATE_CACHE_ENTRIES + 1; i++) {
        (void)snprintf(source, sizeof(source), "{{ %u }}", i);
        (void)get(cache, source);
        (void)get(cache, "{{ 0 }}"); /* stays the latest but one */
    }
    assert_int_equal(template_cache_count(cache), TEMPLATE_CACHE_ENTRIES);
    assert_int_equal(template_cache_compiled(cache), TEMPLATE_CACHE_ENTRIES + 1);
    (void)get(cache, "{{ 0 }}");
    assert_int_equal(template_cache_compiled(cache), TEMPLATE_CACHE_ENTRIES + 1);
    (void)get(cache, "{{ 1 }}"); /* went first */
    assert_int_equal(template_cache_compiled(cache), TEMPLATE_CACHE_ENTRIES + 2);
    template_cache_free(cache);
}

/* Text compiles to itself, tags to much more than they are. */
static void test_memory_is_bounded_together(void **state)
{
    static const char tag[] = "{%if 0%}{%endif%}";
    struct template_cache *cache = template_cache_new();
    char *source = mem_alloc(CHAT_TEMPLATE_SOURCE_MAX + 1);
    (void)state;
    memset(source, 'x', CHAT_TEMPLATE_SOURCE_MAX);
    source[CHAT_TEMPLATE_SOURCE_MAX] = '\0';
    for (char letter = 'a'; letter < 'a' + (char)TEMPLATE_CACHE_ENTRIES; letter++) {
        source[0] = letter;
        (void)get(cache, source);
        assert_true(template_cache_bytes(cache) <= TEMPLATE_CACHE_BYTES);
    }
    assert_in_range(template_cache_count(cache), 2, TEMPLATE_CACHE_ENTRIES - 1);
    for (size_t at = 0; at + strlen(tag) < CHAT_TEMPLATE_SOURCE_MAX; at += strlen(tag))
        memcpy(source + at, tag, strlen(tag));
    (void)get(cache, source);
    assert_int_equal(template_cache_count(cache), 1);
    assert_true(template_cache_bytes(cache) > TEMPLATE_CACHE_BYTES); /* alone it is more */
    (void)get(cache, "{{ 1 }}");
    assert_int_equal(template_cache_count(cache), 1);
    assert_true(template_cache_bytes(cache) <= TEMPLATE_CACHE_BYTES);
    mem_free(source);
    template_cache_free(cache);
}

static void test_a_clients_template_may_take_few_steps(void **state)
{
    struct template_cache *cache = template_cache_new();
    const struct render_input input = {.messages = NULL};
    struct rendered out;
    struct errmsg err = {""};
    (void)state;
    const struct chat_template *endless =
        get(cache, "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}");
    assert_int_equal(chat_template_render(endless, &input, &out, NULL, &err), -E2BIG);
    assert_non_null(strstr(err.text, "more than 2000000 steps"));
    const struct chat_template *long_one =
        get(cache, "{% for a in range(90000) %}{{ a }}{% endfor %}");
    assert_int_equal(chat_template_render(long_one, &input, &out, NULL, &err), 0);
    rendered_done(&out);
    template_cache_free(cache);
}

static void test_what_does_not_compile_is_not_kept(void **state)
{
    struct template_cache *cache = template_cache_new();
    const struct chat_template *template = NULL;
    struct errmsg err = {""};
    (void)state;
    assert_int_equal(template_cache_get(cache, "{% if %}", 8, &template, &err), -EINVAL);
    assert_null(template);
    assert_non_null(strstr(err.text, "line 1"));
    assert_int_equal(template_cache_count(cache), 0);
    template_cache_free(cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_template_is_compiled_once),
        cmocka_unit_test(test_the_one_not_used_for_the_longest_goes),
        cmocka_unit_test(test_memory_is_bounded_together),
        cmocka_unit_test(test_a_clients_template_may_take_few_steps),
        cmocka_unit_test(test_what_does_not_compile_is_not_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
