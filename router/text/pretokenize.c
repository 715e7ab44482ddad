/* pretokenize.c - cutting text into words, step by step.
 *
 *   text --step 0--> pieces --step 1--> pieces ... --> words       (depth first, no lists)
 *
 * A pattern whose text is known runs as a hand-written scanner (pretokenize_scan.c); any other by
 * PCRE2 (regex.c). What a step does with its matches (kept apart, dropped, joined to a neighbour)
 * is one small automaton, `cut_feed`: it is fed the pieces in order and hands on those that are
 * finished.
 *
 * Cost: scanners are linear. So is PCRE2 for every pattern in the tables; a pattern from a model's
 * own file is bounded by regex.c's limit. When PCRE2 gives up, the rest of the piece is one word.
 * Invariant: no step invents text but PrefixSpace and Metaspace, and those one space. */
#include "router/text/pretokenize.h"

#include <errno.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/buffer.h"
#include "proto/base/mem.h"
#include "proto/token_text.h"
#include "router/text/metaspace.h"
#include "router/text/pretokenize_names.h"
#include "router/text/regex.h"

#define TEXT_BYTES_MAX ((size_t)1 << 31)
#define SCRATCH_KEPT (1u << 20)

enum step_kind {
    STEP_REGEX = 0,
    STEP_SCAN,
    STEP_TRAILING_SPACE,
    STEP_PREFIX_SPACE,
    STEP_METASPACE,
    STEP_WHOLE,
    STEP_BYTES, /* the piece in the byte alphabet, so that a byte is a character to later steps */
};

/* What becomes of matches and of the text between them. */
enum cut_mode {
    CUT_SPLIT = 0,      /* both are pieces */
    CUT_KEEP,           /* matches only */
    CUT_REMOVE,         /* what lies between only */
    CUT_CONTIGUOUS,     /* matches that touch are one piece */
    CUT_MERGE_PREVIOUS, /* a match ends the piece before it */
    CUT_MERGE_NEXT,     /* a match begins the piece behind it */
    CUT_MODES
};
static const char *const cut_words[CUT_MODES] = {"Split",      "Keep",          "Remove",
                                                 "Contiguous", "MergePrevious", "MergeNext"};
enum metaspace_prefix { METASPACE_NEVER = 0, METASPACE_FIRST, METASPACE_ALWAYS };

struct step {
    enum step_kind kind;
    enum cut_mode mode;
    const struct pretokenize_scanner *scanner;
    char *pattern;
    struct regex *regex; /* compiled when needed */
    enum metaspace_prefix prefix;
    bool metaspace_split;
    struct buffer scratch; /* the piece at work with a space in front, or in the byte alphabet */
};

struct pretokenizer {
    struct unicode *unicode;
    struct step steps[MODEL_CARD_STEPS_MAX];
    uint32_t steps_count;
    bool bytes; /* some step is STEP_BYTES: words have to be turned back */
};

/* --- setting up ------------------------------------------------------------------------------ */

static int step_compile(struct step *step, struct errmsg *err)
{
    return regex_new(step->pattern, strlen(step->pattern), &step->regex, err);
}

static int add_pattern(struct pretokenizer *pre, enum cut_mode mode, const char *pattern,
                       size_t bytes, struct errmsg *err)
{
    ASSERT(pre->steps_count < MODEL_CARD_STEPS_MAX);
    if (bytes == 0 || memchr(pattern, '\0', bytes) != NULL)
        return errmsg_set(err, -EINVAL, "pre-tokenizer pattern %u is empty or holds a NUL",
                          pre->steps_count);
    bool has_newlines = true;
    for (uint32_t i = 0; i < pre->steps_count; i++)
        has_newlines = has_newlines && (pre->steps[i].pattern == NULL ||
                                        !pretokenize_is_newline(pre->steps[i].pattern));
    struct step *step = &pre->steps[pre->steps_count++];
    buffer_init(&step->scratch, 0);
    step->mode = mode;
    step->pattern = mem_strndup(pattern, bytes);
    step->scanner = pretokenize_scanner(step->pattern);
    if (step->scanner != NULL) {
        step->kind = STEP_SCAN;
        return 0;
    }
    if (mode == CUT_SPLIT && !has_newlines && pretokenize_is_trailing_space(step->pattern)) {
        step->kind = STEP_TRAILING_SPACE;
        return 0;
    }
    step->kind = STEP_REGEX;
    int r = step_compile(step, err);
    return r < 0 ? errmsg_prefix(err, r, "pre-tokenizer") : 0;
}

static int add_named(struct pretokenizer *pre, const char *name, struct pretokenize_traits *traits,
                     struct errmsg *err)
{
    const struct pretokenize_name *row =
        pretokenize_name(name == NULL || name[0] == '\0' ? "default" : name, err);
    if (row == NULL)
        return -ENOTSUP;
    *traits = row->traits;
    for (size_t i = 0; i < PRETOKENIZE_NAME_PATTERNS && row->patterns[i] != NULL; i++) {
        int r = add_pattern(pre, CUT_SPLIT, row->patterns[i], strlen(row->patterns[i]), err);
        if (r < 0)
            return r;
    }
    return 0;
}

static bool begins(const char *text, size_t bytes, const char *word)
{
    size_t word_bytes = strlen(word);
    return bytes >= word_bytes && memcmp(text, word, word_bytes) == 0 &&
           (bytes == word_bytes || text[word_bytes] == ' ');
}

static int add_metaspace(struct pretokenizer *pre, const char *arguments, size_t bytes,
                         struct errmsg *err)
{
    struct step *step = &pre->steps[pre->steps_count++];
    buffer_init(&step->scratch, TEXT_BYTES_MAX);
    step->kind = STEP_METASPACE;
    if (begins(arguments, bytes, "Always"))
        step->prefix = METASPACE_ALWAYS;
    else if (begins(arguments, bytes, "First"))
        step->prefix = METASPACE_FIRST;
    else if (!begins(arguments, bytes, "Never"))
        return errmsg_set(err, -ENOTSUP, "pre-tokenizer Metaspace: Always, First or Never");
    const char *split = memchr(arguments, ' ', bytes);
    step->metaspace_split = split != NULL;
    return 0;
}

/* Steps without an argument. */
static const struct {
    const char *word;
    enum step_kind kind;
} plain_steps[] = {
    {"PrefixSpace", STEP_PREFIX_SPACE}, {"Whole", STEP_WHOLE}, {"Bytes", STEP_BYTES}};

/* A step as the card spells it. */
static int add_step(struct pretokenizer *pre, const char *text, size_t bytes, struct errmsg *err)
{
    if (pre->steps_count > 0 && pre->steps[pre->steps_count - 1].kind == STEP_METASPACE)
        return errmsg_set(err, -ENOTSUP, "pre-tokenizer Metaspace must be the last step");
    for (size_t i = 0; i < sizeof(plain_steps) / sizeof(plain_steps[0]); i++) {
        if (!begins(text, bytes, plain_steps[i].word))
            continue;
        struct step *step = &pre->steps[pre->steps_count++];
        buffer_init(&step->scratch, TEXT_BYTES_MAX);
        step->kind = plain_steps[i].kind;
        pre->bytes = pre->bytes || step->kind == STEP_BYTES;
        return 0;
    }
    if (begins(text, bytes, "Metaspace") && bytes > 10)
        return add_metaspace(pre, text + 10, bytes - 10, err);
    for (int mode = 0; mode < CUT_MODES; mode++) {
        size_t word_bytes = strlen(cut_words[mode]);
        if (begins(text, bytes, cut_words[mode]) && bytes > word_bytes)
            return add_pattern(pre, (enum cut_mode)mode, text + word_bytes + 1,
                               bytes - word_bytes - 1, err);
    }
    return errmsg_set(err, -ENOTSUP,
                      "unknown pre-tokenizer step '%.*s'; known: Split Keep Remove Contiguous "
                      "MergePrevious MergeNext PrefixSpace Whole Bytes Metaspace",
                      (int)(bytes > 100 ? 100 : bytes), text);
}

int pretokenizer_new(const struct model_card *card, struct unicode *unicode,
                     struct pretokenizer **ret_pretokenizer, struct pretokenize_traits *ret_traits,
                     struct errmsg *err)
{
    struct pretokenizer *pre = mem_zalloc(sizeof(*pre));
    struct pretokenize_traits traits = {0};
    int r = 0;
    pre->unicode = unicode;
    if (card->pretokenizers.count > MODEL_CARD_STEPS_MAX)
        r = errmsg_set(err, -EINVAL, "%u pre-tokenizer steps, at most %u",
                       card->pretokenizers.count, MODEL_CARD_STEPS_MAX);
    for (uint32_t i = 0; r == 0 && i < card->pretokenizers.count; i++) {
        size_t bytes = 0;
        const char *text = string_table_get(&card->pretokenizers, i, &bytes);
        r = add_step(pre, text, bytes, err);
    }
    if (r == 0 && card->pretokenizers.count == 0 && card->tokenizer == TOKENIZER_BPE)
        r = add_named(pre, card->pre, &traits, err);
    if (r < 0) {
        pretokenizer_free(pre);
        return r;
    }
    *ret_pretokenizer = pre;
    *ret_traits = traits;
    return 0;
}

void pretokenizer_free(struct pretokenizer *pre)
{
    if (pre == NULL)
        return;
    for (uint32_t i = 0; i < pre->steps_count; i++) {
        mem_free(pre->steps[i].pattern);
        regex_free(pre->steps[i].regex);
        buffer_done(&pre->steps[i].scratch);
    }
    mem_free(pre);
}

bool pretokenizer_is_whole(const struct pretokenizer *pre)
{
    return pre->steps_count == 0;
}

bool pretokenizer_gives_alphabet(const struct pretokenizer *pre)
{
    return pre->bytes;
}

void pretokenizer_use_regex_only(struct pretokenizer *pre)
{
    for (uint32_t i = 0; i < pre->steps_count; i++) {
        struct step *step = &pre->steps[i];
        if (step->kind != STEP_SCAN && step->kind != STEP_TRAILING_SPACE)
            continue;
        if (step->regex == NULL) {
            int r = step_compile(step, NULL);
            ASSERT(r == 0);
        }
        step->kind = STEP_REGEX;
    }
}

/* --- cutting --------------------------------------------------------------------------------- */

struct split {
    struct pretokenizer *pre;
    pretokenize_word_fn word;
    void *owner;
};

/* A piece; at_start: it begins where the whole text begins. */
struct piece {
    const char *text;
    size_t bytes;
    bool at_start;
};

static int split_piece(const struct split *split, uint32_t at_step, struct piece piece);

static int emit(const struct split *split, uint32_t at_step, const struct piece *whole,
                size_t start, size_t end)
{
    if (start == end)
        return 0;
    if (at_step + 1 == split->pre->steps_count)
        return split->word(split->owner, whole->text + start, end - start);
    return split_piece(
        split, at_step + 1,
        (struct piece){whole->text + start, end - start, whole->at_start && start == 0});
}

/* Pieces of one step on their way to the next. What is held is [start, end). */
struct cut {
    const struct split *split;
    const struct piece *whole;
    uint32_t at_step;
    enum cut_mode mode;
    size_t start, end;
    bool held_match;
};

static int cut_flush(struct cut *cut)
{
    size_t start = cut->start, end = cut->end;
    cut->start = cut->end;
    return emit(cut->split, cut->at_step, cut->whole, start, end);
}

/* The next range [cut->end, end): a match, or what lies between. In order, nothing left out. */
static int cut_feed(struct cut *cut, size_t end, bool match)
{
    bool joins = false, dropped = false;
    if (end == cut->end)
        return 0;
    switch (cut->mode) {
    case CUT_SPLIT:
        break;
    case CUT_KEEP:
        dropped = !match;
        break;
    case CUT_REMOVE:
        dropped = match;
        break;
    case CUT_CONTIGUOUS:
        joins = match && cut->held_match;
        break;
    case CUT_MERGE_PREVIOUS:
        joins = match && !cut->held_match;
        break;
    default:
        joins = !match && cut->held_match;
        break;
    }
    int r = joins ? 0 : cut_flush(cut);
    cut->end = end;
    cut->held_match = match;
    if (dropped)
        cut->start = end;
    return r;
}

static int split_by_scan(struct cut *cut)
{
    const struct pretokenize_scanner *scanner = cut->split->pre->steps[cut->at_step].scanner;
    struct unicode *unicode = cut->split->pre->unicode;
    const char *text = cut->whole->text;
    size_t bytes = cut->whole->bytes;
    int r = 0;
    for (size_t at = 0; at < bytes && r == 0;) {
        size_t end = scanner->scan(unicode, text, at, bytes, &scanner->rules);
        if (end == at) { /* nothing starts here: it belongs to the gap */
            uint32_t length = 0;
            (void)utf8_decode(text + at, &length);
            at += length;
            continue;
        }
        r = cut_feed(cut, at, false);
        if (r == 0)
            r = cut_feed(cut, end, true);
        at = end;
    }
    return r;
}

/* A regex engine tries \s+$ at every white space of every run; one pass finds the last run. */
static int split_trailing_space(struct cut *cut)
{
    const char *text = cut->whole->text;
    size_t bytes = cut->whole->bytes, space = bytes; /* where the run that we are in began */
    for (size_t at = 0; at < bytes;) {
        uint32_t length = 0;
        uint16_t bits = unicode_bits(cut->split->pre->unicode, utf8_decode(text + at, &length));
        if ((bits & CP_SPACE) == 0)
            space = bytes;
        else if (space == bytes)
            space = at;
        at += length;
    }
    int r = cut_feed(cut, space, false);
    return r == 0 ? cut_feed(cut, bytes, true) : r;
}

static int split_by_regex(struct cut *cut)
{
    struct regex *regex = cut->split->pre->steps[cut->at_step].regex;
    size_t at = 0, start = 0, end = 0, bytes = cut->whole->bytes;
    int r = 0;
    while (r == 0 && at < bytes && regex_find(regex, cut->whole->text, bytes, at, &start, &end)) {
        r = cut_feed(cut, start, false);
        if (r == 0)
            r = cut_feed(cut, end, true);
        at = end;
    }
    return r;
}

static struct buffer *clear_scratch(struct step *step)
{
    buffer_trim(&step->scratch, SCRATCH_KEPT);
    return &step->scratch;
}

static int take_scratch(const struct step *step, struct piece *piece)
{
    if (buffer_finish(&step->scratch) < 0)
        return -E2BIG;
    piece->text = step->scratch.data;
    piece->bytes = step->scratch.bytes;
    return 0;
}

/* The piece with a space in front of it. */
static int prefix_space(struct step *step, struct piece *piece)
{
    struct buffer *scratch = clear_scratch(step);
    buffer_append_char(scratch, ' ');
    buffer_append(scratch, piece->text, piece->bytes);
    return take_scratch(step, piece);
}

static int to_alphabet(struct step *step, struct piece *piece)
{
    struct buffer *scratch = clear_scratch(step);
    for (size_t i = 0; i < piece->bytes; i++) {
        char text[4];
        uint32_t cp = token_text_alphabet((unsigned char)piece->text[i]);
        buffer_append(scratch, text, utf8_encode(cp, text));
    }
    return take_scratch(step, piece);
}

/* Each space (or U+2581, which is the same) begins a word. Always the last step. */
static int split_metaspace(const struct split *split, uint32_t at_step, struct piece piece)
{
    struct step *step = &split->pre->steps[at_step];
    bool wanted =
        step->prefix == METASPACE_ALWAYS || (step->prefix == METASPACE_FIRST && piece.at_start);
    int r = 0;
    if (wanted && metaspace_length(piece.text, piece.bytes) == 0)
        r = prefix_space(step, &piece);
    if (!step->metaspace_split)
        return r < 0 ? r : emit(split, at_step, &piece, 0, piece.bytes);
    for (size_t at = 0; r == 0 && at < piece.bytes;) {
        size_t end = metaspace_find(piece.text, piece.bytes, at + 1);
        r = emit(split, at_step, &piece, at, end);
        at = end;
    }
    return r;
}

static int split_piece(const struct split *split, uint32_t at_step, struct piece piece)
{
    struct step *step = &split->pre->steps[at_step];
    struct cut cut = {.split = split, .whole = &piece, .at_step = at_step, .mode = step->mode};
    int r = 0;
    switch (step->kind) {
    case STEP_SCAN:
        r = split_by_scan(&cut);
        break;
    case STEP_TRAILING_SPACE:
        r = split_trailing_space(&cut);
        break;
    case STEP_PREFIX_SPACE:
        if (piece.text[0] != ' ')
            r = prefix_space(step, &piece);
        return r < 0 ? r : emit(split, at_step, &piece, 0, piece.bytes);
    case STEP_WHOLE:
        return emit(split, at_step, &piece, 0, piece.bytes);
    case STEP_BYTES:
        r = to_alphabet(step, &piece);
        return r < 0 ? r : emit(split, at_step, &piece, 0, piece.bytes);
    case STEP_METASPACE:
        return split_metaspace(split, at_step, piece);
    default:
        r = split_by_regex(&cut);
        break;
    }
    if (r == 0)
        r = cut_feed(&cut, piece.bytes, false);
    return r == 0 ? cut_flush(&cut) : r;
}

int pretokenizer_split(struct pretokenizer *pre, const char *text, size_t bytes, bool at_start,
                       pretokenize_word_fn word, void *owner)
{
    const struct split split = {.pre = pre, .word = word, .owner = owner};
    if (bytes == 0)
        return 0;
    if (pre->steps_count == 0)
        return word(owner, text, bytes);
    return split_piece(&split, 0, (struct piece){text, bytes, at_start});
}
