/* tokenizer_json.c - model and added_tokens: which texts have which ids.
 *
 *   model.vocab    text -> id (BPE), or a list of [text, score] (Unigram)
 *   added_tokens   text, id, flags; one that is in the vocabulary takes its place there
 *   merges         "left right", or [left, right]
 *
 * Ids that nobody has (holes) become unused tokens without text. Spaces: a vocabulary that is not
 * byte-level writes them as U+2581 and we take them for the same thing, so one that holds plain
 * spaces in its pieces as well is refused.
 * Cost: the parsed JSON is some 200 bytes a token; 0.3 s for 150,000 tokens with merges. */
#include "proto/files/tokenizer_json.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/map.h"
#include "proto/base/mem.h"
#include "proto/base/number.h"
#include "proto/files/tokenizer_json_private.h"
#include "proto/token_text.h"

const char *json_text(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

bool json_flag(const json_t *object, const char *key, bool otherwise)
{
    const json_t *value = json_object_get(object, key);
    return json_is_boolean(value) ? json_is_true(value) : otherwise;
}

/* One id. */
struct entry {
    const char *text; /* NULL: nobody has this id */
    size_t bytes;
    double score;
    uint8_t type, flags;
};

struct vocabulary {
    struct entry *entries;
    uint32_t count, max;
    struct map *by_text; /* text -> entry index + 1, as a pointer */
};

static void vocabulary_done(struct vocabulary *vocabulary)
{
    mem_free(vocabulary->entries);
    map_free(vocabulary->by_text);
}

static int check_id(struct tokenizer_json *file, json_int_t id)
{
    if (id >= 0 && id < (json_int_t)MODEL_CARD_TOKENS_MAX)
        return 0;
    return errmsg_set(file->err, -EINVAL, "token id %lld, 0 to %u are possible", (long long)id,
                      MODEL_CARD_TOKENS_MAX - 1);
}

/* Room for id; new entries are empty. */
static void grow(struct vocabulary *vocabulary, uint32_t id)
{
    if (id >= vocabulary->max) {
        uint32_t max = vocabulary->max == 0 ? 1024 : vocabulary->max;
        while (id >= max)
            max *= 2;
        vocabulary->entries = mem_realloc(vocabulary->entries, max * sizeof(*vocabulary->entries));
        memset(vocabulary->entries + vocabulary->max, 0,
               (max - vocabulary->max) * sizeof(*vocabulary->entries));
        vocabulary->max = max;
    }
    if (id >= vocabulary->count)
        vocabulary->count = id + 1;
}

static uint32_t find(const struct vocabulary *vocabulary, const char *text, size_t bytes)
{
    uintptr_t found = (uintptr_t)map_get(vocabulary->by_text, text, bytes);
    return found == 0 ? TOKEN_ID_NONE : (uint32_t)(found - 1);
}

static int add(struct tokenizer_json *file, struct vocabulary *vocabulary, uint32_t id,
               const char *text, size_t bytes)
{
    grow(vocabulary, id);
    struct entry *entry = &vocabulary->entries[id];
    if (entry->text != NULL)
        return errmsg_set(file->err, -EINVAL, "tokens '%.60s' and '%.60s' both have id %u",
                          entry->text, text, id);
    *entry = (struct entry){.text = text, .bytes = bytes, .type = TOKEN_NORMAL};
    if (find(vocabulary, text, bytes) == TOKEN_ID_NONE) /* the first one is found by text */
        (void)map_set(vocabulary->by_text, text, bytes, (void *)(uintptr_t)(id + 1u), NULL);
    return 0;
}

/* --- model ----------------------------------------------------------------------------------- */

static int read_bpe_vocab(struct tokenizer_json *file, const json_t *model,
                          struct vocabulary *vocabulary)
{
    const json_t *vocab = json_object_get(model, "vocab");
    if (!json_is_object(vocab) || json_object_size(vocab) == 0)
        return errmsg_set(file->err, -EINVAL, "model.vocab is not an object of texts and ids");
    for (void *at = json_object_iter((json_t *)(uintptr_t)vocab); at != NULL;
         at = json_object_iter_next((json_t *)(uintptr_t)vocab, at)) {
        const json_t *id = json_object_iter_value(at);
        const char *text = json_object_iter_key(at);
        if (!json_is_integer(id))
            return errmsg_set(file->err, -EINVAL, "the id of token '%.60s' is not an integer",
                              text);
        int r = check_id(file, json_integer_value(id));
        if (r == 0)
            r = add(file, vocabulary, (uint32_t)json_integer_value(id), text,
                    json_object_iter_key_len(at));
        if (r < 0)
            return r;
    }
    return 0;
}

/* The tokenizers library's JSON reader gathers the digits in 64 bits and scales them by a power of
 * ten, which rounds twice and is off by one unit now and then; sums of such scores decide near
 * ties. The shortest text of a number is what the file has. */
static double as_the_library_reads(double value)
{
    char text[NUMBER_TEXT_MAX];
    uint64_t digits = 0;
    int exponent = 0;
    bool behind_point = false;
    number_format(value, text);
    const char *at = text[0] == '-' ? text + 1 : text;
    for (; (*at >= '0' && *at <= '9') || *at == '.'; at++) {
        if (*at == '.') {
            behind_point = true;
            continue;
        }
        digits = digits * 10 + (uint64_t)(*at - '0'); /* at most 17 of them */
        exponent -= behind_point;
    }
    if (*at == 'e')
        exponent += (int)strtol(at + 1, NULL, 10);
    double magnitude = (double)digits;
    for (; exponent < -308; exponent += 308)
        magnitude /= 1e308;
    (void)snprintf(text, sizeof(text), "1e%d", abs(exponent));
    double power = strtod(text, NULL);
    magnitude = exponent < 0 ? magnitude / power : magnitude * power;
    return value < 0 ? -magnitude : magnitude;
}

static int read_unigram_vocab(struct tokenizer_json *file, const json_t *model,
                              struct vocabulary *vocabulary)
{
    const json_t *vocab = json_object_get(model, "vocab");
    size_t count = json_array_size(vocab);
    if (count == 0 || count > MODEL_CARD_TOKENS_MAX)
        return errmsg_set(file->err, -EINVAL, "model.vocab is not a list of 1 to %u pieces",
                          MODEL_CARD_TOKENS_MAX);
    for (size_t i = 0; i < count; i++) {
        const json_t *piece = json_array_get(vocab, i);
        const json_t *text = json_array_get(piece, 0), *score = json_array_get(piece, 1);
        if (!json_is_string(text) || !json_is_number(score))
            return errmsg_set(file->err, -EINVAL, "piece %zu is not a text and a score", i);
        size_t bytes = json_string_length(text);
        uint32_t before = find(vocabulary, json_string_value(text), bytes);
        int r = add(file, vocabulary, (uint32_t)i, json_string_value(text), bytes);
        if (r < 0)
            return r;
        vocabulary->entries[i].score = as_the_library_reads(json_number_value(score));
        if (before == TOKEN_ID_NONE)
            continue;
        vocabulary->entries[before].flags = TOKEN_NO_PIECE; /* the library takes the last one */
        (void)map_set(vocabulary->by_text, json_string_value(text), bytes,
                      (void *)(uintptr_t)(i + 1), NULL);
    }
    return 0;
}

/* "a b" or ["a", "b"]. */
static int add_merge(struct tokenizer_json *file, struct string_table_builder *builder,
                     const json_t *merge, size_t rank)
{
    const json_t *left = json_array_get(merge, 0), *right = json_array_get(merge, 1);
    if (json_is_string(merge)) {
        const char *text = json_string_value(merge);
        size_t bytes = json_string_length(merge);
        const char *space = memchr(text, ' ', bytes);
        if (space == NULL || space == text || space + 1 == text + bytes ||
            memchr(space + 1, ' ', bytes - (size_t)(space + 1 - text)) != NULL)
            return errmsg_set(file->err, -EINVAL,
                              "merge %zu is not two tokens with a space between", rank);
        return string_table_builder_add(builder, text, bytes);
    }
    if (json_array_size(merge) != 2 || !json_is_string(left) || !json_is_string(right))
        return errmsg_set(file->err, -EINVAL, "merge %zu is not two tokens", rank);
    size_t left_bytes = json_string_length(left), right_bytes = json_string_length(right);
    if (memchr(json_string_value(left), ' ', left_bytes) != NULL ||
        memchr(json_string_value(right), ' ', right_bytes) != NULL)
        return errmsg_set(file->err, -ENOTSUP,
                          "merge %zu holds a plain space; supported are vocabularies that write it "
                          "as U+2581 or U+0120",
                          rank);
    char *line = mem_alloc(left_bytes + right_bytes + 2);
    memcpy(line, json_string_value(left), left_bytes);
    line[left_bytes] = ' ';
    memcpy(line + left_bytes + 1, json_string_value(right), right_bytes);
    int r = string_table_builder_add(builder, line, left_bytes + right_bytes + 1);
    mem_free(line);
    return r;
}

static int read_merges(struct tokenizer_json *file, const json_t *model)
{
    const json_t *merges = json_object_get(model, "merges"), *merge = NULL;
    struct string_table_builder builder;
    size_t rank = 0;
    int r = 0;
    if (!json_is_array(merges))
        return errmsg_set(file->err, -EINVAL, "model.merges is not a list");
    string_table_builder_init(&builder);
    json_array_foreach(merges, rank, merge)
    {
        r = add_merge(file, &builder, merge, rank);
        if (r < 0)
            break;
    }
    if (r == 0)
        string_table_builder_move(&builder, file->card, &file->card->merges);
    else if (r == -E2BIG)
        (void)errmsg_set(file->err, r, "model.merges have too much text");
    string_table_builder_done(&builder);
    return r;
}

/* Parts of BPE that no model we know uses and that would change ids. */
static int refuse_parts(struct tokenizer_json *file, const json_t *model)
{
    static const char *const parts[] = {"dropout", "continuing_subword_prefix",
                                        "end_of_word_suffix"};
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        const json_t *part = json_object_get(model, parts[i]);
        bool empty = part == NULL || json_is_null(part) ||
                     (json_is_string(part) && json_string_length(part) == 0) ||
                     (json_is_number(part) && json_number_value(part) == 0.0);
        if (!empty)
            return errmsg_set(file->err, -ENOTSUP, "BPE with %s is not supported", parts[i]);
    }
    return 0;
}

static int read_unk(struct tokenizer_json *file, const json_t *model,
                    const struct vocabulary *vocabulary)
{
    struct model_card *card = file->card;
    if (card->tokenizer == TOKENIZER_UNIGRAM) {
        const json_t *id = json_object_get(model, "unk_id");
        if (id == NULL || json_is_null(id))
            return 0;
        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) >= (json_int_t)vocabulary->count)
            return errmsg_set(file->err, -EINVAL, "model.unk_id is not one of %u pieces",
                              vocabulary->count);
        card->unk = (uint32_t)json_integer_value(id);
        return 0;
    }
    const json_t *text = json_object_get(model, "unk_token");
    if (!json_is_string(text))
        return 0;
    card->unk = find(vocabulary, json_string_value(text), json_string_length(text));
    if (card->unk == TOKEN_ID_NONE)
        return errmsg_set(file->err, -EINVAL, "model.unk_token '%.60s' is not in the vocabulary",
                          json_string_value(text));
    return 0;
}

/* Files of old name no type: a list of pieces is Unigram, merges make it BPE. */
static const char *model_type(const json_t *model)
{
    const char *type = json_text(model, "type");
    if (type != NULL)
        return type;
    if (json_is_array(json_object_get(model, "vocab")))
        return "Unigram";
    return json_object_get(model, "merges") != NULL ? "BPE" : "(none)";
}

static int read_model(struct tokenizer_json *file, bool byte_level, struct vocabulary *vocabulary)
{
    const json_t *model = json_object_get(file->root, "model");
    struct model_card *card = file->card;
    const char *type = model_type(model);
    int r = 0;
    if (strcmp(type, "Unigram") == 0) {
        card->tokenizer = TOKENIZER_UNIGRAM;
        card->double_sums = true;
        if (byte_level)
            return errmsg_set(file->err, -ENOTSUP, "Unigram with ByteLevel is not supported");
        r = read_unigram_vocab(file, model, vocabulary);
    } else if (strcmp(type, "BPE") == 0) {
        card->tokenizer = byte_level ? TOKENIZER_BPE : TOKENIZER_SPM;
        card->fuse_unk = json_flag(model, "fuse_unk", false);
        card->ignore_merges = json_flag(model, "ignore_merges", false);
        r = refuse_parts(file, model);
        if (r == 0)
            r = read_bpe_vocab(file, model, vocabulary);
        if (r == 0)
            r = read_merges(file, model);
        if (r == 0 && card->merges.count == 0)
            r = errmsg_set(file->err, -ENOTSUP, "BPE without merges is not supported");
    } else {
        return errmsg_set(file->err, -ENOTSUP,
                          "model '%.60s' is not supported; supported: BPE, Unigram", type);
    }
    return r == 0 ? read_unk(file, model, vocabulary) : r;
}

/* "<0x0A>" are byte tokens where the model falls back to bytes; elsewhere they are text. */
static void mark_bytes(struct tokenizer_json *file, struct vocabulary *vocabulary)
{
    static const char digits[] = "0123456789ABCDEF";
    const json_t *model = json_object_get(file->root, "model");
    if (file->card->tokenizer == TOKENIZER_BPE || !json_flag(model, "byte_fallback", false))
        return;
    file->byte_tokens = true;
    for (unsigned byte = 0; byte < 256; byte++) {
        char text[6] = {'<', '0', 'x', digits[byte >> 4], digits[byte & 15], '>'};
        uint32_t id = find(vocabulary, text, sizeof(text));
        if (id != TOKEN_ID_NONE)
            vocabulary->entries[id].type = TOKEN_BYTE;
    }
}

/* --- added tokens ---------------------------------------------------------------------------- */

static int read_added(struct tokenizer_json *file, const json_t *json, struct added_token *ret)
{
    const json_t *id = json_object_get(json, "id"), *text = json_object_get(json, "content");
    if (!json_is_integer(id) || !json_is_string(text))
        return errmsg_set(file->err, -EINVAL, "an added token has no id or no content");
    int r = check_id(file, json_integer_value(id));
    if (r < 0)
        return r;
    bool special = json_flag(json, "special", false);
    unsigned flags = (json_flag(json, "lstrip", false) ? TOKEN_LSTRIP : 0u) |
                     (json_flag(json, "rstrip", false) ? TOKEN_RSTRIP : 0u) |
                     (json_flag(json, "single_word", false) ? TOKEN_SINGLE_WORD : 0u) |
                     (json_flag(json, "normalized", !special) ? TOKEN_NORMALIZED : 0u);
    *ret = (struct added_token){.id = (uint32_t)json_integer_value(id),
                                .text = json_string_value(text),
                                .bytes = json_string_length(text),
                                .type = special ? TOKEN_CONTROL : TOKEN_USER_DEFINED,
                                .flags = (uint8_t)flags};
    return 0;
}

static int add_added(struct tokenizer_json *file, struct vocabulary *vocabulary,
                     const struct added_token *token)
{
    uint32_t id = find(vocabulary, token->text, token->bytes);
    uint8_t no_piece = 0;
    if (token->bytes == 0)
        return 0;
    if (id == TOKEN_ID_NONE) {
        id = token->id;
        no_piece = TOKEN_NO_PIECE;
        int r = add(file, vocabulary, id, token->text, token->bytes);
        if (r < 0)
            return r;
    } else {
        no_piece = vocabulary->entries[id].flags & TOKEN_NO_PIECE;
    }
    vocabulary->entries[id].type = token->type;
    vocabulary->entries[id].flags = token->flags | no_piece;
    return 0;
}

static int read_added_tokens(struct tokenizer_json *file, struct vocabulary *vocabulary,
                             const struct added_token *more, size_t more_count)
{
    const json_t *list = json_object_get(file->root, "added_tokens"), *json = NULL;
    struct added_token token;
    size_t i = 0;
    json_array_foreach(list, i, json)
    {
        int r = read_added(file, json, &token);
        if (r == 0)
            r = add_added(file, vocabulary, &token);
        if (r < 0)
            return r;
    }
    for (i = 0; i < more_count; i++) {
        bool known =
            find(vocabulary, more[i].text, more[i].bytes) != TOKEN_ID_NONE ||
            (more[i].id < vocabulary->count && vocabulary->entries[more[i].id].text != NULL);
        int r = known || more[i].id >= MODEL_CARD_TOKENS_MAX
                    ? 0
                    : add_added(file, vocabulary, &more[i]);
        if (r < 0)
            return r;
    }
    return 0;
}

/* --- into the card --------------------------------------------------------------------------- */

static int refuse_plain_space(struct tokenizer_json *file, const struct vocabulary *vocabulary)
{
    for (uint32_t id = 0; id < vocabulary->count; id++) {
        const struct entry *entry = &vocabulary->entries[id];
        if (entry->text == NULL || entry->type != TOKEN_NORMAL ||
            memchr(entry->text, ' ', entry->bytes) == NULL)
            continue;
        return errmsg_set(file->err, -ENOTSUP,
                          "piece %u holds a plain space; supported are vocabularies that write it "
                          "as U+2581 or U+0120",
                          id);
    }
    return 0;
}

static int fill_card(struct tokenizer_json *file, const struct vocabulary *vocabulary)
{
    struct model_card *card = file->card;
    struct string_table_builder builder;
    size_t count = vocabulary->count;
    uint8_t *types = mem_alloc(count), *flags = mem_alloc(count);
    float *scores = mem_calloc(count, sizeof(*scores));
    double *wide = mem_calloc(count, sizeof(*wide));
    bool exact = true;
    int r = 0;
    string_table_builder_init(&builder);
    for (uint32_t id = 0; id < count && r == 0; id++) {
        const struct entry *entry = &vocabulary->entries[id];
        bool hole = entry->text == NULL;
        types[id] = hole ? TOKEN_UNUSED : entry->type;
        flags[id] = hole ? TOKEN_NO_PIECE : entry->flags;
        wide[id] = entry->score;
        scores[id] = (float)entry->score;
        exact = exact && (double)scores[id] == entry->score;
        r = string_table_builder_add(&builder, hole ? "" : entry->text, entry->bytes);
    }
    if (r == 0) {
        bool unigram = card->tokenizer == TOKENIZER_UNIGRAM;
        string_table_builder_move(&builder, card, &card->tokens);
        model_card_set_types(card, types, flags, unigram ? scores : NULL);
        if (unigram && !exact)
            model_card_set_wide_scores(card, wide);
    } else {
        (void)errmsg_set(file->err, r, "the vocabulary has too much text");
    }
    string_table_builder_done(&builder);
    mem_free(types);
    mem_free(flags);
    mem_free(scores);
    mem_free(wide);
    return r;
}

/* The library would write a special `unk` for a byte without a token, and so let a user's text make
 * a control token. */
static int refuse_unknown_bytes(struct tokenizer_json *file, const struct vocabulary *vocabulary)
{
    const struct model_card *card = file->card;
    bool known[256] = {false};
    if (card->tokenizer != TOKENIZER_BPE || card->unk == TOKEN_ID_NONE ||
        vocabulary->entries[card->unk].type != TOKEN_CONTROL)
        return 0;
    for (uint32_t id = 0; id < vocabulary->count; id++) {
        const struct entry *entry = &vocabulary->entries[id];
        unsigned char byte = 0;
        if (entry->text != NULL && entry->type == TOKEN_NORMAL &&
            token_text_is_byte(entry->text, entry->bytes, &byte))
            known[byte] = true;
    }
    for (unsigned byte = 0; byte < 0xf5; byte++) {
        if (!known[byte] && byte != 0xc0 && byte != 0xc1)
            return errmsg_set(file->err, -ENOTSUP,
                              "byte 0x%02x has no token and would become unk_token '%.60s', which "
                              "is special",
                              byte, vocabulary->entries[card->unk].text);
    }
    return 0;
}

static int read_all(struct tokenizer_json *file, struct vocabulary *vocabulary,
                    const struct added_token *more, size_t more_count)
{
    bool byte_level = false;
    int r = tokenizer_json_read_steps(file, &byte_level);
    if (r == 0)
        r = read_model(file, byte_level, vocabulary);
    if (r == 0) {
        mark_bytes(file, vocabulary);
        r = read_added_tokens(file, vocabulary, more, more_count);
    }
    if (r == 0 && !byte_level)
        r = refuse_plain_space(file, vocabulary);
    if (r == 0)
        r = refuse_unknown_bytes(file, vocabulary);
    if (r == 0)
        r = fill_card(file, vocabulary);
    return r == 0 ? tokenizer_json_read_ends(file) : r;
}

int card_words_from_tokenizer_json(const char *text, size_t bytes, const struct added_token *more,
                                   size_t more_count, struct model_card *card, struct errmsg *err)
{
    struct vocabulary vocabulary = {0};
    json_t *root = NULL;
    int r = json_parse(text, bytes, TOKENIZER_JSON_BYTES_MAX, &root, err);
    if (r == 0 && memmem(text, bytes, "\\u0000", 6) != NULL) { /* json_parse changes it in keys */
        json_decref(root);
        r = errmsg_set(err, -ENOTSUP, "a token with U+0000 in its text is not supported");
    }
    if (r < 0)
        return r;
    struct tokenizer_json file = {.root = root, .card = card, .err = err};
    vocabulary.by_text = map_new(0);
    r = json_is_object(json_object_get(root, "model"))
            ? read_all(&file, &vocabulary, more, more_count)
            : errmsg_set(err, -EINVAL, "no object 'model': not a tokenizer.json");
    vocabulary_done(&vocabulary);
    json_decref(root);
    return r;
}
