/* grammar_checks.h - is a request's grammar one? Compiled on libuv's threads: a large one takes up
 * to 0.1 s, for which no other client waits.
 *
 *   ask --known good--> 0
 *    +--compiling--> 1 ... on_checked, once, in a later turn of the loop; or cancel: never
 *
 * What was good is kept in a store, within a bound. Pending checks are those of open requests, and
 * of cancelled ones at most one a thread. Thread: the loop's. */
#ifndef REFRAIN_ROUTER_GRAMMAR_CHECKS_H
#define REFRAIN_ROUTER_GRAMMAR_CHECKS_H

#include <uv.h>

#include "proto/grammar/grammar.h"

struct grammar_checks;
struct grammar_check;

/* r, err: grammar_compile's. The check is gone. */
typedef void (*grammar_checked_fn)(void *user, int r, const struct errmsg *err);

struct grammar_checks *grammar_checks_new(uv_loop_t *loop, size_t bytes_max);
/* The loop has run out: no check is pending. NULL is fine. */
void grammar_checks_free(struct grammar_checks *checks);
/* 0: the grammar is good; 1: on_checked will say, *ret_check until then. The text is copied. */
int grammar_checks_ask(struct grammar_checks *checks, const struct grammar_spec *spec,
                       grammar_checked_fn on_checked, void *user, struct grammar_check **ret_check);
/* Nobody wants to know any more. NULL is fine. */
void grammar_check_cancel(struct grammar_check *check);

#endif
