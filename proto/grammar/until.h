/* until.h - free text up to the first of some words, as part of the graph.
 *
 *   from --> any text that holds none of the words --> text_end
 *                       \--> the text and one word --> word_end[that word]
 *
 * Method: the automaton of Aho and Corasick (1975) over the words; where a word ends, free text has
 * no way on, so nobody can pass by a word. Of words that end at one place all are offered.
 * Thread: one. */
#ifndef REFRAIN_PROTO_GRAMMAR_UNTIL_H
#define REFRAIN_PROTO_GRAMMAR_UNTIL_H

#include "proto/grammar/graph.h"

#define UNTIL_WORDS_MAX 256u
#define UNTIL_BYTES_MAX 4096u /* of all words */

/* words: none of them empty (graph_fail). text_end: GRAPH_NONE when the text must end with a word.
 * Edges may lead into `from` afterwards, and out of text_end and word_end[]. */
void until_emit(struct graph *graph, uint32_t from, const struct graph_word *words, size_t count,
                const uint32_t *word_end, uint32_t text_end);

#endif
