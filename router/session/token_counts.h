/* token_counts.h - how many tokens a text had the last time, by its hash.
 *
 * The history policy counts every message of a chat in every turn; only the new ones are
 * tokenized. A fixed table without chains: a newcomer takes the place of whoever was there, which
 * costs one counting again. Thread: the loop's. */
#ifndef REFRAIN_ROUTER_SESSION_TOKEN_COUNTS_H
#define REFRAIN_ROUTER_SESSION_TOKEN_COUNTS_H

#include <stdbool.h>
#include <stdint.h>

#define TOKEN_COUNTS_SLOTS 65536u /* 1 MiB */

struct token_counts;

struct token_counts *token_counts_new(void);
void token_counts_free(struct token_counts *counts);
/* key: hash of the text and of the model. False: not known. */
bool token_counts_get(const struct token_counts *counts, uint64_t key, uint32_t *ret_tokens);
void token_counts_set(struct token_counts *counts, uint64_t key, uint32_t tokens);

#endif
