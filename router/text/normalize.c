/* normalize.c - a list of steps, each from one scratch buffer into the other.
 *
 *   text --step 0--> a --step 1--> b --step 2--> a ...   what changes nothing copies nothing
 *
 * A card without steps gets one: NFC, or SentencePiece's pass (Kudo and Richardson 2018), which in
 * one go maps characters (charsmap.c), collapses spaces and puts the dummy space in front. Our
 * words keep plain spaces where the files write U+2581 (vocabulary.c), so a final
 * "Replace ' ' by U+2581" that nobody looks at afterwards is left out, and "Prepend U+2581" before
 * it prepends a space.
 *
 * Two readings of one character map: SentencePiece replaces the longest key at each place; the
 * tokenizers library (step Precompiled) asks grapheme by grapheme and takes the shortest key. Both
 * are kept apart, because ids must equal those of the library that the model's users run.
 *
 * Cost: linear, times the number of steps that apply. */
#include "router/text/normalize.h"

#include <errno.h>
#include <string.h>
#include <utf8proc.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "router/text/charsmap.h"
#include "router/text/metaspace.h"
#include "router/text/regex.h"
#include "router/text/trie.h"

#define TEXT_BYTES_MAX (1u << 30)
#define SCRATCH_KEPT (1u << 20)
#define LOW_LINE "\xe2\x96\x81" /* U+2581 */
#define GRAPHEME_BYTES_MAX 6    /* the tokenizers library asks only for shorter ones */

enum kind {
    NORMALIZE_FORM = 0,
    NORMALIZE_LOWERCASE,
    NORMALIZE_STRIP_LEFT,
    NORMALIZE_STRIP_RIGHT,
    NORMALIZE_PREPEND,
    NORMALIZE_REPLACE,
    NORMALIZE_REPLACE_REGEX,
    NORMALIZE_PRECOMPILED,
    NORMALIZE_SENTENCEPIECE,
    NORMALIZE_PLAIN, /* U+2581 -> space, always the last */
};

struct step {
    enum kind kind;
    enum unicode_form form;
    char *pattern, *content; /* by mem_alloc */
    size_t pattern_bytes, content_bytes;
    struct regex *regex;
};

struct normalizer {
    const struct model_card *card;
    struct unicode *unicode;
    struct step steps[MODEL_CARD_STEPS_MAX + 3]; /* own ones: form, SentencePiece's pass, plain */
    uint32_t count;
    struct charsmap charsmap;
    struct trie user_defined; /* SentencePiece: pieces that the map leaves alone */
    struct buffer scratch[2];
};

/* A text on its way. */
struct flow {
    struct normalizer *normalizer;
    const char *text;
    size_t bytes;
    struct buffer *free; /* the scratch that `text` does not lie in */
    bool at_start;
};

/* --- setting up ------------------------------------------------------------------------------ */

static const struct {
    const char *word;
    enum kind kind;
    enum unicode_form form;
    unsigned arguments;
} words[] = {
    {"NFC", NORMALIZE_FORM, UNICODE_NFC, 0},
    {"NFD", NORMALIZE_FORM, UNICODE_NFD, 0},
    {"NFKC", NORMALIZE_FORM, UNICODE_NFKC, 0},
    {"NFKD", NORMALIZE_FORM, UNICODE_NFKD, 0},
    {"Lowercase", NORMALIZE_LOWERCASE, 0, 0},
    {"StripLeft", NORMALIZE_STRIP_LEFT, 0, 0},
    {"StripRight", NORMALIZE_STRIP_RIGHT, 0, 0},
    {"Precompiled", NORMALIZE_PRECOMPILED, 0, 0},
    {"Prepend", NORMALIZE_PREPEND, 0, 1},
    {"Replace", NORMALIZE_REPLACE, 0, 2},
    {"ReplaceRegex", NORMALIZE_REPLACE_REGEX, 0, 2},
};
#define WORDS (sizeof(words) / sizeof(words[0]))

static int read_arguments(struct step *step, const char *argument, size_t bytes, unsigned count,
                          struct errmsg *err)
{
    const char *nul = memchr(argument, '\0', bytes);
    if ((count == 2) != (nul != NULL) || (count == 2 && nul == argument))
        return errmsg_set(err, -EINVAL, "a normalizer step has not its %u arguments", count);
    if (count == 1) {
        step->content = mem_strndup(argument, bytes);
        step->content_bytes = bytes;
    } else if (count == 2) {
        step->pattern_bytes = (size_t)(nul - argument);
        step->pattern = mem_strndup(argument, step->pattern_bytes);
        step->content_bytes = bytes - step->pattern_bytes - 1;
        step->content = mem_strndup(nul + 1, step->content_bytes);
    }
    if (step->content != NULL &&
        (strlen(step->content) != step->content_bytes ||
         utf8_valid_bytes(step->content, step->content_bytes) != step->content_bytes))
        return errmsg_set(err, -EINVAL, "a normalizer step's text is not UTF-8, or holds a NUL");
    if (step->kind == NORMALIZE_REPLACE_REGEX)
        return regex_new(step->pattern, step->pattern_bytes, &step->regex, err);
    return 0;
}

static int add_step(struct normalizer *normalizer, const char *text, size_t bytes,
                    struct errmsg *err)
{
    const char *space = memchr(text, ' ', bytes);
    size_t word_bytes = space == NULL ? bytes : (size_t)(space - text);
    size_t argument = space == NULL ? bytes : word_bytes + 1;
    for (size_t i = 0; i < WORDS; i++) {
        if (strlen(words[i].word) != word_bytes || memcmp(words[i].word, text, word_bytes) != 0)
            continue;
        ASSERT(normalizer->count <= MODEL_CARD_STEPS_MAX);
        struct step *step = &normalizer->steps[normalizer->count++];
        step->kind = words[i].kind;
        step->form = words[i].form;
        return read_arguments(step, text + argument, bytes - argument, words[i].arguments, err);
    }
    return errmsg_set(err, -ENOTSUP,
                      "unknown normalizer step '%.*s'; known: NFC NFD NFKC NFKD Lowercase "
                      "StripLeft StripRight Precompiled Prepend Replace ReplaceRegex",
                      (int)(word_bytes > 100 ? 100 : word_bytes), text);
}

static bool is_space_to_low_line(const struct step *step)
{
    return step->kind == NORMALIZE_REPLACE && strcmp(step->pattern, " ") == 0 &&
           strcmp(step->content, LOW_LINE) == 0;
}

/* The text goes to the model as a whole, in which a space and U+2581 are one. */
static void leave_out_escapes(struct normalizer *normalizer)
{
    uint32_t last = normalizer->count - 1;
    if (!is_space_to_low_line(&normalizer->steps[last]))
        return;
    mem_free(normalizer->steps[last].pattern);
    mem_free(normalizer->steps[last].content);
    normalizer->steps[last] = (struct step){0};
    normalizer->count = last;
    struct step *before = last == 0 ? NULL : &normalizer->steps[last - 1];
    if (before != NULL && before->kind == NORMALIZE_PREPEND &&
        strcmp(before->content, LOW_LINE) == 0) {
        before->content[0] = ' ';
        before->content[1] = '\0';
        before->content_bytes = 1;
    }
}

/* What a card without steps stands for. */
static void add_own_steps(struct normalizer *normalizer, bool nfc)
{
    const struct model_card *card = normalizer->card;
    if (nfc)
        normalizer->steps[normalizer->count++] =
            (struct step){.kind = NORMALIZE_FORM, .form = UNICODE_NFC};
    if (card->tokenizer == TOKENIZER_BPE)
        return;
    normalizer->steps[normalizer->count++] = (struct step){.kind = NORMALIZE_SENTENCEPIECE};
    if (!card->sentencepiece || card->charsmap == NULL)
        return;
    for (uint32_t id = 0; id < card->tokens.count; id++) {
        size_t bytes = 0;
        const char *text = string_table_get(&card->tokens, id, &bytes);
        if (card->token_types[id] == TOKEN_USER_DEFINED && bytes > 0 &&
            utf8_valid_bytes(text, bytes) == bytes)
            trie_add(&normalizer->user_defined, text, bytes, id);
    }
}

int normalizer_new(const struct model_card *card, bool nfc, struct unicode *unicode,
                   struct normalizer **ret_normalizer, struct errmsg *err)
{
    struct normalizer *normalizer = mem_zalloc(sizeof(*normalizer));
    normalizer->card = card;
    normalizer->unicode = unicode;
    trie_init(&normalizer->user_defined, 0);
    for (size_t i = 0; i < 2; i++)
        buffer_init(&normalizer->scratch[i], TEXT_BYTES_MAX);
    int r = charsmap_init(&normalizer->charsmap, card->charsmap, card->charsmap_bytes, err);
    if (r == 0 && card->normalizers.count > MODEL_CARD_STEPS_MAX)
        r = errmsg_set(err, -EINVAL, "%u normalizer steps, at most %u", card->normalizers.count,
                       MODEL_CARD_STEPS_MAX);
    for (uint32_t i = 0; r == 0 && i < card->normalizers.count; i++) {
        size_t bytes = 0;
        const char *text = string_table_get(&card->normalizers, i, &bytes);
        r = add_step(normalizer, text, bytes, err);
    }
    if (r < 0) {
        normalizer_free(normalizer);
        return r;
    }
    bool whole = card->tokenizer != TOKENIZER_BPE && card->pretokenizers.count == 0;
    if (card->normalizers.count == 0)
        add_own_steps(normalizer, nfc || card->normalize_nfc);
    else if (whole)
        leave_out_escapes(normalizer);
    if (whole)
        normalizer->steps[normalizer->count++] = (struct step){.kind = NORMALIZE_PLAIN};
    *ret_normalizer = normalizer;
    return 0;
}

void normalizer_free(struct normalizer *normalizer)
{
    if (normalizer == NULL)
        return;
    for (uint32_t i = 0; i < normalizer->count; i++) {
        mem_free(normalizer->steps[i].pattern);
        mem_free(normalizer->steps[i].content);
        regex_free(normalizer->steps[i].regex);
    }
    for (size_t i = 0; i < 2; i++)
        buffer_done(&normalizer->scratch[i]);
    trie_done(&normalizer->user_defined);
    mem_free(normalizer);
}

bool normalizer_has_steps(const struct normalizer *normalizer)
{
    return normalizer->card->normalizers.count > 0;
}

/* --- steps ----------------------------------------------------------------------------------- */

/* What was written to flow->free is the text now. */
static void flow_turn(struct flow *flow)
{
    struct buffer *scratch = flow->normalizer->scratch;
    flow->text = flow->free->data;
    flow->bytes = flow->free->bytes;
    flow->free = flow->free == &scratch[0] ? &scratch[1] : &scratch[0];
}

static void lowercase(struct flow *flow)
{
    for (size_t at = 0; at < flow->bytes;) {
        uint32_t length = 0, cp = utf8_decode(flow->text + at, &length);
        char lower[4];
        at += length;
        if (cp == 0x130) { /* the one letter whose small form is two code points */
            buffer_append(flow->free, "i\xcc\x87", 3);
            continue;
        }
        cp = cp < 0x80 ? (cp >= 'A' && cp <= 'Z' ? cp + 0x20 : cp)
                       : (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp);
        buffer_append(flow->free, lower, utf8_encode(cp, lower));
    }
    flow_turn(flow);
}

static bool is_space_at(const struct flow *flow, size_t at, uint32_t *ret_length)
{
    uint32_t cp = utf8_decode(flow->text + at, ret_length);
    return (unicode_bits(flow->normalizer->unicode, cp) & CP_SPACE) != 0;
}

static void strip_left(struct flow *flow)
{
    uint32_t length = 0;
    size_t at = 0;
    while (at < flow->bytes && is_space_at(flow, at, &length))
        at += length;
    flow->at_start = flow->at_start && at == 0;
    flow->text += at;
    flow->bytes -= at;
}

static void strip_right(struct flow *flow)
{
    uint32_t length = 0;
    while (flow->bytes > 0) {
        size_t at = flow->bytes - 1;
        while (at > 0 && ((unsigned char)flow->text[at] & 0xc0) == 0x80)
            at--;
        if (!is_space_at(flow, at, &length))
            break;
        flow->bytes = at;
    }
}

static void prepend(struct flow *flow, const struct step *step)
{
    if (flow->bytes == 0)
        return;
    buffer_append(flow->free, step->content, step->content_bytes);
    buffer_append(flow->free, flow->text, flow->bytes);
    flow_turn(flow);
}

static bool find(const struct step *step, const struct flow *flow, size_t at, size_t *ret_start,
                 size_t *ret_end)
{
    if (step->regex != NULL)
        return regex_find(step->regex, flow->text, flow->bytes, at, ret_start, ret_end);
    const char *found =
        memmem(flow->text + at, flow->bytes - at, step->pattern, step->pattern_bytes);
    if (found == NULL)
        return false;
    *ret_start = (size_t)(found - flow->text);
    *ret_end = *ret_start + step->pattern_bytes;
    return true;
}

static void replace(struct flow *flow, const struct step *step)
{
    size_t at = 0, start = 0, end = 0;
    while (at < flow->bytes && find(step, flow, at, &start, &end)) {
        buffer_append(flow->free, flow->text + at, start - at);
        buffer_append(flow->free, step->content, step->content_bytes);
        at = end;
    }
    if (at == 0)
        return;
    buffer_append(flow->free, flow->text + at, flow->bytes - at);
    flow_turn(flow);
}

/* End of the grapheme that begins at `at` (Unicode Standard Annex 29). */
static size_t grapheme_end(const struct flow *flow, size_t at)
{
    utf8proc_int32_t state = 0;
    uint32_t length = 0, before = utf8_decode(flow->text + at, &length);
    for (at += length; at < flow->bytes; at += length) {
        uint32_t cp = utf8_decode(flow->text + at, &length);
        if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)before, (utf8proc_int32_t)cp,
                                             &state))
            break;
        before = cp;
    }
    return at;
}

/* What the tokenizers library does with a character map: a short grapheme as a whole by the
 * shortest key that it begins with, else character by character. */
static void precompiled(struct flow *flow)
{
    const struct charsmap *map = &flow->normalizer->charsmap;
    for (size_t at = 0, end; at < flow->bytes; at = end) {
        const char *text = NULL;
        end = grapheme_end(flow, at);
        if (end - at < GRAPHEME_BYTES_MAX &&
            charsmap_find(map, flow->text + at, end - at, true, &text) > 0) {
            buffer_append_text(flow->free, text);
            continue;
        }
        for (uint32_t length = 0; at < end; at += length) {
            (void)utf8_decode(flow->text + at, &length);
            if (charsmap_find(map, flow->text + at, length, true, &text) > 0)
                buffer_append_text(flow->free, text);
            else
                buffer_append(flow->free, flow->text + at, length);
        }
    }
    flow_turn(flow);
}

/* --- SentencePiece's pass -------------------------------------------------------------------- */

/* What the text at `at` becomes, and how many bytes of it that is. */
static size_t map_prefix(const struct flow *flow, size_t at, const char **ret_text,
                         size_t *ret_bytes)
{
    const struct normalizer *normalizer = flow->normalizer;
    const char *text = flow->text + at;
    uint32_t id = 0, length = 0;
    size_t left = flow->bytes - at, used = 0;
    if (normalizer->user_defined.nodes > 1)
        used = trie_longest(&normalizer->user_defined, text, left, &id);
    if (used == 0) {
        used = charsmap_find(&normalizer->charsmap, text, left, false, ret_text);
        if (used > 0) {
            *ret_bytes = strlen(*ret_text);
            return used;
        }
        (void)utf8_decode(text, &length);
        used = length;
    }
    *ret_text = text;
    *ret_bytes = used;
    return used;
}

/* U+2581 of the file's own writing is a space at the end, and nowhere else before. */
static void take_off_spaces(struct buffer *out)
{
    for (;;) {
        if (out->bytes > 0 && out->data[out->bytes - 1] == ' ')
            out->bytes--;
        else if (out->bytes >= 3 && memcmp(out->data + out->bytes - 3, LOW_LINE, 3) == 0)
            out->bytes -= 3;
        else
            break;
    }
    out->data[out->bytes] = '\0';
}

static void sentencepiece(struct flow *flow)
{
    const struct model_card *card = flow->normalizer->card;
    struct buffer *out = flow->free;
    const bool collapse = card->remove_extra_whitespaces;
    const char *text = NULL;
    size_t at = 0, bytes = 0;
    while (collapse && at < flow->bytes) { /* leading spaces */
        size_t used = map_prefix(flow, at, &text, &bytes);
        if (bytes != 1 || text[0] != ' ')
            break;
        at += used;
    }
    if (at < flow->bytes && card->add_space_prefix)
        buffer_append_char(out, ' ');
    bool after_space = collapse;
    while (at < flow->bytes) {
        at += map_prefix(flow, at, &text, &bytes);
        while (after_space && bytes > 0 && text[0] == ' ') {
            text++;
            bytes--;
        }
        buffer_append(out, text, bytes);
        if (bytes > 0)
            after_space = collapse && text[bytes - 1] == ' ';
    }
    if (collapse && out->bytes > 0)
        take_off_spaces(out);
    flow_turn(flow);
}

/* Nothing maps and nothing collapses: only the space in front. */
static void prefix_only(struct flow *flow)
{
    if (!flow->normalizer->card->add_space_prefix || flow->bytes == 0)
        return;
    buffer_append_char(flow->free, ' ');
    buffer_append(flow->free, flow->text, flow->bytes);
    flow_turn(flow);
}

/* --- running --------------------------------------------------------------------------------- */

static void run_step(struct flow *flow, const struct step *step)
{
    const struct model_card *card = flow->normalizer->card;
    buffer_clear(flow->free);
    switch (step->kind) {
    case NORMALIZE_FORM:
        if (unicode_normalize(flow->normalizer->unicode, step->form, flow->text, flow->bytes,
                              flow->free))
            flow_turn(flow);
        break;
    case NORMALIZE_LOWERCASE:
        lowercase(flow);
        break;
    case NORMALIZE_STRIP_LEFT:
        strip_left(flow);
        break;
    case NORMALIZE_STRIP_RIGHT:
        strip_right(flow);
        break;
    case NORMALIZE_PREPEND:
        prepend(flow, step);
        break;
    case NORMALIZE_REPLACE:
    case NORMALIZE_REPLACE_REGEX:
        replace(flow, step);
        break;
    case NORMALIZE_PRECOMPILED:
        precompiled(flow);
        break;
    case NORMALIZE_SENTENCEPIECE:
        if (card->remove_extra_whitespaces || card->charsmap != NULL)
            sentencepiece(flow);
        else
            prefix_only(flow);
        break;
    case NORMALIZE_PLAIN:
        if (metaspace_plain(flow->text, flow->bytes, flow->free))
            flow_turn(flow);
        break;
    }
}

int normalizer_run(struct normalizer *normalizer, const char *text, size_t bytes, bool *at_start,
                   const char **ret_text, size_t *ret_bytes)
{
    struct flow flow = {.normalizer = normalizer,
                        .text = text,
                        .bytes = bytes,
                        .free = &normalizer->scratch[0],
                        .at_start = *at_start};
    buffer_trim(&normalizer->scratch[0], SCRATCH_KEPT);
    buffer_trim(&normalizer->scratch[1], SCRATCH_KEPT);
    for (uint32_t i = 0; i < normalizer->count; i++) {
        run_step(&flow, &normalizer->steps[i]);
        if (buffer_finish(&normalizer->scratch[0]) < 0 ||
            buffer_finish(&normalizer->scratch[1]) < 0)
            return -E2BIG;
    }
    *ret_text = flow.text;
    *ret_bytes = flow.bytes;
    *at_start = flow.at_start;
    return 0;
}
