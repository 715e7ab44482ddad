/* json_text.c - one function per rule, one table. */
#include "proto/grammar/json_text.h"

#include <string.h>

#include "proto/grammar/charset.h"
#include "proto/grammar/front.h"

#define INDENT_MAX 20u

typedef void (*make_fn)(struct json_text *json, uint32_t from, uint32_t to);

void json_text_init(struct json_text *json, struct graph *graph)
{
    *json = (struct json_text){.graph = graph};
}

void json_text_call(struct json_text *json, uint32_t from, enum json_rule which, uint32_t to)
{
    graph_add_call(json->graph, from, json_text_rule(json, which), to);
}

void json_text_digits(struct json_text *json, uint32_t from, uint32_t min, uint32_t max,
                      uint32_t to)
{
    struct graph *graph = json->graph;

    for (uint32_t i = 0; i < max; i++) {
        uint32_t next = i + 1 == max ? to : graph_node(graph);
        if (i >= min)
            graph_add_empty(graph, from, to);
        graph_add_bytes(graph, from, '0', '9', next);
        from = next;
    }
}

static void make_space(struct json_text *json, uint32_t from, uint32_t to)
{
    struct graph *graph = json->graph;
    uint32_t at = graph_node(graph);

    graph_add_empty(graph, from, to);
    graph_add_bytes(graph, from, ' ', ' ', to);
    graph_add_bytes(graph, from, '\n', '\n', at);
    for (uint32_t i = 0; i < INDENT_MAX; i++) {
        uint32_t next = graph_node(graph);
        graph_add_empty(graph, at, to);
        graph_add_bytes(graph, at, ' ', ' ', next);
        at = next;
    }
    graph_add_empty(graph, at, to);
}

static void add_hex(struct graph *graph, uint32_t from, uint32_t to)
{
    graph_add_bytes(graph, from, '0', '9', to);
    graph_add_bytes(graph, from, 'a', 'f', to);
    graph_add_bytes(graph, from, 'A', 'F', to);
}

static void add_hexes(struct graph *graph, uint32_t from, unsigned count, uint32_t to)
{
    for (unsigned i = 0; i < count; i++) {
        uint32_t next = i + 1 == count ? to : graph_node(graph);
        add_hex(graph, from, next);
        from = next;
    }
}

static void add_both_cases(struct graph *graph, uint32_t from, char lower_lo, char lower_hi,
                           uint32_t to)
{
    graph_add_bytes(graph, from, (uint8_t)lower_lo, (uint8_t)lower_hi, to);
    graph_add_bytes(graph, from, (uint8_t)(lower_lo - 0x20), (uint8_t)(lower_hi - 0x20), to);
}

/* Behind "\u": no surrogate, or a high one and \u and a low one. */
static void add_unicode_escape(struct graph *graph, uint32_t from, uint32_t to)
{
    uint32_t three = graph_node(graph), d = graph_node(graph), two = graph_node(graph);
    uint32_t high = graph_node(graph), low = graph_node(graph), low_d = graph_node(graph);
    uint32_t low_c = graph_node(graph), u = graph_node(graph);

    graph_add_bytes(graph, from, '0', '9', three);
    add_both_cases(graph, from, 'a', 'c', three);
    add_both_cases(graph, from, 'e', 'f', three);
    add_hexes(graph, three, 3, to);
    add_both_cases(graph, from, 'd', 'd', d);
    graph_add_bytes(graph, d, '0', '7', two); /* D000..D7FF */
    add_hexes(graph, two, 2, to);
    graph_add_bytes(graph, d, '8', '9', high); /* D800..DBFF */
    add_both_cases(graph, d, 'a', 'b', high);
    add_hexes(graph, high, 2, u);
    graph_add_literal(graph, u, "\\u", 2, low);
    add_both_cases(graph, low, 'd', 'd', low_d);
    add_both_cases(graph, low_d, 'c', 'f', low_c); /* DC00..DFFF */
    add_hexes(graph, low_c, 2, to);
}

static void make_char(struct json_text *json, uint32_t from, uint32_t to)
{
    struct graph *graph = json->graph;
    uint32_t escape = graph_node(graph), unicode = graph_node(graph);
    struct charset plain;

    charset_init(&plain);
    charset_add(&plain, 0, 0x1f);
    charset_add(&plain, '"', '"');
    charset_add(&plain, '\\', '\\');
    charset_negate(&plain);
    charset_emit(&plain, CHARSET_PLAIN, graph, from, to);
    charset_done(&plain);
    graph_add_bytes(graph, from, '\\', '\\', escape);
    for (const char *c = "\"\\/bfnrt"; *c; c++)
        graph_add_bytes(graph, escape, (uint8_t)*c, (uint8_t)*c, to);
    graph_add_bytes(graph, escape, 'u', 'u', unicode);
    add_unicode_escape(graph, unicode, to);
}

static void make_string(struct json_text *json, uint32_t from, uint32_t to)
{
    uint32_t loop = graph_node(json->graph);

    graph_add_bytes(json->graph, from, '"', '"', loop);
    make_char(json, loop, loop);
    graph_add_bytes(json->graph, loop, '"', '"', to);
}

static void make_integer(struct json_text *json, uint32_t from, uint32_t to)
{
    struct graph *graph = json->graph;
    uint32_t first = graph_node(graph), more = graph_node(graph);

    graph_add_empty(graph, from, first);
    graph_add_bytes(graph, from, '-', '-', first);
    graph_add_bytes(graph, first, '0', '0', to);
    graph_add_bytes(graph, first, '1', '9', more);
    json_text_digits(json, more, 0, JSON_DIGITS_MAX - 1, to);
}

static void make_number(struct json_text *json, uint32_t from, uint32_t to)
{
    struct graph *graph = json->graph;
    uint32_t whole = graph_node(graph), point = graph_node(graph), digits = graph_node(graph);
    uint32_t sign = graph_node(graph), exponent = graph_node(graph);

    json_text_call(json, from, JSON_RULE_INTEGER, whole);
    graph_add_empty(graph, whole, digits);
    graph_add_bytes(graph, whole, '.', '.', point);
    json_text_digits(json, point, 1, JSON_DIGITS_MAX, digits);
    graph_add_empty(graph, digits, to);
    add_both_cases(graph, digits, 'e', 'e', sign);
    graph_add_empty(graph, sign, exponent);
    graph_add_bytes(graph, sign, '+', '+', exponent);
    graph_add_bytes(graph, sign, '-', '-', exponent);
    json_text_digits(json, exponent, 1, 2, to);
}

static void make_value(struct json_text *json, uint32_t from, uint32_t to)
{
    struct graph *graph = json->graph;

    json_text_call(json, from, JSON_RULE_OBJECT, to);
    json_text_call(json, from, JSON_RULE_ARRAY, to);
    json_text_call(json, from, JSON_RULE_STRING, to);
    json_text_call(json, from, JSON_RULE_NUMBER, to);
    graph_add_literal(graph, from, "true", 4, to);
    graph_add_literal(graph, from, "false", 5, to);
    graph_add_literal(graph, from, "null", 4, to);
}

static void make_object(struct json_text *json, uint32_t from, uint32_t to)
{
    json_text_object(json, from, json_text_rule(json, JSON_RULE_VALUE), to);
}

static void make_array(struct json_text *json, uint32_t from, uint32_t to)
{
    json_text_array(json, from, json_text_rule(json, JSON_RULE_VALUE), to);
}

uint32_t json_text_rule(struct json_text *json, enum json_rule which)
{
    static const struct {
        const char *name;
        make_fn make;
    } makers[JSON_RULES] = {
        [JSON_RULE_SPACE] = {"space", make_space},
        [JSON_RULE_CHAR] = {"char", make_char},
        [JSON_RULE_STRING] = {"string", make_string},
        [JSON_RULE_NUMBER] = {"number", make_number},
        [JSON_RULE_INTEGER] = {"integer", make_integer},
        [JSON_RULE_VALUE] = {"value", make_value},
        [JSON_RULE_OBJECT] = {"object", make_object},
        [JSON_RULE_ARRAY] = {"array", make_array},
    };
    struct graph *graph = json->graph;

    if (json->rules[which] == 0) {
        uint32_t rule = graph_rule(graph, makers[which].name, strlen(makers[which].name));
        json->rules[which] = rule + 1; /* before it is filled: values hold values */
        makers[which].make(json, graph_rule_start(graph, rule), graph_rule_end(graph, rule));
    }
    return json->rules[which] - 1;
}

void json_text_open(struct json_text *json, uint32_t from, char c, uint32_t to)
{
    uint32_t at = graph_node(json->graph);

    graph_add_bytes(json->graph, from, (uint8_t)c, (uint8_t)c, at);
    json_text_call(json, at, JSON_RULE_SPACE, to);
}

void json_text_close(struct json_text *json, uint32_t from, char c, uint32_t to)
{
    uint32_t at = graph_node(json->graph);

    json_text_call(json, from, JSON_RULE_SPACE, at);
    graph_add_bytes(json->graph, at, (uint8_t)c, (uint8_t)c, to);
}

void json_text_colon(struct json_text *json, uint32_t from, uint32_t to)
{
    uint32_t at = graph_node(json->graph);

    graph_add_bytes(json->graph, from, ':', ':', at);
    graph_add_empty(json->graph, at, to);
    graph_add_bytes(json->graph, at, ' ', ' ', to);
}

void json_text_object(struct json_text *json, uint32_t from, uint32_t value, uint32_t to)
{
    struct graph *graph = json->graph;
    uint32_t open = graph_node(graph), key = graph_node(graph), colon = graph_node(graph);
    uint32_t begin = graph_node(graph), end = graph_node(graph);

    json_text_open(json, from, '{', open);
    graph_add_bytes(graph, open, '}', '}', to);
    graph_add_empty(graph, open, key);
    json_text_call(json, key, JSON_RULE_STRING, colon);
    json_text_colon(json, colon, begin);
    graph_add_call(graph, begin, value, end);
    json_text_open(json, end, ',', key);
    json_text_close(json, end, '}', to);
}

void json_text_array(struct json_text *json, uint32_t from, uint32_t value, uint32_t to)
{
    struct graph *graph = json->graph;
    uint32_t open = graph_node(graph), begin = graph_node(graph), end = graph_node(graph);

    json_text_open(json, from, '[', open);
    graph_add_bytes(graph, open, ']', ']', to);
    graph_add_empty(graph, open, begin);
    graph_add_call(graph, begin, value, end);
    json_text_open(json, end, ',', begin);
    json_text_close(json, end, ']', to);
}

void front_json_object(const struct grammar_spec *spec, struct graph *graph, uint32_t root)
{
    struct json_text json;

    (void)spec;
    json_text_init(&json, graph);
    json_text_call(&json, graph_rule_start(graph, root), JSON_RULE_OBJECT,
                   graph_rule_end(graph, root));
}
