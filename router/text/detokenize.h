/* detokenize.h - token ids, one at a time, -> text that is always whole UTF-8.
 *
 * Bytes of an unfinished character are held until it is complete or can no longer become one; then
 * U+FFFD stands for them, as the model's own library writes it: one for the beginning of a
 * character (byte-level BPE), or one for each byte (byte tokens). Never half a character, never a
 * lost byte. Thread: one. */
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
    bool keep_special;       /* write control tokens' text too */
    enum decode_strip strip; /* what may be taken off while the text has not begun */
    const uint32_t *kept;    /* control tokens whose text is written all the same */
    uint32_t kept_count;
    struct buffer *bytes; /* NULL, or where the bytes go as they are, characters or not */
};

/* text_begins: the ids are the beginning of a text, so what the model's decoder takes off there
 * (the card's decode_strip) is taken off. */
void detokenizer_init(struct detokenizer *detokenizer, const struct tokenizer *tokenizer,
                      bool keep_special, bool text_begins);
/* Append what token `id` completes to *out. 0, or -ERANGE: no such id (nothing appended). */
int detokenizer_push(struct detokenizer *detokenizer, uint32_t id, struct buffer *out);
/* End of the answer: an unfinished character becomes U+FFFD. */
void detokenizer_finish(struct detokenizer *detokenizer, struct buffer *out);

#endif
