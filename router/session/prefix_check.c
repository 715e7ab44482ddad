/* prefix_check.c - byte by byte, id by id, and the first difference named. */
#include "router/session/prefix_check.h"

#include <string.h>

#include "proto/base/json.h"

static size_t common_bytes(const struct prefix_turn *a, const struct prefix_turn *b)
{
    size_t end = a->text_bytes < b->text_bytes ? a->text_bytes : b->text_bytes, at = 0;

    while (at < end && a->text[at] == b->text[at])
        at++;
    return at;
}

static size_t common_tokens(const struct prefix_turn *a, const struct prefix_turn *b)
{
    size_t end = a->ids_count < b->ids_count ? a->ids_count : b->ids_count, at = 0;

    while (at < end && a->ids[at] == b->ids[at])
        at++;
    return at;
}

static bool is_role(const json_t *message, const char *role)
{
    const char *is = json_string_value(json_object_get(message, "role"));
    return is && strcmp(is, role) == 0;
}

static void check_answer(const struct prefix_turn *turn, const struct prefix_turn *next,
                         struct prefix_verdict *v)
{
    const json_t *answer = json_array_get(next->messages, json_array_size(turn->messages));
    const json_t *content = json_object_get(answer, "content");
    size_t bytes = json_string_length(content);

    v->has_answer = is_role(answer, "assistant") && bytes > 0; /* a call alone has no text */
    v->answer_stable =
        v->has_answer && v->text_stable && next->text_bytes - turn->text_bytes >= bytes &&
        memcmp(next->text + turn->text_bytes, json_string_value(content), bytes) == 0;
}

/* The texts part: whose fault is it? */
static enum miss_cause cause_of(const struct prefix_turn *turn, const struct prefix_turn *next)
{
    for (size_t i = 0; i < json_array_size(turn->messages); i++) {
        const json_t *message = json_array_get(turn->messages, i);
        if (json_equal(message, json_array_get(next->messages, i)))
            continue;
        return is_role(message, "system") || is_role(message, "developer") ? MISS_SYSTEM_CHANGED
                                                                           : MISS_MESSAGE_EDITED;
    }
    return MISS_TEMPLATE_UNSTABLE;
}

static size_t run_offset(const struct prefix_turn *turn, size_t offset)
{
    for (size_t i = 0; i < turn->spans_count; i++) {
        if (offset >= turn->spans[i].start && offset < turn->spans[i].end)
            return offset - turn->spans[i].start;
    }
    return 0;
}

static void name_place(const struct prefix_turn *turn, const struct prefix_turn *next,
                       struct prefix_verdict *v)
{
    const struct prefix_turn *where = v->common_bytes < next->text_bytes ? next : turn;

    v->place = place_find(where->spans, where->spans_count, v->common_bytes);
    v->text_offset = run_offset(where, v->common_bytes);
}

void prefix_compare(const struct prefix_turn *turn, const struct prefix_turn *next,
                    struct prefix_verdict *ret)
{
    struct prefix_verdict v = {.bytes = {turn->text_bytes, next->text_bytes},
                               .tokens = {turn->ids_count, next->ids_count},
                               .place = {.message = -1}};

    v.common_bytes = common_bytes(turn, next);
    v.common_tokens = common_tokens(turn, next);
    v.text_stable = v.common_bytes == turn->text_bytes;
    v.stable = v.text_stable && v.common_tokens == turn->ids_count;
    check_answer(turn, next, &v);
    if (!v.text_stable) {
        v.cause = cause_of(turn, next);
        name_place(turn, next, &v);
    } else if (!v.stable) {
        v.cause = MISS_RETOKENIZED;
    }
    *ret = v;
}

static void write_break(const struct prefix_verdict *v, struct buffer *out)
{
    buffer_append_text(out, ",\"breaks_at\":{");
    if (v->place.message >= 0)
        buffer_printf(out, "\"message\":%d,", v->place.message);
    if (v->place.field)
        buffer_printf(out, "\"field\":\"%s\",\"field_offset\":%zu,", v->place.field,
                      v->text_offset);
    buffer_printf(out, "\"text_offset\":%zu,\"token\":%zu},\"cause\":\"%s\"", v->common_bytes,
                  v->common_tokens, miss_words[v->cause]);
}

void prefix_write(const struct prefix_verdict *v, struct buffer *out)
{
    buffer_printf(out,
                  "\"stable\":%s,\"common_tokens\":%zu,\"tokens\":[%zu,%zu],\"common_bytes\":%zu,"
                  "\"bytes\":[%zu,%zu],\"answer_stable\":%s",
                  v->stable ? "true" : "false", v->common_tokens, v->tokens[0], v->tokens[1],
                  v->common_bytes, v->bytes[0], v->bytes[1],
                  !v->has_answer     ? "null"
                  : v->answer_stable ? "true"
                                     : "false");
    if (v->stable)
        buffer_append_text(out, ",\"breaks_at\":null,\"cause\":null");
    else
        write_break(v, out);
}

/* ---- what a template is asked ---- */

#define SYSTEM "{\"role\":\"system\",\"content\":\"You are a helpful assistant.\"},"
#define USER(text) "{\"role\":\"user\",\"content\":\"" text "\"}"
#define ANSWER(text) "{\"role\":\"assistant\",\"content\":\"" text "\"}"
#define WEATHER                                                                            \
    "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"description\":"      \
    "\"Weather of a city.\",\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":" \
    "{\"type\":\"string\",\"description\":\"Its name.\"}},\"required\":[\"city\"]}}}]"
#define CALL                                                                          \
    "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"abcdef123\"," \
    "\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"arguments\":"     \
    "{\"city\":\"Paris\"}}}]}"
#define RESULT                                                                             \
    "{\"role\":\"tool\",\"tool_call_id\":\"abcdef123\",\"name\":\"get_weather\",\"content" \
    "\":\"22 degrees\"}"
#define DAY_S 86400u

const struct prefix_probe prefix_probes[] = {
    {.name = "plain",
     .messages = "[" USER("Hello") "," ANSWER("Hi there.") "," USER("Who are you?") "," ANSWER(
         "An assistant.") "," USER("Thanks") "]",
     .turns = {1, 3, 5}},
    {.name = "system",
     .messages = "[" SYSTEM USER("Hello") "," ANSWER("Hi there.") "," USER(
         "Who are you?") "," ANSWER("An assistant.") "," USER("Thanks") "]",
     .turns = {2, 4, 6}},
    {.name = "white_space",
     .messages = "[" USER("Hello") "," ANSWER("  Hi there.\\n\\n") "," USER(
         "Who are you?") "," ANSWER("\\nAn assistant. ") "," USER("Thanks") "]",
     .turns = {1, 3, 5}},
    {.name = "thinking",
     .messages = "[" USER("1+1?") "," ANSWER("<think>\\nEasy sum.\\n</think>\\n\\n2") "," USER(
         "and +1?") "," ANSWER("<think>\\nTwo plus one.\\n</think>\\n\\n3") "," USER("Thanks") "]",
     .turns = {1, 3, 5}},
    {.name = "tools",
     .messages = "[" SYSTEM USER("Hello") "," ANSWER("Hi there.") "," USER(
         "How is the weather in Paris?") "," CALL "," RESULT
                                         "," ANSWER("22 degrees.") "," USER("Thanks") "]",
     .tools = WEATHER,
     .turns = {2, 4, 6, 8}},
    {.name = "date",
     .messages = "[" USER("Hello") "," ANSWER("Hi there.") "," USER("Thanks") "]",
     .turns = {1, 3},
     .later_s = DAY_S},
    {.name = NULL},
};
