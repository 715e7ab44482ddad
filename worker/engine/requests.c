/* requests.c - a pool of structs, a list of those in use, a map from (router, id). */
#include "worker/engine/requests.h"

#include <stdio.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/map.h"
#include "proto/base/mem.h"

struct requests {
    struct request *all;
    struct list spare, used;
    struct map *by_key;
};

struct request_key {
    uint32_t router;
    char id[REQUEST_ID_MAX + 1];
};

/* Bytes of the key that count. */
static size_t make_key(struct request_key *key, uint32_t router, const char *id)
{
    size_t bytes = strlen(id);
    ASSERT(bytes <= REQUEST_ID_MAX);
    key->router = router;
    memcpy(key->id, id, bytes);
    return offsetof(struct request_key, id) + bytes;
}

struct requests *requests_new(uint32_t requests_max)
{
    struct requests *requests = mem_zalloc(sizeof(*requests));
    requests->all = mem_calloc(requests_max, sizeof(*requests->all));
    requests->by_key = map_new(requests_max);
    list_init(&requests->spare);
    list_init(&requests->used);
    for (uint32_t i = 0; i < requests_max; i++)
        list_push_back(&requests->spare, &requests->all[i].link);
    return requests;
}

void requests_free(struct requests *requests)
{
    if (requests == NULL)
        return;
    map_free(requests->by_key);
    mem_free(requests->all);
    mem_free(requests);
}

struct request *requests_add(struct requests *requests, uint32_t router, const char *id)
{
    struct request_key key;
    size_t bytes = make_key(&key, router, id);
    struct list *link = list_pop_front(&requests->spare);
    void *old = NULL;
    if (link == NULL)
        return NULL;
    struct request *request = LIST_ENTRY(link, struct request, link);
    *request = (struct request){.router = router};
    (void)snprintf(request->id, sizeof(request->id), "%s", id);
    list_init(&request->link);
    list_push_back(&requests->used, &request->link);
    int r = map_set(requests->by_key, &key, bytes, request, &old);
    ASSERT(r == 0 && old == NULL);
    return request;
}

struct request *requests_find(struct requests *requests, uint32_t router, const char *id)
{
    struct request_key key;
    size_t bytes = make_key(&key, router, id);
    return map_get(requests->by_key, &key, bytes);
}

void requests_remove(struct requests *requests, struct request *request)
{
    struct request_key key;
    size_t bytes = make_key(&key, request->router, request->id);
    void *removed = map_remove(requests->by_key, &key, bytes);
    ASSERT(removed == request);
    list_remove(&request->link);
    list_push_back(&requests->spare, &request->link);
}

const struct list *requests_all(const struct requests *requests)
{
    return &requests->used;
}
