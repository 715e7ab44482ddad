/* model_card.c - a model's words in one counted object, and what must hold of them.
 *
 * Ownership: `packed` heads a list of the memory that belongs to the card: one chunk for an
 * unpacked card, one per array for a card made by hand. */
#include "proto/model_card.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "proto/model_card_private.h"

#define NAME_BYTES_MAX 1024u
#define TEMPLATE_BYTES_MAX (1u << 20)

/* Memory that goes with the card. */
struct chunk {
    struct chunk *next;
    void *data;
};

static const uint32_t no_offsets[1] = {0};
static const struct string_table no_strings = {.count = 0, .offsets = no_offsets, .bytes = ""};

void model_card_own(struct model_card *card, void *data)
{
    struct chunk *chunk = mem_alloc(sizeof(*chunk));
    chunk->next = card->packed;
    chunk->data = data;
    card->packed = chunk;
}

struct model_card *model_card_new(void)
{
    struct model_card *card = mem_zalloc(sizeof(*card));
    card->normalizers = card->pretokenizers = card->tokens = card->merges = no_strings;
    card->fuse_unk = true;
    card->bos = card->eos = card->eot = card->unk = card->pad = TOKEN_ID_NONE;
    card->temperature = card->top_p = card->min_p = card->repetition_penalty = (double)NAN;
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
    mem_free(card->tool_template);
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
    model_card_own(card, builder->offsets);
    model_card_own(card, builder->bytes);
    string_table_builder_init(builder);
}

void *model_card_copy(struct model_card *card, const void *data, size_t bytes)
{
    void *copy = mem_alloc(bytes);
    memcpy(copy, data, bytes);
    model_card_own(card, copy);
    return copy;
}

void model_card_set_types(struct model_card *card, const uint8_t *types, const uint8_t *flags,
                          const float *scores)
{
    size_t count = card->tokens.count;
    ASSERT(count > 0); /* the tokens come first */
    card->token_types = model_card_copy(card, types, count);
    card->token_flags = flags == NULL ? NULL : model_card_copy(card, flags, count);
    card->scores = scores == NULL ? NULL : model_card_copy(card, scores, count * sizeof(float));
}

void model_card_set_wide_scores(struct model_card *card, const double *scores)
{
    ASSERT(card->tokens.count > 0);
    card->wide_scores = model_card_copy(card, scores, card->tokens.count * sizeof(double));
}

void model_card_set_charsmap(struct model_card *card, const void *charsmap, uint32_t bytes)
{
    ASSERT(bytes > 0);
    card->charsmap = model_card_copy(card, charsmap, bytes);
    card->charsmap_bytes = bytes;
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
    const char *const templates[] = {card->chat_template, card->tool_template};
    for (size_t i = 0; i < 2; i++) {
        if (templates[i] != NULL && strlen(templates[i]) > TEMPLATE_BYTES_MAX)
            return errmsg_set(err, -EINVAL, "model card: chat template is longer than %u bytes",
                              TEMPLATE_BYTES_MAX);
    }
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
        if (card->wide_scores != NULL && !isfinite(card->wide_scores[i]))
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

/* Ids in a list of at most `max`. */
static int check_ids(const struct model_card *card, const uint32_t *ids, uint32_t count,
                     uint32_t max, const char *name, struct errmsg *err)
{
    if (count > max)
        return errmsg_set(err, -EINVAL, "model card: %u %s ids, at most %u", count, name, max);
    for (uint32_t i = 0; i < count; i++) {
        if (ids[i] >= card->tokens.count)
            return errmsg_set(err, -EINVAL, "model card: %s id %u, but only %u tokens", name,
                              ids[i], card->tokens.count);
    }
    return 0;
}

static int check_numbers(const struct model_card *card, struct errmsg *err)
{
    const uint32_t ids[] = {card->bos, card->eos, card->eot, card->unk, card->pad};
    static const char *const names[] = {"bos", "eos", "eot", "unk", "pad"};
    for (size_t i = 0; i < 5; i++) {
        int bad = check_id(card, ids[i], names[i], err);
        if (bad < 0)
            return bad;
    }
    int r =
        check_ids(card, card->eos_ids, card->eos_count, MODEL_CARD_EOS_MAX, "end-of-answer", err);
    if (r == 0)
        r = check_ids(card, card->lead_ids, card->lead_count, MODEL_CARD_LEAD_MAX, "leading", err);
    if (r == 0)
        r = check_ids(card, card->tail_ids, card->tail_count, MODEL_CARD_LEAD_MAX, "trailing", err);
    if (r < 0)
        return r;
    if ((unsigned)card->tokenizer >= TOKENIZER_MODELS)
        return errmsg_set(err, -EINVAL, "model card: unknown tokenizer model %u",
                          (unsigned)card->tokenizer);
    if ((unsigned)card->decode_strip >= DECODE_STRIPS)
        return errmsg_set(err, -EINVAL, "model card: unknown decode strip %u",
                          (unsigned)card->decode_strip);
    if (card->context_tokens == 0 || card->context_tokens > INT32_MAX)
        return errmsg_set(err, -EINVAL, "model card: context of %u tokens", card->context_tokens);
    if (card->vocab_size == 0 || card->vocab_size > MODEL_CARD_TOKENS_MAX)
        return errmsg_set(err, -EINVAL, "model card: vocabulary of %u, at most %u",
                          card->vocab_size, MODEL_CARD_TOKENS_MAX);
    if (isinf(card->temperature) || isinf(card->top_p) || isinf(card->min_p) ||
        isinf(card->repetition_penalty))
        return errmsg_set(err, -EINVAL, "model card: a generation default is infinite");
    return 0;
}

int model_card_check(const struct model_card *card, struct errmsg *err)
{
    int r = check_texts(card, err);
    if (r == 0)
        r = check_table(&card->normalizers, "normalizers", MODEL_CARD_STEPS_MAX, err);
    if (r == 0)
        r = check_table(&card->pretokenizers, "pretokenizers", MODEL_CARD_STEPS_MAX, err);
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
