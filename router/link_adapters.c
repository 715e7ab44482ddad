/* link_adapters.c - see the header. Lists of workers come in order with their answers, so a list
 * that came before the answer to an unload may still name the adapter: LEAVING ones are not learnt
 * again. Cost: a few hundred text comparisons per list; requests look one name up. */
#define LOG_MODULE "adapters"
#include "router/link_adapters.h"

#include <errno.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/log.h"
#include "proto/base/mem.h"

static const bool may_follow[ADAPTER_STATES][ADAPTER_STATES] = {
    [ADAPTER_LOADING] = {[ADAPTER_READY] = true, [ADAPTER_LEAVING] = true},
    [ADAPTER_READY] = {[ADAPTER_LEAVING] = true},
    [ADAPTER_LEAVING] = {[ADAPTER_AWAY] = true},
};
static const char *const state_names[ADAPTER_STATES] = {"loading", "ready", "leaving", "away"};

static void adapter_set_state(struct link_adapter *adapter, enum adapter_state next,
                              const char *why)
{
    ASSERT(may_follow[adapter->state][next]);
    log_info("adapter_state", "adapter=\"%s\" from=%s to=%s why=\"%s\"", adapter->name,
             state_names[adapter->state], state_names[next], why);
    adapter->state = next;
}

static uint64_t bit_of(const struct worker_link *link)
{
    return (uint64_t)1 << link->slot;
}

static struct link_adapter *find(const struct worker_links *links, const char *name)
{
    LIST_FOR(item, &links->adapters)
    {
        struct link_adapter *adapter = LIST_ENTRY(item, struct link_adapter, link);
        if (strcmp(adapter->name, name) == 0)
            return adapter;
    }
    return NULL;
}

const struct link_adapter *link_adapter_find(const struct worker_links *links, const char *name)
{
    const struct link_adapter *adapter = find(links, name);
    return adapter && adapter->state == ADAPTER_READY ? adapter : NULL;
}

static struct link_adapter *adapter_new(struct worker_links *links, const char *name,
                                        const char *path, const char *base,
                                        enum adapter_state state)
{
    struct link_adapter *adapter = mem_zalloc(sizeof(*adapter));
    adapter->state = state;
    adapter->name = mem_strdup(name);
    adapter->path = mem_strdup(path);
    adapter->base = mem_strdup(base);
    list_push_back(&links->adapters, &adapter->link);
    links->adapters_count++;
    return adapter;
}

static void adapter_free(struct worker_links *links, struct link_adapter *adapter)
{
    list_remove(&adapter->link);
    links->adapters_count--;
    mem_free(adapter->name);
    mem_free(adapter->path);
    mem_free(adapter->base);
    mem_free(adapter->key);
    mem_free(adapter->why);
    mem_free(adapter);
}

/* Is there room for one more? The first that is away makes it. */
static bool make_room(struct worker_links *links)
{
    if (links->adapters_count < LINK_ADAPTERS_MAX)
        return true;
    LIST_FOR(item, &links->adapters)
    {
        struct link_adapter *adapter = LIST_ENTRY(item, struct link_adapter, link);
        if (adapter->state == ADAPTER_AWAY) {
            adapter_free(links, adapter);
            return true;
        }
    }
    return false;
}

void link_adapters_free(struct worker_links *links)
{
    while (!list_empty(&links->adapters))
        adapter_free(links, LIST_ENTRY(links->adapters.next, struct link_adapter, link));
}

/* --- what others are told -------------------------------------------------------------------- */

static void tell_served(struct worker_links *links, const struct link_adapter *adapter)
{
    const struct links_adapter told = {adapter->name, adapter->path, adapter->base, adapter->key};
    ASSERT(adapter->key && adapter->state == ADAPTER_READY);
    links->callbacks.on_adapter(links->callbacks.user, &told);
}

static void tell_gone(struct worker_links *links, const struct link_adapter *adapter,
                      bool forgotten)
{
    if (!links->closing)
        links->callbacks.on_adapter_gone(links->callbacks.user, adapter->name, forgotten);
}

static void answer(struct link_adapter *adapter, int r, const char *text)
{
    links_adapter_fn on_done = adapter->on_done;
    adapter->on_done = NULL;
    if (on_done)
        on_done(adapter->user, r, text);
}

/* --- asking workers -------------------------------------------------------------------------- */

static void ask_load(struct worker_link *link, const struct link_adapter *adapter, uint64_t ticket)
{
    Refrain__LoadAdapter load = REFRAIN__LOAD_ADAPTER__INIT;
    load.ticket = ticket;
    load.name = adapter->name;
    load.path = adapter->path;
    worker_link_send(link, FRAME_LOAD_ADAPTER, &load.base);
}

static void ask_unload(struct worker_link *link, struct link_adapter *adapter)
{
    Refrain__UnloadAdapter unload = REFRAIN__UNLOAD_ADAPTER__INIT;
    unload.ticket = adapter->ticket;
    unload.name = adapter->name;
    adapter->awaited |= bit_of(link);
    worker_link_send(link, FRAME_UNLOAD_ADAPTER, &unload.base);
}

static bool serves(const struct worker_link *link, const char *base)
{
    return link->model && !link->refused && link->state >= LINK_COLD && link->state != LINK_GONE &&
           strcmp(link->model->card->name, base) == 0;
}

/* A worker of the same model that lacks it gets it, too; how that ends is only logged. */
static void offer(struct worker_link *link, const struct link_adapter *adapter)
{
    if (serves(link, adapter->base) && link->adapters_max > 0 && !(adapter->holders & bit_of(link)))
        ask_load(link, adapter, ++link->links->adapter_ticket);
}

static void spread(struct worker_links *links, const struct link_adapter *adapter)
{
    LIST_FOR(item, &links->all)
    {
        offer(LIST_ENTRY(item, struct worker_link, link), adapter);
    }
}

static void ask_to_leave(struct worker_links *links, struct link_adapter *adapter, const char *why)
{
    adapter_set_state(adapter, ADAPTER_LEAVING, why);
    adapter->ticket = ++links->adapter_ticket;
    adapter->awaited = 0;
    LIST_FOR(item, &links->all)
    {
        struct worker_link *link = LIST_ENTRY(item, struct worker_link, link);
        if (serves(link, adapter->base) && link->adapters_max > 0)
            ask_unload(link, adapter);
    }
}

/* Everybody who was asked has answered, or is gone. A load that failed is undone before its asker
 * hears of it, so that he may try again at once. */
static void settle(struct worker_links *links, struct link_adapter *adapter)
{
    if (adapter->awaited != 0)
        return;
    if (adapter->state == ADAPTER_LOADING) {
        if (adapter->result == 0 && adapter->holders == 0)
            adapter->result = -EAGAIN;
        if (adapter->result == 0) {
            adapter_set_state(adapter, ADAPTER_READY, "loaded");
            tell_served(links, adapter);
            answer(adapter, 0, "");
            return;
        }
        ask_to_leave(links, adapter, "not all workers could load it");
    }
    if (adapter->state != ADAPTER_LEAVING || adapter->awaited != 0)
        return;
    answer(adapter, adapter->result,
           adapter->why ? adapter->why : "the workers of the model went away");
    if (!adapter->unloaded) {
        adapter_free(links, adapter);
        return;
    }
    adapter->holders = 0;
    adapter_set_state(adapter, ADAPTER_AWAY, "unloaded");
}

/* --- what workers say ------------------------------------------------------------------------ */

/* May this worker's adapter be taken for ours? */
static bool is_same(const struct worker_link *link, struct link_adapter *adapter,
                    const Refrain__Adapter *said)
{
    if (strcmp(adapter->base, link->model->card->name) != 0) {
        log_error("adapter_of_two_models", "adapter=\"%s\" models=\"%s\",\"%s\"", adapter->name,
                  adapter->base, link->model->card->name);
        return false;
    }
    if (adapter->key && strcmp(adapter->key, said->key) != 0 &&
        (adapter->holders & ~bit_of(link)) != 0) {
        log_error("adapter_differs", "adapter=\"%s\" have=%s group=%u has=%s", adapter->name,
                  adapter->key, link->group, said->key);
        return false;
    }
    return true;
}

/* A worker names an adapter that was unloaded here. Is it to be left alone? In its first list
 * (`first`) it does not know yet. Later it does, once it has answered: then somebody else has
 * loaded the adapter since, and it is a new one. */
static bool keep_away(struct worker_link *link, struct link_adapter *adapter, bool first)
{
    struct worker_links *links = link->links;
    bool away = adapter->state == ADAPTER_AWAY;

    if (adapter->state != ADAPTER_LEAVING && !away)
        return false;
    if (serves(link, adapter->base) && first) {
        ask_unload(link, adapter);
        return true;
    }
    if (!away || (adapter->awaited & bit_of(link)))
        return true;
    adapter_free(links, adapter);
    return false;
}

static void learn(struct worker_link *link, const Refrain__Adapter *said, bool first)
{
    struct worker_links *links = link->links;
    struct link_adapter *adapter = find(links, said->name);

    if (adapter && keep_away(link, adapter, first))
        return;
    adapter = find(links, said->name); /* it may have been forgotten */
    bool known = adapter != NULL;
    if (known && !is_same(link, adapter, said))
        return;
    if (!known && (!said->name[0] || links_has_model(links, said->name) || !make_room(links))) {
        log_error("adapter_not_taken", "adapter=\"%s\" group=%u adapters=%u", said->name,
                  link->group, links->adapters_count);
        return;
    }
    if (!known)
        adapter =
            adapter_new(links, said->name, said->path, link->model->card->name, ADAPTER_READY);
    bool other_key = !adapter->key || strcmp(adapter->key, said->key) != 0;
    bool news = other_key || adapter->holders == 0;
    if (other_key) {
        mem_free(adapter->key);
        adapter->key = mem_strdup(said->key);
    }
    adapter->holders |= bit_of(link);
    if (adapter->state == ADAPTER_READY && news)
        tell_served(links, adapter);
    if (!known)
        spread(links, adapter);
}

/* It is not in the worker's list: unloaded, by us or by another router. */
static void unlearn(struct worker_link *link, struct link_adapter *adapter)
{
    struct worker_links *links = link->links;
    if (!(adapter->holders & bit_of(link)))
        return;
    adapter->holders &= ~bit_of(link);
    if (adapter->holders != 0 || adapter->state != ADAPTER_READY)
        return;
    tell_gone(links, adapter, true);
    adapter_free(links, adapter);
}

static bool is_in(const Refrain__Adapters *message, const char *name)
{
    for (size_t i = 0; i < message->n_adapters; i++) {
        if (strcmp(message->adapters[i]->name, name) == 0)
            return true;
    }
    return false;
}

void link_adapters_on_list(struct worker_link *link, const Refrain__Adapters *message)
{
    struct worker_links *links = link->links;
    bool first = !link->adapters_told;

    if (!link->model || link->refused)
        return;
    link->adapters_told = true;
    link->adapters_max = message->adapters_max;
    for (size_t i = 0; i < message->n_adapters; i++)
        learn(link, message->adapters[i], first);
    LIST_FOR_SAFE(item, after, &links->adapters)
    {
        struct link_adapter *adapter = LIST_ENTRY(item, struct link_adapter, link);
        if (!is_in(message, adapter->name))
            unlearn(link, adapter);
    }
    if (!first)
        return;
    LIST_FOR(item, &links->adapters)
    {
        const struct link_adapter *adapter = LIST_ENTRY(item, struct link_adapter, link);
        if (adapter->state == ADAPTER_READY)
            offer(link, adapter);
    }
}

static struct link_adapter *find_awaiting(const struct worker_link *link, uint64_t ticket)
{
    LIST_FOR(item, &link->links->adapters)
    {
        struct link_adapter *adapter = LIST_ENTRY(item, struct link_adapter, link);
        if (adapter->ticket == ticket && (adapter->awaited & bit_of(link)))
            return adapter;
    }
    return NULL;
}

void link_adapters_on_result(struct worker_link *link, const Refrain__AdapterResult *message)
{
    struct link_adapter *adapter = find_awaiting(link, message->ticket);

    if (!adapter) {
        if (message->code < 0)
            log_warn("adapter_not_spread", "group=%u code=%d error=\"%s\"", link->group,
                     message->code, message->text);
        return;
    }
    adapter->awaited &= ~bit_of(link);
    if (message->code < 0 && adapter->result == 0 && adapter->state == ADAPTER_LOADING) {
        adapter->result = message->code;
        adapter->why = mem_strdup(message->text);
    }
    settle(link->links, adapter);
}

void link_adapters_on_lost(struct worker_link *link)
{
    struct worker_links *links = link->links;

    link->adapters_told = false;
    LIST_FOR_SAFE(item, after, &links->adapters)
    {
        struct link_adapter *adapter = LIST_ENTRY(item, struct link_adapter, link);
        bool held = (adapter->holders & bit_of(link)) != 0;
        bool owed = (adapter->awaited & bit_of(link)) != 0;
        adapter->holders &= ~bit_of(link);
        adapter->awaited &= ~bit_of(link);
        if (held && adapter->holders == 0 && adapter->state == ADAPTER_READY)
            tell_gone(links, adapter, false);
        if (owed && !links->closing)
            settle(links, adapter);
    }
}

/* --- what operators ask ---------------------------------------------------------------------- */

int links_load_adapter(struct worker_links *links, const struct links_adapter *wanted,
                       links_adapter_fn on_done, void *user, struct errmsg *err)
{
    struct link_adapter *adapter = find(links, wanted->name);
    if (adapter && adapter->state == ADAPTER_AWAY) {
        adapter_free(links, adapter);
        adapter = NULL;
    }
    if (adapter)
        return errmsg_set(err, adapter->state == ADAPTER_READY ? -EEXIST : -EBUSY,
                          adapter->state == ADAPTER_READY     ? "the adapter is loaded already"
                          : adapter->state == ADAPTER_LOADING ? "the adapter is being loaded"
                                                              : "the adapter is being unloaded");
    if (links_has_model(links, wanted->name))
        return errmsg_set(err, -EEXIST, "a model of this name is served here");
    if (!make_room(links))
        return errmsg_set(err, -ENOSPC, "%u adapters are known here, the most", LINK_ADAPTERS_MAX);
    adapter = adapter_new(links, wanted->name, wanted->path, wanted->base, ADAPTER_LOADING);
    adapter->ticket = ++links->adapter_ticket;
    LIST_FOR(item, &links->all)
    {
        struct worker_link *link = LIST_ENTRY(item, struct worker_link, link);
        if (!serves(link, adapter->base))
            continue;
        adapter->awaited |= bit_of(link);
        ask_load(link, adapter, adapter->ticket);
    }
    if (adapter->awaited == 0) {
        adapter_free(links, adapter);
        return errmsg_set(err, -EAGAIN, "no worker of the model '%.100s' is ready", wanted->base);
    }
    adapter->on_done = on_done;
    adapter->user = user;
    return 0;
}

int links_unload_adapter(struct worker_links *links, const char *name, links_adapter_fn on_done,
                         void *user, struct errmsg *err)
{
    struct link_adapter *adapter = find(links, name);
    if (!adapter || adapter->state == ADAPTER_LEAVING || adapter->state == ADAPTER_AWAY)
        return errmsg_set(err, -ENOENT, "no adapter '%.200s' is loaded here", name);
    if (adapter->state == ADAPTER_LOADING)
        return errmsg_set(err, -EBUSY, "the adapter is being loaded");
    tell_gone(links, adapter, true);
    adapter->unloaded = true;
    ask_to_leave(links, adapter, "asked for");
    adapter->on_done = on_done;
    adapter->user = user;
    if (adapter->awaited == 0)
        settle(links, adapter);
    return 0;
}

void links_leave_adapter(struct worker_links *links, const void *user)
{
    LIST_FOR(item, &links->adapters)
    {
        struct link_adapter *adapter = LIST_ENTRY(item, struct link_adapter, link);
        if (adapter->on_done && adapter->user == user)
            adapter->on_done = NULL;
    }
}
