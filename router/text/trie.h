/* trie.h - byte strings -> ids, walked a byte at a time: added tokens, unigram's pieces.
 *
 * Built once, then only read. One hash probe a byte. */
#ifndef REFRAIN_ROUTER_TEXT_TRIE_H
#define REFRAIN_ROUTER_TEXT_TRIE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "router/text/pair_map.h"

#define TRIE_NO_VALUE UINT32_MAX

struct trie {
    struct pair_map edges; /* (node << 8 | byte) -> first: node below, second: value + 1 or 0 */
    uint32_t nodes;
};

void trie_init(struct trie *trie, size_t expected);
void trie_done(struct trie *trie);
/* bytes > 0. A text that is there keeps its value. */
void trie_add(struct trie *trie, const char *text, size_t bytes, uint32_t value);

/* From *node (0: the root) along `byte`; false: no edge. *ret_value: that of the text walked so
 * far, or TRIE_NO_VALUE. */
static inline bool trie_step(const struct trie *trie, uint32_t *node, unsigned char byte,
                             uint32_t *ret_value)
{
    const struct pair_entry *edge = pair_map_find(&trie->edges, (uint64_t)*node << 8 | byte);
    if (edge == NULL)
        return false;
    *node = edge->first;
    *ret_value = edge->second - 1; /* 0 becomes TRIE_NO_VALUE */
    return true;
}

/* Length of the longest text that `text` begins with, 0: none. */
size_t trie_longest(const struct trie *trie, const char *text, size_t bytes, uint32_t *ret_value);

#endif
