/* pretokenize_names.c - which patterns a name stands for, and which patterns have a scanner.
 *
 * Two notations of one pattern are two rows of `scanners`. The patterns of a name are those of that
 * model's own tokenizer.json. */
#include "router/text/pretokenize_names.h"

#include <errno.h>
#include <string.h>

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

static const struct pretokenize_scanner scanners[] = {
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

/* GGUF's tokenizer.ggml.pre, in llama.cpp's names. */
static const struct pretokenize_name pre_names[] = {
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

const struct pretokenize_scanner *pretokenize_scanner(const char *pattern)
{
    for (size_t i = 0; i < sizeof(scanners) / sizeof(scanners[0]); i++) {
        if (strcmp(scanners[i].pattern, pattern) == 0)
            return &scanners[i];
    }
    return NULL;
}

bool pretokenize_is_newline(const char *pattern)
{
    return strcmp(pattern, NEWLINE) == 0 || strcmp(pattern, NEWLINE_ESCAPED) == 0;
}

bool pretokenize_is_trailing_space(const char *pattern)
{
    return strcmp(pattern, TRAILING_SPACE) == 0;
}

const struct pretokenize_name *pretokenize_name(const char *name, struct errmsg *err)
{
    char list[ERRMSG_MAX] = "";
    size_t used = 0;
    for (size_t i = 0; i < sizeof(pre_names) / sizeof(pre_names[0]); i++) {
        if (strcmp(pre_names[i].name, name) == 0)
            return &pre_names[i];
    }
    for (size_t i = 0; i < sizeof(pre_names) / sizeof(pre_names[0]); i++) {
        size_t bytes = strlen(pre_names[i].name);
        if (used + bytes + 2 > sizeof(list))
            break;
        memcpy(list + used, pre_names[i].name, bytes);
        list[used + bytes] = ' ';
        used += bytes + 1;
        list[used] = '\0';
    }
    (void)errmsg_set(err, -ENOTSUP, "unknown pre-tokenizer '%s'; known: %s", name, list);
    return NULL;
}
