/* Masks over a real vocabulary: in random states every bit is what the matcher says about the bytes
 * of the token. */
#include <stdarg.h>

#include "proto/files/card_gguf.h"
#include "tests/golden/golden.h"
#include "tests/unit/proto/grammar/matching.h"

#define STATES 24u
#define MACHINE_BYTES ((size_t)64 << 20)

static struct grammar_vocab *vocab;
static struct grammar_machine *machine;

static const struct {
    enum grammar_kind kind;
    const char *text;
} grammars[] = {
    {GRAMMAR_JSON_OBJECT, ""},
    {GRAMMAR_JSON_SCHEMA,
     "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":90},\"n\":{"
     "\"type\":\"number\",\"minimum\":-1.5,\"maximum\":1e6},\"c\":{\"type\":\"array\",\"items\":{"
     "\"$ref\":\"#\"}}},\"required\":[\"name\",\"c\"],\"additionalProperties\":{\"type\":\"null\"}"
     "}"},
    {GRAMMAR_REGEX, "([A-Z][a-z]{1,30} ?){2,40}\xe2\x82\xac[^a-z]{3,90}"},
    {GRAMMAR_EBNF, "root ::= t ([-+*/] t)*\nt ::= [0-9]+ \" \"? | \"(\" root \")\""},
};

static void check_mask(struct grammar_matcher *matcher)
{
    struct grammar_mask mask;
    assert_int_equal(grammar_matcher_mask(matcher, &mask, NULL), 0);
    uint64_t *bits = mem_calloc((vocab->count + 63) / 64, sizeof(*bits));
    memcpy(bits, mask.bits, (vocab->count + 63) / 64 * sizeof(*bits));
    for (uint32_t id = 0; id < vocab->count; id++) {
        struct grammar_matcher *copy = grammar_matcher_copy(matcher);
        bool taken = grammar_matcher_take_token(copy, id) == 0;
        grammar_matcher_free(copy);
        if (taken != ((bits[id / 64] >> id % 64 & 1) != 0))
            fail_msg("token %u: matcher %d", id, taken);
    }
    mem_free(bits);
}

/* A random allowed token; false: none. */
static bool go_on(struct grammar_matcher *matcher, uint64_t random)
{
    struct grammar_mask mask;
    assert_int_equal(grammar_matcher_mask(matcher, &mask, NULL), 0);
    for (uint32_t i = 0; mask.any; i++) {
        uint32_t id = (uint32_t)((random + i) % vocab->count);
        if ((mask.bits[id / 64] >> id % 64 & 1) != 0)
            return grammar_matcher_take_token(matcher, id) == 0;
    }
    return false;
}

static void test_every_bit_is_what_the_matcher_says(void **state)
{
    uint64_t random = 88172645463325252ull;
    (void)state;
    for (size_t g = 0; g < sizeof(grammars) / sizeof(grammars[0]); g++) {
        struct grammar *grammar = compiled(grammars[g].kind, grammars[g].text);
        struct grammar_matcher *matcher = NULL;
        assert_int_equal(grammar_matcher_new(machine, grammar, &matcher, NULL), 0);
        check_mask(matcher);
        for (uint32_t i = 0; i < STATES; i++) {
            random ^= random << 13, random ^= random >> 7, random ^= random << 17;
            if (!go_on(matcher, random >> 8))
                break;
            check_mask(matcher);
        }
        grammar_matcher_free(matcher);
        grammar_unref(grammar);
        grammar_machine_check(machine);
    }
}

static struct gguf *open_model(void)
{
    struct gguf *gguf = NULL;
    if (gguf_open(model_path(SMOLLM2_FILE), &gguf, NULL) < 0)
        gguf = NULL;
    return gguf;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_bit_is_what_the_matcher_says),
    };
    struct model_card *card = model_card_new();
    struct gguf *gguf = open_model();
    if (gguf == NULL || card_words_from_gguf(gguf, card, NULL) < 0) {
        (void)fprintf(stderr, "skipped: no %s\n", SMOLLM2_FILE);
        return GOLDEN_SKIPPED;
    }
    gguf_close(gguf);
    card->vocab_size = card->tokens.count;
    vocab = grammar_vocab_new(card);
    model_card_unref(card);
    if (grammar_machine_new(vocab, MACHINE_BYTES, &machine, NULL) < 0)
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    grammar_machine_free(machine);
    grammar_vocab_free(vocab);
    return failed;
}
