/* token_text.h - a token as the model file stores it -> the bytes that it stands for.
 *
 * Stored forms are undone here, once for all:
 *   byte-level BPE   every byte is a printable code point (33-126, 161-172, 174-255 stand for
 *                    themselves, the other 68 bytes for U+0100 and up, in order)
 *   SentencePiece    a space is U+2581, an unknown byte is <0xXX>
 *   control, user-defined, unknown tokens: their literal text
 *
 * Pure. Thread: any. */
#ifndef REFRAIN_PROTO_TOKEN_TEXT_H
#define REFRAIN_PROTO_TOKEN_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/model_card.h"

/* ret_bytes has room for `count` bytes: the result is never longer. Returns its length. */
size_t token_text_decode(enum tokenizer_model model, enum token_type type, const char *stored,
                         size_t count, char *ret_bytes);

/* The code point that a byte is in the byte alphabet. */
uint32_t token_text_alphabet(unsigned char byte);
/* Is the stored text one character of the byte alphabet? Then *ret_byte is its byte. */
bool token_text_is_byte(const char *stored, size_t count, unsigned char *ret_byte);

#endif
