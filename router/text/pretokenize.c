/* pretokenize.c - which patterns a model cuts its text with, and cutting.
 *
 *   text --pattern 0--> pieces --pattern 1--> pieces ... --> words       (depth first, no lists)
 *
 * A pattern whose text is known runs as a hand-written scanner (pretokenize_scan.c); any other is
 * compiled by PCRE2 with JIT. `\s` is rewritten on the way to the White_Space property, because
 * PCRE2's own \s also takes U+180E. Two notations of one pattern are two rows of `scanners`.
 *
 * Cost: scanners are linear. So is PCRE2 for every pattern in the tables; a pattern from a model's
 * own file is as good as its author made it, bounded by MATCH_LIMIT per start. When PCRE2 gives up,
 * the rest of the piece is one word. Invariant: the words joined are the text, whatever the
 * patterns do. */
#include "router/text/pretokenize.h"

#include <errno.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "proto/base/assert.h"
#include "proto/base/buffer.h"
#include "proto/base/mem.h"
#include "router/text/pretokenize_scan.h"

#define MATCH_LIMIT 10000000u
#define JIT_STACK_MIN (32u << 10)
#define JIT_STACK_MAX (4u << 20)
#define PATTERN_BYTES_MAX (64u << 10)
#define WHITE_SPACE                                                                             \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}" \
    "\\x{205f}\\x{3000}"

#define NEWLINE "[\r\n]"
#define NEWLINE_ESCAPED "[\\r\\n]"
#define DIGIT "\\p{N}"
#define DIGITS "\\p{N}+"
#define DIGITS_3 "\\p{N}{1,3}"
#define TRAILING_SPACE "\\s+$"
#define SPACES "\\s+(?!\\S)|\\s+"
#define GPT2_SHORT "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)"
#define GPT2 GPT2_SHORT "|\\s+"
#define ANY_CASE "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define OTHERS "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|" SPACES
#define LLAMA3 ANY_CASE "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}" OTHERS
#define CL100K                                                         \
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}{1,3}" \
    "| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|" SPACES
#define QWEN2 ANY_CASE "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" OTHERS
#define QWEN35                                               \
    ANY_CASE "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}" \
             "| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|" SPACES
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(suffix)                                                                             \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" suffix "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER \
    "*" suffix
#define OTHERS_SLASH "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|" SPACES
#define O200K CASED(ANY_CASE "?") "|\\p{N}{1,3}" OTHERS_SLASH
#define TEKKEN CASED("") "|\\p{N}" OTHERS_SLASH
#define DEEPSEEK3                                           \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+" \
    "|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|" SPACES
/* In escapes, because editors like to normalise some of these characters into others. */
#define DEEPSEEK_LETTERS                                                                        \
    "\\s?[A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}"         \
    "\\x{1c4}-\\x{293}\\x{295}-\\x{2af}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}"      \
    "\\x{37f}\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}\\x{3a3}-\\x{3f5}"               \
    "\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}\\x{13a0}-\\x{13f5}" \
    "\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}\\x{1d00}-\\x{1d2b}"              \
    "\\x{1d6b}-\\x{1d77}\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}"              \
    "\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}\\x{1f50}-\\x{1f57}\\x{1f59}\\x{1f5b}\\x{1f5d}"      \
    "\\x{1f5f}-\\x{1f7d}\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}\\x{1fc2}-\\x{1fc4}"     \
    "\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}"              \
    "\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}\\x{210a}-\\x{2113}\\x{2115}"      \
    "\\x{2119}-\\x{211d}\\x{2124}\\x{2126}\\x{2128}\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}"      \
    "\\x{2139}\\x{213c}-\\x{213f}\\x{2145}-\\x{2149}\\x{214e}\\x{2183}\\x{2184}"                \
    "\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}\\x{2ceb}-\\x{2cee}\\x{2cf2}\\x{2cf3}"               \
    "\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}\\x{a771}-\\x{a787}"              \
    "\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}\\x{fb00}-\\x{fb06}\\x{fb13}-\\x{fb17}"              \
    "\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}\\x{104b0}-\\x{104d3}"          \
    "\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}"      \
    "\\x{1e900}-\\x{1e943}]+"
#define DEEPSEEK_PUNCT "\\s?[!-/:-~！-／：-～‘-‟　-。]+"
#define DEEPSEEK_CJK "[一-龥ࠀ-一가-퟿]+"
#define FALCON_PUNCT "[\\p{P}\\$\\+<=>\\^~\\|`]+"
#define BLOOM " ?[^(\\s|.,!?…。，、।۔،)]+"

struct scanner {
    const char *pattern;
    scan_fn scan;
    struct scan_rules rules;
};

static const struct scanner scanners[] = {
    {GPT2, scan_gpt2, {0}},
    {GPT2_SHORT, scan_gpt2, {0}}, /* the space it leaves between two words is a piece as well */
    {LLAMA3, scan_llama3, {.letters = CP_LETTER, .digits_max = 3}},
    {CL100K, scan_llama3, {.letters = CP_LETTER, .digits_max = 3}},
    {QWEN2, scan_llama3, {.letters = CP_LETTER, .digits_max = 1}},
    {QWEN35, scan_llama3, {.letters = CP_LETTER | CP_MARK, .digits_max = 1}},
    {O200K,
     scan_o200k,
     {.letters = CP_LETTER, .digits_max = 3, .contraction_suffix = true, .slash = true}},
    {TEKKEN, scan_o200k, {.letters = CP_LETTER, .digits_max = 1, .slash = true}},
    {DEEPSEEK3, scan_deepseek3, {0}},
    {DIGIT, scan_digits, {.digits_max = 1}},
    {DIGITS, scan_digits, {.digits_max = UINT32_MAX}},
    {DIGITS_3, scan_digits, {.digits_max = 3}},
    {NEWLINE, scan_newline, {0}},
    {NEWLINE_ESCAPED, scan_newline, {0}},
};

struct pre_name {
    const char *name;
    const char *patterns[6];
    struct pretokenize_traits traits;
};

/* GGUF's tokenizer.ggml.pre (llama.cpp's names) -> the patterns of that model's own tokenizer.json.
 */
static const struct pre_name pre_names[] = {
    {"gpt-2", {GPT2}, {0}},
    {"default", {GPT2}, {0}}, /* the converter did not know: the commonest guess */
    {"phi-2", {GPT2}, {0}},
    {"mpt", {GPT2}, {0}},
    {"olmo", {GPT2}, {0}},
    {"jais", {GPT2}, {0}},
    {"trillion", {GPT2}, {0}},
    {"granite-docling", {GPT2}, {0}},
    {"gigachat", {GPT2}, {0}},
    {"a.x-4.0", {GPT2}, {0}},
    {"mellum", {GPT2}, {0}},
    {"starcoder", {DIGIT, GPT2}, {0}},
    {"smollm", {DIGIT, GPT2}, {0}},
    {"refact", {DIGIT, GPT2}, {0}},
    {"command-r", {DIGIT, GPT2}, {0}},
    {"codeshell", {DIGIT, GPT2}, {0}},
    {"exaone", {DIGIT, GPT2}, {0}},
    {"minerva-7b", {DIGIT, GPT2}, {0}},
    {"llama-bpe", {LLAMA3}, {.ignore_merges = true}},
    {"llama3", {LLAMA3}, {.ignore_merges = true}},
    {"llama-v3", {LLAMA3}, {.ignore_merges = true}},
    {"falcon3", {LLAMA3}, {.ignore_merges = true}},
    {"falcon-h1", {LLAMA3}, {.ignore_merges = true}},
    {"pixtral", {LLAMA3}, {.ignore_merges = true}},
    {"lfm2", {LLAMA3}, {.ignore_merges = true}},
    {"midm-2.0", {LLAMA3}, {.ignore_merges = true}},
    {"dbrx", {LLAMA3}, {0}},
    {"smaug-bpe", {LLAMA3}, {0}},
    {"glm4", {LLAMA3}, {0}},
    {"chatglm-bpe", {LLAMA3}, {0}},
    {"phi-4", {LLAMA3}, {0}},
    {"cl100k", {LLAMA3}, {0}},
    {"qwen2", {QWEN2}, {.normalize_nfc = true}},
    {"qwen35", {QWEN35}, {.normalize_nfc = true}},
    {"deepseek-r1-qwen", {QWEN2}, {0}},
    {"stablelm2", {QWEN2}, {0}},
    {"hunyuan", {QWEN2}, {0}},
    {"megrez", {QWEN2}, {0}},
    {"gpt-4o", {O200K}, {0}},
    {"o200k", {O200K}, {0}},
    {"llama4", {O200K}, {0}},
    {"tekken", {TEKKEN}, {.ignore_merges = true}},
    {"deepseek-llm",
     {NEWLINE, DEEPSEEK_LETTERS, DEEPSEEK_PUNCT, TRAILING_SPACE, DEEPSEEK_CJK, DIGIT},
     {0}},
    {"deepseek-coder", {NEWLINE, "\\s?\\p{L}+", "\\s?\\p{P}+", DEEPSEEK_CJK, DIGIT}, {0}},
    {"deepseek-v3", {DIGITS_3, "[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK3}, {0}},
    {"hunyuan-dense", {DIGITS_3, "[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK3}, {0}},
    {"falcon", {FALCON_PUNCT, GPT2, "[0-9][0-9][0-9]"}, {0}},
    {"bloom", {BLOOM}, {0}},
    {"poro-chat", {BLOOM}, {0}},
    {"gpt3-finnish", {BLOOM}, {0}},
    {"viking", {BLOOM, DIGIT}, {0}},
};

enum step_kind { STEP_REGEX = 0, STEP_SCAN, STEP_TRAILING_SPACE };

struct step {
    enum step_kind kind;
    const struct scanner *scanner;
    char *pattern;
    pcre2_code *code; /* compiled when needed */
};

struct pretokenizer {
    struct unicode *unicode;
    struct step steps[PRETOKENIZE_PATTERNS_MAX];
    uint32_t steps_count;
    pcre2_match_data *match; /* NULL: no step needs PCRE2 */
    pcre2_match_context *context;
    pcre2_jit_stack *jit_stack;
};

/* --- setting up ------------------------------------------------------------------------------ */

/* \s and \S -> White_Space; everything else as it is. \S inside [] stays PCRE2's own. */
static void rewrite_white_space(const char *pattern, struct buffer *out)
{
    bool in_class = false;
    for (const char *at = pattern; *at != '\0'; at++) {
        if (*at == '\\' && at[1] == 's') {
            buffer_append_text(out, in_class ? WHITE_SPACE : "[" WHITE_SPACE "]");
            at++;
        } else if (*at == '\\' && at[1] == 'S' && !in_class) {
            buffer_append_text(out, "[^" WHITE_SPACE "]");
            at++;
        } else if (*at == '\\' && at[1] != '\0') {
            buffer_append(out, at, 2);
            at++;
        } else {
            if (*at == '[' && !in_class)
                in_class = true;
            else if (*at == ']' && in_class)
                in_class = false;
            buffer_append_char(out, *at);
        }
    }
}

static int compile(const char *pattern, pcre2_code **ret_code, struct errmsg *err)
{
    struct buffer text;
    PCRE2_SIZE offset = 0;
    int code = 0, r = 0;
    buffer_init(&text, PATTERN_BYTES_MAX);
    rewrite_white_space(pattern, &text);
    if (buffer_finish(&text) < 0) {
        r = errmsg_set(err, -EINVAL, "pre-tokenizer pattern is longer than %u bytes",
                       PATTERN_BYTES_MAX);
        goto out;
    }
    pcre2_code *compiled =
        pcre2_compile((PCRE2_SPTR)text.data, text.bytes,
                      PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &code, &offset, NULL);
    if (compiled == NULL) {
        PCRE2_UCHAR why[128] = "";
        (void)pcre2_get_error_message(code, why, sizeof(why));
        r = errmsg_set(err, -EINVAL, "pre-tokenizer pattern '%.100s': %s", pattern,
                       (const char *)why);
        goto out;
    }
    (void)pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE); /* without JIT it is only slower */
    *ret_code = compiled;
out:
    buffer_done(&text);
    return r;
}

static int step_compile(struct pretokenizer *pre, struct step *step, struct errmsg *err)
{
    int r = compile(step->pattern, &step->code, err);
    if (r < 0 || pre->match != NULL)
        return r;
    pre->match = pcre2_match_data_create(1, NULL);
    pre->context = pcre2_match_context_create(NULL);
    pre->jit_stack = pcre2_jit_stack_create(JIT_STACK_MIN, JIT_STACK_MAX, NULL);
    ASSERT(pre->match != NULL && pre->context != NULL);
    (void)pcre2_set_match_limit(pre->context, MATCH_LIMIT);
    pcre2_jit_stack_assign(pre->context, NULL, pre->jit_stack);
    return 0;
}

static int add_step(struct pretokenizer *pre, const char *pattern, size_t bytes, struct errmsg *err)
{
    ASSERT(pre->steps_count < PRETOKENIZE_PATTERNS_MAX);
    if (bytes == 0 || memchr(pattern, '\0', bytes) != NULL)
        return errmsg_set(err, -EINVAL, "pre-tokenizer pattern %u is empty or holds a NUL",
                          pre->steps_count);
    struct step *step = &pre->steps[pre->steps_count++];
    step->pattern = mem_strndup(pattern, bytes);
    for (size_t i = 0; i < sizeof(scanners) / sizeof(scanners[0]); i++) {
        if (strcmp(scanners[i].pattern, step->pattern) == 0) {
            step->kind = STEP_SCAN;
            step->scanner = &scanners[i];
            return 0;
        }
    }
    if (strcmp(step->pattern, TRAILING_SPACE) == 0) {
        step->kind = STEP_TRAILING_SPACE;
        return 0;
    }
    step->kind = STEP_REGEX;
    return step_compile(pre, step, err);
}

static int unknown_name(const char *name, struct errmsg *err)
{
    char list[ERRMSG_MAX] = "";
    size_t used = 0;
    for (size_t i = 0; i < sizeof(pre_names) / sizeof(pre_names[0]); i++) {
        size_t bytes = strlen(pre_names[i].name);
        if (used + bytes + 2 > sizeof(list))
            break;
        memcpy(list + used, pre_names[i].name, bytes);
        list[used + bytes] = ' ';
        used += bytes + 1;
        list[used] = '\0';
    }
    return errmsg_set(err, -ENOTSUP, "unknown pre-tokenizer '%s'; known: %s", name, list);
}

static int add_named(struct pretokenizer *pre, const char *name, struct pretokenize_traits *traits,
                     struct errmsg *err)
{
    if (name == NULL || name[0] == '\0')
        name = "default";
    for (size_t i = 0; i < sizeof(pre_names) / sizeof(pre_names[0]); i++) {
        const struct pre_name *row = &pre_names[i];
        if (strcmp(row->name, name) != 0)
            continue;
        *traits = row->traits;
        for (size_t p = 0; p < 6 && row->patterns[p] != NULL; p++) {
            int r = add_step(pre, row->patterns[p], strlen(row->patterns[p]), err);
            if (r < 0)
                return r;
        }
        return 0;
    }
    return unknown_name(name, err);
}

int pretokenizer_new(const struct model_card *card, struct unicode *unicode,
                     struct pretokenizer **ret_pretokenizer, struct pretokenize_traits *ret_traits,
                     struct errmsg *err)
{
    struct pretokenizer *pre = mem_zalloc(sizeof(*pre));
    struct pretokenize_traits traits = {0};
    int r = 0;
    pre->unicode = unicode;
    if (card->patterns.count > PRETOKENIZE_PATTERNS_MAX)
        r = errmsg_set(err, -EINVAL, "%u pre-tokenizer patterns, at most %u", card->patterns.count,
                       PRETOKENIZE_PATTERNS_MAX);
    for (uint32_t i = 0; r == 0 && i < card->patterns.count; i++) {
        size_t bytes = 0;
        const char *pattern = string_table_get(&card->patterns, i, &bytes);
        r = add_step(pre, pattern, bytes, err);
    }
    if (r == 0 && card->patterns.count == 0)
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
        pcre2_code_free(pre->steps[i].code);
    }
    pcre2_match_data_free(pre->match);
    pcre2_match_context_free(pre->context);
    pcre2_jit_stack_free(pre->jit_stack);
    mem_free(pre);
}

void pretokenizer_use_regex_only(struct pretokenizer *pre)
{
    for (uint32_t i = 0; i < pre->steps_count; i++) {
        struct step *step = &pre->steps[i];
        if (step->code == NULL) {
            int r = step_compile(pre, step, NULL);
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

static int split_piece(const struct split *split, uint32_t at_step, const char *text, size_t bytes);

static int emit(const struct split *split, uint32_t at_step, const char *text, size_t start,
                size_t end)
{
    if (start == end)
        return 0;
    if (at_step + 1 == split->pre->steps_count)
        return split->word(split->owner, text + start, end - start);
    return split_piece(split, at_step + 1, text + start, end - start);
}

static int split_by_scan(const struct split *split, uint32_t at_step, const char *text,
                         size_t bytes)
{
    const struct scanner *scanner = split->pre->steps[at_step].scanner;
    size_t gap = 0;
    int r = 0;
    for (size_t at = 0; at < bytes && r == 0;) {
        size_t end = scanner->scan(split->pre->unicode, text, at, bytes, &scanner->rules);
        if (end == at) { /* nothing starts here: it belongs to the gap */
            uint32_t length = 0;
            (void)utf8_decode(text + at, &length);
            at += length;
            continue;
        }
        r = emit(split, at_step, text, gap, at);
        if (r == 0)
            r = emit(split, at_step, text, at, end);
        at = gap = end;
    }
    return r == 0 ? emit(split, at_step, text, gap, bytes) : r;
}

/* A regex engine tries \s+$ at every white space of every run; one pass finds the last run. */
static int split_trailing_space(const struct split *split, uint32_t at_step, const char *text,
                                size_t bytes)
{
    size_t space = bytes; /* where the run of white space that we are in began */
    for (size_t at = 0; at < bytes;) {
        uint32_t length = 0;
        bool is_space =
            (unicode_bits(split->pre->unicode, utf8_decode(text + at, &length)) & CP_SPACE) != 0;
        if (!is_space)
            space = bytes;
        else if (space == bytes)
            space = at;
        at += length;
    }
    int r = emit(split, at_step, text, 0, space);
    return r == 0 ? emit(split, at_step, text, space, bytes) : r;
}

static int split_by_regex(const struct split *split, uint32_t at_step, const char *text,
                          size_t bytes)
{
    struct pretokenizer *pre = split->pre;
    size_t at = 0;
    while (at < bytes) {
        int found = pcre2_match(pre->steps[at_step].code, (PCRE2_SPTR)text, bytes, at,
                                PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, pre->match, pre->context);
        if (found < 0)
            break;
        const PCRE2_SIZE *range = pcre2_get_ovector_pointer(pre->match);
        size_t start = range[0], end = range[1]; /* copied: the next step uses the same memory */
        if (start < at || end <= start)
            break; /* \K in a lookaround can do that */
        int r = emit(split, at_step, text, at, start);
        if (r == 0)
            r = emit(split, at_step, text, start, end);
        if (r != 0)
            return r;
        at = end;
    }
    return emit(split, at_step, text, at, bytes);
}

static int split_piece(const struct split *split, uint32_t at_step, const char *text, size_t bytes)
{
    switch (split->pre->steps[at_step].kind) {
    case STEP_SCAN:
        return split_by_scan(split, at_step, text, bytes);
    case STEP_TRAILING_SPACE:
        return split_trailing_space(split, at_step, text, bytes);
    default:
        return split_by_regex(split, at_step, text, bytes);
    }
}

int pretokenizer_split(struct pretokenizer *pre, const char *text, size_t bytes,
                       pretokenize_word_fn word, void *owner)
{
    const struct split split = {.pre = pre, .word = word, .owner = owner};
    ASSERT(pre->steps_count > 0);
    return bytes == 0 ? 0 : split_piece(&split, 0, text, bytes);
}
