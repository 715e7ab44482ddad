/* vocab.h - the tokens of a model as bytes, in a trie: what a mask is computed over.
 *
 * A token without text of its own (control, unknown, unused, empty) is in no mask; a byte token is
 * its byte. Built once per model from its card. Immutable. Thread: any. */
#ifndef REFRAIN_PROTO_GRAMMAR_VOCAB_H
#define REFRAIN_PROTO_GRAMMAR_VOCAB_H

#include <stddef.h>
#include <stdint.h>

#include "proto/model_card.h"

/* Nodes in depth-first order: the children of a node follow it, its subtree ends at `end`. */
struct vocab_node {
    uint32_t end;
    uint32_t first_token; /* into tokens[]; the next node's is where they stop */
    uint16_t depth;       /* bytes from the root, which is node 0 */
    uint8_t byte;
    uint64_t below; /* buckets of the bytes under it: vocab_bucket */
};

/* A coarse class of bytes, 0..63: letters, digits and every sign of ASCII apart. Grammars that loop
 * over text (the inside of a string) loop over whole buckets. */
uint8_t vocab_bucket(uint8_t byte);

struct grammar_vocab {
    uint32_t count;    /* ids, the size of a mask */
    uint32_t *offsets; /* [count + 1] into bytes; empty: the token has no text */
    char *bytes;
    struct vocab_node *nodes; /* [nodes_count + 1] */
    uint32_t nodes_count;
    uint32_t *tokens; /* ids by node */
    uint32_t token_bytes_max;
};

/* Cost: about 0.5 us a token, 20 ms at 49k. */
struct grammar_vocab *grammar_vocab_new(const struct model_card *card);
void grammar_vocab_free(struct grammar_vocab *vocab); /* NULL is fine */

/* Length 0: no text. */
static inline const char *grammar_vocab_text(const struct grammar_vocab *vocab, uint32_t id,
                                             size_t *ret_bytes)
{
    *ret_bytes = vocab->offsets[id + 1] - vocab->offsets[id];
    return vocab->bytes + vocab->offsets[id];
}

#endif
