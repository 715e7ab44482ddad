/* test_miss.c - each cause from two turns, found through the records as the router does.
 *
 * A turn here is rendered by a rule of three lines (head: tools; then "<letter>text|" per message)
 * and tokenized one id per byte, so offsets and counts can be worked out by hand. */
#include "proto/base/mem.h"
#include "router/session/miss.h"
#include "talk.h"

#define LONG                                                                                  \
    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456" \
    "789abcdef0123456789abcdef0123456789abcdef"

struct made {
    struct talk talk;
    struct chat_turn turn;
    struct buffer text;
    uint32_t *ids;
    struct text_span spans[64];
};

struct options {
    uint64_t session, salt;
    uint32_t first;      /* 0: the head */
    const char *tools;   /* NULL: none */
    const char *opening; /* the template's own text in front: a date */
    const char *closing; /* behind the last message: a mark that does not stay there */
    const char *drop;    /* what the template leaves out of an assistant's text */
    int id_shift_from;   /* ids from here on are others; 0: none */
};

static void add_span(struct made *m, const char *text, enum span_source source, int32_t message)
{
    uint32_t start = (uint32_t)m->text.bytes;
    buffer_append_text(&m->text, text);
    m->spans[m->turn.spans_count++] =
        (struct text_span){start, (uint32_t)m->text.bytes, source, message};
}

static void render(struct made *m, const struct options *options)
{
    buffer_init(&m->text, 1 << 20);
    buffer_append_text(&m->text, options->opening ? options->opening : "");
    if (options->tools)
        add_span(m, options->tools, SPAN_TOOLS, -1);
    for (uint32_t i = 0, shown = 0; i < m->talk.conversation.count; i++) {
        if (i >= m->talk.conversation.head && i < m->turn.first)
            continue;
        const json_t *message = json_array_get(m->talk.messages, i);
        const char *content = json_string_value(json_object_get(message, "content"));
        if (options->drop && m->talk.conversation.messages[i].role == MESSAGE_ASSISTANT &&
            strncmp(content, options->drop, strlen(options->drop)) == 0)
            content += strlen(options->drop);
        buffer_append_char(&m->text, '<');
        add_span(m, content, SPAN_CONTENT, (int32_t)shown++);
        buffer_append_char(&m->text, '|');
    }
    buffer_append_text(&m->text, options->closing ? options->closing : "");
    buffer_append_char(&m->text, '<');
}

static void make(struct made *m, const struct options *options, const char *const *contents)
{
    json_t *list = json_array();
    memset(m, 0, sizeof(*m));
    for (size_t i = 0; contents[i]; i++) /* "role-letter text" */
        json_array_append_new(list, json_pack("{s:s, s:s}", "role",
                                              contents[i][0] == 's'   ? "system"
                                              : contents[i][0] == 'u' ? "user"
                                                                      : "assistant",
                                              "content", contents[i] + 1));
    json_t *tools = options->tools ? json_string(options->tools) : NULL;
    arena_init(&m->talk.arena, 1 << 24);
    m->talk.messages = list;
    assert_int_equal(
        conversation_read(list, tools, options->salt + 1, &m->talk.arena, &m->talk.conversation),
        0);
    json_decref(tools);
    m->turn =
        (struct chat_turn){.session = options->session,
                           .salt = options->salt,
                           .conversation = &m->talk.conversation,
                           .first = options->first ? options->first : m->talk.conversation.head,
                           .spans = m->spans};
    render(m, options);
    m->ids = mem_calloc(m->text.bytes, sizeof(*m->ids));
    for (size_t i = 0; i < m->text.bytes; i++)
        m->ids[i] = (uint8_t)m->text.data[i] +
                    (options->id_shift_from && (int)i >= options->id_shift_from ? 1000 : 0);
    m->turn.text = m->text.data;
    m->turn.text_bytes = m->text.bytes;
    m->turn.ids = m->ids;
    m->turn.ids_count = m->text.bytes;
}

static void done(struct made *m)
{
    buffer_done(&m->text);
    mem_free(m->ids);
    talk_done(&m->talk);
}

/* The turn is answered with `text` by group 2. */
static void answer(struct chat_records *records, struct made *m, const char *text)
{
    uint32_t ids[256];
    size_t bytes = strlen(text);
    for (size_t i = 0; i < bytes; i++)
        ids[i] = (uint8_t)text[i];
    const struct chat_answer a = {.group = 2,
                                  .text = text,
                                  .text_bytes = bytes,
                                  .ids = ids,
                                  .ids_count = bytes - 1,
                                  .content_hash = conversation_hash_text(text, bytes)};
    chat_records_add(records, chat_record_new(&m->turn), &a);
    chat_records_check(records);
}

/* First turn `a` answered by "answer-1 LONG", then `b`; the worker reuses `cached` tokens at
 * `group`, UINT32_MAX: all that the record expects. */
static struct miss second(const struct options *a, const char *const *a_contents,
                          const struct options *b, const char *const *b_contents, uint32_t cached,
                          uint32_t group)
{
    struct chat_records *records = chat_records_new(16);
    struct made first, next;
    struct miss miss;
    make(&first, a, a_contents);
    miss_compare(chat_records_find(records, &first.turn), &first.turn, &miss);
    miss_settle(&miss, 0, 2);
    assert_int_equal(miss.cause, MISS_FIRST_TURN);
    answer(records, &first, "one " LONG);
    make(&next, b, b_contents);
    miss_compare(chat_records_find(records, &next.turn), &next.turn, &miss);
    miss_settle(&miss, cached == UINT32_MAX ? miss.expected_tokens : cached, group);
    done(&first);
    done(&next);
    chat_records_free(records);
    return miss;
}

static const struct options plain = {0};
#define ALL UINT32_MAX
static const char *const turn1[] = {"sYou are kind. " LONG, "uhello", NULL};
static const char *const turn2[] = {"sYou are kind. " LONG, "uhello", "aone " LONG, "umore", NULL};
/* Turn 1: "<" 14 + 128 "|" = 144, "<hello|<" 8 = 152 bytes, the answer 4 + 128 less its last. */
#define TURN1_TOKENS (152u + 131u)

static void test_none_when_all_was_reused_to_less_than_a_block(void **state)
{
    (void)state;
    struct miss miss = second(&plain, turn1, &plain, turn2, ALL, 2);
    assert_int_equal(miss.cause, MISS_NONE);
    assert_int_equal(miss.possible_tokens, TURN1_TOKENS);
    assert_int_equal(miss.expected_tokens, TURN1_TOKENS);
    miss = second(&plain, turn1, &plain, turn2, TURN1_TOKENS - 15, 2);
    assert_int_equal(miss.cause, MISS_NONE);
    miss = second(&plain, turn1, &plain, turn1, 151, 2); /* the same turn again */
    assert_int_equal(miss.cause, MISS_NONE);
}

static void test_evicted_and_other_worker_when_the_prompt_is_not_to_blame(void **state)
{
    (void)state;
    struct miss miss = second(&plain, turn1, &plain, turn2, TURN1_TOKENS - 16, 2);
    assert_int_equal(miss.cause, MISS_EVICTED);
    assert_int_equal(miss.reused_tokens, TURN1_TOKENS - 16);
    miss = second(&plain, turn1, &plain, turn2, 0, 1);
    assert_int_equal(miss.cause, MISS_OTHER_WORKER);
    assert_int_equal(miss.before_group, 2);
    assert_int_equal(second(&plain, turn1, &plain, turn2, ALL, 1).cause, MISS_NONE);
}

static void test_salt_changed_only_within_a_session(void **state)
{
    const struct options a = {.session = 5, .salt = 1}, b = {.session = 5, .salt = 2};
    const struct options c = {.salt = 1}, d = {.salt = 2};
    (void)state;
    assert_int_equal(second(&a, turn1, &b, turn2, 0, 2).cause, MISS_SALT_CHANGED);
    assert_int_equal(second(&c, turn1, &d, turn2, 0, 2).cause, MISS_FIRST_TURN);
}

static void test_tools_changed(void **state)
{
    const struct options a = {.tools = "[tool one]"}, b = {.tools = "[tool two]"};
    (void)state;
    struct miss miss = second(&a, turn1, &b, turn2, ALL, 2);
    assert_int_equal(miss.cause, MISS_TOOLS_CHANGED);
    assert_int_equal(miss.prompt_offset, 0); /* 6 to be exact, known to 64 */
}

static void test_b42_system_changed_says_the_byte(void **state)
{
    static const char *const a[] = {"sCurrent time is 15:09:20. You are a helpful assistant.",
                                    "uhi", NULL};
    static const char *const b[] = {"sCurrent time is 16:10:20. You are a helpful assistant.",
                                    "uhi", NULL};
    (void)state;
    struct miss miss = second(&plain, a, &plain, b, 0, 2);
    assert_int_equal(miss.cause, MISS_SYSTEM_CHANGED);
    assert_int_equal(miss.text_offset, 17); /* "Current time is 1" */
    assert_int_equal(miss.place.message, 0);
}

static void test_message_edited_says_which(void **state)
{
    static const char *const a[] = {"uone " LONG, "atwo " LONG, "uthree " LONG, NULL};
    static const char *const b[] = {"uone " LONG, "atwo! " LONG, "uthree " LONG, "ax", "uy", NULL};
    static const char *const c[] = {"sYou are kind. " LONG, "uhello", "aTwo " LONG, "umore", NULL};
    (void)state;
    struct miss miss = second(&plain, a, &plain, b, ALL, 2);
    assert_int_equal(miss.cause, MISS_MESSAGE_EDITED);
    assert_int_equal(miss.place.message, 1);
    assert_int_equal(miss.expected_tokens, 128);     /* 1 + 132 + 2 + 3: two blocks of 64 bytes */
    miss = second(&plain, turn1, &plain, c, ALL, 2); /* the answer came back changed */
    assert_int_equal(miss.cause, MISS_MESSAGE_EDITED);
    assert_int_equal(miss.place.message, 2);
}

static void test_history_cut(void **state)
{
    static const char *const a[] = {"sbe kind", "uone " LONG, "atwo " LONG, "uthree " LONG, NULL};
    static const char *const b[] = {"sbe kind",   "uone " LONG,  "atwo " LONG, "uthree " LONG,
                                    "aone " LONG, "ufour " LONG, NULL};
    const struct options cut = {.first = 3};
    (void)state;
    assert_int_equal(second(&plain, a, &cut, b, ALL, 2).cause, MISS_HISTORY_CUT);
    assert_int_equal(second(&cut, a, &cut, b, ALL, 2).cause, MISS_NONE);
}

static void test_template_unstable_says_where(void **state)
{
    const struct options monday = {.opening = "Mon|"}, tuesday = {.opening = "Tue|"};
    (void)state;
    struct miss miss = second(&monday, turn1, &tuesday, turn2, ALL, 2);
    assert_int_equal(miss.cause, MISS_TEMPLATE_UNSTABLE);
    assert_string_equal(miss.place.field, "template");
    assert_int_equal(miss.place.message, 0);
    assert_int_equal(miss.prompt_offset, 0);
    const struct options marked = {.closing = "(now)"};
    miss = second(&marked, turn1, &marked, turn2, ALL, 2); /* behind "hello", then behind "more" */
    assert_int_equal(miss.cause, MISS_TEMPLATE_UNSTABLE);
    assert_string_equal(miss.place.field, "template");
    assert_int_equal(miss.place.message, 2);
    const struct options thinking = {.drop = "one "};
    miss = second(&plain, turn1, &thinking, turn2, ALL, 2); /* the answer is written otherwise */
    assert_int_equal(miss.cause, MISS_TEMPLATE_UNSTABLE);
    assert_string_equal(miss.place.field, "content");
    assert_int_equal(miss.place.message, 2);
    assert_int_equal(miss.prompt_offset, 128);
}

static void test_retokenized_when_text_goes_on_and_ids_do_not(void **state)
{
    const struct options shifted = {.id_shift_from = 160};
    (void)state;
    struct miss miss = second(&plain, turn1, &shifted, turn2, ALL, 2);
    assert_int_equal(miss.cause, MISS_RETOKENIZED);
    assert_int_equal(miss.expected_tokens, 160);
}

static void test_json_names_cause_place_and_numbers(void **state)
{
    static const char *const c[] = {"sYou are kind. " LONG, "uhello", "aTwo " LONG, "umore", NULL};
    struct buffer out;
    (void)state;
    buffer_init(&out, 4096);
    struct miss miss = second(&plain, turn1, &plain, c, 144, 2);
    miss_write(&miss, "diverged", &out);
    assert_string_equal(out.data,
                        "{\"cause\":\"message_edited\",\"message\":2,\"field\":\"content\""
                        ",\"prompt_offset\":128,\"reused_tokens\":144,"
                        "\"possible_tokens\":283,\"worker\":\"diverged\",\"detail\":"
                        "\"message 2 is not what it was in the turn before\"}");
    buffer_clear(&out);
    miss.cause = MISS_NONE;
    miss_write(&miss, "", &out);
    assert_string_equal(out.data, "null");
    for (int cause = MISS_FIRST_TURN; cause < MISS_CAUSES; cause++) {
        buffer_clear(&out);
        miss.cause = (enum miss_cause)cause;
        miss_write(&miss, "", &out);
        json_t *object = json_loads(out.data, 0, NULL);
        assert_non_null(object);
        assert_string_equal(json_string_value(json_object_get(object, "cause")), miss_words[cause]);
        assert_true(json_string_length(json_object_get(object, "detail")) > 10);
        json_decref(object);
    }
    buffer_done(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_none_when_all_was_reused_to_less_than_a_block),
        cmocka_unit_test(test_evicted_and_other_worker_when_the_prompt_is_not_to_blame),
        cmocka_unit_test(test_salt_changed_only_within_a_session),
        cmocka_unit_test(test_tools_changed),
        cmocka_unit_test(test_b42_system_changed_says_the_byte),
        cmocka_unit_test(test_message_edited_says_which),
        cmocka_unit_test(test_history_cut),
        cmocka_unit_test(test_template_unstable_says_where),
        cmocka_unit_test(test_retokenized_when_text_goes_on_and_ids_do_not),
        cmocka_unit_test(test_json_names_cause_place_and_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
