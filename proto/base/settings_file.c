/* settings_file.c - cluster.conf through inih.
 *
 * The whole file is read first, then given to inih line by line, which is how a line number is
 * known where inih passes none. Leading space is cut off each line: inih takes an indented line for
 * the continuation of the value above, and "  port = 8000" would become part of a path.
 * Every key of every section that this program knows is checked, also in sections it does not
 * apply, so that a typing error is found by whichever program starts first. */
#include <errno.h>
#include <ini.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/settings_private.h"
#include "proto/cluster_conf.h"

#define FILE_BYTES_MAX ((size_t)1 << 20)
#define LINE_BYTES_MAX 4096

enum section_kind {
    SECTION_UNKNOWN = 0,
    SECTION_CLUSTER,
    SECTION_OWN,
    SECTION_OWN_GROUP, /* "worker.3" */
    SECTION_FOREIGN,   /* another program's: its keys are its own */
};

struct file_pass {
    const struct settings_spec *spec;
    void *out;
    const char *section; /* the one to apply */
    const char *at;      /* next line */
    const char *end;
    int line; /* of the last line given to inih */
    int r;    /* first error; the text is in err */
    struct errmsg *err;
};

static bool is_in(const char *const *words, const char *word)
{
    for (; *words != NULL; words++) {
        if (setting_names_equal(*words, word))
            return true;
    }
    return false;
}

/* "base.N", N a number as we print it: "worker.00" would never be looked up. */
static bool is_group_of(const char *section, const char *base)
{
    size_t base_bytes = strlen(base);
    const char *digits = section + base_bytes + 1;

    if (strncmp(section, base, base_bytes) != 0 || section[base_bytes] != '.')
        return false;
    if (digits[0] == '\0' || digits[strspn(digits, "0123456789")] != '\0')
        return false;
    return digits[0] != '0' || digits[1] == '\0';
}

static enum section_kind classify(const struct settings_spec *spec, const char *section)
{
    static const char *const known[] = CLUSTER_CONF_SECTIONS;

    if (strcmp(section, "cluster") == 0)
        return SECTION_CLUSTER;
    if (spec->section != NULL && strcmp(section, spec->section) == 0)
        return SECTION_OWN;
    if (spec->section != NULL && setting_find(spec, "group") != NULL &&
        is_group_of(section, spec->section))
        return SECTION_OWN_GROUP;
    if (is_in(known, section) || is_group_of(section, "worker"))
        return SECTION_FOREIGN;
    return SECTION_UNKNOWN;
}

static int take_value(struct file_pass *pass, const char *section, const char *name,
                      const char *value)
{
    static const char *const cluster_keys[] = CLUSTER_CONF_KEYS;
    const struct setting *row = setting_find(pass->spec, name);
    enum section_kind kind = classify(pass->spec, section);
    int r;

    if (section[0] == '\0')
        return errmsg_set(pass->err, -EINVAL, "'%.64s' stands before the first [section]", name);
    if (kind == SECTION_FOREIGN)
        return 0;
    if (kind == SECTION_UNKNOWN)
        return errmsg_set(pass->err, -EINVAL, "unknown section [%.64s]", section);
    if (row == NULL) {
        if (kind == SECTION_CLUSTER && is_in(cluster_keys, name))
            return 0; /* for another program */
        return setting_refuse(pass->spec, "key", name, pass->err);
    }
    if (kind == SECTION_OWN_GROUP && setting_names_equal(row->name, "group"))
        return errmsg_set(pass->err, -EINVAL, "'group' cannot be set in [%s]", section);
    if (strcmp(section, pass->section) != 0)
        return 0;
    r = setting_assign(row, pass->out, value, pass->err);
    return r < 0 ? errmsg_prefix(pass->err, r, "%s", row->name) : 0;
}

static int on_value(void *user, const char *section, const char *name, const char *value)
{
    struct file_pass *pass = user;

    if (pass->r == 0)
        pass->r = take_value(pass, section, name, value);
    return pass->r == 0;
}

/* fgets() over memory. NULL ends the parse: at the end, or after the first error. */
static char *on_line(char *ret_line, int line_max, void *user)
{
    struct file_pass *pass = user;
    const char *from = pass->at;
    const char *newline;
    size_t bytes;

    if (pass->r < 0 || from == pass->end)
        return NULL;
    newline = memchr(from, '\n', (size_t)(pass->end - from));
    bytes = (size_t)((newline != NULL ? newline : pass->end) - from);
    pass->at = newline != NULL ? newline + 1 : pass->end;
    pass->line++;
    while (bytes > 0 && (*from == ' ' || *from == '\t')) {
        from++;
        bytes--;
    }
    if (bytes >= (size_t)line_max) {
        pass->r = errmsg_set(pass->err, -EINVAL, "longer than %d bytes", line_max - 1);
        return NULL;
    }
    if (memchr(from, '\0', bytes) != NULL) {
        pass->r = errmsg_set(pass->err, -EINVAL, "holds a NUL byte");
        return NULL;
    }
    memcpy(ret_line, from, bytes);
    ret_line[bytes] = '\0';
    return ret_line;
}

static int read_whole(const char *path, struct buffer *out, struct errmsg *err)
{
    FILE *file = fopen(path, "re");
    char chunk[4096];
    size_t got;
    int r = 0;

    if (file == NULL) {
        r = errmsg_errno(err, "open '%s'", path);
        return r == -ENOENT ? r : -EINVAL;
    }
    while ((got = fread(chunk, 1, sizeof(chunk), file)) > 0)
        buffer_append(out, chunk, got);
    if (ferror(file)) {
        (void)errmsg_errno(err, "read '%s'", path);
        r = -EINVAL;
    } else if (buffer_finish(out) < 0) {
        r = errmsg_set(err, -EINVAL, "'%s' is larger than %zu bytes", path, FILE_BYTES_MAX);
    }
    (void)fclose(file);
    return r;
}

int settings_apply_file(const struct settings_spec *spec, void *out, const char *path,
                        const char *section, struct errmsg *err)
{
    struct errmsg own; /* the line's number is put before its text even if nobody listens */
    struct file_pass pass = {.spec = spec, .out = out, .section = section, .err = &own};
    struct buffer text;
    int syntax_line;
    int r;

    buffer_init(&text, FILE_BYTES_MAX);
    r = read_whole(path, &text, err);
    if (r < 0)
        goto out;
    pass.at = text.data;
    pass.end = text.data + text.bytes;
    ini_max_line = LINE_BYTES_MAX; /* inih's only knob is global; 200 is too short for a path */
    syntax_line = ini_parse_stream(on_line, &pass, on_value, &pass);
    r = pass.r;
    if (r < 0)
        (void)errmsg_set(err, r, "%s:%d: %s", path, pass.line, own.text);
    else if (syntax_line > 0)
        r = errmsg_set(err, -EINVAL, "%s:%d: neither [section] nor key = value", path, syntax_line);
    else if (syntax_line < 0)
        r = errmsg_set(err, -EINVAL, "%s: no memory", path);
out:
    buffer_done(&text);
    return r;
}
