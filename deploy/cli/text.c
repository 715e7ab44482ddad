/* text.c - `refrain text tokenize|detokenize|render`: the router's own text code, line by line.
 *
 * For people who debug prompts and for test suites: what it says is what the router does with the
 * same model (router/text is one library). Needs no running cluster. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "deploy/cli/cli.h"
#include "deploy/cli/text_lines.h"
#include "deploy/cli/text_render.h"
#include "proto/base/mem.h"
#include "proto/base/settings.h"
#include "proto/files/card_path.h"
#include "router/text/detokenize.h"
#include "router/text/tokenizer.h"

#define IDS_MAX ((size_t)TEXT_LINE_BYTES_MAX)

struct text_settings {
    char *tokenizer;
    char *template;
};

#define SETTING_STRUCT struct text_settings
static const struct setting tokenizer_table[] = {
    SETTING_TEXT("tokenizer", tokenizer, NULL,
                 "A GGUF, tokenizer.json, tokenizer.model, or a model directory."),
    SETTING_END,
};
static const struct setting template_table[] = {
    SETTING_TEXT("template", template, NULL,
                 "A Jinja file, a model directory, a GGUF, or tokenizer_config.json."),
    SETTING_END,
};

/* --- tokenize, detokenize -------------------------------------------------------------------- */

static int get_bool(const json_t *object, const char *key, bool *value, struct errmsg *err)
{
    const json_t *found = json_object_get(object, key);
    if (found == NULL || json_is_null(found))
        return 0;
    if (!json_is_boolean(found))
        return errmsg_set(err, -EINVAL, "'%s' must be true or false", key);
    *value = json_is_true(found);
    return 0;
}

/* {"text", "add_special": false, "parse_special": true} -> {"ids"}. */
static int tokenize(void *owner, const json_t *object, struct buffer *out, uint32_t *line,
                    struct errmsg *err)
{
    struct tokenize_options options = {.parse_special = true};
    const json_t *text = json_object_get(object, "text");
    struct token_ids ids;
    if (!json_is_string(text))
        return errmsg_set(err, -EINVAL, "'text' must be a string");
    int r = get_bool(object, "add_special", &options.add_special, err);
    if (r == 0)
        r = get_bool(object, "parse_special", &options.parse_special, err);
    if (r < 0)
        return r;
    token_ids_init(&ids, IDS_MAX);
    r = tokenizer_encode(owner, json_string_value(text), json_string_length(text), &options, &ids);
    if (r < 0)
        (void)errmsg_set(err, r, "'text' has more than %zu tokens", IDS_MAX);
    buffer_append_text(out, "{\"ids\":[");
    for (size_t i = 0; r == 0 && i < ids.count; i++)
        buffer_printf(out, i > 0 ? ",%u" : "%u", ids.ids[i]);
    buffer_append_text(out, "]}");
    token_ids_done(&ids);
    return r;
}

static void append_hex(struct buffer *out, const struct buffer *bytes)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < bytes->bytes; i++) {
        unsigned char byte = (unsigned char)bytes->data[i];
        buffer_append_char(out, digits[byte >> 4]);
        buffer_append_char(out, digits[byte & 15]);
    }
}

/* {"ids", "skip_special_tokens": false} -> {"text", "bytes_hex"}. */
static int detokenize(void *owner, const json_t *object, struct buffer *out, uint32_t *line,
                      struct errmsg *err)
{
    const json_t *ids = json_object_get(object, "ids"), *id = NULL;
    struct detokenizer detokenizer;
    struct buffer text, bytes;
    bool skip = false;
    size_t i = 0;
    if (!json_is_array(ids))
        return errmsg_set(err, -EINVAL, "'ids' must be a list of token ids");
    int r = get_bool(object, "skip_special_tokens", &skip, err);
    if (r < 0)
        return r;
    buffer_init(&text, TEXT_ANSWER_BYTES_MAX);
    buffer_init(&bytes, TEXT_ANSWER_BYTES_MAX);
    detokenizer_init(&detokenizer, owner, !skip, true);
    detokenizer.bytes = &bytes;
    json_array_foreach(ids, i, id)
    {
        bool fits = json_is_integer(id) && json_integer_value(id) >= 0 &&
                    json_integer_value(id) <= UINT32_MAX;
        r = fits ? detokenizer_push(&detokenizer, (uint32_t)json_integer_value(id), &text)
                 : -ERANGE;
        if (r == 0)
            continue;
        (void)errmsg_set(err, r, "ids[%zu] is no token: the vocabulary has %u", i,
                         tokenizer_card(owner)->tokens.count);
        break;
    }
    detokenizer_finish(&detokenizer, &text);
    if (r == 0 && (buffer_finish(&text) < 0 || buffer_finish(&bytes) < 0))
        r = errmsg_set(err, -E2BIG, "a text of more than %zu bytes", TEXT_ANSWER_BYTES_MAX);
    if (r == 0) {
        buffer_append_text(out, "{\"text\":");
        json_append_string(out, text.data, text.bytes);
        buffer_append_text(out, ",\"bytes_hex\":\"");
        append_hex(out, &bytes);
        buffer_append_text(out, "\"}");
    }
    buffer_done(&text);
    buffer_done(&bytes);
    return r;
}

static int run_tokenizer(const struct text_settings *settings, text_line_fn answer,
                         struct errmsg *err)
{
    struct tokenizer *tokenizer = NULL;
    struct model_card *card = NULL;
    if (settings->tokenizer == NULL)
        return errmsg_set(err, -EINVAL, "--tokenizer PATH is missing");
    int r = card_from_path(settings->tokenizer, "text", &card, err);
    if (r == 0)
        r = tokenizer_new(card, &tokenizer, err);
    if (r == 0)
        r = text_lines_run(answer, tokenizer, err);
    tokenizer_free(tokenizer);
    model_card_unref(card);
    return r;
}

static int run_tokenize(const struct text_settings *settings, struct errmsg *err)
{
    return run_tokenizer(settings, tokenize, err);
}

static int run_detokenize(const struct text_settings *settings, struct errmsg *err)
{
    return run_tokenizer(settings, detokenize, err);
}

static int run_render(const struct text_settings *settings, struct errmsg *err)
{
    if (settings->template == NULL)
        return errmsg_set(err, -EINVAL, "--template PATH is missing");
    return text_render_run(settings->template, err);
}

/* --- the command ----------------------------------------------------------------------------- */

static const struct {
    const char *name;
    int (*run)(const struct text_settings *settings, struct errmsg *err);
    struct settings_spec spec;
} verbs[] = {
    {"tokenize",
     run_tokenize,
     {.program = "refrain text tokenize",
      .summary = "Reads lines {\"text\": ..., \"add_special\": false, \"parse_special\": true}, "
                 "writes {\"ids\": [...]} for each.",
      .section = "text",
      .table = tokenizer_table}},
    {"detokenize",
     run_detokenize,
     {.program = "refrain text detokenize",
      .summary = "Reads lines {\"ids\": [...], \"skip_special_tokens\": false}, writes "
                 "{\"text\": ..., \"bytes_hex\": ...} for each.",
      .section = "text",
      .table = tokenizer_table}},
    {"render",
     run_render,
     {.program = "refrain text render",
      .summary = "Reads lines {\"messages\": [...], \"tools\": [...], \"documents\": [...], "
                 "\"add_generation_prompt\": true, \"bos_token\": ..., \"eos_token\": ...,\n"
                 "\"now\": \"2024-12-19T08:30:00\", and other variables of the template}, writes "
                 "{\"text\": ...} or {\"error\": ..., \"line\": ...} for each.",
      .section = "text",
      .table = template_table}},
};
#define VERBS (sizeof(verbs) / sizeof(verbs[0]))

static void print_help(FILE *out)
{
    fprintf(out, "usage: refrain text tokenize|detokenize|render [flags]\n\n"
                 "JSON objects, one a line, from stdin to stdout: one line out per line in, in "
                 "order.\nA bad line gives {\"error\": ...} and the rest goes on.\n\n");
    for (size_t i = 0; i < VERBS; i++)
        fprintf(out, "  %-11s %s\n", verbs[i].name,
                verbs[i].spec.table == tokenizer_table ? "--tokenizer PATH" : "--template PATH");
    fprintf(out, "\n`refrain text tokenize --help` and so on say which fields a line has.\n");
}

static int run_verb(size_t i, int argc, char **argv)
{
    struct text_settings settings;
    struct errmsg err = {""};
    int r = settings_parse(&verbs[i].spec, &settings, argc, argv, &err);
    if (r == SETTINGS_EXIT_OK)
        return EXIT_DONE;
    if (r < 0) {
        fprintf(stderr, "%s: %s\n", verbs[i].spec.program, err.text);
        return EXIT_USAGE;
    }
    r = verbs[i].run(&settings, &err);
    if (r < 0)
        fprintf(stderr, "%s: %s\n", verbs[i].spec.program, err.text);
    settings_done(&verbs[i].spec, &settings);
    return r < 0 ? EXIT_FAILED : EXIT_DONE;
}

int command_text(int argc, char **argv)
{
    for (size_t i = 0; argc > 1 && i < VERBS; i++) {
        if (strcmp(argv[1], verbs[i].name) == 0)
            return run_verb(i, argc - 1, argv + 1);
    }
    bool help = argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0);
    print_help(help ? stdout : stderr);
    return help ? EXIT_DONE : EXIT_USAGE;
}
