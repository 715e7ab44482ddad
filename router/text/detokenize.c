/* detokenize.c - tokens end inside characters; clients must not see that.
 *
 *   held   0 to 3 bytes that are the beginning of a character
 *   byte   completes it -> written; continues it -> held; cannot belong to it -> the held bytes
 *          become U+FFFD and the byte is looked at again as a first byte
 *
 * So the text written is the same however its bytes are spread over tokens. Control tokens' text is
 * written when asked for; bytes held before one wait for what comes after it only if its text is
 * not written. Cost: valid text that meets no held byte is copied as a whole. */
#include "router/text/detokenize.h"

#include <errno.h>
#include <string.h>

#include "proto/base/assert.h"
#include "router/text/unicode.h"

#define BAD_BYTE "\xef\xbf\xbd" /* U+FFFD */

void detokenizer_init(struct detokenizer *detokenizer, const struct tokenizer *tokenizer,
                      bool keep_special, bool text_begins)
{
    *detokenizer = (struct detokenizer){
        .tokenizer = tokenizer,
        .keep_special = keep_special,
        .strip = text_begins ? tokenizer_card(tokenizer)->decode_strip : DECODE_STRIP_NONE};
}

static void give_up(struct detokenizer *detokenizer, struct buffer *out)
{
    bool as_one = tokenizer_card(detokenizer->tokenizer)->tokenizer == TOKENIZER_BPE;
    for (uint8_t i = 0; i < detokenizer->held_bytes && !(as_one && i > 0); i++)
        buffer_append(out, BAD_BYTE, sizeof(BAD_BYTE) - 1);
    detokenizer->held_bytes = 0;
}

static void push_byte(struct detokenizer *detokenizer, unsigned char byte, struct buffer *out)
{
    ASSERT(detokenizer->held_bytes < sizeof(detokenizer->held));
    for (;;) {
        detokenizer->held[detokenizer->held_bytes] = byte;
        uint32_t count = detokenizer->held_bytes + 1u;
        if (utf8_sequence((const char *)detokenizer->held, count) == count) {
            buffer_append(out, detokenizer->held, count);
            detokenizer->held_bytes = 0;
            return;
        }
        if (utf8_is_beginning(detokenizer->held, count)) {
            detokenizer->held_bytes = (uint8_t)count;
            return;
        }
        if (detokenizer->held_bytes == 0) {
            buffer_append(out, BAD_BYTE, sizeof(BAD_BYTE) - 1);
            return;
        }
        give_up(detokenizer, out);
    }
}

static bool is_kept(const struct detokenizer *detokenizer, uint32_t id)
{
    bool found = detokenizer->keep_special;
    for (uint32_t i = 0; i < detokenizer->kept_count && !found; i++)
        found = detokenizer->kept[i] == id;
    return found;
}

int detokenizer_push(struct detokenizer *detokenizer, uint32_t id, struct buffer *out)
{
    const char *text = NULL;
    size_t bytes = 0, at = 0;
    bool control = false;
    int r = tokenizer_token_bytes(detokenizer->tokenizer, id, &text, &bytes, &control);
    if (r < 0)
        return r;
    if ((control && !is_kept(detokenizer, id)) || bytes == 0)
        return 0;
    if (detokenizer->strip != DECODE_STRIP_NONE && text[0] == ' ')
        at = 1;
    while (detokenizer->strip == DECODE_STRIP_SPACES && at < bytes && text[at] == ' ')
        at++;
    if (at < bytes || detokenizer->strip == DECODE_STRIP_SPACE)
        detokenizer->strip = DECODE_STRIP_NONE;
    if (detokenizer->bytes != NULL)
        buffer_append(detokenizer->bytes, text + at, bytes - at);
    while (at < bytes) {
        size_t valid = detokenizer->held_bytes == 0 ? utf8_valid_bytes(text + at, bytes - at) : 0;
        buffer_append(out, text + at, valid);
        at += valid;
        if (at < bytes)
            push_byte(detokenizer, (unsigned char)text[at++], out);
    }
    return 0;
}

void detokenizer_finish(struct detokenizer *detokenizer, struct buffer *out)
{
    give_up(detokenizer, out);
}
