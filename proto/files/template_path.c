/* template_path.c - see template_path.h. A directory's own files come before its GGUF. */
#include "proto/files/template_path.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

#include "proto/base/mem.h"
#include "proto/files/card_path.h"
#include "proto/files/file_bytes.h"
#include "proto/files/model_dir.h"
#include "proto/files/tokenizer_json_private.h"

#define TEMPLATE_BYTES_MAX (64u << 20) /* a tokenizer_config.json with many added tokens */

static char *special_text(const json_t *config, const char *key)
{
    const json_t *value = json_object_get(config, key);
    const char *text =
        json_is_string(value) ? json_string_value(value) : json_text(value, "content");
    return text == NULL ? NULL : mem_strdup(text);
}

static int from_json(const char *path, const char *data, size_t bytes, struct template_file *out,
                     struct errmsg *err)
{
    json_t *json = NULL;
    int r = json_parse(data, bytes, TEMPLATE_BYTES_MAX, &json, err);
    if (r < 0)
        return errmsg_prefix(err, r, "%s", path);
    const char *text = model_dir_template(json);
    if (text == NULL) {
        r = errmsg_set(err, -ENOENT, "'%s' has no chat_template", path);
    } else {
        out->source = mem_strdup(text);
        out->bos_token = special_text(json, "bos_token");
        out->eos_token = special_text(json, "eos_token");
    }
    json_decref(json);
    return r;
}

/* A GGUF, or a directory with nothing else. */
static int from_card(const char *path, struct template_file *out, struct errmsg *err)
{
    struct model_card *card = NULL;
    int r = card_from_path(path, "template", &card, err);
    if (r < 0)
        return r;
    if (card->chat_template == NULL) {
        r = errmsg_set(err, -ENOENT, "'%s' has no chat template", path);
    } else {
        const uint32_t ids[] = {card->bos, card->eos};
        char **texts[] = {&out->bos_token, &out->eos_token};
        out->source = mem_strdup(card->chat_template);
        for (size_t i = 0; i < 2; i++) {
            size_t bytes = 0;
            if (ids[i] == TOKEN_ID_NONE)
                continue;
            const char *text = string_table_get(&card->tokens, ids[i], &bytes);
            *texts[i] = mem_strndup(text, bytes);
        }
    }
    model_card_unref(card);
    return r;
}

static int from_directory(const char *path, struct template_file *out, struct errmsg *err)
{
    struct model_dir dir = {0};
    int r = model_dir_read(path, &dir, err);
    if (r < 0)
        return r;
    if (dir.chat_template == NULL) {
        r = from_card(path, out, err);
    } else {
        out->source = dir.chat_template;
        dir.chat_template = NULL;
        out->bos_token = special_text(dir.tokenizer_config, "bos_token");
        out->eos_token = special_text(dir.tokenizer_config, "eos_token");
    }
    model_dir_done(&dir);
    return r;
}

static bool ends_with(const char *name, const char *suffix)
{
    size_t bytes = strlen(name), suffix_bytes = strlen(suffix);
    return bytes > suffix_bytes && strcmp(name + bytes - suffix_bytes, suffix) == 0;
}

static int from_file(const char *path, struct template_file *out, struct errmsg *err)
{
    char *data = NULL;
    size_t bytes = 0;
    if (ends_with(path, ".gguf"))
        return from_card(path, out, err);
    int r = file_bytes_read(path, TEMPLATE_BYTES_MAX, &data, &bytes, err);
    if (r < 0)
        return r;
    if (ends_with(path, ".json")) {
        r = from_json(path, data, bytes, out, err);
        mem_free(data);
        return r;
    }
    out->source = data;
    out->bytes = bytes;
    return 0;
}

int template_from_path(const char *path, struct template_file *ret_template, struct errmsg *err)
{
    struct template_file out = {0};
    struct stat info;
    if (stat(path, &info) < 0)
        return errmsg_errno(err, "look at '%s'", path);
    int r = S_ISDIR(info.st_mode) ? from_directory(path, &out, err) : from_file(path, &out, err);
    if (r < 0) {
        template_file_done(&out);
        return r;
    }
    if (out.bytes == 0)
        out.bytes = strlen(out.source);
    *ret_template = out;
    return 0;
}

void template_file_done(struct template_file *template)
{
    mem_free(template->source);
    mem_free(template->bos_token);
    mem_free(template->eos_token);
    memset(template, 0, sizeof(*template));
}
