/* test_prompt_turns.c - turns through real templates: the prompt holds the ids that the model
 * wrote, in tool calls and JSON too, and without turn memory it is what one tokenizer call makes of
 * the text.
 *
 * The "model" writes each character as a token of its own, so its ids are never a tokenizer's. */
#include <cmocka.h>

#include <dirent.h>

#include "router/api/prompt.h"
#include "tests/unit/router/text/cards.h"

#define TEMPLATES SHARED_DIR "/cases/templates/"
#define IDS_MAX ((size_t)1 << 20)

static int skipped;

static void skip_aloud(void)
{
    skipped++;
    skip();
}

static struct chat_template *template_of(const char *path)
{
    struct file_bytes file = read_file(path, 1u << 20);
    struct chat_template *chat_template = NULL;
    struct errmsg err = {{0}};
    if (file.data == NULL)
        return NULL;
    if (chat_template_new(file.data, file.bytes, &chat_template, &err) < 0)
        fail_msg("%s: %s", path, err.text);
    mem_free(file.data);
    return chat_template;
}

struct fixture {
    struct model_card *card;
    struct prompt_maker maker;
    struct chat_template *chat_template;
    struct arena arena;
    struct api_request request;
    struct token_ids ids;
    struct prompt_trace trace;
};

static void setup(struct fixture *f)
{
    struct errmsg err = {{0}};
    memset(f, 0, sizeof(*f));
    f->card = card_from_qwen2();
    f->chat_template = template_of(TEMPLATES "qwen2.5-7b-instruct.jinja");
    if (f->card == NULL || f->chat_template == NULL)
        skip_aloud();
    assert_int_equal(tokenizer_new(f->card, &f->maker.tokenizer, &err), 0);
    f->maker.tokenizer_id = 1;
    f->maker.cache = text_cache_new(1u << 20);
    f->maker.turn_memory = true;
    f->maker.chat_template = f->chat_template;
    arena_init(&f->arena, 1u << 20);
    token_ids_init(&f->ids, IDS_MAX);
}

static void teardown(struct fixture *f)
{
    api_request_done(&f->request);
    arena_done(&f->arena);
    token_ids_done(&f->ids);
    prompt_trace_done(&f->trace);
    text_cache_check(f->maker.cache);
    text_cache_free(f->maker.cache);
    tokenizer_free(f->maker.tokenizer);
    chat_template_free(f->chat_template);
    model_card_unref(f->card);
}

static void send(struct fixture *f, const char *body)
{
    struct api_error error;
    api_request_done(&f->request);
    if (request_json_parse(API_CHAT, body, strlen(body), &f->arena, &f->request, &error) < 0)
        fail_msg("%s", error.message);
    f->ids.count = 0;
    if (prompt_from_chat(&f->maker, &f->request, &f->ids, &f->trace, &error) < 0)
        fail_msg("%s", error.message);
}

/* A token per character. */
static struct token_ids spell(const struct fixture *f, const char *text)
{
    struct token_ids ids;
    token_ids_init(&ids, IDS_MAX);
    for (; *text != '\0'; text++)
        assert_int_equal(tokenizer_encode(f->maker.tokenizer, text, 1, NULL, &ids), 0);
    return ids;
}

static void answer(struct fixture *f, const char *text)
{
    const struct text_owner owner = prompt_owner(&f->maker, &f->request);
    struct token_ids ids = spell(f, text);
    size_t tail = f->trace.end.ids_count;
    text_cache_remember(f->maker.cache, &owner, &f->trace, f->ids.ids + tail, f->ids.count - tail,
                        ids.ids, ids.count);
    token_ids_done(&ids);
}

/* Where the spelled text stands in the prompt's ids; -1: nowhere. */
static long spelled_at(const struct fixture *f, const char *text)
{
    struct token_ids ids = spell(f, text);
    long found = -1;
    for (size_t at = 0; at + ids.count <= f->ids.count && found < 0; at++) {
        if (memcmp(f->ids.ids + at, ids.ids, ids.count * sizeof(uint32_t)) == 0)
            found = (long)at;
    }
    token_ids_done(&ids);
    return found;
}

#define TOOLS                                                                         \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{" \
    "\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}}}}}],"
#define ASKS "{\"role\":\"user\",\"content\":\"Call f.\"}"

static void test_a_tool_call_comes_back_as_it_was_written(void **state)
{
    static const char written[] =
        "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1, \"b\": \"x\"}}\n</tool_call>";
    struct fixture f;
    (void)state;
    setup(&f);
    send(&f, "{" TOOLS "\"messages\":[" ASKS "]}");
    long begin = (long)f.ids.count;
    answer(&f, written);
    send(&f, "{" TOOLS "\"messages\":[" ASKS ",{\"role\":\"assistant\",\"content\":null,"
             "\"tool_calls\":[{\"id\":\"c1\",\"type\":\"function\",\"function\":{\"name\":\"f\","
             "\"arguments\":\"{\\\"a\\\":1,\\\"b\\\":\\\"x\\\"}\"}}]},"
             "{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"content\":\"2\"}]}");
    assert_int_equal(spelled_at(&f, written), begin);
    assert_true(f.trace.turn_tokens > strlen(written) - 1);
    /* Another argument is another text. */
    send(&f, "{" TOOLS "\"messages\":[" ASKS ",{\"role\":\"assistant\",\"content\":null,"
             "\"tool_calls\":[{\"id\":\"c1\",\"type\":\"function\",\"function\":{\"name\":\"f\","
             "\"arguments\":\"{\\\"a\\\":2,\\\"b\\\":\\\"x\\\"}\"}}]},"
             "{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"content\":\"2\"}]}");
    assert_int_equal(f.trace.turn_tokens, 0);
    teardown(&f);
}

static void test_a_json_answer_and_a_continued_one(void **state)
{
    static const char written[] = "{\"place\": \"Louvre\", \"open\": [9, 18]}";
    struct fixture f;
    (void)state;
    setup(&f);
    send(&f, "{\"messages\":[" ASKS "]}");
    long begin = (long)f.ids.count;
    answer(&f, written);
    send(&f, "{\"messages\":[" ASKS ",{\"role\":\"assistant\",\"content\":"
             "\"{\\\"place\\\": \\\"Louvre\\\", \\\"open\\\": [9, 18]}\"},"
             "{\"role\":\"user\",\"content\":\"More.\"}]}");
    assert_int_equal(spelled_at(&f, written), begin);
    send(&f, "{\"messages\":[" ASKS ",{\"role\":\"assistant\",\"content\":"
             "\"{\\\"place\\\": \\\"Louvre\\\", \\\"open\\\": [9, 18]}\"}],"
             "\"continue_final_message\":true}");
    assert_int_equal(spelled_at(&f, written), begin);
    assert_int_equal(f.ids.count, begin + (long)strlen(written));
    answer(&f, ", and more");
    send(&f, "{\"messages\":[" ASKS ",{\"role\":\"assistant\",\"content\":"
             "\"{\\\"place\\\": \\\"Louvre\\\", \\\"open\\\": [9, 18]}, and more\"},"
             "{\"role\":\"user\",\"content\":\"More.\"}]}");
    assert_int_equal(spelled_at(&f, "[9, 18]}, and more"), begin + (long)strlen(written) - 8);
    teardown(&f);
}

static void test_the_switch_of_a_request_and_of_the_server(void **state)
{
    static const char body[] =
        "{\"messages\":[" ASKS ",{\"role\":\"assistant\",\"content\":\"hello\"}"
        ",{\"role\":\"user\",\"content\":\"More.\"}]}";
    struct fixture f;
    (void)state;
    setup(&f);
    send(&f, "{\"messages\":[" ASKS "]}");
    answer(&f, "hello");
    send(&f, body);
    assert_true(spelled_at(&f, "hello") > 0);
    f.maker.turn_memory = false;
    send(&f, body);
    assert_int_equal(spelled_at(&f, "hello"), -1);
    f.maker.turn_memory = true;
    send(&f, "{\"messages\":[" ASKS ",{\"role\":\"assistant\",\"content\":\"hello\"}"
             ",{\"role\":\"user\",\"content\":\"More.\"}],\"refrain\":{\"turn_memory\":false}}");
    assert_int_equal(spelled_at(&f, "hello"), -1);
    assert_int_equal(f.trace.turn_tokens, 0);
    teardown(&f);
}

/* --- all templates of the cases -------------------------------------------------------------- */

struct compared {
    struct prompt_maker cached, plain;
    size_t prompts, seams;
};

static void compare_case(struct compared *c, const json_t *entry)
{
    struct api_request request = {.kind = API_CHAT, .cache_salt = "", .turn_memory = true};
    struct prompt_trace trace = {0};
    struct token_ids want, got;
    struct api_error error;
    const json_t *tools = json_object_get(entry, "tools");
    request.messages = json_object_get(entry, "messages");
    request.tools = json_is_null(tools) ? NULL : tools;
    request.add_generation_prompt = json_is_true(json_object_get(entry, "add_generation_prompt"));
    token_ids_init(&want, IDS_MAX);
    token_ids_init(&got, IDS_MAX);
    if (prompt_from_chat(&c->plain, &request, &want, NULL, &error) == 0) {
        for (int warm = 0; warm < 2; warm++) {
            got.count = 0;
            assert_int_equal(prompt_from_chat(&c->cached, &request, &got, &trace, &error), 0);
            assert_int_equal(got.count, want.count);
            assert_memory_equal(got.ids, want.ids, want.count * sizeof(uint32_t));
        }
        c->prompts++;
        c->seams += trace.seams_total;
    }
    prompt_trace_done(&trace);
    token_ids_done(&want);
    token_ids_done(&got);
}

static void compare_template(struct compared *c, const char *name)
{
    char path[600];
    size_t i = 0;
    json_t *entry = NULL;
    (void)snprintf(path, sizeof(path), TEMPLATES "%s.jinja", name);
    struct chat_template *chat_template = template_of(path);
    (void)snprintf(path, sizeof(path), TEMPLATES "%s.cases.json", name);
    json_t *cases = read_json(path);
    c->cached.chat_template = c->plain.chat_template = chat_template;
    json_array_foreach(cases, i, entry)
    {
        compare_case(c, entry);
    }
    json_decref(cases);
    chat_template_free(chat_template);
}

/* Every conversation of every template, whether it fits the vocabulary or not. */
static void compare_all(struct model_card *card, size_t prompts_min, size_t seams_min)
{
    struct compared c = {0};
    struct errmsg err = {{0}};
    struct dirent *entry = NULL;
    DIR *folder = opendir(TEMPLATES);
    if (card == NULL || folder == NULL)
        skip_aloud();
    assert_int_equal(tokenizer_new(card, &c.plain.tokenizer, &err), 0);
    c.cached = c.plain;
    c.cached.cache = text_cache_new(8u << 20);
    c.cached.turn_memory = true;
    while ((entry = readdir(folder)) != NULL) {
        size_t bytes = strlen(entry->d_name);
        if (bytes > 6 && strcmp(entry->d_name + bytes - 6, ".jinja") == 0) {
            entry->d_name[bytes - 6] = '\0';
            compare_template(&c, entry->d_name);
        }
    }
    (void)closedir(folder);
    printf("%zu prompts, %zu seams\n", c.prompts, c.seams);
    assert_true(c.prompts >= prompts_min);
    assert_true(c.seams >= seams_min);
    text_cache_free(c.cached.cache);
    tokenizer_free(c.plain.tokenizer);
    model_card_unref(card);
}

static void test_all_templates_with_qwen2(void **state)
{
    (void)state;
    compare_all(card_from_qwen2(), 200, 500);
}

static void test_all_templates_with_phi3(void **state)
{
    (void)state;
    compare_all(card_from_gguf(CASES_DIR "ggml-vocab-phi-3.gguf.gz"), 200, 100);
}

static void test_all_templates_with_smollm2(void **state)
{
    (void)state;
    compare_all(card_from_gguf(model_path("SmolLM2-135M-Instruct.Q4_1.gguf")), 200, 500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_tool_call_comes_back_as_it_was_written),
        cmocka_unit_test(test_a_json_answer_and_a_continued_one),
        cmocka_unit_test(test_the_switch_of_a_request_and_of_the_server),
        cmocka_unit_test(test_all_templates_with_qwen2),
        cmocka_unit_test(test_all_templates_with_phi3),
        cmocka_unit_test(test_all_templates_with_smollm2),
    };
    int r = cmocka_run_group_tests(tests, NULL, NULL);
    if (r == 0 && skipped > 0)
        printf("skipped: %d of %zu tests have no file\n", skipped,
               sizeof(tests) / sizeof(tests[0]));
    return r == 0 && skipped > 0 ? 77 : r;
}
