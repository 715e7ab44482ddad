/* prefix_check.c - POST /v1/refrain/prefix_check: will turn N + 1 reuse turn N, and where not?
 *
 *   {"model", "messages", "next_messages", "tools", "chat_template_kwargs"}   two turns
 *   {"model"}                                                                the built-in ones
 *   "template" (or "chat_template") in both: this source instead of the model's own
 *
 * Rendered and tokenized by the same code as a chat, without the ids that turn memory knows. A
 * template of a client is run here, under the evaluator's bounds, because the path is for this
 * machine itself or for a key (auth.h). */
#include "router/api/api.h"

#include <errno.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/clock.h"
#include "proto/base/json.h"
#include "router/api/fields.h"
#include "router/api/messages.h"
#include "router/session/prefix_check.h"

#define REPLY_BYTES_MAX ((size_t)1 << 20)

struct check {
    json_t *root;
    const char *model, *source; /* NULL: not given */
    json_t *messages, *next;    /* NULL: the built-in conversations */
    const json_t *tools, *kwargs;
    struct prompt_maker maker;
    struct chat_template *template; /* of source */
};

/* One rendered turn. */
struct side {
    json_t *messages;
    struct rendered rendered;
    struct token_ids ids;
    bool made;
};

/* ---- body ---- */

static int read_list(struct field_reader *reader, const struct field *field, const json_t *value)
{
    json_t **ret = (json_t **)(void *)((char *)reader->out + field->offset);
    char param[API_PARAM_MAX];
    int r = messages_read(value, ret, reader->error);

    if (r < 0 && strcmp(field->name, "next_messages") == 0) { /* it says "messages" for both */
        (void)snprintf(param, sizeof(param), "next_%.80s", reader->error->param);
        memcpy(reader->error->param, param, sizeof(param));
    }
    return r;
}

static int read_tools(struct field_reader *reader, const struct field *field, const json_t *value)
{
    struct check *check = reader->out;
    (void)field;
    return messages_read_tools(value, &check->tools, reader->error);
}

static int read_kwargs(struct field_reader *reader, const struct field *field, const json_t *value)
{
    struct check *check = reader->out;
    if (!json_is_object(value))
        return fields_wrong_type(reader->error, field->name, "an object", value);
    check->kwargs = value;
    return 0;
}

static const struct field table[] = {
    {.name = "model",
     .type = FIELD_TEXT,
     .kinds = 1,
     .offset = offsetof(struct check, model),
     .max = 256},
    {.name = "template",
     .type = FIELD_TEXT,
     .kinds = 1,
     .offset = offsetof(struct check, source),
     .max = CHAT_TEMPLATE_SOURCE_MAX},
    {.name = "chat_template", /* as chats name it */
     .type = FIELD_TEXT,
     .kinds = 1,
     .offset = offsetof(struct check, source),
     .max = CHAT_TEMPLATE_SOURCE_MAX},
    {.name = "messages",
     .type = FIELD_CUSTOM,
     .kinds = 1,
     .offset = offsetof(struct check, messages),
     .read = read_list},
    {.name = "next_messages",
     .type = FIELD_CUSTOM,
     .kinds = 1,
     .offset = offsetof(struct check, next),
     .read = read_list},
    {.name = "tools", .type = FIELD_CUSTOM, .kinds = 1, .read = read_tools},
    {.name = "chat_template_kwargs", .type = FIELD_CUSTOM, .kinds = 1, .read = read_kwargs},
    {.name = NULL},
};

static int read_body(const struct http_exchange *exchange, struct check *check,
                     struct api_error *error)
{
    struct field_reader reader = {.out = check, .error = error, .kind = 1};
    size_t bytes;
    const void *body = http_exchange_body(exchange, &bytes);

    int r = fields_parse(body, bytes, &check->root, error);
    if (r == 0)
        r = fields_read(table, check->root, &reader);
    if (r < 0)
        return r;
    if (!check->messages != !check->next)
        return api_error_bad(error, check->messages ? "next_messages" : "messages",
                             "'messages' and 'next_messages' are needed together; without both, "
                             "the built-in conversations are checked.");
    return 0;
}

/* The model's tokenizer and template, or the client's template. */
static int find_maker(const struct api *api, struct check *check, struct api_error *error)
{
    struct errmsg err;
    const struct served_model *model = request_find_model(api->models, check->model, error);

    if (!model)
        return -EINVAL;
    check->maker = model->maker;
    check->maker.turn_memory = false;
    if (!check->source)
        return 0;
    if (chat_template_new(check->source, strlen(check->source), &check->template, &err) < 0)
        return api_error_bad(error, "template", "'template': %s.", err.text);
    chat_template_distrust(check->template);
    check->maker.chat_template = check->template;
    check->maker.tool_template = NULL;
    return 0;
}

static void check_done(struct check *check)
{
    chat_template_free(check->template);
    json_decref(check->messages);
    json_decref(check->next);
    json_decref(check->root);
}

/* ---- turns ---- */

static int side_make(const struct check *check, const json_t *messages, size_t count,
                     const json_t *tools, double now, struct side *ret, struct api_error *error)
{
    struct api_request request = {.kind = API_CHAT,
                                  .tools = tools,
                                  .kwargs = check->kwargs,
                                  .add_generation_prompt = true,
                                  .cache_salt = ""};
    struct side side = {.messages = json_array()};

    for (size_t i = 0; i < count; i++)
        (void)json_array_append(side.messages, json_array_get(messages, i));
    request.messages = side.messages;
    token_ids_init(&side.ids, REQUEST_PROMPT_TOKENS_MAX);
    int r = prompt_render(&check->maker, &request, now, &side.rendered, error);
    if (r == 0) {
        side.made = true;
        r = prompt_encode(&check->maker, &request, &side.rendered, &side.ids, NULL, error);
    }
    *ret = side;
    return r;
}

static void side_done(struct side *side)
{
    if (side->made)
        rendered_done(&side->rendered);
    token_ids_done(&side->ids);
    json_decref(side->messages);
    *side = (struct side){0};
}

static void compare(const struct side *a, const struct side *b, struct prefix_verdict *ret)
{
    struct prefix_turn turns[2];
    const struct side *const sides[2] = {a, b};

    for (int i = 0; i < 2; i++)
        turns[i] = (struct prefix_turn){.messages = sides[i]->messages,
                                        .text = sides[i]->rendered.text.data,
                                        .text_bytes = sides[i]->rendered.text.bytes,
                                        .spans = sides[i]->rendered.spans,
                                        .spans_count = sides[i]->rendered.spans_count,
                                        .ids = sides[i]->ids.ids,
                                        .ids_count = sides[i]->ids.count};
    prefix_compare(&turns[0], &turns[1], ret);
}

static int check_given(const struct check *check, struct buffer *out, struct api_error *error)
{
    struct side a = {0}, b = {0};
    struct prefix_verdict verdict;
    double now = clock_unix();

    int r = side_make(check, check->messages, json_array_size(check->messages), check->tools, now,
                      &a, error);
    if (r == 0)
        r = side_make(check, check->next, json_array_size(check->next), check->tools, now, &b,
                      error);
    if (r == 0) {
        compare(&a, &b, &verdict);
        buffer_append_char(out, '{');
        prefix_write(&verdict, out);
        buffer_append_char(out, '}');
    }
    side_done(&a);
    side_done(&b);
    return r;
}

/* The first turn of the probe that does not begin with the one before, else the last. 0, or
 * -EINVAL: the template refuses one. */
static int check_probe(const struct check *check, const struct prefix_probe *probe,
                       struct prefix_verdict *ret, uint32_t *ret_turn, struct api_error *error)
{
    struct errmsg err;
    struct side before = {0}, now = {0};
    json_t *messages = NULL, *tools = NULL;
    double clock = clock_unix();

    int r = json_parse(probe->messages, strlen(probe->messages), SIZE_MAX, &messages, &err);
    if (r == 0 && probe->tools)
        r = json_parse(probe->tools, strlen(probe->tools), SIZE_MAX, &tools, &err);
    ASSERT(r == 0); /* the table's own */
    for (uint32_t turn = 0; probe->turns[turn] && r == 0; turn++) {
        r = side_make(check, messages, probe->turns[turn], tools,
                      clock + (double)probe->later_s * turn, &now, error);
        if (r == 0 && turn > 0) {
            compare(&before, &now, ret);
            ret->stable = ret->text_stable; /* ids that merge are no fault of a template */
            *ret_turn = turn + 1;
        }
        side_done(&before);
        before = now;
        now = (struct side){0};
        if (turn > 0 && r == 0 && !ret->stable)
            break;
    }
    side_done(&before);
    json_decref(messages);
    json_decref(tools);
    return r;
}

static void check_probes(const struct check *check, struct buffer *out)
{
    struct prefix_verdict verdict = {0};
    struct api_error error;
    struct buffer list;
    bool stable = true;
    uint32_t turn = 0;

    buffer_init(&list, REPLY_BYTES_MAX);
    for (const struct prefix_probe *probe = prefix_probes; probe->name; probe++) {
        int r = check_probe(check, probe, &verdict, &turn, &error);
        buffer_printf(&list, "%s{\"probe\":\"%s\",", probe == prefix_probes ? "" : ",",
                      probe->name);
        if (r < 0) {
            buffer_append_text(&list, "\"error\":");
            json_append_sentence(&list, error.message);
        } else {
            buffer_printf(&list, "\"turn\":%u,", turn);
            prefix_write(&verdict, &list);
            stable = stable && verdict.stable;
        }
        buffer_append_char(&list, '}');
    }
    buffer_printf(out, "{\"stable\":%s,\"probes\":[", stable ? "true" : "false");
    buffer_append(out, list.data, list.bytes);
    buffer_append_text(out, "]}");
    buffer_done(&list);
}

void prefix_check_handler(struct http_exchange *exchange, void *user)
{
    const struct api *api = user;
    struct check check = {0};
    struct api_error error;
    struct buffer out;

    if (!auth_admin(api->auth, exchange))
        return;
    buffer_init(&out, REPLY_BYTES_MAX);
    int r = read_body(exchange, &check, &error);
    if (r == 0)
        r = find_maker(api, &check, &error);
    if (r == 0 && check.messages)
        r = check_given(&check, &out, &error);
    else if (r == 0)
        check_probes(&check, &out);
    if (r < 0)
        api_error_reply(exchange, &error);
    else
        api_reply_json(exchange, &out);
    check_done(&check);
    buffer_done(&out);
}
