/* regex.h - a pattern of a model's tokenizer.json, as Oniguruma reads it, run by PCRE2 with JIT.
 *
 * Thread: one (a regex holds its match memory). */
#ifndef REFRAIN_ROUTER_TEXT_REGEX_H
#define REFRAIN_ROUTER_TEXT_REGEX_H

#include <stdbool.h>
#include <stddef.h>

#include "proto/base/errmsg.h"

struct regex;

/* 0; -EINVAL: PCRE2 refuses it; -ENOTSUP: the two engines would read it differently, *err says
 * where. */
int regex_new(const char *pattern, size_t bytes, struct regex **ret_regex, struct errmsg *err);
void regex_free(struct regex *regex); /* NULL is fine */
/* The first match that is not empty at or behind `at` in valid UTF-8. False: none, or the engine
 * gave up (its work per start is bounded). */
bool regex_find(struct regex *regex, const char *text, size_t bytes, size_t at, size_t *ret_start,
                size_t *ret_end);

#endif
