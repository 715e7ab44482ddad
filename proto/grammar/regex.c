/* regex.c - parse by recursive descent, then anchors, then expr_emit.
 *
 *   alternatives  sequence | sequence ...
 *   sequence      piece piece ...
 *   piece         atom, perhaps with a quantifier
 *
 * A regex that would need exponential time with backtracking needs none here: there is no
 * backtracking, and determinization happens state by state, bounded, in machine.c. */
#include "proto/grammar/regex.h"

#include <errno.h>
#include <string.h>

#include "proto/base/arena.h"
#include "proto/grammar/expr.h"
#include "proto/grammar/scan.h"

#define ARENA_BYTES_MAX ((size_t)64 << 20)

struct regex {
    struct scan scan;
    struct arena arena;
    struct graph *graph;
    unsigned depth;
};

static struct expr *parse_alternatives(struct regex *regex);

/* Always NULL, so that `return refuse(...)`. */
static struct expr *refuse(struct regex *regex, const char *what)
{
    size_t line, column;

    scan_place(&regex->scan, &line, &column);
    (void)graph_fail(regex->graph, -EINVAL, "regular expression, before character %zu: %s", column,
                     what);
    return NULL;
}

static struct expr *made(struct regex *regex, struct expr *expr)
{
    if (!expr)
        (void)graph_fail(regex->graph, -E2BIG, "the regular expression is too large");
    return expr;
}

/* ---- characters ---- */

static void add_digits(struct charset *set)
{
    charset_add(set, '0', '9');
}

static void add_words(struct charset *set)
{
    charset_add(set, 'a', 'z');
    charset_add(set, 'A', 'Z');
    charset_add(set, '0', '9');
    charset_add(set, '_', '_');
}

static void add_spaces(struct charset *set)
{
    charset_add(set, '\t', '\r');
    charset_add(set, ' ', ' ');
}

/* \d and friends: true, and the set is in *ret. */
static bool class_of(uint32_t letter, struct charset *ret)
{
    charset_init(ret);
    switch (letter | 0x20) {
    case 'd':
        add_digits(ret);
        break;
    case 'w':
        add_words(ret);
        break;
    case 's':
        add_spaces(ret);
        break;
    default:
        return false;
    }
    if ((letter & 0x20) == 0)
        charset_negate(ret);
    return true;
}

static uint32_t hex_escape(struct regex *regex, unsigned digits)
{
    uint32_t code = 0;

    if (digits == 4 && scan_take(&regex->scan, '{')) {
        uint32_t digit;
        unsigned count = 0;
        for (; count < 6 && scan_peek(&regex->scan) != '}'; count++) {
            if (!scan_hex(&regex->scan, 1, &digit))
                break;
            code = code << 4 | digit;
        }
        if (count == 0 || !scan_take(&regex->scan, '}'))
            code = SCAN_END;
    } else if (!scan_hex(&regex->scan, digits, &code)) {
        code = SCAN_END;
    }
    if (code <= CHAR_MAX_CODE && (code < 0xd800 || code > 0xdfff))
        return code;
    (void)refuse(regex, "the escape names no character");
    return SCAN_END;
}

/* What stands behind a backslash, one character; SCAN_END: refused. */
static uint32_t escaped_char(struct regex *regex, uint32_t letter)
{
    switch (letter) {
    case 'n':
        return '\n';
    case 'r':
        return '\r';
    case 't':
        return '\t';
    case 'f':
        return '\f';
    case 'v':
        return '\v';
    case '0':
        return 0;
    case 'x':
        return hex_escape(regex, 2);
    case 'u':
        return hex_escape(regex, 4);
    case SCAN_END:
        (void)refuse(regex, "a backslash ends it");
        return SCAN_END;
    default:
        break;
    }
    if (letter >= '1' && letter <= '9')
        (void)refuse(regex, "back references are not supported");
    else if (letter == 'b' || letter == 'B')
        (void)refuse(regex, "word borders (\\b) are not supported");
    else if (letter == 'p' || letter == 'P')
        (void)refuse(regex, "Unicode properties (\\p) are not supported");
    else if ((letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z'))
        (void)refuse(regex, "this escape is not supported");
    else
        return letter;
    return SCAN_END;
}

static struct expr *parse_escape(struct regex *regex)
{
    uint32_t letter = scan_next(&regex->scan);
    struct charset set;

    if (class_of(letter, &set))
        return made(regex, expr_set(&regex->arena, &set));
    uint32_t code = escaped_char(regex, letter);
    return code == SCAN_END ? NULL : made(regex, expr_char(&regex->arena, code));
}

/* One end of a range in a class. True: a single character in *ret_code; false: a whole set was
 * added to *set, or (graph failed) it was refused. */
static bool class_item(struct regex *regex, struct charset *set, uint32_t *ret_code)
{
    struct charset part;

    *ret_code = scan_next(&regex->scan);
    if (*ret_code != '\\')
        return true;
    uint32_t letter = scan_next(&regex->scan);
    if (class_of(letter, &part)) {
        charset_add_set(set, &part);
        charset_done(&part);
        return false;
    }
    *ret_code = letter == 'b' ? '\b' : escaped_char(regex, letter);
    return *ret_code != SCAN_END;
}

static struct expr *parse_class(struct regex *regex)
{
    struct charset set;
    bool negated = scan_take(&regex->scan, '^');

    charset_init(&set);
    for (bool first = true; !regex->graph->failed; first = false) {
        uint32_t lo = 0, hi = 0;
        if (scan_peek(&regex->scan) == SCAN_END) {
            (void)refuse(regex, "a class [ has no ]");
            break;
        }
        if (!first && scan_take(&regex->scan, ']'))
            break;
        if (!class_item(regex, &set, &lo))
            continue;
        struct scan before = regex->scan;
        hi = lo;
        if (scan_take(&regex->scan, '-')) {
            if (scan_peek(&regex->scan) == ']' || !class_item(regex, &set, &hi)) {
                regex->scan = scan_peek(&regex->scan) == ']' ? before : regex->scan;
                hi = lo;
                if (regex->scan.at != before.at)
                    charset_add(&set, '-', '-'); /* [a-\d]: the dash is itself */
            }
        }
        if (hi < lo)
            (void)refuse(regex, "a range of a class is the wrong way round");
        else
            charset_add(&set, lo, hi);
    }
    if (regex->graph->failed) {
        charset_done(&set);
        return NULL;
    }
    if (negated)
        charset_negate(&set);
    return made(regex, expr_set(&regex->arena, &set));
}

static struct expr *any_char(struct regex *regex, bool newlines)
{
    struct charset set;

    charset_init(&set);
    if (!newlines)
        charset_add(&set, '\n', '\n');
    charset_negate(&set);
    return made(regex, expr_set(&regex->arena, &set));
}

/* ---- groups and quantifiers ---- */

static bool skip_group_head(struct regex *regex)
{
    struct scan *scan = &regex->scan;

    if (!scan_take(scan, '?') || scan_take(scan, ':'))
        return true;
    (void)scan_take(scan, 'P');
    if (scan_take(scan, '<') && scan_peek(scan) != '=' && scan_peek(scan) != '!') {
        while (scan_peek(scan) != SCAN_END && !scan_take(scan, '>'))
            (void)scan_next(scan);
        return true;
    }
    uint32_t c = scan_peek(scan);
    (void)refuse(regex, c == '=' || c == '!' ? "look-around is not supported"
                                             : "this kind of group is not supported");
    return false;
}

static struct expr *parse_group(struct regex *regex)
{
    if (regex->depth == GRAMMAR_DEPTH_MAX)
        return refuse(regex, "groups are nested more than 100 deep");
    if (!skip_group_head(regex))
        return NULL;
    regex->depth++;
    struct expr *expr = parse_alternatives(regex);
    regex->depth--;
    if (expr && !scan_take(&regex->scan, ')'))
        return refuse(regex, "a group ( has no )");
    return expr;
}

static struct expr *parse_atom(struct regex *regex)
{
    uint32_t c = scan_next(&regex->scan);

    switch (c) {
    case '(':
        return parse_group(regex);
    case '[':
        return parse_class(regex);
    case '\\':
        return parse_escape(regex);
    case '.':
        return any_char(regex, false);
    case '^':
        return made(regex, expr_new(&regex->arena, EXPR_ANCHOR_START));
    case '$':
        return made(regex, expr_new(&regex->arena, EXPR_ANCHOR_END));
    case '*':
    case '+':
    case '?':
        return refuse(regex, "a quantifier has nothing to repeat");
    default:
        return made(regex, expr_char(&regex->arena, c));
    }
}

/* {m}, {m,}, {m,n}, {,n}; anything else in braces is text, as in Python. */
static bool take_braces(struct regex *regex, uint32_t *ret_min, uint32_t *ret_max)
{
    struct scan before = regex->scan;
    bool has_min, has_max = false, comma;

    if (!scan_take(&regex->scan, '{'))
        return false;
    has_min = scan_number(&regex->scan, ret_min);
    comma = scan_take(&regex->scan, ',');
    if (comma)
        has_max = scan_number(&regex->scan, ret_max);
    if (!scan_take(&regex->scan, '}') || (!has_min && !has_max)) {
        regex->scan = before;
        return false;
    }
    if (!comma)
        *ret_max = *ret_min;
    else if (!has_max)
        *ret_max = GRAPH_NO_MAX;
    return true;
}

static bool take_quantifier(struct regex *regex, uint32_t *ret_min, uint32_t *ret_max)
{
    *ret_min = 0;
    *ret_max = GRAPH_NO_MAX;
    if (scan_take(&regex->scan, '*'))
        return true;
    if (scan_take(&regex->scan, '?')) {
        *ret_max = 1;
        return true;
    }
    if (scan_take(&regex->scan, '+')) {
        *ret_min = 1;
        return true;
    }
    return take_braces(regex, ret_min, ret_max);
}

static struct expr *parse_piece(struct regex *regex)
{
    struct expr *atom = parse_atom(regex);
    uint32_t min = 0, max = 0;

    if (!atom || !take_quantifier(regex, &min, &max))
        return atom;
    if (atom->kind == EXPR_ANCHOR_START || atom->kind == EXPR_ANCHOR_END)
        return refuse(regex, "an anchor cannot be repeated");
    if (min > max)
        return refuse(regex, "a quantifier has its numbers the wrong way round");
    if (min > GRAMMAR_REPEAT_MAX || (max > GRAMMAR_REPEAT_MAX && max != GRAPH_NO_MAX))
        return refuse(regex, "a quantifier repeats more than 1000000 times");
    (void)scan_take(&regex->scan, '?'); /* lazy: the same texts */
    if (scan_take(&regex->scan, '+'))
        return refuse(regex, "possessive quantifiers are not supported");
    uint32_t ignored;
    if (take_quantifier(regex, &ignored, &ignored))
        return refuse(regex, "a quantifier follows another one");
    return made(regex, expr_repeat(&regex->arena, atom, min, max));
}

static struct expr *parse_sequence(struct regex *regex)
{
    struct expr *sequence = made(regex, expr_new(&regex->arena, EXPR_SEQ));

    while (sequence) {
        uint32_t c = scan_peek(&regex->scan);
        if (c == SCAN_END || c == '|' || (c == ')' && regex->depth > 0))
            return sequence;
        if (c == ')')
            return refuse(regex, "a ) has no group");
        struct expr *piece = parse_piece(regex);
        if (!piece)
            return NULL;
        expr_append(sequence, piece);
    }
    return NULL;
}

static struct expr *parse_alternatives(struct regex *regex)
{
    struct expr *alternatives = made(regex, expr_new(&regex->arena, EXPR_ALT));

    do {
        struct expr *sequence = alternatives ? parse_sequence(regex) : NULL;
        if (!sequence)
            return NULL;
        expr_append(alternatives, sequence);
    } while (scan_take(&regex->scan, '|'));
    return alternatives;
}

/* ---- anchors ---- */

static bool is_nothing(const struct expr *expr)
{
    return expr->kind == EXPR_EMPTY || expr->kind == EXPR_ANCHOR_START ||
           expr->kind == EXPR_ANCHOR_END;
}

/* Is there something in front of (behind) the i-th child? Anchors that say nothing new stay and are
 * emitted as nothing; the others are refused. */
static bool check_anchors(struct regex *regex, const struct expr *expr, bool first, bool last)
{
    if (expr->kind == EXPR_ANCHOR_START || expr->kind == EXPR_ANCHOR_END) {
        bool fine = expr->kind == EXPR_ANCHOR_START ? first : last;
        if (!fine)
            (void)refuse(regex, expr->kind == EXPR_ANCHOR_START
                                    ? "^ is supported at the beginning only"
                                    : "$ is supported at the end only");
        return fine;
    }
    if (expr->kind == EXPR_REPEAT)
        return check_anchors(regex, expr->children, first && expr->max <= 1,
                             last && expr->max <= 1);
    const struct expr *last_text = NULL;
    for (const struct expr *child = expr->children; child; child = child->next)
        last_text = is_nothing(child) ? last_text : child;
    bool behind = last_text == NULL; /* past the last text */
    for (const struct expr *child = expr->children; child; child = child->next) {
        bool seq = expr->kind == EXPR_SEQ;
        behind = behind || child == last_text;
        if (!check_anchors(regex, child, first, last && (!seq || behind)))
            return false;
        first = first && (!seq || is_nothing(child));
    }
    return true;
}

/* Search: what is not anchored may have any text before and behind. One alternative. */
static bool emit_search(struct regex *regex, struct expr *sequence, enum charset_form form,
                        uint32_t from, uint32_t to)
{
    bool at_start = sequence->children && sequence->children->kind == EXPR_ANCHOR_START;
    bool at_end = sequence->last_child && sequence->last_child->kind == EXPR_ANCHOR_END;
    struct expr *any = any_char(regex, true);
    struct expr *text = any ? made(regex, expr_repeat(&regex->arena, any, 0, GRAPH_NO_MAX)) : NULL;
    uint32_t before = from, behind = to;

    if (!text || !check_anchors(regex, sequence, at_start, at_end))
        return false;
    if (!at_start) {
        before = graph_node(regex->graph);
        expr_emit(text, form, regex->graph, from, before);
    }
    if (!at_end) {
        behind = graph_node(regex->graph);
        expr_emit(text, form, regex->graph, behind, to);
    }
    expr_emit(sequence, form, regex->graph, before, behind);
    return true;
}

void regex_emit(const char *text, size_t bytes, enum regex_match match, enum charset_form form,
                struct graph *graph, uint32_t from, uint32_t to)
{
    struct regex regex = {.scan = {text, bytes, 0}, .graph = graph};

    arena_init(&regex.arena, ARENA_BYTES_MAX);
    struct expr *expr = parse_alternatives(&regex);
    if (expr && match == REGEX_WHOLE && check_anchors(&regex, expr, true, true))
        expr_emit(expr, form, graph, from, to);
    for (struct expr *alternative = expr && match == REGEX_SEARCH ? expr->children : NULL;
         alternative; alternative = alternative->next) {
        if (!emit_search(&regex, alternative, form, from, to))
            break;
    }
    arena_done(&regex.arena);
}
