/* chunk_json.c and logprobs_json.c: the exact bytes. */
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "proto/base/json.h"
#include "router/api/chunk_json.h"
#include "router/api/logprobs_json.h"
#include "tests/unit/router/tiny_card.h"

static const struct chunk_head chat_stream = {API_CHAT, true, "chatcmpl-7", "m\"x", 17};
static const struct chunk_head chat_whole = {API_CHAT, false, "chatcmpl-7", "m", 17};
static const struct chunk_head completion = {API_COMPLETIONS, false, "cmpl-7", "m", 17};

static void expect(const struct chunk_head *head, const struct chunk *chunk, const char *want)
{
    struct buffer out;
    struct errmsg err;
    json_t *value = NULL;

    buffer_init(&out, 1 << 16);
    chunk_json_write(&out, head, chunk);
    assert_int_equal(buffer_finish(&out), 0);
    assert_string_equal(out.data, want);
    assert_int_equal(json_parse(out.data, out.bytes, 1 << 16, &value, &err), 0);
    json_decref(value);
    buffer_done(&out);
}

static void test_first_delta_has_the_role_and_empty_content(void **state)
{
    const struct chunk_choice choice = {.index = 0, .role = true, .text = ""};
    const struct chunk chunk = {.choices = &choice, .choices_count = 1};
    (void)state;
    expect(&chat_stream, &chunk,
           "{\"id\":\"chatcmpl-7\",\"object\":\"chat.completion.chunk\",\"created\":17,"
           "\"model\":\"m\\\"x\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\","
           "\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}]}");
}

static void test_last_delta_is_empty_and_says_why_it_ended(void **state)
{
    const struct chunk_choice choice = {.index = 2,
                                        .finish_reason = "stop",
                                        .stop = CHUNK_STOP_TEXT,
                                        .stop_text = "\n\n",
                                        .stop_bytes = 2};
    const struct chunk chunk = {.choices = &choice, .choices_count = 1, .usage_null = true};
    (void)state;
    expect(&chat_stream, &chunk,
           "{\"id\":\"chatcmpl-7\",\"object\":\"chat.completion.chunk\",\"created\":17,"
           "\"model\":\"m\\\"x\",\"choices\":[{\"index\":2,\"delta\":{},\"logprobs\":null,"
           "\"finish_reason\":\"stop\",\"stop_reason\":\"\\n\\n\"}],\"usage\":null}");
}

static void test_usage_chunk_has_no_choices(void **state)
{
    const struct chunk_usage usage = {
        .prompt_tokens = 30, .completion_tokens = 12, .cached_tokens = 16};
    const struct chunk_explain explain = {.cached_tokens = 16,
                                          .computed_tokens = 14,
                                          .cached_host_tokens = 8,
                                          .cached_disk_tokens = 5,
                                          .load_ms = 1.5,
                                          .queue_ms = 0.25,
                                          .prefill_ms = NAN,
                                          .turn_memory_tokens = 12,
                                          .group = 3,
                                          .why = "prefix"};
    const struct chunk chunk = {.usage = &usage, .explain = &explain, .refrain = ",\"miss\":null"};
    (void)state;
    expect(&chat_stream, &chunk,
           "{\"id\":\"chatcmpl-7\",\"object\":\"chat.completion.chunk\",\"created\":17,"
           "\"model\":\"m\\\"x\",\"choices\":[],\"usage\":{\"prompt_tokens\":30,"
           "\"completion_tokens\":12,\"total_tokens\":42,\"prompt_tokens_details\":{"
           "\"cached_tokens\":16}},\"refrain\":{\"cached_tokens\":16,\"computed_tokens\":14,"
           "\"cached_by_tier\":{\"pool\":3,\"host\":8,\"disk\":5},\"queue_ms\":0.25,"
           "\"tier_load_ms\":1.5,\"prefill_ms\":0,\"turn_memory_tokens\":12,"
           "\"group\":3,\"why\":\"prefix\",\"miss\":null}}");
}

static void test_refrain_members_stand_without_explain(void **state)
{
    const struct chunk cut = {.refrain = ",\"history_cut\":{\"messages\":4,\"tokens\":90}"};
    const struct chunk nothing = {.refrain = ""};
    (void)state;
    expect(&chat_stream, &cut,
           "{\"id\":\"chatcmpl-7\",\"object\":\"chat.completion.chunk\",\"created\":17,"
           "\"model\":\"m\\\"x\",\"choices\":[],\"refrain\":{\"history_cut\":{\"messages\":4,"
           "\"tokens\":90}}}");
    expect(&chat_stream, &nothing,
           "{\"id\":\"chatcmpl-7\",\"object\":\"chat.completion.chunk\",\"created\":17,"
           "\"model\":\"m\\\"x\",\"choices\":[]}");
}

static void test_whole_chat_has_messages(void **state)
{
    const struct chunk_choice choices[] = {
        {.index = 0, .text = "a\0b", .text_bytes = 3, .finish_reason = "length"},
        {.index = 1, .text = "", .finish_reason = "stop", .stop = CHUNK_STOP_ID, .stop_id = 9}};
    const struct chunk chunk = {.choices = choices, .choices_count = 2};
    (void)state;
    expect(&chat_whole, &chunk,
           "{\"id\":\"chatcmpl-7\",\"object\":\"chat.completion\",\"created\":17,\"model\":\"m\","
           "\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":"
           "\"a\\u0000b\"},\"logprobs\":null,\"finish_reason\":\"length\",\"stop_reason\":null},"
           "{\"index\":1,\"message\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,"
           "\"finish_reason\":\"stop\",\"stop_reason\":9}]}");
}

static void test_pieces_of_calls_name_their_call_once(void **state)
{
    const struct chunk_call head = {
        .index = 1, .id = "call_a", .name = "f\"", .arguments = "", .arguments_bytes = 0};
    const struct chunk_call piece = {.index = 1, .arguments = "{\"a\": 1", .arguments_bytes = 7};
    const struct chunk_choice first = {.calls = &head, .calls_count = 1};
    const struct chunk_choice second = {.calls = &piece, .calls_count = 1};
    const struct chunk begin = {.choices = &first, .choices_count = 1};
    const struct chunk next = {.choices = &second, .choices_count = 1};
    (void)state;
    expect(&chat_stream, &begin,
           "{\"id\":\"chatcmpl-7\",\"object\":\"chat.completion.chunk\",\"created\":17,"
           "\"model\":\"m\\\"x\",\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":"
           "1,\"id\":\"call_a\",\"type\":\"function\",\"function\":{\"name\":\"f\\\"\","
           "\"arguments\":\"\"}}]},\"logprobs\":null,\"finish_reason\":null}]}");
    expect(&chat_stream, &next,
           "{\"id\":\"chatcmpl-7\",\"object\":\"chat.completion.chunk\",\"created\":17,"
           "\"model\":\"m\\\"x\",\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":"
           "1,\"function\":{\"arguments\":\"{\\\"a\\\": 1\"}}]},\"logprobs\":null,"
           "\"finish_reason\":null}]}");
}

static void test_a_message_of_calls_only_has_null_content(void **state)
{
    const struct chunk_call calls[] = {
        {.index = 0, .id = "a", .name = "f", .arguments = "{}", .arguments_bytes = 2},
        {.index = 1, .id = "b", .name = "g", .arguments = "{}", .arguments_bytes = 2}};
    const struct chunk_choice choice = {.reasoning = "hm",
                                        .reasoning_bytes = 2,
                                        .calls = calls,
                                        .calls_count = 2,
                                        .finish_reason = "tool_calls"};
    const struct chunk chunk = {.choices = &choice, .choices_count = 1};
    (void)state;
    expect(
        &chat_whole, &chunk,
        "{\"id\":\"chatcmpl-7\",\"object\":\"chat.completion\",\"created\":17,\"model\":\"m\","
        "\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":null,"
        "\"reasoning_content\":\"hm\",\"reasoning\":\"hm\",\"tool_calls\":["
        "{\"id\":\"a\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}},"
        "{\"id\":\"b\",\"type\":\"function\",\"function\":{\"name\":\"g\",\"arguments\":\"{}\"}}"
        "]},\"logprobs\":null,\"finish_reason\":\"tool_calls\",\"stop_reason\":null}]}");
}

static void test_usage_counts_reasoning_where_it_is_read(void **state)
{
    const struct chunk_usage usage = {
        .prompt_tokens = 3, .completion_tokens = 5, .reasons = true, .reasoning_tokens = 2};
    const struct chunk chunk = {.usage = &usage};
    (void)state;
    expect(&chat_stream, &chunk,
           "{\"id\":\"chatcmpl-7\",\"object\":\"chat.completion.chunk\",\"created\":17,"
           "\"model\":\"m\\\"x\",\"choices\":[],\"usage\":{\"prompt_tokens\":3,"
           "\"completion_tokens\":5,\"total_tokens\":8,\"prompt_tokens_details\":{"
           "\"cached_tokens\":0},\"completion_tokens_details\":{\"reasoning_tokens\":2}}}");
}

static void test_reasoning_streams_under_both_names(void **state)
{
    const struct chunk_choice choice = {.reasoning = "h", .reasoning_bytes = 1};
    const struct chunk chunk = {.choices = &choice, .choices_count = 1};
    (void)state;
    expect(&chat_stream, &chunk,
           "{\"id\":\"chatcmpl-7\",\"object\":\"chat.completion.chunk\",\"created\":17,"
           "\"model\":\"m\\\"x\",\"choices\":[{\"index\":0,\"delta\":{\"reasoning_content\":\"h\","
           "\"reasoning\":\"h\"},\"logprobs\":null,\"finish_reason\":null}]}");
}

static void test_completions_have_text(void **state)
{
    const struct chunk_choice choice = {
        .text = "hi", .text_bytes = 2, .logprobs = "{\"tokens\":[]}", .finish_reason = "stop"};
    const struct chunk chunk = {.choices = &choice, .choices_count = 1};
    struct chunk_head stream = completion;
    (void)state;
    expect(&completion, &chunk,
           "{\"id\":\"cmpl-7\",\"object\":\"text_completion\",\"created\":17,\"model\":\"m\","
           "\"choices\":[{\"index\":0,\"text\":\"hi\",\"logprobs\":{\"tokens\":[]},"
           "\"finish_reason\":\"stop\",\"stop_reason\":null}]}");
    stream.stream = true;
    const struct chunk_choice last = {.finish_reason = "length"};
    const struct chunk end = {.choices = &last, .choices_count = 1};
    expect(&stream, &end,
           "{\"id\":\"cmpl-7\",\"object\":\"text_completion\",\"created\":17,\"model\":\"m\","
           "\"choices\":[{\"index\":0,\"text\":\"\",\"logprobs\":null,\"finish_reason\":\"length\","
           "\"stop_reason\":null}]}");
}

struct tiny {
    struct model_card *card;
    struct tokenizer *tokenizer;
};

static struct tiny tiny_new(void)
{
    struct tiny tiny = {.card = tiny_card(NULL)};
    struct errmsg err = {""};
    int r = tokenizer_new(tiny.card, &tiny.tokenizer, &err);
    if (r < 0)
        print_message("%s\n", err.text);
    assert_int_equal(r, 0);
    return tiny;
}

static void tiny_done(struct tiny *tiny)
{
    tokenizer_free(tiny->tokenizer);
    model_card_unref(tiny->card);
}

/* Two tokens: 'A' with alternatives A and B, then half a character without numbers. */
static void add_two(struct logprobs_json *logprobs)
{
    Refrain__TokenLogprob top[2] = {REFRAIN__TOKEN_LOGPROB__INIT, REFRAIN__TOKEN_LOGPROB__INIT};
    Refrain__TokenLogprob *tops[2] = {&top[0], &top[1]};
    Refrain__Logprobs numbers = REFRAIN__LOGPROBS__INIT;
    top[0].id = TINY_BYTE('A');
    top[0].logprob = -0.5F;
    top[1].id = TINY_BYTE('B');
    top[1].logprob = -INFINITY;
    numbers.chosen = -0.5F;
    numbers.top = tops;
    numbers.n_top = 2;
    logprobs_json_add(logprobs, TINY_BYTE('A'), &numbers);
    logprobs_json_add(logprobs, TINY_BYTE(0xe4), NULL);
}

static void expect_logprobs(enum api_kind kind, const char *want)
{
    struct tiny tiny = tiny_new();
    struct logprobs_json logprobs;
    struct buffer out;

    buffer_init(&out, 1 << 16);
    logprobs_json_init(&logprobs, kind, tiny.tokenizer, 2);
    add_two(&logprobs);
    logprobs_json_write(&logprobs, &out);
    assert_string_equal(out.data, want);
    assert_int_equal(logprobs.count, 0); /* the next chunk starts anew */
    logprobs_json_done(&logprobs);
    buffer_done(&out);
    tiny_done(&tiny);
}

static void test_logprobs_of_a_chat_are_finite_and_have_bytes(void **state)
{
    (void)state;
    expect_logprobs(API_CHAT, "{\"content\":[{\"token\":\"A\",\"logprob\":-0.5,\"bytes\":[65],"
                              "\"top_logprobs\":[{\"token\":\"A\",\"logprob\":-0.5,\"bytes\":[65]},"
                              "{\"token\":\"B\",\"logprob\":-9999,\"bytes\":[66]}]},"
                              "{\"token\":\"\xef\xbf\xbd\",\"logprob\":-9999,\"bytes\":[228],"
                              "\"top_logprobs\":[]}]}");
}

static void test_logprobs_of_a_completion_are_four_lists(void **state)
{
    (void)state;
    expect_logprobs(API_COMPLETIONS,
                    "{\"text_offset\":[0,1],\"token_logprobs\":[-0.5,-9999],\"tokens\":[\"A\","
                    "\"\xef\xbf\xbd\"],\"top_logprobs\":[{\"A\":-0.5,\"B\":-9999},"
                    "{\"\xef\xbf\xbd\":-9999}]}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_delta_has_the_role_and_empty_content),
        cmocka_unit_test(test_last_delta_is_empty_and_says_why_it_ended),
        cmocka_unit_test(test_usage_chunk_has_no_choices),
        cmocka_unit_test(test_refrain_members_stand_without_explain),
        cmocka_unit_test(test_whole_chat_has_messages),
        cmocka_unit_test(test_pieces_of_calls_name_their_call_once),
        cmocka_unit_test(test_a_message_of_calls_only_has_null_content),
        cmocka_unit_test(test_usage_counts_reasoning_where_it_is_read),
        cmocka_unit_test(test_reasoning_streams_under_both_names),
        cmocka_unit_test(test_completions_have_text),
        cmocka_unit_test(test_logprobs_of_a_chat_are_finite_and_have_bytes),
        cmocka_unit_test(test_logprobs_of_a_completion_are_four_lists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
