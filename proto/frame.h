/* frame.h - message <-> ZeroMQ parts: version, kind, size, body.
 *
 * One message = [identity (ROUTER sockets only)] [header: 16 bytes] [body: protobuf].
 *   header: u32 magic "RFR1" | u16 version 1 | u16 kind | u32 body bytes | u32 0, little-endian.
 * A message of unknown version or kind, over its kind's limit, or whose body does not parse is
 * refused (-EPROTO, -EMSGSIZE, -ENOSYS) and answered with Error; never a crash.
 *
 * Thread: a socket belongs to one thread. Sends never block (ZMQ_DONTWAIT): -EAGAIN means the
 * peer's high-water mark is reached. ZMQ_FD is edge-triggered: after every send and receive drain
 * until frame_recv says -EAGAIN. */
#ifndef REFRAIN_PROTO_FRAME_H
#define REFRAIN_PROTO_FRAME_H

#include <stddef.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

#include "proto/base/errmsg.h"

enum frame_kind {
    FRAME_ANNOUNCE = 1,
    FRAME_ATTACH,
    FRAME_HELLO,
    FRAME_SUBMIT,
    FRAME_CANCEL,
    FRAME_STEP_OUTPUT,
    FRAME_HEARTBEAT,
    FRAME_KV_EVENTS,
    FRAME_SNAPSHOT_REQUEST,
    FRAME_SNAPSHOT,
    FRAME_DRAIN,
    FRAME_RESET_PREFIX_CACHE,
    FRAME_ERROR,
    FRAME_LOAD_ADAPTER,
    FRAME_UNLOAD_ADAPTER,
    FRAME_ADAPTER_RESULT,
    FRAME_ADAPTERS,
    FRAME_KINDS
};

#define FRAME_IDENTITY_MAX 255

/* Who sent it (ROUTER sockets), to be given back to frame_send. bytes 0: a DEALER socket. */
struct frame_peer {
    uint8_t bytes;
    unsigned char identity[FRAME_IDENTITY_MAX];
};

/* A received message. Decoded into memory that frame_done() frees (handlers copy what they keep).
 */
struct frame {
    enum frame_kind kind;
    struct frame_peer peer;
    ProtobufCMessage *message; /* cast to Refrain__Submit * etc. by kind */
};

const char *frame_kind_name(enum frame_kind kind);

/* socket: a ZeroMQ socket. peer: NULL on DEALER sockets. 0; -EAGAIN; -EHOSTUNREACH: the peer is
 * gone (ROUTER_MANDATORY); -EMSGSIZE: over the kind's limit. */
int frame_send(void *socket, const struct frame_peer *peer, enum frame_kind kind,
               const ProtobufCMessage *message);
/* with_identity: the socket is a ROUTER. 0; -EAGAIN: nothing there; -EPROTO/-EMSGSIZE/-ENOSYS: a
 * bad message was consumed, ret->kind (0 if unknown) and ret->peer are set so that it can be
 * answered. */
int frame_recv(void *socket, int with_identity, struct frame *ret, struct errmsg *err);
void frame_done(struct frame *frame);
/* The two halves without a socket, for tests and fuzzing. ret_header: 16 bytes. */
#define FRAME_HEADER_BYTES 16
int frame_decode(const void *header, size_t header_bytes, const void *body, size_t body_bytes,
                 struct frame *ret, struct errmsg *err);
void frame_encode_header(enum frame_kind kind, size_t body_bytes, unsigned char *ret_header);

/* packed little-endian u32 -> array. -EINVAL: no multiple of 4 bytes; -EMSGSIZE: over ids_max. */
int frame_unpack_ids(const ProtobufCBinaryData *data, uint32_t *ret_ids, size_t ids_max,
                     size_t *ret_count);

#endif
