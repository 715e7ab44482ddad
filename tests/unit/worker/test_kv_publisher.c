/* test_kv_publisher.c - batches are vLLM's msgpack, replay gives back what was sent, bad settings
 * are named. */
#include <cmocka.h>
#include <endian.h>
#include <msgpack.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

#include "proto/base/mem.h"
#include "worker/kv_encode.h"
#include "worker/kv_publisher.h"

static struct output_stored blocks[3];
static bool cleared;
static struct block_hash removed[2] = {{7, 8}, {9, 10}};

/* Two blocks of a chain from the root, one of another chain, two removed. */
static struct output sample(void)
{
    for (uint32_t i = 0; i < 3; i++) {
        blocks[i] = (struct output_stored){.parent = {i == 1 ? 100 : 50, 0}, .hash = {100 + i, 1}};
        for (uint32_t j = 0; j < BLOCK_TOKENS; j++)
            blocks[i].ids[j] = i * 1000 + j;
    }
    blocks[0].first = true;
    blocks[1].parent = blocks[0].hash;
    return (struct output){.kind = OUTPUT_KV,
                           .stored = blocks,
                           .stored_count = 3,
                           .removed = removed,
                           .all_cleared = cleared,
                           .removed_count = 2};
}

/* What a batch says, as text: msgpack-c prints JSON-like; bytes of a hash as they are. */
static char *printed(const struct kv_encoding *encoding)
{
    struct output output = sample();
    struct buffer batch;
    msgpack_unpacked unpacked;
    size_t at = 0;
    char *text = mem_zalloc(16384);

    buffer_init(&batch, 1 << 20);
    kv_encode_batch(encoding, &output, 2.5, &batch);
    assert_int_equal(buffer_finish(&batch), 0);
    msgpack_unpacked_init(&unpacked);
    assert_int_equal(msgpack_unpack_next(&unpacked, batch.data, batch.bytes, &at),
                     MSGPACK_UNPACK_SUCCESS);
    assert_int_equal(at, batch.bytes); /* one object, nothing behind it */
    assert_true(msgpack_object_print_buffer(text, 16383, unpacked.data) > 0);
    msgpack_unpacked_destroy(&unpacked);
    buffer_done(&batch);
    return text;
}

static void expect(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("no %s in %s", part, text);
}

static void test_events_are_maps_with_a_type(void **state)
{
    char *text = printed(&(struct kv_encoding){.int_hashes = true, .group = 3});
    (void)state;
    expect(text, "[2.5");
    expect(text, "{\"type\"=>\"BlockStored\", \"block_hashes\"=>[100, 101], "
                 "\"parent_block_hash\"=>nil, \"token_ids\"=>[0, 1, 2,");
    expect(text, "14, 15, 1000, 1001,");
    expect(text, "1015], \"block_size\"=>16, \"medium\"=>\"GPU\"}");
    expect(text, "\"block_hashes\"=>[102], \"parent_block_hash\"=>50, \"token_ids\"=>[2000,");
    expect(text,
           "{\"type\"=>\"BlockRemoved\", \"block_hashes\"=>[7, 9], \"medium\"=>\"GPU\"}], 3]");
    mem_free(text);
}

static void test_events_name_their_group_of_layers_where_some_slide(void **state)
{
    char *text = printed(&(struct kv_encoding){.int_hashes = true, .windows = true});
    (void)state;
    expect(text, "1015], \"block_size\"=>16, \"medium\"=>\"GPU\", \"group_idx\"=>0}");
    expect(text, "\"block_hashes\"=>[7, 9], \"medium\"=>\"GPU\", \"group_idx\"=>0}");
    mem_free(text);
    text = printed(&(struct kv_encoding){.arrays = true, .int_hashes = true, .windows = true});
    expect(text, "1015], 16, nil, \"GPU\"]");
    mem_free(text);
}

static void test_events_are_arrays_when_asked_for(void **state)
{
    char *text = printed(&(struct kv_encoding){.arrays = true, .int_hashes = true});
    (void)state;
    expect(text, "[\"BlockStored\", [100, 101], nil, [0, 1,");
    expect(text, "1015], 16, nil, \"GPU\"]");
    expect(text, "[\"BlockRemoved\", [7, 9], \"GPU\"]], 0]");
    mem_free(text);
}

static void test_a_reset_that_leaves_nothing_says_so_last(void **state)
{
    (void)state;
    cleared = true;
    char *text = printed(&(struct kv_encoding){.int_hashes = true});
    expect(text, "\"medium\"=>\"GPU\"}, {\"type\"=>\"AllBlocksCleared\"}], 0]");
    mem_free(text);
    text = printed(&(struct kv_encoding){.arrays = true, .int_hashes = true});
    expect(text, "\"GPU\"], [\"AllBlocksCleared\"]], 0]");
    mem_free(text);
    cleared = false;
}

static void test_hashes_are_their_16_bytes(void **state)
{
    struct output output = sample();
    struct kv_encoding encoding = {0};
    struct buffer batch;
    (void)state;
    buffer_init(&batch, 1 << 20);
    kv_encode_batch(&encoding, &output, 0, &batch);
    const unsigned char wanted[] = {0xc4, 16, 100, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0};
    assert_non_null(memmem(batch.data, batch.bytes, wanted, sizeof(wanted)));
    buffer_done(&batch);
}

static void test_bad_settings_are_named(void **state)
{
    static const struct {
        const char *json, *says;
    } cases[] = {
        {"{", "--kv-events-config"},
        {"[]", "object"},
        {"{\"enable_kv_cache_events\": 1}", "'enable_kv_cache_events' must be true or false"},
        {"{\"publisher\": \"kafka\"}", "'publisher' must be \"zmq\" or \"null\""},
        {"{\"endpoint\": 5557}", "'endpoint' must be a string"},
        {"{\"buffer_steps\": 0}", "'buffer_steps' must be an integer from 1 to"},
        {"{\"hwm\": -1}", "'hwm'"},
        {"{\"format\": \"json\"}", "'format' must be \"map\" or \"array\""},
        {"{\"enpoint\": \"x\"}", "unknown key 'enpoint'"},
        {"{\"enable_kv_cache_events\": true}", "can be reached from other machines"},
        {"{\"enable_kv_cache_events\": true, \"endpoint\": \"ipc:///tmp/refrain-kv-test\", "
         "\"replay_endpoint\": \"tcp://*:5558\"}",
         "--insecure-tcp"},
        {"{\"enable_kv_cache_events\": true, \"endpoint\": \"carrier-pigeon://x\"}", "pigeon"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct kv_publisher *publisher = NULL;
        struct errmsg err = {""};
        if (kv_publisher_new(&(struct kv_publisher_settings){.config = cases[i].json}, &publisher,
                             &err) >= 0)
            fail_msg("taken: %s", cases[i].json);
        assert_null(publisher);
        expect(err.text, cases[i].says);
    }
}

static void test_nothing_is_published_unless_it_is_switched_on(void **state)
{
    static const char *const off[] = {NULL, "{}", "{\"enable_kv_cache_events\": false}",
                                      "{\"enable_kv_cache_events\": true, \"publisher\": \"null\"}",
                                      "{\"publisher\": null, \"enable_kv_cache_events\": false}"};
    (void)state;
    for (size_t i = 0; i < sizeof(off) / sizeof(off[0]); i++) {
        struct kv_publisher *publisher = (struct kv_publisher *)1;
        struct errmsg err;
        assert_int_equal(
            kv_publisher_new(&(struct kv_publisher_settings){.config = off[i]}, &publisher, &err),
            0);
        assert_null(publisher);
    }
    struct output output = sample();
    kv_publisher_output(NULL, &output); /* and all calls are fine */
    kv_publisher_turn(NULL);
    assert_int_equal(kv_publisher_fd(NULL), -1);
    kv_publisher_free(NULL);
}

struct replay {
    struct kv_publisher *publisher;
    void *context, *dealer;
};

/* [empty] topic sequence batch; the batch's bytes. */
static size_t read_answer(struct replay *replay, uint64_t *ret_sequence)
{
    char frame[4][4096];
    int sizes[4] = {0}, more = 1, count = 0;
    size_t option = sizeof(more);

    for (; more; count++) {
        assert_true(count < 4);
        sizes[count] = zmq_recv(replay->dealer, frame[count], sizeof(frame[count]), 0);
        assert_true(sizes[count] >= 0);
        assert_int_equal(zmq_getsockopt(replay->dealer, ZMQ_RCVMORE, &more, &option), 0);
    }
    assert_int_equal(count, 4);
    assert_int_equal(sizes[0], 0);
    assert_int_equal(sizes[1], 2);
    assert_memory_equal(frame[1], "kv", 2);
    assert_int_equal(sizes[2], 8);
    memcpy(ret_sequence, frame[2], 8);
    *ret_sequence = be64toh(*ret_sequence);
    return (size_t)sizes[3];
}

static void ask(struct replay *replay, uint64_t first)
{
    uint64_t big = htobe64(first);
    assert_int_equal(zmq_send(replay->dealer, "", 0, ZMQ_SNDMORE), 0);
    assert_int_equal(zmq_send(replay->dealer, &big, 8, 0), 8);
    zmq_pollitem_t item = {replay->dealer, 0, ZMQ_POLLIN, 0};
    for (int i = 0; i < 2000 && zmq_poll(&item, 1, 5) == 0; i++)
        kv_publisher_turn(replay->publisher);
}

static void test_replay_gives_back_what_the_ring_has(void **state)
{
    char endpoint[64], config[256];
    struct replay replay = {0};
    struct output output = sample();
    struct errmsg err = {""};
    uint64_t sequence;
    (void)state;

    (void)snprintf(endpoint, sizeof(endpoint), "ipc:///tmp/refrain-kv-replay-%d", (int)getpid());
    (void)snprintf(config, sizeof(config),
                   "{\"enable_kv_cache_events\": true, \"endpoint\": \"inproc://pub\", "
                   "\"replay_endpoint\": \"%s\", \"buffer_steps\": 4, \"topic\": \"kv\"}",
                   endpoint);
    assert_int_equal(kv_publisher_new(&(struct kv_publisher_settings){.config = config},
                                      &replay.publisher, &err),
                     0);
    for (int i = 0; i < 10; i++)
        kv_publisher_output(replay.publisher, &output);
    replay.context = zmq_ctx_new();
    replay.dealer = zmq_socket(replay.context, ZMQ_DEALER);
    assert_int_equal(zmq_connect(replay.dealer, endpoint), 0);

    assert_int_equal(zmq_send(replay.dealer, "nonsense of any length", 22, 0), 22); /* no answer */
    ask(&replay, 0); /* batches 0 to 5 are gone */
    for (uint64_t i = 6; i < 10; i++) {
        assert_true(read_answer(&replay, &sequence) > 100);
        assert_int_equal(sequence, i);
    }
    assert_int_equal(read_answer(&replay, &sequence), 0);
    assert_true(sequence == UINT64_MAX);
    ask(&replay, 9);
    assert_true(read_answer(&replay, &sequence) > 100);
    assert_int_equal(sequence, 9);
    assert_int_equal(read_answer(&replay, &sequence), 0);

    (void)zmq_close(replay.dealer);
    (void)zmq_ctx_term(replay.context);
    kv_publisher_free(replay.publisher);
    (void)unlink(endpoint + strlen("ipc://"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_events_are_maps_with_a_type),
        cmocka_unit_test(test_events_are_arrays_when_asked_for),
        cmocka_unit_test(test_events_name_their_group_of_layers_where_some_slide),
        cmocka_unit_test(test_a_reset_that_leaves_nothing_says_so_last),
        cmocka_unit_test(test_hashes_are_their_16_bytes),
        cmocka_unit_test(test_bad_settings_are_named),
        cmocka_unit_test(test_nothing_is_published_unless_it_is_switched_on),
        cmocka_unit_test(test_replay_gives_back_what_the_ring_has),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
