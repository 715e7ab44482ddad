/* start_plan.h - what a worker with these flags takes, before it takes it: a start begins with this
 * plan, and `--check` prints the same one. Thread: main. */
#ifndef REFRAIN_WORKER_START_PLAN_H
#define REFRAIN_WORKER_START_PLAN_H

#include "worker/engine/rank_model.h"
#include "worker/settings.h"
#include "worker/start_checks.h"

#define START_PLAN_TEXT_MAX 512u

/* What flags and files say of a model that is open; its weights need not be loaded. Memory of the
 * machine is left unknown (0): the caller's to fill in. */
struct start_facts start_facts_of(const struct worker_settings *settings,
                                  const struct rank_model *model);
/* start_checks_run, and whether blocks of this model fit the disk tier. 0; -EINVAL, -ENOMEM: a
 * worker with these flags does not start, *err says why. */
int start_plan_make(const struct worker_settings *settings, const struct rank_model *model,
                    const struct start_facts *facts, struct start_plan *ret_plan,
                    struct errmsg *err);
/* As `key=value` words: counts, and bytes of the whole group. */
void start_plan_text(const struct start_facts *facts, const struct start_plan *plan,
                     char ret_text[START_PLAN_TEXT_MAX]);

#endif
