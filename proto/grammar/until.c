/* until.c - words -> trie -> failure links -> nodes. */
#include "proto/grammar/until.h"

#include <errno.h>

#include "proto/base/mem.h"

#define BYTES 256u
#define ROOT 0u

struct place {
    uint32_t next[BYTES]; /* where a byte leads */
    uint32_t fail;        /* the longest proper end of its text that words begin with */
    uint32_t node;        /* of the graph */
    bool ends;            /* a word ends here */
};

struct until {
    struct place *places; /* a trie of the words, ROOT first */
    uint32_t count;
    uint32_t *order;   /* places, the shorter ones first */
    uint32_t *word_at; /* per word: where it ends */
};

static void add_word(struct until *until, const struct graph_word *word, uint32_t *ret_at)
{
    uint32_t at = ROOT;

    for (size_t i = 0; i < word->bytes; i++) {
        uint32_t *next = &until->places[at].next[(uint8_t)word->text[i]];
        if (*next == ROOT)
            *next = until->count++;
        at = *next;
    }
    until->places[at].ends = true;
    *ret_at = at;
}

/* In order of length, so that what a failure link points at is finished before it is read. */
static void link_places(struct until *until)
{
    uint32_t head = 0, tail = 0;

    until->order[tail++] = ROOT;
    while (head < tail) {
        struct place *place = &until->places[until->order[head++]];
        for (uint32_t byte = 0; byte < BYTES; byte++) {
            uint32_t next = place->next[byte];
            uint32_t otherwise =
                place == &until->places[ROOT] ? ROOT : until->places[place->fail].next[byte];
            if (next == ROOT) {
                place->next[byte] = otherwise;
                continue;
            }
            until->places[next].fail = otherwise;
            until->places[next].ends |= until->places[otherwise].ends;
            until->order[tail++] = next;
        }
    }
}

static void add_text(const struct until *until, struct graph *graph, const struct place *place)
{
    for (uint32_t lo = 0; lo < BYTES;) {
        uint32_t hi = lo;
        while (hi + 1 < BYTES && place->next[hi + 1] == place->next[lo])
            hi++;
        graph_add_bytes(graph, place->node, (uint8_t)lo, (uint8_t)hi,
                        until->places[place->next[lo]].node);
        lo = hi + 1;
    }
}

/* Is the text of `end` an end of the text of `at`? */
static bool is_end_of(const struct until *until, uint32_t at, uint32_t end)
{
    while (at != end && at != ROOT)
        at = until->places[at].fail;
    return at == end;
}

static void add_places(const struct until *until, struct graph *graph, size_t words,
                       const uint32_t *word_end, uint32_t text_end)
{
    for (uint32_t i = 0; i < until->count && !graph->failed; i++) {
        const struct place *place = &until->places[i];
        if (!place->ends) {
            add_text(until, graph, place);
            if (text_end != GRAPH_NONE)
                graph_add_empty(graph, place->node, text_end);
        }
        for (size_t w = 0; place->ends && w < words; w++) {
            if (is_end_of(until, i, until->word_at[w]))
                graph_add_empty(graph, place->node, word_end[w]);
        }
    }
}

static int check(struct graph *graph, const struct graph_word *words, size_t count,
                 size_t *ret_bytes)
{
    size_t bytes = 0;

    for (size_t i = 0; i < count; i++) {
        if (words[i].bytes == 0)
            return graph_fail(graph, -EINVAL, "a trigger or an end of free text is empty");
        bytes += words[i].bytes;
    }
    if (count > UNTIL_WORDS_MAX || bytes > UNTIL_BYTES_MAX)
        return graph_fail(graph, -E2BIG,
                          "free text may end at %u words of %u bytes in all, not at %zu of %zu",
                          UNTIL_WORDS_MAX, UNTIL_BYTES_MAX, count, bytes);
    *ret_bytes = bytes;
    return 0;
}

void until_emit(struct graph *graph, uint32_t from, const struct graph_word *words, size_t count,
                const uint32_t *word_end, uint32_t text_end)
{
    size_t bytes = 0;

    if (graph->failed || check(graph, words, count, &bytes) < 0)
        return;
    struct until until = {.places = mem_calloc(bytes + 1, sizeof(*until.places)),
                          .count = 1,
                          .order = mem_calloc(bytes + 1, sizeof(*until.order)),
                          .word_at = mem_calloc(count + 1, sizeof(*until.word_at))};
    for (size_t i = 0; i < count; i++)
        add_word(&until, &words[i], &until.word_at[i]);
    link_places(&until);
    for (uint32_t i = 0; i < until.count; i++)
        until.places[i].node = graph_node(graph);
    add_places(&until, graph, count, word_end, text_end);
    graph_add_empty(graph, from, until.places[ROOT].node);
    mem_free(until.places);
    mem_free(until.order);
    mem_free(until.word_at);
}
