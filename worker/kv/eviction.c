/* eviction.c - the table of policies. Both arrays have the same order: a setting is its index. */
#include "worker/kv/eviction.h"

const struct eviction_policy *const eviction_policies[] = {&eviction_chat, &eviction_lru, NULL};
const char *const eviction_policy_names[] = {"chat", "lru", NULL};
