/* queue.h - bounded queue of pointers between threads, with an eventfd to wake a poll loop.
 *
 * Any number of producers, one consumer. A full queue refuses (-EAGAIN): the producer decides what
 * its own peer hears. The eventfd becomes readable when the queue turns from empty to not empty;
 * queue_pop() clears it when it finds the queue empty. */
#ifndef REFRAIN_PROTO_BASE_QUEUE_H
#define REFRAIN_PROTO_BASE_QUEUE_H

#include <stddef.h>
#include <stdint.h>

#include "proto/base/mem.h"

struct queue;

struct queue *queue_new_as(enum mem_purpose purpose, size_t items_max);
static inline struct queue *queue_new(size_t items_max)
{
    return queue_new_as(MEM_PURPOSE, items_max);
}
void queue_free(struct queue *queue);            /* items left are the caller's: pop them first */
int queue_push(struct queue *queue, void *item); /* 0, or -EAGAIN: full */
void *queue_pop(struct queue *queue);            /* NULL: empty; never blocks */
size_t queue_count(struct queue *queue);
int queue_fd(const struct queue *queue); /* for poll(POLLIN); owned by the queue */
/* Block until an item is there or `timeout_ms` passed (-1: no limit). 0, or -ETIMEDOUT. */
int queue_wait(struct queue *queue, int timeout_ms);

#endif
