/* router_send.h - outputs of the engine -> messages for one router.
 *
 * One sender per worker; its scratch arrays are allocated once. Every function answers frame_send's
 * code: -EAGAIN (the router does not read) and -EHOSTUNREACH (it is gone) mean that the link to it
 * has to end, since it has missed something. Thread: io. */
#ifndef REFRAIN_WORKER_ROUTER_SEND_H
#define REFRAIN_WORKER_ROUTER_SEND_H

#include "proto/frame.h"
#include "worker/engine/engine.h"
#include "worker/info.h"
#include "worker/lora/adapters.h"
#include "worker/metrics.h"

struct router_sender;

/* socket: the ROUTER socket, the caller's. */
struct router_sender *router_sender_new(void *socket, const struct worker_info *info);
void router_sender_free(struct router_sender *sender);

int router_send_hello(struct router_sender *sender, const struct frame_peer *peer,
                      double prefill_seconds_per_token);
/* The items of one router, one message; nothing when it has none. */
int router_send_step(struct router_sender *sender, const struct frame_peer *peer, uint32_t router,
                     const struct output *output);
int router_send_kv(struct router_sender *sender, const struct frame_peer *peer,
                   const struct output *output);
int router_send_snapshot(struct router_sender *sender, const struct frame_peer *peer,
                         const struct output *output);
struct kv_state {
    uint64_t sequence, blocks, digest;
};
/* metrics: NULL, or all ranks' to be sent along. */
int router_send_heartbeat(struct router_sender *sender, const struct frame_peer *peer,
                          const struct engine_status *status, const struct kv_state *kv,
                          struct worker_metrics *metrics);
/* All that are ready; adapters NULL: none are served. */
int router_send_adapters(struct router_sender *sender, const struct frame_peer *peer,
                         const struct adapters *adapters);
int router_send_adapter_result(struct router_sender *sender, const struct frame_peer *peer,
                               uint64_t ticket, int code, const char *text);
/* kind 0: unknown. request_id may be NULL. */
int router_send_error(struct router_sender *sender, const struct frame_peer *peer,
                      enum frame_kind kind, int code, const char *text, const char *request_id);
/* One StepItem: the request is over before it began. */
int router_send_refusal(struct router_sender *sender, const struct frame_peer *peer,
                        const char *request_id, int code, const char *text);

#endif
