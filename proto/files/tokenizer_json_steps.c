/* tokenizer_json_steps.c - normalizer and pre_tokenizer -> the card's steps (model_card.h).
 *
 * Both are a component or a Sequence of components; each has a row in a table, with a function that
 * writes its steps. What is in no table is refused, with the table's names.
 *
 * ByteLevel ends the text and begins the byte alphabet: what a Sequence does behind it, it does to
 * bytes (step Bytes). A Split at a plain space behind a normalizer that has replaced all of them
 * has nothing to cut (Gemma) and is left out. */
#include <errno.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/buffer.h"
#include "proto/base/mem.h"
#include "proto/files/tokenizer_json_private.h"

#define STEP_BYTES_MAX (64u << 10)
#define LOW_LINE "\xe2\x96\x81"
#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define PUNCTUATION "[\\p{P}$+<=>^`|~]"

struct reading {
    struct tokenizer_json *file;
    struct string_table_builder normalizers, pretokenizers;
    bool spaces_replaced; /* a normalizer left no plain space */
    bool byte_level;      /* a ByteLevel was seen */
    bool in_bytes;        /* and its step Bytes was written */
};

struct component {
    const char *type;
    int (*read)(struct reading *reading, const json_t *json);
};

/* --- writing steps --------------------------------------------------------------------------- */

static int add_bytes(struct reading *reading, struct string_table_builder *steps, const char *text,
                     size_t bytes)
{
    if (steps->count >= MODEL_CARD_STEPS_MAX)
        return errmsg_set(reading->file->err, -EINVAL, "more than %u steps", MODEL_CARD_STEPS_MAX);
    if (bytes > STEP_BYTES_MAX)
        return errmsg_set(reading->file->err, -EINVAL, "a step of %zu bytes, at most %u", bytes,
                          STEP_BYTES_MAX);
    return string_table_builder_add(steps, text, bytes);
}

static int add_normalizer(struct reading *reading, const char *step)
{
    return add_bytes(reading, &reading->normalizers, step, strlen(step));
}

static int add_pretokenizer(struct reading *reading, const char *step)
{
    if (reading->byte_level && !reading->in_bytes) {
        reading->in_bytes = true;
        int r = add_pretokenizer(reading, "Bytes");
        if (r < 0)
            return r;
    }
    return add_bytes(reading, &reading->pretokenizers, step, strlen(step));
}

/* "WORD PATTERN". */
static int add_cut(struct reading *reading, const char *word, const char *pattern)
{
    char *step = mem_printf("%s %s", word, pattern);
    int r = add_pretokenizer(reading, step);
    mem_free(step);
    return r;
}

/* A pattern that matches exactly `text`. */
static void append_escaped(struct buffer *out, const char *text)
{
    for (; *text != '\0'; text++) {
        bool plain = (*text >= 'a' && *text <= 'z') || (*text >= 'A' && *text <= 'Z') ||
                     (*text >= '0' && *text <= '9') || *text == ' ' || (*text & 0x80) != 0;
        if (!plain)
            buffer_append_char(out, '\\');
        buffer_append_char(out, *text);
    }
}

/* {"String": text} or {"Regex": pattern}; NULL and -EINVAL when it is neither. */
static const char *read_pattern(struct reading *reading, const json_t *json, bool *ret_regex)
{
    const json_t *pattern = json_object_get(json, "pattern");
    const json_t *string = json_is_string(pattern) ? pattern : json_object_get(pattern, "String");
    const json_t *regex = json_object_get(pattern, "Regex");
    const json_t *text = json_is_string(string) ? string : regex;
    if (!json_is_string(text) || json_string_length(text) == 0 ||
        strlen(json_string_value(text)) != json_string_length(text)) {
        (void)errmsg_set(reading->file->err, -EINVAL,
                         "a pattern is not a text or Regex, is empty or holds a NUL");
        return NULL;
    }
    *ret_regex = text == regex;
    return json_string_value(text);
}

/* --- normalizers ----------------------------------------------------------------------------- */

static int read_plain_normalizer(struct reading *reading, const json_t *json)
{
    return add_normalizer(reading, json_text(json, "type"));
}

static int read_strip(struct reading *reading, const json_t *json)
{
    int r = json_flag(json, "strip_left", true) ? add_normalizer(reading, "StripLeft") : 0;
    return r == 0 && json_flag(json, "strip_right", true) ? add_normalizer(reading, "StripRight")
                                                          : r;
}

static int read_prepend(struct reading *reading, const json_t *json)
{
    const char *text = json_text(json, "prepend");
    if (text == NULL)
        return errmsg_set(reading->file->err, -EINVAL, "normalizer Prepend has no text");
    char *step = mem_printf("Prepend %s", text);
    int r = add_normalizer(reading, step);
    mem_free(step);
    return r;
}

static int read_replace(struct reading *reading, const json_t *json)
{
    const json_t *content = json_object_get(json, "content");
    struct buffer step;
    bool regex = false;
    const char *pattern = read_pattern(reading, json, &regex);
    if (pattern == NULL)
        return -EINVAL;
    if (!json_is_string(content))
        return errmsg_set(reading->file->err, -EINVAL, "normalizer Replace has no content");
    buffer_init(&step, STEP_BYTES_MAX + 1);
    buffer_append_text(&step, regex ? "ReplaceRegex " : "Replace ");
    buffer_append_text(&step, pattern);
    buffer_append_char(&step, '\0');
    buffer_append(&step, json_string_value(content), json_string_length(content));
    int r = buffer_finish(&step) < 0
                ? errmsg_set(reading->file->err, -EINVAL, "normalizer Replace is too long")
                : add_bytes(reading, &reading->normalizers, step.data, step.bytes);
    buffer_done(&step);
    if (strcmp(pattern, " ") == 0 && strchr(json_string_value(content), ' ') == NULL)
        reading->spaces_replaced = true;
    return r;
}

static int base64_digit(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Bytes decoded, or -1: no base64. `out` has room for count * 3 / 4. */
static ptrdiff_t decode_base64(const char *text, size_t count, uint8_t *out)
{
    uint32_t word = 0, bits = 0;
    size_t bytes = 0;
    while (count > 0 && text[count - 1] == '=')
        count--;
    for (size_t i = 0; i < count; i++) {
        int digit = base64_digit(text[i]);
        if (digit < 0)
            return -1;
        word = (word << 6 | (uint32_t)digit) & 0xffffff;
        bits += 6;
        if (bits < 8)
            continue;
        bits -= 8;
        out[bytes++] = (uint8_t)(word >> bits);
    }
    return (ptrdiff_t)bytes;
}

static int read_precompiled(struct reading *reading, const json_t *json)
{
    const json_t *map = json_object_get(json, "precompiled_charsmap");
    size_t count = json_string_length(map);
    if (json_is_null(map) || (json_is_string(map) && count == 0))
        return 0; /* a map that changes nothing */
    if (!json_is_string(map) || count > MODEL_CARD_BYTES_MAX || reading->file->card->charsmap)
        return errmsg_set(reading->file->err, -EINVAL,
                          "normalizer Precompiled: no text of base64, or a second one");
    uint8_t *bytes = mem_alloc(count);
    ptrdiff_t decoded = decode_base64(json_string_value(map), count, bytes);
    if (decoded > 0)
        model_card_set_charsmap(reading->file->card, bytes, (uint32_t)decoded);
    mem_free(bytes);
    if (decoded <= 0)
        return errmsg_set(reading->file->err, -EINVAL, "precompiled_charsmap is not base64");
    return add_normalizer(reading, "Precompiled");
}

static const struct component normalizers[] = {
    {"NFC", read_plain_normalizer},
    {"NFD", read_plain_normalizer},
    {"NFKC", read_plain_normalizer},
    {"NFKD", read_plain_normalizer},
    {"Lowercase", read_plain_normalizer},
    {"Strip", read_strip},
    {"Prepend", read_prepend},
    {"Replace", read_replace},
    {"Precompiled", read_precompiled},
};

/* --- pre-tokenizers -------------------------------------------------------------------------- */

/* What `behavior` and `invert` come to; NULL: refused. */
static const char *cut_word(struct reading *reading, const char *behavior, bool invert)
{
    static const struct {
        const char *behavior, *word, *inverted;
    } rows[] = {
        {"Isolated", "Split", "Split"},
        {"Removed", "Remove", "Keep"},
        {"Contiguous", "Contiguous", "Contiguous"},
        {"MergedWithPrevious", "MergePrevious", NULL},
        {"MergedWithNext", "MergeNext", NULL},
    };
    const char *word = NULL;
    for (size_t i = 0; behavior != NULL && i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (strcmp(rows[i].behavior, behavior) == 0)
            word = invert ? rows[i].inverted : rows[i].word;
    }
    if (word == NULL)
        (void)errmsg_set(reading->file->err, -ENOTSUP,
                         "pre-tokenizer behavior '%.40s'%s is not supported; supported: Isolated, "
                         "Removed, Contiguous, MergedWithPrevious, MergedWithNext",
                         behavior == NULL ? "(none)" : behavior, invert ? ", inverted" : "");
    return word;
}

static int read_split(struct reading *reading, const json_t *json)
{
    struct buffer escaped;
    bool regex = false;
    const char *pattern = read_pattern(reading, json, &regex);
    if (pattern == NULL)
        return -EINVAL;
    const char *word =
        cut_word(reading, json_text(json, "behavior"), json_flag(json, "invert", false));
    if (word == NULL)
        return -ENOTSUP;
    if (regex)
        return add_cut(reading, word, pattern);
    if (reading->spaces_replaced && strcmp(pattern, " ") == 0)
        return 0;
    buffer_init(&escaped, STEP_BYTES_MAX);
    append_escaped(&escaped, pattern);
    int r = buffer_finish(&escaped) < 0
                ? errmsg_set(reading->file->err, -EINVAL, "a Split pattern is too long")
                : add_cut(reading, word, escaped.data);
    buffer_done(&escaped);
    return r;
}

static int read_byte_level(struct reading *reading, const json_t *json)
{
    int r = 0;
    if (reading->byte_level)
        return errmsg_set(reading->file->err, -ENOTSUP, "two ByteLevel pre-tokenizers");
    if (json_flag(json, "add_prefix_space", true))
        r = add_pretokenizer(reading, "PrefixSpace");
    if (r == 0 && json_flag(json, "use_regex", true))
        r = add_cut(reading, "Split", GPT2);
    reading->byte_level = true;
    return r;
}

static int read_digits(struct reading *reading, const json_t *json)
{
    return add_cut(reading, "Split",
                   json_flag(json, "individual_digits", false) ? "\\p{N}" : "\\p{N}+");
}

static int read_punctuation(struct reading *reading, const json_t *json)
{
    const char *behavior = json_text(json, "behavior");
    const char *word = cut_word(reading, behavior == NULL ? "Isolated" : behavior, false);
    return word == NULL ? -ENOTSUP : add_cut(reading, word, PUNCTUATION);
}

static int read_whitespace(struct reading *reading, const json_t *json)
{
    return add_cut(reading, "Keep", "\\w+|[^\\w\\s]+");
}

static int read_whitespace_split(struct reading *reading, const json_t *json)
{
    return add_cut(reading, "Remove", "\\s");
}

static int read_metaspace(struct reading *reading, const json_t *json)
{
    const char *replacement = json_text(json, "replacement");
    const char *scheme = json_text(json, "prepend_scheme");
    static const char *const schemes[] = {"always", "first", "never"};
    static const char *const words[] = {"Always", "First", "Never"};
    if (replacement != NULL && strcmp(replacement, LOW_LINE) != 0)
        return errmsg_set(reading->file->err, -ENOTSUP,
                          "Metaspace with replacement '%.10s'; supported: U+2581", replacement);
    if (scheme == NULL) /* files of old know only add_prefix_space */
        scheme = json_flag(json, "add_prefix_space", true) ? "always" : "never";
    for (size_t i = 0; i < 3; i++) {
        if (strcmp(scheme, schemes[i]) != 0)
            continue;
        char *step =
            mem_printf("Metaspace %s%s", words[i], json_flag(json, "split", true) ? " Split" : "");
        int r = add_pretokenizer(reading, step);
        mem_free(step);
        return r;
    }
    return errmsg_set(reading->file->err, -ENOTSUP,
                      "Metaspace with prepend_scheme '%.20s'; supported: always, first, never",
                      scheme);
}

static const struct component pretokenizers[] = {
    {"ByteLevel", read_byte_level},
    {"Split", read_split},
    {"Digits", read_digits},
    {"Punctuation", read_punctuation},
    {"Metaspace", read_metaspace},
    {"Whitespace", read_whitespace},
    {"WhitespaceSplit", read_whitespace_split},
};

/* --- both ------------------------------------------------------------------------------------ */

struct component_table {
    const char *what, *list; /* "normalizer", and the member of its Sequence */
    const struct component *rows;
    size_t count;
};
static const struct component_table normalizer_table = {
    "normalizer", "normalizers", normalizers, sizeof(normalizers) / sizeof(normalizers[0])};
static const struct component_table pretokenizer_table = {
    "pre_tokenizer", "pretokenizers", pretokenizers,
    sizeof(pretokenizers) / sizeof(pretokenizers[0])};

static int refuse_component(struct reading *reading, const struct component_table *table,
                            const char *type)
{
    char list[256] = "";
    size_t used = 0;
    for (size_t i = 0; i < table->count; i++) {
        size_t bytes = strlen(table->rows[i].type);
        ASSERT(used + bytes + 2 <= sizeof(list));
        memcpy(list + used, table->rows[i].type, bytes);
        used += bytes;
        list[used++] = ' ';
        list[used] = '\0';
    }
    return errmsg_set(reading->file->err, -ENOTSUP,
                      "%s '%.60s' is not supported; supported: %sSequence", table->what,
                      type == NULL ? "(none)" : type, list);
}

/* Depth is bounded by json_parse. */
static int read_component(struct reading *reading, const struct component_table *table,
                          const json_t *json)
{
    const char *type = json_text(json, "type");
    const json_t *part = NULL;
    size_t i = 0;
    if (json == NULL || json_is_null(json))
        return 0;
    if (type != NULL && strcmp(type, "Sequence") == 0) {
        json_array_foreach(json_object_get(json, table->list), i, part)
        {
            int r = read_component(reading, table, part);
            if (r < 0)
                return r;
        }
        return 0;
    }
    for (i = 0; type != NULL && i < table->count; i++) {
        if (strcmp(table->rows[i].type, type) == 0)
            return table->rows[i].read(reading, json);
    }
    return refuse_component(reading, table, type);
}

int tokenizer_json_read_steps(struct tokenizer_json *file, bool *ret_byte_level)
{
    struct reading reading = {.file = file};
    string_table_builder_init(&reading.normalizers);
    string_table_builder_init(&reading.pretokenizers);
    int r = read_component(&reading, &normalizer_table, json_object_get(file->root, "normalizer"));
    if (r == 0)
        r = read_component(&reading, &pretokenizer_table,
                           json_object_get(file->root, "pre_tokenizer"));
    if (r == 0 && reading.pretokenizers.count == 0 && reading.byte_level)
        r = add_bytes(&reading, &reading.pretokenizers, "Whole", 5); /* not a name's patterns */
    if (r == 0) {
        string_table_builder_move(&reading.normalizers, file->card, &file->card->normalizers);
        string_table_builder_move(&reading.pretokenizers, file->card, &file->card->pretokenizers);
        *ret_byte_level = reading.byte_level;
    }
    string_table_builder_done(&reading.normalizers);
    string_table_builder_done(&reading.pretokenizers);
    return r;
}
