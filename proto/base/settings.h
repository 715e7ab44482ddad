/* settings.h - one table makes the flags, the file section, --help and the start-up dump.
 *
 *   #define SETTING_STRUCT struct worker_settings
 *   static const struct setting table[] = {
 *       SETTING_TEXT("model", model, NULL, "Model file (GGUF) or directory."),
 *       SETTING_U32("max-num-seqs", sequences_max, "256", 1, 65536, "Sequences per step."),
 *       SETTING_BYTES("kv-cache-memory", kv_bytes, "1GiB", "Memory of the KV block pool."),
 *       SETTING_BOOL("enable-prefix-caching", prefix_caching, "true", "Reuse KV of known
 * prefixes."), SETTING_END};
 *
 * Order of precedence: flag, own section of --config FILE, its [cluster] section, default.
 * A flag is `--name value` or `--name=value`; a bool also `--name` and `--no-name`; '_' and '-'
 * are the same in names. `--help` and `--version` are added to every table. Unknown names, bad
 * numbers and values out of range are refused, naming flag or file and line. Nothing is read from
 * the environment. Texts belong to the struct: settings_done() frees them. Thread: at start. */
#ifndef REFRAIN_PROTO_BASE_SETTINGS_H
#define REFRAIN_PROTO_BASE_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/buffer.h"
#include "proto/base/errmsg.h"

enum setting_type {
    SETTING_TYPE_END = 0,
    SETTING_TYPE_TEXT,   /* char *, NULL when absent; max 1: several arguments, joined by commas */
    SETTING_TYPE_U32,    /* uint32_t */
    SETTING_TYPE_U64,    /* uint64_t */
    SETTING_TYPE_DOUBLE, /* double */
    SETTING_TYPE_BOOL,   /* bool */
    SETTING_TYPE_BYTES,  /* uint64_t: 1048576, 512MiB, 2GiB, 2G, 100MB (MB = 10^6); a bare decimal
                            with a point or below 1024 is GiB, as vLLM's kv-cache space */
    SETTING_TYPE_ENUM,   /* int: index into names */
};

struct setting {
    const char *name;
    enum setting_type type;
    size_t offset;
    const char *dflt; /* as a user would write it; NULL: none (TEXT only) */
    double min, max;
    const char *const *names; /* ENUM: NULL-terminated */
    const char *help;
};

#define SETTING_ROW(name_, type_, field_, dflt_, min_, max_, names_, help_)              \
    {                                                                                    \
        name_, type_, offsetof(SETTING_STRUCT, field_), dflt_, min_, max_, names_, help_ \
    }
#define SETTING_TEXT(n, f, d, h) SETTING_ROW(n, SETTING_TYPE_TEXT, f, d, 0, 0, NULL, h)
#define SETTING_LIST(n, f, d, h) SETTING_ROW(n, SETTING_TYPE_TEXT, f, d, 0, 1, NULL, h)
#define SETTING_U32(n, f, d, lo, hi, h) SETTING_ROW(n, SETTING_TYPE_U32, f, d, lo, hi, NULL, h)
#define SETTING_U64(n, f, d, lo, hi, h) SETTING_ROW(n, SETTING_TYPE_U64, f, d, lo, hi, NULL, h)
#define SETTING_DOUBLE(n, f, d, lo, hi, h) \
    SETTING_ROW(n, SETTING_TYPE_DOUBLE, f, d, lo, hi, NULL, h)
#define SETTING_BOOL(n, f, d, h) SETTING_ROW(n, SETTING_TYPE_BOOL, f, d, 0, 0, NULL, h)
#define SETTING_BYTES(n, f, d, h) SETTING_ROW(n, SETTING_TYPE_BYTES, f, d, 0, 0, NULL, h)
#define SETTING_ENUM(n, f, d, names_, h) SETTING_ROW(n, SETTING_TYPE_ENUM, f, d, 0, 0, names_, h)
#define SETTING_END                                       \
    {                                                     \
        NULL, SETTING_TYPE_END, 0, NULL, 0, 0, NULL, NULL \
    }

struct settings_spec {
    const char *program;         /* "refrain-worker" */
    const char *summary;         /* one line under the usage line */
    const char *section;         /* "worker": its section of cluster.conf */
    const struct setting *table; /* ends with SETTING_END */
    /* Foreign flags answered with a sentence: NULL-terminated pairs name, sentence. May be NULL. */
    const char *const *foreign;
};

enum settings_outcome { SETTINGS_RUN = 0, SETTINGS_EXIT_OK = 1 }; /* --help, --version printed */

/* Fill *out (zeroed first) from defaults, file and flags. `out->...` texts are owned by the struct.
 * SETTINGS_RUN, SETTINGS_EXIT_OK after printing help/version to stdout, or -EINVAL/-ENOENT with
 * *err set; in both of these *out holds nothing to free. `--config FILE` is understood for every
 * table; [cluster] keys this table lacks are skipped when they are in proto/cluster_conf.h's list;
 * other programs' sections
 * ("router", "worker", "up") are skipped; any other section or key is refused. */
int settings_parse(const struct settings_spec *spec, void *out, int argc, char **argv,
                   struct errmsg *err);
void settings_done(const struct settings_spec *spec, void *out);
/* One value, as from a flag. */
int settings_set(const struct settings_spec *spec, void *out, const char *name, const char *value,
                 struct errmsg *err);
/* Only the rows of `spec`, "name=value" separated by spaces; key-like settings ("api-key") masked.
 */
void settings_dump(const struct settings_spec *spec, const void *settings, struct buffer *out);
/* An example file with every default and help text. */
void settings_example(const struct settings_spec *spec, struct buffer *out);
void settings_help(const struct settings_spec *spec, struct buffer *out);
/* "1.5GiB" and friends -> bytes; -EINVAL. */
int settings_parse_bytes(const char *text, uint64_t *ret_bytes);

#endif
