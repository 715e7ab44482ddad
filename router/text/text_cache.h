/* text_cache.h - the rendered prompt -> token ids, at the cost of the text that is new.
 *
 *   <|im_start|> user\nHello <|im_end|> \n <|im_start|> assistant\n
 *   seam         segment     seam       segment ...                  tail: the last segment
 *
 * A *seam* is a control token that the template wrote and that nothing around it can change
 * (tokenizer.h). So the ids of a prompt are the ids of its segments and seams one after the other,
 * and each segment is looked up alone:
 *
 *   turn memory     (what stands before it, its text) -> the ids that the model itself wrote there
 *   segment cache   its text -> its ids, whichever conversation it stands in
 *   tokenizer       the rest; then it is in the segment cache
 *
 * "What stands before it" is the hash of the seam before it (prompt_trace.h).
 *
 * Control tokens: turn memory holds ordinary tokens only, and a segment in which a control token
 * that is no seam may be recognised is tokenized anew each time. So nothing that a user writes can
 * become a control token by way of this cache. Entries of one cache_salt are not seen by another.
 *
 * Bound: one budget in bytes for everything, least recently used goes first. Thread: one. */
#ifndef REFRAIN_ROUTER_TEXT_TEXT_CACHE_H
#define REFRAIN_ROUTER_TEXT_TEXT_CACHE_H

#include "router/text/prompt_trace.h"
#include "router/text/tokenizer.h"

struct text_cache;

/* Whose text it is. */
struct text_owner {
    struct tokenizer *tokenizer;
    uint64_t tokenizer_id; /* another one for each tokenizer there ever was */
    const char *salt;      /* the request's cache_salt, "" */
    bool turn_memory;      /* may use ids that a model wrote, and remember them */
};

struct text_cache_counts {
    size_t bytes; /* all of it, the table included */
    size_t entries;
    /* Since the start. */
    uint64_t segment_tokens, turn_tokens, missed_tokens; /* found, found, tokenized */
    uint64_t evictions;
};

/* 0, or less than two of the smallest tables: holds nothing; traces are made all the same. */
struct text_cache *text_cache_new(size_t bytes_max);
void text_cache_free(struct text_cache *cache);

/* As tokenizer_encode(owner->tokenizer, ...), the same ids except for those from turn memory, and
 * its errors; *ret_trace (may be NULL, may be all zeroes) is filled on success. */
int text_cache_encode(struct text_cache *cache, const struct text_owner *owner, const char *text,
                      size_t bytes, const struct tokenize_options *options, struct token_ids *out,
                      struct prompt_trace *ret_trace);

/* A model went on after the prompt of `trace` with `ids`: `tail_ids` are the prompt's ids behind
 * trace->end. Without the id that ended the answer. What is known already stays as it is, so that
 * a conversation never changes ids under way. No-op without owner->turn_memory. */
void text_cache_remember(struct text_cache *cache, const struct text_owner *owner,
                         const struct prompt_trace *trace, const uint32_t *tail_ids,
                         size_t tail_ids_count, const uint32_t *ids, size_t count);

void text_cache_counts(const struct text_cache *cache, struct text_cache_counts *ret_counts);
/* For tests: recounts everything and asserts. */
void text_cache_check(const struct text_cache *cache);

#endif
