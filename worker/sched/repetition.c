/* repetition.c - one run length per pattern size. */
#include "worker/sched/repetition.h"

#include <errno.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "proto/sampling_limits.h"

struct repetition {
    struct repetition_rule rule;
    uint32_t runs[]; /* [pattern_max - pattern_min + 1] */
};

int repetition_new(const struct repetition_rule *rule, struct repetition **ret_repetition,
                   struct errmsg *err)
{
    if (rule->pattern_min == 0 || rule->pattern_min > rule->pattern_max ||
        rule->pattern_max > REPETITION_PATTERN_MAX)
        return errmsg_set(err, -EINVAL,
                          "repetition_detection: patterns of %u to %u tokens; 1 to %u",
                          rule->pattern_min, rule->pattern_max, REPETITION_PATTERN_MAX);
    if (rule->count_min < 2)
        return errmsg_set(err, -EINVAL, "repetition_detection: min_count is %u: at least 2",
                          rule->count_min);
    uint32_t sizes = rule->pattern_max - rule->pattern_min + 1;
    struct repetition *repetition =
        mem_zalloc(sizeof(*repetition) + sizes * sizeof(repetition->runs[0]));
    repetition->rule = *rule;
    *ret_repetition = repetition;
    return 0;
}

void repetition_free(struct repetition *repetition)
{
    mem_free(repetition);
}

bool repetition_take(struct repetition *repetition, const uint32_t *ids, uint32_t count)
{
    const struct repetition_rule *rule = &repetition->rule;
    bool repeats = false;

    ASSERT(count > 0);
    for (uint32_t size = rule->pattern_min; size <= rule->pattern_max && size < count; size++) {
        uint32_t *run = &repetition->runs[size - rule->pattern_min];
        *run = ids[count - 1] == ids[count - 1 - size] ? *run + 1 : 0;
        repeats |= *run >= (uint64_t)size * (rule->count_min - 1);
    }
    return repeats;
}
