/* adapters.c - a table of slots with names, a thread per load.
 *
 * (picture of the states: adapters.h)
 * Why names are kept by serial: events of an adapter's last blocks are on their way when its slot
 * is given to the next.
 * Invariant: only a load's thread writes a slot, and only while the slot is LOADING. */
#define LOG_MODULE "adapters"
#include "worker/lora/adapters.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "proto/base/assert.h"
#include "proto/base/clock.h"
#include "proto/base/log.h"
#include "proto/base/mem.h"

#define NAMES_KEPT 256u

enum entry_state { ENTRY_FREE = 0, ENTRY_LOADING, ENTRY_READY, ENTRY_LEAVING, ENTRY_STATES };

struct entry {
    struct adapters *adapters;
    enum entry_state state;
    struct adapter_use use;
    char name[ADAPTER_NAME_MAX + 1], key[ADAPTER_KEY_MAX + 1];
    char *path;
    struct adapter_asker askers[ADAPTER_WAITERS_MAX];
    uint32_t askers_count;
    /* Of the load. */
    pthread_t thread;
    uint64_t began_ns;
    _Atomic bool ended;
    int result;
    struct errmsg err;
};

struct adapters {
    struct adapters_settings settings;
    struct lora *ranks[TP_RANKS_MAX];             /* [0]: the caller's */
    struct entry *entries;                        /* [limits.slots] */
    uint32_t serial;                              /* of the newest load */
    char names[NAMES_KEPT][ADAPTER_NAME_MAX + 1]; /* of load N at N % NAMES_KEPT */
    int fd;
};

static const bool may_follow[ENTRY_STATES][ENTRY_STATES] = {
    [ENTRY_FREE] = {[ENTRY_LOADING] = true},
    [ENTRY_LOADING] = {[ENTRY_READY] = true, [ENTRY_FREE] = true},
    [ENTRY_READY] = {[ENTRY_LEAVING] = true},
    [ENTRY_LEAVING] = {[ENTRY_FREE] = true},
};
static const char *const state_names[ENTRY_STATES] = {"free", "loading", "ready", "leaving"};

static void entry_set_state(struct entry *entry, enum entry_state next, const char *why)
{
    ASSERT(may_follow[entry->state][next]);
    log_info("adapter_state", "adapter=\"%s\" slot=%u from=%s to=%s why=\"%s\"", entry->name,
             entry->use.slot, state_names[entry->state], state_names[next], why);
    entry->state = next;
}

int adapters_new(const struct adapters_settings *settings, struct adapters **ret_adapters,
                 struct errmsg *err)
{
    struct adapters *adapters = mem_zalloc(sizeof(*adapters));
    int r = 0;
    adapters->settings = *settings;
    adapters->ranks[0] = settings->lora;
    adapters->entries = mem_calloc(settings->limits.slots, sizeof(*adapters->entries));
    for (uint32_t slot = 0; slot < settings->limits.slots; slot++) {
        adapters->entries[slot].adapters = adapters;
        adapters->entries[slot].use.slot = slot;
    }
    adapters->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ASSERT(adapters->fd >= 0);
    for (uint32_t rank = 1; rank < settings->ranks && r == 0; rank++) {
        struct shard shard;
        r = shard_compute(settings->config, rank, settings->ranks, &shard, err);
        ASSERT(r == 0 && settings->memory[rank] != NULL);
        r = lora_new(settings->config, &shard, &settings->limits, settings->memory[rank],
                     &adapters->ranks[rank], err);
    }
    if (r < 0) {
        adapters_free(adapters);
        return r;
    }
    *ret_adapters = adapters;
    return 0;
}

void adapters_free(struct adapters *adapters)
{
    if (adapters == NULL)
        return;
    for (uint32_t slot = 0; slot < adapters->settings.limits.slots; slot++) {
        struct entry *entry = &adapters->entries[slot];
        if (entry->state == ENTRY_LOADING)
            (void)pthread_join(entry->thread, NULL);
        ASSERT(atomic_load(&entry->use.users) == 0);
        mem_free(entry->path);
    }
    for (uint32_t rank = 1; rank < adapters->settings.ranks; rank++)
        lora_free(adapters->ranks[rank]);
    (void)close(adapters->fd);
    mem_free(adapters->entries);
    mem_free(adapters);
}

/* --- loading --------------------------------------------------------------------------------- */

/* File -> slots of all ranks; entry->key. */
static int fill(struct entry *entry, struct errmsg *err)
{
    const struct adapters_settings *settings = &entry->adapters->settings;
    struct adapter *adapter = NULL;
    int r = adapter_open(entry->path, settings->config, &adapter, err);
    for (uint32_t rank = 0; rank < settings->ranks && r == 0; rank++)
        r = lora_fill(entry->adapters->ranks[rank], entry->use.slot, adapter, err);
    if (r == 0)
        (void)snprintf(entry->key, sizeof(entry->key), "%s@%s", entry->name, adapter->digest);
    adapter_close(adapter);
    return r;
}

static void *load_main(void *user)
{
    const uint64_t one = 1;
    struct entry *entry = user;
    entry->result = fill(entry, &entry->err);
    atomic_store(&entry->ended, true);
    ssize_t written = write(entry->adapters->fd, &one, sizeof(one));
    ASSERT(written == (ssize_t)sizeof(one));
    return NULL;
}

static struct entry *find(const struct adapters *adapters, const char *name)
{
    for (uint32_t slot = 0; slot < adapters->settings.limits.slots; slot++) {
        struct entry *entry = &adapters->entries[slot];
        if ((entry->state == ENTRY_LOADING || entry->state == ENTRY_READY) &&
            strcmp(entry->name, name) == 0)
            return entry;
    }
    return NULL;
}

/* Nobody uses it any more: free. */
static void take_left(struct entry *entry)
{
    if (entry->state == ENTRY_LEAVING &&
        atomic_load_explicit(&entry->use.users, memory_order_acquire) == 0)
        entry_set_state(entry, ENTRY_FREE, "nobody uses it");
}

static int take_free(struct adapters *adapters, struct entry **ret_entry, struct errmsg *err)
{
    uint32_t leaving = 0;
    for (uint32_t slot = 0; slot < adapters->settings.limits.slots; slot++) {
        struct entry *entry = &adapters->entries[slot];
        take_left(entry);
        leaving += entry->state == ENTRY_LEAVING;
        if (entry->state != ENTRY_FREE)
            continue;
        *ret_entry = entry;
        return 0;
    }
    return errmsg_set(err, -ENOSPC,
                      "all %u places for adapters (--max-loras) are taken; %u of them are being "
                      "unloaded and wait for requests to end",
                      adapters->settings.limits.slots, leaving);
}

static int begin(struct adapters *adapters, const char *name, const char *path,
                 struct entry **ret_entry, struct errmsg *err)
{
    struct entry *entry = NULL;
    if (!adapter_name_is_good(name))
        return errmsg_set(err, -EINVAL,
                          "an adapter's name is 1 to %u printable ASCII characters without blanks, "
                          "quotes and backslashes",
                          ADAPTER_NAME_MAX);
    if (path[0] == '\0' || strlen(path) > ADAPTER_PATH_MAX)
        return errmsg_set(err, -EINVAL, "an adapter's path has 1 to %u bytes", ADAPTER_PATH_MAX);
    int r = take_free(adapters, &entry, err);
    if (r < 0)
        return r;
    ASSERT(atomic_load_explicit(&entry->use.users, memory_order_acquire) == 0);
    (void)snprintf(entry->name, sizeof(entry->name), "%s", name);
    mem_free(entry->path);
    entry->path = mem_strdup(path);
    entry->askers_count = 0;
    entry->use.serial = ++adapters->serial;
    (void)snprintf(adapters->names[adapters->serial % NAMES_KEPT], ADAPTER_NAME_MAX + 1, "%s",
                   name);
    entry->began_ns = clock_ns();
    entry->err = (struct errmsg){""};
    atomic_store(&entry->ended, false);
    entry_set_state(entry, ENTRY_LOADING, "asked for");
    *ret_entry = entry;
    return 0;
}

static void end_load(struct entry *entry)
{
    if (entry->result < 0) {
        log_warn("adapter_refused", "adapter=\"%s\" error=\"%s\"", entry->name, entry->err.text);
        entry_set_state(entry, ENTRY_FREE, "refused");
        return;
    }
    log_info("adapter_loaded", "adapter=\"%s\" key=%s ms=%.1f", entry->name, entry->key,
             (double)(clock_ns() - entry->began_ns) / 1e6);
    entry_set_state(entry, ENTRY_READY, "loaded");
}

static int load_one(struct adapters *adapters, const char *name, const char *path,
                    struct errmsg *err)
{
    struct entry *entry = NULL;
    if (adapter_name_is_good(name) && find(adapters, name) != NULL)
        return errmsg_set(err, -EINVAL, "the name '%s' is given twice", name);
    int r = begin(adapters, name, path, &entry, err);
    if (r < 0)
        return r;
    entry->result = fill(entry, &entry->err);
    r = entry->result;
    if (r < 0)
        (void)errmsg_set(err, r, "%s", entry->err.text);
    end_load(entry);
    return r;
}

int adapters_load_all(struct adapters *adapters, const char *modules, struct errmsg *err)
{
    int r = 0;
    for (const char *at = modules; at != NULL && at[0] != '\0' && r == 0;) {
        size_t bytes = strcspn(at, ",");
        char *module = mem_strndup(at, bytes), *equals = strchr(module, '=');
        if (equals == NULL) {
            r = errmsg_set(err, -EINVAL, "'%.100s' is no NAME=PATH", module);
        } else {
            *equals = '\0';
            r = load_one(adapters, module, equals + 1, err);
            if (r < 0)
                r = errmsg_prefix(err, r, "adapter '%.100s'", module);
        }
        mem_free(module);
        at = at[bytes] == ',' ? at + bytes + 1 : NULL;
    }
    return r;
}

int adapters_load(struct adapters *adapters, const char *name, const char *path,
                  struct adapter_asker asker, struct errmsg *err)
{
    struct entry *entry = find(adapters, name);
    if (entry != NULL && strcmp(entry->path, path) != 0)
        return errmsg_set(err, -EEXIST, "an adapter of this name is here, of another path");
    if (entry != NULL && entry->state == ENTRY_READY)
        return -EALREADY;
    if (entry != NULL) {
        if (entry->askers_count == ADAPTER_WAITERS_MAX)
            return errmsg_set(err, -EAGAIN, "%u wait for this adapter already",
                              ADAPTER_WAITERS_MAX);
        entry->askers[entry->askers_count++] = asker;
        return 0;
    }
    int r = begin(adapters, name, path, &entry, err);
    if (r < 0)
        return r;
    r = pthread_create(&entry->thread, NULL, load_main, entry);
    if (r != 0) {
        entry_set_state(entry, ENTRY_FREE, "no thread");
        return errmsg_set(err, -EAGAIN, "start a thread: %s", strerror(r));
    }
    (void)pthread_setname_np(entry->thread, "adapter");
    entry->askers[entry->askers_count++] = asker;
    return 0;
}

int adapters_unload(struct adapters *adapters, const char *name, struct errmsg *err)
{
    struct entry *entry = find(adapters, name);
    if (entry == NULL)
        return errmsg_set(err, -ENOENT, "no adapter of this name is here");
    if (entry->state == ENTRY_LOADING)
        return errmsg_set(err, -EBUSY, "the adapter is being loaded");
    entry_set_state(entry, ENTRY_LEAVING, "asked for");
    return 0;
}

int adapters_fd(const struct adapters *adapters)
{
    return adapters->fd;
}

static bool take_load(struct entry *entry, adapters_done_fn on_done, void *user)
{
    if (!atomic_load(&entry->ended))
        return false;
    (void)pthread_join(entry->thread, NULL);
    end_load(entry);
    for (uint32_t i = 0; i < entry->askers_count; i++)
        on_done(user, entry->askers[i], entry->result, entry->err.text);
    entry->askers_count = 0;
    return entry->state == ENTRY_READY;
}

bool adapters_turn(struct adapters *adapters, adapters_done_fn on_done, void *user)
{
    uint64_t ended;
    bool changed = false;
    ssize_t got = read(adapters->fd, &ended, sizeof(ended));
    (void)got; /* nothing there: only slots are looked at */
    for (uint32_t slot = 0; slot < adapters->settings.limits.slots; slot++) {
        struct entry *entry = &adapters->entries[slot];
        if (entry->state == ENTRY_LOADING)
            changed = take_load(entry, on_done, user) || changed;
        else
            take_left(entry);
    }
    return changed;
}

/* --- looking --------------------------------------------------------------------------------- */

bool adapters_at(const struct adapters *adapters, uint32_t i, struct adapter_view *ret_view)
{
    ASSERT(i < adapters->settings.limits.slots);
    struct entry *entry = &adapters->entries[i];
    if (entry->state != ENTRY_READY)
        return false;
    *ret_view = (struct adapter_view){entry->name, entry->key, entry->path, &entry->use};
    return true;
}

bool adapters_find(const struct adapters *adapters, const char *name, struct adapter_view *ret_view)
{
    const struct entry *entry = find(adapters, name);
    return entry != NULL && adapters_at(adapters, entry->use.slot, ret_view);
}

const char *adapters_name(const struct adapters *adapters, uint32_t serial)
{
    if (serial == 0 || serial > adapters->serial || adapters->serial - serial >= NAMES_KEPT)
        return NULL;
    return adapters->names[serial % NAMES_KEPT];
}

uint32_t adapters_max(const struct adapters *adapters)
{
    return adapters->settings.limits.slots;
}
