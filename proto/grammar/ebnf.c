/* ebnf.c - grammars in GBNF, as llama.cpp and xgrammar take them.
 *
 *   # comment
 *   root  ::= expr ("," ws expr)*
 *   expr  ::= [0-9]+ | "(" expr ")" | term{2,3} | .
 *
 * Line ends are spaces: a rule ends where the next name is followed by ::=. Rules are numbered when
 * they are first named and must be defined in the end. Each body is parsed into the arena, emitted,
 * and forgotten. */
#include <errno.h>
#include <string.h>

#include "proto/base/arena.h"
#include "proto/base/map.h"
#include "proto/base/mem.h"
#include "proto/grammar/expr.h"
#include "proto/grammar/front.h"
#include "proto/grammar/scan.h"

#define ARENA_BYTES_MAX ((size_t)64 << 20)
#define NAME_MAX_BYTES 128u

struct ebnf {
    struct scan scan;
    struct arena arena;
    struct graph *graph;
    struct map *names; /* name -> rule + 1, in a pointer */
    bool *defined;     /* [GRAMMAR_RULES_MAX] */
    unsigned depth;
};

static struct expr *parse_alternatives(struct ebnf *ebnf);

static struct expr *refuse(struct ebnf *ebnf, const char *what)
{
    size_t line, column;

    scan_place(&ebnf->scan, &line, &column);
    (void)graph_fail(ebnf->graph, -EINVAL, "grammar, line %zu, before character %zu: %s", line,
                     column, what);
    return NULL;
}

static struct expr *made(struct ebnf *ebnf, struct expr *expr)
{
    if (!expr)
        (void)graph_fail(ebnf->graph, -E2BIG, "a rule of the grammar is too large");
    return expr;
}

static void skip_spaces(struct ebnf *ebnf)
{
    struct scan *scan = &ebnf->scan;

    for (;;) {
        while (scan_take(scan, ' ') || scan_take(scan, '\t') || scan_take(scan, '\n') ||
               scan_take(scan, '\r'))
            ;
        if (!scan_take(scan, '#'))
            return;
        while (scan_peek(scan) != SCAN_END && scan_peek(scan) != '\n')
            (void)scan_next(scan);
    }
}

static bool is_name_char(uint32_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

/* Bytes of the name that stands here, 0: none. */
static size_t name_bytes(const struct ebnf *ebnf)
{
    const struct scan *scan = &ebnf->scan;
    size_t bytes = 0;

    while (scan->at + bytes < scan->bytes &&
           is_name_char((unsigned char)scan->text[scan->at + bytes]))
        bytes++;
    return bytes;
}

/* Does a rule's head, name ::=, begin here? */
static bool at_head(struct ebnf *ebnf)
{
    struct scan before = ebnf->scan;
    size_t bytes = name_bytes(ebnf);

    ebnf->scan.at += bytes;
    skip_spaces(ebnf);
    bool head = bytes > 0 && scan_take_text(&ebnf->scan, "::=");
    ebnf->scan = before;
    return head;
}

/* The rule of this name, made when it is new; GRAPH_NONE: failed. */
static uint32_t rule_named(struct ebnf *ebnf, const char *name, size_t bytes)
{
    uintptr_t known = (uintptr_t)map_get(ebnf->names, name, bytes);

    if (known)
        return (uint32_t)(known - 1);
    uint32_t rule = graph_rule(ebnf->graph, name, bytes);
    if (ebnf->graph->failed)
        return GRAPH_NONE;
    if (map_set(ebnf->names, name, bytes, (void *)(uintptr_t)(rule + 1), NULL) < 0) {
        (void)graph_fail(ebnf->graph, -E2BIG, "the grammar has more than %u rules",
                         GRAMMAR_RULES_MAX);
        return GRAPH_NONE;
    }
    return rule;
}

/* ---- literals and classes ---- */

static uint32_t parse_escape(struct ebnf *ebnf)
{
    static const struct {
        char letter;
        uint8_t digits;
        uint32_t code;
    } escapes[] = {{'n', 0, '\n'}, {'r', 0, '\r'},  {'t', 0, '\t'},  {'x', 2, 0},   {'u', 4, 0},
                   {'U', 8, 0},    {'\\', 0, '\\'}, {'"', 0, '"'},   {'[', 0, '['}, {']', 0, ']'},
                   {'-', 0, '-'},  {'^', 0, '^'},   {'\'', 0, '\''}, {'/', 0, '/'}};
    uint32_t letter = scan_next(&ebnf->scan), code = 0;

    for (size_t i = 0; i < sizeof(escapes) / sizeof(escapes[0]); i++) {
        if (letter != (uint32_t)escapes[i].letter)
            continue;
        if (escapes[i].digits == 0)
            return escapes[i].code;
        if (scan_hex(&ebnf->scan, escapes[i].digits, &code) && code <= CHAR_MAX_CODE &&
            (code < 0xd800 || code > 0xdfff))
            return code;
        (void)refuse(ebnf, "the escape names no character");
        return SCAN_END;
    }
    (void)refuse(ebnf, "this escape is not known");
    return SCAN_END;
}

/* One character of a literal or class; SCAN_END: refused. */
static uint32_t parse_char(struct ebnf *ebnf, const char *unclosed)
{
    uint32_t c = scan_next(&ebnf->scan);

    if (c == '\\')
        return parse_escape(ebnf);
    if (c == SCAN_END || c == '\n') {
        (void)refuse(ebnf, unclosed);
        return SCAN_END;
    }
    return c;
}

static struct expr *parse_literal(struct ebnf *ebnf)
{
    struct expr *sequence = made(ebnf, expr_new(&ebnf->arena, EXPR_SEQ));

    while (sequence && !scan_take(&ebnf->scan, '"')) {
        uint32_t c = parse_char(ebnf, "a literal has no closing quote");
        struct expr *one = c != SCAN_END ? made(ebnf, expr_char(&ebnf->arena, c)) : NULL;
        if (!one)
            return NULL;
        expr_append(sequence, one);
    }
    return sequence;
}

static struct expr *parse_class(struct ebnf *ebnf)
{
    bool negated = scan_take(&ebnf->scan, '^');
    struct charset set;

    charset_init(&set);
    while (!ebnf->graph->failed && !scan_take(&ebnf->scan, ']')) {
        uint32_t lo = parse_char(ebnf, "a class [ has no ]"), hi = lo;
        if (lo == SCAN_END)
            break;
        struct scan before = ebnf->scan;
        if (scan_take(&ebnf->scan, '-')) {
            if (scan_peek(&ebnf->scan) == ']')
                ebnf->scan = before; /* the dash is itself */
            else
                hi = parse_char(ebnf, "a class [ has no ]");
        }
        if (hi < lo)
            (void)refuse(ebnf, "a range of a class is the wrong way round");
        charset_add(&set, lo, hi);
    }
    if (ebnf->graph->failed) {
        charset_done(&set);
        return NULL;
    }
    if (negated)
        charset_negate(&set);
    return made(ebnf, expr_set(&ebnf->arena, &set));
}

static struct expr *parse_any(struct ebnf *ebnf)
{
    struct charset set;

    charset_init(&set);
    charset_negate(&set);
    return made(ebnf, expr_set(&ebnf->arena, &set));
}

/* ---- rules ---- */

static struct expr *parse_group(struct ebnf *ebnf)
{
    if (ebnf->depth == GRAMMAR_DEPTH_MAX)
        return refuse(ebnf, "groups are nested more than 100 deep");
    ebnf->depth++;
    struct expr *expr = parse_alternatives(ebnf);
    ebnf->depth--;
    if (expr && !scan_take(&ebnf->scan, ')'))
        return refuse(ebnf, "a group ( has no )");
    return expr;
}

static struct expr *parse_reference(struct ebnf *ebnf)
{
    size_t bytes = name_bytes(ebnf);

    if (bytes == 0)
        return refuse(ebnf, "expected a literal, a class, a group or the name of a rule");
    if (bytes > NAME_MAX_BYTES)
        return refuse(ebnf, "the name of a rule has more than 128 bytes");
    struct expr *expr = made(ebnf, expr_new(&ebnf->arena, EXPR_RULE));
    if (!expr)
        return NULL;
    expr->rule = rule_named(ebnf, ebnf->scan.text + ebnf->scan.at, bytes);
    ebnf->scan.at += bytes;
    return expr->rule != GRAPH_NONE ? expr : NULL;
}

static struct expr *parse_atom(struct ebnf *ebnf)
{
    if (scan_take(&ebnf->scan, '"'))
        return parse_literal(ebnf);
    if (scan_take(&ebnf->scan, '['))
        return parse_class(ebnf);
    if (scan_take(&ebnf->scan, '('))
        return parse_group(ebnf);
    if (scan_take(&ebnf->scan, '.'))
        return parse_any(ebnf);
    return parse_reference(ebnf);
}

/* {m} {m,} {m,n} {,n}. False: refused. */
static bool parse_braces(struct ebnf *ebnf, uint32_t *ret_min, uint32_t *ret_max)
{
    struct scan *scan = &ebnf->scan;
    uint32_t max = 0;

    *ret_min = 0;
    skip_spaces(ebnf);
    bool has_min = scan_number(scan, ret_min);
    skip_spaces(ebnf);
    bool comma = scan_take(scan, ',');
    skip_spaces(ebnf);
    bool has_max = comma && scan_number(scan, &max);
    skip_spaces(ebnf);
    *ret_max = has_max ? max : comma ? GRAPH_NO_MAX : *ret_min;
    if (!scan_take(scan, '}') || (!has_min && !has_max))
        (void)refuse(ebnf, "a repetition is {m}, {m,} or {m,n}");
    else if (*ret_min > *ret_max)
        (void)refuse(ebnf, "a repetition has its numbers the wrong way round");
    else if (*ret_min > GRAMMAR_REPEAT_MAX || (has_max && max > GRAMMAR_REPEAT_MAX))
        (void)refuse(ebnf, "a repetition of more than 1000000 times");
    return !ebnf->graph->failed;
}

static struct expr *parse_piece(struct ebnf *ebnf)
{
    struct expr *expr = parse_atom(ebnf);
    uint32_t min = 0, max = GRAPH_NO_MAX;

    skip_spaces(ebnf);
    if (!expr)
        return NULL;
    if (scan_take(&ebnf->scan, '?'))
        max = 1;
    else if (scan_take(&ebnf->scan, '+'))
        min = 1;
    else if (scan_take(&ebnf->scan, '{')) {
        if (!parse_braces(ebnf, &min, &max))
            return NULL;
    } else if (!scan_take(&ebnf->scan, '*'))
        return expr;
    skip_spaces(ebnf);
    uint32_t c = scan_peek(&ebnf->scan);
    if (c == '?' || c == '+' || c == '*' || c == '{')
        return refuse(ebnf, "a repetition follows another one");
    return made(ebnf, expr_repeat(&ebnf->arena, expr, min, max));
}

static struct expr *parse_sequence(struct ebnf *ebnf)
{
    struct expr *sequence = made(ebnf, expr_new(&ebnf->arena, EXPR_SEQ));

    while (sequence) {
        skip_spaces(ebnf);
        uint32_t c = scan_peek(&ebnf->scan);
        if (c == SCAN_END || c == '|' || c == ')' || (ebnf->depth == 0 && at_head(ebnf)))
            return sequence;
        struct expr *piece = parse_piece(ebnf);
        if (!piece)
            return NULL;
        expr_append(sequence, piece);
    }
    return NULL;
}

static struct expr *parse_alternatives(struct ebnf *ebnf)
{
    struct expr *alternatives = made(ebnf, expr_new(&ebnf->arena, EXPR_ALT));

    do {
        struct expr *sequence = alternatives ? parse_sequence(ebnf) : NULL;
        if (!sequence)
            return NULL;
        expr_append(alternatives, sequence);
    } while (scan_take(&ebnf->scan, '|'));
    return alternatives;
}

static void define(struct ebnf *ebnf, uint32_t rule)
{
    struct graph *graph = ebnf->graph;

    if (ebnf->defined[rule]) {
        (void)graph_fail(graph, -EINVAL, "grammar: rule '%s' is defined twice",
                         graph->rules[rule].name);
        return;
    }
    ebnf->defined[rule] = true;
    struct expr *body = parse_alternatives(ebnf);
    if (body)
        expr_emit(body, CHARSET_PLAIN, graph, graph_rule_start(graph, rule),
                  graph_rule_end(graph, rule));
    arena_reset(&ebnf->arena);
}

static void parse_rule(struct ebnf *ebnf)
{
    size_t bytes = name_bytes(ebnf);

    if (!at_head(ebnf) || bytes > NAME_MAX_BYTES) {
        (void)refuse(ebnf, "expected a rule: name ::= ...");
        return;
    }
    uint32_t rule = rule_named(ebnf, ebnf->scan.text + ebnf->scan.at, bytes);
    ebnf->scan.at += bytes;
    skip_spaces(ebnf);
    (void)scan_take_text(&ebnf->scan, "::=");
    if (rule != GRAPH_NONE)
        define(ebnf, rule);
    skip_spaces(ebnf);
    if (!ebnf->graph->failed && scan_peek(&ebnf->scan) == ')')
        (void)refuse(ebnf, "a ) has no group");
}

static void check_defined(struct ebnf *ebnf, uint32_t root)
{
    const void *name;
    size_t at = 0, bytes;
    void *value;

    if (!ebnf->graph->failed && !ebnf->defined[root])
        (void)graph_fail(ebnf->graph, -EINVAL, "grammar: there is no rule 'root'");
    while (!ebnf->graph->failed && map_next(ebnf->names, &at, &name, &bytes, &value)) {
        if (!ebnf->defined[(uintptr_t)value - 1])
            (void)graph_fail(ebnf->graph, -EINVAL, "grammar: rule '%.*s' is named but not defined",
                             (int)bytes, (const char *)name);
    }
}

void front_ebnf(const struct grammar_spec *spec, struct graph *graph, uint32_t root)
{
    struct ebnf ebnf = {.scan = {spec->text, spec->bytes, 0}, .graph = graph};

    ebnf.names = map_new(GRAMMAR_RULES_MAX);
    ebnf.defined = mem_calloc(GRAMMAR_RULES_MAX, sizeof(bool));
    arena_init(&ebnf.arena, ARENA_BYTES_MAX);
    (void)map_set(ebnf.names, "root", 4, (void *)(uintptr_t)(root + 1), NULL);
    skip_spaces(&ebnf);
    while (!graph->failed && scan_peek(&ebnf.scan) != SCAN_END)
        parse_rule(&ebnf);
    check_defined(&ebnf, root);
    arena_done(&ebnf.arena);
    mem_free(ebnf.defined);
    map_free(ebnf.names);
}
