/* matching.h - compile a grammar and ask whether it takes a text, byte by byte and by masks. */
#ifndef REFRAIN_TESTS_UNIT_PROTO_GRAMMAR_MATCHING_H
#define REFRAIN_TESTS_UNIT_PROTO_GRAMMAR_MATCHING_H

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "proto/grammar/machine.h"

#define MATCHING_BYTES ((size_t)8 << 20)

struct matching {
    struct model_card *card;
    struct grammar_vocab *vocab;
    struct grammar_machine *machine;
};

/* Ids 0..255 are the bytes as byte tokens, 256 is a control token "<end>", then `words`. */
static inline void matching_init(struct matching *m, const char *const *words)
{
    struct string_table_builder builder;
    uint8_t types[512];
    uint32_t count = 0;

    m->card = model_card_new();
    m->card->tokenizer = TOKENIZER_SPM;
    string_table_builder_init(&builder);
    for (; count < 256; count++) {
        char text[8];
        (void)snprintf(text, sizeof(text), "<0x%02X>", count);
        types[count] = TOKEN_BYTE;
        ASSERT(string_table_builder_add(&builder, text, 6) == 0);
    }
    types[count++] = TOKEN_CONTROL;
    ASSERT(string_table_builder_add(&builder, "<end>", 5) == 0);
    for (size_t i = 0; words != NULL && words[i] != NULL; i++) {
        ASSERT(count < 512);
        types[count++] = TOKEN_NORMAL;
        ASSERT(string_table_builder_add(&builder, words[i], strlen(words[i])) == 0);
    }
    string_table_builder_move(&builder, m->card, &m->card->tokens);
    model_card_set_types(m->card, types, NULL, NULL);
    m->card->vocab_size = m->card->tokens.count;
    m->vocab = grammar_vocab_new(m->card);
    ASSERT(grammar_machine_new(m->vocab, MATCHING_BYTES, &m->machine, NULL) == 0);
}

static inline void matching_done(struct matching *m)
{
    grammar_machine_check(m->machine);
    grammar_machine_free(m->machine);
    grammar_vocab_free(m->vocab);
    model_card_unref(m->card);
}

static inline struct grammar *compiled(enum grammar_kind kind, const char *text)
{
    const struct grammar_spec spec = {kind, text, strlen(text)};
    struct grammar *grammar = NULL;
    struct errmsg err = {""};
    int r = grammar_compile(&spec, &grammar, &err);

    if (r < 0)
        fail_msg("%s is refused: %s", text, err.text);
    return grammar;
}

/* Whole text taken and complete. */
static inline bool accepts_bytes(struct matching *m, struct grammar *grammar, const char *text,
                                 size_t bytes)
{
    struct grammar_matcher *matcher = NULL;

    assert_int_equal(grammar_matcher_new(m->machine, grammar, &matcher, NULL), 0);
    int r = grammar_matcher_take(matcher, text, bytes);
    bool taken = r == 0 && grammar_matcher_complete(matcher);
    assert_true(r == 0 || r == -EINVAL);
    grammar_matcher_free(matcher);
    return taken;
}

static inline bool accepts(struct matching *m, struct grammar *grammar, const char *text)
{
    return accepts_bytes(m, grammar, text, strlen(text));
}

/* `yes` and `no`: texts, the last one NULL. */
static inline void check_texts(struct matching *m, enum grammar_kind kind, const char *text,
                               const char *const *yes, const char *const *no)
{
    struct grammar *grammar = compiled(kind, text);

    for (size_t i = 0; yes[i] != NULL; i++)
        if (!accepts(m, grammar, yes[i]))
            fail_msg("%s must take: %s", text, yes[i]);
    for (size_t i = 0; no[i] != NULL; i++)
        if (accepts(m, grammar, no[i]))
            fail_msg("%s must not take: %s", text, no[i]);
    grammar_unref(grammar);
}

/* Refused with `code`, and the sentence has `part` in it. */
static inline void check_refused_bytes(enum grammar_kind kind, const char *text, size_t bytes,
                                       int code, const char *part)
{
    const struct grammar_spec spec = {kind, text, bytes};
    struct grammar *grammar = NULL;
    struct errmsg err = {""};
    int r = grammar_compile(&spec, &grammar, &err);

    if (r != code || strstr(err.text, part) == NULL)
        fail_msg("%.80s: %d \"%s\", not %d with \"%s\"", text, r, err.text, code, part);
    assert_null(grammar);
}

static inline void check_refused(enum grammar_kind kind, const char *text, int code,
                                 const char *part)
{
    check_refused_bytes(kind, text, strlen(text), code, part);
}

#define TEXTS(...) ((const char *const[]){__VA_ARGS__, NULL})

#endif
