/* outbox.h - the engine's outputs on their way to the io thread: a fixed number of buffers.
 *
 *   spare --outbox_take (engine)--> being filled --outbox_push--> ready --outbox_pop (io)-->
 *   being sent --outbox_recycle (io)--> spare
 *
 * Back-pressure: with no spare buffer outbox_take() waits for the io thread. The io thread never
 * waits for the engine, so that ends. */
#ifndef REFRAIN_WORKER_ENGINE_OUTBOX_H
#define REFRAIN_WORKER_ENGINE_OUTBOX_H

#include "worker/engine/messages.h"

#define OUTBOX_OUTPUTS 32u

struct outbox;

struct outbox *outbox_new(uint32_t items_max, uint32_t logprobs_max);
void outbox_free(struct outbox *outbox);
/* Engine thread. */
struct output *outbox_take(struct outbox *outbox, enum output_kind kind);
void outbox_push(struct outbox *outbox, struct output *output);
/* io thread. pop: NULL when there is none. */
struct output *outbox_pop(struct outbox *outbox);
void outbox_recycle(struct outbox *outbox, struct output *output);
int outbox_fd(const struct outbox *outbox); /* readable when there is one */

#endif
