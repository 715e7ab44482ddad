/* frame.c - one table of message kinds; everything about a kind that framing needs is its line.
 *
 *   frame_send:  pack into a ZeroMQ message -> [identity] [header] [body], all or nothing
 *   frame_recv:  take all parts of one message off the socket, whatever they hold -> frame_decode
 *   frame_decode: header fields -> kind's limit -> protobuf parse under a memory budget
 *
 * Why a header next to protobuf: kind and version must be readable even when the body is not, so
 * that the answer to a bad message can name what was bad. Why a memory budget: two bytes of body
 * can claim a sub-message of 150 bytes; the budget is a small multiple of the body, so that a peer
 * cannot turn one message into many times its size of our memory. Invariants: after frame_recv the
 * socket is at a message border; on any error ret->message is NULL. Cost: one allocation per
 * protobuf field that needs one; no copy of the body. */
#include "proto/frame.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <zmq.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "proto/model_card.h"
#include "proto/wire.pb-c.h"

#define FRAME_MAGIC 0x31524652u /* "RFR1" */
#define FRAME_VERSION 1u
#define KIB 1024u
#define MIB (1024u * 1024u)

/* Memory that parsing one body may take: MEMORY_BASE + MEMORY_FACTOR * bytes. */
#define MEMORY_BASE (64u * KIB)
#define MEMORY_FACTOR 32u

struct kind_info {
    const char *name;
    const ProtobufCMessageDescriptor *descriptor;
    uint32_t bytes_max;
};

static const struct kind_info kinds[FRAME_KINDS] = {
    [FRAME_ANNOUNCE] = {"Announce", &refrain__announce__descriptor, 4 * KIB},
    [FRAME_ATTACH] = {"Attach", &refrain__attach__descriptor, 1 * KIB},
    [FRAME_HELLO] = {"Hello", &refrain__hello__descriptor, MODEL_CARD_BYTES_MAX + 64 * KIB},
    [FRAME_SUBMIT] = {"Submit", &refrain__submit__descriptor, 8 * MIB},
    [FRAME_CANCEL] = {"Cancel", &refrain__cancel__descriptor, 1 * KIB},
    [FRAME_STEP_OUTPUT] = {"StepOutput", &refrain__step_output__descriptor, 16 * MIB},
    [FRAME_HEARTBEAT] = {"Heartbeat", &refrain__heartbeat__descriptor, 1 * MIB},
    [FRAME_KV_EVENTS] = {"KvEvents", &refrain__kv_events__descriptor, 16 * MIB},
    [FRAME_SNAPSHOT_REQUEST] = {"SnapshotRequest", &refrain__snapshot_request__descriptor, 64},
    [FRAME_SNAPSHOT] = {"Snapshot", &refrain__snapshot__descriptor, 2 * MIB},
    [FRAME_DRAIN] = {"Drain", &refrain__drain__descriptor, 64},
    [FRAME_RESET_PREFIX_CACHE] = {"ResetPrefixCache", &refrain__reset_prefix_cache__descriptor, 64},
    [FRAME_ERROR] = {"Error", &refrain__error__descriptor, 8 * KIB},
    [FRAME_LOAD_ADAPTER] = {"LoadAdapter", &refrain__load_adapter__descriptor, 16 * KIB},
    [FRAME_UNLOAD_ADAPTER] = {"UnloadAdapter", &refrain__unload_adapter__descriptor, 8 * KIB},
    [FRAME_ADAPTER_RESULT] = {"AdapterResult", &refrain__adapter_result__descriptor, 8 * KIB},
    [FRAME_ADAPTERS] = {"Adapters", &refrain__adapters__descriptor, 1 * MIB},
};

static bool kind_known(uint32_t kind)
{
    return kind > 0 && kind < FRAME_KINDS;
}

const char *frame_kind_name(enum frame_kind kind)
{
    return kind_known(kind) ? kinds[kind].name : "unknown";
}

static void put_u32(unsigned char *to, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        to[i] = (unsigned char)(value >> (8 * i));
}

static uint32_t get_u32(const unsigned char *from)
{
    return (uint32_t)from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 |
           (uint32_t)from[3] << 24;
}

void frame_encode_header(enum frame_kind kind, size_t body_bytes, unsigned char *ret_header)
{
    ASSERT(kind_known(kind));
    ASSERT(body_bytes <= kinds[kind].bytes_max);
    put_u32(ret_header, FRAME_MAGIC);
    put_u32(ret_header + 4, FRAME_VERSION | (uint32_t)kind << 16);
    put_u32(ret_header + 8, (uint32_t)body_bytes);
    put_u32(ret_header + 12, 0);
}

/* protobuf-c allocates through these; freed memory does not come back to the budget. */
static void *budget_alloc(void *user, size_t bytes)
{
    size_t *left = user;
    if (bytes > *left)
        return NULL;
    *left -= bytes;
    return mem_alloc(bytes > 0 ? bytes : 1);
}

static void budget_free(void *user, void *pointer)
{
    (void)user;
    mem_free(pointer);
}

static int decode_body(enum frame_kind kind, const void *body, size_t bytes,
                       ProtobufCMessage **ret_message, struct errmsg *err)
{
    size_t left = MEMORY_BASE + (size_t)MEMORY_FACTOR * bytes;
    ProtobufCAllocator allocator = {budget_alloc, budget_free, &left};
    ProtobufCMessage *message =
        protobuf_c_message_unpack(kinds[kind].descriptor, &allocator, bytes, body);
    if (message == NULL)
        return errmsg_set(err, -EPROTO, "the body of %s (%zu bytes) does not parse",
                          kinds[kind].name, bytes);
    *ret_message = message;
    return 0;
}

int frame_decode(const void *header, size_t header_bytes, const void *body, size_t body_bytes,
                 struct frame *ret, struct errmsg *err)
{
    const unsigned char *h = header;
    ret->kind = 0;
    ret->message = NULL;
    if (header_bytes != FRAME_HEADER_BYTES)
        return errmsg_set(err, -EPROTO, "a header has %u bytes, not %zu", FRAME_HEADER_BYTES,
                          header_bytes);
    if (get_u32(h) != FRAME_MAGIC)
        return errmsg_set(err, -EPROTO, "the header begins with 0x%08x, not with 0x%08x",
                          get_u32(h), FRAME_MAGIC);
    uint32_t version = get_u32(h + 4) & 0xffff, kind = get_u32(h + 4) >> 16;
    if (version != FRAME_VERSION)
        return errmsg_set(err, -EPROTO, "frame version %u; this program speaks version %u", version,
                          FRAME_VERSION);
    if (!kind_known(kind))
        return errmsg_set(err, -ENOSYS, "message kind %u is unknown", kind);
    ret->kind = kind;
    if (body_bytes > kinds[kind].bytes_max)
        return errmsg_set(err, -EMSGSIZE, "%s of %zu bytes; the limit is %u", kinds[kind].name,
                          body_bytes, kinds[kind].bytes_max);
    if (get_u32(h + 8) != body_bytes)
        return errmsg_set(err, -EPROTO, "%s: the header says %u body bytes, there are %zu",
                          kinds[kind].name, get_u32(h + 8), body_bytes);
    if (get_u32(h + 12) != 0)
        return errmsg_set(err, -EPROTO, "%s: the header's reserved field is not 0",
                          kinds[kind].name);
    return decode_body(kind, body, body_bytes, &ret->message, err);
}

void frame_done(struct frame *frame)
{
    ProtobufCAllocator allocator = {budget_alloc, budget_free, NULL};
    if (frame->message != NULL)
        protobuf_c_message_free_unpacked(frame->message, &allocator);
    frame->message = NULL;
}

/* One part of a message that is already on the socket. */
static int recv_part(void *socket, zmq_msg_t *part)
{
    int r = 0;
    do {
        r = zmq_msg_recv(part, socket, ZMQ_DONTWAIT);
    } while (r < 0 && errno == EINTR);
    return r < 0 ? -errno : 0;
}

/* The parts after the identity, into header and body; extra parts are taken off and dropped.
 * Returns how many there were, or a negative errno. */
static int recv_rest(void *socket, zmq_msg_t *header, zmq_msg_t *body, bool first_taken)
{
    int count = first_taken ? 1 : 0;
    bool more = !first_taken || zmq_msg_more(header);
    while (more) {
        zmq_msg_t extra;
        zmq_msg_t *part = count == 0 ? header : count == 1 ? body : &extra;
        if (part == &extra)
            (void)zmq_msg_init(&extra);
        int r = recv_part(socket, part);
        if (r < 0)
            return r;
        more = zmq_msg_more(part) != 0;
        if (part == &extra)
            (void)zmq_msg_close(&extra);
        count++;
    }
    return count;
}

int frame_recv(void *socket, int with_identity, struct frame *ret, struct errmsg *err)
{
    zmq_msg_t identity, header, body;
    int parts = 0;
    int r = 0;

    memset(ret, 0, sizeof(*ret));
    (void)zmq_msg_init(&identity);
    (void)zmq_msg_init(&header);
    (void)zmq_msg_init(&body);
    r = recv_part(socket, with_identity ? &identity : &header);
    if (r < 0)
        goto out;
    if (with_identity) {
        ASSERT(zmq_msg_size(&identity) <= FRAME_IDENTITY_MAX);
        ret->peer.bytes = (uint8_t)zmq_msg_size(&identity);
        memcpy(ret->peer.identity, zmq_msg_data(&identity), ret->peer.bytes);
    }
    if (!with_identity || zmq_msg_more(&identity))
        parts = recv_rest(socket, &header, &body, !with_identity);
    if (parts < 0)
        r = parts;
    else if (parts != 2)
        r = errmsg_set(err, -EPROTO, "a message has a header and a body, not %d parts", parts);
    else
        r = frame_decode(zmq_msg_data(&header), zmq_msg_size(&header), zmq_msg_data(&body),
                         zmq_msg_size(&body), ret, err);
out:
    (void)zmq_msg_close(&identity);
    (void)zmq_msg_close(&header);
    (void)zmq_msg_close(&body);
    return r;
}

static int send_part(void *socket, const void *data, size_t bytes)
{
    int r = 0;
    do {
        r = zmq_send(socket, data, bytes, ZMQ_DONTWAIT | ZMQ_SNDMORE);
    } while (r < 0 && errno == EINTR);
    return r < 0 ? -errno : 0;
}

static int send_body(void *socket, const ProtobufCMessage *message, size_t bytes)
{
    zmq_msg_t body;
    int r = 0;
    if (zmq_msg_init_size(&body, bytes) < 0)
        return -errno;
    (void)protobuf_c_message_pack(message, zmq_msg_data(&body));
    do {
        r = zmq_msg_send(&body, socket, ZMQ_DONTWAIT);
    } while (r < 0 && errno == EINTR);
    if (r >= 0)
        return 0;
    r = -errno;
    (void)zmq_msg_close(&body);
    return r;
}

int frame_send(void *socket, const struct frame_peer *peer, enum frame_kind kind,
               const ProtobufCMessage *message)
{
    unsigned char header[FRAME_HEADER_BYTES];
    int r = 0;
    ASSERT(kind_known(kind) && message->descriptor == kinds[kind].descriptor);
    size_t bytes = protobuf_c_message_get_packed_size(message);
    if (bytes > kinds[kind].bytes_max)
        return -EMSGSIZE;
    frame_encode_header(kind, bytes, header);
    if (peer != NULL)
        r = send_part(socket, peer->identity, peer->bytes);
    if (r == 0)
        r = send_part(socket, header, sizeof(header));
    if (r == 0)
        r = send_body(socket, message, bytes);
    return r;
}

int frame_unpack_ids(const ProtobufCBinaryData *data, uint32_t *ret_ids, size_t ids_max,
                     size_t *ret_count)
{
    size_t count = data->len / 4;
    if (data->len % 4 != 0)
        return -EINVAL;
    if (count > ids_max)
        return -EMSGSIZE;
    for (size_t i = 0; i < count; i++)
        ret_ids[i] = get_u32(data->data + 4 * i);
    *ret_count = count;
    return 0;
}
