/* settings.c - flags and the order of precedence.
 *
 *   defaults < [cluster] < [section] < [section.N] < flags
 *
 * The flags are applied first too: they name the file, and the group N may be a flag. Applying them
 * again after each part of the file is what makes them win, with no record of who set what. */
#include "proto/base/settings.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "proto/base/settings_private.h"

#define HELP_BYTES_MAX ((size_t)1 << 20)
#define FLAG_NAME_BYTES_MAX 64u
#define LIST_BYTES_MAX (64u << 10)

/* What the flags say besides values of the table. */
struct flags {
    const char *config; /* argv's */
    bool help;
    bool version;
};

const struct setting *setting_find(const struct settings_spec *spec, const char *name)
{
    for (const struct setting *row = spec->table; row->type != SETTING_TYPE_END; row++) {
        if (setting_names_equal(row->name, name))
            return row;
    }
    return NULL;
}

static const char *skip_dashes(const char *name)
{
    return name + strspn(name, "-");
}

int setting_refuse(const struct settings_spec *spec, const char *what, const char *name,
                   struct errmsg *err)
{
    const char *const *pair = spec->foreign;

    for (; pair != NULL && pair[0] != NULL; pair += 2) {
        if (setting_names_equal(skip_dashes(pair[0]), skip_dashes(name)))
            return errmsg_set(err, -EINVAL, "%s: %s", name, pair[1]);
    }
    return errmsg_set(err, -EINVAL, "unknown %s '%.64s'; %s --help lists all", what, name,
                      spec->program);
}

static int assign_named(const struct setting *row, void *out, const char *value, struct errmsg *err)
{
    int r = setting_assign(row, out, value, err);

    return r < 0 ? errmsg_prefix(err, r, "--%s", row->name) : 0;
}

/* One flag that is no row of the table itself: --config, --help, --version, --no-NAME. */
static int apply_special(const struct settings_spec *spec, void *out, const char *name,
                         const char *value, struct flags *flags, bool *ret_took_value,
                         struct errmsg *err)
{
    bool is_no = strncmp(name, "no-", 3) == 0 || strncmp(name, "no_", 3) == 0;
    const struct setting *row = is_no ? setting_find(spec, name + 3) : NULL;

    *ret_took_value = false;
    if (strcmp(name, "help") == 0) {
        flags->help = true;
        return 0;
    }
    if (strcmp(name, "version") == 0) {
        flags->version = true;
        return 0;
    }
    if (strcmp(name, "config") == 0) {
        if (value == NULL)
            return errmsg_set(err, -EINVAL, "--config needs a value");
        flags->config = value;
        *ret_took_value = true;
        return 0;
    }
    if (row != NULL && row->type == SETTING_TYPE_BOOL)
        return assign_named(row, out, "false", err);
    return -ENOKEY; /* no word of ours */
}

/* "--flag A B C" of a list: as "A,B,C". Returns how many arguments were used. */
static int apply_list(const struct setting *row, void *out, char **argv, int at, int argc,
                      const char *inside, struct errmsg *err)
{
    struct buffer text;
    int used = 1;
    buffer_init(&text, LIST_BYTES_MAX);
    if (inside != NULL)
        buffer_append_text(&text, inside);
    for (; inside == NULL && at + used < argc && strncmp(argv[at + used], "--", 2) != 0; used++) {
        if (used > 1)
            buffer_append_char(&text, ',');
        buffer_append_text(&text, argv[at + used]);
    }
    int r = buffer_finish(&text) < 0
                ? errmsg_set(err, -E2BIG, "--%s: more than %u bytes", row->name, LIST_BYTES_MAX)
                : assign_named(row, out, text.data, err);
    buffer_done(&text);
    return r < 0 ? r : used;
}

/* argv[at], with its value in it or in argv[at + 1]. Returns how many arguments were used. */
static int apply_flag(const struct settings_spec *spec, void *out, char **argv, int at, int argc,
                      struct flags *flags, struct errmsg *err)
{
    const char *arg = argv[at];
    size_t name_bytes = strcspn(arg, "=");
    const char *inside = arg[name_bytes] == '=' ? arg + name_bytes + 1 : NULL;
    const char *value = inside;
    const struct setting *row;
    char name[FLAG_NAME_BYTES_MAX];
    bool took_value;
    int r;

    if (strcmp(arg, "-h") == 0) {
        flags->help = true;
        return 1;
    }
    if (strncmp(arg, "--", 2) != 0 || name_bytes <= 2)
        return errmsg_set(err, -EINVAL, "unexpected argument '%.64s'; a flag is --name value", arg);
    if (name_bytes - 2 >= sizeof(name))
        return setting_refuse(spec, "flag", arg, err);
    memcpy(name, arg + 2, name_bytes - 2);
    name[name_bytes - 2] = '\0';
    if (value == NULL && at + 1 < argc && strncmp(argv[at + 1], "--", 2) != 0)
        value = argv[at + 1];

    row = setting_find(spec, name);
    if (row != NULL && row->type == SETTING_TYPE_BOOL) {
        r = assign_named(row, out, inside != NULL ? inside : "true", err);
        return r < 0 ? r : 1; /* never the next argument: --flag false would be ambiguous */
    }
    if (row != NULL) {
        if (value == NULL)
            return errmsg_set(err, -EINVAL, "--%s needs a value", row->name);
        if (row->type == SETTING_TYPE_TEXT && row->max > 0)
            return apply_list(row, out, argv, at, argc, inside, err);
        r = assign_named(row, out, value, err);
        return r < 0 ? r : (inside != NULL ? 1 : 2);
    }
    r = apply_special(spec, out, name, value, flags, &took_value, err);
    if (r == -ENOKEY) {
        (void)snprintf(name, sizeof(name), "%.*s", (int)name_bytes, arg);
        return setting_refuse(spec, "flag", name, err);
    }
    if (r == 0 && !took_value && inside != NULL)
        return errmsg_set(err, -EINVAL, "--%s takes no value", name);
    return r < 0 ? r : (took_value && inside == NULL ? 2 : 1);
}

static int apply_flags(const struct settings_spec *spec, void *out, int argc, char **argv,
                       struct flags *flags, struct errmsg *err)
{
    for (int at = 1; at < argc;) {
        int used = apply_flag(spec, out, argv, at, argc, flags, err);

        if (used < 0)
            return used;
        at += used;
    }
    return 0;
}

static void apply_defaults(const struct settings_spec *spec, void *out)
{
    for (const struct setting *row = spec->table; row->type != SETTING_TYPE_END; row++) {
        struct errmsg err = {""};
        int r;

        if (row->type == SETTING_TYPE_TEXT) {
            *(char **)((char *)out + row->offset) = NULL;
            if (row->dflt == NULL)
                continue;
        }
        ASSERT(row->dflt != NULL);
        r = setting_assign(row, out, row->dflt, &err);
        ASSERT(r == 0); /* a default outside of its own range is a bug of the table */
    }
}

static int apply_files(const struct settings_spec *spec, void *out, int argc, char **argv,
                       struct flags *flags, struct errmsg *err)
{
    const struct setting *group = setting_find(spec, "group");
    struct buffer section;
    int r;

    buffer_init(&section, 128);
    r = settings_apply_file(spec, out, flags->config, "cluster", err);
    if (r == 0 && spec->section != NULL)
        r = settings_apply_file(spec, out, flags->config, spec->section, err);
    if (r == 0)
        r = apply_flags(spec, out, argc, argv, flags, err);
    if (r == 0 && group != NULL && spec->section != NULL) {
        buffer_printf(&section, "%s.", spec->section);
        setting_append(group, out, &section);
        r = settings_apply_file(spec, out, flags->config, section.data, err);
        if (r == 0)
            r = apply_flags(spec, out, argc, argv, flags, err);
    }
    buffer_done(&section);
    return r;
}

static int print_and_exit(const struct settings_spec *spec, const struct flags *flags)
{
    if (flags->help) {
        struct buffer text;

        buffer_init(&text, HELP_BYTES_MAX);
        settings_help(spec, &text);
        (void)fwrite(text.data, 1, text.bytes, stdout);
        buffer_done(&text);
    } else {
        (void)fprintf(stdout, "%s %s\n", spec->program, REFRAIN_VERSION);
    }
    (void)fflush(stdout);
    return SETTINGS_EXIT_OK;
}

int settings_parse(const struct settings_spec *spec, void *out, int argc, char **argv,
                   struct errmsg *err)
{
    struct flags flags = {0};
    int r;

    apply_defaults(spec, out);
    r = apply_flags(spec, out, argc, argv, &flags, err);
    if (r == 0 && (flags.help || flags.version))
        r = print_and_exit(spec, &flags);
    else if (r == 0 && flags.config != NULL)
        r = apply_files(spec, out, argc, argv, &flags, err);
    if (r != SETTINGS_RUN)
        settings_done(spec, out);
    return r;
}

void settings_done(const struct settings_spec *spec, void *out)
{
    for (const struct setting *row = spec->table; row->type != SETTING_TYPE_END; row++) {
        char **text = (char **)((char *)out + row->offset);

        if (row->type != SETTING_TYPE_TEXT)
            continue;
        mem_free(*text);
        *text = NULL;
    }
}

int settings_set(const struct settings_spec *spec, void *out, const char *name, const char *value,
                 struct errmsg *err)
{
    const struct setting *row = setting_find(spec, skip_dashes(name));
    int r;

    if (row == NULL)
        return setting_refuse(spec, "setting", name, err);
    r = setting_assign(row, out, value, err);
    return r < 0 ? errmsg_prefix(err, r, "%s", row->name) : 0;
}
