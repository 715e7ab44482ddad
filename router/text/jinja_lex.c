/* jinja_lex.c - template source -> tokens, whitespace control already applied.
 *
 * Outside of tags the source is text; inside it is names, numbers, strings and operators. Settings
 * are those of Hugging Face: trim_blocks (one newline after a block or comment is dropped) and
 * lstrip_blocks (blanks between the line's start and a block or comment are dropped). A '-' beside
 * a delimiter strips all whitespace on that side, a '+' switches both rules off.
 * Cost: linear. Invariant: `at` only moves forward; every read is checked against `end`. */
#include "router/text/jinja_lex.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "router/text/jinja_ast.h"
#include "router/text/jinja_utf8.h"

#define BRACES_MAX 1000

struct lexer {
    const char *at, *end;
    uint32_t line;
    bool line_starting; /* what was read last ended with a newline */
    struct token *tokens;
    size_t count, capacity;
    char braces[BRACES_MAX];
    uint32_t braces_count;
    struct errmsg *err;
};

static void push(struct lexer *lex, enum token_type type, uint8_t op, const char *data,
                 const char *end)
{
    if (lex->count == lex->capacity) {
        lex->capacity = lex->capacity ? lex->capacity * 2 : 256;
        lex->tokens = mem_realloc(lex->tokens, lex->capacity * sizeof(struct token));
    }
    lex->tokens[lex->count++] = (struct token){.type = (uint8_t)type,
                                               .op = op,
                                               .line = lex->line,
                                               .bytes = (uint32_t)(end - data),
                                               .data = data};
}

static int fail(struct lexer *lex, const char *what)
{
    return errmsg_set(lex->err, -EINVAL, "line %u: %s", lex->line, what);
}

static void advance(struct lexer *lex, const char *to) /* counts lines */
{
    const char *p = lex->at;
    ASSERT(to >= lex->at && to <= lex->end);
    while ((p = memchr(p, '\n', (size_t)(to - p))) != NULL) {
        lex->line++;
        p++;
    }
    if (to > lex->at)
        lex->line_starting = to[-1] == '\n';
    lex->at = to;
}

static const char *skip_space(const char *p, const char *end)
{
    while (p < end) {
        uint32_t bytes;
        if (!jinja_is_space(jinja_utf8_decode(p, end, &bytes)))
            break;
        p += bytes;
    }
    return p;
}

static const char *strip_space_back(const char *start, const char *p)
{
    while (p > start) {
        uint32_t bytes;
        if (!jinja_is_space(jinja_utf8_decode_last(start, p, &bytes)))
            break;
        p -= bytes;
    }
    return p;
}

static bool starts(const char *p, const char *end, const char *word)
{
    size_t bytes = strlen(word);
    return (size_t)(end - p) >= bytes && memcmp(p, word, bytes) == 0;
}

/* Text before a tag whose begin has `sign` after it; `blank_rule`: not a variable. */
static void push_text(struct lexer *lex, const char *text_end, char sign, bool blank_rule)
{
    const char *text = lex->at;
    const char *end = text_end;
    if (sign == '-') {
        end = strip_space_back(text, end);
    } else if (sign != '+' && blank_rule) {
        const char *line = memrchr(text, '\n', (size_t)(end - text));
        line = line ? line + 1 : text;
        if ((line > text || lex->line_starting) && skip_space(line, end) == end)
            end = line;
    }
    if (end > text)
        push(lex, TOKEN_DATA, 0, text, end);
}

/* After a block's or comment's end: '-' eats whitespace, '+' nothing, else one newline. */
static const char *after_end(const struct lexer *lex, const char *p, char sign)
{
    if (sign == '-')
        return skip_space(p, lex->end);
    if (sign != '+' && p < lex->end && *p == '\n')
        return p + 1;
    return p;
}

static int lex_comment(struct lexer *lex) /* at is behind the begin and its sign */
{
    const char *p = lex->at;
    while ((p = memchr(p, '#', (size_t)(lex->end - p))) != NULL) {
        if (p + 1 < lex->end && p[1] == '}') {
            char sign = p > lex->at ? p[-1] : 0;
            advance(lex, after_end(lex, p + 2, sign));
            return 0;
        }
        p++;
    }
    return fail(lex, "a comment is not closed");
}

/* `{% raw %}`: `body` is behind it. Returns NULL when this is not a raw block. */
static const char *match_word_block(const char *p, const char *end, const char *word,
                                    bool trim_newline)
{
    p = skip_space(p, end);
    if (!starts(p, end, word))
        return NULL;
    p = skip_space(p + strlen(word), end);
    if (starts(p, end, "-%}"))
        return skip_space(p + 3, end);
    if (trim_newline && starts(p, end, "+%}"))
        return p + 3;
    if (!starts(p, end, "%}"))
        return NULL;
    p += 2;
    return trim_newline && p < end && *p == '\n' ? p + 1 : p;
}

static int lex_raw(struct lexer *lex, const char *body)
{
    const char *p = body;
    advance(lex, body);
    while ((p = memchr(p, '{', (size_t)(lex->end - p))) != NULL) {
        if (p + 1 < lex->end && p[1] == '%') {
            const char *inner = p + 2;
            char sign = inner < lex->end && (*inner == '-' || *inner == '+') ? *inner++ : 0;
            const char *after = match_word_block(inner, lex->end, "endraw", true);
            if (after != NULL) {
                push_text(lex, p, sign, true);
                advance(lex, after);
                return 0;
            }
        }
        p++;
    }
    return fail(lex, "a raw block is not closed");
}

static bool is_word(char c)
{
    unsigned char u = (unsigned char)c;
    return u >= 0x80 || (u >= '0' && u <= '9') || (u >= 'a' && u <= 'z') ||
           (u >= 'A' && u <= 'Z') || u == '_';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static const char *skip_digits(const char *p, const char *end) /* digits, '_' between them */
{
    while (p < end && (is_digit(*p) || (*p == '_' && p + 1 < end && is_digit(p[1]))))
        p++;
    return p;
}

static void lex_number(struct lexer *lex, bool after_dot)
{
    const char *start = lex->at;
    const char *end = lex->end;
    const char *p = skip_digits(start, end);
    bool is_float = false;
    if (p == start + 1 && *start == '0' && p < end && strchr("xXoObB", *p) != NULL) {
        const char *q = p + 1;
        while (q < end && is_word(*q) && (unsigned char)*q < 0x80)
            q++;
        push(lex, TOKEN_INTEGER, 0, start, q);
        advance(lex, q);
        return;
    }
    if (!after_dot && p + 1 < end && *p == '.' && is_digit(p[1])) {
        p = skip_digits(p + 1, end);
        is_float = true;
    }
    if (!after_dot && p < end && (*p == 'e' || *p == 'E')) {
        const char *q = p + 1;
        if (q < end && (*q == '+' || *q == '-'))
            q++;
        if (q < end && is_digit(*q)) {
            p = skip_digits(q, end);
            is_float = true;
        }
    }
    push(lex, is_float ? TOKEN_FLOAT : TOKEN_INTEGER, 0, start, p);
    advance(lex, p);
}

static int lex_string(struct lexer *lex)
{
    char quote = *lex->at;
    const char *p = lex->at + 1;
    while (p < lex->end && *p != quote)
        p += *p == '\\' && p + 1 < lex->end ? 2 : 1;
    if (p >= lex->end)
        return fail(lex, "a string is not closed");
    push(lex, TOKEN_STRING, 0, lex->at + 1, p);
    advance(lex, p + 1);
    return 0;
}

static int track_brace(struct lexer *lex, uint8_t op)
{
    static const char closers[] = {[OP_LPAREN] = ')', [OP_LBRACKET] = ']', [OP_LBRACE] = '}'};
    if (op == OP_LPAREN || op == OP_LBRACKET || op == OP_LBRACE) {
        if (lex->braces_count == BRACES_MAX)
            return fail(lex, "brackets are nested too deep");
        lex->braces[lex->braces_count++] = closers[op];
        return 0;
    }
    if (op != OP_RPAREN && op != OP_RBRACKET && op != OP_RBRACE)
        return 0;
    char c = op == OP_RPAREN ? ')' : op == OP_RBRACKET ? ']' : '}';
    if (lex->braces_count == 0)
        return errmsg_set(lex->err, -EINVAL, "line %u: unexpected '%c'", lex->line, c);
    if (lex->braces[lex->braces_count - 1] != c)
        return errmsg_set(lex->err, -EINVAL, "line %u: unexpected '%c', expected '%c'", lex->line,
                          c, lex->braces[lex->braces_count - 1]);
    lex->braces_count--;
    return 0;
}

static int lex_operator(struct lexer *lex)
{
    static const struct {
        const char *text;
        uint8_t op;
    } operators[] = {
        {"//", OP_FLOORDIV}, {"**", OP_POW},   {"==", OP_EQ},      {"!=", OP_NE},
        {"<=", OP_LE},       {">=", OP_GE},    {"+", OP_ADD},      {"-", OP_SUB},
        {"*", OP_MUL},       {"/", OP_DIV},    {"%", OP_MOD},      {"~", OP_TILDE},
        {"<", OP_LT},        {">", OP_GT},     {"=", OP_ASSIGN},   {".", OP_DOT},
        {":", OP_COLON},     {"|", OP_PIPE},   {",", OP_COMMA},    {";", OP_SEMICOLON},
        {"(", OP_LPAREN},    {")", OP_RPAREN}, {"[", OP_LBRACKET}, {"]", OP_RBRACKET},
        {"{", OP_LBRACE},    {"}", OP_RBRACE},
    };
    for (size_t i = 0; i < sizeof(operators) / sizeof(operators[0]); i++) {
        if (!starts(lex->at, lex->end, operators[i].text))
            continue;
        int r = track_brace(lex, operators[i].op);
        if (r < 0)
            return r;
        const char *after = lex->at + strlen(operators[i].text);
        push(lex, TOKEN_OP, operators[i].op, lex->at, after);
        advance(lex, after);
        return 0;
    }
    if ((unsigned char)*lex->at < 0x20)
        return fail(lex, "unexpected control character");
    return errmsg_set(lex->err, -EINVAL, "line %u: unexpected char '%c'", lex->line, *lex->at);
}

/* Is the tag's end here? Moves behind it. */
static bool lex_tag_end(struct lexer *lex, bool variable)
{
    const char *p = lex->at;
    const char *close = variable ? "}}" : "%}";
    char sign = 0;
    if (lex->braces_count > 0)
        return false;
    if (*p == '-' || (*p == '+' && !variable))
        sign = *p++;
    if (!starts(p, lex->end, close))
        return false;
    push(lex, variable ? TOKEN_VARIABLE_END : TOKEN_BLOCK_END, 0, p, p + 2);
    if (variable)
        advance(lex, sign == '-' ? skip_space(p + 2, lex->end) : p + 2);
    else
        advance(lex, after_end(lex, p + 2, sign));
    return true;
}

static int lex_tag(struct lexer *lex, bool variable)
{
    lex->braces_count = 0;
    for (;;) {
        int r = 0;
        advance(lex, skip_space(lex->at, lex->end));
        if (lex->at >= lex->end)
            return fail(lex, "the template ends inside a tag");
        if (lex_tag_end(lex, variable))
            return 0;
        char c = *lex->at;
        if (is_digit(c)) {
            bool after_dot = lex->count > 0 && lex->tokens[lex->count - 1].type == TOKEN_OP &&
                             lex->tokens[lex->count - 1].op == OP_DOT && lex->at[-1] == '.';
            lex_number(lex, after_dot);
        } else if (is_word(c)) {
            const char *p = lex->at;
            while (p < lex->end && is_word(*p))
                p++;
            push(lex, TOKEN_NAME, 0, lex->at, p);
            advance(lex, p);
        } else if (c == '\'' || c == '"') {
            r = lex_string(lex);
        } else {
            r = lex_operator(lex);
        }
        if (r < 0)
            return r;
    }
}

static const char *find_tag(const char *p, const char *end)
{
    while ((p = memchr(p, '{', (size_t)(end - p))) != NULL) {
        if (p + 1 < end && (p[1] == '{' || p[1] == '%' || p[1] == '#'))
            return p;
        p++;
    }
    return end;
}

static int lex_all(struct lexer *lex)
{
    while (lex->at < lex->end) {
        int r;
        const char *tag = find_tag(lex->at, lex->end);
        if (tag == lex->end) {
            push(lex, TOKEN_DATA, 0, lex->at, lex->end);
            advance(lex, lex->end);
            break;
        }
        char kind = tag[1];
        const char *inner = tag + 2;
        char sign = inner < lex->end && (*inner == '-' || *inner == '+') ? *inner++ : 0;
        push_text(lex, tag, sign, kind != '{');
        advance(lex, inner);
        if (kind == '#') {
            r = lex_comment(lex);
        } else if (kind == '{') {
            push(lex, TOKEN_VARIABLE_BEGIN, 0, tag, inner);
            r = lex_tag(lex, true);
        } else {
            const char *raw = match_word_block(inner, lex->end, "raw", false);
            if (raw == NULL)
                push(lex, TOKEN_BLOCK_BEGIN, 0, tag, inner);
            r = raw ? lex_raw(lex, raw) : lex_tag(lex, false);
        }
        if (r < 0)
            return r;
    }
    push(lex, TOKEN_EOF, 0, lex->end, lex->end);
    return 0;
}

int jinja_lex(const char *source, size_t bytes, struct token **ret_tokens, size_t *ret_count,
              struct errmsg *err)
{
    struct lexer *lex = mem_zalloc(sizeof(*lex));
    *lex = (struct lexer){
        .at = source, .end = source + bytes, .line = 1, .line_starting = true, .err = err};
    int r = lex_all(lex);
    if (r < 0) {
        mem_free(lex->tokens);
    } else {
        *ret_tokens = lex->tokens;
        *ret_count = lex->count;
    }
    mem_free(lex);
    return r;
}
