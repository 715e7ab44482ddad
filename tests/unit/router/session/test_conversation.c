/* test_conversation.c - what counts as the same message, and whose call a result answers. */
#include <errno.h>

#include "talk.h"

static void test_roles_head_and_turns(void **state)
{
    struct talk t;
    (void)state;
    talk_init(&t, "ssuactau");
    const struct conversation *c = &t.conversation;
    assert_int_equal(c->count, 8);
    assert_int_equal(c->head, 2);
    assert_string_equal(c->head_text, "s0");
    assert_int_equal(c->messages[5].role, MESSAGE_TOOL);
    assert_int_equal(c->messages[5].call, 4);
    assert_int_equal(c->messages[4].call, CONVERSATION_NO_CALL);
    const bool turns[9] = {
        [3] = true, [6] = true, [8] = true}; /* not 4: a3 and c4 are one answer */
    for (uint32_t end = 0; end <= 8; end++)
        assert_int_equal(conversation_is_turn(c, end), turns[end]);
    talk_done(&t);
}

static void test_results_find_their_call_by_id_else_the_last_one(void **state)
{
    struct talk t;
    (void)state;
    talk_init(&t, "ucutcTtt"); /* T5 answers c1 by id */
    assert_int_equal(t.conversation.messages[3].call, 1);
    assert_int_equal(t.conversation.messages[5].call, 1);
    assert_int_equal(t.conversation.messages[6].call, 4);
    talk_done(&t);
    json_t *list = talk_list("uct");
    json_object_set_new(json_array_get(list, 2), "tool_call_id", json_string("nobody's"));
    talk_read(&t, list, 1);
    assert_int_equal(t.conversation.messages[2].call, 1);
    talk_done(&t);
    talk_init(&t, "ut"); /* no call at all */
    assert_int_equal(t.conversation.messages[1].call, CONVERSATION_NO_CALL);
    talk_done(&t);
}

static uint64_t hash_of(const char *text)
{
    struct talk t;
    json_error_t error;
    json_t *list = json_array();
    json_t *message = json_loads(text, 0, &error);
    assert_non_null(message);
    json_array_append_new(list, message);
    talk_read(&t, list, 1);
    uint64_t hash = t.conversation.messages[0].hash;
    talk_done(&t);
    return hash;
}

static void test_hash_ignores_order_and_nulls_and_nothing_else(void **state)
{
    uint64_t hash = hash_of("{\"role\":\"user\",\"content\":\"hi\"}");
    (void)state;
    assert_int_equal(hash, hash_of("{\"content\":\"hi\",\"role\":\"user\",\"tool_calls\":null}"));
    assert_int_not_equal(hash, hash_of("{\"role\":\"user\",\"content\":\"hi \"}"));
    assert_int_not_equal(hash, hash_of("{\"role\":\"assistant\",\"content\":\"hi\"}"));
    assert_int_not_equal(hash, hash_of("{\"role\":\"hi\",\"content\":\"user\"}"));
    assert_int_not_equal(hash, hash_of("{\"role\":\"user\",\"content\":\"hi\",\"name\":\"x\"}"));
}

static void test_chain_names_each_beginning_and_its_seed(void **state)
{
    struct talk a, b, other;
    (void)state;
    talk_init(&a, "sua");
    talk_init(&b, "suau");
    talk_read(&other, talk_list("sua"), 2);
    assert_int_equal(a.conversation.chain[3], b.conversation.chain[3]);
    assert_int_not_equal(b.conversation.chain[3], b.conversation.chain[4]);
    assert_int_not_equal(a.conversation.chain[3], other.conversation.chain[3]);
    assert_int_not_equal(a.conversation.first_hash, other.conversation.first_hash);
    assert_int_equal(a.conversation.system_hash, other.conversation.system_hash);
    talk_done(&a);
    talk_done(&b);
    talk_done(&other);
}

static void test_a_full_arena_is_said(void **state)
{
    struct conversation c;
    struct arena arena;
    json_t *list = talk_list("suasuasua");
    (void)state;
    arena_init(&arena, 64);
    assert_int_equal(conversation_read(list, NULL, 1, &arena, &c), -ENOMEM);
    arena_done(&arena);
    json_decref(list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_roles_head_and_turns),
        cmocka_unit_test(test_results_find_their_call_by_id_else_the_last_one),
        cmocka_unit_test(test_hash_ignores_order_and_nulls_and_nothing_else),
        cmocka_unit_test(test_chain_names_each_beginning_and_its_seed),
        cmocka_unit_test(test_a_full_arena_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
