/* choice.c: ids of a worker -> text that may be sent. */
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "router/choice.h"
#include "tests/unit/router/tiny_card.h"

struct fixture {
    struct model_card *card;
    struct tokenizer *tokenizer;
    struct api_request fields;
    struct choice_plan plan;
    struct choice choice;
};

static void setup(struct fixture *f)
{
    struct errmsg err = {""};
    memset(f, 0, sizeof(*f));
    f->card = tiny_card(NULL);
    assert_int_equal(tokenizer_new(f->card, &f->tokenizer, &err), 0);
    f->fields.kind = API_CHAT;
    f->fields.skip_special_tokens = true;
    f->plan = (struct choice_plan){
        .tokenizer = f->tokenizer, .fields = &f->fields, .text_bytes_max = 1 << 16};
    f->choice.dispatch.group = 7;
    f->choice.dispatch.why = "prefix";
}

static void teardown(struct fixture *f)
{
    choice_done(&f->choice);
    tokenizer_free(f->tokenizer);
    model_card_unref(f->card);
}

/* Each byte of `text` is a token; '$' stands for the end token. */
static bool take(struct fixture *f, const char *text, Refrain__Finish finish)
{
    Refrain__StepItem item = REFRAIN__STEP_ITEM__INIT;
    uint32_t ids[64];
    size_t count = strlen(text);
    bool over = false;

    for (size_t i = 0; i < count; i++)
        ids[i] = text[i] == '$' ? TINY_END : TINY_BYTE(text[i]);
    item.ids.data = (uint8_t *)ids;
    item.ids.len = count * sizeof(*ids);
    item.finish = finish;
    item.first = f->choice.tokens == 0;
    item.cached_tokens = 48;
    item.miss = (char *)"evicted";
    assert_int_equal(choice_take(&f->choice, &item, &over), 0);
    return over;
}

static void expect_text(const struct fixture *f, const char *want)
{
    assert_string_equal(f->choice.text.data, want);
}

static void test_stop_id_is_counted_and_not_shown(void **state)
{
    struct fixture f;
    (void)state;
    setup(&f);
    f.fields.logprobs = 1;
    choice_init(&f.choice, NULL, &f.plan);
    assert_false(take(&f, "ab", REFRAIN__FINISH__FINISH_NONE));
    assert_true(take(&f, "c$", REFRAIN__FINISH__FINISH_STOP));
    expect_text(&f, "abc");
    assert_int_equal(f.choice.tokens, 4);
    assert_int_equal(f.choice.logprobs.count, 4); /* one for each that is counted */
    assert_string_equal(f.choice.finish_reason, "stop");
    assert_int_equal(f.choice.stop_kind, CHUNK_STOP_NONE); /* the model's own end */
    assert_int_equal(f.choice.cached_tokens, 48);
    assert_int_equal(f.choice.group, 7);
    assert_string_equal(f.choice.miss, "evicted");
    teardown(&f);
}

static void test_a_clients_stop_id_is_the_stop_reason(void **state)
{
    struct fixture f;
    (void)state;
    setup(&f);
    choice_init(&f.choice, NULL, &f.plan);
    assert_true(take(&f, "ab", REFRAIN__FINISH__FINISH_STOP));
    expect_text(&f, "a");
    assert_int_equal(f.choice.stop_kind, CHUNK_STOP_ID);
    assert_int_equal(f.choice.stop_id, TINY_BYTE('b'));
    teardown(&f);
}

static void test_stop_string_across_steps_ends_before_the_worker_does(void **state)
{
    struct fixture f;
    (void)state;
    setup(&f);
    f.fields.stop[0] = "END";
    f.fields.stop_bytes[0] = 3;
    f.fields.stop[1] = "zz";
    f.fields.stop_bytes[1] = 2;
    f.fields.stop_count = 2;
    choice_init(&f.choice, NULL, &f.plan);
    assert_false(take(&f, "xE", REFRAIN__FINISH__FINISH_NONE));
    expect_text(&f, "x"); /* E may become END */
    assert_false(take(&f, "N", REFRAIN__FINISH__FINISH_NONE));
    expect_text(&f, "x");
    assert_true(take(&f, "Dxx", REFRAIN__FINISH__FINISH_NONE));
    expect_text(&f, "x");
    assert_true(f.choice.done);
    assert_string_equal(f.choice.finish_reason, "stop");
    assert_int_equal(f.choice.stop_kind, CHUNK_STOP_TEXT);
    assert_int_equal(f.choice.stop_which, 0);
    assert_int_equal(f.choice.tokens, 4); /* what came behind it does not count */
    teardown(&f);
}

static void test_held_text_comes_out_at_the_end(void **state)
{
    struct fixture f;
    (void)state;
    setup(&f);
    f.fields.stop[0] = "END";
    f.fields.stop_bytes[0] = 3;
    f.fields.stop_count = 1;
    choice_init(&f.choice, NULL, &f.plan);
    assert_true(take(&f, "aEN", REFRAIN__FINISH__FINISH_LENGTH));
    expect_text(&f, "aEN");
    assert_string_equal(f.choice.finish_reason, "length");
    teardown(&f);
}

static void test_stop_strings_wait_for_min_tokens(void **state)
{
    struct fixture f;
    (void)state;
    setup(&f);
    f.fields.stop[0] = "b";
    f.fields.stop_bytes[0] = 1;
    f.fields.stop_count = 1;
    f.fields.tokens_min = 3;
    choice_init(&f.choice, NULL, &f.plan);
    assert_false(take(&f, "ab", REFRAIN__FINISH__FINISH_NONE));
    assert_true(take(&f, "cbd", REFRAIN__FINISH__FINISH_NONE));
    expect_text(&f, "abc");
    teardown(&f);
}

static void test_half_characters_are_held_and_broken_ones_replaced(void **state)
{
    struct fixture f;
    (void)state;
    setup(&f);
    choice_init(&f.choice, NULL, &f.plan);
    assert_false(take(&f, "\xe4\xbd", REFRAIN__FINISH__FINISH_NONE));
    expect_text(&f, "");
    assert_false(take(&f, "\xa0", REFRAIN__FINISH__FINISH_NONE));
    expect_text(&f, "\xe4\xbd\xa0");
    assert_true(take(&f, "\xf0", REFRAIN__FINISH__FINISH_LENGTH));
    expect_text(&f, "\xe4\xbd\xa0\xef\xbf\xbd");
    teardown(&f);
}

static void test_echo_comes_first_and_again_after_a_restart(void **state)
{
    struct fixture f;
    (void)state;
    setup(&f);
    f.choice.echo = "prompt ";
    f.choice.echo_bytes = 7;
    choice_init(&f.choice, NULL, &f.plan);
    assert_false(take(&f, "ab", REFRAIN__FINISH__FINISH_NONE));
    expect_text(&f, "prompt ab");
    choice_restart(&f.choice); /* the worker was lost, nothing was sent */
    assert_int_equal(f.choice.tokens, 0);
    assert_true(take(&f, "c", REFRAIN__FINISH__FINISH_LENGTH));
    expect_text(&f, "prompt c");
    teardown(&f);
}

static void test_what_does_not_fit_is_an_error_however_the_answer_ends(void **state)
{
    static const Refrain__Finish ends[] = {
        REFRAIN__FINISH__FINISH_NONE, REFRAIN__FINISH__FINISH_LENGTH, REFRAIN__FINISH__FINISH_STOP};
    (void)state;
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        const uint32_t ids[] = {TINY_BYTE('a'), TINY_BYTE('b'), TINY_BYTE('c'), TINY_BYTE('E')};
        Refrain__StepItem item = REFRAIN__STEP_ITEM__INIT;
        struct fixture f;
        bool over = false;
        setup(&f);
        f.plan.text_bytes_max = 2;
        f.fields.stop[0] = "E"; /* a stop string ends it in the same step */
        f.fields.stop_bytes[0] = 1;
        f.fields.stop_count = i == 2;
        choice_init(&f.choice, NULL, &f.plan);
        item.ids.data = (uint8_t *)ids;
        item.ids.len = sizeof(ids);
        item.finish = ends[i];
        assert_int_equal(choice_take(&f.choice, &item, &over), -ENOBUFS);
        assert_false(over);
        teardown(&f);
    }
}

static void read_with(struct fixture *f, const char *reasoning, const char *tools)
{
    f->plan.answer.reads = true;
    f->plan.answer.calls_end_answer = true;
    f->plan.answer.reader = (struct answer_reader_plan){
        .reasoning = reasoning_find(reasoning),
        .tool_format = tool_format_find(tools),
        .bytes_max = 1 << 16,
    };
}

#define THOUGHT "<think>hm</think>ok<tool_call>{\"name\": \"f\", "

static void test_reasoning_and_calls_are_read_behind_the_stop_strings(void **state)
{
    struct fixture f;
    (void)state;
    setup(&f);
    read_with(&f, "qwen3", "hermes");
    choice_init(&f.choice, NULL, &f.plan);
    assert_false(take(&f, THOUGHT, REFRAIN__FINISH__FINISH_NONE));
    expect_text(&f, "ok");
    assert_string_equal(f.choice.reader.thoughts.data, "hm");
    assert_int_equal(f.choice.reasoning_tokens, 9); /* "hm" and the end tag but its last letter */
    assert_int_equal(f.choice.reader.calls.count, 0);
    assert_false(take(&f, "\"arguments\": {\"a\": ", REFRAIN__FINISH__FINISH_NONE));
    assert_string_equal(f.choice.reader.calls.arguments.data, "{\"a\": ");
    assert_true(take(&f, "1}}</tool_call>$", REFRAIN__FINISH__FINISH_STOP));
    assert_string_equal(f.choice.reader.calls.arguments.data, "{\"a\": 1}");
    expect_text(&f, "ok");
    assert_string_equal(f.choice.finish_reason, "tool_calls");
    assert_int_equal(f.choice.stop_kind, CHUNK_STOP_NONE);
    teardown(&f);
}

static void test_stop_strings_are_not_looked_for_in_the_thinking_or_its_tags(void **state)
{
    static const char *const stops[] = {"hm", "</th", "k<"};
    struct fixture f;
    (void)state;
    setup(&f);
    read_with(&f, "qwen3", "hermes");
    for (size_t i = 0; i < 3; i++) {
        f.fields.stop[i] = stops[i];
        f.fields.stop_bytes[i] = strlen(stops[i]);
    }
    f.fields.stop_count = 3;
    choice_init(&f.choice, NULL, &f.plan);
    assert_true(take(&f, THOUGHT, REFRAIN__FINISH__FINISH_NONE));
    expect_text(&f, "o");
    assert_string_equal(f.choice.reader.thoughts.data, "hm");
    assert_int_equal(f.choice.stop_which, 2);
    teardown(&f);
}

static void test_a_cut_answer_says_so_even_with_a_call(void **state)
{
    struct fixture f;
    (void)state;
    setup(&f);
    read_with(&f, "qwen3", "hermes");
    choice_init(&f.choice, NULL, &f.plan);
    assert_false(take(&f, THOUGHT, REFRAIN__FINISH__FINISH_NONE));
    assert_true(take(&f, "\"arguments\": {\"a\"", REFRAIN__FINISH__FINISH_LENGTH));
    assert_string_equal(f.choice.reader.calls.arguments.data, "{\"a\"");
    assert_string_equal(f.choice.finish_reason, "length");
    teardown(&f);
}

static void test_a_named_call_ends_with_stop(void **state)
{
    struct fixture f;
    (void)state;
    setup(&f);
    read_with(&f, "qwen3", "hermes");
    f.plan.answer.calls_end_answer = false;
    choice_init(&f.choice, NULL, &f.plan);
    assert_false(take(&f, THOUGHT, REFRAIN__FINISH__FINISH_NONE));
    assert_true(take(&f, "\"arguments\": {}}</tool_call>$", REFRAIN__FINISH__FINISH_STOP));
    assert_int_equal(f.choice.reader.calls.count, 1);
    assert_string_equal(f.choice.finish_reason, "stop");
    teardown(&f);
}

static void test_what_the_reader_holds_comes_out_at_the_end(void **state)
{
    struct fixture f;
    (void)state;
    setup(&f);
    read_with(&f, "qwen3", "hermes");
    f.fields.stop[0] = "END";
    f.fields.stop_bytes[0] = 3;
    f.fields.stop_count = 1;
    choice_init(&f.choice, NULL, &f.plan);
    assert_false(take(&f, "a <tool", REFRAIN__FINISH__FINISH_NONE));
    expect_text(&f, "a");
    choice_restart(&f.choice); /* the worker was lost, nothing was sent */
    assert_false(take(&f, "b <tool", REFRAIN__FINISH__FINISH_NONE));
    assert_true(take(&f, "END", REFRAIN__FINISH__FINISH_NONE));
    expect_text(&f, "b <tool");
    assert_string_equal(f.choice.finish_reason, "stop");
    assert_int_equal(f.choice.stop_kind, CHUNK_STOP_TEXT);
    teardown(&f);
}

static void test_a_kept_control_token_is_for_the_reader_only(void **state)
{
    const uint32_t ids[] = {TINY_USER, TINY_BYTE('f'), TINY_BYTE('{'), TINY_BYTE('}'),
                            TINY_USER, TINY_BYTE('!'), TINY_BOS};
    Refrain__StepItem item = REFRAIN__STEP_ITEM__INIT;
    struct errmsg err = {""};
    struct fixture f;
    bool over = false;
    (void)state;
    setup(&f);
    tokenizer_free(f.tokenizer);
    model_card_unref(f.card);
    f.card = tiny_card_with(NULL, "[TOOL_CALLS]");
    assert_int_equal(tokenizer_new(f.card, &f.tokenizer, &err), 0);
    f.plan.tokenizer = f.tokenizer;
    read_with(&f, "none", "mistral");
    f.plan.answer.reader.hide_markers = true;
    f.plan.answer.kept[0] = TINY_USER;
    f.plan.answer.kept_calls = f.plan.answer.kept_count = 1;
    choice_init(&f.choice, NULL, &f.plan);
    item.ids.data = (uint8_t *)ids;
    item.ids.len = sizeof(ids);
    item.finish = REFRAIN__FINISH__FINISH_LENGTH;
    assert_int_equal(choice_take(&f.choice, &item, &over), 0);
    assert_int_equal(f.choice.reader.calls.count, 1);
    assert_string_equal(f.choice.reader.calls.list[0].name, "f");
    assert_string_equal(f.choice.reader.calls.arguments.data, "{}");
    expect_text(&f, "!"); /* the second mark began nothing; <bos> is nobody's */
    teardown(&f);
}

/* Of the prompt's tokens from `from` on. */
static int take_prompt(struct fixture *f, uint32_t from, size_t count, bool first)
{
    Refrain__StepItem item = REFRAIN__STEP_ITEM__INIT;
    Refrain__TokenLogprob best = REFRAIN__TOKEN_LOGPROB__INIT;
    Refrain__TokenLogprob *tops[] = {&best};
    Refrain__Logprobs one = REFRAIN__LOGPROBS__INIT, *all[4] = {&one, &one, &one, &one};
    uint32_t id = TINY_BYTE('x');
    bool over = false;

    best.id = TINY_BYTE('b');
    best.logprob = -0.25f;
    one.chosen = -1.5f;
    one.rank = 2;
    one.n_top = 1;
    one.top = tops;
    item.prompt_logprobs = all;
    item.n_prompt_logprobs = count;
    item.prompt_from = from;
    item.first = first;
    if (first)
        item.ids = (ProtobufCBinaryData){sizeof(id), (uint8_t *)&id};
    return choice_take(&f->choice, &item, &over);
}

static void begin_prompt(struct fixture *f, uint32_t *ids, size_t count)
{
    ids[0] = TINY_BYTE('a');
    ids[1] = TINY_BYTE('b');
    ids[2] = TINY_BYTE('c');
    f->choice.prompt_ids = ids;
    f->choice.prompt_count = count;
    f->choice.sampling.prompt_logprobs = 2;
    f->fields.prompt_logprobs = 2;
    choice_init(&f->choice, NULL, &f->plan);
}

static void test_prompt_logprobs_come_in_parts_and_begin_with_null(void **state)
{
    struct fixture f;
    uint32_t ids[3];
    (void)state;
    setup(&f);
    begin_prompt(&f, ids, 3);
    assert_int_equal(take_prompt(&f, 1, 1, false), 0);
    assert_int_equal(f.choice.tokens, 0);
    assert_int_equal(take_prompt(&f, 2, 1, true), 0);
    assert_string_equal(f.choice.prompt_logprobs.data,
                        "null,{\"101\":{\"logprob\":-1.5,\"rank\":2,\"decoded_token\":\"b\"}},"
                        "{\"102\":{\"logprob\":-1.5,\"rank\":2,\"decoded_token\":\"c\"},"
                        "\"101\":{\"logprob\":-0.25,\"rank\":1,\"decoded_token\":\"b\"}}");
    choice_restart(&f.choice);
    assert_string_equal(f.choice.prompt_logprobs.data, "null");
    assert_int_equal(take_prompt(&f, 1, 2, true), 0);
    teardown(&f);
}

static void test_prompt_logprobs_that_do_not_fit_are_the_workers_fault(void **state)
{
    struct fixture f;
    uint32_t ids[3];
    (void)state;
    setup(&f);
    begin_prompt(&f, ids, 3);
    assert_int_equal(take_prompt(&f, 2, 1, false), -EPROTO); /* a gap */
    assert_int_equal(take_prompt(&f, 1, 3, false), -EPROTO); /* more than the prompt has */
    assert_int_equal(take_prompt(&f, 1, 1, true), -EPROTO);  /* the first token, and one missing */
    teardown(&f);
    setup(&f);
    begin_prompt(&f, ids, 1);
    assert_int_equal(take_prompt(&f, 1, 0, true), 0); /* one token has nothing to tell */
    assert_string_equal(f.choice.prompt_logprobs.data, "null");
    teardown(&f);
}

static void test_an_echo_has_the_prompts_logprobs_before_the_answers(void **state)
{
    struct fixture f;
    uint32_t ids[3];
    struct buffer json;
    (void)state;
    setup(&f);
    f.fields.kind = API_COMPLETIONS;
    f.fields.echo = true;
    f.fields.logprobs = 1;
    f.choice.echo = "ab";
    f.choice.echo_bytes = 2;
    begin_prompt(&f, ids, 2);
    assert_int_equal(take_prompt(&f, 1, 1, true), 0);
    expect_text(&f, "abx");
    buffer_init(&json, 4096);
    logprobs_json_write(&f.choice.logprobs, &json);
    assert_string_equal(json.data, "{\"text_offset\":[0,1,2],\"token_logprobs\":[null,-1.5,-9999],"
                                   "\"tokens\":[\"a\",\"b\",\"x\"],\"top_logprobs\":[null,"
                                   "{\"b\":-1.5},{\"x\":-9999}]}");
    buffer_done(&json);
    teardown(&f);
}

static void test_only_scoring_a_prompt_counts_no_token(void **state)
{
    struct fixture f;
    (void)state;
    setup(&f);
    f.fields.kind = API_COMPLETIONS;
    f.fields.score_only = f.fields.echo = true;
    f.choice.echo = "prompt";
    f.choice.echo_bytes = 6;
    choice_init(&f.choice, NULL, &f.plan);
    assert_true(take(&f, "x", REFRAIN__FINISH__FINISH_LENGTH));
    expect_text(&f, "prompt");
    assert_int_equal(f.choice.tokens, 0);
    assert_string_equal(f.choice.finish_reason, "length");
    teardown(&f);
}

static void test_ids_are_kept_with_the_stop_id_when_asked_for(void **state)
{
    struct fixture f;
    (void)state;
    setup(&f);
    f.fields.return_ids = true;
    choice_init(&f.choice, NULL, &f.plan);
    assert_true(take(&f, "a$", REFRAIN__FINISH__FINISH_STOP));
    assert_string_equal(f.choice.ids.data, "100,1");
    teardown(&f);
}

static void test_stops_in_the_output_show_a_clients_stop_id_and_not_the_models(void **state)
{
    struct fixture f;
    (void)state;
    for (int shown = 0; shown < 2; shown++) {
        setup(&f);
        f.fields.include_stop = true;
        choice_init(&f.choice, NULL, &f.plan);
        assert_true(take(&f, shown ? "ab" : "a$", REFRAIN__FINISH__FINISH_STOP));
        expect_text(&f, shown ? "ab" : "a");
        teardown(&f);
    }
}

static void test_ids_that_are_none_are_the_workers_fault(void **state)
{
    struct fixture f;
    uint32_t ids[2] = {TINY_BYTE('a'), 259};
    Refrain__StepItem item = REFRAIN__STEP_ITEM__INIT;
    bool over = false;
    (void)state;
    setup(&f);
    choice_init(&f.choice, NULL, &f.plan);
    item.ids.data = (uint8_t *)ids;
    item.ids.len = sizeof(ids);
    assert_int_equal(choice_take(&f.choice, &item, &over), -EPROTO);
    item.ids.len = 3;
    assert_int_equal(choice_take(&f.choice, &item, &over), -EPROTO);
    item.ids.len = 0;
    item.finish = REFRAIN__FINISH__FINISH_STOP;
    assert_int_equal(choice_take(&f.choice, &item, &over), -EPROTO);
    teardown(&f);
}

static void expect_kept(const struct fixture *f, const char *text, size_t unsent)
{
    size_t count = choice_kept_ids(&f->choice, unsent);
    assert_int_equal(count, strlen(text));
    for (size_t i = 0; i < count; i++)
        assert_int_equal(f->choice.generated.ids[i],
                         text[i] == '$' ? TINY_END : TINY_BYTE(text[i]));
}

static void test_ids_of_an_answer_are_kept_without_its_end(void **state)
{
    struct fixture f;
    (void)state;
    setup(&f);
    choice_init(&f.choice, NULL, &f.plan);
    assert_false(take(&f, "a$b", REFRAIN__FINISH__FINISH_NONE)); /* a control token, not shown */
    assert_true(take(&f, "c$", REFRAIN__FINISH__FINISH_STOP));
    expect_kept(&f, "a$bc", 0);
    choice_done(&f.choice);
    choice_init(&f.choice, NULL, &f.plan);
    f.choice.done = false;
    assert_true(take(&f, "x\xf0", REFRAIN__FINISH__FINISH_LENGTH)); /* shown as U+FFFD */
    expect_kept(&f, "x\xf0", 0);
    teardown(&f);
}

static void test_a_stop_string_keeps_the_ids_before_it(void **state)
{
    struct fixture f;
    (void)state;
    setup(&f);
    f.fields.stop[0] = "END";
    f.fields.stop_bytes[0] = 3;
    f.fields.stop_count = 1;
    f.choice.echo = "prompt ";
    f.choice.echo_bytes = 7;
    choice_init(&f.choice, NULL, &f.plan);
    assert_true(take(&f, "xy$END", REFRAIN__FINISH__FINISH_NONE));
    expect_text(&f, "prompt xy");
    expect_kept(&f, "xy", 0); /* not the control token: the text is whole without it */
    teardown(&f);
    setup(&f);
    f.fields.stop[0] = "xy";
    f.fields.stop_bytes[0] = 2;
    f.fields.stop_count = 1;
    choice_init(&f.choice, NULL, &f.plan);
    assert_true(take(&f, "xy", REFRAIN__FINISH__FINISH_NONE));
    expect_kept(&f, "", 0);
    teardown(&f);
}

/* The client went away while "E" was held back and "b" not sent. */
static void test_what_was_sent_of_a_stream_is_kept(void **state)
{
    struct fixture f;
    (void)state;
    setup(&f);
    f.fields.stop[0] = "END";
    f.fields.stop_bytes[0] = 3;
    f.fields.stop_count = 1;
    choice_init(&f.choice, NULL, &f.plan);
    assert_false(take(&f, "aabE", REFRAIN__FINISH__FINISH_NONE));
    expect_text(&f, "aab");
    expect_kept(&f, "aab", 0);
    expect_kept(&f, "aa", 1);
    expect_kept(&f, "", 3);
    choice_restart(&f.choice);
    expect_kept(&f, "", 0);
    teardown(&f);
}

/* A token of several characters that the stop string cuts in two. */
static void test_a_stop_string_inside_a_token_keeps_nothing(void **state)
{
    struct fixture f;
    (void)state;
    setup(&f);
    f.fields.stop[0] = "s";
    f.fields.stop_bytes[0] = 1;
    f.fields.stop_count = 1;
    f.fields.skip_special_tokens = false; /* "<user>" is text then, and one token */
    choice_init(&f.choice, NULL, &f.plan);
    Refrain__StepItem item = REFRAIN__STEP_ITEM__INIT;
    uint32_t ids[2] = {TINY_BYTE('a'), TINY_USER};
    bool over = false;
    item.ids.data = (uint8_t *)ids;
    item.ids.len = sizeof(ids);
    assert_int_equal(choice_take(&f.choice, &item, &over), 0);
    assert_true(over);
    expect_text(&f, "a<u");
    expect_kept(&f, "", 0);
    teardown(&f);
}

/* What best_of compares: counted over all tokens, the one that ended the answer, too. */
static void test_log_probabilities_are_summed_over_the_tokens(void **state)
{
    Refrain__Logprobs numbers[2] = {REFRAIN__LOGPROBS__INIT, REFRAIN__LOGPROBS__INIT};
    Refrain__Logprobs *pointers[2] = {&numbers[0], &numbers[1]};
    Refrain__StepItem item = REFRAIN__STEP_ITEM__INIT;
    uint32_t ids[2] = {TINY_BYTE('a'), TINY_END};
    struct fixture f;
    bool over = false;
    (void)state;
    setup(&f);
    choice_init(&f.choice, NULL, &f.plan);
    assert_true(choice_mean_logprob(&f.choice) < -1e300);
    numbers[0].chosen = -0.5F;
    numbers[1].chosen = -2.5F;
    item.ids.data = (uint8_t *)ids;
    item.ids.len = sizeof(ids);
    item.logprobs = pointers;
    item.n_logprobs = 2;
    item.finish = REFRAIN__FINISH__FINISH_STOP;
    assert_int_equal(choice_take(&f.choice, &item, &over), 0);
    assert_true(over && choice_mean_logprob(&f.choice) == -1.5);
    assert_int_equal(f.choice.logprobs.count, 0); /* the client did not ask for them */
    assert_true(choice_bytes(&f.choice) >= f.choice.text.capacity + sizeof(uint32_t));
    teardown(&f);
}

static void test_an_answer_that_repeats_itself_says_so(void **state)
{
    struct fixture f;
    (void)state;
    setup(&f);
    choice_init(&f.choice, NULL, &f.plan);
    assert_true(take(&f, "ababab", REFRAIN__FINISH__FINISH_REPETITION));
    expect_text(&f, "ababab"); /* all of it, the last token, too */
    assert_string_equal(f.choice.finish_reason, "repetition");
    assert_int_equal(f.choice.stop_kind, CHUNK_STOP_REPETITION);
    teardown(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stop_id_is_counted_and_not_shown),
        cmocka_unit_test(test_what_does_not_fit_is_an_error_however_the_answer_ends),
        cmocka_unit_test(test_a_clients_stop_id_is_the_stop_reason),
        cmocka_unit_test(test_stop_string_across_steps_ends_before_the_worker_does),
        cmocka_unit_test(test_held_text_comes_out_at_the_end),
        cmocka_unit_test(test_stop_strings_wait_for_min_tokens),
        cmocka_unit_test(test_half_characters_are_held_and_broken_ones_replaced),
        cmocka_unit_test(test_echo_comes_first_and_again_after_a_restart),
        cmocka_unit_test(test_reasoning_and_calls_are_read_behind_the_stop_strings),
        cmocka_unit_test(test_stop_strings_are_not_looked_for_in_the_thinking_or_its_tags),
        cmocka_unit_test(test_a_cut_answer_says_so_even_with_a_call),
        cmocka_unit_test(test_a_named_call_ends_with_stop),
        cmocka_unit_test(test_what_the_reader_holds_comes_out_at_the_end),
        cmocka_unit_test(test_a_kept_control_token_is_for_the_reader_only),
        cmocka_unit_test(test_prompt_logprobs_come_in_parts_and_begin_with_null),
        cmocka_unit_test(test_prompt_logprobs_that_do_not_fit_are_the_workers_fault),
        cmocka_unit_test(test_an_echo_has_the_prompts_logprobs_before_the_answers),
        cmocka_unit_test(test_only_scoring_a_prompt_counts_no_token),
        cmocka_unit_test(test_ids_are_kept_with_the_stop_id_when_asked_for),
        cmocka_unit_test(test_stops_in_the_output_show_a_clients_stop_id_and_not_the_models),
        cmocka_unit_test(test_ids_that_are_none_are_the_workers_fault),
        cmocka_unit_test(test_ids_of_an_answer_are_kept_without_its_end),
        cmocka_unit_test(test_a_stop_string_keeps_the_ids_before_it),
        cmocka_unit_test(test_what_was_sent_of_a_stream_is_kept),
        cmocka_unit_test(test_a_stop_string_inside_a_token_keeps_nothing),
        cmocka_unit_test(test_log_probabilities_are_summed_over_the_tokens),
        cmocka_unit_test(test_an_answer_that_repeats_itself_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
