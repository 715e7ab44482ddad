/* fuzz_frame.c - hostile messages: the first 16 bytes are the header, the rest is the body. With
 * the first byte odd the header is made right for the kind it names, so that the fuzzer gets to the
 * bodies. What is accepted must be readable in every field. */
#include <stdint.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "proto/frame.h"

/* Packing reads every field and every text, so that ASan sees a wrong one. (That the result decodes
 * again is not asserted: protobuf-c does not write all unknown fields back as it read them.) */
static void check_readable(const struct frame *frame)
{
    size_t bytes = protobuf_c_message_get_packed_size(frame->message);
    uint8_t *body = mem_alloc(bytes + 1);
    ASSERT(frame->kind > 0 && frame->kind < FRAME_KINDS);
    ASSERT(protobuf_c_message_pack(frame->message, body) == bytes);
    mem_free(body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    unsigned char header[FRAME_HEADER_BYTES];
    struct frame frame;
    struct errmsg err;
    if (bytes < 1 + FRAME_HEADER_BYTES)
        return 0;
    const uint8_t *body = data + 1 + FRAME_HEADER_BYTES;
    size_t body_bytes = bytes - 1 - FRAME_HEADER_BYTES;
    memcpy(header, data + 1, sizeof(header));
    if ((data[0] & 1) != 0) {
        uint32_t kind = 1 + header[6] % (FRAME_KINDS - 1);
        frame_encode_header((enum frame_kind)kind, 0, header);
        memcpy(header + 8, &(uint32_t){(uint32_t)body_bytes}, 4);
    }
    if (frame_decode(header, sizeof(header), body, body_bytes, &frame, &err) == 0) {
        check_readable(&frame);
        frame_done(&frame);
    } else {
        ASSERT(frame.message == NULL);
    }
    return 0;
}
