/* memory_rows.h - what the router says of memory, as rows that a verdict can judge.
 *
 * Sources: /metrics (bytes by purpose of the router and of each group's rank 0, blocks by state,
 * resident memory of every process) and /v1/refrain/status (tickets). Thread: one. */
#ifndef REFRAIN_DEPLOY_CLI_MEMORY_ROWS_H
#define REFRAIN_DEPLOY_CLI_MEMORY_ROWS_H

#include "deploy/cli/memory_verdict.h"
#include "proto/base/errmsg.h"

#define MEMORY_ROWS_MAX 4096u

struct memory_rows {
    struct memory_row *rows;
    size_t count;
};

struct memory_source {
    const char *url, *api_key;
};

void memory_rows_init(struct memory_rows *rows);
void memory_rows_done(struct memory_rows *rows);
/* Take all numbers. round -1: before the load; rows are made then. A row that is new later (a group
 * that came) starts at 0. 0; errors of http_get. */
int memory_rows_take(struct memory_rows *rows, const struct memory_source *source, int round,
                     struct errmsg *err);
/* Does nothing run or wait, here and at the workers? *ret_idle. */
int memory_is_idle(const struct memory_source *source, bool *ret_idle, struct errmsg *err);

#endif
