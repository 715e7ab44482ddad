/* answer_formats.c: what is picked for a model, and a request's plan. */
#include <cmocka.h>

#include <string.h>

#include "router/answer_formats.h"
#include "tests/unit/router/tiny_card.h"

static const char hermes[] = "{{ '<tool_call></tool_call></think>' }}";

struct fixture {
    struct model_card *card;
    struct tokenizer *tokenizer;
    struct answer_settings settings;
    struct answer_formats formats;
    struct api_request request;
    struct answer_plan plan;
};

static void setup(struct fixture *f, const char *control)
{
    struct errmsg err;

    memset(f, 0, sizeof(*f));
    f->card = tiny_card_with(NULL, control);
    assert_int_equal(tokenizer_new(f->card, &f->tokenizer, &err), 0);
    f->settings = (struct answer_settings){.reasoning_parser = "auto", .tool_call_parser = "auto"};
    f->request.kind = API_CHAT;
    f->request.tool_choice = API_TOOLS_AUTO;
    f->request.skip_special_tokens = true;
    f->request.parallel_tool_calls = f->request.include_reasoning = true;
}

static void teardown(struct fixture *f)
{
    tokenizer_free(f->tokenizer);
    model_card_unref(f->card);
}

static void pick(struct fixture *f, const char *source)
{
    answer_formats_pick(&f->settings, f->tokenizer, source, source ? strlen(source) : 0,
                        &f->formats);
}

/* The prompt is `text`, a token per byte. */
static void plan(struct fixture *f, const char *text)
{
    uint32_t ids[200];
    size_t count = strlen(text);
    for (size_t i = 0; i < count; i++)
        ids[i] = TINY_BYTE(text[i]);
    answer_plan_make(&f->formats, f->tokenizer, &f->request, ids, count, 1000, &f->plan);
}

static void test_auto_reads_the_template_then_the_vocabulary(void **state)
{
    struct fixture f;
    (void)state;
    setup(&f, "[TOOL_CALLS]");
    pick(&f, hermes);
    assert_string_equal(f.formats.tools->name, "hermes");
    assert_string_equal(f.formats.reasoning->name, "qwen3");
    assert_false(f.formats.markers_are_control);
    pick(&f, "{{ messages }}");
    assert_string_equal(f.formats.tools->name, "mistral");
    assert_null(f.formats.reasoning);
    assert_true(f.formats.markers_are_control);
    assert_int_equal(f.formats.kept_tools_count, 1);
    assert_int_equal(f.formats.kept_tools[0], TINY_USER);
    pick(&f, NULL);
    assert_string_equal(f.formats.tools->name, "mistral");
    teardown(&f);
    setup(&f, "<user>");
    pick(&f, "{{ messages }}");
    assert_null(f.formats.tools);
    teardown(&f);
}

static void test_settings_name_or_switch_off(void **state)
{
    struct fixture f;
    struct errmsg err = {""};
    (void)state;
    setup(&f, "<user>");
    f.settings.reasoning_parser = "deepseek_r1";
    f.settings.tool_call_parser = "deepseek_v31";
    assert_int_equal(answer_settings_check(&f.settings, &err), 0);
    pick(&f, hermes);
    assert_string_equal(f.formats.reasoning->name, "deepseek_r1");
    assert_string_equal(f.formats.tools->name, "deepseek_v3");
    f.settings.reasoning_parser = f.settings.tool_call_parser = "none";
    assert_int_equal(answer_settings_check(&f.settings, &err), 0);
    pick(&f, hermes);
    assert_null(f.formats.reasoning);
    assert_null(f.formats.tools);
    f.settings.tool_call_parser = "hermess";
    assert_true(answer_settings_check(&f.settings, &err) < 0);
    assert_non_null(strstr(err.text, "'hermess' is not known; there are auto, none, "));
    for (size_t i = 0; tool_format_at(i); i++)
        assert_non_null(strstr(err.text, tool_format_at(i)->name));
    f.settings.reasoning_parser = "r2";
    assert_true(answer_settings_check(&f.settings, &err) < 0);
    assert_non_null(
        strstr(err.text, "--reasoning-parser: 'r2' is not known; there are auto, none, "));
    for (size_t i = 0; reasoning_format_at(i); i++)
        assert_non_null(strstr(err.text, reasoning_format_at(i)->name));
    teardown(&f);
}

static void test_calls_are_read_only_where_they_may_be(void **state)
{
    struct fixture f;
    (void)state;
    setup(&f, "<tool_call>");
    pick(&f, "{{ '<tool_call>' }}");
    plan(&f, "x");
    assert_true(f.plan.reads && f.plan.calls_end_answer && f.plan.reader.hide_markers);
    assert_ptr_equal(f.plan.reader.tool_format, f.formats.tools);
    assert_false(f.plan.reader.one_call);
    assert_int_equal(f.plan.kept_count, 1);
    f.request.parallel_tool_calls = f.request.skip_special_tokens = false;
    plan(&f, "x");
    assert_true(f.plan.reader.one_call);
    assert_false(f.plan.reader.hide_markers);
    f.request.tool_choice = API_TOOLS_NONE;
    plan(&f, "x");
    assert_false(f.plan.reads);
    assert_int_equal(f.plan.kept_count, 0);
    f.request.tool_choice = API_TOOLS_AUTO;
    f.settings.no_auto_tools = true;
    pick(&f, "{{ '<tool_call>' }}");
    plan(&f, "x");
    assert_false(f.plan.reads);
    teardown(&f);
}

static void test_the_prompt_says_whether_the_model_thinks(void **state)
{
    struct fixture f;
    (void)state;
    setup(&f, "<think>");
    pick(&f, hermes);
    f.request.tool_choice = API_TOOLS_NONE;
    plan(&f, "assistant\n<think>\n");
    assert_true(f.plan.reads);
    assert_null(f.plan.reader.tool_format);
    assert_int_equal(f.plan.reader.reasoning_start, REASONING_INSIDE);
    assert_int_equal(f.plan.kept_count, 1); /* <think> is a control token of this one */
    assert_int_equal(f.plan.kept_calls, 0);
    plan(&f, "a long prompt, longer than what is looked at: <think></think>\n\n");
    assert_int_equal(f.plan.reader.reasoning_start, REASONING_AFTER);
    plan(&f, "assistant\n");
    assert_int_equal(f.plan.reader.reasoning_start, REASONING_START);
    f.request.include_reasoning = false;
    f.request.continue_final_message = true;
    f.request.messages = json_loads("[{\"content\": \"<think>I was\"}]", 0, NULL);
    plan(&f, "<think>I was");
    assert_true(f.plan.reader.drop_reasoning);
    assert_int_equal(f.plan.reader.reasoning_start, REASONING_INSIDE);
    json_decref(f.request.messages);
    f.request.kind = API_COMPLETIONS;
    plan(&f, "x");
    assert_false(f.plan.reads);
    teardown(&f);
}

static const char two_tools[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"type\": "
    "\"object\", \"properties\": {\"a\": {\"type\": \"integer\"}}}}},"
    "{\"type\": \"function\", \"function\": {\"name\": \"g\"}}]";

/* The grammar of the request must compile; how many tools its text names. */
static size_t alternatives(const struct fixture *f)
{
    struct grammar *grammar = NULL;
    struct errmsg err = {""};
    json_t *spec = json_loadb(f->request.grammar.text, f->request.grammar.bytes, 0, NULL);
    size_t count = json_array_size(json_object_get(spec, "alternatives"));

    assert_int_equal(f->request.grammar.kind, GRAMMAR_STRUCTURE);
    assert_string_equal(f->request.grammar_param, "tools");
    if (grammar_compile(&f->request.grammar, &grammar, &err) < 0)
        fail_msg("%s", err.text);
    grammar_unref(grammar);
    json_decref(spec);
    return count;
}

static void test_forced_calls_have_a_grammar_and_are_read_without_thinking(void **state)
{
    struct api_error error;
    struct arena arena;
    struct fixture f;
    json_t *tools = json_loads(two_tools, 0, NULL);
    json_t *name = json_string("g");
    (void)state;
    setup(&f, "<user>");
    arena_init(&arena, 1 << 20);
    pick(&f, hermes);
    f.request.tools = tools;
    assert_int_equal(answer_force_calls(&f.formats, &arena, &f.request, &error), 0);
    assert_int_equal(f.request.grammar.kind, GRAMMAR_NONE); /* auto forces nothing */
    f.request.tool_choice = API_TOOLS_REQUIRED;
    assert_int_equal(answer_force_calls(&f.formats, &arena, &f.request, &error), 0);
    assert_int_equal(alternatives(&f), 2);
    plan(&f, "assistant\n<think>\n");
    assert_true(f.plan.reads && f.plan.calls_end_answer);
    assert_null(f.plan.reader.reasoning);
    assert_string_equal(f.plan.reader.tool_format->name, "hermes");
    assert_false(f.plan.reader.one_call);
    f.request.tool_choice = API_TOOLS_NAMED;
    f.request.tool_name = name;
    assert_int_equal(answer_force_calls(&f.formats, &arena, &f.request, &error), 0);
    assert_int_equal(alternatives(&f), 1);
    plan(&f, "x");
    assert_true(f.plan.reader.one_call);
    assert_false(f.plan.calls_end_answer);
    arena_done(&arena);
    json_decref(name);
    json_decref(tools);
    teardown(&f);
}

static void test_schemas_that_are_too_long_are_refused(void **state)
{
    struct api_error error;
    struct arena arena;
    struct fixture f;
    json_t *tools = json_loads(two_tools, 0, NULL);
    json_t *function = json_object_get(json_array_get(tools, 0), "function");
    char *text = test_malloc(GRAMMAR_TEXT_MAX + 1);
    (void)state;
    memset(text, 'x', GRAMMAR_TEXT_MAX);
    text[GRAMMAR_TEXT_MAX] = '\0';
    (void)json_object_set_new(json_object_get(function, "parameters"), "description",
                              json_string(text));
    setup(&f, "<user>");
    arena_init(&arena, 1 << 20);
    pick(&f, NULL);
    f.request.tools = tools;
    f.request.tool_choice = API_TOOLS_REQUIRED;
    assert_true(answer_force_calls(&f.formats, &arena, &f.request, &error) < 0);
    assert_string_equal(error.param, "tools");
    arena_done(&arena);
    test_free(text);
    json_decref(tools);
    teardown(&f);
}

static bool budget(struct fixture *f, const char *text, Refrain__Thinking *ret_thinking)
{
    uint32_t ids[200];
    size_t count = strlen(text);
    for (size_t i = 0; i < count; i++)
        ids[i] = TINY_BYTE(text[i]);
    return answer_budget_make(&f->formats, f->tokenizer, &f->request, ids, count, ret_thinking);
}

static void test_a_budget_needs_marks_and_a_model_that_may_think(void **state)
{
    Refrain__Thinking thinking;
    struct api_error error;
    struct fixture f;
    (void)state;
    setup(&f, "</think>");
    pick(&f, hermes);
    f.request.thinking_tokens_max = -1;
    assert_false(budget(&f, "a<think>", &thinking)); /* none was asked for */
    f.request.thinking_tokens_max = 5;
    assert_int_equal(answer_budget_check(&f.formats, &f.request, &error), 0);
    assert_true(budget(&f, "a<think>", &thinking));
    assert_int_equal(thinking.tokens_max, 5);
    assert_true(thinking.inside && !thinking.opened);
    assert_memory_equal(thinking.end.data, "</think>", 8);
    assert_int_equal(thinking.end_ids.len, 4); /* one control token */
    assert_int_equal(*(const uint32_t *)(const void *)thinking.end_ids.data, TINY_USER);
    assert_true(budget(&f, "a", &thinking) && !thinking.inside);
    assert_false(budget(&f, "a<think>b</think>", &thinking)); /* switched off by the template */
    f.request.grammar.kind = GRAMMAR_JSON_OBJECT;             /* leaves no room to think */
    assert_false(budget(&f, "a<think>", &thinking));
    pick(&f, "no marks");
    assert_true(answer_budget_check(&f.formats, &f.request, &error) < 0);
    assert_string_equal(error.param, "thinking_token_budget");
    teardown(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_auto_reads_the_template_then_the_vocabulary),
        cmocka_unit_test(test_settings_name_or_switch_off),
        cmocka_unit_test(test_calls_are_read_only_where_they_may_be),
        cmocka_unit_test(test_forced_calls_have_a_grammar_and_are_read_without_thinking),
        cmocka_unit_test(test_schemas_that_are_too_long_are_refused),
        cmocka_unit_test(test_the_prompt_says_whether_the_model_thinks),
        cmocka_unit_test(test_a_budget_needs_marks_and_a_model_that_may_think),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
