/* test_frame.c - framing over real ZeroMQ sockets (inproc) and over bytes. */
#include <cmocka.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <zmq.h>

#include "proto/base/mem.h"
#include "proto/frame.h"
#include "proto/wire.pb-c.h"

struct link {
    void *context, *router, *dealer;
};

static int setup(void **state)
{
    struct link *link = mem_zalloc(sizeof(*link));
    int one = 1;
    link->context = zmq_ctx_new();
    link->router = zmq_socket(link->context, ZMQ_ROUTER);
    link->dealer = zmq_socket(link->context, ZMQ_DEALER);
    assert_int_equal(zmq_setsockopt(link->router, ZMQ_ROUTER_MANDATORY, &one, sizeof(one)), 0);
    assert_int_equal(zmq_setsockopt(link->dealer, ZMQ_ROUTING_ID, "w0", 2), 0);
    assert_int_equal(zmq_bind(link->router, "inproc://frame"), 0);
    assert_int_equal(zmq_connect(link->dealer, "inproc://frame"), 0);
    *state = link;
    return 0;
}

static int teardown(void **state)
{
    struct link *link = *state;
    int linger = 0;
    (void)zmq_setsockopt(link->dealer, ZMQ_LINGER, &linger, sizeof(linger));
    (void)zmq_setsockopt(link->router, ZMQ_LINGER, &linger, sizeof(linger));
    (void)zmq_close(link->dealer);
    (void)zmq_close(link->router);
    (void)zmq_ctx_term(link->context);
    mem_free(link);
    return 0;
}

static int recv_within_5_s(void *socket, int with_identity, struct frame *ret, struct errmsg *err)
{
    zmq_pollitem_t item = {.socket = socket, .events = ZMQ_POLLIN};
    assert_int_equal(zmq_poll(&item, 1, 5000), 1);
    return frame_recv(socket, with_identity, ret, err);
}

static void send_raw(void *socket, const void *header, size_t header_bytes, const void *body,
                     size_t body_bytes)
{
    assert_int_equal(zmq_send(socket, header, header_bytes, ZMQ_SNDMORE), (int)header_bytes);
    assert_int_equal(zmq_send(socket, body, body_bytes, 0), (int)body_bytes);
}

static void test_header_is_sixteen_bytes_little_endian(void **state)
{
    static const unsigned char expected[16] = {
        'R', 'F', 'R', '1', 1, 0, FRAME_SUBMIT, 0, 0x04, 0x03, 0, 0, 0, 0, 0, 0};
    unsigned char header[FRAME_HEADER_BYTES];
    (void)state;
    frame_encode_header(FRAME_SUBMIT, 0x304, header);
    assert_memory_equal(header, expected, 16);
}

static void test_submit_goes_there_and_an_error_comes_back(void **state)
{
    struct link *link = *state;
    uint8_t ids[8] = {1, 0, 0, 0, 0x44, 0x33, 0x22, 0x11};
    Refrain__Submit submit = REFRAIN__SUBMIT__INIT;
    Refrain__Error answer = REFRAIN__ERROR__INIT;
    struct frame frame;
    struct errmsg err;
    uint32_t back[2];
    size_t count = 0;

    submit.request_id = (char *)"r1";
    submit.ids = (ProtobufCBinaryData){8, ids};
    assert_int_equal(frame_send(link->dealer, NULL, FRAME_SUBMIT, &submit.base), 0);
    assert_int_equal(recv_within_5_s(link->router, 1, &frame, &err), 0);
    assert_int_equal(frame.kind, FRAME_SUBMIT);
    assert_int_equal(frame.peer.bytes, 2);
    assert_memory_equal(frame.peer.identity, "w0", 2);
    const Refrain__Submit *got = (const Refrain__Submit *)frame.message;
    assert_string_equal(got->request_id, "r1");
    assert_int_equal(frame_unpack_ids(&got->ids, back, 2, &count), 0);
    assert_int_equal(count, 2);
    assert_int_equal(back[0], 1);
    assert_int_equal(back[1], 0x11223344);

    answer.kind = FRAME_SUBMIT;
    answer.code = -EINVAL;
    answer.text = (char *)"no";
    assert_int_equal(frame_send(link->router, &frame.peer, FRAME_ERROR, &answer.base), 0);
    frame_done(&frame);
    assert_int_equal(recv_within_5_s(link->dealer, 0, &frame, &err), 0);
    assert_int_equal(frame.kind, FRAME_ERROR);
    assert_int_equal(frame.peer.bytes, 0);
    assert_int_equal(((const Refrain__Error *)frame.message)->code, -EINVAL);
    frame_done(&frame);
    assert_int_equal(frame_recv(link->dealer, 0, &frame, &err), -EAGAIN);
}

static void test_empty_message_has_an_empty_body_part(void **state)
{
    struct link *link = *state;
    Refrain__SnapshotRequest request = REFRAIN__SNAPSHOT_REQUEST__INIT;
    struct frame frame;
    struct errmsg err;
    assert_int_equal(frame_send(link->dealer, NULL, FRAME_SNAPSHOT_REQUEST, &request.base), 0);
    assert_int_equal(recv_within_5_s(link->router, 1, &frame, &err), 0);
    assert_int_equal(frame.kind, FRAME_SNAPSHOT_REQUEST);
    frame_done(&frame);
    frame_done(&frame); /* harmless the second time */
}

static void test_bad_messages_are_consumed_whole_and_name_kind_and_peer(void **state)
{
    struct link *link = *state;
    unsigned char header[FRAME_HEADER_BYTES];
    struct frame frame;
    struct errmsg err;

    frame_encode_header(FRAME_CANCEL, 4, header);
    send_raw(link->dealer, header, 16, "\xff\xff\xff\xff", 4); /* no protobuf */
    assert_int_equal(recv_within_5_s(link->router, 1, &frame, &err), -EPROTO);
    assert_int_equal(frame.kind, FRAME_CANCEL);
    assert_memory_equal(frame.peer.identity, "w0", 2);
    assert_null(frame.message);

    header[6] = 200; /* kind */
    send_raw(link->dealer, header, 16, "", 0);
    assert_int_equal(recv_within_5_s(link->router, 1, &frame, &err), -ENOSYS);
    assert_int_equal(frame.kind, 0);
    assert_string_equal(err.text, "message kind 200 is unknown");

    assert_int_equal(zmq_send(link->dealer, "x", 1, 0), 1); /* one part */
    assert_int_equal(recv_within_5_s(link->router, 1, &frame, &err), -EPROTO);
    for (int i = 0; i < 5; i++) /* six parts */
        assert_int_equal(zmq_send(link->dealer, "y", 1, ZMQ_SNDMORE), 1);
    assert_int_equal(zmq_send(link->dealer, "z", 1, 0), 1);
    assert_int_equal(recv_within_5_s(link->router, 1, &frame, &err), -EPROTO);
    assert_string_equal(err.text, "a message has a header and a body, not 6 parts");

    Refrain__Drain drain = REFRAIN__DRAIN__INIT; /* the next message is whole again */
    drain.undo = 1;
    assert_int_equal(frame_send(link->dealer, NULL, FRAME_DRAIN, &drain.base), 0);
    assert_int_equal(recv_within_5_s(link->router, 1, &frame, &err), 0);
    assert_true(((const Refrain__Drain *)frame.message)->undo);
    frame_done(&frame);
}

static void test_header_faults_have_their_codes(void **state)
{
    unsigned char header[FRAME_HEADER_BYTES];
    struct frame frame;
    struct errmsg err;
    char *big = mem_zalloc(2048);
    (void)state;

    frame_encode_header(FRAME_CANCEL, 0, header);
    assert_int_equal(frame_decode(header, 15, "", 0, &frame, &err), -EPROTO);
    assert_int_equal(frame_decode(header, 16, "abc", 3, &frame, &err), -EPROTO); /* not 0 bytes */
    assert_string_equal(err.text, "Cancel: the header says 0 body bytes, there are 3");
    assert_int_equal(frame_decode(header, 16, big, 1025, &frame, &err), -EMSGSIZE);
    assert_int_equal(frame.kind, FRAME_CANCEL);
    header[12] = 1;
    assert_int_equal(frame_decode(header, 16, "", 0, &frame, &err), -EPROTO);
    header[12] = 0;
    header[4] = 2;
    assert_int_equal(frame_decode(header, 16, "", 0, &frame, &err), -EPROTO);
    assert_string_equal(err.text, "frame version 2; this program speaks version 1");
    header[4] = 1;
    header[0] = 'X';
    assert_int_equal(frame_decode(header, 16, "", 0, &frame, &err), -EPROTO);
    header[0] = 'R';
    assert_int_equal(frame_decode(header, 16, "", 0, &frame, &err), 0);
    frame_done(&frame);
    mem_free(big);
}

/* 2 bytes of body per item claim 150 bytes of memory each. */
static void test_many_empty_items_are_refused_by_the_memory_budget(void **state)
{
    unsigned char header[FRAME_HEADER_BYTES];
    struct frame frame;
    struct errmsg err;
    size_t bytes = 1u << 20;
    unsigned char *body = mem_zalloc(bytes);
    (void)state;
    for (size_t i = 0; i < bytes; i += 2)
        body[i] = 0x12; /* field 2, length 0 */
    frame_encode_header(FRAME_STEP_OUTPUT, bytes, header);
    assert_int_equal(frame_decode(header, 16, body, bytes, &frame, &err), -EPROTO);
    assert_null(frame.message);
    mem_free(body);
}

/* The densest honest message: an item with 21 logprobs per token, small ids. */
static void test_dense_logprobs_fit_the_memory_budget(void **state)
{
    Refrain__StepOutput output = REFRAIN__STEP_OUTPUT__INIT;
    Refrain__StepItem item = REFRAIN__STEP_ITEM__INIT;
    Refrain__Logprobs logprobs = REFRAIN__LOGPROBS__INIT;
    Refrain__TokenLogprob top = REFRAIN__TOKEN_LOGPROB__INIT;
    Refrain__TokenLogprob *tops[20];
    Refrain__Logprobs *one = &logprobs;
    Refrain__StepItem **items = mem_calloc(4096, sizeof(items[0]));
    unsigned char header[FRAME_HEADER_BYTES];
    struct frame frame;
    struct errmsg err;
    (void)state;
    for (int i = 0; i < 20; i++)
        tops[i] = &top;
    logprobs.n_top = 20;
    logprobs.top = tops;
    item.request_id = (char *)"a";
    item.n_logprobs = 1;
    item.logprobs = &one;
    for (int i = 0; i < 4096; i++)
        items[i] = &item;
    top.id = 1;
    top.logprob = -1.0f;
    output.n_items = 4096;
    output.items = items;
    size_t bytes = protobuf_c_message_get_packed_size(&output.base);
    unsigned char *body = mem_alloc(bytes);
    (void)protobuf_c_message_pack(&output.base, body);
    frame_encode_header(FRAME_STEP_OUTPUT, bytes, header);
    assert_int_equal(frame_decode(header, 16, body, bytes, &frame, &err), 0);
    assert_int_equal(((const Refrain__StepOutput *)frame.message)->n_items, 4096);
    frame_done(&frame);
    mem_free(body);
    mem_free(items);
}

static void test_send_over_the_limit_and_to_nobody_is_refused(void **state)
{
    struct link *link = *state;
    struct frame_peer nobody = {.bytes = 3, .identity = "no1"};
    char *long_id = mem_zalloc(2001);
    Refrain__Cancel cancel = REFRAIN__CANCEL__INIT;
    memset(long_id, 'a', 2000);
    cancel.request_id = long_id;
    assert_int_equal(frame_send(link->dealer, NULL, FRAME_CANCEL, &cancel.base), -EMSGSIZE);
    long_id[5] = '\0';
    assert_int_equal(frame_send(link->router, &nobody, FRAME_CANCEL, &cancel.base), -EHOSTUNREACH);
    mem_free(long_id);
}

static void test_ids_of_odd_length_or_too_many_are_refused(void **state)
{
    uint8_t bytes[9] = {7, 0, 0, 0, 8, 0, 0, 0, 9};
    ProtobufCBinaryData data = {9, bytes};
    uint32_t ids[2];
    size_t count = 77;
    (void)state;
    assert_int_equal(frame_unpack_ids(&data, ids, 2, &count), -EINVAL);
    data.len = 8;
    assert_int_equal(frame_unpack_ids(&data, ids, 1, &count), -EMSGSIZE);
    assert_int_equal(count, 77); /* untouched */
    assert_int_equal(frame_unpack_ids(&data, ids, 2, &count), 0);
    assert_int_equal(count, 2);
    assert_int_equal(ids[1], 8);
}

static void test_every_kind_has_a_name(void **state)
{
    (void)state;
    for (int kind = 1; kind < FRAME_KINDS; kind++)
        assert_string_not_equal(frame_kind_name((enum frame_kind)kind), "unknown");
    assert_string_equal(frame_kind_name(FRAME_KINDS), "unknown");
    assert_string_equal(frame_kind_name((enum frame_kind)0), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_header_is_sixteen_bytes_little_endian),
        cmocka_unit_test_setup_teardown(test_submit_goes_there_and_an_error_comes_back, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_empty_message_has_an_empty_body_part, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bad_messages_are_consumed_whole_and_name_kind_and_peer,
                                        setup, teardown),
        cmocka_unit_test(test_header_faults_have_their_codes),
        cmocka_unit_test(test_many_empty_items_are_refused_by_the_memory_budget),
        cmocka_unit_test(test_dense_logprobs_fit_the_memory_budget),
        cmocka_unit_test_setup_teardown(test_send_over_the_limit_and_to_nobody_is_refused, setup,
                                        teardown),
        cmocka_unit_test(test_ids_of_odd_length_or_too_many_are_refused),
        cmocka_unit_test(test_every_kind_has_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
