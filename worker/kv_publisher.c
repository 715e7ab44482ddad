/* kv_publisher.c - two sockets and a ring of what was sent. */
#include "worker/kv_publisher.h"

#include <endian.h>
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#include "proto/base/assert.h"
#include "proto/base/buffer.h"
#include "proto/base/clock.h"
#define LOG_MODULE "kv_publisher"
#include "proto/base/json.h"
#include "proto/base/log.h"
#include "proto/base/mem.h"
#include "worker/kv_encode.h"

#define ENDPOINT_MAX 256u
#define TOPIC_MAX 256u
#define BUFFER_STEPS_MAX 1000000
#define HWM_MAX 10000000
#define BATCH_BYTES_MAX ((size_t)16 << 20)
#define REQUESTS_PER_TURN 16u

struct config {
    bool enabled, silent, arrays, int_hashes;
    char endpoint[ENDPOINT_MAX], replay_endpoint[ENDPOINT_MAX], topic[TOPIC_MAX];
    int buffer_steps, hwm;
};

struct kept {
    char *data; /* NULL: empty slot */
    size_t bytes;
};

struct kv_publisher {
    struct config config;
    struct kv_encoding encoding;
    void *context, *pub, *replay;
    struct kept *ring;    /* [buffer_steps]; batch s lies in s % buffer_steps */
    uint64_t first, next; /* sequences kept: [first, next) */
    size_t ring_bytes;
    struct buffer batch;
};

/* ---- configuration ---- */

static int read_text(const json_t *value, const char *key, char *ret, size_t bytes_max,
                     struct errmsg *err)
{
    if (json_is_null(value))
        return 0;
    if (!json_is_string(value) || json_string_length(value) >= bytes_max)
        return errmsg_set(err, -EINVAL,
                          "--kv-events-config: '%s' must be a string of less than %zu "
                          "bytes",
                          key, bytes_max);
    (void)snprintf(ret, bytes_max, "%s", json_string_value(value));
    return 0;
}

static int read_number(const json_t *value, const char *key, int max, int *ret, struct errmsg *err)
{
    if (!json_is_integer(value) || json_integer_value(value) < 1 || json_integer_value(value) > max)
        return errmsg_set(err, -EINVAL, "--kv-events-config: '%s' must be an integer from 1 to %d",
                          key, max);
    *ret = (int)json_integer_value(value);
    return 0;
}

static int read_bool(const json_t *value, const char *key, bool *ret, struct errmsg *err)
{
    if (!json_is_boolean(value))
        return errmsg_set(err, -EINVAL, "--kv-events-config: '%s' must be true or false", key);
    *ret = json_is_true(value);
    return 0;
}

/* One of two words. */
static int read_choice(const json_t *value, const char *key, const char *no, const char *yes,
                       bool *ret, struct errmsg *err)
{
    const char *text = json_is_null(value) ? no : json_string_value(value);
    if (text == NULL || (strcmp(text, no) != 0 && strcmp(text, yes) != 0))
        return errmsg_set(err, -EINVAL, "--kv-events-config: '%s' must be \"%s\" or \"%s\"", key,
                          no, yes);
    *ret = strcmp(text, yes) == 0;
    return 0;
}

static int read_key(const char *key, const json_t *value, struct config *config, struct errmsg *err)
{
    int ignored;

    if (strcmp(key, "enable_kv_cache_events") == 0)
        return read_bool(value, key, &config->enabled, err);
    if (strcmp(key, "publisher") == 0)
        return read_choice(value, key, "zmq", "null", &config->silent, err);
    if (strcmp(key, "endpoint") == 0)
        return read_text(value, key, config->endpoint, sizeof(config->endpoint), err);
    if (strcmp(key, "replay_endpoint") == 0)
        return read_text(value, key, config->replay_endpoint, sizeof(config->replay_endpoint), err);
    if (strcmp(key, "topic") == 0)
        return read_text(value, key, config->topic, sizeof(config->topic), err);
    if (strcmp(key, "buffer_steps") == 0)
        return read_number(value, key, BUFFER_STEPS_MAX, &config->buffer_steps, err);
    if (strcmp(key, "hwm") == 0)
        return read_number(value, key, HWM_MAX, &config->hwm, err);
    if (strcmp(key, "max_queue_size") == 0) /* nothing waits here: a batch is sent at once */
        return read_number(value, key, HWM_MAX, &ignored, err);
    if (strcmp(key, "format") == 0)
        return read_choice(value, key, "map", "array", &config->arrays, err);
    if (strcmp(key, "int_block_hashes") == 0)
        return read_bool(value, key, &config->int_hashes, err);
    return errmsg_set(err, -EINVAL, "--kv-events-config: unknown key '%.64s'", key);
}

static int read_config(const char *text, struct config *config, struct errmsg *err)
{
    json_t *root = NULL, *value;
    const char *key;
    int r = 0;

    *config = (struct config){.endpoint = "tcp://*:5557", .buffer_steps = 10000, .hwm = 100000};
    r = json_parse(text, strlen(text), SIZE_MAX, &root, err);
    if (r < 0)
        return errmsg_prefix(err, -EINVAL, "--kv-events-config");
    if (!json_is_object(root))
        r = errmsg_set(err, -EINVAL, "--kv-events-config: it must be a JSON object");
    json_object_foreach(root, key, value)
    {
        r = r == 0 ? read_key(key, value, config, err) : r;
    }
    json_decref(root);
    return r;
}

/* ---- sockets ---- */

static bool is_local(const char *endpoint)
{
    return strncmp(endpoint, "tcp://", 6) != 0 || strncmp(endpoint, "tcp://127.", 10) == 0 ||
           strncmp(endpoint, "tcp://localhost:", 16) == 0 ||
           strncmp(endpoint, "tcp://[::1]:", 12) == 0;
}

/* Group g of a tcp endpoint listens g ports further up. */
static int shift_port(char *endpoint, uint32_t group, struct errmsg *err)
{
    char *colon = strrchr(endpoint, ':'), *end;

    if (strncmp(endpoint, "tcp://", 6) != 0 || group == 0)
        return 0;
    long port = colon != NULL ? strtol(colon + 1, &end, 10) : 0;
    if (port < 1 || *end != '\0' || port + group > 65535)
        return errmsg_set(err, -EINVAL,
                          "--kv-events-config: '%.200s' has no port that group %u can "
                          "add its number to",
                          endpoint, group);
    (void)snprintf(colon + 1, ENDPOINT_MAX - (size_t)(colon + 1 - endpoint), "%ld", port + group);
    return 0;
}

/* vLLM's rule: a place of our own is bound, another one is connected to. */
static bool binds(const char *endpoint)
{
    return strchr(endpoint, '*') != NULL || strstr(endpoint, "::") != NULL ||
           strncmp(endpoint, "ipc://", 6) == 0 || strncmp(endpoint, "inproc://", 9) == 0;
}

static int open_socket(struct kv_publisher *publisher, int type, const char *endpoint, bool bind,
                       void **ret_socket, struct errmsg *err)
{
    void *socket = zmq_socket(publisher->context, type);
    int none = 0;

    if (socket == NULL)
        return errmsg_errno(err, "--kv-events-config: socket");
    *ret_socket = socket;
    (void)zmq_setsockopt(socket, ZMQ_LINGER, &none, sizeof(none));
    (void)zmq_setsockopt(socket, ZMQ_SNDHWM, &publisher->config.hwm, sizeof(int));
    if ((bind ? zmq_bind(socket, endpoint) : zmq_connect(socket, endpoint)) < 0)
        return errmsg_set(err, -zmq_errno(), "--kv-events-config: endpoint '%.200s': %s", endpoint,
                          zmq_strerror(zmq_errno()));
    return 0;
}

static int open_sockets(struct kv_publisher *publisher, uint32_t group, bool insecure_tcp,
                        struct errmsg *err)
{
    char *endpoints[] = {publisher->config.endpoint, publisher->config.replay_endpoint};

    for (size_t i = 0; i < 2; i++) {
        if (!is_local(endpoints[i]) && !insecure_tcp)
            return errmsg_set(
                err, -EINVAL,
                "--kv-events-config: '%.200s' can be reached from other machines, and "
                "events hold token ids of prompts: use ipc:// or 127.0.0.1, or say "
                "--insecure-tcp",
                endpoints[i]);
        int r = shift_port(endpoints[i], group, err);
        if (r < 0)
            return r;
    }
    publisher->context = zmq_ctx_new();
    int r = open_socket(publisher, ZMQ_PUB, endpoints[0],
                        binds(endpoints[0]) || is_local(endpoints[0]), &publisher->pub, err);
    if (r == 0 && endpoints[1][0])
        r = open_socket(publisher, ZMQ_ROUTER, endpoints[1], true, &publisher->replay, err);
    return r;
}

int kv_publisher_new(const struct kv_publisher_settings *settings,
                     struct kv_publisher **ret_publisher, struct errmsg *err)
{
    struct kv_publisher *publisher = NULL;
    struct config read = {0};
    int r = settings->config != NULL ? read_config(settings->config, &read, err) : 0;

    if (r < 0)
        return r;
    if (read.enabled && !read.silent) {
        publisher = mem_zalloc(sizeof(*publisher));
        publisher->config = read;
        publisher->encoding = (struct kv_encoding){.arrays = read.arrays,
                                                   .int_hashes = read.int_hashes,
                                                   .group = settings->group,
                                                   .windows = settings->windows};
        publisher->ring = mem_calloc((size_t)read.buffer_steps, sizeof(*publisher->ring));
        buffer_init(&publisher->batch, BATCH_BYTES_MAX);
        r = open_sockets(publisher, settings->group, settings->insecure_tcp, err);
        if (r < 0) {
            kv_publisher_free(publisher);
            return r;
        }
        log_info("kv_events", "endpoint=%s replay=%s format=%s", publisher->config.endpoint,
                 publisher->replay ? publisher->config.replay_endpoint : "none",
                 read.arrays ? "array" : "map");
    }
    *ret_publisher = publisher;
    return 0;
}

void kv_publisher_use_adapters(struct kv_publisher *publisher, const struct adapters *adapters)
{
    if (publisher != NULL)
        publisher->encoding.adapters = adapters;
}

static void drop_oldest(struct kv_publisher *publisher)
{
    struct kept *kept =
        &publisher->ring[publisher->first++ % (uint64_t)publisher->config.buffer_steps];
    publisher->ring_bytes -= kept->bytes;
    mem_free(kept->data);
    *kept = (struct kept){0};
}

void kv_publisher_free(struct kv_publisher *publisher)
{
    if (publisher == NULL)
        return;
    while (publisher->first < publisher->next)
        drop_oldest(publisher);
    if (publisher->pub != NULL)
        (void)zmq_close(publisher->pub);
    if (publisher->replay != NULL)
        (void)zmq_close(publisher->replay);
    if (publisher->context != NULL)
        (void)zmq_ctx_term(publisher->context);
    buffer_done(&publisher->batch);
    mem_free(publisher->ring);
    mem_free(publisher);
}

/* ---- sending ---- */

static void send_batch(struct kv_publisher *publisher, void *socket, uint64_t sequence,
                       const char *data, size_t bytes)
{
    uint64_t big = htobe64(sequence);
    (void)zmq_send(socket, publisher->config.topic, strlen(publisher->config.topic),
                   ZMQ_SNDMORE | ZMQ_DONTWAIT);
    (void)zmq_send(socket, &big, sizeof(big), ZMQ_SNDMORE | ZMQ_DONTWAIT);
    (void)zmq_send(socket, data, bytes, ZMQ_DONTWAIT);
}

static void keep(struct kv_publisher *publisher)
{
    size_t bytes = publisher->batch.bytes, steps = (size_t)publisher->config.buffer_steps;

    while (publisher->first < publisher->next &&
           (publisher->next - publisher->first == steps ||
            publisher->ring_bytes + bytes > KV_REPLAY_BYTES_MAX))
        drop_oldest(publisher);
    struct kept *kept = &publisher->ring[publisher->next++ % steps];
    kept->data = mem_alloc(bytes);
    kept->bytes = bytes;
    memcpy(kept->data, publisher->batch.data, bytes);
    publisher->ring_bytes += bytes;
}

void kv_publisher_output(struct kv_publisher *publisher, const struct output *output)
{
    if (publisher == NULL || output->kind != OUTPUT_KV)
        return;
    buffer_clear(&publisher->batch);
    kv_encode_batch(&publisher->encoding, output, clock_unix(), &publisher->batch);
    ASSERT(buffer_finish(&publisher->batch) == 0); /* an output's blocks are bounded */
    send_batch(publisher, publisher->pub, publisher->next, publisher->batch.data,
               publisher->batch.bytes);
    keep(publisher);
}

/* ---- replay ---- */

#define FRAMES_MAX 4u

/* All frames of one request; -EAGAIN: there is none. Frames past FRAMES_MAX are dropped. */
static int receive(void *socket, zmq_msg_t *frames, uint32_t *ret_count)
{
    uint32_t count = 0;
    int more = 1;

    while (more) {
        zmq_msg_t frame;
        (void)zmq_msg_init(&frame);
        if (zmq_msg_recv(&frame, socket, ZMQ_DONTWAIT) < 0) {
            (void)zmq_msg_close(&frame);
            return -EAGAIN;
        }
        more = zmq_msg_more(&frame);
        if (count < FRAMES_MAX) {
            (void)zmq_msg_init(&frames[count]);
            (void)zmq_msg_move(&frames[count++], &frame);
        }
        (void)zmq_msg_close(&frame);
    }
    *ret_count = count;
    return 0;
}

static bool begin_answer(struct kv_publisher *publisher, zmq_msg_t *frames, bool delimited)
{
    if (zmq_send(publisher->replay, zmq_msg_data(&frames[0]), zmq_msg_size(&frames[0]),
                 ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0)
        return false; /* it went away */
    return !delimited || zmq_send(publisher->replay, "", 0, ZMQ_SNDMORE | ZMQ_DONTWAIT) == 0;
}

static void answer(struct kv_publisher *publisher, zmq_msg_t *frames, uint32_t count)
{
    bool delimited = count == 3 && zmq_msg_size(&frames[1]) == 0;
    uint64_t sequence;

    if ((count != 2 && !delimited) || zmq_msg_size(&frames[count - 1]) != sizeof(sequence)) {
        log_warn("replay_refused", "frames=%u", count);
        return;
    }
    memcpy(&sequence, zmq_msg_data(&frames[count - 1]), sizeof(sequence));
    sequence = be64toh(sequence);
    if (sequence < publisher->first)
        sequence = publisher->first; /* older ones are gone: the reader sees the gap */
    for (; sequence < publisher->next; sequence++) {
        const struct kept *kept =
            &publisher->ring[sequence % (uint64_t)publisher->config.buffer_steps];
        if (!begin_answer(publisher, frames, delimited))
            return;
        send_batch(publisher, publisher->replay, sequence, kept->data, kept->bytes);
    }
    if (begin_answer(publisher, frames, delimited))
        send_batch(publisher, publisher->replay, UINT64_MAX, "", 0);
}

void kv_publisher_turn(struct kv_publisher *publisher)
{
    zmq_msg_t frames[FRAMES_MAX];
    uint32_t count = 0;

    if (publisher == NULL || publisher->replay == NULL)
        return;
    for (uint32_t i = 0; i < REQUESTS_PER_TURN; i++) {
        if (receive(publisher->replay, frames, &count) < 0)
            return;
        answer(publisher, frames, count);
        for (uint32_t j = 0; j < count; j++)
            (void)zmq_msg_close(&frames[j]);
    }
}

int kv_publisher_fd(const struct kv_publisher *publisher)
{
    int fd = -1;
    size_t bytes = sizeof(fd);

    if (publisher == NULL || publisher->replay == NULL ||
        zmq_getsockopt(publisher->replay, ZMQ_FD, &fd, &bytes) < 0)
        return -1;
    return fd;
}
