/* request_json.c: every field good, of the wrong type, out of range; what fields do together. */
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "router/api/request_json.h"

#define CHAT_MESSAGES "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"

struct parsed {
    struct arena arena;
    struct api_request request;
    struct api_error error;
    int r;
};

static struct parsed parse(enum api_kind kind, const char *body)
{
    struct parsed parsed;
    memset(&parsed, 0, sizeof(parsed));
    arena_init(&parsed.arena, 1 << 20);
    parsed.r =
        request_json_parse(kind, body, strlen(body), &parsed.arena, &parsed.request, &parsed.error);
    return parsed;
}

static void done(struct parsed *parsed)
{
    api_request_done(&parsed->request);
    arena_done(&parsed->arena);
}

/* A chat with one more member. */
static struct parsed chat(const char *member)
{
    char body[1024];
    (void)snprintf(body, sizeof(body), "{" CHAT_MESSAGES "%s%s}", member[0] ? "," : "", member);
    return parse(API_CHAT, body);
}

static void accept(const char *member)
{
    struct parsed parsed = chat(member);
    if (parsed.r < 0)
        print_message("%s: %s\n", member, parsed.error.message);
    assert_int_equal(parsed.r, 0);
    done(&parsed);
}

/* 400 that names `param` and has `words` in its sentence. */
static void refuse(const char *member, const char *param, const char *words)
{
    struct parsed parsed = chat(member);
    if (parsed.r == 0 || strcmp(parsed.error.param, param) != 0 ||
        !strstr(parsed.error.message, words))
        print_message("%s: '%s' %s\n", member, parsed.error.param, parsed.error.message);
    assert_true(parsed.r < 0);
    assert_int_equal(parsed.error.status, 400);
    assert_string_equal(parsed.error.param, param);
    assert_non_null(strstr(parsed.error.message, words));
    done(&parsed);
}

#define ONE_TOOL "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]"

static void test_fields_of_the_right_type_and_range_are_taken(void **state)
{
    static const char *const members[] = {
        "",
        "\"temperature\":0",
        "\"temperature\":1.5",
        "\"top_p\":1",
        "\"top_p\":1e-9",
        "\"min_p\":0",
        "\"min_p\":1",
        "\"top_k\":-1",
        "\"top_k\":0",
        "\"top_k\":40",
        "\"seed\":-1",
        "\"seed\":9223372036854775807",
        "\"repetition_penalty\":2",
        "\"presence_penalty\":-2",
        "\"frequency_penalty\":2",
        "\"max_tokens\":1",
        "\"max_tokens\":16.0",
        "\"max_completion_tokens\":7",
        "\"min_tokens\":0",
        "\"stop\":\"x\"",
        "\"stop\":[]",
        "\"stop\":[\"a\",\"\\n\"]",
        "\"stop_token_ids\":[1,2]",
        "\"ignore_eos\":true",
        "\"include_stop_str_in_output\":true",
        "\"skip_special_tokens\":false",
        "\"logprobs\":true",
        "\"logprobs\":false,\"top_logprobs\":0",
        "\"n\":128",
        "\"stream\":false",
        ("\"stream\":true,\"stream_options\":{\"include_usage\":true,"
         "\"continuous_usage_stats\":true}"),
        "\"stream\":true,\"stream_options\":{}",
        "\"priority\":-5",
        "\"cache_salt\":\"tenant\"",
        "\"user\":\"me\"",
        "\"user\":17",
        "\"refrain\":{\"explain\":true}",
        "\"response_format\":{\"type\":\"text\"}",
        "\"tool_choice\":\"none\"",
        "\"tool_choice\":\"auto\"",
        "\"tool_choice\":\"required\"," ONE_TOOL,
        "\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"f\"}}," ONE_TOOL,
        "\"parallel_tool_calls\":false",
        "\"include_reasoning\":false",
        "\"functions\":[]",
        "\"tools\":[]",
        "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{}}}]",
        "\"logit_bias\":{}",
        "\"best_of\":1",
        "\"chat_template_kwargs\":{\"enable_thinking\":false}",
        "\"something_else\":[[[1]]]",
        "\"continue_final_message\":true,\"add_generation_prompt\":false",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++)
        accept(members[i]);
}

static void test_turn_memory_is_on_unless_a_client_says_no(void **state)
{
    struct parsed p = chat("\"refrain\":{\"turn_memory\":null}");
    (void)state;
    assert_true(p.r == 0 && p.request.turn_memory);
    done(&p);
    p = chat("\"refrain\":{\"turn_memory\":\"no\"}");
    assert_true(p.r < 0);
    assert_string_equal(p.error.param, "refrain.turn_memory");
    done(&p);
}

static void test_null_is_absent_for_every_optional_field(void **state)
{
    (void)state;
    accept("\"temperature\":null,\"top_p\":null,\"n\":null,\"stop\":null,\"seed\":null,"
           "\"stream\":null,\"max_tokens\":null,\"tools\":null,\"response_format\":null,"
           "\"logit_bias\":null,\"user\":null,\"stream_options\":null,\"tool_choice\":null,"
           "\"logprobs\":null,\"top_logprobs\":null,\"model\":null,\"refrain\":null");
}

static void test_fields_of_the_wrong_type_name_themselves(void **state)
{
    static const struct {
        const char *member, *param, *words;
    } cases[] = {
        {"\"model\":5", "model", "an integer"},
        {"\"temperature\":\"NaN\"", "temperature", "a string"},
        {"\"temperature\":true", "temperature", "a boolean"},
        {"\"top_p\":[]", "top_p", "a list"},
        {"\"min_p\":{}", "min_p", "an object"},
        {"\"top_k\":1.5", "top_k", "an integer"},
        {"\"seed\":\"1\"", "seed", "an integer"},
        {"\"max_tokens\":\"5\"", "max_tokens", "an integer"},
        {"\"max_tokens\":5.5", "max_tokens", "an integer"},
        {"\"min_tokens\":false", "min_tokens", "an integer"},
        {"\"stop\":5", "stop", "an integer"},
        {"\"stop\":[5]", "stop", "an integer"},
        {"\"stop_token_ids\":\"1\"", "stop_token_ids", "a list"},
        {"\"stop_token_ids\":[-1]", "stop_token_ids", "entry 0"},
        {"\"ignore_eos\":1", "ignore_eos", "true or false"},
        {"\"logprobs\":5", "logprobs", "top_logprobs"},
        {"\"top_logprobs\":true", "top_logprobs", "an integer"},
        {"\"n\":\"2\"", "n", "an integer"},
        {"\"stream\":\"yes\"", "stream", "true or false"},
        {"\"stream\":true,\"stream_options\":[]", "stream_options", "an object"},
        {"\"stream\":true,\"stream_options\":{\"include_usage\":1}", "stream_options.include_usage",
         "true or false"},
        {"\"priority\":\"high\"", "priority", "an integer"},
        {"\"cache_salt\":7", "cache_salt", "a string"},
        {"\"cache_salt\":\"a\\u0000b\"", "cache_salt", "NUL"},
        {"\"refrain\":true", "refrain", "an object"},
        {"\"response_format\":\"json\"", "response_format", "type"},
        {"\"tools\":{}", "tools", "a list"},
        {"\"tools\":[5]", "tools[0]", "function"},
        {"\"tools\":[{\"type\":\"function\"}]", "tools[0]", "name"},
        {"\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"\"}}]", "tools[0]",
         "has 0 bytes"},
        {"\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":[]}}]",
         "tools[0]", "must be an object"},
        {"\"tool_choice\":5", "tool_choice", "auto"},
        {"\"tool_choice\":\"always\"", "tool_choice", "auto"},
        {"\"tool_choice\":{\"type\":\"function\"}", "tool_choice", "name"},
        {"\"parallel_tool_calls\":1", "parallel_tool_calls", "true or false"},
        {"\"functions\":[{\"name\":\"f\"}]", "functions", "use 'tools'"},
        {"\"function_call\":\"auto\"", "function_call", "use 'tool_choice'"},
        {"\"chat_template_kwargs\":[]", "chat_template_kwargs", "an object"},
        {"\"documents\":{}", "documents", "a list"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        refuse(cases[i].member, cases[i].param, cases[i].words);
}

static void test_numbers_out_of_range_are_told_with_their_bounds(void **state)
{
    (void)state;
    refuse("\"temperature\":-0.5", "temperature", "is -0.5; it must be at least 0");
    refuse("\"top_p\":0", "top_p", "is 0; it must be above 0 and at most 1");
    refuse("\"top_p\":1.01", "top_p", "at most 1");
    refuse("\"min_p\":-0.1", "min_p", "at least 0");
    refuse("\"top_k\":-2", "top_k", "is -2; it must be at least -1");
    refuse("\"repetition_penalty\":0", "repetition_penalty", "at least 0.01 and at most 2");
    refuse("\"presence_penalty\":2.5", "presence_penalty", "at most 2");
    refuse("\"frequency_penalty\":-3", "frequency_penalty", "at least -2");
    refuse("\"max_tokens\":0", "max_tokens", "is 0; it must be at least 1");
    refuse("\"max_tokens\":-5", "max_tokens", "is -5");
    refuse("\"max_tokens\":1e18", "max_tokens", "at most 16777216");
    refuse("\"max_tokens\":9223372036854775807", "max_tokens", "at most 16777216");
    refuse("\"n\":0", "n", "at least 1");
    refuse("\"n\":129", "n", "at most 128");
    refuse("\"logprobs\":true,\"top_logprobs\":21", "top_logprobs", "at most 20");
    refuse("\"top_logprobs\":3", "top_logprobs", "needs 'logprobs'");
    refuse("\"stop\":\"\"", "stop", "empty");
    refuse("\"stop\":[\"a\",\"\"]", "stop", "empty");
    refuse("\"stop\":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]", "stop", "17 strings");
    refuse("\"priority\":2147483648", "priority", "2147483647");
    refuse("\"min_tokens\":9,\"max_tokens\":8", "min_tokens", "is 9, more than 'max_tokens' 8");
}

static void test_fields_that_we_lack_are_refused_by_name(void **state)
{
    static const char *const names[] = {"suffix", "audio", "prompt_embeds"};
    char member[128];
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        (void)snprintf(member, sizeof(member), "\"%s\":{\"1\":2}", names[i]);
        refuse(member, names[i], "not supported");
    }
    refuse("\"web_search_options\":{}", "web_search_options", "answers text");
    refuse("\"modalities\":[\"text\",\"audio\"]", "modalities", "answers text");
    refuse("\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a b\"}}]", "tools[0]",
           "digits");
    refuse("\"tool_choice\":\"required\"", "tool_choice", "no 'tools'");
    refuse("\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"g\"}}," ONE_TOOL,
           "tool_choice", "'g', which is not in 'tools'");
    refuse("\"stream_options\":{\"include_usage\":true}", "stream_options", "needs 'stream'");
    refuse("\"continue_final_message\":true,\"add_generation_prompt\":true",
           "continue_final_message", "exclude");
    refuse("\"chat_template_kwargs\":{\"chat_template\":5}", "chat_template_kwargs",
           "must be a string");
    refuse("\"chat_template\":{}", "chat_template", "must be a string");
}

static void test_bodies_that_are_no_request_are_refused(void **state)
{
    static const char *const bodies[] = {
        "",
        "{",
        "[]",
        "null",
        "5",
        "{\"messages\":\"hi\"}",
        "{\"messages\":[null]}",
        "{\"messages\":[{\"content\":\"no role\"}]}",
        "{\"messages\":[]}",
        "{}",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\\sb\"}]}",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\\ud83db\"}]}",
        "{" CHAT_MESSAGES ",\"temperature\":NaN}",
        "{" CHAT_MESSAGES ",\"top_p\":-Infinity}",
        "{" CHAT_MESSAGES ",\"temperature\":1e999}",
        "{" CHAT_MESSAGES ",\"seed\":9223372036854775808}",
        "{\"messages\":[{\"role\":\"wizard\",\"content\":\"x\"}]}",
        "{\"messages\":[{\"role\":\"user\"}]}",
        "{\"messages\":[{\"role\":\"user\",\"content\":5}]}",
        "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}"};
    (void)state;
    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
        struct parsed parsed = parse(API_CHAT, bodies[i]);
        if (parsed.r == 0)
            print_message("accepted: %s\n", bodies[i]);
        assert_true(parsed.r < 0);
        assert_int_equal(parsed.error.status, 400);
        assert_true(parsed.error.message[0] != '\0');
        done(&parsed);
    }
}

static void test_values_arrive_where_they_belong(void **state)
{
    struct parsed p =
        chat("\"model\":\"m\",\"temperature\":0.5,\"top_p\":0.25,\"min_p\":0.125,"
             "\"top_k\":40,\"seed\":-7,\"max_tokens\":5,\"max_completion_tokens\":6,"
             "\"min_tokens\":2,\"stop\":[\"ab\",\"c\"],\"stop_token_ids\":[9,8],"
             "\"logprobs\":true,\"top_logprobs\":4,\"n\":3,\"stream\":true,"
             "\"stream_options\":{\"include_usage\":true},\"priority\":-2,"
             "\"cache_salt\":\"s\",\"refrain\":{\"explain\":true,\"turn_memory\":false}");
    const struct api_request *q = &p.request;
    (void)state;
    assert_int_equal(p.r, 0);
    assert_string_equal(q->model, "m");
    assert_true(q->temperature == 0.5 && q->top_p == 0.25 && q->min_p == 0.125);
    assert_true(isnan(q->repetition_penalty));
    assert_int_equal(q->top_k, 40);
    assert_true(q->has_seed && q->seed == -7);
    assert_int_equal(q->tokens_max, 6); /* max_completion_tokens wins */
    assert_int_equal(q->tokens_min, 2);
    assert_int_equal(q->stop_count, 2);
    assert_string_equal(q->stop[0], "ab");
    assert_int_equal(q->stop_bytes[1], 1);
    assert_int_equal(q->stop_ids_count, 2);
    assert_int_equal(q->stop_ids[1], 8);
    assert_int_equal(q->logprobs, 5); /* the chosen one and four */
    assert_int_equal(q->n, 3);
    assert_true(q->stream && q->include_usage && !q->continuous_usage);
    assert_int_equal(q->priority, -2);
    assert_string_equal(q->cache_salt, "s");
    assert_true(q->explain && q->add_generation_prompt && q->skip_special_tokens);
    assert_false(q->add_special_tokens || q->ignore_eos || q->echo || q->turn_memory);
    done(&p);
}

static const char *content(const struct parsed *p, size_t i)
{
    return json_string_value(json_object_get(json_array_get(p->request.messages, i), "content"));
}

static void test_messages_are_made_uniform(void **state)
{
    struct parsed p = parse(
        API_CHAT,
        "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"one\"},"
        "{\"type\":\"text\",\"text\":\"two\"}]},"
        "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"a\",\"type\":"
        "\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"x\\\":1}\"}},"
        "{\"function\":{\"name\":\"g\",\"arguments\":\"null\"}},{\"function\":{\"name\":\"h\"}}]},"
        "{\"role\":\"tool\",\"tool_call_id\":\"a\",\"content\":\"22\"},"
        "{\"role\":\"assistant\",\"content\":\"b\",\"tool_calls\":[]},"
        "{\"role\":\"assistant\",\"content\":[],\"tool_calls\":null}]}");
    (void)state;
    assert_int_equal(p.r, 0);
    assert_int_equal(json_array_size(p.request.messages), 5);
    assert_string_equal(content(&p, 0), "one\ntwo");
    assert_string_equal(content(&p, 1), "");
    assert_string_equal(content(&p, 2), "22");
    assert_string_equal(content(&p, 4), "");
    const json_t *calls = json_object_get(json_array_get(p.request.messages, 1), "tool_calls");
    assert_int_equal(json_array_size(calls), 3);
    for (size_t i = 0; i < 3; i++) {
        const json_t *arguments =
            json_object_get(json_object_get(json_array_get(calls, i), "function"), "arguments");
        assert_true(json_is_object(arguments));
        assert_int_equal(json_object_size(arguments), i == 0 ? 1 : 0);
    }
    assert_null(json_object_get(json_array_get(p.request.messages, 3), "tool_calls"));
    assert_null(json_object_get(json_array_get(p.request.messages, 4), "tool_calls"));
    assert_non_null(json_object_get(json_array_get(p.request.messages, 2), "tool_call_id"));
    done(&p);
}

static void test_arguments_that_are_no_object_name_their_place(void **state)
{
    struct parsed p = parse(
        API_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\","
                  "\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":\"{bad\"}}]}]}");
    (void)state;
    assert_true(p.r < 0);
    assert_string_equal(p.error.param, "messages[1].tool_calls[0].function.arguments");
    done(&p);
}

static void test_prompts_come_in_four_shapes(void **state)
{
    struct parsed p = parse(API_COMPLETIONS, "{\"prompt\":\"one\",\"echo\":true}");
    (void)state;
    assert_int_equal(p.r, 0);
    assert_int_equal(p.request.prompts_count, 1);
    assert_string_equal(p.request.prompts[0].text, "one");
    assert_int_equal(p.request.tokens_max, 0); /* the request's default needs the model */
    assert_true(p.request.echo && p.request.add_special_tokens);
    done(&p);
    p = parse(API_COMPLETIONS, "{\"prompt\":[\"a\",\"bc\"],\"logprobs\":0}");
    assert_int_equal(p.r, 0);
    assert_int_equal(p.request.prompts_count, 2);
    assert_int_equal(p.request.prompts[1].bytes, 2);
    assert_int_equal(p.request.logprobs, 1); /* 0: the chosen token's alone */
    done(&p);
    p = parse(API_COMPLETIONS, "{\"prompt\":[5,6,7]}");
    assert_int_equal(p.r, 0);
    assert_int_equal(p.request.prompts_count, 1);
    assert_null(p.request.prompts[0].text);
    assert_int_equal(p.request.prompts[0].ids_count, 3);
    assert_int_equal(p.request.prompts[0].ids[2], 7);
    done(&p);
    p = parse(API_COMPLETIONS, "{\"prompt\":[[5],[6,7]],\"n\":2}");
    assert_int_equal(p.r, 0);
    assert_int_equal(p.request.prompts_count, 2);
    assert_int_equal(p.request.prompts[1].ids_count, 2);
    done(&p);
}

static void test_rules_about_tokens_are_read(void **state)
{
    struct parsed p =
        chat("\"logit_bias\":{\"7\":-100,\"49000\":0.5},\"allowed_token_ids\":[3,3.0],"
             "\"bad_words\":[\" \\t word\",\"two words\"]");
    const struct api_request *q = &p.request;
    (void)state;

    assert_int_equal(p.r, 0);
    assert_int_equal(q->bias_count, 2);
    assert_int_equal(q->bias_ids[0], 7);
    assert_true(q->bias_values[0] == -100 && q->bias_values[1] == 0.5f);
    assert_int_equal(q->bias_ids[1], 49000);
    assert_int_equal(q->allowed_count, 2);
    assert_int_equal(q->allowed_ids[1], 3);
    assert_int_equal(q->bad_words_count, 2);
    assert_memory_equal(q->bad_words[0].text, "word", 4);
    assert_int_equal(q->bad_words[0].bytes, 4);
    done(&p);
    refuse("\"logit_bias\":{\"7\":101}", "logit_bias",
           "of token 7 is 101; it must be at least -100");
    refuse("\"logit_bias\":{\"7\":\"1\"}", "logit_bias",
           "of token 7 must be a number, not a string");
    refuse("\"logit_bias\":{\"-7\":1}", "logit_bias", "key of entry 0 is no token id");
    refuse("\"logit_bias\":{\"a\":1}", "logit_bias", "key of entry 0 is no token id");
    refuse("\"logit_bias\":{\"4294967295\":1}", "logit_bias", "key of entry 0");
    refuse("\"logit_bias\":[1]", "logit_bias", "an object, not a list");
    refuse("\"allowed_token_ids\":[]", "allowed_token_ids", "empty");
    refuse("\"allowed_token_ids\":[1,-2]", "allowed_token_ids", "entry 1");
    refuse("\"bad_words\":[\"a\",\"\"]", "bad_words", "entry 1 has nothing but spaces");
    refuse("\"bad_words\":[\" \\n\"]", "bad_words", "entry 0 has nothing but spaces");
    refuse("\"bad_words\":[5]", "bad_words", "entry 0 is an integer");
    refuse("\"bad_words\":\"x\"", "bad_words", "a list, not a string");
}

static void test_prompt_logprobs_do_not_go_with_streams(void **state)
{
    static const struct {
        const char *member;
        uint32_t want;
    } rows[] = {
        {"\"prompt_logprobs\":0", 1},
        {"\"prompt_logprobs\":20", 21},
        {"\"prompt_logprobs\":0,\"stream\":true", 0}, /* as vLLM: taken, and nothing comes */
        {"\"prompt_logprobs\":null", 0}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct parsed p = chat(rows[i].member);
        assert_int_equal(p.r, 0);
        assert_int_equal(api_request_prompt_logprobs(&p.request), rows[i].want);
        done(&p);
    }
    refuse("\"prompt_logprobs\":-1", "prompt_logprobs", "is -1; it must be at least 0");
    refuse("\"prompt_logprobs\":21", "prompt_logprobs", "at most 20");
    refuse("\"prompt_logprobs\":1,\"stream\":true", "prompt_logprobs",
           "not available with 'stream'");
}

static void test_echoes_want_the_logprobs_of_what_they_echo(void **state)
{
    static const struct {
        const char *body;
        uint32_t want;
        bool score_only;
    } rows[] = {
        {"{\"prompt\":\"a\",\"echo\":true,\"logprobs\":3}", 4, false},
        {"{\"prompt\":\"a\",\"echo\":true,\"logprobs\":3,\"prompt_logprobs\":5}", 6, false},
        {"{\"prompt\":\"a\",\"echo\":true,\"logprobs\":0,\"max_tokens\":0}", 1, true},
        {"{\"prompt\":\"a\",\"echo\":true,\"max_tokens\":0}", 0, true},
        {"{\"prompt\":\"a\",\"echo\":false,\"logprobs\":3}", 0, false},
        {"{\"prompt\":\"a\",\"echo\":true,\"logprobs\":1,\"stream\":true}", 2, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct parsed p = parse(API_COMPLETIONS, rows[i].body);
        assert_int_equal(p.r, 0);
        assert_int_equal(api_request_prompt_logprobs(&p.request), rows[i].want);
        assert_int_equal(p.request.score_only, rows[i].score_only);
        done(&p);
    }
}

static void test_prompts_are_cut_as_the_client_says(void **state)
{
    struct parsed p = chat("\"truncate_prompt_tokens\":-1,\"truncation_side\":\"right\"");
    (void)state;
    assert_int_equal(p.r, 0);
    assert_int_equal(p.request.truncate, API_TRUNCATE_MODEL_MAX);
    assert_true(p.request.truncate_right);
    done(&p);
    refuse("\"truncate_prompt_tokens\":0", "truncate_prompt_tokens", "is 0; it must be -1");
    refuse("\"truncate_prompt_tokens\":-2", "truncate_prompt_tokens", "is -2");
    refuse("\"truncate_prompt_tokens\":1e12", "truncate_prompt_tokens", "16777216");
    refuse("\"truncation_side\":\"middle\"", "truncation_side", "left");
}

static void test_reasoning_effort_is_a_variable_of_the_template(void **state)
{
    static const struct {
        const char *member, *want;
    } rows[] = {{"\"reasoning_effort\":\"low\"", "low"},
                {"\"reasoning_effort\":\"low\",\"chat_template_kwargs\":null", "low"},
                {"\"reasoning_effort\":\"low\",\"chat_template_kwargs\":{\"a\":1}", "low"},
                {"\"reasoning_effort\":\"low\",\"chat_template_kwargs\":{\"reasoning_effort\":"
                 "\"high\"}",
                 "high"}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct parsed p = chat(rows[i].member);
        assert_int_equal(p.r, 0);
        assert_string_equal(
            json_string_value(json_object_get(p.request.kwargs, "reasoning_effort")), rows[i].want);
        done(&p);
    }
    refuse("\"reasoning_effort\":\"much\"", "reasoning_effort", "must be none");
    refuse("\"reasoning_effort\":3", "reasoning_effort", "must be none");
}

static void test_prompts_that_make_no_sense_are_refused(void **state)
{
    static const char *const bodies[] = {"{}",
                                         "{\"prompt\":[]}",
                                         "{\"prompt\":5}",
                                         "{\"prompt\":[[]]}",
                                         "{\"prompt\":[5,\"a\"]}",
                                         "{\"prompt\":[\"a\",5]}",
                                         "{\"prompt\":[-1]}",
                                         "{\"prompt\":[1.5]}",
                                         "{\"prompt\":{\"a\":1}}",
                                         "{\"prompt\":\"a\",\"suffix\":\"b\"}",
                                         "{\"prompt\":\"a\",\"max_tokens\":0}",
                                         ("{\"prompt\":\"a\",\"max_tokens\":0,\"echo\":true,"
                                          "\"min_tokens\":1}"),
                                         "{\"prompt\":\"a\",\"logprobs\":true}",
                                         "{\"prompt\":\"a\",\"prompt_embeds\":\"AA\"}"};
    (void)state;
    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
        struct parsed parsed = parse(API_COMPLETIONS, bodies[i]);
        if (parsed.r == 0)
            print_message("accepted: %s\n", bodies[i]);
        assert_true(parsed.r < 0);
        assert_int_equal(parsed.error.status, 400);
        assert_true(parsed.error.param[0] != '\0');
        done(&parsed);
    }
}

static void test_tokenize_takes_a_prompt_or_messages(void **state)
{
    struct parsed p = parse(API_TOKENIZE, "{\"prompt\":\"a\",\"return_token_strs\":true}");
    (void)state;
    assert_int_equal(p.r, 0);
    assert_true(p.request.add_special_tokens && p.request.return_token_strs);
    done(&p);
    p = parse(API_TOKENIZE, "{" CHAT_MESSAGES "}");
    assert_int_equal(p.r, 0);
    assert_false(p.request.add_special_tokens); /* the template writes BOS itself */
    done(&p);
    p = parse(API_TOKENIZE, "{" CHAT_MESSAGES ",\"prompt\":\"a\"}");
    assert_true(p.r < 0);
    done(&p);
    p = parse(API_TOKENIZE, "{}");
    assert_true(p.r < 0);
    done(&p);
    p = parse(API_DETOKENIZE, "{\"tokens\":[1,2]}");
    assert_int_equal(p.r, 0);
    assert_int_equal(p.request.prompts[0].ids_count, 2);
    done(&p);
    p = parse(API_DETOKENIZE, "{\"tokens\":\"x\"}");
    assert_true(p.r < 0);
    done(&p);
}

static void test_n_predict_is_max_tokens_where_that_is_absent(void **state)
{
    static const struct {
        const char *members;
        uint32_t tokens_max;
    } rows[] = {{"\"n_predict\":7", 7},
                {"\"n_predict\":-1", 0},
                {"\"n_predict\":7,\"max_tokens\":5", 5},
                {"\"n_predict\":-1,\"max_tokens\":5", 5}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct parsed parsed = chat(rows[i].members);
        assert_int_equal(parsed.r, 0);
        assert_int_equal(parsed.request.tokens_max, rows[i].tokens_max);
        done(&parsed);
    }
    refuse("\"n_predict\":0", "n_predict", "must be -1, or at least 1");
}

static void test_what_nobody_reads_is_not_kept(void **state)
{
    static const char *const read[] = {"messages", "max_tokens", "response_format", "session_id"};
    (void)state;
    struct parsed parsed = parse(
        API_CHAT,
        "{\"x\":[{},{}],\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"prompt\":[[1]],"
        "\"metadata\":{\"a\":[1]},\"max_tokens\":5,\"suffix\":\"\",\"tokens\":null,"
        "\"response_format\":{\"type\":\"text\"},\"session_id\":\"s\"}");
    assert_int_equal(parsed.r, 0);
    for (size_t i = 0; i < sizeof(read) / sizeof(read[0]); i++)
        assert_non_null(json_object_get(parsed.request.root, read[i]));
    assert_int_equal(json_object_size(parsed.request.root), sizeof(read) / sizeof(read[0]));
    assert_string_equal(parsed.request.session, "s");
    done(&parsed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fields_of_the_right_type_and_range_are_taken),
        cmocka_unit_test(test_turn_memory_is_on_unless_a_client_says_no),
        cmocka_unit_test(test_null_is_absent_for_every_optional_field),
        cmocka_unit_test(test_fields_of_the_wrong_type_name_themselves),
        cmocka_unit_test(test_numbers_out_of_range_are_told_with_their_bounds),
        cmocka_unit_test(test_fields_that_we_lack_are_refused_by_name),
        cmocka_unit_test(test_bodies_that_are_no_request_are_refused),
        cmocka_unit_test(test_values_arrive_where_they_belong),
        cmocka_unit_test(test_messages_are_made_uniform),
        cmocka_unit_test(test_arguments_that_are_no_object_name_their_place),
        cmocka_unit_test(test_prompts_come_in_four_shapes),
        cmocka_unit_test(test_rules_about_tokens_are_read),
        cmocka_unit_test(test_prompt_logprobs_do_not_go_with_streams),
        cmocka_unit_test(test_echoes_want_the_logprobs_of_what_they_echo),
        cmocka_unit_test(test_prompts_are_cut_as_the_client_says),
        cmocka_unit_test(test_reasoning_effort_is_a_variable_of_the_template),
        cmocka_unit_test(test_prompts_that_make_no_sense_are_refused),
        cmocka_unit_test(test_tokenize_takes_a_prompt_or_messages),
        cmocka_unit_test(test_n_predict_is_max_tokens_where_that_is_absent),
        cmocka_unit_test(test_what_nobody_reads_is_not_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
