/* test_text_seams.c - a text cut at its seams and put together by the cache has the ids that
 * tokenizer_encode() gives it: every family of tokenizers, cold and warm, with room and without,
 * and vocabularies made to break it.
 *
 * A file that is absent counts as skipped and is said so aloud. */
#include <cmocka.h>

#include "router/text/text_cache.h"
#include "tests/unit/router/text/tiny_cards.h"

#define META "\xe2\x96\x81"
#define TEXT_MAX 4096
#define SPANS_MAX 12
#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

static int skipped;

struct dice {
    uint64_t state;
};

static uint32_t roll(struct dice *dice, uint32_t sides)
{
    dice->state = dice->state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (uint32_t)(dice->state >> 33) % sides;
}

/* --- texts that like to be cut wrong --------------------------------------------------------- */

static const char *const ordinary[] = {
    "Hello",
    " world",
    "user",
    "assistant",
    "system",
    "\n",
    "\n\n",
    " ",
    "  ",
    "\t",
    "_",
    "1234",
    "don't",
    "\xc3\xa9",
    "e\xcc\x81",
    "\xe4\xb8\xad\xe6\x96\x87",
    "\xf0\x9f\x98\x80",
    "<",
    "|",
    ">",
    "|>",
    "<|",
    "\xe2\x96\x81",
    ".",
    "{\"a\": 1}",
    "\xc2\xa0",
    "\xcc\x81",
    "word",
};

struct mixer {
    struct dice dice;
    const struct model_card *card;
    uint32_t control[512], added[512]; /* ids of control tokens, of other added tokens */
    size_t control_count, added_count;
    char text[TEXT_MAX];
    size_t bytes;
    struct text_range spans[SPANS_MAX];
    struct tokenize_options options;
};

static void mixer_init(struct mixer *mixer, const struct model_card *card, uint64_t seed)
{
    *mixer = (struct mixer){.dice = {seed}, .card = card};
    for (uint32_t id = 0; id < card->tokens.count; id++) {
        uint8_t type = card->token_types[id];
        if (type == TOKEN_CONTROL && mixer->control_count < COUNT(mixer->control))
            mixer->control[mixer->control_count++] = id;
        else if ((type == TOKEN_UNKNOWN || type == TOKEN_USER_DEFINED) &&
                 mixer->added_count < COUNT(mixer->added))
            mixer->added[mixer->added_count++] = id;
    }
}

/* A word, an added token, or a beginning or an end of one. */
static void mix_piece(struct mixer *mixer)
{
    struct dice *dice = &mixer->dice;
    const char *text = ordinary[roll(dice, COUNT(ordinary))];
    size_t bytes = strlen(text);
    uint32_t kind = roll(dice, 4);
    if ((kind == 0 && mixer->added_count > 0) || (kind == 1 && mixer->control_count > 0)) {
        uint32_t id = kind == 0 ? mixer->added[roll(dice, (uint32_t)mixer->added_count)]
                                : mixer->control[roll(dice, (uint32_t)mixer->control_count)];
        text = string_table_get(&mixer->card->tokens, id, &bytes);
        if (bytes > 1 && roll(dice, 4) == 0) {
            size_t cut = 1 + roll(dice, (uint32_t)bytes - 1);
            bool begin = roll(dice, 2) == 0;
            text += begin ? 0 : cut;
            bytes = begin ? cut : bytes - cut;
        }
    }
    if (mixer->bytes + bytes > TEXT_MAX)
        return;
    memcpy(mixer->text + mixer->bytes, text, bytes);
    mixer->bytes += bytes;
}

static int by_number(const void *a, const void *b)
{
    size_t left = *(const size_t *)a, right = *(const size_t *)b;
    return (left > right) - (left < right);
}

/* Spans anywhere, across tokens and characters too, empty ones and neighbours among them. */
static void mix(struct mixer *mixer)
{
    struct dice *dice = &mixer->dice;
    size_t borders[2 * SPANS_MAX];
    mixer->bytes = 0;
    for (uint32_t pieces = 1 + roll(dice, 30); pieces > 0; pieces--)
        mix_piece(mixer);
    size_t spans = roll(dice, SPANS_MAX);
    for (size_t i = 0; i < 2 * spans; i++)
        borders[i] =
            i > 0 && roll(dice, 6) == 0 ? borders[i - 1] : roll(dice, (uint32_t)mixer->bytes + 1);
    qsort(borders, 2 * spans, sizeof(*borders), by_number);
    for (size_t i = 0; i < spans; i++)
        mixer->spans[i] = (struct text_range){borders[2 * i], borders[2 * i + 1]};
    mixer->options = (struct tokenize_options){.add_special = roll(dice, 2) == 0,
                                               .parse_special = roll(dice, 8) != 0,
                                               .literal = mixer->spans,
                                               .literal_count = spans};
}

/* --- the property ---------------------------------------------------------------------------- */

struct cut {
    struct tokenizer *tokenizer;
    struct text_cache *caches[3]; /* roomy, cramped, none */
    struct text_owner owner;
    struct token_ids want, got;
    size_t seams;
};

static void cut_init(struct cut *cut, struct model_card *card)
{
    struct errmsg err = {{0}};
    memset(cut, 0, sizeof(*cut));
    if (tokenizer_new(card, &cut->tokenizer, &err) < 0)
        fail_msg("%s", err.text);
    cut->caches[0] = text_cache_new(8u << 20);
    cut->caches[1] = text_cache_new(4096);
    cut->caches[2] = text_cache_new(0);
    cut->owner = (struct text_owner){cut->tokenizer, 1, "", true};
    token_ids_init(&cut->want, 1u << 20);
    token_ids_init(&cut->got, 1u << 20);
}

static void cut_done(struct cut *cut)
{
    for (size_t i = 0; i < COUNT(cut->caches); i++) {
        text_cache_check(cut->caches[i]);
        text_cache_free(cut->caches[i]);
    }
    token_ids_done(&cut->want);
    token_ids_done(&cut->got);
    tokenizer_free(cut->tokenizer);
}

static void fail_with(const struct mixer *mixer, const struct cut *cut, const char *what)
{
    printf("%s: '%.*s'\nspans:", what, (int)mixer->bytes, mixer->text);
    for (size_t i = 0; i < mixer->options.literal_count; i++)
        printf(" %zu-%zu", mixer->spans[i].start, mixer->spans[i].end);
    printf("\nwant:");
    for (size_t i = 0; i < cut->want.count; i++)
        printf(" %u", cut->want.ids[i]);
    printf("\ngot: ");
    for (size_t i = 0; i < cut->got.count; i++)
        printf(" %u", cut->got.ids[i]);
    fail_msg("%s", "\nother ids than in one piece");
}

static void check_trace(const struct prompt_trace *trace, const struct mixer *mixer,
                        const struct token_ids *ids)
{
    assert_int_equal(trace->text_bytes, mixer->bytes);
    for (uint32_t i = 0; i < trace->seams_count; i++) {
        const struct prompt_seam *seam = &trace->seams[i];
        size_t bytes = 0;
        const char *text =
            string_table_get(&mixer->card->tokens, ids->ids[seam->ids_count - 1], &bytes);
        assert_memory_equal(mixer->text + seam->text_end - bytes, text, bytes);
        assert_int_equal(mixer->card->token_types[ids->ids[seam->ids_count - 1]], TOKEN_CONTROL);
    }
}

static void check_cut(struct cut *cut, const struct mixer *mixer)
{
    static const char *const names[] = {"roomy cache", "cramped cache", "no cache"};
    cut->want.count = 0;
    assert_int_equal(
        tokenizer_encode(cut->tokenizer, mixer->text, mixer->bytes, &mixer->options, &cut->want),
        0);
    for (size_t i = 0; i < 2 * COUNT(cut->caches); i++) { /* each twice: cold, warm */
        struct prompt_trace trace = {0};
        cut->got.count = 0;
        assert_int_equal(text_cache_encode(cut->caches[i / 2], &cut->owner, mixer->text,
                                           mixer->bytes, &mixer->options, &cut->got, &trace),
                         0);
        if (cut->got.count != cut->want.count ||
            (cut->got.count > 0 &&
             memcmp(cut->got.ids, cut->want.ids, cut->got.count * sizeof(uint32_t)) != 0))
            fail_with(mixer, cut, names[i / 2]);
        check_trace(&trace, mixer, &cut->got);
        cut->seams += trace.seams_total;
        prompt_trace_done(&trace);
    }
}

/* `card` is taken. Returns the seams that were seen. */
static size_t check_card(struct model_card *card, uint64_t seed, size_t texts)
{
    struct cut cut;
    struct mixer *mixer = mem_alloc(sizeof(*mixer));
    cut_init(&cut, card);
    mixer_init(mixer, card, seed);
    for (size_t i = 0; i < texts; i++) {
        mix(mixer);
        check_cut(&cut, mixer);
    }
    size_t seams = cut.seams;
    cut_done(&cut);
    mem_free(mixer);
    model_card_unref(card);
    return seams;
}

/* --- vocabularies of the field --------------------------------------------------------------- */

static void check_family(const char *name, struct model_card *card, const char *const *seams)
{
    struct tokenizer *tokenizer = NULL;
    struct errmsg err = {{0}};
    bool trim = false;
    if (card == NULL) {
        skipped++;
        skip();
    }
    assert_int_equal(tokenizer_new(card, &tokenizer, &err), 0);
    for (; *seams != NULL; seams++) {
        uint32_t id = tokenizer_find(tokenizer, *seams);
        if (id == TOKEN_ID_NONE || !tokenizer_is_seam(tokenizer, id, &trim))
            fail_msg("%s: %s should be a seam", name, *seams);
    }
    tokenizer_free(tokenizer);
    size_t seen = check_card(card, 1, 400);
    printf("%s: %zu seams in 400 texts, encoded 6 times\n", name, seen);
}

#define FAMILY(name, card, ...)                                                \
    do {                                                                       \
        static const char *const seams_[] = {__VA_ARGS__ __VA_OPT__(, ) NULL}; \
        check_family(name, card, seams_);                                      \
    } while (0)

static void test_gpt2(void **state)
{
    (void)state;
    FAMILY("gpt-2", card_from_gguf(CASES_DIR "ggml-vocab-gpt-2.gguf.gz"), "<|endoftext|>");
}

static void test_starcoder(void **state)
{
    (void)state;
    FAMILY("starcoder", card_from_gguf(CASES_DIR "ggml-vocab-starcoder.gguf.gz"), "<|endoftext|>",
           "<fim_prefix>");
}

static void test_deepseek(void **state)
{
    (void)state;
    FAMILY("deepseek-llm", card_from_gguf(CASES_DIR "ggml-vocab-deepseek-llm.gguf.gz"),
           "<\xef\xbd\x9c"
           "begin\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>");
}

static void test_phi3(void **state)
{
    (void)state;
    FAMILY("phi-3", card_from_gguf(CASES_DIR "ggml-vocab-phi-3.gguf.gz"), "<|end|>", "<|user|>",
           "<|assistant|>", "<s>");
}

static void test_qwen2(void **state)
{
    (void)state;
    FAMILY("qwen2", card_from_qwen2(), "<|im_start|>", "<|im_end|>", "<|endoftext|>");
}

static void test_o200k_has_no_seams(void **state)
{
    struct model_card *card = card_from_tiktoken(CASES_DIR "o200k_base.tiktoken.gz", "o200k");
    (void)state;
    if (card == NULL) {
        skipped++;
        skip();
    }
    assert_int_equal(check_card(card, 2, 100), 0);
}

static void test_smollm2(void **state)
{
    (void)state;
    FAMILY("smollm2", card_from_gguf(model_path("SmolLM2-135M-Instruct.Q4_1.gguf")), "<|im_start|>",
           "<|im_end|>");
}

/* --- vocabularies made to break it ----------------------------------------------------------- */

#define TOKENS_MAX 10

struct made {
    char texts[TOKENS_MAX][16];
    struct tiny_token tokens[TOKENS_MAX + 32];
    size_t count;
};

/* A few added tokens of few letters: they contain, begin and end each other all the time. */
static void make_tokens(struct dice *dice, struct made *made, size_t fixed)
{
    static const char *const letters[] = {"<", "|", ">", "a", " ", "\n", "_", "\xc3\xa9"};
    static const uint8_t types[] = {TOKEN_CONTROL, TOKEN_CONTROL, TOKEN_USER_DEFINED,
                                    TOKEN_UNKNOWN};
    size_t wanted = 1 + roll(dice, TOKENS_MAX);
    uint32_t kinds = 2 + roll(dice, COUNT(letters) - 1);
    made->count = fixed;
    for (size_t tries = 0; tries < wanted; tries++) {
        char *text = made->texts[made->count - fixed];
        bool known = false;
        text[0] = '\0';
        for (uint32_t length = 1 + roll(dice, 5); length > 0; length--)
            strcat(text, letters[roll(dice, kinds)]);
        for (size_t i = 0; i < made->count; i++)
            known = known || strcmp(made->tokens[i].text, text) == 0;
        if (known)
            continue;
        made->tokens[made->count++] = (struct tiny_token){
            text, types[roll(dice, COUNT(types))], roll(dice, 3) ? 0 : (uint8_t)roll(dice, 16), 0};
    }
}

static void test_overlapping_added_tokens_never_make_a_wrong_cut(void **state)
{
    static const char *const merges[] = {"a a", NULL};
    struct dice dice = {7};
    struct made made;
    size_t seams = 0;
    (void)state;
    made.tokens[0] = (struct tiny_token){"aa", TOKEN_NORMAL, 0, 0};
    for (uint64_t set = 0; set < 600; set++) {
        make_tokens(&dice, &made, 1);
        seams += check_card(tiny_bpe("gpt-2", made.tokens, made.count, merges), set, 25);
    }
    printf("made vocabularies: %zu seams\n", seams);
    assert_in_range(seams, 5000, SIZE_MAX);
}

static void test_sentencepiece_with_overlapping_added_tokens(void **state)
{
    static const char *const pieces[] = {"<", "|",        ">",  "a", META, "\n",
                                         "_", (META "a"), "aa", "e", "o"};
    struct dice dice = {8};
    struct made made;
    size_t seams = 0;
    (void)state;
    for (size_t i = 0; i < COUNT(pieces); i++)
        made.tokens[i] = (struct tiny_token){pieces[i], TOKEN_NORMAL, 0, -(float)i};
    for (uint64_t set = 0; set < 300; set++) {
        make_tokens(&dice, &made, COUNT(pieces));
        struct model_card *card =
            tiny_pieces(set % 2 ? TOKENIZER_SPM : TOKENIZER_UNIGRAM, made.tokens, made.count);
        card->add_space_prefix = set % 3 != 0;
        card->remove_extra_whitespaces = set % 5 == 0;
        seams += check_card(card, set, 25);
    }
    assert_in_range(seams, 3000, SIZE_MAX);
}

/* --- what is a seam and what is not ---------------------------------------------------------- */

static bool is_seam(const struct tiny_token *tokens, size_t count, size_t which)
{
    struct model_card *card = tiny_bpe("gpt-2", tokens, count, NO_MERGES);
    struct tokenizer *tokenizer = NULL;
    struct errmsg err = {{0}};
    bool trim = false;
    assert_int_equal(tokenizer_new(card, &tokenizer, &err), 0);
    bool seam = tokenizer_is_seam(tokenizer, 256 + (uint32_t)which, &trim);
    assert_int_equal(trim, seam && (tokens[which].flags & TOKEN_RSTRIP) != 0);
    tokenizer_free(tokenizer);
    model_card_unref(card);
    return seam;
}

#define IS_SEAM(...)                                  \
    is_seam((const struct tiny_token[]){__VA_ARGS__}, \
            COUNT(((const struct tiny_token[]){__VA_ARGS__})), 0)

static void test_only_what_nothing_can_change_is_a_seam(void **state)
{
    (void)state;
    assert_true(IS_SEAM({"<s>", TOKEN_CONTROL, 0, 0}));
    assert_true(IS_SEAM({"<s>", TOKEN_CONTROL, TOKEN_RSTRIP | TOKEN_NORMALIZED, 0}));
    assert_true(IS_SEAM({"<s>", TOKEN_CONTROL, 0, 0}, {"<", TOKEN_USER_DEFINED, 0, 0},
                        {"s", TOKEN_USER_DEFINED, 0, 0}, {"<s", TOKEN_CONTROL, 0, 0}));
    assert_false(IS_SEAM({"<s>", TOKEN_USER_DEFINED, 0, 0}));
    assert_false(IS_SEAM({"<s>", TOKEN_UNKNOWN, 0, 0}));
    assert_false(IS_SEAM({"<s>", TOKEN_CONTROL, TOKEN_LSTRIP, 0}));
    assert_false(IS_SEAM({"<s>", TOKEN_CONTROL, TOKEN_SINGLE_WORD, 0}));
    assert_false(IS_SEAM({"s>", TOKEN_CONTROL, 0, 0}));   /* a letter */
    assert_false(IS_SEAM({" <s>", TOKEN_CONTROL, 0, 0})); /* rstrip before it takes the space */
    assert_false(IS_SEAM({"<>\n", TOKEN_CONTROL, 0, 0}));
    assert_false(IS_SEAM({"<>_", TOKEN_CONTROL, 0, 0}));
    assert_false(IS_SEAM({"<>\xcc\x81", TOKEN_CONTROL, 0, 0}));
    assert_false(IS_SEAM({"<s>", TOKEN_CONTROL, 0, 0}, {"<s>x", TOKEN_CONTROL, 0, 0}));
    assert_false(IS_SEAM({"<s>", TOKEN_CONTROL, 0, 0}, {"\n<", TOKEN_USER_DEFINED, 0, 0}));
    assert_false(IS_SEAM({"<s>", TOKEN_CONTROL, 0, 0}, {"a<s>", TOKEN_USER_DEFINED, 0, 0}));
    assert_false(IS_SEAM({"<s>", TOKEN_CONTROL, 0, 0}, {"a<s>b", TOKEN_USER_DEFINED, 0, 0}));
    assert_false(IS_SEAM({"<s><", TOKEN_CONTROL, 0, 0})); /* overlaps itself */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_what_nothing_can_change_is_a_seam),
        cmocka_unit_test(test_overlapping_added_tokens_never_make_a_wrong_cut),
        cmocka_unit_test(test_sentencepiece_with_overlapping_added_tokens),
        cmocka_unit_test(test_gpt2),
        cmocka_unit_test(test_starcoder),
        cmocka_unit_test(test_deepseek),
        cmocka_unit_test(test_phi3),
        cmocka_unit_test(test_qwen2),
        cmocka_unit_test(test_o200k_has_no_seams),
        cmocka_unit_test(test_smollm2),
    };
    int r = cmocka_run_group_tests(tests, NULL, NULL);
    if (r == 0 && skipped > 0)
        printf("skipped: %d of %zu tests have no file\n", skipped, COUNT(tests));
    return r == 0 && skipped > 0 ? 77 : r;
}
