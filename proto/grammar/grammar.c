/* grammar.c - kind -> front end -> graph -> automaton. */
#include "proto/grammar/grammar.h"

#include <errno.h>

#include "proto/base/assert.h"
#include "proto/base/json.h"
#include "proto/base/mem.h"
#include "proto/grammar/automaton.h"
#include "proto/grammar/front.h"
#include "proto/grammar/regex.h"
#include "proto/grammar/scan.h"

typedef void (*front_fn)(const struct grammar_spec *spec, struct graph *graph, uint32_t root);

static const struct {
    const char *name;
    front_fn front;
} kinds[GRAMMAR_KINDS] = {
    [GRAMMAR_NONE] = {"none", NULL},
    [GRAMMAR_JSON_OBJECT] = {"json_object", front_json_object},
    [GRAMMAR_JSON_SCHEMA] = {"json_schema", front_json_schema},
    [GRAMMAR_REGEX] = {"regex", front_regex},
    [GRAMMAR_CHOICE] = {"choice", front_choice},
    [GRAMMAR_EBNF] = {"ebnf", front_ebnf},
    [GRAMMAR_STRUCTURE] = {"structure", front_structure},
    [GRAMMAR_TAGS] = {"structural_tag", front_tags},
};

const char *grammar_kind_name(enum grammar_kind kind)
{
    return (unsigned)kind < GRAMMAR_KINDS ? kinds[kind].name : "unknown";
}

json_t *front_parse_json(const struct grammar_spec *spec, struct graph *graph, const char *what)
{
    json_t *value = NULL;
    struct errmsg err;
    int r = json_parse(spec->text, spec->bytes, GRAMMAR_TEXT_MAX, &value, &err);

    if (r < 0)
        (void)graph_fail(graph, -EINVAL, "%s: %s", what, err.text);
    return r < 0 ? NULL : value;
}

void front_regex(const struct grammar_spec *spec, struct graph *graph, uint32_t root)
{
    regex_emit(spec->text, spec->bytes, REGEX_WHOLE, CHARSET_PLAIN, graph,
               graph_rule_start(graph, root), graph_rule_end(graph, root));
}

void front_choice(const struct grammar_spec *spec, struct graph *graph, uint32_t root)
{
    json_t *list = front_parse_json(spec, graph, "choices");
    size_t count = json_array_size(list);
    struct graph_word *words = mem_calloc(count + 1, sizeof(*words));

    if (!graph->failed && count == 0)
        (void)graph_fail(graph, -EINVAL, "choices: a list of at least one string is needed");
    for (size_t i = 0; i < count && !graph->failed; i++) {
        const json_t *value = json_array_get(list, i);
        if (!json_is_string(value))
            (void)graph_fail(graph, -EINVAL, "choices: entry %zu is no string", i);
        words[i] = (struct graph_word){json_string_value(value), json_string_length(value)};
    }
    if (!graph->failed)
        graph_add_words(graph, graph_rule_start(graph, root), words, count,
                        graph_rule_end(graph, root));
    mem_free(words);
    json_decref(list);
}

static int check_spec(const struct grammar_spec *spec, struct errmsg *err)
{
    size_t at;

    if (spec->kind <= GRAMMAR_NONE || spec->kind >= GRAMMAR_KINDS)
        return errmsg_set(err, -EINVAL, "unknown kind of grammar: %d", (int)spec->kind);
    if (spec->bytes > GRAMMAR_TEXT_MAX)
        return errmsg_set(err, -E2BIG, "the grammar has %zu bytes; at most %u are taken",
                          spec->bytes, GRAMMAR_TEXT_MAX);
    if (!scan_utf8_valid(spec->text, spec->bytes, &at))
        return errmsg_set(err, -EINVAL, "the grammar is no UTF-8 at byte %zu", at);
    return 0;
}

int grammar_compile(const struct grammar_spec *spec, struct grammar **ret_grammar,
                    struct errmsg *err)
{
    const struct grammar_spec text = {spec->kind, spec->text != NULL ? spec->text : "",
                                      spec->bytes};
    struct graph graph;
    int r = check_spec(&text, err);

    if (r < 0)
        return r;
    graph_init(&graph, err);
    uint32_t root = graph_rule(&graph, "root", 4);
    kinds[spec->kind].front(&text, &graph, root);
    r = automaton_pack(&graph, root, ret_grammar);
    graph_done(&graph);
    if (r == 0)
        (*ret_grammar)->kind = spec->kind;
    return r;
}

struct grammar *grammar_ref(struct grammar *grammar)
{
    (void)atomic_fetch_add(&grammar->refs, 1);
    return grammar;
}

void grammar_unref(struct grammar *grammar)
{
    if (grammar == NULL)
        return;
    uint32_t before = atomic_fetch_sub(&grammar->refs, 1);
    ASSERT(before > 0);
    if (before > 1)
        return;
    mem_free(grammar->nodes);
    mem_free(grammar->steps);
    mem_free(grammar->jumps);
    mem_free(grammar);
}

size_t grammar_bytes(const struct grammar *grammar)
{
    return sizeof(*grammar) + grammar->nodes_count * sizeof(*grammar->nodes) +
           (grammar->steps_count + 1) * sizeof(*grammar->steps) +
           (grammar->jumps_count + 1) * sizeof(*grammar->jumps);
}
