/* tokenizer_json_ends.c - post_processor and decoder: what goes around the ids, and what comes off
 * the text again.
 *
 * Of a template only the form for one text counts: special tokens, the text, special tokens. The
 * decoder does what decoding does here anyway (bytes, U+2581 as a space); only the space that it
 * takes off at the beginning is a matter of the file. Other decoders are refused by name. */
#include <errno.h>
#include <string.h>

#include "proto/files/tokenizer_json_private.h"

#define LOW_LINE "\xe2\x96\x81"

/* --- post_processor -------------------------------------------------------------------------- */

static int add_id(struct tokenizer_json *file, bool behind, json_int_t id)
{
    struct model_card *card = file->card;
    uint32_t *ids = behind ? card->tail_ids : card->lead_ids;
    uint32_t *count = behind ? &card->tail_count : &card->lead_count;
    if (id < 0 || id >= (json_int_t)card->tokens.count)
        return errmsg_set(file->err, -EINVAL, "post_processor names id %lld of %u tokens",
                          (long long)id, card->tokens.count);
    if (*count == MODEL_CARD_LEAD_MAX)
        return errmsg_set(file->err, -ENOTSUP,
                          "post_processor puts more than %d tokens on one side of the text",
                          MODEL_CARD_LEAD_MAX);
    ids[(*count)++] = (uint32_t)id;
    return 0;
}

static int read_special(struct tokenizer_json *file, const json_t *processor, const json_t *part,
                        bool behind)
{
    const char *name = json_text(part, "id");
    const json_t *tokens = json_object_get(processor, "special_tokens"), *id = NULL;
    const json_t *ids = name == NULL ? NULL : json_object_get(json_object_get(tokens, name), "ids");
    size_t i = 0;
    if (json_array_size(ids) == 0)
        return errmsg_set(file->err, -EINVAL, "post_processor: no ids for special token '%.60s'",
                          name == NULL ? "(none)" : name);
    json_array_foreach(ids, i, id)
    {
        int r = json_is_integer(id) ? add_id(file, behind, json_integer_value(id)) : -EINVAL;
        if (r < 0)
            return r;
    }
    return 0;
}

static int read_template(struct tokenizer_json *file, const json_t *processor)
{
    const json_t *part = NULL;
    size_t i = 0;
    bool behind = false;
    json_array_foreach(json_object_get(processor, "single"), i, part)
    {
        const json_t *special = json_object_get(part, "SpecialToken");
        int r = 0;
        if (special != NULL)
            r = read_special(file, processor, special, behind);
        else if (json_object_get(part, "Sequence") != NULL && !behind)
            behind = true;
        else
            r = errmsg_set(file->err, -ENOTSUP,
                           "post_processor: a template that is not tokens, text, tokens");
        if (r < 0)
            return r;
    }
    return behind ? 0 : errmsg_set(file->err, -EINVAL, "post_processor: a template without text");
}

/* "cls": [text, id], "sep": [text, id]. */
static int read_cls_sep(struct tokenizer_json *file, const json_t *processor)
{
    const json_t *cls = json_array_get(json_object_get(processor, "cls"), 1);
    const json_t *sep = json_array_get(json_object_get(processor, "sep"), 1);
    if (!json_is_integer(cls) || !json_is_integer(sep))
        return errmsg_set(file->err, -EINVAL, "post_processor: cls or sep is not a text and an id");
    int r = add_id(file, false, json_integer_value(cls));
    return r == 0 ? add_id(file, true, json_integer_value(sep)) : r;
}

static int read_processor(struct tokenizer_json *file, const json_t *processor)
{
    const char *type = json_text(processor, "type");
    const json_t *part = NULL;
    size_t i = 0;
    if (processor == NULL || json_is_null(processor))
        return 0;
    if (type != NULL && strcmp(type, "ByteLevel") == 0)
        return 0; /* only moves offsets */
    if (type != NULL && strcmp(type, "TemplateProcessing") == 0)
        return read_template(file, processor);
    if (type != NULL &&
        (strcmp(type, "BertProcessing") == 0 || strcmp(type, "RobertaProcessing") == 0))
        return read_cls_sep(file, processor);
    if (type != NULL && strcmp(type, "Sequence") == 0) {
        json_array_foreach(json_object_get(processor, "processors"), i, part)
        {
            int r = read_processor(file, part);
            if (r < 0)
                return r;
        }
        return 0;
    }
    return errmsg_set(file->err, -ENOTSUP,
                      "post_processor '%.60s' is not supported; supported: ByteLevel "
                      "TemplateProcessing BertProcessing RobertaProcessing Sequence",
                      type == NULL ? "(none)" : type);
}

/* --- decoder --------------------------------------------------------------------------------- */

static bool is_low_line_to_space(const json_t *decoder)
{
    const char *pattern = json_text(json_object_get(decoder, "pattern"), "String");
    const char *content = json_text(decoder, "content");
    return pattern != NULL && content != NULL && strcmp(pattern, LOW_LINE) == 0 &&
           strcmp(content, " ") == 0;
}

static int read_decoder_strip(struct tokenizer_json *file, const json_t *decoder)
{
    const char *content = json_text(decoder, "content");
    json_int_t start = json_integer_value(json_object_get(decoder, "start"));
    json_int_t stop = json_integer_value(json_object_get(decoder, "stop"));
    if (content == NULL || strcmp(content, " ") != 0 || start < 0 || start > 1 || stop != 0)
        return errmsg_set(file->err, -ENOTSUP,
                          "decoder Strip; supported: one space at the start, none at the end");
    if (start == 1)
        file->card->decode_strip = DECODE_STRIP_SPACE;
    return 0;
}

static int read_decoder_metaspace(struct tokenizer_json *file, const json_t *decoder)
{
    const char *scheme = json_text(decoder, "prepend_scheme");
    bool prefix = scheme != NULL ? strcmp(scheme, "never") != 0
                                 : json_flag(decoder, "add_prefix_space", true);
    if (prefix)
        file->card->decode_strip = DECODE_STRIP_SPACE;
    return 0;
}

static int read_decoder(struct tokenizer_json *file, const json_t *decoder)
{
    const char *type = json_text(decoder, "type");
    const json_t *part = NULL;
    size_t i = 0;
    if (decoder == NULL || json_is_null(decoder))
        return 0;
    if (type == NULL)
        type = "(none)";
    if (strcmp(type, "Sequence") == 0) {
        json_array_foreach(json_object_get(decoder, "decoders"), i, part)
        {
            int r = read_decoder(file, part);
            if (r < 0)
                return r;
        }
        return 0;
    }
    if (strcmp(type, "ByteFallback") == 0)
        file->byte_tokens = false; /* they are decoded */
    if (strcmp(type, "ByteLevel") == 0 || strcmp(type, "ByteFallback") == 0 ||
        strcmp(type, "Fuse") == 0)
        return 0;
    if (strcmp(type, "Replace") == 0 && is_low_line_to_space(decoder))
        return 0;
    if (strcmp(type, "Strip") == 0)
        return read_decoder_strip(file, decoder);
    if (strcmp(type, "Metaspace") == 0)
        return read_decoder_metaspace(file, decoder);
    return errmsg_set(file->err, -ENOTSUP,
                      "decoder '%.60s' is not supported; supported: ByteLevel ByteFallback Fuse "
                      "Metaspace Replace (U+2581 by a space) Strip Sequence",
                      type);
}

int tokenizer_json_read_ends(struct tokenizer_json *file)
{
    int r = read_processor(file, json_object_get(file->root, "post_processor"));
    if (r == 0)
        r = read_decoder(file, json_object_get(file->root, "decoder"));
    if (r == 0 && file->byte_tokens)
        r = errmsg_set(file->err, -ENOTSUP,
                       "byte_fallback without decoder ByteFallback is not supported");
    return r;
}
