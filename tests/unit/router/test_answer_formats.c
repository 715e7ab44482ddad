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
    assert_non_null(strstr(err.text, "'hermess'"));
    f.settings.reasoning_parser = "r2";
    assert_true(answer_settings_check(&f.settings, &err) < 0);
    assert_non_null(strstr(err.text, "--reasoning-parser: 'r2'"));
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_auto_reads_the_template_then_the_vocabulary),
        cmocka_unit_test(test_settings_name_or_switch_off),
        cmocka_unit_test(test_calls_are_read_only_where_they_may_be),
        cmocka_unit_test(test_the_prompt_says_whether_the_model_thinks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
