/* sentencepiece.c - ModelProto (sentencepiece_model.proto of the library, public field numbers).
 *
 *   ModelProto       pieces 1 (repeated), trainer_spec 2, normalizer_spec 3
 *   SentencePiece    piece 1, score 2 (float), type 3: 1 normal .. 6 byte, as in token_types
 *   TrainerSpec      model_type 3: 1 unigram, 2 BPE, 3 word, 4 char; treat_whitespace_as_suffix 24,
 *                    bos_id 41, eos_id 42, pad_id 43 (which piece is what else, its type says)
 *   NormalizerSpec   precompiled_charsmap 2, add_dummy_prefix 3, remove_extra_whitespaces 4,
 *                    escape_whitespaces 5
 *
 * Why read by hand: six field kinds of the simplest wire format, where protobuf-c would make a
 * message with two allocations of each of 256,000 pieces. Every length is checked before use;
 * unknown fields are skipped, as protobuf has it. Cost: one pass over the file. */
#include "proto/files/sentencepiece.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "proto/base/mem.h"

enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };
enum { MODEL_UNIGRAM = 1, MODEL_BPE = 2 };

/* Bytes left of a message. */
struct cursor {
    const uint8_t *at, *end;
};

struct field {
    uint32_t number, wire;
    uint64_t value;      /* WIRE_VARINT, WIRE_32 */
    struct cursor bytes; /* WIRE_BYTES */
};

static bool read_varint(struct cursor *cursor, uint64_t *ret_value)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 70 && cursor->at < cursor->end; shift += 7) {
        uint8_t byte = *cursor->at++;
        if (shift < 64)
            value |= (uint64_t)(byte & 0x7f) << shift;
        if ((byte & 0x80) == 0) {
            *ret_value = value;
            return true;
        }
    }
    return false;
}

/* The next field; false: malformed. Only called with bytes left. */
static bool read_field(struct cursor *cursor, struct field *ret)
{
    uint64_t key = 0, size = 0;
    memset(ret, 0, sizeof(*ret));
    if (!read_varint(cursor, &key) || key >> 3 == 0 || key >> 3 > UINT32_MAX >> 3)
        return false;
    ret->number = (uint32_t)(key >> 3);
    ret->wire = (uint32_t)(key & 7);
    switch (ret->wire) {
    case WIRE_VARINT:
        return read_varint(cursor, &ret->value);
    case WIRE_BYTES:
        if (!read_varint(cursor, &size))
            return false;
        break;
    case WIRE_64:
        size = 8;
        break;
    case WIRE_32:
        size = 4;
        break;
    default:
        return false;
    }
    if (size > (uint64_t)(cursor->end - cursor->at))
        return false;
    ret->bytes = (struct cursor){cursor->at, cursor->at + size};
    if (ret->wire == WIRE_32) {
        uint32_t value = 0;
        memcpy(&value, cursor->at, sizeof(value));
        ret->value = value;
    }
    cursor->at += size;
    return true;
}

struct reading {
    struct model_card *card;
    struct errmsg *err;
    struct string_table_builder tokens;
    uint8_t *types;
    float *scores;
    uint32_t count, max;
    uint64_t model_type;
    bool suffix, no_escape, has_unused;
    int64_t bos_id, eos_id, pad_id;
};

static int malformed(struct reading *reading, const char *what)
{
    return errmsg_set(reading->err, -EINVAL, "not a SentencePiece model: %s is malformed", what);
}

/* --- the three messages ---------------------------------------------------------------------- */

static int read_piece(struct reading *reading, struct cursor cursor)
{
    struct field field;
    struct cursor text = {NULL, NULL};
    uint32_t bits = 0;
    uint64_t type = TOKEN_NORMAL;
    while (cursor.at < cursor.end) {
        if (!read_field(&cursor, &field))
            return malformed(reading, "a piece");
        if (field.number == 1 && field.wire == WIRE_BYTES)
            text = field.bytes;
        else if (field.number == 2 && field.wire == WIRE_32)
            bits = (uint32_t)field.value;
        else if (field.number == 3 && field.wire == WIRE_VARINT)
            type = field.value;
    }
    if (type < TOKEN_NORMAL || type > TOKEN_BYTE)
        return errmsg_set(reading->err, -EINVAL, "piece %u has type %llu, 1 to 6 are known",
                          reading->count, (unsigned long long)type);
    if (reading->count == MODEL_CARD_TOKENS_MAX)
        return errmsg_set(reading->err, -E2BIG, "more than %u pieces", MODEL_CARD_TOKENS_MAX);
    if (reading->count == reading->max) {
        reading->max = reading->max == 0 ? 1024 : reading->max * 2;
        reading->types = mem_realloc(reading->types, reading->max);
        reading->scores = mem_realloc(reading->scores, reading->max * sizeof(float));
    }
    memcpy(&reading->scores[reading->count], &bits, sizeof(bits));
    reading->types[reading->count++] = (uint8_t)type;
    reading->has_unused = reading->has_unused || type == TOKEN_UNUSED;
    int r = string_table_builder_add(&reading->tokens, (const char *)text.at,
                                     (size_t)(text.end - text.at));
    return r < 0 ? errmsg_set(reading->err, r, "the pieces have too much text") : 0;
}

static int read_trainer(struct reading *reading, struct cursor cursor)
{
    struct field field;
    while (cursor.at < cursor.end) {
        if (!read_field(&cursor, &field))
            return malformed(reading, "trainer_spec");
        if (field.wire != WIRE_VARINT)
            continue;
        if (field.number == 3)
            reading->model_type = field.value;
        else if (field.number == 24)
            reading->suffix = field.value != 0;
        else if (field.number == 41)
            reading->bos_id = (int64_t)field.value;
        else if (field.number == 42)
            reading->eos_id = (int64_t)field.value;
        else if (field.number == 43)
            reading->pad_id = (int64_t)field.value;
    }
    return 0;
}

static int read_normalizer(struct reading *reading, struct cursor cursor)
{
    struct model_card *card = reading->card;
    struct field field;
    while (cursor.at < cursor.end) {
        if (!read_field(&cursor, &field))
            return malformed(reading, "normalizer_spec");
        if (field.number == 2 && field.wire == WIRE_BYTES && card->charsmap == NULL &&
            field.bytes.at < field.bytes.end) {
            if (field.bytes.end - field.bytes.at > MODEL_CARD_BYTES_MAX)
                return malformed(reading, "precompiled_charsmap");
            model_card_set_charsmap(card, field.bytes.at,
                                    (uint32_t)(field.bytes.end - field.bytes.at));
        } else if (field.number == 3 && field.wire == WIRE_VARINT) {
            card->add_space_prefix = field.value != 0;
        } else if (field.number == 4 && field.wire == WIRE_VARINT) {
            card->remove_extra_whitespaces = field.value != 0;
        } else if (field.number == 5 && field.wire == WIRE_VARINT) {
            reading->no_escape = field.value == 0;
        }
    }
    return 0;
}

static int read_model(struct reading *reading, struct cursor cursor)
{
    struct field field;
    while (cursor.at < cursor.end) {
        int r = 0;
        if (!read_field(&cursor, &field))
            return malformed(reading, "the file");
        if (field.wire != WIRE_BYTES)
            continue;
        if (field.number == 1)
            r = read_piece(reading, field.bytes);
        else if (field.number == 2)
            r = read_trainer(reading, field.bytes);
        else if (field.number == 3)
            r = read_normalizer(reading, field.bytes);
        if (r < 0)
            return r;
    }
    return reading->count > 0 ? 0 : malformed(reading, "a file without pieces");
}

/* --- into the card --------------------------------------------------------------------------- */

static int check_rules(struct reading *reading)
{
    static const char *const names[] = {"(none)", "unigram", "bpe", "word", "char"};
    uint64_t type = reading->model_type;
    if (type != MODEL_UNIGRAM && type != MODEL_BPE)
        return errmsg_set(
            reading->err, -ENOTSUP,
            "SentencePiece model type %llu (%s) is not supported; supported: unigram, "
            "bpe",
            (unsigned long long)type, type < 5 ? names[type] : "unknown");
    if (reading->suffix)
        return errmsg_set(reading->err, -ENOTSUP, "treat_whitespace_as_suffix is not supported");
    if (reading->no_escape)
        return errmsg_set(reading->err, -ENOTSUP, "escape_whitespaces false is not supported");
    if (type == MODEL_BPE && reading->has_unused)
        return errmsg_set(reading->err, -ENOTSUP, "BPE with unused pieces is not supported");
    return 0;
}

/* -1 stands for none. The id's piece must be of a kind that text never becomes. */
static uint32_t special_id(const struct reading *reading, int64_t id)
{
    if (id < 0 || id >= (int64_t)reading->count)
        return TOKEN_ID_NONE;
    uint8_t type = reading->types[id];
    return type == TOKEN_CONTROL || type == TOKEN_UNKNOWN ? (uint32_t)id : TOKEN_ID_NONE;
}

static void fill_card(struct reading *reading)
{
    struct model_card *card = reading->card;
    uint8_t *flags = mem_zalloc(reading->count);
    for (uint32_t id = 0; id < reading->count; id++) {
        if (reading->types[id] == TOKEN_USER_DEFINED)
            flags[id] = TOKEN_NORMALIZED;
        if (reading->types[id] == TOKEN_UNKNOWN && card->unk == TOKEN_ID_NONE)
            card->unk = id;
    }
    card->tokenizer = reading->model_type == MODEL_BPE ? TOKENIZER_SPM : TOKENIZER_UNIGRAM;
    card->sentencepiece = true;
    card->bos = special_id(reading, reading->bos_id);
    card->eos = special_id(reading, reading->eos_id);
    card->pad = special_id(reading, reading->pad_id);
    card->add_bos = card->bos != TOKEN_ID_NONE;
    card->add_eos = !card->add_bos && card->eos != TOKEN_ID_NONE; /* T5 and its like */
    if (card->remove_extra_whitespaces)
        card->decode_strip = DECODE_STRIP_SPACES;
    else
        card->decode_strip = card->add_space_prefix ? DECODE_STRIP_SPACE : DECODE_STRIP_NONE;
    string_table_builder_move(&reading->tokens, card, &card->tokens);
    model_card_set_types(card, reading->types, flags, reading->scores);
    mem_free(flags);
}

int card_words_from_sentencepiece(const void *data, size_t bytes, struct model_card *card,
                                  struct errmsg *err)
{
    struct reading reading = {.card = card,
                              .err = err,
                              .model_type = MODEL_UNIGRAM,
                              .bos_id = 1,
                              .eos_id = 2,
                              .pad_id = -1};
    const uint8_t *at = data;
    string_table_builder_init(&reading.tokens);
    card->add_space_prefix = card->remove_extra_whitespaces = true; /* protobuf's defaults there */
    int r = read_model(&reading, (struct cursor){at, at + bytes});
    if (r == 0)
        r = check_rules(&reading);
    if (r == 0)
        fill_card(&reading);
    string_table_builder_done(&reading.tokens);
    mem_free(reading.types);
    mem_free(reading.scores);
    return r;
}
