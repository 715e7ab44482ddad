/* adapters.h - the adapters that a worker serves: names, slots, and their loading.
 *
 *   FREE --load--> LOADING --filled--> READY --unload--> LEAVING --nobody in it--> FREE
 *     ^               |
 *     +----failed-----+
 *
 * A file is read and packed by a thread of its own, into a slot that nobody uses: nothing that runs
 * waits for it. A name that is unloaded is unknown at once; its slot is free when the last sequence
 * that uses it has ended.
 * Thread: io's (main's until that one starts); sequences leave from any (adapter_use.h). */
#ifndef REFRAIN_WORKER_LORA_ADAPTERS_H
#define REFRAIN_WORKER_LORA_ADAPTERS_H

#include <stdbool.h>

#include "worker/lora/adapter_use.h"
#include "worker/lora/lora.h"

#define ADAPTER_WAITERS_MAX 32u /* who want to hear how one load ended */

struct adapters; /* opaque */

struct adapters_settings {
    const struct model_config *config;
    struct lora_limits limits;
    uint32_t ranks;
    struct lora *lora;          /* rank 0's; outlives the adapters */
    void *memory[TP_RANKS_MAX]; /* slots of the other ranks */
};

/* Who asked: told back as it is. */
struct adapter_asker {
    uint32_t router;
    uint64_t ticket;
};
typedef void (*adapters_done_fn)(void *user, struct adapter_asker asker, int r, const char *text);

int adapters_new(const struct adapters_settings *settings, struct adapters **ret_adapters,
                 struct errmsg *err);
/* Waits for loads that are under way. No sequence may be left. NULL is fine. */
void adapters_free(struct adapters *adapters);

/* "NAME=PATH,NAME=PATH": all of them, now. The first error, naming it. */
int adapters_load_all(struct adapters *adapters, const char *modules, struct errmsg *err);
/* 0: begun, adapters_turn() tells the asker how it ends; -EALREADY: it is there, of this path;
 * -EEXIST: the name is taken by another path; -ENOSPC: all slots are in use; -EINVAL: no good name
 * or path; -EAGAIN: too many wait for this one. */
int adapters_load(struct adapters *adapters, const char *name, const char *path,
                  struct adapter_asker asker, struct errmsg *err);
/* 0; -ENOENT: no such adapter; -EBUSY: it is being loaded. */
int adapters_unload(struct adapters *adapters, const char *name, struct errmsg *err);
/* For poll(POLLIN): a load has ended. */
int adapters_fd(const struct adapters *adapters);
/* Loads that ended, slots that were left. true: the list of those that are ready has changed. */
bool adapters_turn(struct adapters *adapters, adapters_done_fn on_done, void *user);

/* A ready one; valid until the next adapters_turn() or adapters_unload(). */
struct adapter_view {
    const char *name, *key, *path; /* key: NAME@digest, what hashes of its blocks begin with */
    struct adapter_use *use;
};
bool adapters_find(const struct adapters *adapters, const char *name,
                   struct adapter_view *ret_view);
/* The i-th slot's, if it is ready. i < adapters_max(). */
bool adapters_at(const struct adapters *adapters, uint32_t i, struct adapter_view *ret_view);
/* The name of a load by its serial (adapter_use.h), for some time after it has left; NULL: 0, or
 * long gone. */
const char *adapters_name(const struct adapters *adapters, uint32_t serial);
uint32_t adapters_max(const struct adapters *adapters);

#endif
