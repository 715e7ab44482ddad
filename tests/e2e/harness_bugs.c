/* harness_bugs.c - entries, their requests, and what holds after each. */
#include "tests/e2e/harness_bugs.h"

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/buffer.h"
#include "proto/base/mem.h"

#define BODY_BYTES_MAX ((size_t)1 << 20)

static void ask_reference(const struct bugs *bugs, char *ret_text, size_t text_max)
{
    struct chat chat;
    chat_init(&chat, bugs->cluster.url, CHAT_PATH,
              chat_body(bugs->cluster.model, "Name a colour.", 8));
    chat_send(&chat);
    if (chat.status != 200)
        fail_msg("the reference: %d %s%s", chat.status, chat.failure, chat.error_message);
    (void)snprintf(ret_text, text_max, "%s", chat.text);
    chat_done(&chat);
}

/* Some entries hold integers that are none for a JSON library: they become "@digits@" until the
 * body is text again. */
static json_t *load_entries(void)
{
    char *text = file_read(SHARED_DIR "/cases/bugs.json", NULL);
    struct buffer marked;
    bool quoted = false;

    buffer_init(&marked, BODY_BYTES_MAX);
    for (const char *at = text; at && *at;) {
        size_t sign = *at == '-', digits = strspn(at + sign, "0123456789");
        if (*at == '"' && at[-1] != '\\')
            quoted = !quoted;
        if (!quoted && digits >= 19) {
            buffer_append_text(&marked, "\"@");
            buffer_append(&marked, at, sign + digits);
            buffer_append_text(&marked, "@\"");
            at += sign + digits;
        } else {
            buffer_append_char(&marked, *at++);
        }
    }
    json_t *entries = json_loads(marked.data, 0, NULL);
    buffer_done(&marked);
    mem_free(text);
    return entries;
}

void bugs_start(struct bugs *bugs, const char *model, const char *const *flags)
{
    memset(bugs, 0, sizeof(*bugs));
    bugs->entries = load_entries();
    if (!bugs->entries)
        e2e_skip("shared/cases/bugs.json is absent");
    cluster_start(&bugs->cluster, model, flags);
    bugs->router_pid = cluster_router_pid(&bugs->cluster);
    ask_reference(bugs, bugs->reference, sizeof(bugs->reference));
}

void bugs_stop(struct bugs *bugs)
{
    bugs_assert_well(bugs);
    cluster_stop(&bugs->cluster);
}

void bugs_abort(struct bugs *bugs)
{
    cluster_abort(&bugs->cluster);
    json_decref(bugs->entries);
    bugs->entries = NULL;
}

void bugs_start_real(struct bugs *bugs)
{
    bugs_start(bugs, e2e_smollm2(),
               (const char *const[]){"--groups", "1", "--kv-cache-memory", "128MiB",
                                     "--max-model-len", "256", NULL});
}

int bugs_teardown(void **state)
{
    bugs_abort(*state);
    return 0;
}

int bugs_after(void **state)
{
    bugs_assert_well(*state);
    return 0;
}

static const json_t *request_of(const struct bugs *bugs, const char *id, size_t i)
{
    size_t at;
    json_t *entry;

    json_array_foreach(bugs->entries, at, entry)
    {
        const json_t *request = json_object_get(entry, "request");
        if (strcmp(json_string_value(json_object_get(entry, "id")), id) != 0)
            continue;
        if (json_is_array(request))
            request = json_array_get(request, i);
        assert_non_null(request);
        return request;
    }
    fail_msg("bugs.json has no %s", id);
    return NULL;
}

/* MODEL becomes the model's name, "@123@" the number again. */
static char *made_real(const char *text, const char *model)
{
    struct buffer out;

    buffer_init(&out, BODY_BYTES_MAX);
    while (*text) {
        if (strncmp(text, "MODEL", 5) == 0) {
            buffer_append_text(&out, model);
            text += 5;
        } else if (strncmp(text, "\"@", 2) == 0 || strncmp(text, "@\"", 2) == 0) {
            text += 2;
        } else {
            buffer_append_char(&out, *text++);
        }
    }
    return buffer_take(&out, NULL);
}

char *bugs_body(const struct bugs *bugs, const char *id, size_t i)
{
    const json_t *request = request_of(bugs, id, i);
    const char *raw = json_string_value(json_object_get(request, "raw"));
    char *text = raw ? NULL : json_dumps(json_object_get(request, "json"), JSON_COMPACT);

    assert_true(raw || text);
    char *body = made_real(raw ? raw : text, bugs->cluster.model);
    free(text); /* jansson's */
    return body;
}

json_t *bugs_json(const struct bugs *bugs, const char *id, size_t i)
{
    char *text = bugs_body(bugs, id, i);
    json_t *body = json_loads(text, 0, NULL);
    assert_non_null(body);
    mem_free(text);
    return body;
}

void bugs_send(const struct bugs *bugs, const char *id, size_t i, const char *path,
               struct http_answer *ret_answer)
{
    char *body = bugs_body(bugs, id, i);
    const struct http_request request = {
        .method = "POST",
        .path = path,
        .body = body,
        .headers = (const char *const[]){"Content-Type: application/json", NULL}};
    http_send(bugs->cluster.url, &request, ret_answer);
    mem_free(body);
}

json_t *bugs_ask(const struct bugs *bugs, const char *path, json_t *body, int status)
{
    return cluster_post(&bugs->cluster, path, body, status);
}

json_t *bugs_ask_own(const struct bugs *bugs, const char *id, size_t i, int status)
{
    return bugs_ask(bugs, CHAT_PATH, bugs_json(bugs, id, i), status);
}

json_t *bugs_prompt_ids(const struct bugs *bugs, const json_t *body)
{
    json_t *copy = json_deep_copy(body);

    json_object_set_new(copy, "max_tokens", json_integer(1));
    json_object_set_new(copy, "return_token_ids", json_true());
    json_t *answer = bugs_ask(bugs, CHAT_PATH, copy, 200);
    json_t *ids = json_incref(json_object_get(answer, "prompt_token_ids"));
    assert_true(json_array_size(ids) > 0);
    json_decref(answer);
    return ids;
}

json_t *bugs_choice(const json_t *answer)
{
    return json_array_get(json_object_get(answer, "choices"), 0);
}

const char *bugs_text(const json_t *answer)
{
    const json_t *choice = bugs_choice(answer);
    const json_t *message = json_object_get(choice, "message");
    const char *text = json_string_value(message ? json_object_get(message, "content")
                                                 : json_object_get(choice, "text"));
    return text ? text : "";
}

const char *bugs_finish(const json_t *answer)
{
    const char *finish = json_string_value(json_object_get(bugs_choice(answer), "finish_reason"));
    return finish ? finish : "";
}

json_int_t bugs_usage(const json_t *answer, const char *member)
{
    return json_integer_value(json_object_get(json_object_get(answer, "usage"), member));
}

void bugs_assert_memory(pid_t pid, uint64_t bytes_max)
{
    uint64_t resident = proc_resident_bytes(pid);
    if (!proc_is_sanitized(pid) && resident >= bytes_max)
        fail_msg("%llu bytes are resident, at most %llu should be", (unsigned long long)resident,
                 (unsigned long long)bytes_max);
}

void bugs_assert_well(const struct bugs *bugs)
{
    char text[sizeof(bugs->reference)];
    struct http_answer answer;

    assert_true(proc_is_alive(bugs->router_pid));
    assert_int_equal(cluster_router_pid(&bugs->cluster), bugs->router_pid);
    http_get(bugs->cluster.url, "/health", &answer);
    assert_int_equal(answer.status, 200);
    http_answer_done(&answer);
    ask_reference(bugs, text, sizeof(text));
    assert_string_equal(text, bugs->reference);
    cluster_assert_idle(&bugs->cluster);
}
