/* trie.c - see trie.h. */
#include "router/text/trie.h"

void trie_init(struct trie *trie, size_t expected)
{
    pair_map_init(&trie->edges, expected);
    trie->nodes = 1;
}

void trie_done(struct trie *trie)
{
    pair_map_done(&trie->edges);
}

void trie_add(struct trie *trie, const char *text, size_t bytes, uint32_t value)
{
    uint32_t node = 0;
    ASSERT(bytes > 0 && value != TRIE_NO_VALUE);
    for (size_t i = 0; i < bytes; i++) {
        bool is_new = false;
        struct pair_entry *edge =
            pair_map_add(&trie->edges, (uint64_t)node << 8 | (unsigned char)text[i], &is_new);
        if (is_new)
            edge->first = trie->nodes++;
        node = edge->first;
        if (i + 1 == bytes && edge->second == 0)
            edge->second = value + 1;
    }
}

size_t trie_longest(const struct trie *trie, const char *text, size_t bytes, uint32_t *ret_value)
{
    uint32_t node = 0, value = TRIE_NO_VALUE;
    size_t longest = 0;
    for (size_t at = 0; at < bytes && trie_step(trie, &node, (unsigned char)text[at], &value);
         at++) {
        if (value == TRIE_NO_VALUE)
            continue;
        longest = at + 1;
        *ret_value = value;
    }
    return longest;
}
