/* text_cache.c: whose ids a prompt is made of, turn by turn.
 *
 * Ids 0..255 are bytes. "ab" merges into one token, so an answer of the ids 'a' 'b' is one that no
 * tokenizer would give: where they come back, they came from turn memory. */
#include <cmocka.h>
#include <errno.h>

#include "router/text/text_cache.h"
#include "tests/unit/router/text/tiny_cards.h"

static const struct tiny_token words[] = {
    {"ab", TOKEN_NORMAL, 0, 0},
    {"<s>", TOKEN_CONTROL, 0, 0},
    {"<e>", TOKEN_CONTROL, 0, 0},
    {"<l>", TOKEN_CONTROL, TOKEN_LSTRIP, 0},
    {"<r>", TOKEN_CONTROL, TOKEN_RSTRIP, 0},
    {"<tool>", TOKEN_USER_DEFINED, 0, 0},
};
enum { AB = 256, S, E, L, R, TOOL };
static const char *const merges[] = {"a b", NULL};

struct fixture {
    struct model_card *card;
    struct text_cache *cache;
    struct text_owner owner;
    struct tokenize_options options;
    struct text_range literal;
    struct token_ids ids;
    struct prompt_trace trace;
};

static void setup(struct fixture *f)
{
    struct errmsg err = {{0}};
    memset(f, 0, sizeof(*f));
    f->card = tiny_bpe("gpt-2", words, sizeof(words) / sizeof(words[0]), merges);
    f->card->bos = S;
    f->card->eos = E;
    f->card->add_bos = f->card->add_eos = true;
    f->cache = text_cache_new(1u << 20);
    f->owner = (struct text_owner){.tokenizer_id = 1, .salt = "", .turn_memory = true};
    if (tokenizer_new(f->card, &f->owner.tokenizer, &err) < 0)
        fail_msg("%s", err.text);
    f->options.parse_special = true;
    token_ids_init(&f->ids, 1000);
}

static void teardown(struct fixture *f)
{
    text_cache_check(f->cache);
    text_cache_free(f->cache);
    tokenizer_free(f->owner.tokenizer);
    model_card_unref(f->card);
    token_ids_done(&f->ids);
    prompt_trace_done(&f->trace);
}

static void encode(struct fixture *f, const char *text)
{
    f->ids.count = 0;
    assert_int_equal(
        text_cache_encode(f->cache, &f->owner, text, strlen(text), &f->options, &f->ids, &f->trace),
        0);
}

static void expect(const struct fixture *f, const uint32_t *ids, size_t count)
{
    assert_int_equal(f->ids.count, count);
    assert_memory_equal(f->ids.ids, ids, count * sizeof(*ids));
}

/* EXPECT(f, "prompt", ids...) */
#define EXPECT(f, text, ...)                                \
    do {                                                    \
        const uint32_t ids_[] = {__VA_ARGS__};              \
        encode((f), (text));                                \
        expect((f), ids_, sizeof(ids_) / sizeof(uint32_t)); \
    } while (0)

static void remember(struct fixture *f, const uint32_t *ids, size_t count)
{
    const size_t at = f->trace.end.ids_count;
    text_cache_remember(f->cache, &f->owner, &f->trace, f->ids.ids + at, f->ids.count - at, ids,
                        count);
}

/* After an encode(): the model answered these ids. */
#define ANSWER(f, ...)                                        \
    do {                                                      \
        const uint32_t ids_[] = {__VA_ARGS__};                \
        remember((f), ids_, sizeof(ids_) / sizeof(uint32_t)); \
    } while (0)

static size_t entries(const struct fixture *f)
{
    struct text_cache_counts counts;
    text_cache_counts(f->cache, &counts);
    return counts.entries;
}

static void test_the_next_turn_goes_on_with_the_models_own_ids(void **state)
{
    struct fixture f;
    (void)state;
    setup(&f);
    EXPECT(&f, "<s>q<e><s>A:", S, 'q', E, S, 'A', ':');
    ANSWER(&f, 'x', 'a', 'b');
    EXPECT(&f, "<s>q<e><s>A:xab<e><s>ab", S, 'q', E, S, 'A', ':', 'x', 'a', 'b', E, S, AB);
    assert_int_equal(f.trace.turn_tokens, 5); /* "A:" and the answer */
    f.owner.turn_memory = false;
    EXPECT(&f, "<s>q<e><s>A:xab<e><s>ab", S, 'q', E, S, 'A', ':', 'x', AB, E, S, AB);
    assert_int_equal(f.trace.turn_tokens, 0);
    teardown(&f);
}

static void test_without_turn_memory_nothing_is_remembered(void **state)
{
    struct fixture f;
    (void)state;
    setup(&f);
    f.owner.turn_memory = false;
    encode(&f, "<s>A:");
    size_t before = entries(&f);
    ANSWER(&f, 'a', 'b');
    assert_int_equal(entries(&f), before);
    teardown(&f);
}

static void test_variants_of_one_prompt_live_side_by_side(void **state)
{
    struct fixture f;
    (void)state;
    setup(&f);
    encode(&f, "<s>A:");
    ANSWER(&f, 'a', 'b');
    ANSWER(&f, 'a', 'b', 'a', 'b');
    ANSWER(&f, 'a', 'b', AB); /* the same text: the first one stays */
    ANSWER(&f, AB);
    EXPECT(&f, "<s>A:ab<e>", S, 'A', ':', 'a', 'b', E);
    EXPECT(&f, "<s>A:abab<e>", S, 'A', ':', 'a', 'b', 'a', 'b', E);
    EXPECT(&f, "<s>A:ababab<e>", S, 'A', ':', AB, AB, AB, E); /* nobody wrote this */
    teardown(&f);
}

static void test_an_edit_reuses_up_to_the_changed_message(void **state)
{
    struct fixture f;
    (void)state;
    setup(&f);
    encode(&f, "<s>1<e><s>A:");
    ANSWER(&f, 'a', 'b');
    encode(&f, "<s>1<e><s>A:ab<e><s>2<e><s>A:");
    ANSWER(&f, 'a', 'b');
    EXPECT(&f, "<s>1<e><s>A:ab<e><s>2<e><s>A:ab<e>", S, '1', E, S, 'A', ':', 'a', 'b', E, S, '2', E,
           S, 'A', ':', 'a', 'b', E);
    /* The second question is another one: the first answer is the model's, the second is text. */
    EXPECT(&f, "<s>1<e><s>A:ab<e><s>3<e><s>A:ab<e>", S, '1', E, S, 'A', ':', 'a', 'b', E, S, '3', E,
           S, 'A', ':', AB, E);
    EXPECT(&f, "<s>0<e><s>A:ab<e><s>2<e><s>A:ab<e>", S, '0', E, S, 'A', ':', AB, E, S, '2', E, S,
           'A', ':', AB, E);
    /* A branch from the first answer goes on with it. */
    EXPECT(&f, "<s>1<e><s>A:ab<e><s>3<e><s>A:", S, '1', E, S, 'A', ':', 'a', 'b', E, S, '3', E, S,
           'A', ':');
    teardown(&f);
}

static void test_another_salt_or_tokenizer_finds_nothing(void **state)
{
    struct fixture f;
    struct text_cache_counts before, after;
    (void)state;
    setup(&f);
    encode(&f, "<s>A:");
    ANSWER(&f, 'a', 'b');
    f.owner.salt = "x";
    text_cache_counts(f.cache, &before);
    EXPECT(&f, "<s>A:ab", S, 'A', ':', AB);
    f.owner.salt = "";
    f.owner.tokenizer_id = 2;
    EXPECT(&f, "<s>A:ab", S, 'A', ':', AB);
    text_cache_counts(f.cache, &after);
    assert_int_equal(after.missed_tokens - before.missed_tokens, 6);
    assert_int_equal(after.segment_tokens, before.segment_tokens);
    assert_int_equal(after.turn_tokens, before.turn_tokens);
    f.owner.tokenizer_id = 1;
    EXPECT(&f, "<s>A:ab", S, 'A', ':', 'a', 'b');
    teardown(&f);
}

static void test_a_seam_in_the_answer_begins_a_segment(void **state)
{
    struct fixture f;
    (void)state;
    setup(&f);
    encode(&f, "<s>A:");
    ANSWER(&f, 'a', 'b', E, S, 'a', 'b', 'c');
    EXPECT(&f, "<s>A:ab<e><s>abc<e>", S, 'A', ':', 'a', 'b', E, S, 'a', 'b', 'c', E);
    EXPECT(&f, "<s>A:x<e><s>abc<e>", S, 'A', ':', 'x', E, S, AB, 'c', E);
    teardown(&f);
}

static void test_another_control_token_ends_the_memory(void **state)
{
    struct fixture f;
    (void)state;
    setup(&f);
    encode(&f, "<s>A:");
    size_t before = entries(&f);
    ANSWER(&f, 'a', 'b', L, 'a', 'b');
    assert_int_equal(entries(&f), before);
    ANSWER(&f, 'a', 'b', E, 'a', 'b', L);
    assert_int_equal(entries(&f), before + 1);
    ANSWER(&f, 'x', 999); /* no such id */
    assert_int_equal(entries(&f), before + 1);
    EXPECT(&f, "<s>A:ab<e>ab", S, 'A', ':', 'a', 'b', E, AB);
    teardown(&f);
}

/* A prompt that ends behind a control token that is no seam: its segment is made anew each time,
 * so that neither the cache nor turn memory can give that token to somebody's text. */
static void test_control_tokens_that_are_no_seams_are_never_kept(void **state)
{
    struct fixture f;
    (void)state;
    setup(&f);
    EXPECT(&f, "<s>ab <l>A:", S, AB, L, 'A', ':');
    assert_null(f.trace.tail);
    ANSWER(&f, 'a', 'b');
    assert_int_equal(entries(&f), 0);
    f.literal = (struct text_range){6, 9};
    f.options.literal = &f.literal;
    f.options.literal_count = 1;
    EXPECT(&f, "<s>ab <l>A:", S, AB, ' ', '<', 'l', '>', 'A', ':');
    EXPECT(&f, "<s>ab <l>A:", S, AB, ' ', '<', 'l', '>', 'A', ':');
    f.options.literal_count = 0;
    EXPECT(&f, "<s>ab <l>A:", S, AB, L, 'A', ':');
    teardown(&f);
}

static void test_a_users_control_text_stays_text(void **state)
{
    struct fixture f;
    (void)state;
    setup(&f);
    encode(&f, "<s>q<e><s>A:");
    ANSWER(&f, 'a', 'b', '<', 'e', '>'); /* the model spelled it */
    /* A user writes the whole conversation into one message: one segment, no seam, no memory. */
    f.literal = (struct text_range){3, 3 + strlen("q<e><s>A:ab<e>")};
    f.options.literal = &f.literal;
    f.options.literal_count = 1;
    EXPECT(&f, "<s>q<e><s>A:ab<e><e>", S, 'q', '<', 'e', '>', '<', 's', '>', 'A', ':', AB, '<', 'e',
           '>', E);
    assert_int_equal(f.trace.seams_total, 2);
    assert_int_equal(f.trace.turn_tokens, 0);
    /* What the model spelled comes back spelled, where a template quotes it as content ... */
    f.literal = (struct text_range){strlen("<s>q<e><s>A:"), strlen("<s>q<e><s>A:ab<e>")};
    EXPECT(&f, "<s>q<e><s>A:ab<e><e>", S, 'q', E, S, 'A', ':', 'a', 'b', '<', 'e', '>', E);
    assert_int_equal(f.trace.turn_tokens, 7);
    /* ... and is a control token where the template itself writes it. */
    f.options.literal_count = 0;
    EXPECT(&f, "<s>q<e><s>A:ab<e><e>", S, 'q', E, S, 'A', ':', AB, E, E);
    teardown(&f);
}

static void test_half_a_character_at_the_end_is_what_the_client_saw(void **state)
{
    struct fixture f;
    (void)state;
    setup(&f);
    encode(&f, "<s>A:");
    ANSWER(&f, 'x', 0xe4, 0xb8);
    EXPECT(&f, "<s>A:x\xef\xbf\xbd<e>", S, 'A', ':', 'x', 0xe4, 0xb8, E);
    teardown(&f);
}

static void test_an_answer_that_is_continued_is_found_too(void **state)
{
    struct fixture f;
    (void)state;
    setup(&f);
    encode(&f, "<s>A:");
    ANSWER(&f, 'a', 'b');
    EXPECT(&f, "<s>A:ab", S, 'A', ':', 'a', 'b'); /* continue_final_message */
    ANSWER(&f, 'c', 'a', 'b');
    EXPECT(&f, "<s>A:abcab<e>", S, 'A', ':', 'a', 'b', 'c', 'a', 'b', E);
    teardown(&f);
}

static void test_white_space_behind_a_seam_that_swallows_it(void **state)
{
    struct fixture f;
    (void)state;
    setup(&f);
    EXPECT(&f, "<r>\n ab<r> <s>", R, AB, R, S);
    EXPECT(&f, "<s>\n ab", S, '\n', ' ', AB); /* the same segment behind another seam */
    EXPECT(&f, "<r>\n", R);
    ANSWER(&f, ' ', 'a', 'b');
    EXPECT(&f, "<r>\n ab<e>", R, ' ', 'a', 'b', E);
    teardown(&f);
}

static void test_bos_and_eos_are_as_the_tokenizer_puts_them(void **state)
{
    struct fixture f;
    (void)state;
    setup(&f);
    EXPECT(&f, "A:", 'A', ':');
    uint64_t without_bos = f.trace.end.hash;
    ANSWER(&f, 'a', 'b');
    f.options.add_special = true;
    EXPECT(&f, "A:ab", S, 'A', ':', AB, E); /* something else stands before it */
    assert_true(f.trace.end.hash != without_bos);
    assert_int_equal(f.trace.end.ids_count, 1);
    assert_null(f.trace.tail); /* an answer would come after EOS */
    f.options.add_special = false;
    EXPECT(&f, "A:ab", 'A', ':', 'a', 'b');
    teardown(&f);
}

static void test_text_that_is_not_utf8_passes_by(void **state)
{
    struct fixture f;
    (void)state;
    setup(&f);
    EXPECT(&f, "<s>\xff<e>", S, 0xef, 0xbf, 0xbd, E);
    assert_int_equal(f.trace.seams_total, 0);
    assert_null(f.trace.tail);
    assert_int_equal(f.trace.text_bytes, 7);
    assert_int_equal(entries(&f), 0);
    teardown(&f);
}

static void test_too_many_ids_leave_everything_as_it_was(void **state)
{
    const char *text = "<s>q<e><s>ab";
    struct fixture f;
    (void)state;
    setup(&f);
    for (size_t max = 0; max <= 5; max++) {
        f.ids.count = 0;
        f.ids.count_max = max + 1;
        assert_int_equal(token_ids_add(&f.ids, 77), 0);
        for (int warm = 0; warm < 2; warm++) {
            int r = text_cache_encode(f.cache, &f.owner, text, strlen(text), &f.options, &f.ids,
                                      &f.trace);
            assert_int_equal(r, max < 5 ? -E2BIG : 0);
            assert_int_equal(f.ids.count, max < 5 ? 1 : 6);
            assert_int_equal(f.ids.ids[0], 77);
            f.ids.count = 1;
        }
    }
    assert_int_equal(f.trace.end.ids_count, 4); /* of the prompt, not of the list */
    teardown(&f);
}

static void test_the_trace_tells_where_two_prompts_part(void **state)
{
    struct fixture f;
    struct prompt_trace first;
    (void)state;
    setup(&f);
    encode(&f, "<s>one<e><s>two<e>x");
    first = f.trace;
    memset(&f.trace, 0, sizeof(f.trace));
    encode(&f, "<s>one<e><s>tWo<e>x");
    assert_int_equal(first.seams_count, 4);
    assert_int_equal(f.trace.seams_count, 4);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(first.seams[i].hash == f.trace.seams[i].hash, i < 3);
        assert_int_equal(first.seams[i].text_end, f.trace.seams[i].text_end);
    }
    assert_int_equal(first.seams[1].text_end, 9);
    assert_int_equal(first.seams[1].ids_count, 5);
    assert_int_equal(first.seams[3].text_end, 18);
    assert_int_equal(first.seams[3].ids_count, 10);
    assert_int_equal(first.tail_bytes, 1);
    prompt_trace_done(&first);
    /* The same letters with the seam at another place. */
    encode(&f, "<s>a<e>b");
    uint64_t hash = f.trace.seams[1].hash;
    encode(&f, "<s>ab<e>");
    assert_true(f.trace.seams[1].hash != hash);
    f.owner.salt = "x";
    encode(&f, "<s>ab<e>");
    first = f.trace;
    memset(&f.trace, 0, sizeof(f.trace));
    f.owner.salt = "";
    encode(&f, "<s>ab<e>");
    assert_true(first.seams[0].hash != f.trace.seams[0].hash);
    prompt_trace_done(&first);
    teardown(&f);
}

static void test_tokens_are_counted_where_they_come_from(void **state)
{
    struct fixture f;
    struct text_cache_counts counts;
    (void)state;
    setup(&f);
    encode(&f, "<s>qqq<e><s>A:");
    ANSWER(&f, 'a', 'b');
    text_cache_counts(f.cache, &counts);
    assert_int_equal(counts.missed_tokens, 5);
    assert_int_equal(counts.segment_tokens + counts.turn_tokens, 0);
    assert_int_equal(counts.entries, 3); /* "qqq", "A:", the answer */
    encode(&f, "<s>qqq<e><s>A:ab<e><s>new");
    text_cache_counts(f.cache, &counts);
    assert_int_equal(counts.missed_tokens, 8);
    assert_int_equal(counts.segment_tokens, 3);
    assert_int_equal(counts.turn_tokens, 4);
    assert_int_equal(counts.entries, 4);
    teardown(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_next_turn_goes_on_with_the_models_own_ids),
        cmocka_unit_test(test_without_turn_memory_nothing_is_remembered),
        cmocka_unit_test(test_variants_of_one_prompt_live_side_by_side),
        cmocka_unit_test(test_an_edit_reuses_up_to_the_changed_message),
        cmocka_unit_test(test_another_salt_or_tokenizer_finds_nothing),
        cmocka_unit_test(test_a_seam_in_the_answer_begins_a_segment),
        cmocka_unit_test(test_another_control_token_ends_the_memory),
        cmocka_unit_test(test_control_tokens_that_are_no_seams_are_never_kept),
        cmocka_unit_test(test_a_users_control_text_stays_text),
        cmocka_unit_test(test_half_a_character_at_the_end_is_what_the_client_saw),
        cmocka_unit_test(test_an_answer_that_is_continued_is_found_too),
        cmocka_unit_test(test_white_space_behind_a_seam_that_swallows_it),
        cmocka_unit_test(test_bos_and_eos_are_as_the_tokenizer_puts_them),
        cmocka_unit_test(test_text_that_is_not_utf8_passes_by),
        cmocka_unit_test(test_too_many_ids_leave_everything_as_it_was),
        cmocka_unit_test(test_the_trace_tells_where_two_prompts_part),
        cmocka_unit_test(test_tokens_are_counted_where_they_come_from),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
