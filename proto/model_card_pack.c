/* model_card_pack.c - a card's packed form on the wire.
 *
 * Layout, little-endian, every field on a 4-byte border:
 *
 *   header   magic u32 | version u32 | bytes u32 (all of it) | zero u32 | XXH3-64 of the rest u64
 *   names    3 x { bytes u32 (ABSENT: no text) | text, zero padded }   name .. fingerprint
 *   numbers  struct packed_numbers
 *   texts    3 x { as names }                                          pre, both templates
 *   tables   4 x { count u32 | bytes u32 | offsets u32[count + 1] | text, zero padded }
 *   types    count u32 | u8[count], zero padded;   flags: the same, count 0 = none
 *   scores   count u32 | f32[count];               count 0 = none;   wide scores: f64
 *   charsmap bytes u32 | bytes, zero padded;       bytes 0 = none
 *
 * Why not protobuf: a vocabulary is 300,000 short strings; as repeated fields they cost an
 * allocation each. Here a card is one copy and the tables point into it. Invariant: whatever
 * model_card_unpack returns has passed model_card_check. Cost: one pass over the bytes; 2 ms for a
 * vocabulary of 150,000. */
#include <errno.h>
#include <string.h>
#include <xxhash.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "proto/model_card.h"
#include "proto/model_card_private.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "model_card_pack.c reads arrays as they lie in memory: little-endian machines only"
#endif

#define TEXT_ABSENT UINT32_MAX

enum {
    BIT_ADD_BOS = 1,
    BIT_ADD_EOS = 2,
    BIT_SPACE = 4,
    BIT_EXTRA = 8,
    BIT_IGNORE = 16,
    BIT_NFC = 32,
    BIT_FUSE = 64,
    BIT_DOUBLE = 128,
    BIT_SENTENCEPIECE = 256
};
#define BITS_KNOWN 511u

struct packed_header {
    uint32_t magic, version, bytes, zero;
    uint64_t checksum;
};

struct packed_numbers {
    uint32_t context_tokens, vocab_size, tokenizer, bits;
    uint32_t bos, eos, eot, unk, pad;
    uint32_t top_k, eos_count;
    uint32_t eos_ids[MODEL_CARD_EOS_MAX];
    uint32_t lead_count, lead_ids[MODEL_CARD_LEAD_MAX];
    uint32_t tail_count, tail_ids[MODEL_CARD_LEAD_MAX];
    uint32_t decode_strip;
    double temperature, top_p, min_p, repetition_penalty;
    uint64_t answer_tokens_max;
};
_Static_assert(sizeof(struct packed_header) == 24, "the layout is the wire's");
_Static_assert(sizeof(struct packed_numbers) == 38 * 4 + 5 * 8, "no padding goes on the wire");

static size_t padded(size_t bytes)
{
    return (bytes + 3) & ~(size_t)3;
}

/* Writes to `at` and moves on; with data NULL it only counts, so sizes are stated once. */
struct writer {
    char *data;
    size_t at;
};

static void put(struct writer *writer, const void *data, size_t bytes)
{
    size_t whole = padded(bytes);
    if (writer->data != NULL && bytes > 0)
        memcpy(writer->data + writer->at, data, bytes);
    if (writer->data != NULL && whole > bytes)
        memset(writer->data + writer->at + bytes, 0, whole - bytes);
    writer->at += whole;
}

static void put_u32(struct writer *writer, uint32_t value)
{
    put(writer, &value, sizeof(value));
}

static void put_text(struct writer *writer, const char *text)
{
    size_t bytes = text == NULL ? 0 : strlen(text);
    put_u32(writer, text == NULL ? TEXT_ABSENT : (uint32_t)bytes);
    put(writer, text, bytes);
}

static void put_table(struct writer *writer, const struct string_table *table)
{
    uint32_t bytes = table->offsets[table->count];
    put_u32(writer, table->count);
    put_u32(writer, bytes);
    put(writer, table->offsets, ((size_t)table->count + 1) * sizeof(uint32_t));
    put(writer, table->bytes, bytes);
}

static void put_numbers(struct writer *writer, const struct model_card *card)
{
    struct packed_numbers numbers = {
        .context_tokens = card->context_tokens,
        .vocab_size = card->vocab_size,
        .tokenizer = (uint32_t)card->tokenizer,
        .bos = card->bos,
        .eos = card->eos,
        .eot = card->eot,
        .unk = card->unk,
        .pad = card->pad,
        .top_k = card->top_k,
        .eos_count = card->eos_count,
        .lead_count = card->lead_count,
        .tail_count = card->tail_count,
        .decode_strip = (uint32_t)card->decode_strip,
        .temperature = card->temperature,
        .top_p = card->top_p,
        .min_p = card->min_p,
        .answer_tokens_max = card->answer_tokens_max,
        .repetition_penalty = card->repetition_penalty,
    };
    numbers.bits = (card->add_bos ? BIT_ADD_BOS : 0) | (card->add_eos ? BIT_ADD_EOS : 0) |
                   (card->add_space_prefix ? BIT_SPACE : 0) |
                   (card->remove_extra_whitespaces ? BIT_EXTRA : 0) |
                   (card->ignore_merges ? BIT_IGNORE : 0) | (card->normalize_nfc ? BIT_NFC : 0) |
                   (card->fuse_unk ? BIT_FUSE : 0) | (card->double_sums ? BIT_DOUBLE : 0) |
                   (card->sentencepiece ? BIT_SENTENCEPIECE : 0);
    memcpy(numbers.eos_ids, card->eos_ids, card->eos_count * sizeof(uint32_t));
    memcpy(numbers.lead_ids, card->lead_ids, card->lead_count * sizeof(uint32_t));
    memcpy(numbers.tail_ids, card->tail_ids, card->tail_count * sizeof(uint32_t));
    put(writer, &numbers, sizeof(numbers));
}

/* Everything but the header and the names. */
static void put_words(struct writer *writer, const struct model_card *card)
{
    uint32_t count = card->tokens.count;
    put_numbers(writer, card);
    put_text(writer, card->pre);
    put_text(writer, card->chat_template);
    put_text(writer, card->tool_template);
    put_table(writer, &card->normalizers);
    put_table(writer, &card->pretokenizers);
    put_table(writer, &card->tokens);
    put_table(writer, &card->merges);
    put_u32(writer, count);
    put(writer, card->token_types, count);
    put_u32(writer, card->token_flags == NULL ? 0 : count);
    put(writer, card->token_flags, card->token_flags == NULL ? 0 : count);
    put_u32(writer, card->scores == NULL ? 0 : count);
    put(writer, card->scores, card->scores == NULL ? 0 : count * sizeof(float));
    put_u32(writer, card->wide_scores == NULL ? 0 : count);
    put(writer, card->wide_scores, card->wide_scores == NULL ? 0 : count * sizeof(double));
    put_u32(writer, card->charsmap_bytes);
    put(writer, card->charsmap, card->charsmap_bytes);
}

static void put_card(struct writer *writer, const struct model_card *card)
{
    writer->at += sizeof(struct packed_header);
    put_text(writer, card->name);
    put_text(writer, card->architecture);
    put_text(writer, card->fingerprint);
    put_words(writer, card);
}

void model_card_words_digest(const struct model_card *card, uint64_t ret_digest[2])
{
    struct writer writer = {0};
    put_words(&writer, card);
    size_t bytes = writer.at;
    writer = (struct writer){.data = mem_alloc(bytes)};
    put_words(&writer, card);
    XXH128_hash_t hash = XXH3_128bits(writer.data, bytes);
    mem_free(writer.data);
    ret_digest[0] = hash.low64;
    ret_digest[1] = hash.high64;
}

int model_card_pack(const struct model_card *card, void **ret_data, size_t *ret_bytes,
                    struct errmsg *err)
{
    struct writer writer = {0};
    int r = model_card_check(card, err);
    if (r < 0)
        return r;
    put_card(&writer, card);
    if (writer.at > MODEL_CARD_BYTES_MAX)
        return errmsg_set(err, -EMSGSIZE, "model card of %zu bytes, at most %u", writer.at,
                          MODEL_CARD_BYTES_MAX);
    size_t bytes = writer.at;
    writer = (struct writer){.data = mem_alloc(bytes)};
    put_card(&writer, card);
    ASSERT(writer.at == bytes);
    struct packed_header header = {
        .magic = MODEL_CARD_MAGIC,
        .version = MODEL_CARD_VERSION,
        .bytes = (uint32_t)bytes,
        .checksum = XXH3_64bits(writer.data + sizeof(header), bytes - sizeof(header)),
    };
    memcpy(writer.data, &header, sizeof(header));
    *ret_data = writer.data;
    *ret_bytes = bytes;
    return 0;
}

/* --- unpack ---------------------------------------------------------------------------------- */

struct reader {
    const char *data;
    size_t at, bytes;
    struct errmsg *err;
};

static int take(struct reader *reader, size_t bytes, const char *what, const void **ret_data)
{
    size_t left = reader->bytes - reader->at;
    if (bytes > left || padded(bytes) > left)
        return errmsg_set(reader->err, -EINVAL,
                          "packed model card: %s needs %zu bytes at byte %zu of %zu", what, bytes,
                          reader->at, reader->bytes);
    *ret_data = reader->data + reader->at;
    reader->at += padded(bytes);
    return 0;
}

static int take_u32(struct reader *reader, const char *what, uint32_t *ret_value)
{
    const void *data = NULL;
    int r = take(reader, sizeof(*ret_value), what, &data);
    if (r == 0)
        memcpy(ret_value, data, sizeof(*ret_value));
    return r;
}

static int take_text(struct reader *reader, const char *what, char **ret_text)
{
    uint32_t bytes = 0;
    const void *text = NULL;
    int r = take_u32(reader, what, &bytes);
    if (r < 0 || bytes == TEXT_ABSENT)
        return r;
    r = take(reader, bytes, what, &text);
    if (r < 0)
        return r;
    if (memchr(text, '\0', bytes) != NULL)
        return errmsg_set(reader->err, -EINVAL, "packed model card: %s holds a NUL", what);
    *ret_text = mem_strndup(text, bytes);
    return 0;
}

static int take_table(struct reader *reader, const char *what, struct string_table *table)
{
    uint32_t count = 0, bytes = 0;
    const void *offsets = NULL, *text = NULL;
    int r = take_u32(reader, what, &count);
    if (r == 0)
        r = take_u32(reader, what, &bytes);
    if (r == 0)
        r = take(reader, ((size_t)count + 1) * sizeof(uint32_t), what, &offsets);
    if (r == 0)
        r = take(reader, bytes, what, &text);
    if (r < 0)
        return r;
    table->count = count;
    table->offsets = offsets;
    table->bytes = text;
    if (table->offsets[count] != bytes) /* rising offsets (model_card_check) then all lie inside */
        return errmsg_set(reader->err, -EINVAL, "packed model card: %s end at %u, not at %u", what,
                          table->offsets[count], bytes);
    return 0;
}

/* An array with one item per token, or of none when it may be absent. */
static int take_array(struct reader *reader, const char *what, uint32_t tokens, size_t item_bytes,
                      bool optional, const void **ret_data)
{
    uint32_t count = 0;
    int r = take_u32(reader, what, &count);
    if (r < 0 || (optional && count == 0))
        return r;
    if (count != tokens)
        return errmsg_set(reader->err, -EINVAL, "packed model card: %u %s for %u tokens", count,
                          what, tokens);
    return take(reader, count * item_bytes, what, ret_data);
}

static int take_numbers(struct reader *reader, struct model_card *card)
{
    struct packed_numbers numbers;
    const void *data = NULL;
    int r = take(reader, sizeof(numbers), "numbers", &data);
    if (r < 0)
        return r;
    memcpy(&numbers, data, sizeof(numbers));
    if ((numbers.bits & ~BITS_KNOWN) != 0)
        return errmsg_set(reader->err, -EINVAL, "packed model card: unknown bits 0x%x",
                          numbers.bits);
    card->context_tokens = numbers.context_tokens;
    card->vocab_size = numbers.vocab_size;
    card->tokenizer = numbers.tokenizer < TOKENIZER_MODELS ? (enum tokenizer_model)numbers.tokenizer
                                                           : TOKENIZER_MODELS;
    card->bos = numbers.bos;
    card->eos = numbers.eos;
    card->eot = numbers.eot;
    card->unk = numbers.unk;
    card->pad = numbers.pad;
    card->top_k = numbers.top_k;
    card->eos_count = numbers.eos_count;
    card->lead_count = numbers.lead_count;
    card->tail_count = numbers.tail_count;
    card->decode_strip = numbers.decode_strip < DECODE_STRIPS
                             ? (enum decode_strip)numbers.decode_strip
                             : DECODE_STRIPS;
    memcpy(card->eos_ids, numbers.eos_ids, sizeof(card->eos_ids));
    memcpy(card->lead_ids, numbers.lead_ids, sizeof(card->lead_ids));
    memcpy(card->tail_ids, numbers.tail_ids, sizeof(card->tail_ids));
    card->temperature = numbers.temperature;
    card->top_p = numbers.top_p;
    card->min_p = numbers.min_p;
    card->answer_tokens_max =
        numbers.answer_tokens_max > UINT32_MAX ? UINT32_MAX : (uint32_t)numbers.answer_tokens_max;
    card->repetition_penalty = numbers.repetition_penalty;
    card->add_bos = (numbers.bits & BIT_ADD_BOS) != 0;
    card->add_eos = (numbers.bits & BIT_ADD_EOS) != 0;
    card->add_space_prefix = (numbers.bits & BIT_SPACE) != 0;
    card->remove_extra_whitespaces = (numbers.bits & BIT_EXTRA) != 0;
    card->ignore_merges = (numbers.bits & BIT_IGNORE) != 0;
    card->normalize_nfc = (numbers.bits & BIT_NFC) != 0;
    card->fuse_unk = (numbers.bits & BIT_FUSE) != 0;
    card->double_sums = (numbers.bits & BIT_DOUBLE) != 0;
    card->sentencepiece = (numbers.bits & BIT_SENTENCEPIECE) != 0;
    return 0;
}

static int take_card(struct reader *reader, struct model_card *card)
{
    const void *types = NULL, *flags = NULL, *scores = NULL, *wide = NULL, *charsmap = NULL;
    int r = take_text(reader, "name", &card->name);
    if (r == 0)
        r = take_text(reader, "architecture", &card->architecture);
    if (r == 0)
        r = take_text(reader, "fingerprint", &card->fingerprint);
    if (r == 0)
        r = take_numbers(reader, card);
    if (r == 0)
        r = take_text(reader, "pre-tokenizer name", &card->pre);
    if (r == 0)
        r = take_text(reader, "chat template", &card->chat_template);
    if (r == 0)
        r = take_text(reader, "tool template", &card->tool_template);
    if (r == 0)
        r = take_table(reader, "normalizers", &card->normalizers);
    if (r == 0)
        r = take_table(reader, "pretokenizers", &card->pretokenizers);
    if (r == 0)
        r = take_table(reader, "tokens", &card->tokens);
    if (r == 0)
        r = take_table(reader, "merges", &card->merges);
    if (r == 0)
        r = take_array(reader, "token types", card->tokens.count, 1, false, &types);
    if (r == 0)
        r = take_array(reader, "token flags", card->tokens.count, 1, true, &flags);
    if (r == 0)
        r = take_array(reader, "scores", card->tokens.count, sizeof(float), true, &scores);
    if (r == 0)
        r = take_array(reader, "wide scores", card->tokens.count, sizeof(double), true, &wide);
    if (r == 0)
        r = take_u32(reader, "charsmap", &card->charsmap_bytes);
    if (r == 0)
        r = take(reader, card->charsmap_bytes, "charsmap", &charsmap);
    if (r < 0)
        return r;
    if (wide != NULL) /* copied: in the packed bytes they need not lie on 8 */
        model_card_set_wide_scores(card, wide);
    card->charsmap = card->charsmap_bytes == 0 ? NULL : charsmap;
    card->token_types = types;
    card->token_flags = flags;
    card->scores = scores;
    if (reader->at != reader->bytes)
        return errmsg_set(reader->err, -EINVAL, "packed model card: %zu bytes left over",
                          reader->bytes - reader->at);
    return model_card_check(card, reader->err);
}

static int check_header(const void *data, size_t bytes, struct errmsg *err)
{
    struct packed_header header;
    if (bytes > MODEL_CARD_BYTES_MAX)
        return errmsg_set(err, -EMSGSIZE, "packed model card of %zu bytes, at most %u", bytes,
                          MODEL_CARD_BYTES_MAX);
    if (bytes < sizeof(header))
        return errmsg_set(err, -EINVAL, "packed model card: %zu bytes are too few", bytes);
    memcpy(&header, data, sizeof(header));
    if (header.magic != MODEL_CARD_MAGIC)
        return errmsg_set(err, -EINVAL, "packed model card: wrong magic 0x%08x", header.magic);
    if (header.version != MODEL_CARD_VERSION)
        return errmsg_set(err, -EINVAL, "packed model card: version %u, this build speaks %u",
                          header.version, MODEL_CARD_VERSION);
    if (header.bytes != bytes || header.zero != 0)
        return errmsg_set(err, -EINVAL, "packed model card: says %u bytes, has %zu", header.bytes,
                          bytes);
    const char *body = (const char *)data + sizeof(header);
    if (XXH3_64bits(body, bytes - sizeof(header)) != header.checksum)
        return errmsg_set(err, -EINVAL, "packed model card: wrong checksum");
    return 0;
}

int model_card_unpack(const void *data, size_t bytes, struct model_card **ret_card,
                      struct errmsg *err)
{
    int r = check_header(data, bytes, err);
    if (r < 0)
        return r;
    struct model_card *card = model_card_new();
    struct reader reader = {.data = model_card_copy(card, data, bytes),
                            .at = sizeof(struct packed_header),
                            .bytes = bytes,
                            .err = err};
    r = take_card(&reader, card);
    if (r < 0) {
        model_card_unref(card);
        return r;
    }
    if (card->pre == NULL)
        card->pre = mem_strdup("");
    *ret_card = card;
    return 0;
}
