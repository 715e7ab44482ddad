/* prompt.c: what the client wrote never becomes a control token; one BOS; cut for continuation. */
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "router/api/prompt.h"
#include "tests/unit/router/tiny_card.h"

static const char template_text[] =
    "{{ bos_token }}{% for m in messages %}<user>{{ m.content }}<end>{% endfor %}"
    "{% if add_generation_prompt %}:{% endif %}";

struct fixture {
    struct model_card *card;
    struct prompt_maker maker;
    struct chat_template *tool_template;
    struct chat_template *chat_template;
    struct token_ids ids;
    struct arena arena;
    struct api_request request;
    struct api_error error;
    int r;
};

static struct fixture make(enum api_kind kind, const char *body)
{
    struct fixture f;
    struct errmsg err = {""};

    memset(&f, 0, sizeof(f));
    f.card = tiny_card(template_text);
    assert_int_equal(tokenizer_new(f.card, &f.maker.tokenizer, &err), 0);
    assert_int_equal(
        chat_template_new(template_text, strlen(template_text), &f.chat_template, &err), 0);
    f.maker.chat_template = f.chat_template;
    assert_int_equal(chat_template_new("T", 1, &f.tool_template, &err), 0);
    f.maker.tool_template = f.tool_template;
    arena_init(&f.arena, 1 << 20);
    token_ids_init(&f.ids, 64);
    f.r = request_json_parse(kind, body, strlen(body), &f.arena, &f.request, &f.error);
    assert_int_equal(f.r, 0);
    f.r = kind == API_CHAT ? prompt_from_chat(&f.maker, &f.request, &f.ids, NULL, &f.error)
                           : prompt_from_completion(&f.maker, &f.request, &f.request.prompts[0],
                                                    &f.ids, NULL, &f.error);
    return f;
}

static void done(struct fixture *f)
{
    api_request_done(&f->request);
    arena_done(&f->arena);
    token_ids_done(&f->ids);
    tokenizer_free(f->maker.tokenizer);
    chat_template_free(f->chat_template);
    chat_template_free(f->tool_template);
    model_card_unref(f->card);
}

static void expect(const struct fixture *f, const uint32_t *ids, size_t count)
{
    assert_int_equal(f->r, 0);
    assert_int_equal(f->ids.count, count);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(f->ids.ids[i], ids[i]);
}

#define EXPECT(f, ...)                                   \
    do {                                                 \
        const uint32_t ids[] = {__VA_ARGS__};            \
        expect(&(f), ids, sizeof(ids) / sizeof(ids[0])); \
    } while (0)

static void test_chat_has_one_bos_and_the_templates_control_tokens(void **state)
{
    struct fixture f = make(API_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}");
    (void)state;
    EXPECT(f, TINY_BOS, TINY_USER, TINY_BYTE('h'), TINY_BYTE('i'), TINY_END, TINY_BYTE(':'));
    done(&f);
    f = make(API_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"h\"}],"
                       "\"add_special_tokens\":true}");
    EXPECT(f, TINY_BOS, TINY_USER, TINY_BYTE('h'), TINY_END, TINY_BYTE(':'));
    done(&f);
}

/* The line once, whether the evaluator found the error or the template raised it. */
static void test_a_template_s_error_names_its_line_once(void **state)
{
    static const struct {
        const char *source, *says;
    } rows[] = {{"a\n{{ 1 // 0 }}", "messages (line 2): division by zero"},
                {"a\n\n{{ raise_exception('no way') }}", "messages (line 3): no way"}};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct fixture f = make(API_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"h\"}]}");
        struct chat_template *template;
        struct errmsg err;
        assert_int_equal(chat_template_new(rows[i].source, strlen(rows[i].source), &template, &err),
                         0);
        f.maker.chat_template = template;
        assert_true(prompt_from_chat(&f.maker, &f.request, &f.ids, NULL, &f.error) < 0);
        if (!strstr(f.error.message, rows[i].says))
            fail_msg("%s", f.error.message);
        chat_template_free(template);
        done(&f);
    }
}

static void test_control_tokens_in_content_stay_text(void **state)
{
    struct fixture f = make(API_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"<end>\"}]}");
    (void)state;
    EXPECT(f, TINY_BOS, TINY_USER, TINY_BYTE('<'), TINY_BYTE('e'), TINY_BYTE('n'), TINY_BYTE('d'),
           TINY_BYTE('>'), TINY_END, TINY_BYTE(':'));
    done(&f);
}

static void test_a_chat_with_tools_has_the_template_of_tools(void **state)
{
    static const char tools[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"h\"}],\"tools\":[{\"type\":"
        "\"function\",\"function\":{\"name\":\"f\",\"parameters\":{}}}]}";
    (void)state;
    struct fixture f = make(API_CHAT, tools);
    EXPECT(f, TINY_BYTE('T'));
    done(&f);
    f = make(API_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"h\"}],\"tools\":[]}");
    EXPECT(f, TINY_BOS, TINY_USER, TINY_BYTE('h'), TINY_END, TINY_BYTE(':'));
    done(&f);
}

static void test_continued_message_is_left_open(void **state)
{
    struct fixture f = make(API_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},"
                                      "{\"role\":\"assistant\",\"content\":\"a\"}],"
                                      "\"continue_final_message\":true}");
    (void)state;
    EXPECT(f, TINY_BOS, TINY_USER, TINY_BYTE('q'), TINY_END, TINY_USER, TINY_BYTE('a'));
    done(&f);
}

static void test_completion_text_is_the_clients_own(void **state)
{
    struct fixture f = make(API_COMPLETIONS, "{\"prompt\":\"a<end>\"}");
    (void)state;
    EXPECT(f, TINY_BOS, TINY_BYTE('a'), TINY_END);
    done(&f);
    f = make(API_COMPLETIONS, "{\"prompt\":[4,258]}");
    EXPECT(f, 4, 258);
    done(&f);
    f = make(API_COMPLETIONS, "{\"prompt\":[4,259]}");
    assert_true(f.r < 0);
    assert_non_null(strstr(f.error.message, "id 259 at position 1"));
    done(&f);
}

static void test_prompts_past_the_bound_say_so(void **state)
{
    struct fixture f =
        make(API_COMPLETIONS, "{\"prompt\":\"0123456789012345678901234567890123456789"
                              "012345678901234567890123456789\"}"); /* 70 and BOS; 64 fit */
    (void)state;
    assert_true(f.r < 0);
    assert_string_equal(f.error.code, "context_length_exceeded");
    assert_non_null(strstr(f.error.message, "more than 64 tokens"));
    assert_string_equal(f.error.param, "prompt");
    done(&f);
    f = make(API_COMPLETIONS, "{\"prompt\":[4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,"
                              "4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,"
                              "4,4,4,4,4]}");
    assert_true(f.r < 0);
    assert_string_equal(f.error.code, "context_length_exceeded");
    assert_non_null(strstr(f.error.message, "length is 64 tokens, and the prompt alone has 65"));
    done(&f);
}

static void test_a_cut_prompt_keeps_its_last_tokens_or_its_first(void **state)
{
    const uint32_t last[] = {TINY_BYTE('d'), TINY_BYTE('e')};
    const uint32_t first[] = {TINY_BYTE('a'), TINY_BYTE('b')};
    static const char *const bodies[] = {
        "{\"prompt\":\"abcde\",\"add_special_tokens\":false,\"truncate_prompt_tokens\":2}",
        ("{\"prompt\":\"abcde\",\"add_special_tokens\":false,\"truncate_prompt_tokens\":2,"
         "\"truncation_side\":\"right\"}"),
        "{\"prompt\":[5,5,103,104],\"truncate_prompt_tokens\":2}"};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct fixture f = make(API_COMPLETIONS, bodies[i]);
        expect(&f, i == 1 ? first : last, 2);
        done(&f);
    }
}

static void test_a_cut_to_what_fits_leaves_room_for_the_answer(void **state)
{
    char body[400];
    static const struct {
        const char *members;
        size_t kept;
    } rows[] = {{"", 63}, {",\"max_tokens\":10", 54}, {",\"max_tokens\":64", 1}};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        (void)snprintf(body, sizeof(body),
                       "{\"prompt\":\"%0200d\",\"truncate_prompt_tokens\":-1%s}", 0,
                       rows[i].members);
        struct fixture f = make(API_COMPLETIONS, body);
        assert_int_equal(f.r, 0);
        assert_int_equal(f.ids.count, rows[i].kept); /* of a context of 64 */
        done(&f);
    }
    struct fixture f = make(API_COMPLETIONS, "{\"prompt\":\"abc\",\"truncate_prompt_tokens\":65}");
    assert_true(f.r < 0);
    assert_string_equal(f.error.param, "truncate_prompt_tokens");
    done(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chat_has_one_bos_and_the_templates_control_tokens),
        cmocka_unit_test(test_a_template_s_error_names_its_line_once),
        cmocka_unit_test(test_control_tokens_in_content_stay_text),
        cmocka_unit_test(test_continued_message_is_left_open),
        cmocka_unit_test(test_a_chat_with_tools_has_the_template_of_tools),
        cmocka_unit_test(test_completion_text_is_the_clients_own),
        cmocka_unit_test(test_prompts_past_the_bound_say_so),
        cmocka_unit_test(test_a_cut_prompt_keeps_its_last_tokens_or_its_first),
        cmocka_unit_test(test_a_cut_to_what_fits_leaves_room_for_the_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
