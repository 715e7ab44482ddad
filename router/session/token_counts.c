/* token_counts.c - a direct-mapped table. Key 0 means free; the one hash that is 0 counts as 1. */
#include "router/session/token_counts.h"

#include "proto/base/mem.h"

struct slot {
    uint64_t key;
    uint32_t tokens;
};

struct token_counts {
    struct slot slots[TOKEN_COUNTS_SLOTS];
};

struct token_counts *token_counts_new(void)
{
    return mem_zalloc(sizeof(struct token_counts));
}

void token_counts_free(struct token_counts *counts)
{
    mem_free(counts);
}

bool token_counts_get(const struct token_counts *counts, uint64_t key, uint32_t *ret_tokens)
{
    const struct slot *slot = &counts->slots[key % TOKEN_COUNTS_SLOTS];

    if (slot->key != (key ? key : 1))
        return false;
    *ret_tokens = slot->tokens;
    return true;
}

void token_counts_set(struct token_counts *counts, uint64_t key, uint32_t tokens)
{
    counts->slots[key % TOKEN_COUNTS_SLOTS] = (struct slot){key ? key : 1, tokens};
}
