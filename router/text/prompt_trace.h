/* prompt_trace.h - where the seams of a prompt are, and one hash for all that stands before each.
 *
 *   <|im_start|> user\nHello <|im_end|> \n <|im_start|> assistant\n
 *   seam 0                  seam 1     seam 2          tail
 *
 * A seam is a control token that the template wrote (tokenizer.h says which). Made by
 * text_cache_encode() and kept with the request (struct request_prompt), whether the cache is on or
 * not.
 *
 * The *hash of a seam* covers everything up to its end: text, seams, tokenizer, cache_salt. Two
 * prompts are equal up to a seam exactly when the hashes are (64 bits under a key drawn at start,
 * so hashes mean nothing in another process). To compare two prompts, walk their `seams` side by
 * side: the first pair that differs in hash is where they part, behind the seam before it; when all
 * that both have are equal, one of them is longer. Prompts with different salts differ from the
 * first seam on.
 *
 * Ownership: the trace owns its lists. Limit: the first PROMPT_TRACE_SEAMS_MAX seams, 16 bytes
 * each, and a tail of PROMPT_TRACE_TAIL_MAX bytes. */
#ifndef REFRAIN_ROUTER_TEXT_PROMPT_TRACE_H
#define REFRAIN_ROUTER_TEXT_PROMPT_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PROMPT_TRACE_SEAMS_MAX 4096u
#define PROMPT_TRACE_TAIL_MAX (1u << 20)

/* One seam, and how much stands before its end. */
struct prompt_seam {
    uint64_t hash;
    uint32_t text_end;  /* bytes of the rendered text, the seam included */
    uint32_t ids_count; /* ids of the prompt, the seam included */
};

struct prompt_trace {
    struct prompt_seam *seams; /* rising */
    uint32_t seams_count, seams_capacity;
    uint32_t seams_total;   /* more than seams_count: the others were not kept */
    struct prompt_seam end; /* the last seam, kept or not; without any: the begin of the text */
    uint32_t text_bytes;    /* of the whole prompt */
    uint32_t ids_count;     /* of the whole prompt, as it was made */
    uint32_t turn_tokens;   /* ids that came from turn memory */
    /* The text behind the last seam, which the answer goes on from. NULL: turn memory cannot know
     * this answer (tail too long or not UTF-8, a control token in it, EOS behind it). */
    char *tail;
    uint32_t tail_bytes;
    bool tail_trim; /* the last seam swallows white space behind it */
};

/* All zeroes is a trace without anything. */
void prompt_trace_done(struct prompt_trace *trace);
void prompt_trace_add(struct prompt_trace *trace, const struct prompt_seam *seam);
/* A copy. `bytes` > PROMPT_TRACE_TAIL_MAX: no tail. */
void prompt_trace_set_tail(struct prompt_trace *trace, const char *text, size_t bytes, bool trim);

#endif
