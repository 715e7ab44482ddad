/* queue.c - bounded ring of pointers under one mutex, with an eventfd for poll loops.
 *
 * Why a mutex: pushes are a few thousand a second and hold it for some ten instructions; a
 * lock-free ring would save nothing that can be measured here and would have to be proven.
 * Invariant (under the lock): count > 0 implies that the eventfd is readable. The reverse may fail
 * for a moment: the fd stays readable after the last pop until a pop or a wait finds the queue
 * empty, which costs the consumer one idle turn and never a lost wake-up. */
#include "proto/base/queue.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "proto/base/assert.h"
#include "proto/base/clock.h"
#include "proto/base/mem.h"

struct queue {
    pthread_mutex_t lock;
    void **items;
    size_t items_max;
    size_t head; /* oldest item */
    size_t count;
    int fd;
};

struct queue *queue_new_as(enum mem_purpose purpose, size_t items_max)
{
    struct queue *queue = mem_calloc_as(purpose, 1, sizeof(*queue));

    ASSERT(items_max > 0);
    queue->items = mem_calloc_as(purpose, items_max, sizeof(*queue->items));
    queue->items_max = items_max;
    queue->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ASSERT(queue->fd >= 0); /* at start only; out of file descriptors is out of memory */
    (void)pthread_mutex_init(&queue->lock, NULL);
    return queue;
}

void queue_free(struct queue *queue)
{
    if (queue == NULL)
        return;
    (void)close(queue->fd);
    (void)pthread_mutex_destroy(&queue->lock);
    mem_free(queue->items);
    mem_free(queue);
}

int queue_push(struct queue *queue, void *item)
{
    int r = 0;

    ASSERT(item != NULL); /* NULL is pop's word for empty */
    (void)pthread_mutex_lock(&queue->lock);
    if (queue->count == queue->items_max) {
        r = -EAGAIN;
    } else {
        size_t tail = queue->head + queue->count;

        queue->items[tail < queue->items_max ? tail : tail - queue->items_max] = item;
        if (queue->count++ == 0)
            (void)eventfd_write(queue->fd, 1);
    }
    (void)pthread_mutex_unlock(&queue->lock);
    return r;
}

/* Under the lock, with the queue empty. */
static void clear_event(struct queue *queue)
{
    eventfd_t value;

    (void)eventfd_read(queue->fd, &value); /* EAGAIN: clear already */
}

void *queue_pop(struct queue *queue)
{
    void *item = NULL;

    (void)pthread_mutex_lock(&queue->lock);
    if (queue->count == 0) {
        clear_event(queue);
    } else {
        item = queue->items[queue->head];
        queue->head = queue->head + 1 < queue->items_max ? queue->head + 1 : 0;
        queue->count--;
    }
    (void)pthread_mutex_unlock(&queue->lock);
    return item;
}

size_t queue_count(struct queue *queue)
{
    size_t count;

    (void)pthread_mutex_lock(&queue->lock);
    count = queue->count;
    (void)pthread_mutex_unlock(&queue->lock);
    return count;
}

int queue_fd(const struct queue *queue)
{
    return queue->fd;
}

int queue_wait(struct queue *queue, int timeout_ms)
{
    uint64_t deadline_ms = timeout_ms >= 0 ? clock_ms() + (uint64_t)timeout_ms : UINT64_MAX;

    for (;;) {
        struct pollfd poll_fd = {.fd = queue->fd, .events = POLLIN};
        uint64_t now_ms = clock_ms();
        size_t count;

        (void)pthread_mutex_lock(&queue->lock);
        count = queue->count;
        if (count == 0)
            clear_event(queue);
        (void)pthread_mutex_unlock(&queue->lock);
        if (count > 0)
            return 0;
        if (now_ms >= deadline_ms)
            return -ETIMEDOUT;
        (void)poll(&poll_fd, 1, timeout_ms < 0 ? -1 : (int)(deadline_ms - now_ms));
    }
}
