/* model_card.c - a model's words in one counted object, and their packed form on the wire.
 *
 * Packed layout, little-endian, every field on a 4-byte border:
 *
 *   header   magic u32 | version u32 | bytes u32 (all of it) | zero u32 | XXH3-64 of the rest u64
 *   numbers  struct packed_numbers
 *   texts    5 x { bytes u32 (ABSENT: no text) | text, zero padded }   name .. chat_template
 *   tables   3 x { count u32 | bytes u32 | offsets u32[count + 1] | text, zero padded }
 *   types    count u32 | u8[count], zero padded;   flags: the same, count 0 = none
 *   scores   count u32 | f32[count];               count 0 = none
 *
 * Why not protobuf: a vocabulary is 300,000 short strings; as repeated fields they cost an
 * allocation each. Here a card is one copy and the tables point into it. Ownership: `packed` heads
 * a list of the memory that belongs to the card: one chunk for an unpacked card, one per array for
 * a card made by hand. Invariant: whatever model_card_unpack returns has passed model_card_check.
 * Cost: one pass over the bytes; 2 ms for a vocabulary of 150,000. */
#include "proto/model_card.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <xxhash.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "model_card.c reads arrays as they lie in memory: little-endian machines only"
#endif

#define CARD_MAGIC 0x43464d52u /* "RMFC" */
#define CARD_VERSION 1u
#define TEXT_ABSENT UINT32_MAX
#define NAME_BYTES_MAX 1024u
#define TEMPLATE_BYTES_MAX (1u << 20)
#define PATTERNS_MAX 64u

enum {
    BIT_ADD_BOS = 1,
    BIT_ADD_EOS = 2,
    BIT_SPACE = 4,
    BIT_EXTRA = 8,
    BIT_IGNORE = 16,
    BIT_NFC = 32
};
#define BITS_KNOWN 63u

struct packed_header {
    uint32_t magic, version, bytes, zero;
    uint64_t checksum;
};

struct packed_numbers {
    uint32_t context_tokens, vocab_size, tokenizer, bits;
    uint32_t bos, eos, eot, unk, pad;
    uint32_t top_k, eos_count;
    uint32_t eos_ids[MODEL_CARD_EOS_MAX];
    uint32_t zero;
    double temperature, top_p, repetition_penalty;
};
_Static_assert(sizeof(struct packed_header) == 24, "the layout is the wire's");
_Static_assert(sizeof(struct packed_numbers) == 28 * 4 + 3 * 8, "no padding goes on the wire");

/* Memory that goes with the card. */
struct chunk {
    struct chunk *next;
    void *data;
};

static const uint32_t no_offsets[1] = {0};
static const struct string_table no_strings = {.count = 0, .offsets = no_offsets, .bytes = ""};

static void card_own(struct model_card *card, void *data)
{
    struct chunk *chunk = mem_alloc(sizeof(*chunk));
    chunk->next = card->packed;
    chunk->data = data;
    card->packed = chunk;
}

struct model_card *model_card_new(void)
{
    struct model_card *card = mem_zalloc(sizeof(*card));
    card->patterns = card->tokens = card->merges = no_strings;
    card->bos = card->eos = card->eot = card->unk = card->pad = TOKEN_ID_NONE;
    card->temperature = card->top_p = card->repetition_penalty = (double)NAN;
    card->refs = 1;
    return card;
}

struct model_card *model_card_ref(struct model_card *card)
{
    uint32_t before = __atomic_fetch_add(&card->refs, 1, __ATOMIC_RELAXED);
    ASSERT(before > 0);
    return card;
}

void model_card_unref(struct model_card *card)
{
    if (card == NULL)
        return;
    uint32_t before = __atomic_fetch_sub(&card->refs, 1, __ATOMIC_ACQ_REL);
    ASSERT(before > 0);
    if (before > 1)
        return;
    for (struct chunk *chunk = card->packed, *next; chunk != NULL; chunk = next) {
        next = chunk->next;
        mem_free(chunk->data);
        mem_free(chunk);
    }
    mem_free(card->name);
    mem_free(card->architecture);
    mem_free(card->fingerprint);
    mem_free(card->pre);
    mem_free(card->chat_template);
    mem_free(card);
}

/* --- builder --------------------------------------------------------------------------------- */

void string_table_builder_init(struct string_table_builder *builder)
{
    memset(builder, 0, sizeof(*builder));
}

void string_table_builder_done(struct string_table_builder *builder)
{
    mem_free(builder->offsets);
    mem_free(builder->bytes);
    string_table_builder_init(builder);
}

/* 0; -E2BIG: the table would not fit a card. */
int string_table_builder_add(struct string_table_builder *builder, const char *text, size_t bytes)
{
    if (bytes > MODEL_CARD_BYTES_MAX - builder->bytes_used ||
        builder->count >= MODEL_CARD_BYTES_MAX / sizeof(uint32_t))
        return -E2BIG;
    if (builder->count + 2 > builder->count_max) {
        builder->count_max = builder->count_max == 0 ? 64 : builder->count_max * 2;
        builder->offsets = mem_realloc(builder->offsets, builder->count_max * sizeof(uint32_t));
        builder->offsets[0] = 0;
    }
    if (builder->bytes_used + bytes > builder->bytes_max || builder->bytes == NULL) {
        size_t max = builder->bytes_max == 0 ? 1024 : builder->bytes_max * 2;
        while (max < builder->bytes_used + bytes)
            max *= 2;
        builder->bytes = mem_realloc(builder->bytes, max);
        builder->bytes_max = max;
    }
    if (bytes > 0)
        memcpy(builder->bytes + builder->bytes_used, text, bytes);
    builder->bytes_used += bytes;
    builder->count++;
    builder->offsets[builder->count] = (uint32_t)builder->bytes_used;
    return 0;
}

void string_table_builder_move(struct string_table_builder *builder, struct model_card *card,
                               struct string_table *table)
{
    if (builder->count == 0) {
        *table = no_strings;
        string_table_builder_done(builder);
        return;
    }
    table->count = builder->count;
    table->offsets = builder->offsets;
    table->bytes = builder->bytes;
    card_own(card, builder->offsets);
    card_own(card, builder->bytes);
    string_table_builder_init(builder);
}

static void *card_copy(struct model_card *card, const void *data, size_t bytes)
{
    void *copy = mem_alloc(bytes);
    memcpy(copy, data, bytes);
    card_own(card, copy);
    return copy;
}

void model_card_set_types(struct model_card *card, const uint8_t *types, const uint8_t *flags,
                          const float *scores)
{
    size_t count = card->tokens.count;
    ASSERT(count > 0); /* the tokens come first */
    card->token_types = card_copy(card, types, count);
    card->token_flags = flags == NULL ? NULL : card_copy(card, flags, count);
    card->scores = scores == NULL ? NULL : card_copy(card, scores, count * sizeof(float));
}

/* --- check ----------------------------------------------------------------------------------- */

/* Well-formed UTF-8 without control characters: these texts end up in JSON and in log lines. */
static bool text_is_clean(const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    while (*at != '\0') {
        unsigned extra = *at < 0x80 ? 0 : *at < 0xc2 ? 4 : *at < 0xe0 ? 1 : *at < 0xf0 ? 2 : 3;
        if (extra == 4 || *at > 0xf4 || *at < 0x20 || *at == 0x7f)
            return false;
        if ((*at == 0xe0 && at[1] < 0xa0) || (*at == 0xed && at[1] > 0x9f) ||
            (*at == 0xf0 && at[1] < 0x90) || (*at == 0xf4 && at[1] > 0x8f))
            return false;
        at++;
        for (; extra > 0; extra--, at++) {
            if ((*at & 0xc0) != 0x80)
                return false;
        }
    }
    return true;
}

static int check_texts(const struct model_card *card, struct errmsg *err)
{
    const char *texts[] = {card->name, card->architecture, card->pre};
    static const char *const names[] = {"name", "architecture", "pre-tokenizer name"};
    for (size_t i = 0; i < 3; i++) {
        if (texts[i] == NULL)
            continue;
        if (strlen(texts[i]) > NAME_BYTES_MAX)
            return errmsg_set(err, -EINVAL, "model card: %s is longer than %u bytes", names[i],
                              NAME_BYTES_MAX);
        if (!text_is_clean(texts[i]))
            return errmsg_set(err, -EINVAL, "model card: %s is not printable UTF-8", names[i]);
    }
    if (card->name == NULL || card->name[0] == '\0')
        return errmsg_set(err, -EINVAL, "model card: no model name");
    if (card->fingerprint == NULL || strlen(card->fingerprint) != 32 ||
        strspn(card->fingerprint, "0123456789abcdef") != 32)
        return errmsg_set(err, -EINVAL, "model card: fingerprint is not 32 lower-case hex digits");
    if (card->chat_template != NULL && strlen(card->chat_template) > TEMPLATE_BYTES_MAX)
        return errmsg_set(err, -EINVAL, "model card: chat template is longer than %u bytes",
                          TEMPLATE_BYTES_MAX);
    return 0;
}

static int check_table(const struct string_table *table, const char *name, uint32_t count_max,
                       struct errmsg *err)
{
    if (table->count > count_max)
        return errmsg_set(err, -EINVAL, "model card: %u %s, at most %u", table->count, name,
                          count_max);
    if (table->offsets == NULL || table->bytes == NULL || table->offsets[0] != 0)
        return errmsg_set(err, -EINVAL, "model card: %s do not begin at offset 0", name);
    for (uint32_t i = 0; i < table->count; i++) {
        if (table->offsets[i] > table->offsets[i + 1])
            return errmsg_set(err, -EINVAL, "model card: offsets of %s fall at %u", name, i);
    }
    return 0;
}

static int check_vocabulary(const struct model_card *card, struct errmsg *err)
{
    if (card->tokens.count == 0)
        return errmsg_set(err, -EINVAL, "model card: no tokens");
    if (card->token_types == NULL)
        return errmsg_set(err, -EINVAL, "model card: no token types");
    for (uint32_t i = 0; i < card->tokens.count; i++) {
        if (card->token_types[i] < TOKEN_NORMAL || card->token_types[i] > TOKEN_BYTE)
            return errmsg_set(err, -EINVAL, "model card: token %u has type %u, known are 1 to 6", i,
                              card->token_types[i]);
        if (card->scores != NULL && !isfinite(card->scores[i]))
            return errmsg_set(err, -EINVAL, "model card: score of token %u is not a number", i);
    }
    return 0;
}

static int check_id(const struct model_card *card, uint32_t id, const char *name,
                    struct errmsg *err)
{
    if (id == TOKEN_ID_NONE || id < card->tokens.count)
        return 0;
    return errmsg_set(err, -EINVAL, "model card: %s id %u, but only %u tokens", name, id,
                      card->tokens.count);
}

static int check_numbers(const struct model_card *card, struct errmsg *err)
{
    const uint32_t ids[] = {card->bos, card->eos, card->eot, card->unk, card->pad};
    static const char *const names[] = {"bos", "eos", "eot", "unk", "pad"};
    for (size_t i = 0; i < 5; i++) {
        int r = check_id(card, ids[i], names[i], err);
        if (r < 0)
            return r;
    }
    if (card->eos_count > MODEL_CARD_EOS_MAX)
        return errmsg_set(err, -EINVAL, "model card: %u end-of-answer ids, at most %u",
                          card->eos_count, MODEL_CARD_EOS_MAX);
    for (uint32_t i = 0; i < card->eos_count; i++) {
        if (card->eos_ids[i] >= card->tokens.count)
            return errmsg_set(err, -EINVAL, "model card: end-of-answer id %u, but only %u tokens",
                              card->eos_ids[i], card->tokens.count);
    }
    if ((unsigned)card->tokenizer >= TOKENIZER_MODELS)
        return errmsg_set(err, -EINVAL, "model card: unknown tokenizer model %u",
                          (unsigned)card->tokenizer);
    if (card->context_tokens == 0 || card->context_tokens > INT32_MAX)
        return errmsg_set(err, -EINVAL, "model card: context of %u tokens", card->context_tokens);
    if (card->vocab_size == 0 || card->vocab_size > MODEL_CARD_TOKENS_MAX)
        return errmsg_set(err, -EINVAL, "model card: vocabulary of %u, at most %u",
                          card->vocab_size, MODEL_CARD_TOKENS_MAX);
    if (isinf(card->temperature) || isinf(card->top_p) || isinf(card->repetition_penalty))
        return errmsg_set(err, -EINVAL, "model card: a generation default is infinite");
    return 0;
}

int model_card_check(const struct model_card *card, struct errmsg *err)
{
    int r = check_texts(card, err);
    if (r == 0)
        r = check_table(&card->patterns, "patterns", PATTERNS_MAX, err);
    if (r == 0)
        r = check_table(&card->tokens, "tokens", MODEL_CARD_TOKENS_MAX, err);
    if (r == 0)
        r = check_table(&card->merges, "merges", MODEL_CARD_BYTES_MAX / sizeof(uint32_t), err);
    if (r == 0)
        r = check_vocabulary(card, err);
    if (r == 0)
        r = check_numbers(card, err);
    return r;
}

/* --- pack ------------------------------------------------------------------------------------ */

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
        .temperature = card->temperature,
        .top_p = card->top_p,
        .repetition_penalty = card->repetition_penalty,
    };
    numbers.bits = (card->add_bos ? BIT_ADD_BOS : 0) | (card->add_eos ? BIT_ADD_EOS : 0) |
                   (card->add_space_prefix ? BIT_SPACE : 0) |
                   (card->remove_extra_whitespaces ? BIT_EXTRA : 0) |
                   (card->ignore_merges ? BIT_IGNORE : 0) | (card->normalize_nfc ? BIT_NFC : 0);
    memcpy(numbers.eos_ids, card->eos_ids, card->eos_count * sizeof(uint32_t));
    put(writer, &numbers, sizeof(numbers));
}

static void put_card(struct writer *writer, const struct model_card *card)
{
    uint32_t count = card->tokens.count;
    writer->at += sizeof(struct packed_header);
    put_numbers(writer, card);
    put_text(writer, card->name);
    put_text(writer, card->architecture);
    put_text(writer, card->fingerprint);
    put_text(writer, card->pre);
    put_text(writer, card->chat_template);
    put_table(writer, &card->patterns);
    put_table(writer, &card->tokens);
    put_table(writer, &card->merges);
    put_u32(writer, count);
    put(writer, card->token_types, count);
    put_u32(writer, card->token_flags == NULL ? 0 : count);
    put(writer, card->token_flags, card->token_flags == NULL ? 0 : count);
    put_u32(writer, card->scores == NULL ? 0 : count);
    put(writer, card->scores, card->scores == NULL ? 0 : count * sizeof(float));
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
        .magic = CARD_MAGIC,
        .version = CARD_VERSION,
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
    if ((numbers.bits & ~BITS_KNOWN) != 0 || numbers.zero != 0)
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
    memcpy(card->eos_ids, numbers.eos_ids, sizeof(card->eos_ids));
    card->temperature = numbers.temperature;
    card->top_p = numbers.top_p;
    card->repetition_penalty = numbers.repetition_penalty;
    card->add_bos = (numbers.bits & BIT_ADD_BOS) != 0;
    card->add_eos = (numbers.bits & BIT_ADD_EOS) != 0;
    card->add_space_prefix = (numbers.bits & BIT_SPACE) != 0;
    card->remove_extra_whitespaces = (numbers.bits & BIT_EXTRA) != 0;
    card->ignore_merges = (numbers.bits & BIT_IGNORE) != 0;
    card->normalize_nfc = (numbers.bits & BIT_NFC) != 0;
    return 0;
}

static int take_card(struct reader *reader, struct model_card *card)
{
    const void *types = NULL, *flags = NULL, *scores = NULL;
    int r = take_numbers(reader, card);
    if (r == 0)
        r = take_text(reader, "name", &card->name);
    if (r == 0)
        r = take_text(reader, "architecture", &card->architecture);
    if (r == 0)
        r = take_text(reader, "fingerprint", &card->fingerprint);
    if (r == 0)
        r = take_text(reader, "pre-tokenizer name", &card->pre);
    if (r == 0)
        r = take_text(reader, "chat template", &card->chat_template);
    if (r == 0)
        r = take_table(reader, "patterns", &card->patterns);
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
    if (r < 0)
        return r;
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
    if (header.magic != CARD_MAGIC)
        return errmsg_set(err, -EINVAL, "packed model card: wrong magic 0x%08x", header.magic);
    if (header.version != CARD_VERSION)
        return errmsg_set(err, -EINVAL, "packed model card: version %u, this build speaks %u",
                          header.version, CARD_VERSION);
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
    struct reader reader = {.data = card_copy(card, data, bytes),
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
