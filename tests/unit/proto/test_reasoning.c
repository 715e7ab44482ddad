/* reasoning.c: thinking and content, however the text is cut. */
#include <cmocka.h>

#include <string.h>

#include "proto/reasoning.h"

struct row {
    const char *format;
    enum reasoning_state start;
    const char *text, *thoughts, *content;
};

static const struct row rows[] = {
    {"qwen3", REASONING_START, "<think>\nhm\n</think>\n\nhi", "\nhm\n", "\n\nhi"},
    {"qwen3", REASONING_START, "\n <think>hm</think>hi", "hm", "hi"},
    {"qwen3", REASONING_START, "hi <think>x</think>", "", "hi <think>x</think>"},
    {"qwen3", REASONING_START, " hi", "", " hi"},
    {"qwen3", REASONING_START, "<thi", "", "<thi"},
    {"qwen3", REASONING_START, "<thin>x", "", "<thin>x"},
    {"qwen3", REASONING_START, "<think></think>hi", "", "hi"},
    {"qwen3", REASONING_START, "<think>a<</think></think>b", "a<", "</think>b"},
    {"qwen3", REASONING_START, "<think>a</thin</think>b", "a</thin", "b"},
    {"qwen3", REASONING_START, "<think>a</</think>b", "a</", "b"},
    {"qwen3", REASONING_START, "<think>never ends", "never ends", ""},
    {"qwen3", REASONING_START, "<think>never ends</thin", "never ends</thin", ""},
    {"qwen3", REASONING_START, "", "", ""},
    {"qwen3", REASONING_INSIDE, "hm</think>hi</think>", "hm", "hi</think>"},
    {"qwen3", REASONING_INSIDE, "</think>hi", "", "hi"},
    {"qwen3", REASONING_AFTER, "<think>a</think>", "", "<think>a</think>"},
    {"deepseek_r1", REASONING_START, "hm</think>hi", "hm", "hi"},
    {"deepseek_r1", REASONING_START, "<think>hm</think>hi", "hm", "hi"},
    {"deepseek_r1", REASONING_START, "<th", "<th", ""},
    {"seed_oss", REASONING_START, "<seed:think>a</think></seed:think>b", "a</think>", "b"},
    {"mistral", REASONING_START, "[THINK]a[/THINK]b", "a", "b"},
};

static void split(const struct row *row, size_t first, size_t step)
{
    struct reasoning reasoning;
    struct buffer thoughts, content;
    size_t bytes = strlen(row->text), at = 0;

    buffer_init(&thoughts, 1000);
    buffer_init(&content, 1000);
    reasoning_init(&reasoning, reasoning_find(row->format), row->start);
    while (at < bytes) {
        size_t count = at == 0 && first ? first : step;
        count = count > bytes - at ? bytes - at : count;
        reasoning_push(&reasoning, row->text + at, count, &thoughts, &content);
        at += count;
    }
    reasoning_finish(&reasoning, &thoughts, &content);
    assert_string_equal(thoughts.data, row->thoughts);
    assert_string_equal(content.data, row->content);
    buffer_done(&thoughts);
    buffer_done(&content);
}

static void test_any_cut_gives_the_same(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        print_message("%s: %s\n", rows[i].format, rows[i].text);
        split(&rows[i], 0, 1000);
        split(&rows[i], 0, 1);
        for (size_t first = 1; first < strlen(rows[i].text); first++)
            split(&rows[i], first, 1000);
    }
}

static void test_long_white_space_is_content(void **state)
{
    struct row row = {"qwen3", REASONING_START, NULL, "", NULL};
    char text[200];
    (void)state;
    memset(text, ' ', sizeof(text));
    memcpy(text + 150, "<think>", 8);
    row.text = row.content = text;
    split(&row, 0, 1000);
    split(&row, 0, 1);
}

static enum reasoning_state after_prompt(const char *format, const char *tail)
{
    return reasoning_after_prompt(reasoning_find(format), tail, strlen(tail));
}

static void test_the_prompts_end_says_where_it_starts(void **state)
{
    (void)state;
    assert_int_equal(after_prompt("qwen3", "<|im_end|>\n<|im_start|>assistant\n"), REASONING_START);
    assert_int_equal(after_prompt("qwen3", "<|im_start|>assistant\n<think>\n"), REASONING_INSIDE);
    assert_int_equal(after_prompt("qwen3", "assistant\n<think>\n\n</think>\n\n"), REASONING_AFTER);
    assert_int_equal(after_prompt("deepseek_v3", "<\uff5cAssistant\uff5c></think>"),
                     REASONING_AFTER);
    assert_int_equal(after_prompt("seed_oss", "<seed:think>\n<seed:cot_budget_reflect>x"
                                              "</seed:cot_budget_reflect>\n</seed:think>"),
                     REASONING_AFTER);
    assert_int_equal(after_prompt("qwen3", "say <think><|im_end|>\n<|im_start|>assistant\n"),
                     REASONING_START); /* a user's text */
    assert_int_equal(after_prompt("qwen3", ""), REASONING_START);
}

static enum reasoning_state after_message(const char *text)
{
    return reasoning_after_message(reasoning_find("qwen3"), text, strlen(text));
}

static void test_a_continued_message_says_where_it_is(void **state)
{
    (void)state;
    assert_int_equal(after_message("<think>so far"), REASONING_INSIDE);
    assert_int_equal(after_message("<think>done</think>The answer"), REASONING_AFTER);
    assert_int_equal(after_message("The answer"), REASONING_AFTER);
    assert_int_equal(after_message(""), REASONING_START);
}

static void test_templates_are_known_by_their_end_tag(void **state)
{
    static const char qwen[] = "{%- if '</think>' in content %}";
    static const char seed[] = "{%- set t = '</seed:think>' %}";
    (void)state;
    assert_string_equal(reasoning_of_template(qwen, strlen(qwen))->name, "qwen3");
    assert_string_equal(reasoning_of_template(seed, strlen(seed))->name, "seed_oss");
    assert_null(reasoning_of_template("{{ x }}", 7));
    assert_null(reasoning_find("nobody"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_cut_gives_the_same),
        cmocka_unit_test(test_long_white_space_is_content),
        cmocka_unit_test(test_the_prompts_end_says_where_it_starts),
        cmocka_unit_test(test_a_continued_message_says_where_it_is),
        cmocka_unit_test(test_templates_are_known_by_their_end_tag),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
