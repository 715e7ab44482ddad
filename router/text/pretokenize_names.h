/* pretokenize_names.h - tables behind pretokenize.c: names of pre-tokenizers, known patterns. */
#ifndef REFRAIN_ROUTER_TEXT_PRETOKENIZE_NAMES_H
#define REFRAIN_ROUTER_TEXT_PRETOKENIZE_NAMES_H

#include <stdbool.h>

#include "proto/base/errmsg.h"
#include "router/text/pretokenize.h"
#include "router/text/pretokenize_scan.h"

#define PRETOKENIZE_NAME_PATTERNS 6

/* A pattern that need not be run by a regex engine. */
struct pretokenize_scanner {
    const char *pattern;
    scan_fn scan;
    struct scan_rules rules;
};

/* A pre-tokenizer by its GGUF name: patterns in order, NULL behind the last. */
struct pretokenize_name {
    const char *name;
    const char *patterns[PRETOKENIZE_NAME_PATTERNS];
    struct pretokenize_traits traits;
};

/* NULL: no scanner for exactly this text. */
const struct pretokenize_scanner *pretokenize_scanner(const char *pattern);
/* One newline: no piece behind such a step holds any. */
bool pretokenize_is_newline(const char *pattern);
/* White space at the end of a line. */
bool pretokenize_is_trailing_space(const char *pattern);
/* NULL: unknown, *err (-ENOTSUP) lists the known ones. */
const struct pretokenize_name *pretokenize_name(const char *name, struct errmsg *err);

#endif
