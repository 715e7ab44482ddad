/* vocab.c - sort the tokens by their bytes; neighbours then share the path to their common start.
 */
#include "proto/grammar/vocab.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "proto/token_text.h"

#define TOKEN_BYTES_MAX 1024u /* longer ones are in no mask */

struct entry {
    const char *text;
    uint32_t bytes, id;
};

static bool has_text(enum token_type type)
{
    return type == TOKEN_NORMAL || type == TOKEN_USER_DEFINED || type == TOKEN_BYTE;
}

static void decode_all(struct grammar_vocab *vocab, const struct model_card *card)
{
    const struct string_table *stored = &card->tokens;
    uint32_t used = 0;

    vocab->offsets = mem_calloc((size_t)vocab->count + 1, sizeof(*vocab->offsets));
    vocab->bytes = mem_alloc((size_t)stored->offsets[stored->count] + 1);
    for (uint32_t id = 0; id < vocab->count; id++) {
        vocab->offsets[id] = used;
        if (id >= stored->count || !has_text((enum token_type)card->token_types[id]))
            continue;
        size_t bytes;
        const char *text = string_table_get(stored, id, &bytes);
        if (bytes == 0)
            continue;
        bytes = token_text_decode(card->tokenizer, (enum token_type)card->token_types[id], text,
                                  bytes, vocab->bytes + used);
        used += bytes <= TOKEN_BYTES_MAX ? (uint32_t)bytes : 0;
    }
    vocab->offsets[vocab->count] = used;
}

static int by_text(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    uint32_t bytes = x->bytes < y->bytes ? x->bytes : y->bytes;
    int order = memcmp(x->text, y->text, bytes);

    if (order == 0)
        order = (x->bytes > y->bytes) - (x->bytes < y->bytes);
    return order != 0 ? order : (x->id > y->id) - (x->id < y->id);
}

static struct entry *sorted_entries(const struct grammar_vocab *vocab, uint32_t *ret_count)
{
    struct entry *entries = mem_calloc((size_t)vocab->count + 1, sizeof(*entries));
    uint32_t count = 0;

    for (uint32_t id = 0; id < vocab->count; id++) {
        size_t bytes;
        const char *text = grammar_vocab_text(vocab, id, &bytes);
        if (bytes > 0)
            entries[count++] = (struct entry){text, (uint32_t)bytes, id};
    }
    if (count > 0)
        qsort(entries, count, sizeof(*entries), by_text);
    *ret_count = count;
    return entries;
}

static uint32_t common_bytes(const struct entry *a, const struct entry *b)
{
    uint32_t i = 0;

    while (i < a->bytes && i < b->bytes && a->text[i] == b->text[i])
        i++;
    return i;
}

/* path[d]: the node of depth d that is open. Those deeper than `depth` end here. */
static void close_nodes(struct grammar_vocab *vocab, const uint32_t *path, uint32_t open,
                        uint32_t depth)
{
    for (; open > depth; open--)
        vocab->nodes[path[open]].end = vocab->nodes_count;
}

static void build(struct grammar_vocab *vocab, const struct entry *entries, uint32_t count)
{
    uint32_t path[TOKEN_BYTES_MAX + 1] = {0};
    uint32_t open = 0;

    vocab->nodes_count = 1;
    for (uint32_t i = 0; i < count; i++) {
        const struct entry *entry = &entries[i];
        uint32_t common = i == 0 ? 0 : common_bytes(&entries[i - 1], entry);
        close_nodes(vocab, path, open, common);
        open = common;
        while (open < entry->bytes) {
            uint32_t node = vocab->nodes_count++;
            vocab->nodes[node] = (struct vocab_node){.first_token = i,
                                                     .depth = (uint16_t)(open + 1),
                                                     .byte = (uint8_t)entry->text[open]};
            path[++open] = node;
        }
        vocab->tokens[i] = entry->id;
        if (entry->bytes > vocab->token_bytes_max)
            vocab->token_bytes_max = entry->bytes;
    }
    close_nodes(vocab, path, open, 0);
    vocab->nodes[0].end = vocab->nodes_count;
    vocab->nodes[vocab->nodes_count].first_token = count;
}

uint8_t vocab_bucket(uint8_t byte)
{
    if (byte < ' ')
        return 0;
    if (byte >= 'a' && byte <= 'z')
        return 1;
    if (byte >= 'A' && byte <= 'Z')
        return 2;
    if (byte >= '0' && byte <= '9')
        return 3;
    if (byte >= 0x7f)
        return 4;
    if (byte < '0')
        return (uint8_t)(5 + byte - ' '); /* 16 of them */
    return (uint8_t)(byte < 'A' ? 21 + byte - ':' : byte < 'a' ? 28 + byte - '[' : 34 + byte - '{');
}

/* Children stand behind their parent, so backwards every node is ready when it is added. */
static void find_below(struct grammar_vocab *vocab)
{
    uint32_t *parents = mem_calloc(vocab->nodes_count, sizeof(*parents));
    uint32_t path[TOKEN_BYTES_MAX + 1] = {0};

    for (uint32_t i = 1; i < vocab->nodes_count; i++) {
        const struct vocab_node *node = &vocab->nodes[i];
        parents[i] = path[node->depth - 1];
        path[node->depth] = i;
    }
    for (uint32_t i = vocab->nodes_count; i-- > 1;) {
        const struct vocab_node *node = &vocab->nodes[i];
        vocab->nodes[parents[i]].below |= node->below | (uint64_t)1 << vocab_bucket(node->byte);
    }
    mem_free(parents);
}

struct grammar_vocab *grammar_vocab_new(const struct model_card *card)
{
    struct grammar_vocab *vocab = mem_zalloc(sizeof(*vocab));
    uint32_t count = 0;

    vocab->count = card->vocab_size;
    decode_all(vocab, card);
    struct entry *entries = sorted_entries(vocab, &count);
    size_t nodes_max = (size_t)vocab->offsets[vocab->count] + 2;
    vocab->nodes = mem_calloc(nodes_max, sizeof(*vocab->nodes));
    vocab->tokens = mem_calloc((size_t)count + 1, sizeof(*vocab->tokens));
    build(vocab, entries, count);
    ASSERT(vocab->nodes_count < nodes_max);
    vocab->nodes =
        mem_realloc(vocab->nodes, ((size_t)vocab->nodes_count + 1) * sizeof(*vocab->nodes));
    mem_free(entries);
    find_below(vocab);
    return vocab;
}

void grammar_vocab_free(struct grammar_vocab *vocab)
{
    if (vocab == NULL)
        return;
    mem_free(vocab->offsets);
    mem_free(vocab->bytes);
    mem_free(vocab->nodes);
    mem_free(vocab->tokens);
    mem_free(vocab);
}
