/* list.h - intrusive doubly linked list with a sentinel. Thread: one. */
#ifndef REFRAIN_PROTO_BASE_LIST_H
#define REFRAIN_PROTO_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list {
    struct list *next;
    struct list *prev;
};

static inline void list_init(struct list *list)
{
    list->next = list;
    list->prev = list;
}

static inline bool list_empty(const struct list *list)
{
    return list->next == list;
}

static inline void list_insert_before(struct list *at, struct list *item)
{
    item->next = at;
    item->prev = at->prev;
    at->prev->next = item;
    at->prev = item;
}

static inline void list_push_back(struct list *list, struct list *item)
{
    list_insert_before(list, item);
}

static inline void list_push_front(struct list *list, struct list *item)
{
    list_insert_before(list->next, item);
}

static inline void list_remove(struct list *item) /* leaves the item as an empty list */
{
    item->prev->next = item->next;
    item->next->prev = item->prev;
    list_init(item);
}

static inline struct list *list_pop_front(struct list *list) /* NULL: empty */
{
    struct list *item = list->next;
    if (item == list)
        return NULL;
    list_remove(item);
    return item;
}

#define LIST_ENTRY(item, type, member) ((type *)(void *)((char *)(item)-offsetof(type, member)))
/* The parameter is not called `list`: it would replace the word in `struct list` too. */
#define LIST_FOR(item, head) \
    for (struct list * (item) = (head)->next; (item) != (head); (item) = (item)->next)
/* Allows removing `item` in the body. */
#define LIST_FOR_SAFE(item, after, head)                                                 \
    for (struct list * (item) = (head)->next, *(after) = (item)->next; (item) != (head); \
         (item) = (after), (after) = (item)->next)

#endif
