/* settings_private.h - what the settings_*.c files share; nobody else includes it.
 *
 *   settings.c        flags, order of precedence        settings_file.c  cluster.conf through inih
 *   settings_value.c  one value: text <-> field         settings_text.c  help, example, dump */
#ifndef REFRAIN_PROTO_BASE_SETTINGS_PRIVATE_H
#define REFRAIN_PROTO_BASE_SETTINGS_PRIVATE_H

#include "proto/base/settings.h"

/* '_' and '-' are the same. */
bool setting_names_equal(const char *a, const char *b);
const struct setting *setting_find(const struct settings_spec *spec, const char *name); /* NULL */
/* -EINVAL with "unknown WHAT 'name'", or with the sentence when the name is a foreign one. */
int setting_refuse(const struct settings_spec *spec, const char *what, const char *name,
                   struct errmsg *err);
/* Text -> field. 0, or -EINVAL: then the field is as before and *err does not name the row. */
int setting_assign(const struct setting *row, void *out, const char *value, struct errmsg *err);
/* Field -> text that setting_assign() reads back to the same value. */
void setting_append(const struct setting *row, const void *settings, struct buffer *out);

/* Apply section `section` of the file; every other key and section is checked to be known.
 * 0, -ENOENT: no file, -EINVAL: *err says file, line and why. */
int settings_apply_file(const struct settings_spec *spec, void *out, const char *path,
                        const char *section, struct errmsg *err);

#endif
