/* test_fields.c - what requests say about tokens, against the real model: rules, log probabilities
 * of prompts, ids, cuts. The numbers of a prompt must be those of the steps that wrote it, bit by
 * bit, with one rank and with two; nothing that runs beside such a request changes. */
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/buffer.h"
#include "proto/base/mem.h"
#include "tests/e2e/harness.h"

#define ANSWER_TOKENS 40
#define CHATS 8

static struct cluster cluster;
static const char prompt[] = "The three largest cities of France are";

/* The answer, which must have `status`; owned by the caller. */
static json_t *ask(const char *path, json_t *body, int status)
{
    return cluster_post(&cluster, path, body, status);
}

static json_t *choice_of(json_t *answer)
{
    json_t *choice = json_array_get(json_object_get(answer, "choices"), 0);
    assert_non_null(choice);
    return choice;
}

static json_t *completion(const char *member, json_t *value)
{
    json_t *body = completion_body(cluster.model, prompt, ANSWER_TOKENS);
    json_object_set_new(body, "ignore_eos", json_true());
    json_object_set_new(body, member, value);
    return body;
}

static json_t *id_list(json_t *prompt_ids, json_t *ids)
{
    json_t *list = json_array();
    json_array_extend(list, prompt_ids);
    json_array_extend(list, ids);
    return list;
}

static double logprob_of(json_t *entry, json_t *id)
{
    char key[16];
    (void)snprintf(key, sizeof(key), "%lld", (long long)json_integer_value(id));
    json_t *one = json_object_get(entry, key);
    assert_non_null(one);
    return json_real_value(json_object_get(one, "logprob"));
}

/* Write tokens one by one, then have them scored as a prompt, in chunks: the same numbers. */
static void written_and_scored(const char *ranks)
{
    cluster_start(
        &cluster, e2e_smollm2(),
        (const char *const[]){"--groups", "1", "--tp", ranks, "--kv-cache-memory", "256MiB", NULL});
    json_t *body = completion("logprobs", json_integer(0));
    json_object_set_new(body, "return_token_ids", json_true());
    json_object_set_new(body, "max_tokens", json_integer(150)); /* more than two chunks */
    json_t *written = ask(COMPLETION_PATH, body, 200);
    json_t *ids = json_object_get(choice_of(written), "token_ids");
    json_t *prompt_ids = json_object_get(choice_of(written), "prompt_token_ids");
    json_t *values =
        json_object_get(json_object_get(choice_of(written), "logprobs"), "token_logprobs");
    assert_int_equal(json_array_size(ids), 150);

    for (int round = 0; round < 2;
         round++) { /* the second finds its prompt cached, and reads none */
        json_t *score = json_pack("{s:o, s:i, s:i}", "prompt", id_list(prompt_ids, ids),
                                  "max_tokens", 1, "prompt_logprobs", 2);
        json_t *scored = ask(COMPLETION_PATH, score, 200);
        json_t *list = json_object_get(choice_of(scored), "prompt_logprobs");
        size_t first = json_array_size(prompt_ids);
        assert_int_equal(json_array_size(list), first + 150);
        assert_true(json_is_null(json_array_get(list, 0)));
        for (size_t i = 0; i < 150; i++) {
            double got = logprob_of(json_array_get(list, first + i), json_array_get(ids, i));
            assert_true(got == json_real_value(json_array_get(values, i)));
        }
        json_t *usage = json_object_get(scored, "usage");
        assert_int_equal(json_integer_value(json_object_get(
                             json_object_get(usage, "prompt_tokens_details"), "cached_tokens")),
                         0);
        json_decref(scored);
    }
    json_decref(written);
    cluster_stop(&cluster);
}

static void test_a_prompt_s_logprobs_are_those_of_the_steps_that_wrote_it(void **state)
{
    (void)state;
    written_and_scored("1");
    written_and_scored("2");
}

static int start(void **state)
{
    (void)state;
    cluster_start(
        &cluster, e2e_smollm2(),
        (const char *const[]){"--kv-cache-memory", "256MiB", "--max-model-len", "512", NULL});
    return 0;
}

/* The logprobs of eight answers as one text each. */
static void answer_all(char *ret_answers[CHATS], bool scored_beside)
{
    struct chat chats[2 * CHATS];
    size_t count = scored_beside ? 2 * CHATS : CHATS;

    for (size_t i = 0; i < count; i++) {
        char *text = mem_printf("%s (%zu)", prompt, i % CHATS);
        json_t *body = completion_body(cluster.model, text, ANSWER_TOKENS);
        json_object_set_new(body, i < CHATS ? "logprobs" : "prompt_logprobs", json_integer(3));
        json_object_set_new(body, "ignore_eos", json_true());
        chat_init(&chats[i], cluster.url, COMPLETION_PATH, body);
        mem_free(text);
    }
    chat_send_all(chats, count, count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(chats[i].status, 200);
        if (i < CHATS)
            ret_answers[i] = json_dumps(chats[i].logprobs, JSON_SORT_KEYS);
        chat_done(&chats[i]);
    }
}

static void test_nothing_changes_for_those_beside_a_scored_prompt(void **state)
{
    char *alone[CHATS], *beside[CHATS];
    (void)state;

    answer_all(alone, false);
    answer_all(beside, true);
    for (size_t i = 0; i < CHATS; i++) {
        assert_string_equal(alone[i], beside[i]);
        free(alone[i]); /* jansson's */
        free(beside[i]);
    }
    cluster_assert_idle(&cluster);
}

static const char *text_of(json_t *answer)
{
    return json_string_value(json_object_get(choice_of(answer), "text"));
}

static void test_rules_about_tokens_are_obeyed(void **state)
{
    json_t *plain = ask(COMPLETION_PATH, completion("return_token_ids", json_true()), 200);
    json_t *ids = json_object_get(choice_of(plain), "token_ids");
    long long first = json_integer_value(json_array_get(ids, 0));
    char key[24];
    (void)state;

    /* Without its first token the answer begins with another one. */
    (void)snprintf(key, sizeof(key), "%lld", first);
    json_t *body = completion("logit_bias", json_pack("{s:i}", key, -100));
    json_object_set_new(body, "return_token_ids", json_true());
    json_t *other = ask(COMPLETION_PATH, body, 200);
    json_t *others = json_object_get(choice_of(other), "token_ids");
    for (size_t i = 0; i < json_array_size(others); i++)
        assert_int_not_equal(json_integer_value(json_array_get(others, i)), first);
    json_decref(other);

    /* Only two tokens. */
    body = completion("allowed_token_ids", json_pack("[I, i]", (json_int_t)first, 30));
    json_object_set_new(body, "return_token_ids", json_true());
    json_object_set_new(body, "temperature", json_real(1.5));
    other = ask(COMPLETION_PATH, body, 200);
    others = json_object_get(choice_of(other), "token_ids");
    for (size_t i = 0; i < json_array_size(others); i++) {
        long long id = json_integer_value(json_array_get(others, i));
        assert_true(id == first || id == 30);
    }
    json_decref(other);

    /* A word that it would write, with and without its space. */
    assert_non_null(strstr(text_of(plain), "Paris"));
    other = ask(COMPLETION_PATH, completion("bad_words", json_pack("[s]", "Paris")), 200);
    assert_null(strstr(text_of(other), "Paris"));
    json_decref(other);
    json_decref(plain);

    json_t *error =
        ask(COMPLETION_PATH, completion("logit_bias", json_pack("{s:i}", "49152", 1)), 400);
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(error, "error"), "param")), "logit_bias");
    json_decref(error);
    cluster_assert_idle(&cluster);
}

/* B14: the prompt alone, with its numbers, and no token more. */
static void test_b14_a_prompt_is_scored_without_a_token_more(void **state)
{
    json_t *body = json_pack("{s:s, s:i, s:b, s:i}", "prompt", "Your answer: Yes", "max_tokens", 0,
                             "echo", true, "logprobs", 1);
    json_t *answer = ask(COMPLETION_PATH, body, 200);
    json_t *logprobs = json_object_get(choice_of(answer), "logprobs");
    json_t *values = json_object_get(logprobs, "token_logprobs");
    json_t *usage = json_object_get(answer, "usage");
    size_t tokens = json_array_size(json_object_get(logprobs, "tokens"));
    (void)state;

    assert_string_equal(text_of(answer), "Your answer: Yes");
    assert_int_equal(json_integer_value(json_object_get(usage, "completion_tokens")), 0);
    assert_int_equal(json_integer_value(json_object_get(usage, "prompt_tokens")), tokens);
    assert_int_equal(json_array_size(values), tokens);
    assert_true(json_is_null(json_array_get(values, 0)));
    for (size_t i = 1; i < tokens; i++)
        assert_true(json_real_value(json_array_get(values, i)) < 0);
    json_decref(answer);
    body = json_pack("{s:s, s:i}", "prompt", "Your answer: Yes", "max_tokens", 0);
    json_decref(ask(COMPLETION_PATH, body, 400));
    cluster_assert_idle(&cluster);
}

static json_t *chat_with(const char *member, json_t *value)
{
    json_t *body = chat_body(cluster.model, "Say hello.", 6);
    json_object_set_new(body, member, value);
    return body;
}

static void test_a_chat_has_its_ids_and_scores_beside_the_choices(void **state)
{
    json_t *body = chat_with("prompt_logprobs", json_integer(1));
    (void)state;

    json_object_set_new(body, "return_token_ids", json_true());
    json_object_set_new(body, "n", json_integer(2));
    json_t *answer = ask(CHAT_PATH, body, 200);
    size_t prompt_tokens = (size_t)json_integer_value(
        json_object_get(json_object_get(answer, "usage"), "prompt_tokens"));
    assert_int_equal(json_array_size(json_object_get(answer, "prompt_token_ids")), prompt_tokens);
    assert_int_equal(json_array_size(json_object_get(answer, "prompt_logprobs")), prompt_tokens);
    assert_int_equal(json_array_size(json_object_get(choice_of(answer), "token_ids")), 6);
    assert_null(json_object_get(choice_of(answer), "prompt_logprobs"));
    json_decref(answer);
}

static void test_a_stream_s_ids_are_those_of_the_whole_answer(void **state)
{
    json_t *body = chat_with("return_token_ids", json_true());
    json_t *whole = ask(CHAT_PATH, json_deep_copy(body), 200);
    json_t *joined = json_array(), *prompt_ids = NULL;
    struct http_answer answer;
    (void)state;

    json_object_set_new(body, "stream", json_true());
    http_post_json(cluster.url, CHAT_PATH, body, &answer);
    for (const char *at = answer.body; (at = strstr(at, "data: {")) != NULL; at += 6) {
        json_t *chunk = json_loads(at + 6, JSON_DISABLE_EOF_CHECK, NULL);
        json_array_extend(joined, json_object_get(choice_of(chunk), "token_ids"));
        if (json_object_get(chunk, "prompt_token_ids")) {
            assert_null(prompt_ids); /* once */
            prompt_ids = json_incref(json_object_get(chunk, "prompt_token_ids"));
        }
        json_decref(chunk);
    }
    assert_true(json_equal(joined, json_object_get(choice_of(whole), "token_ids")));
    assert_true(json_equal(prompt_ids, json_object_get(whole, "prompt_token_ids")));
    json_decref(prompt_ids);
    json_decref(joined);
    json_decref(whole);
    http_answer_done(&answer);
}

/* Cut to what fits, a prompt of any length is answered; its last tokens are what is left. */
static void test_a_prompt_is_cut_to_its_last_tokens(void **state)
{
    json_t *words = json_pack("{s:s, s:i, s:i, s:b}", "prompt", prompt, "max_tokens", 1,
                              "truncate_prompt_tokens", 2, "return_token_ids", true);
    json_t *answer = ask(COMPLETION_PATH, words, 200);
    json_t *ids = json_object_get(choice_of(answer), "prompt_token_ids");
    struct buffer text;
    (void)state;

    json_t *all = ask("/tokenize", json_pack("{s:s}", "prompt", prompt), 200);
    json_t *same =
        ask("/tokenize", json_pack("{s:s, s:b}", "content", prompt, "add_special", 1), 200);
    json_t *tokens = json_object_get(all, "tokens");
    assert_true(json_equal(all, same)); /* llama.cpp's names */
    json_decref(same);
    same = ask("/detokenize", json_pack("{s:O}", "tokens", tokens), 200);
    assert_true(json_equal(json_object_get(same, "prompt"), json_object_get(same, "content")));
    json_decref(same);
    size_t count = json_array_size(tokens);
    assert_int_equal(json_array_size(ids), 2);
    for (size_t i = 0; i < 2; i++)
        assert_true(json_equal(json_array_get(ids, i), json_array_get(tokens, count - 2 + i)));
    json_decref(all);
    json_decref(answer);

    buffer_init(&text, 1 << 20);
    for (int i = 0; i < 20000; i++)
        buffer_append_text(&text, "word ");
    json_t *body = chat_body(cluster.model, text.data, 5);
    json_decref(ask(CHAT_PATH, json_deep_copy(body), 400));
    json_object_set_new(body, "truncate_prompt_tokens", json_integer(-1));
    answer = ask(CHAT_PATH, body, 200);
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(answer, "usage"), "prompt_tokens")),
        512 - 5);
    json_decref(answer);
    buffer_done(&text);
    cluster_assert_idle(&cluster);
}

static void test_a_chat_that_goes_on_can_begin_with_what_it_goes_on_from(void **state)
{
    json_t *messages =
        json_pack("[{s:s, s:s}, {s:s, s:s}]", "role", "user", "content", "Introduce yourself.",
                  "role", "assistant", "content", "Hello, my");
    json_t *body = json_pack("{s:o, s:i, s:i, s:b, s:b}", "messages", messages, "max_tokens", 4,
                             "temperature", 0, "echo", true, "continue_final_message", true);
    json_t *answer = ask(CHAT_PATH, body, 200);
    const char *content = json_string_value(
        json_object_get(json_object_get(choice_of(answer), "message"), "content"));
    (void)state;
    assert_int_equal(strncmp(content, "Hello, my name", 14), 0);
    json_decref(answer);
}

static const char *text_at(json_t *answer, size_t index)
{
    json_t *choice = json_array_get(json_object_get(answer, "choices"), index);
    assert_int_equal(json_integer_value(json_object_get(choice, "index")), index);
    return json_string_value(json_object_get(choice, "text"));
}

static double mean_at(json_t *answer, size_t index)
{
    json_t *choice = json_array_get(json_object_get(answer, "choices"), index);
    json_t *values = json_object_get(json_object_get(choice, "logprobs"), "token_logprobs");
    double sum = 0;
    for (size_t i = 0; i < json_array_size(values); i++)
        sum += json_real_value(json_array_get(values, i));
    return sum / (double)json_array_size(values);
}

static json_t *sampled(json_t *prompts, unsigned n, unsigned tokens)
{
    json_t *body = completion("n", json_integer(n));
    json_object_set_new(body, "prompt", prompts);
    json_object_set_new(body, "temperature", json_real(1));
    json_object_set_new(body, "max_tokens", json_integer(tokens));
    json_object_set_new(body, "seed", json_integer(5));
    return body;
}

/* Of the five choices of one prompt, from `first` on: the best first. */
static void rank_five(json_t *all, size_t first, size_t ret_order[5])
{
    for (size_t i = 0; i < 5; i++) {
        size_t at = i;
        for (; at > 0 && mean_at(all, first + i) > mean_at(all, ret_order[at - 1]); at--)
            ret_order[at] = ret_order[at - 1];
        ret_order[at] = first + i;
    }
}

/* best_of writes what n writes, and gives out those whose tokens are the likeliest. */
static void test_the_best_of_several_are_given_out(void **state)
{
    json_t *two = json_pack("[s, s]", "The sea is", "My name");
    json_t *body = sampled(json_incref(two), 5, 6);
    (void)state;

    json_object_set_new(body, "logprobs", json_integer(0));
    json_t *all = ask(COMPLETION_PATH, body, 200);
    body = sampled(two, 2, 6);
    json_object_set_new(body, "best_of", json_integer(5));
    json_t *best = ask(COMPLETION_PATH, body, 200);
    assert_int_equal(json_array_size(json_object_get(best, "choices")), 4);
    for (size_t at = 0; at < 2; at++) {
        size_t order[5];
        rank_five(all, at * 5, order);
        for (size_t i = 0; i < 2; i++)
            assert_string_equal(text_at(best, at * 2 + i), text_at(all, order[i]));
    }
    json_t *usage = json_object_get(best, "usage");
    assert_int_equal(json_integer_value(json_object_get(usage, "completion_tokens")), 60);
    assert_true(json_is_null(json_object_get(choice_of(best), "logprobs")));
    json_decref(all);
    json_decref(best);
    cluster_assert_idle(&cluster);
}

/* More answers than sequences fit in a step: they wait, and each is what it is among few. */
static void test_as_many_answers_as_openai_gives(void **state)
{
    json_t *many = ask(COMPLETION_PATH, sampled(json_string("The sea is"), 128, 3), 200);
    json_t *few = ask(COMPLETION_PATH, sampled(json_string("The sea is"), 3, 3), 200);
    (void)state;

    assert_int_equal(json_array_size(json_object_get(many, "choices")), 128);
    for (size_t i = 0; i < 3; i++)
        assert_string_equal(text_at(few, i), text_at(many, i));
    json_t *usage = json_object_get(many, "usage");
    assert_int_equal(json_integer_value(json_object_get(usage, "completion_tokens")), 3 * 128);
    json_decref(many);
    json_decref(few);
    cluster_assert_idle(&cluster);
}

/* The prompt that the template wrote: once, whatever is streamed; its tokens are the prompt's. */
static void test_a_chat_s_prompt_is_shown_as_the_template_wrote_it(void **state)
{
    json_t *body = chat_with("return_prompt_text", json_true());
    struct http_answer answer;
    (void)state;

    json_object_set_new(body, "return_token_ids", json_true());
    json_t *whole = ask(CHAT_PATH, json_deep_copy(body), 200);
    const char *text = json_string_value(json_object_get(whole, "prompt_text"));
    assert_non_null(text);
    assert_non_null(strstr(text, "<|im_start|>user\nSay hello.<|im_end|>\n"));
    json_t *tokens = ask("/tokenize", json_pack("{s:s}", "prompt", text), 200);
    assert_true(
        json_equal(json_object_get(tokens, "tokens"), json_object_get(whole, "prompt_token_ids")));
    json_decref(tokens);
    json_decref(whole);

    json_object_set_new(body, "stream", json_true());
    json_object_set_new(body, "n", json_integer(2));
    http_post_json(cluster.url, CHAT_PATH, body, &answer);
    const char *first = strstr(answer.body, "\"prompt_text\":");
    assert_non_null(first);
    assert_null(strstr(first + 1, "\"prompt_text\":"));
    assert_true(first < strstr(answer.body, "\n\n"));
    http_answer_done(&answer);
    json_decref(ask(CHAT_PATH, chat_with("return_prompt_text", json_integer(1)), 400));
}

/* Exactly these tokens, each with the number that the best ones' list has for it. */
static void test_named_tokens_have_their_log_probabilities(void **state)
{
    json_t *body = chat_with("logprobs", json_true());
    json_t *wide = json_deep_copy(body);
    (void)state;

    json_object_set_new(wide, "top_logprobs", json_integer(3));
    json_object_set_new(wide, "return_tokens_as_token_ids", json_true());
    json_t *best = ask(CHAT_PATH, wide, 200);
    json_t *entry =
        json_array_get(json_object_get(json_object_get(choice_of(best), "logprobs"), "content"), 0);
    json_t *second = json_array_get(json_object_get(entry, "top_logprobs"), 1);
    long long id = strtoll(
        json_string_value(json_object_get(second, "token")) + strlen("token_id:"), NULL, 10);

    json_object_set_new(body, "logprob_token_ids", json_pack("[i, I]", 7, (json_int_t)id));
    json_t *named = ask(CHAT_PATH, body, 200);
    json_t *content = json_object_get(json_object_get(choice_of(named), "logprobs"), "content");
    assert_int_equal(json_array_size(content), 6);
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(
            json_array_size(json_object_get(json_array_get(content, i), "top_logprobs")), 2);
    json_t *tops = json_object_get(json_array_get(content, 0), "top_logprobs");
    assert_true(json_equal(json_object_get(json_array_get(content, 0), "logprob"),
                           json_object_get(entry, "logprob")));
    assert_true(json_equal(json_object_get(json_array_get(tops, 1), "logprob"),
                           json_object_get(second, "logprob")));
    assert_true(json_real_value(json_object_get(json_array_get(tops, 0), "logprob")) <
                json_real_value(json_object_get(second, "logprob")));
    json_decref(named);
    json_decref(best);

    body = completion("logprobs", json_integer(0));
    json_object_set_new(body, "logprob_token_ids", json_pack("[i, I]", 7, (json_int_t)id));
    json_object_set_new(body, "return_tokens_as_token_ids", json_true());
    named = ask(COMPLETION_PATH, body, 200);
    tops = json_array_get(
        json_object_get(json_object_get(choice_of(named), "logprobs"), "top_logprobs"), 0);
    assert_int_equal(json_object_size(tops), 3); /* and the token that was written */
    assert_true(json_is_real(json_object_get(tops, "token_id:7")));
    json_decref(named);
    body = completion("logprobs", json_integer(0));
    json_object_set_new(body, "logprob_token_ids", json_pack("[i]", 49152));
    json_decref(ask(COMPLETION_PATH, body, 400));
}

/* One token only, so that the answer repeats: it ends with the third of them. */
static void test_an_answer_that_repeats_itself_ends(void **state)
{
    json_t *body = completion("allowed_token_ids", json_pack("[i]", 30));
    json_t *rule = json_pack("{s:i, s:i}", "max_pattern_size", 4, "min_count", 3);
    (void)state;

    json_object_set_new(body, "repetition_detection", rule);
    json_object_set_new(body, "return_token_ids", json_true());
    json_t *answer = ask(COMPLETION_PATH, json_deep_copy(body), 200);
    json_t *choice = choice_of(answer);
    assert_string_equal(json_string_value(json_object_get(choice, "finish_reason")), "repetition");
    assert_string_equal(json_string_value(json_object_get(choice, "stop_reason")),
                        "repetition_detected");
    assert_int_equal(json_array_size(json_object_get(choice, "token_ids")), 3);
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(answer, "usage"), "completion_tokens")),
        3);
    json_decref(answer);
    json_object_set_new(body, "min_tokens", json_integer(10));
    answer = ask(COMPLETION_PATH, body, 200);
    assert_int_equal(json_array_size(json_object_get(choice_of(answer), "token_ids")), 10);
    json_decref(answer);
    cluster_assert_idle(&cluster);
}

static long long details_of(json_t *answer)
{
    json_t *usage = json_object_get(answer, "usage");
    return json_integer_value(
        json_object_get(json_object_get(usage, "completion_tokens_details"), "reasoning_tokens"));
}

static const char *message_of(json_t *answer, const char *member)
{
    return json_string_value(
        json_object_get(json_object_get(choice_of(answer), "message"), member));
}

/* A model that always thinks by its parser, and would not stop: the budget ends it, and what comes
 * then is content. Streamed, and with others beside it, the same. */
static void test_thinking_ends_when_its_budget_is_spent(void **state)
{
    (void)state;
    cluster_start(&cluster, e2e_tiny("llama-gguf-f32"),
                  (const char *const[]){"--reasoning-parser", "deepseek_r1", NULL});
    json_t *body = chat_body(cluster.model, "Why?", 24);
    json_object_set_new(body, "ignore_eos", json_true());
    json_t *endless = ask(CHAT_PATH, json_deep_copy(body), 200);
    assert_null(message_of(endless, "content"));
    long long all = details_of(endless);
    assert_true(all > 20);

    json_object_set_new(body, "thinking_token_budget", json_integer(5));
    json_t *answer = ask(CHAT_PATH, json_deep_copy(body), 200);
    const char *thoughts = message_of(answer, "reasoning");
    assert_non_null(message_of(answer, "content"));
    assert_true(strlen(message_of(answer, "content")) > 0);
    assert_int_equal(strncmp(message_of(endless, "reasoning"), thoughts, strlen(thoughts)), 0);
    assert_true(details_of(answer) >= 5 && details_of(answer) < all);

    struct chat chats[4];
    for (size_t i = 0; i < 4; i++)
        chat_init(&chats[i], cluster.url, CHAT_PATH, streamed(json_deep_copy(body)));
    chat_send_all(chats, 4, 4);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(chats[i].status, 200);
        assert_string_equal(chats[i].text, message_of(answer, "content"));
        chat_done(&chats[i]);
    }
    json_decref(answer);
    json_decref(endless);
    json_decref(body);
    cluster_stop(&cluster);
}

static json_t *with_template(const char *template)
{
    json_t *body = chat_body(cluster.model, "Why?", 4);
    json_object_set_new(body, "chat_template", json_string(template));
    json_object_set_new(body, "return_prompt_text", json_true());
    return body;
}

/* Trusted, a client's template makes the prompt within the bounds of the model's own; each that
 * fails says why. */
static void test_a_trusted_template_of_a_client_makes_the_prompt(void **state)
{
    static const char source[] =
        "{% for m in messages %}[{{ m.role }}: {{ m.content }}]{% endfor %}";
    json_t *body = with_template(source), *answer;
    (void)state;

    cluster_start(&cluster, e2e_tiny("llama-gguf-f32"),
                  (const char *const[]){"--trust-request-chat-template", NULL});
    for (int round = 0; round < 2; round++) {
        answer = ask(CHAT_PATH, json_deep_copy(body), 200);
        assert_string_equal(json_string_value(json_object_get(answer, "prompt_text")),
                            "[user: Why?]");
        json_decref(answer);
    }
    json_object_set_new(body, "chat_template_kwargs",
                        json_pack("{s:s}", "chat_template", "not this one"));
    json_object_del(body, "max_tokens");
    json_t *tokens = ask("/tokenize", body, 200);
    json_t *same = ask("/tokenize", json_pack("{s:s}", "prompt", "[user: Why?]"), 200);
    json_t *bare = json_object_get(tokens, "tokens"), *all = json_object_get(same, "tokens");
    assert_true(json_array_size(all) == json_array_size(bare) ||
                json_array_size(all) == json_array_size(bare) + 1); /* with BOS */
    json_decref(tokens);
    json_decref(same);

    static const char *const bad[] = {
        "{% if %}",
        ("{% for i in range(100000) %}{% for j in range(100000) %}{{ i }}{% endfor %}"
         "{% endfor %}"),
        "{{ raise_exception('not today') }}"};
    static const char *const params[] = {"chat_template", "chat_template", "chat_template"};
    for (size_t i = 0; i < 3; i++) {
        answer = ask(CHAT_PATH, with_template(bad[i]), 400);
        json_t *error = json_object_get(answer, "error");
        assert_string_equal(json_string_value(json_object_get(error, "param")), params[i]);
        assert_non_null(strstr(json_string_value(json_object_get(error, "message")), "line 1"));
        json_decref(answer);
    }
    json_decref(ask(CHAT_PATH, chat_body(cluster.model, "Why?", 4), 200)); /* the model's own */
    cluster_stop(&cluster);
}

static void test_a_budget_is_refused_where_nothing_marks_thinking(void **state)
{
    json_t *error = ask(CHAT_PATH, chat_with("thinking_token_budget", json_integer(5)), 400);
    (void)state;
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(error, "error"), "param")),
        "thinking_token_budget");
    json_decref(error);
    json_decref(ask(CHAT_PATH, chat_with("thinking_token_budget", json_integer(-1)), 200));
}

static void test_ids_of_clients_are_labels(void **state)
{
    json_t *answer = ask(CHAT_PATH, chat_with("request_id", json_string("my-turn.7")), 200);
    (void)state;
    assert_string_equal(json_string_value(json_object_get(answer, "id")), "chatcmpl-my-turn.7");
    json_decref(answer);
    answer = ask(CHAT_PATH, chat_with("request_id", json_string("a\"b")), 200);
    assert_null(strstr(json_string_value(json_object_get(answer, "id")), "\""));
    json_decref(answer);
}

static void test_the_cluster_stops_and_leaves_nothing(void **state)
{
    (void)state;
    cluster_stop(&cluster);
}

static int teardown(void **state)
{
    (void)state;
    cluster_abort(&cluster);
    return 0;
}

int main(void)
{
    const struct CMUnitTest alone[] = {
        cmocka_unit_test(test_a_prompt_s_logprobs_are_those_of_the_steps_that_wrote_it),
        cmocka_unit_test(test_thinking_ends_when_its_budget_is_spent),
        cmocka_unit_test(test_a_trusted_template_of_a_client_makes_the_prompt),
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_changes_for_those_beside_a_scored_prompt),
        cmocka_unit_test(test_rules_about_tokens_are_obeyed),
        cmocka_unit_test(test_b14_a_prompt_is_scored_without_a_token_more),
        cmocka_unit_test(test_a_chat_has_its_ids_and_scores_beside_the_choices),
        cmocka_unit_test(test_a_stream_s_ids_are_those_of_the_whole_answer),
        cmocka_unit_test(test_a_prompt_is_cut_to_its_last_tokens),
        cmocka_unit_test(test_a_chat_that_goes_on_can_begin_with_what_it_goes_on_from),
        cmocka_unit_test(test_the_best_of_several_are_given_out),
        cmocka_unit_test(test_as_many_answers_as_openai_gives),
        cmocka_unit_test(test_a_chat_s_prompt_is_shown_as_the_template_wrote_it),
        cmocka_unit_test(test_named_tokens_have_their_log_probabilities),
        cmocka_unit_test(test_an_answer_that_repeats_itself_ends),
        cmocka_unit_test(test_a_budget_is_refused_where_nothing_marks_thinking),
        cmocka_unit_test(test_ids_of_clients_are_labels),
        cmocka_unit_test(test_the_cluster_stops_and_leaves_nothing),
    };
    e2e_begin();
    (void)e2e_smollm2();
    int failed = cmocka_run_group_tests(alone, NULL, teardown);
    failed += cmocka_run_group_tests(tests, start, teardown);
    return e2e_finish(failed);
}
