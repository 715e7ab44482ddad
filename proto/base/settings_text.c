/* settings_text.c - what a settings table looks like to people: --help, example file, dump. */
#include <stdio.h>
#include <string.h>

#include "proto/base/number.h"
#include "proto/base/settings_private.h"

#define HELP_WIDTH 80u
#define HELP_COLUMN 34u
#define ROW_BYTES_MAX 2048u

static void append_spaces(struct buffer *out, size_t count)
{
    buffer_printf(out, "%*s", (int)count, "");
}

/* Words of `text`, from column `column` on, wrapped at HELP_WIDTH; every new line begins with
 * `margin` and is indented to `column`. Ends the line. */
static void append_wrapped(struct buffer *out, const char *text, size_t column, const char *margin)
{
    size_t at = column;

    while (*text != '\0') {
        size_t word = strcspn(text, " ");

        if (at > column && at + 1 + word > HELP_WIDTH) {
            buffer_append_char(out, '\n');
            buffer_append_text(out, margin);
            append_spaces(out, column - strlen(margin));
            at = column;
        } else if (at > column) {
            buffer_append_char(out, ' ');
            at++;
        }
        buffer_append(out, text, word);
        at += word;
        text += word;
        text += strspn(text, " ");
    }
    buffer_append_char(out, '\n');
}

static void append_choices(const struct setting *row, struct buffer *out)
{
    for (size_t i = 0; row->names[i] != NULL; i++)
        buffer_printf(out, "%s%s", i > 0 ? "|" : "", row->names[i]);
}

/* "Help text. Default 256, 1 to 65536." */
static void describe(const struct setting *row, struct buffer *out)
{
    buffer_append_text(out, row->help);
    if (row->dflt != NULL)
        buffer_printf(out, " Default %s", row->dflt[0] != '\0' ? row->dflt : "empty");
    if (row->min != 0 || row->max != 0) {
        char min[NUMBER_TEXT_MAX];
        char max[NUMBER_TEXT_MAX];

        number_format(row->min, min);
        number_format(row->max, max);
        buffer_printf(out, "%s%s to %s", row->dflt != NULL ? ", " : " ", min, max);
    }
    if (row->dflt != NULL)
        buffer_append_char(out, '.');
}

static void append_flag(const struct setting *row, struct buffer *out)
{
    static const char *const values[] = {
        [SETTING_TYPE_TEXT] = "TEXT", [SETTING_TYPE_U32] = "N",      [SETTING_TYPE_U64] = "N",
        [SETTING_TYPE_DOUBLE] = "X",  [SETTING_TYPE_BYTES] = "SIZE",
    };

    if (row->type == SETTING_TYPE_BOOL) {
        buffer_printf(out, "  --[no-]%s", row->name);
    } else if (row->type == SETTING_TYPE_ENUM) {
        buffer_printf(out, "  --%s ", row->name);
        append_choices(row, out);
    } else {
        buffer_printf(out, "  --%s %s", row->name, values[row->type]);
    }
}

/* `flag` and its description side by side, or below each other when the flag is long. */
static void append_help_line(const char *flag, const char *description, struct buffer *out)
{
    size_t bytes = strlen(flag);

    buffer_append_text(out, flag);
    if (bytes + 2 > HELP_COLUMN) {
        buffer_append_char(out, '\n');
        bytes = 0;
    }
    append_spaces(out, HELP_COLUMN - bytes);
    append_wrapped(out, description, HELP_COLUMN, "");
}

void settings_help(const struct settings_spec *spec, struct buffer *out)
{
    struct buffer flag;
    struct buffer text;

    buffer_init(&flag, ROW_BYTES_MAX);
    buffer_init(&text, ROW_BYTES_MAX);
    buffer_printf(out, "usage: %s [--config FILE] [--NAME VALUE | --NAME=VALUE]...\n",
                  spec->program);
    append_wrapped(out, spec->summary, 0, "");
    buffer_append_char(out, '\n');
    for (const struct setting *row = spec->table; row->type != SETTING_TYPE_END; row++) {
        buffer_clear(&flag);
        buffer_clear(&text);
        append_flag(row, &flag);
        describe(row, &text);
        append_help_line(flag.data, text.data, out);
    }
    buffer_clear(&text);
    buffer_append_text(&text, "Read a file first");
    if (spec->section != NULL)
        buffer_printf(&text, ": its [cluster] section, then its [%s] section", spec->section);
    buffer_append_text(&text, ". Flags win.");
    append_help_line("  --config FILE", text.data, out);
    append_help_line("  --help", "Print this and exit.", out);
    append_help_line("  --version", "Print the version and exit.", out);
    buffer_done(&flag);
    buffer_done(&text);
}

void settings_example(const struct settings_spec *spec, struct buffer *out)
{
    struct buffer text;

    buffer_init(&text, ROW_BYTES_MAX);
    buffer_append_text(out, "# ");
    buffer_printf(&text, "%s: %s Every line below shows a default; take the # away to change it.",
                  spec->program, spec->summary);
    append_wrapped(out, text.data, 2, "# ");
    if (spec->section != NULL)
        buffer_printf(out, "[%s]\n", spec->section);
    for (const struct setting *row = spec->table; row->type != SETTING_TYPE_END; row++) {
        buffer_clear(&text);
        buffer_append_text(&text, row->help);
        if (row->type == SETTING_TYPE_ENUM) {
            buffer_append_text(&text, " One of ");
            append_choices(row, &text);
            buffer_append_char(&text, '.');
        }
        buffer_append_text(out, "\n# ");
        append_wrapped(out, text.data, 2, "# ");
        buffer_printf(out, "#%s = %s\n", row->name, row->dflt != NULL ? row->dflt : "");
    }
    buffer_done(&text);
}

/* "api-key" and "curve-secret-key", not "api-key-file" or "key-cache". */
static bool is_secret(const char *name)
{
    static const char *const words[] = {"key", "keys", "secret", "password"};
    const char *last = name;

    for (const char *at = name; *at != '\0'; at++) {
        if (*at == '-' || *at == '_')
            last = at + 1;
    }
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcmp(last, words[i]) == 0)
            return true;
    }
    return false;
}

void settings_dump(const struct settings_spec *spec, const void *settings, struct buffer *out)
{
    struct buffer value;

    buffer_init(&value, (size_t)1 << 20);
    for (const struct setting *row = spec->table; row->type != SETTING_TYPE_END; row++) {
        buffer_clear(&value);
        setting_append(row, settings, &value);
        buffer_printf(out, "%s%s=", row == spec->table ? "" : " ", row->name);
        if (value.bytes > 0 && row->type == SETTING_TYPE_TEXT && is_secret(row->name))
            buffer_append_text(out, "***");
        else if (strpbrk(value.data, " \t\n\"") != NULL)
            buffer_printf(out, "\"%s\"", value.data);
        else
            buffer_append(out, value.data, value.bytes);
    }
    buffer_done(&value);
}
