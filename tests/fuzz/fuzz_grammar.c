/* fuzz_grammar.c - any bytes as a grammar, and any bytes as an answer under it.
 *
 * Input: a byte of kind, two of length, the grammar's text, then the answer. Must hold: no crash; a
 * refusal has a sentence; a compiled grammar is bounded; where the mask says that a byte may come
 * the matcher takes it, and where not, not; an answer that can go on is never stuck. The vocabulary
 * is the 256 bytes and a few words. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "proto/grammar/machine.h"

#define GRAMMAR_BYTES_MAX ((size_t)32 << 20)
#define STEPS_MAX 24u /* every fourth is checked */

static const char *const words[] = {"\"}", "{\"", "aa", "ab", "true", "\xc3\xa9\"", "]}", ", \""};
#define WORDS (sizeof(words) / sizeof(words[0]))

static struct grammar_vocab *make_vocab(void)
{
    struct model_card *card = model_card_new();
    struct string_table_builder builder;
    uint8_t types[256 + WORDS];
    string_table_builder_init(&builder);
    for (unsigned i = 0; i < 256 + WORDS; i++) {
        char text[8];
        (void)snprintf(text, sizeof(text), "<0x%02X>", i & 0xff);
        const char *stored = i < 256 ? text : words[i - 256];
        types[i] = i < 256 ? TOKEN_BYTE : TOKEN_NORMAL;
        ASSERT(string_table_builder_add(&builder, stored, strlen(stored)) == 0);
    }
    string_table_builder_move(&builder, card, &card->tokens);
    model_card_set_types(card, types, NULL, NULL);
    card->tokenizer = TOKENIZER_SPM;
    card->vocab_size = card->tokens.count;
    struct grammar_vocab *vocab = grammar_vocab_new(card);
    model_card_unref(card);
    return vocab; /* made once, kept */
}

/* The mask against the matcher. False: too ambiguous. */
static bool check_mask(struct grammar_machine *machine, struct grammar_matcher *matcher)
{
    struct grammar_mask mask;
    uint64_t bits[5];
    bool any = false;
    int r = grammar_matcher_mask(matcher, &mask, NULL);
    if (r < 0) {
        ASSERT(r == -E2BIG);
        return false;
    }
    memcpy(bits, mask.bits, sizeof(bits));
    for (uint32_t id = 0; id < grammar_machine_vocab(machine)->count; id++) {
        struct grammar_matcher *copy = grammar_matcher_copy(matcher);
        r = grammar_matcher_take_token(copy, id);
        grammar_matcher_free(copy);
        if (r == -E2BIG)
            return false;
        ASSERT((r == 0) == ((bits[id / 64] >> id % 64 & 1) != 0));
        any |= r == 0;
    }
    ASSERT(any == mask.any && mask.complete == grammar_matcher_complete(matcher));
    return true;
}

static void answer(struct grammar_machine *machine, struct grammar *grammar, const uint8_t *data,
                   size_t size)
{
    struct grammar_matcher *matcher = NULL;
    struct errmsg err = {""};
    int r = grammar_matcher_new(machine, grammar, &matcher, &err);
    if (r < 0) {
        ASSERT(r == -E2BIG && err.text[0] != '\0');
        return;
    }
    for (size_t i = 0; i < STEPS_MAX; i++) {
        if ((i % 4 == 0 && !check_mask(machine, matcher)) || i == size)
            break;
        r = grammar_matcher_take(matcher, (const char *)data + i, 1);
        ASSERT(r == 0 || r == -EINVAL || r == -E2BIG);
        if (r < 0)
            break;
    }
    grammar_matcher_free(matcher);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct grammar_vocab *vocab;
    struct grammar_machine *machine = NULL;
    struct grammar *grammar = NULL;
    struct errmsg err = {""};
    if (vocab == NULL)
        vocab = make_vocab();
    if (size < 3)
        return 0;
    size_t bytes = (size_t)(data[1] | data[2] << 8) % (size - 2);
    char *text = mem_strndup((const char *)data + 3, bytes < size - 3 ? bytes : size - 3);
    bytes = bytes < size - 3 ? bytes : size - 3;
    const struct grammar_spec spec = {(enum grammar_kind)(data[0] % (GRAMMAR_KINDS + 1)), text,
                                      bytes};
    int r = grammar_compile(&spec, &grammar, &err);
    if (r < 0) {
        ASSERT(grammar == NULL && err.text[0] != '\0' && (r == -EINVAL || r == -E2BIG));
    } else {
        ASSERT(grammar_bytes(grammar) <= GRAMMAR_BYTES_MAX);
        ASSERT(grammar_machine_new(vocab, GRAMMAR_MACHINE_BYTES_MIN, &machine, NULL) == 0);
        answer(machine, grammar, data + 3 + bytes, size - 3 - bytes);
        grammar_machine_check(machine);
        grammar_machine_free(machine);
    }
    grammar_unref(grammar);
    mem_free(text);
    return 0;
}
