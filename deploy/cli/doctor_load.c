/* doctor_load.c - threads with a connection each, taking numbers from one counter. */
#include "deploy/cli/doctor_load.h"

#include <curl/curl.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "proto/base/buffer.h"
#include "proto/base/clock.h"
#include "proto/base/json.h"
#include "proto/base/mem.h"
#include "proto/base/rng.h"

#define BODY_BYTES_MAX ((size_t)8 << 20)
#define ERROR_BYTES_MAX ((size_t)16 << 10)
#define REQUEST_TIMEOUT_MS 600000L

struct crowd {
    const struct doctor_load *load;
    char *url;
    struct curl_slist *headers;
    uint64_t ends_ms;
    _Atomic uint64_t taken, answered;
    _Atomic int last_status;
    pthread_mutex_t text_lock;
    struct errmsg last_text;
};

/* The head is enough: errors are short, answers are not read. */
static size_t keep_head(char *data, size_t size, size_t count, void *user)
{
    struct buffer *head = user;
    size_t room = ERROR_BYTES_MAX - head->bytes;
    buffer_append(head, data, size * count < room ? size * count : room);
    return size * count;
}

/* The sentence of an error, for the operator. */
static void note_failure(struct crowd *crowd, long status, const struct buffer *head)
{
    json_t *answer = NULL;
    const char *text = NULL;

    atomic_store(&crowd->last_status, (int)status);
    if (json_parse(head->data, head->bytes, ERROR_BYTES_MAX, &answer, NULL) == 0)
        text = json_string_value(json_object_get(json_object_get(answer, "error"), "message"));
    (void)pthread_mutex_lock(&crowd->text_lock);
    (void)errmsg_set(&crowd->last_text, -EPROTO, "%s", text ? text : "");
    (void)pthread_mutex_unlock(&crowd->text_lock);
    json_decref(answer);
}

/* `seed` is new for each request: no prompt comes twice. */
static void write_body(uint64_t seed, const struct doctor_load *load, struct buffer *body)
{
    static const char *const words[] = {
        "the",  "sea",  "wind", "stone", "river", "light", "tree",  "bread", "house", "road",
        "hand", "year", "door", "night", "water", "field", "horse", "ship",  "salt",  "fire",
        "rain", "song", "gold", "wall",  "cloud", "bell",  "leaf",  "snow",  "star",  "hill"};
    enum { WORDS = sizeof(words) / sizeof(words[0]) };

    buffer_clear(body);
    buffer_append_text(body, "{\"messages\":[{\"role\":\"user\",\"content\":\"");
    for (uint32_t i = 0; i < load->prompt_words; i++)
        buffer_printf(body, "%s ", words[(size_t)(rng_uniform(seed, i) * WORDS)]);
    buffer_printf(body, "\"}],\"max_tokens\":%u,\"temperature\":0}", load->answer_tokens);
}

static bool take(struct crowd *crowd)
{
    uint64_t number = atomic_fetch_add(&crowd->taken, 1);
    bool wanted =
        crowd->load->seconds > 0 ? clock_ms() < crowd->ends_ms : number < crowd->load->requests;
    if (!wanted)
        (void)atomic_fetch_sub(&crowd->taken, 1);
    return wanted;
}

static void *send_all(void *user)
{
    struct crowd *crowd = user;
    CURL *curl = curl_easy_init();
    struct buffer body, head;

    buffer_init(&body, BODY_BYTES_MAX);
    buffer_init(&head, ERROR_BYTES_MAX);
    while (curl && take(crowd)) {
        long status = 0;
        uint64_t seed;
        rng_system(&seed, sizeof(seed));
        write_body(seed, crowd->load, &body);
        buffer_clear(&head);
        (void)curl_easy_setopt(curl, CURLOPT_URL, crowd->url);
        (void)curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
        (void)curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
        (void)curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, REQUEST_TIMEOUT_MS);
        (void)curl_easy_setopt(curl, CURLOPT_HTTPHEADER, crowd->headers);
        (void)curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE, (long)body.bytes);
        (void)curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body.data);
        (void)curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, keep_head);
        (void)curl_easy_setopt(curl, CURLOPT_WRITEDATA, &head);
        if (curl_easy_perform(curl) == CURLE_OK)
            (void)curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
        if (status == 200)
            (void)atomic_fetch_add(&crowd->answered, 1);
        else
            note_failure(crowd, status, &head);
    }
    buffer_done(&body);
    buffer_done(&head);
    if (curl)
        curl_easy_cleanup(curl);
    return NULL;
}

int doctor_load_run(const struct doctor_load *load, struct doctor_load_result *ret_result,
                    struct errmsg *err)
{
    struct crowd crowd = {.load = load,
                          .ends_ms = clock_ms() + (uint64_t)(load->seconds * 1e3),
                          .text_lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_t threads[DOCTOR_CONCURRENCY_MAX];
    uint32_t started = 0;
    int r = 0;

    if (load->concurrency < 1 || load->concurrency > DOCTOR_CONCURRENCY_MAX)
        return errmsg_set(err, -EINVAL, "%u requests at a time; 1 to %u are possible",
                          load->concurrency, DOCTOR_CONCURRENCY_MAX);
    crowd.url = mem_printf("%s/v1/chat/completions", load->url);
    crowd.headers = curl_slist_append(NULL, "Content-Type: application/json");
    if (load->api_key) {
        char *bearer = mem_printf("Authorization: Bearer %s", load->api_key);
        crowd.headers = curl_slist_append(crowd.headers, bearer);
        mem_free(bearer);
    }
    for (; started < load->concurrency; started++) {
        if (pthread_create(&threads[started], NULL, send_all, &crowd) != 0)
            break;
    }
    if (started == 0)
        r = errmsg_set(err, -EAGAIN, "no thread could be started");
    for (uint32_t i = 0; i < started; i++)
        (void)pthread_join(threads[i], NULL);
    *ret_result = (struct doctor_load_result){.sent = atomic_load(&crowd.taken),
                                              .answered = atomic_load(&crowd.answered),
                                              .last_status = atomic_load(&crowd.last_status),
                                              .last_text = crowd.last_text};
    curl_slist_free_all(crowd.headers);
    mem_free(crowd.url);
    return r;
}
