/* test_chat_record.c - which record is found, and that all of them together stay bounded. */
#include "proto/base/mem.h"
#include "router/session/chat_record.h"
#include "talk.h"

struct kept {
    struct talk talk;
    struct chat_turn turn;
};

static void make(struct kept *k, const char *letters, uint64_t session, uint64_t salt)
{
    static const uint32_t ids[] = {1, 2, 3};
    talk_read(&k->talk, talk_list(letters), salt);
    k->turn = (struct chat_turn){.session = session,
                                 .salt = salt,
                                 .conversation = &k->talk.conversation,
                                 .first = k->talk.conversation.head,
                                 .text = "text",
                                 .text_bytes = 4,
                                 .ids = ids,
                                 .ids_count = 3};
}

/* Add the chat as answered by `group`. */
static void add(struct chat_records *records, const char *letters, uint64_t session, uint64_t salt,
                uint32_t group)
{
    const struct chat_answer answer = {.group = group, .text = ""};
    struct kept k;
    make(&k, letters, session, salt);
    chat_records_add(records, chat_record_new(&k.turn), &answer);
    chat_records_check(records);
    talk_done(&k.talk);
}

/* Group of the record that this chat follows; -1: none. */
static int find(struct chat_records *records, const char *letters, uint64_t session, uint64_t salt)
{
    struct kept k;
    make(&k, letters, session, salt);
    const struct chat_record *record = chat_records_find(records, &k.turn);
    talk_done(&k.talk);
    return record ? (int)record->group : -1;
}

static void test_find_prefers_the_session_then_the_longest_extended_then_the_most_alike(void **s)
{
    struct chat_records *records = chat_records_new(16);
    (void)s;
    add(records, "su", 0, 1, 10);
    add(records, "suau", 0, 1, 11);
    add(records, "suauau", 7, 1, 12);
    assert_int_equal(find(records, "suauauau", 0, 1), 12); /* extends all three */
    assert_int_equal(find(records, "suauct", 0, 1), 11);   /* parts after the second */
    assert_int_equal(find(records, "suct", 0, 1), 10);
    assert_int_equal(find(records, "su", 7, 1), 12);   /* its session says so */
    assert_int_equal(find(records, "ssu", 0, 1), -1);  /* u2 is another first message than u1 */
    assert_int_equal(find(records, "suau", 0, 2), -1); /* another tenant */
    assert_int_equal(find(records, "suau", 7, 2), 12); /* the same session with another salt */
    chat_records_free(records);
}

static void test_the_most_alike_is_found_by_its_first_user_message(void **s)
{
    struct chat_records *records = chat_records_new(16);
    struct kept k;
    (void)s;
    add(records, "auaucu", 0, 1, 1); /* a0 u1 a2 u3 */
    add(records, "suauau", 0, 1, 2);
    make(&k, "suaucu", 0, 1); /* s0 u1 a2 u3 c4 */
    const struct chat_record *record = chat_records_find(records, &k.turn);
    assert_int_equal(record->group, 2);
    assert_int_equal(chat_record_common(record, k.turn.conversation), 4);
    talk_done(&k.talk);
    chat_records_free(records);
}

static void test_the_same_turn_again_takes_the_place_of_the_first(void **s)
{
    struct chat_records *records = chat_records_new(16);
    (void)s;
    add(records, "su", 0, 1, 1);
    add(records, "su", 0, 1, 2);
    assert_int_equal(chat_records_count(records), 1);
    assert_int_equal(find(records, "suau", 0, 1), 2);
    chat_records_free(records);
}

static void test_the_oldest_goes_and_what_was_used_stays(void **s)
{
    struct chat_records *records = chat_records_new(4);
    (void)s;
    for (uint64_t i = 1; i <= 4; i++)
        add(records, "su", i, i, (uint32_t)i);
    assert_int_equal(find(records, "suau", 1, 1), 1); /* used: now the youngest */
    add(records, "su", 5, 5, 5);
    assert_int_equal(chat_records_count(records), 4);
    assert_int_equal(find(records, "suau", 1, 1), 1);
    assert_int_equal(find(records, "suau", 2, 2), -1);
    chat_records_free(records);
    records = chat_records_new(0);
    add(records, "su", 1, 1, 1);
    assert_int_equal(chat_records_count(records), 0);
    chat_records_free(records);
}

static void test_long_chats_are_bounded_and_an_edit_far_back_is_seen(void **s)
{
    struct chat_records *records = chat_records_new(8);
    char letters[2002];
    struct kept k;
    (void)s;
    for (size_t i = 0; i < 2001; i++)
        letters[i] = i % 2 ? 'a' : 'u';
    letters[2001] = '\0';
    for (uint64_t i = 1; i <= 8; i++)
        add(records, letters, i, i, 1);
    assert_true(chat_records_bytes(records) <= 8 * CHAT_RECORD_BYTES_MEAN);
    assert_in_range(chat_records_count(records), 1, 3); /* 12 KiB of hashes each */
    make(&k, letters, 8, 8);
    const struct chat_record *record = chat_records_find(records, &k.turn);
    assert_int_equal(chat_record_common(record, k.turn.conversation), 2001);
    talk_done(&k.talk);
    letters[1000] = 's';
    make(&k, letters, 8, 8);
    assert_int_equal(chat_record_common(record, k.turn.conversation), CHAT_RECORD_MESSAGES_MAX);
    talk_done(&k.talk);
    chat_records_free(records);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            test_find_prefers_the_session_then_the_longest_extended_then_the_most_alike),
        cmocka_unit_test(test_the_most_alike_is_found_by_its_first_user_message),
        cmocka_unit_test(test_the_same_turn_again_takes_the_place_of_the_first),
        cmocka_unit_test(test_the_oldest_goes_and_what_was_used_stays),
        cmocka_unit_test(test_long_chats_are_bounded_and_an_edit_far_back_is_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
