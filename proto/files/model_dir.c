/* model_dir.c - see model_dir.h. Whoever states an id first wins; ends of an answer are gathered
 * from all files. */
#include "proto/files/model_dir.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/mem.h"
#include "proto/files/card_ends.h"
#include "proto/files/file_bytes.h"
#include "proto/files/sampling_defaults.h"
#include "proto/files/tokenizer_json_private.h"

#define CONFIG_BYTES_MAX (64u << 20)
#define TEMPLATE_BYTES_MAX (1u << 20)

/* --- reading --------------------------------------------------------------------------------- */

/* 0 also when the file is absent: then *ret_data stays NULL. */
static int read_optional(const char *folder, const char *name, size_t bytes_max, char **ret_data,
                         size_t *ret_bytes, struct errmsg *err)
{
    char *path = mem_printf("%s/%s", folder, name);
    int r = access(path, F_OK) < 0 ? 0 : file_bytes_read(path, bytes_max, ret_data, ret_bytes, err);
    mem_free(path);
    return r;
}

static int read_json(const char *folder, const char *name, json_t **ret_json, struct errmsg *err)
{
    char *data = NULL;
    size_t bytes = 0;
    int r = read_optional(folder, name, CONFIG_BYTES_MAX, &data, &bytes, err);
    if (r < 0 || data == NULL)
        return r;
    r = json_parse(data, bytes, CONFIG_BYTES_MAX, ret_json, err);
    mem_free(data);
    return r < 0 ? errmsg_prefix(err, r, "%s/%s", folder, name) : 0;
}

/* A template of a list of named ones; NULL: no list, or none of that name. */
static const char *named_template(const json_t *config, const char *wanted)
{
    const json_t *found = json_object_get(config, "chat_template"), *named = NULL;
    size_t i = 0;
    json_array_foreach(found, i, named)
    {
        const char *name = json_text(named, "name");
        if (name != NULL && strcmp(name, wanted) == 0)
            return json_text(named, "template");
    }
    return NULL;
}

const char *model_dir_template(const json_t *config)
{
    const char *text = named_template(config, "default");
    return text != NULL ? text : json_string_value(json_object_get(config, "chat_template"));
}

/* 0 also when the file is absent: then *ret_text stays NULL. */
static int read_jinja(const char *folder, const char *name, char **ret_text, struct errmsg *err)
{
    char *data = NULL;
    size_t bytes = 0;
    int r = read_optional(folder, name, TEMPLATE_BYTES_MAX, &data, &bytes, err);
    if (r == 0 && data != NULL && memchr(data, '\0', bytes) != NULL) {
        mem_free(data);
        return errmsg_set(err, -EINVAL, "%s/%s holds a NUL", folder, name);
    }
    if (r == 0)
        *ret_text = data;
    return r;
}

static int read_template(const char *folder, struct model_dir *dir, struct errmsg *err)
{
    json_t *json = NULL;
    int r = read_jinja(folder, "chat_template.jinja", &dir->chat_template, err);
    if (r == 0 && dir->chat_template != NULL)
        return read_jinja(folder, "additional_chat_templates/tool_use.jinja", &dir->tool_template,
                          err);
    if (r == 0)
        r = read_json(folder, "chat_template.json", &json, err);
    if (r < 0)
        return r;
    const json_t *source =
        json_object_get(json, "chat_template") != NULL ? json : dir->tokenizer_config;
    const char *text = model_dir_template(source), *tools = named_template(source, "tool_use");
    if (text != NULL)
        dir->chat_template = mem_strdup(text);
    if (tools != NULL)
        dir->tool_template = mem_strdup(tools);
    json_decref(json);
    return 0;
}

/* "added_tokens_decoder": {"id": {content, flags}}. */
static int read_added(struct model_dir *dir, struct errmsg *err)
{
    json_t *decoder = json_object_get(dir->tokenizer_config, "added_tokens_decoder"), *json = NULL;
    const char *key = NULL;
    if (json_object_size(decoder) == 0)
        return 0;
    dir->added = mem_calloc(json_object_size(decoder), sizeof(*dir->added));
    json_object_foreach(decoder, key, json)
    {
        const json_t *text = json_object_get(json, "content");
        char *end = NULL;
        unsigned long id = strtoul(key, &end, 10);
        if (end == key || *end != '\0' || id >= MODEL_CARD_TOKENS_MAX || !json_is_string(text))
            return errmsg_set(err, -EINVAL,
                              "tokenizer_config.json: added_tokens_decoder '%.20s' is not an id "
                              "with a content",
                              key);
        bool special = json_flag(json, "special", false);
        unsigned flags = (json_flag(json, "lstrip", false) ? TOKEN_LSTRIP : 0u) |
                         (json_flag(json, "rstrip", false) ? TOKEN_RSTRIP : 0u) |
                         (json_flag(json, "single_word", false) ? TOKEN_SINGLE_WORD : 0u) |
                         (json_flag(json, "normalized", !special) ? TOKEN_NORMALIZED : 0u);
        dir->added[dir->added_count++] =
            (struct added_token){.id = (uint32_t)id,
                                 .text = json_string_value(text),
                                 .bytes = json_string_length(text),
                                 .type = special ? TOKEN_CONTROL : TOKEN_USER_DEFINED,
                                 .flags = (uint8_t)flags};
    }
    return 0;
}

int model_dir_read(const char *folder, struct model_dir *ret_dir, struct errmsg *err)
{
    struct model_dir dir = {0};
    int r = read_json(folder, "tokenizer_config.json", &dir.tokenizer_config, err);
    if (r == 0)
        r = read_json(folder, "special_tokens_map.json", &dir.special_tokens_map, err);
    if (r == 0)
        r = read_json(folder, "generation_config.json", &dir.generation_config, err);
    if (r == 0)
        r = read_json(folder, "config.json", &dir.config, err);
    if (r == 0)
        r = read_template(folder, &dir, err);
    if (r == 0)
        r = read_added(&dir, err);
    if (r < 0) {
        model_dir_done(&dir);
        return r;
    }
    *ret_dir = dir;
    return 0;
}

void model_dir_done(struct model_dir *dir)
{
    json_decref(dir->tokenizer_config);
    json_decref(dir->special_tokens_map);
    json_decref(dir->generation_config);
    json_decref(dir->config);
    mem_free(dir->chat_template);
    mem_free(dir->tool_template);
    mem_free(dir->added);
    memset(dir, 0, sizeof(*dir));
}

/* --- into a card ----------------------------------------------------------------------------- */

static uint32_t find_token(const struct model_card *card, const char *text)
{
    size_t wanted = strlen(text);
    for (uint32_t id = card->tokens.count; id-- > 0;) { /* special tokens are mostly the last */
        size_t bytes = 0;
        const char *token = string_table_get(&card->tokens, id, &bytes);
        if (bytes == wanted && memcmp(token, text, bytes) == 0)
            return id;
    }
    return TOKEN_ID_NONE;
}

/* "bos_token": a text, or {"content": text}. */
static void read_special(const struct model_dir *dir, const struct model_card *card,
                         const char *key, uint32_t *id)
{
    const json_t *sources[] = {dir->tokenizer_config, dir->special_tokens_map};
    for (size_t i = 0; i < 2 && *id == TOKEN_ID_NONE; i++) {
        const json_t *value = json_object_get(sources[i], key);
        const char *text =
            json_is_string(value) ? json_string_value(value) : json_text(value, "content");
        if (text != NULL)
            *id = find_token(card, text);
    }
}

/* Classes whose Python code makes its own template of the two switches and does not ask
 * tokenizer.json. */
static bool class_has_switches(const json_t *config)
{
    static const char *const classes[] = {"LlamaTokenizer",     "LlamaTokenizerFast",
                                          "CodeLlamaTokenizer", "CodeLlamaTokenizerFast",
                                          "GemmaTokenizer",     "GemmaTokenizerFast"};
    const char *class = json_text(config, "tokenizer_class");
    for (size_t i = 0; class != NULL && i < sizeof(classes) / sizeof(classes[0]); i++) {
        if (strcmp(classes[i], class) == 0)
            return true;
    }
    return false;
}

static void read_switches(const struct model_dir *dir, struct model_card *card)
{
    const json_t *config = dir->tokenizer_config;
    if (class_has_switches(config) && json_is_boolean(json_object_get(config, "add_bos_token"))) {
        card->add_bos = json_flag(config, "add_bos_token", false);
        card->lead_count = 0;
    }
    if (class_has_switches(config) && json_is_boolean(json_object_get(config, "add_eos_token"))) {
        card->add_eos = json_flag(config, "add_eos_token", false);
        card->tail_count = 0;
    }
    /* One token on a side that is bos or eos is said by a switch. */
    if (card->lead_count == 1 && (card->bos == TOKEN_ID_NONE || card->bos == card->lead_ids[0])) {
        card->bos = card->lead_ids[0];
        card->add_bos = true;
        card->lead_count = 0;
    }
    if (card->tail_count == 1 && (card->eos == TOKEN_ID_NONE || card->eos == card->tail_ids[0])) {
        card->eos = card->tail_ids[0];
        card->add_eos = true;
        card->tail_count = 0;
    }
}

/* A number of a config, or of the part of it that is about text; 0: none that fits. */
static uint32_t read_count(const json_t *config, const char *key, uint32_t max)
{
    const json_t *value = json_object_get(config, key);
    if (value == NULL)
        value = json_object_get(json_object_get(config, "text_config"), key);
    double number = json_number_value(value);
    return number >= 1 && number <= (double)max ? (uint32_t)number : 0;
}

static void read_sizes(const struct model_dir *dir, struct model_card *card)
{
    uint32_t rows = read_count(dir->config, "vocab_size", MODEL_CARD_TOKENS_MAX);
    uint32_t context = read_count(dir->config, "max_position_embeddings", INT32_MAX);
    const char *type = json_text(dir->config, "model_type");
    if (context == 0)
        context = read_count(dir->tokenizer_config, "model_max_length", INT32_MAX);
    card->vocab_size = rows > card->tokens.count ? rows : card->tokens.count;
    card->context_tokens = context == 0 ? INT32_MAX : context; /* not stated: no limit here */
    card->architecture = mem_strdup(type == NULL ? "" : type);
}

int model_dir_fill_card(const struct model_dir *dir, struct model_card *card, struct errmsg *err)
{
    if (card->tokens.count == 0)
        return errmsg_set(err, -EINVAL, "a model without tokens");
    read_special(dir, card, "bos_token", &card->bos);
    read_special(dir, card, "eos_token", &card->eos);
    read_special(dir, card, "pad_token", &card->pad);
    read_switches(dir, card);
    card_add_stated_ends(card, dir->generation_config);
    card_add_stated_ends(card, dir->config);
    card_find_ends(card, TOKEN_ID_NONE);
    read_sizes(dir, card);
    sampling_defaults_read(dir->generation_config, card);
    if (dir->chat_template != NULL && dir->chat_template[0] != '\0')
        card->chat_template = mem_strdup(dir->chat_template);
    if (dir->tool_template != NULL && dir->tool_template[0] != '\0')
        card->tool_template = mem_strdup(dir->tool_template);
    return 0;
}
