/* regex.c - the differences between Oniguruma (what tokenizer.json is written for) and PCRE2.
 *
 *   \s \S   Unicode White_Space; PCRE2's also take U+180E
 *   \w \b   letters, marks, digits, letter numbers, connectors, circled letters; PCRE2's leave out
 *           the marks
 *   \uHHHH  PCRE2 writes \x{HHHH}
 *   ^ $     at every line, as in Ruby
 * What reads differently and cannot be written the other way is refused: nested classes, &&, {n,m}+
 * (possessive here, repeated there), \h.
 *
 * Cost: as good as the pattern's author made it, bounded by MATCH_LIMIT per start. */
#include "router/text/regex.h"

#include <errno.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "proto/base/assert.h"
#include "proto/base/buffer.h"
#include "proto/base/mem.h"

#define MATCH_LIMIT 10000000u
#define JIT_STACK_MIN (32u << 10)
#define JIT_STACK_MAX (4u << 20)
#define PATTERN_BYTES_MAX (64u << 10)
#define WHITE_SPACE                                                                             \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}" \
    "\\x{205f}\\x{3000}"
#define WORD                                                                    \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}" \
    "\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}"
#define WORD_BORDER "(?:(?<=[" WORD "])(?![" WORD "])|(?<![" WORD "])(?=[" WORD "]))"

struct regex {
    pcre2_code *code;
    pcre2_match_data *match;
    pcre2_match_context *context;
    pcre2_jit_stack *jit_stack;
};

/* One escape that reads differently; 0: as it is, else bytes of the pattern used up. */
static size_t rewrite_escape(const char *at, size_t left, bool in_class, struct buffer *out)
{
    switch (left < 2 ? '\0' : at[1]) {
    case 's':
        buffer_append_text(out, in_class ? WHITE_SPACE : "[" WHITE_SPACE "]");
        return 2;
    case 'S': /* inside [] it stays PCRE2's own */
        buffer_append_text(out, in_class ? "\\S" : "[^" WHITE_SPACE "]");
        return 2;
    case 'w':
        buffer_append_text(out, in_class ? WORD : "[" WORD "]");
        return 2;
    case 'W':
        buffer_append_text(out, in_class ? "\\W" : "[^" WORD "]");
        return 2;
    case 'b':
        if (in_class)
            return 0;
        buffer_append_text(out, WORD_BORDER);
        return 2;
    case 'u':
        if (left < 6)
            return 0;
        buffer_append_text(out, "\\x{");
        buffer_append(out, at + 2, 4);
        buffer_append_text(out, "}");
        return 6;
    default:
        return 0;
    }
}

/* What PCRE2 would take without a word but read in another way; NULL: nothing. */
static const char *reads_differently(const char *at, size_t left, bool in_class)
{
    if (in_class && left >= 2 && at[0] == '[' && at[1] != ':')
        return "a class inside a class";
    if (in_class && left >= 2 && at[0] == '&' && at[1] == '&')
        return "&& inside a class";
    if (left >= 2 && at[0] == '\\' && (at[1] == 'h' || at[1] == 'H'))
        return "\\h";
    if (in_class && left >= 2 && at[0] == '\\' && at[1] == 'W')
        return "\\W inside a class";
    if (!in_class && at[0] == '{' && left >= 3 && at[1] >= '0' && at[1] <= '9') {
        size_t end = 1;
        while (end < left && ((at[end] >= '0' && at[end] <= '9') || at[end] == ','))
            end++;
        if (end + 1 < left && at[end] == '}' && at[end + 1] == '+')
            return "{n,m}+";
    }
    return NULL;
}

static int rewrite(const char *pattern, size_t bytes, struct buffer *out, struct errmsg *err)
{
    bool in_class = false;
    size_t class_start = 0;
    for (size_t at = 0; at < bytes;) {
        const char *odd = reads_differently(pattern + at, bytes - at, in_class);
        if (odd != NULL)
            return errmsg_set(err, -ENOTSUP,
                              "pattern '%.*s': %s at byte %zu means another thing in Oniguruma "
                              "than in PCRE2",
                              (int)(bytes > 100 ? 100 : bytes), pattern, odd, at);
        if (pattern[at] == '\\') {
            size_t used = rewrite_escape(pattern + at, bytes - at, in_class, out);
            if (used == 0) {
                used = bytes - at < 2 ? 1 : 2;
                buffer_append(out, pattern + at, used);
            }
            at += used;
            continue;
        }
        if (in_class && pattern[at] == '[') { /* [:alpha:] */
            buffer_append(out, "[:", 2);
            for (at += 2; at < bytes && pattern[at] != ']'; at++)
                buffer_append_char(out, pattern[at]);
        } else if (pattern[at] == '[') {
            in_class = true;
            class_start = at + (at + 1 < bytes && pattern[at + 1] == '^' ? 2 : 1);
        } else if (pattern[at] == ']' && in_class && at > class_start) {
            in_class = false;
        }
        if (at < bytes)
            buffer_append_char(out, pattern[at++]);
    }
    return buffer_finish(out) == 0
               ? 0
               : errmsg_set(err, -EINVAL, "a pattern is longer than %u bytes", PATTERN_BYTES_MAX);
}

static int compile(struct regex *regex, const char *pattern, size_t bytes, struct errmsg *err)
{
    struct buffer text;
    PCRE2_SIZE offset = 0;
    int code = 0;
    buffer_init(&text, PATTERN_BYTES_MAX);
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    ASSERT(context != NULL);
    (void)pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    int r = rewrite(pattern, bytes, &text, err);
    if (r < 0)
        goto out;
    regex->code = pcre2_compile((PCRE2_SPTR)text.data, text.bytes,
                                PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                                &code, &offset, context);
    if (regex->code == NULL) {
        PCRE2_UCHAR why[128] = "";
        (void)pcre2_get_error_message(code, why, sizeof(why));
        r = errmsg_set(err, -EINVAL, "pattern '%.*s': %s", (int)(bytes > 100 ? 100 : bytes),
                       pattern, (const char *)why);
        goto out;
    }
    (void)pcre2_jit_compile(regex->code, PCRE2_JIT_COMPLETE); /* without JIT it is only slower */
out:
    pcre2_compile_context_free(context);
    buffer_done(&text);
    return r;
}

int regex_new(const char *pattern, size_t bytes, struct regex **ret_regex, struct errmsg *err)
{
    struct regex *regex = mem_zalloc(sizeof(*regex));
    int r = compile(regex, pattern, bytes, err);
    if (r < 0) {
        regex_free(regex);
        return r;
    }
    regex->match = pcre2_match_data_create(1, NULL);
    regex->context = pcre2_match_context_create(NULL);
    regex->jit_stack = pcre2_jit_stack_create(JIT_STACK_MIN, JIT_STACK_MAX, NULL);
    ASSERT(regex->match != NULL && regex->context != NULL);
    (void)pcre2_set_match_limit(regex->context, MATCH_LIMIT);
    pcre2_jit_stack_assign(regex->context, NULL, regex->jit_stack);
    *ret_regex = regex;
    return 0;
}

void regex_free(struct regex *regex)
{
    if (regex == NULL)
        return;
    pcre2_code_free(regex->code);
    pcre2_match_data_free(regex->match);
    pcre2_match_context_free(regex->context);
    pcre2_jit_stack_free(regex->jit_stack);
    mem_free(regex);
}

bool regex_find(struct regex *regex, const char *text, size_t bytes, size_t at, size_t *ret_start,
                size_t *ret_end)
{
    int found = pcre2_match(regex->code, (PCRE2_SPTR)text, bytes, at,
                            PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, regex->match, regex->context);
    if (found < 0)
        return false;
    const PCRE2_SIZE *range = pcre2_get_ovector_pointer(regex->match);
    if (range[0] < at || range[1] <= range[0])
        return false; /* \K in a lookaround can do that */
    *ret_start = range[0];
    *ret_end = range[1];
    return true;
}
