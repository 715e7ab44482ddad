/* adapters.c - POST /v1/load_lora_adapter and /v1/unload_lora_adapter, vLLM's bodies:
 *
 *   {"lora_name", "lora_path", "base_model_name"}      {"lora_name"}
 *
 * base_model_name is needed only where several models are served. The path is one of the workers'
 * machines. Off unless --allow-runtime-lora-updating, and for this machine or a key only (auth.h):
 * workers read the folder that a request names. */
#include "router/api/api.h"

#include <errno.h>
#include <string.h>

#include "proto/base/mem.h"
#include "router/api/fields.h"

#define NAME_MAX_BYTES 128
#define PATH_MAX_BYTES 4096

struct lora_body {
    json_t *root;
    const char *name, *path, *base; /* NULL: not given */
};

/* A client that waits for the workers. */
struct waiter {
    struct http_exchange *exchange;
    struct worker_links *links;
    char name[NAME_MAX_BYTES + 1];
    bool unload;
};

static const struct field table[] = {
    {.name = "lora_name",
     .type = FIELD_TEXT,
     .kinds = 1,
     .offset = offsetof(struct lora_body, name),
     .max = NAME_MAX_BYTES},
    {.name = "lora_path",
     .type = FIELD_TEXT,
     .kinds = 1,
     .offset = offsetof(struct lora_body, path),
     .max = PATH_MAX_BYTES},
    {.name = "base_model_name",
     .type = FIELD_TEXT,
     .kinds = 1,
     .offset = offsetof(struct lora_body, base),
     .max = 256},
    {.name = "lora_int_id", .type = FIELD_IGNORED, .kinds = 1},
    {.name = "load_inplace", .type = FIELD_REFUSED, .kinds = 1},
    {.name = NULL},
};

/* As workers have it: names stand in logs and JSON. */
static bool name_is_good(const char *name)
{
    for (; *name; name++) {
        if (*name <= ' ' || *name > '~' || *name == '"' || *name == '\\')
            return false;
    }
    return true;
}

static int read_body(const struct http_exchange *exchange, struct lora_body *body, bool unload,
                     struct api_error *error)
{
    struct field_reader reader = {.out = body, .error = error, .kind = 1};
    size_t bytes;
    const void *text = http_exchange_body(exchange, &bytes);

    int r = fields_parse(text, bytes, &body->root, error);
    if (r == 0)
        r = fields_read(table, body->root, &reader);
    if (r < 0)
        return r;
    if (!body->name || !body->name[0])
        return api_error_bad(error, "lora_name", "'lora_name' must be given.");
    if (!name_is_good(body->name))
        return api_error_bad(error, "lora_name",
                             "'lora_name' must be printable ASCII without blanks, quotes and "
                             "backslashes.");
    if (!unload && (!body->path || !body->path[0]))
        return api_error_bad(error, "lora_path", "'lora_path' must be given.");
    return 0;
}

/* Errno of links or of a worker -> answer. */
static void explain(int r, const char *text, bool unload, struct api_error *error)
{
    bool of_name = unload || r == -EEXIST || r == -ENOSPC;

    if (r == -EAGAIN) {
        (void)api_error_set(error, 503, "no_worker_ready", NULL, "%s. Try again.", text);
        error->retry_after_s = 1;
    } else if (r == -EBUSY) {
        (void)api_error_set(error, 409, "adapter_busy", "lora_name", "%s. Try again later.", text);
    } else if (r == -ENOENT && unload) {
        (void)api_error_set(error, 404, "adapter_not_found", "lora_name", "%s.", text);
    } else {
        (void)api_error_set(error, 400, "invalid_value", of_name ? "lora_name" : "lora_path",
                            "The adapter is not loaded: %s.", text);
    }
}

static void on_done(void *user, int r, const char *text)
{
    struct waiter *waiter = user;
    struct http_exchange *exchange = waiter->exchange;
    struct api_error error;
    char sentence[256];

    if (r < 0) {
        explain(r, text, waiter->unload, &error);
        api_error_reply(exchange, &error);
    } else {
        int bytes =
            snprintf(sentence, sizeof(sentence), "Success: LoRA adapter '%s' %s successfully.",
                     waiter->name, waiter->unload ? "removed" : "added");
        http_exchange_reply(exchange, 200, "text/plain; charset=utf-8", sentence, (size_t)bytes);
    }
    mem_free(waiter);
}

static void on_gone(void *owner)
{
    struct waiter *waiter = owner;
    links_leave_adapter(waiter->links, waiter); /* what was asked for goes on */
    mem_free(waiter);
}

static int begin(const struct api *api, const struct lora_body *body, struct waiter *waiter,
                 struct api_error *error)
{
    struct errmsg err = {""};
    int r;

    if (waiter->unload) {
        r = links_unload_adapter(api->links, body->name, on_done, waiter, &err);
    } else {
        const struct served_model *model = request_find_model(api->models, body->base, error);
        if (!model)
            return -EINVAL;
        const struct links_adapter wanted = {
            .name = body->name, .path = body->path, .base = model->card->name};
        r = links_load_adapter(api->links, &wanted, on_done, waiter, &err);
    }
    if (r == 0)
        return 0;
    explain(r, err.text, waiter->unload, error);
    return -EINVAL;
}

static void wait_for_workers(struct http_exchange *exchange, const struct api *api,
                             const struct lora_body *body, bool unload)
{
    struct waiter *waiter = mem_zalloc(sizeof(*waiter));
    struct api_error error;

    waiter->exchange = exchange;
    waiter->links = api->links;
    waiter->unload = unload;
    (void)snprintf(waiter->name, sizeof(waiter->name), "%s", body->name);
    http_exchange_on_gone(exchange, on_gone, waiter);
    if (begin(api, body, waiter, &error) == 0)
        return;
    api_error_reply(exchange, &error);
    mem_free(waiter);
}

static void handle(struct http_exchange *exchange, const struct api *api, bool unload)
{
    struct lora_body body = {.root = NULL};
    struct api_error error;

    if (!auth_admin(api->auth, exchange))
        return;
    if (!api->settings->lora_updating) {
        http_exchange_reply_error(exchange, 403, "runtime_lora_updating_off", NULL,
                                  "Adapters are not loaded at runtime here: start refrain-router "
                                  "with --allow-runtime-lora-updating.");
        return;
    }
    if (read_body(exchange, &body, unload, &error) < 0)
        api_error_reply(exchange, &error);
    else
        wait_for_workers(exchange, api, &body, unload);
    json_decref(body.root);
}

void load_lora_handler(struct http_exchange *exchange, void *user)
{
    handle(exchange, user, false);
}

void unload_lora_handler(struct http_exchange *exchange, void *user)
{
    handle(exchange, user, true);
}
