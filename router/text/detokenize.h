/* detokenize.h - token ids, one at a time, -> text that is always whole UTF-8.
 *
 * Bytes of an unfinished character are held until it is complete or can no longer become one; then
 * each wrong byte becomes U+FFFD. Never half a character, never a lost byte. Thread: one. */
#ifndef REFRAIN_ROUTER_TEXT_DETOKENIZE_H
#define REFRAIN_ROUTER_TEXT_DETOKENIZE_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/buffer.h"
#include "router/text/tokenizer.h"

struct detokenizer {
    const struct tokenizer *tokenizer;
    unsigned char held[4];
    uint8_t held_bytes;
    bool keep_special;    /* write control tokens' text too */
    bool at_start;        /* SPM: strip the one dummy space of the first piece */
    const uint32_t *kept; /* control tokens whose text is written all the same */
    uint32_t kept_count;
};

void detokenizer_init(struct detokenizer *detokenizer, const struct tokenizer *tokenizer,
                      bool keep_special, bool strip_first_space);
/* Append what token `id` completes to *out. 0, or -ERANGE: no such id (nothing appended). */
int detokenizer_push(struct detokenizer *detokenizer, uint32_t id, struct buffer *out);
/* End of the answer: an unfinished character becomes U+FFFD. */
void detokenizer_finish(struct detokenizer *detokenizer, struct buffer *out);

#endif
