/* Which output bytes came from which message: the marks must survive everything a template can do
 * with a string, or a user's text could pass for a control token. */
#include "template_cases.h"

/* messages[0] = user "  Hello <b>\n", messages[1] = assistant "Yes, sir"; tools, documents, kwargs.
 */
static const char *const conversation = "[{\"role\": \"user\", \"content\": \"  Hello <b>\\n\", "
                                        "\"n\": 42, \"x\": {\"k1\": [\"v\", true]}},"
                                        " {\"role\": \"assistant\", \"content\": \"Yes, sir\"}]";

struct world {
    json_t *messages, *tools, *documents, *kwargs;
    struct render_input input;
};

static int set_up(void **state)
{
    struct world *world = mem_zalloc(sizeof(*world));
    world->messages = json_loads(conversation, 0, NULL);
    world->tools = json_loads("[{\"name\": \"tool\"}]", 0, NULL);
    world->documents = json_loads("[{\"text\": \"doc\"}]", 0, NULL);
    world->kwargs = json_loads("{\"effort\": \"high\", \"add\": \"<|x|>\"}", 0, NULL);
    world->input = (struct render_input){.messages = world->messages,
                                         .tools = world->tools,
                                         .documents = world->documents,
                                         .kwargs = world->kwargs,
                                         .bos_token = "<s>",
                                         .now = 1734597000.0};
    *state = world;
    return 0;
}

static int tear_down(void **state)
{
    struct world *world = *state;
    json_decref(world->messages);
    json_decref(world->tools);
    json_decref(world->documents);
    json_decref(world->kwargs);
    mem_free(world);
    return 0;
}

/* The output with its marks drawn in: C0{...} = content of message 0, R role, T, D, K. */
static void check(void **state, const char *source, const char *expected)
{
    const struct world *world = *state;
    struct errmsg err = {""};
    struct rendered out;
    char drawn[4096];
    size_t to = 0, at = 0;
    if (render_source(source, &world->input, &out, &err) < 0)
        fail_msg("%s: %s", source, err.text);
    for (size_t i = 0; i < out.spans_count; i++) {
        const struct text_span *span = &out.spans[i];
        assert_true(span->start >= at && span->end > span->start && span->end <= out.text.bytes);
        to += (size_t)snprintf(drawn + to, sizeof(drawn) - to, "%.*s%c", (int)(span->start - at),
                               out.text.data + at, "?CRTDK"[span->source]);
        if (span->message >= 0)
            to += (size_t)snprintf(drawn + to, sizeof(drawn) - to, "%d", span->message);
        to += (size_t)snprintf(drawn + to, sizeof(drawn) - to, "{%.*s}",
                               (int)(span->end - span->start), out.text.data + span->start);
        at = span->end;
    }
    (void)snprintf(drawn + to, sizeof(drawn) - to, "%s", out.text.data + at);
    rendered_done(&out);
    assert_string_equal(drawn, expected);
}

static void test_each_field_when_printed_has_its_own_mark(void **state)
{
    check(state, "{{ bos_token }}[{{ messages[1].role }}]{{ messages[1]['content'] }}!",
          "<s>[R1{assistant}]C1{Yes, sir}!");
    check(state, "{{ tools[0].name }} {{ documents[0].text }} {{ effort }}",
          "T{tool} D{doc} K{high}");
    check(state, "{{ messages[0].n }},{{ messages[0].x.k1[1] }},{{ messages[0].missing }}.",
          "C0{42},C0{True},.");
    check(state, "{% for k in messages[1] %}{{ k }};{% endfor %}", "C1{role};C1{content};");
}

static void test_joined_strings_keep_each_part(void **state)
{
    check(state, "{{ 'a' + messages[1].content + 'b' + messages[1].role + 'c' }}",
          "aC1{Yes, sir}bR1{assistant}c");
    check(state, "{{ 'a' ~ messages[1].content ~ 1 }}", "aC1{Yes, sir}1");
    check(state, "{{ ['x', messages[1].content, effort]|join('-') }}", "x-C1{Yes, sir}-K{high}");
    check(state, "{{ ', '.join(['x', messages[1].content]) }}", "x, C1{Yes, sir}");
    check(state, "{{ messages|map(attribute='role')|join('+') }}", "R0{user}+R1{assistant}");
    check(state, "{{ messages[1].content * 2 }}", "C1{Yes, sirYes, sir}");
    check(state, "{{ ('<' + messages[1].content + '>') * 2 }}", "<C1{Yes, sir}><C1{Yes, sir}>");
}

static void test_parts_of_strings_keep_their_part(void **state)
{
    check(state, "{{ messages[0].content|trim }}|", "C0{Hello <b>}|");
    check(state, "{{ ('[' + messages[1].content + ']')[:4] }}", "[C1{Yes}");
    check(state, "{{ ('[' + messages[1].content + ']')[::-1] }}", "]C1{ris ,seY}[");
    check(state, "{{ ('[' + messages[1].content + ']').split(', ')[1] }}", "C1{sir}]");
    check(state, "{{ messages[1].content.split(',')|join(';') }}", "C1{Yes};C1{ sir}");
    check(state, "{{ (' ' + messages[1].content + '  ').strip() }}", "C1{Yes, sir}");
    check(state, "{{ ('a' + messages[1].content)[0] }}{{ messages[1].content[0] }}", "aC1{Y}");
    check(state, "{{ messages[1].content|first }}{{ ('a' + effort)|last }}", "C1{Y}K{h}");
    check(state, "{% for c in 'ab' + effort %}{{ c }}.{% endfor %}", "a.b.K{h}.K{i}.K{g}.K{h}.");
    check(state, "{{ ('a-' + messages[1].content).partition('-')[2] }}", "C1{Yes, sir}");
    check(state, "{{ messages[1].content|truncate(6, true, '..', 0) }}", "C1{Yes,}..");
}

static void test_transformed_strings_stay_marked(void **state)
{
    check(state, "{{ messages[1].content|upper }}", "C1{YES, SIR}");
    check(state, "{{ ('on ' + messages[1].content)|upper }}", "ON C1{YES, SIR}");
    check(state, "{{ messages[1].content|title }}{{ messages[1].content.capitalize() }}",
          "C1{Yes, SirYes, sir}");
    check(state, "{{ messages[1].content|replace('s', 'z') }}", "C1{Ye}zC1{, }zC1{ir}");
    check(state, "{{ 'a b'|replace('b', messages[1].content) }}", "a C1{Yes, sir}");
    check(state, "{{ messages[0].content|escape }}", "C0{  Hello &lt;b&gt;\n}");
    check(state, "{{ messages[0].content|urlencode }}", "C0{%20%20Hello%20%3Cb%3E%0A}");
    check(state, "{{ messages[0].n|string }}{{ '7' ~ messages[0].n }}{{ messages[0].n + 1 }}",
          "C0{42}7C0{4243}");
    check(state, "{{ effort.center(8) }}{{ effort.rjust(6, '*') }}", "K{  high  **high}");
    check(state, "{{ 'x'.ljust(3, effort[0]) }}", "K{xhh}");
    check(state, "{{ (effort ~ '\n' ~ 'b')|indent(2) }}", "K{high}\n  b");
}

static void test_containers_printed_are_marked_as_a_whole(void **state)
{
    check(state, "{{ tools|tojson }}", "T{[{\"name\": \"tool\"}]}");
    check(state, "{{ tools }}", "T{[{'name': 'tool'}]}");
    check(state, "{{ messages[0].x|tojson(indent=1) }}",
          "C0{{\n \"k1\": [\n  \"v\",\n  true\n ]\n}}");
    check(state, "{{ messages[1]|tojson }}",
          "C1{{\"role\": }R1{\"assistant\"}C1{, \"content\": \"Yes, sir\"}}");
    check(state, "{{ {'a': effort}|tojson }}", "{\"a\": K{\"high\"}}");
    check(state, "{{ [effort, 'x'] }}", "[K{'high'}, 'x']");
    check(state, "{{ messages[0].x.items()|list }}", "C0{[('k1', ['v', True])]}");
    check(state, "{{ messages[0].content|tojson }}", "C0{\"  Hello <b>\\n\"}");
}

static void test_format_marks_what_is_filled_in(void **state)
{
    check(state, "{{ '%s and %5s' % (effort, 'x') }}", "K{high} and     x");
    check(state, "{{ '%(a)s!' % {'a': effort} }}", "K{high}!");
    check(state, "{{ '{}:{x}'.format(effort, x=messages[0].n) }}", "K{high}:C0{42}");
    check(state, "{{ effort|format }}{{ (effort ~ '%d')|format(3) }}", "K{highhigh}3");
    check(state, "{{ '%c' % messages[0].n }}", "C0{*}");
    check(state, "{{ '{:>6}'.format(effort) }}", "K{  high}");
}

static void test_marks_go_through_macros_blocks_and_namespaces(void **state)
{
    check(state, "{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m(effort) + m('y') }}", "<K{high}><y>");
    check(state, "{% set x %}a{{ effort }}b{% endset %}{{ x[1:] }}", "K{high}b");
    check(state, "{% filter upper %}a{{ effort }}b{% endfilter %}", "AK{HIGH}B");
    check(state,
          "{% set ns = namespace(t='') %}{% for m in messages %}"
          "{% set ns.t = ns.t + '/' + m.role %}{% endfor %}{{ ns.t }}",
          "/R0{user}/R1{assistant}");
    check(state,
          "{% macro m() %}[{{ caller() }}]{% endmacro %}{% call m() %}{{ effort }}{% endcall %}",
          "[K{high}]");
    check(state, "{% generation %}{{ messages[1].content }}{% endgeneration %}", "C1{Yes, sir}");
}

static void test_a_control_token_in_a_request_is_marked_wherever_it_goes(void **state)
{
    check(state, "<|x|>{{ add }}{{ add[:3] + '|>' }}", "<|x|>K{<|x|><|x}|>");
    check(state, "{{ add|list|join }}", "K{<|x|>}");
    check(state, "{{ (add|tojson)[1:-1] }}", "K{<|x|>}");
    check(state, "{{ [add]|string }}", "[K{'<|x|>'}]");
    check(state, "{{ add|default('q')|safe }}{{ none|default(add, true) }}", "K{<|x|><|x|>}");
    check(state, "{{ {add: 1}|list|first }}{{ [add]|sort|max }}", "K{<|x|><|x|>}");
    check(state, "{{ dict([[add, add]]).items()|map('join')|first }}", "K{<|x|><|x|>}");
    check(state, "{% macro m() %}{{ kwargs.keys()|first }}{% endmacro %}{{ m(**{add: 1}) }}",
          "K{<|x|>}");
    check(state, "{{ [[add, 1]]|groupby(0)|map(attribute='grouper')|first }}", "K{<|x|>}");
    check(state, "{{ strftime_now(add) }}", "K{<|x|>}");
}

/* ---- every published template ---- */

static size_t rendered_cases, sentinels_seen;

static bool covered(const struct rendered *out, size_t start, size_t end, int32_t message)
{
    for (size_t i = 0; i < out->spans_count && start < end; i++) {
        const struct text_span *span = &out->spans[i];
        if (span->start <= start && span->end > start && span->message == message)
            start = span->end;
    }
    return start >= end;
}

/* Append a sign that names the message to every text in `json` except identifiers and types. */
static json_t *with_sentinels(const json_t *json, const char *key, const char *sentinel, bool deep)
{
    json_t *copy;
    if (json_is_string(json)) {
        static const char *const kept[] = {"role", "type", "id", "tool_call_id", "name"};
        bool plain = !deep && strcmp(key, "content") != 0 && strcmp(key, "text") != 0;
        for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
            plain = plain || strcmp(key, kept[i]) == 0;
        return json_sprintf("%s%s", json_string_value(json), plain ? "" : sentinel);
    }
    if (json_is_array(json)) {
        copy = json_array();
        for (size_t i = 0; i < json_array_size(json); i++)
            json_array_append_new(copy,
                                  with_sentinels(json_array_get(json, i), key, sentinel, deep));
        return copy;
    }
    if (!json_is_object(json))
        return json_deep_copy(json);
    copy = json_object();
    for (void *at = json_object_iter((json_t *)(uintptr_t)json); at != NULL;
         at = json_object_iter_next((json_t *)(uintptr_t)json, at))
        json_object_set_new(
            copy, json_object_iter_key(at),
            with_sentinels(json_object_iter_value(at), json_object_iter_key(at), sentinel, deep));
    return copy;
}

static void check_case(const struct chat_template *template, const json_t *entry, bool deep)
{
    struct render_input input = case_input(entry);
    struct rendered out;
    struct errmsg err;
    json_t *messages = json_array();
    for (size_t i = 0; i < json_array_size(input.messages); i++) {
        char sentinel[48];
        (void)snprintf(sentinel, sizeof(sentinel), "<|sentinel %zu|>", i);
        json_array_append_new(
            messages, with_sentinels(json_array_get(input.messages, i), "", sentinel, deep));
    }
    input.messages = messages;
    if (chat_template_render(template, &input, &out, NULL, &err) == 0) {
        rendered_cases++;
        for (const char *at = out.text.data; (at = strstr(at, "<|sentinel ")) != NULL; at++) {
            size_t start = (size_t)(at - out.text.data);
            size_t bytes = (size_t)(strstr(at, "|>") + 2 - at);
            assert_true(covered(&out, start, start + bytes, atoi(at + 11)));
            sentinels_seen++;
        }
        rendered_done(&out);
    }
    json_decref(messages);
}

static void test_every_template_marks_every_copy_of_a_message(void **state)
{
    struct dirent **entries;
    (void)state;
    int count = scandir(CASES_DIR, &entries, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        char name[200];
        (void)snprintf(name, sizeof(name), "%.190s", entries[i]->d_name);
        free(entries[i]);
        char *suffix = strstr(name, ".cases.json");
        if (suffix == NULL || strncmp(name, "jinja-features", 14) == 0)
            continue;
        json_t *cases = load_cases(name);
        *suffix = '\0';
        struct chat_template *template = load_template(name);
        for (size_t k = 0; k < json_array_size(cases); k++) {
            check_case(template, json_array_get(cases, k), false);
            check_case(template, json_array_get(cases, k), true);
        }
        chat_template_free(template);
        json_decref(cases);
    }
    free(entries);
    printf("marks: %zu texts rendered, %zu copies of messages checked\n", rendered_cases,
           sentinels_seen);
    assert_true(rendered_cases > 400 && sentinels_seen > 1000);
}

/* Text outside all marks is the template's: cutting the marks out leaves no content behind, and
 * the template's own control tokens stay unmarked. */
static void test_text_that_looks_like_control_tokens_is_told_apart(void **state)
{
    size_t checked = 0;
    (void)state;
    json_t *cases = load_cases("qwen2.5-7b-instruct.cases.json");
    struct chat_template *template = load_template("qwen2.5-7b-instruct");
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *entry = json_array_get(cases, i);
        const struct render_input input = case_input(entry);
        struct rendered out;
        struct errmsg err;
        if (strcmp(json_string_value(json_object_get(entry, "name")), "special-token-text") != 0)
            continue;
        assert_int_equal(chat_template_render(template, &input, &out, NULL, &err), 0);
        assert_int_equal(out.text.data[0], '<');
        assert_true(out.spans[0].start >= strlen("<|im_start|>"));
        for (size_t k = 0; k < json_array_size(input.messages); k++) {
            const char *content =
                json_string_value(json_object_get(json_array_get(input.messages, k), "content"));
            const char *at = strstr(out.text.data, content);
            assert_non_null(at);
            size_t start = (size_t)(at - out.text.data);
            assert_true(covered(&out, start, start + strlen(content), (int32_t)k));
        }
        rendered_done(&out);
        checked++;
    }
    chat_template_free(template);
    json_decref(cases);
    assert_int_equal(checked, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_each_field_when_printed_has_its_own_mark, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_joined_strings_keep_each_part, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_parts_of_strings_keep_their_part, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_transformed_strings_stay_marked, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_containers_printed_are_marked_as_a_whole, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_format_marks_what_is_filled_in, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_marks_go_through_macros_blocks_and_namespaces, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(
            test_a_control_token_in_a_request_is_marked_wherever_it_goes, set_up, tear_down),
    };
    const struct CMUnitTest case_tests[] = {
        cmocka_unit_test(test_every_template_marks_every_copy_of_a_message),
        cmocka_unit_test(test_text_that_looks_like_control_tokens_is_told_apart),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    json_t *cases = load_cases("qwen2.5-7b-instruct.cases.json");
    if (cases == NULL)
        return failed ? failed : TEST_SKIPPED;
    json_decref(cases);
    return failed + cmocka_run_group_tests(case_tests, NULL, NULL);
}
