/* chat_template.c - the model's own Jinja chat template: messages -> text, and who wrote what.
 *
 *   source --jinja_lex, jinja_parse--> tree (immutable, shared)
 *   request fields --values with marks--> jinja_exec --> text + marks
 * Request strings are not copied: the values point into the caller's JSON. Everything a render
 * allocates is in one arena, freed at its end. Cost: the evaluated nodes, plus one copy of the
 * text into the output. */
#include "router/text/chat_template.h"

#include <errno.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "router/text/jinja_eval.h"
#include "router/text/jinja_parse.h"
#include "router/text/jinja_utf8.h"

struct chat_template {
    struct jinja_template tmpl;
    uint32_t steps_max;
};

/* Jinja reads lines: every kind of line end is '\n', and one at the end of the source is dropped.
 */
static size_t normalize_lines(char *text, size_t bytes)
{
    size_t to = 0;
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == '\r') {
            text[to++] = '\n';
            i += i + 1 < bytes && text[i + 1] == '\n';
        } else {
            text[to++] = text[i];
        }
    }
    return to > 0 && text[to - 1] == '\n' ? to - 1 : to;
}

int chat_template_new(const char *source, size_t bytes, struct chat_template **ret_template,
                      struct errmsg *err)
{
    if (bytes > CHAT_TEMPLATE_SOURCE_MAX)
        return errmsg_set(err, -E2BIG, "the chat template has %zu bytes, at most %u are allowed",
                          bytes, CHAT_TEMPLATE_SOURCE_MAX);
    if (!jinja_utf8_valid(source, bytes))
        return errmsg_set(err, -EINVAL, "the chat template is not valid UTF-8");
    struct chat_template *template = mem_zalloc(sizeof(*template));
    template->steps_max = CHAT_TEMPLATE_STEPS_MAX;
    arena_init(&template->tmpl.arena, CHAT_TEMPLATE_MEMORY_MAX);
    char *copy = arena_alloc(&template->tmpl.arena, bytes + 1);
    ASSERT(copy != NULL); /* SOURCE_MAX is far below MEMORY_MAX */
    if (bytes > 0)
        memcpy(copy, source, bytes);
    bytes = normalize_lines(copy, bytes);
    int r = jinja_parse(&template->tmpl, copy, bytes, err);
    if (r < 0) {
        chat_template_free(template);
        return r;
    }
    *ret_template = template;
    return 0;
}

void chat_template_distrust(struct chat_template *template)
{
    template->steps_max = CHAT_TEMPLATE_FOREIGN_STEPS_MAX;
}

void chat_template_free(struct chat_template *template)
{
    if (template == NULL)
        return;
    arena_done(&template->tmpl.arena);
    mem_free(template);
}

size_t chat_template_bytes(const struct chat_template *template)
{
    return sizeof(*template) + template->tmpl.arena.bytes_used;
}

static int from_json(struct jinja_eval *ev, const json_t *json, struct jinja_origin origin,
                     struct value *ret);

static int string_from_json(struct jinja_eval *ev, const char *text, size_t bytes,
                            struct jinja_origin origin, struct value *ret)
{
    struct jinja_str *string = jinja_str_view(ev, text, bytes, origin);
    if (string == NULL)
        return ev->code;
    *ret = jinja_string(string);
    return 0;
}

static int list_from_json(struct jinja_eval *ev, const json_t *json, struct jinja_origin origin,
                          struct value *ret)
{
    size_t count = json_array_size(json);
    struct value *values = jinja_alloc(ev, (count + 1) * sizeof(*values));
    if (values == NULL)
        return ev->code;
    for (size_t i = 0; i < count; i++) {
        int r = from_json(ev, json_array_get(json, i), origin, &values[i]);
        if (r < 0)
            return r;
    }
    return jinja_make_list(ev, VALUE_LIST, values, (uint32_t)count, ret);
}

static int dict_from_json(struct jinja_eval *ev, const json_t *json, struct jinja_origin origin,
                          struct value *ret)
{
    /* jansson's iterators want a pointer without const; nothing is changed. */
    json_t *object = (json_t *)(uintptr_t)json;
    struct jinja_dict *dict = jinja_dict_new(ev, (uint32_t)json_object_size(json));
    if (dict == NULL)
        return ev->code;
    for (void *at = json_object_iter(object); at != NULL; at = json_object_iter_next(object, at)) {
        struct value key, value;
        const char *name = json_object_iter_key(at);
        int r = string_from_json(ev, name, json_object_iter_key_len(at), origin, &key);
        if (r >= 0)
            r = from_json(ev, json_object_iter_value(at), origin, &value);
        if (r >= 0)
            r = jinja_dict_set(ev, dict, &key, &value);
        if (r < 0)
            return r;
    }
    *ret = (struct value){.type = VALUE_DICT, .dict = dict};
    return 0;
}

static int from_json(struct jinja_eval *ev, const json_t *json, struct jinja_origin origin,
                     struct value *ret)
{
    int r = jinja_enter(ev);
    if (r < 0)
        return r;
    switch (json_typeof(json)) {
    case JSON_OBJECT:
        r = dict_from_json(ev, json, origin, ret);
        break;
    case JSON_ARRAY:
        r = list_from_json(ev, json, origin, ret);
        break;
    case JSON_STRING:
        r = string_from_json(ev, json_string_value(json), json_string_length(json), origin, ret);
        break;
    case JSON_INTEGER:
        *ret = jinja_int(json_integer_value(json));
        break;
    case JSON_REAL:
        *ret = jinja_float(json_real_value(json));
        break;
    case JSON_NULL:
        *ret = jinja_none();
        break;
    default:
        *ret = jinja_bool(json_is_true(json));
        break;
    }
    if (ret->type != VALUE_STRING) {
        ret->source = origin.source;
        ret->message = origin.message;
    }
    jinja_leave(ev);
    return r;
}

/* messages[i]: the text of the key "role" is marked as role, everything else as content. */
static int message_from_json(struct jinja_eval *ev, const json_t *json, int32_t message,
                             struct value *ret)
{
    const struct jinja_origin role = {SPAN_ROLE, message};
    int r = from_json(ev, json, (struct jinja_origin){SPAN_CONTENT, message}, ret);
    if (r < 0 || ret->type != VALUE_DICT)
        return r;
    const struct value *found = jinja_dict_get_str(ret->dict, "role", 4);
    if (found == NULL || found->type != VALUE_STRING)
        return 0;
    struct value key, value;
    r = string_from_json(ev, "role", 4, (struct jinja_origin){SPAN_CONTENT, message}, &key);
    if (r >= 0)
        r = string_from_json(ev, found->string->data, found->string->bytes, role, &value);
    return r < 0 ? r : jinja_dict_set(ev, ret->dict, &key, &value);
}

static int messages_from_json(struct jinja_eval *ev, const json_t *json, struct value *ret)
{
    size_t count = json_array_size(json); /* 0 when it is not an array */
    struct value *values = jinja_alloc(ev, (count + 1) * sizeof(*values));
    if (values == NULL)
        return ev->code;
    for (size_t i = 0; i < count; i++) {
        int r = message_from_json(ev, json_array_get(json, i), (int32_t)i, &values[i]);
        if (r < 0)
            return r;
    }
    return jinja_make_list(ev, VALUE_LIST, values, (uint32_t)count, ret);
}

static int field_from_json(struct jinja_eval *ev, const json_t *json, enum span_source source,
                           struct value *ret)
{
    *ret = jinja_none();
    if (json == NULL)
        return 0;
    return from_json(ev, json, (struct jinja_origin){(uint8_t)source, -1}, ret);
}

/* chat_template_kwargs: any name the template knows, except the conversation itself. */
static int set_kwargs(struct jinja_eval *ev, const json_t *kwargs)
{
    const struct jinja_origin origin = {SPAN_KWARGS, -1};
    for (uint32_t i = 0; kwargs != NULL && i < ev->tmpl->symbols_count; i++) {
        const struct jinja_str *name = ev->tmpl->symbols[i];
        const json_t *json = json_object_getn(kwargs, name->data, name->bytes);
        if (json == NULL || i == SYMBOL_MESSAGES)
            continue;
        int r = from_json(ev, json, origin, &ev->root[i]);
        if (r < 0)
            return r;
    }
    return 0;
}

static int set_token(struct jinja_eval *ev, uint32_t symbol, const char *text)
{
    if (text == NULL)
        return 0;
    return string_from_json(ev, text, strlen(text), (struct jinja_origin){0, -1},
                            &ev->root[symbol]);
}

static int set_variables(struct jinja_eval *ev, const struct render_input *input)
{
    ev->root = jinja_alloc(ev, ev->tmpl->symbols_count * sizeof(*ev->root));
    if (ev->root == NULL)
        return ev->code;
    for (uint32_t i = 0; i < ev->tmpl->symbols_count; i++)
        ev->root[i] = jinja_missing();
    ev->root[SYMBOL_ADD_GENERATION_PROMPT] = jinja_bool(input->add_generation_prompt);
    int r = messages_from_json(ev, input->messages, &ev->root[SYMBOL_MESSAGES]);
    if (r >= 0)
        r = field_from_json(ev, input->tools, SPAN_TOOLS, &ev->root[SYMBOL_TOOLS]);
    if (r >= 0)
        r = field_from_json(ev, input->documents, SPAN_DOCUMENTS, &ev->root[SYMBOL_DOCUMENTS]);
    if (r >= 0)
        r = set_token(ev, SYMBOL_BOS_TOKEN, input->bos_token);
    if (r >= 0)
        r = set_token(ev, SYMBOL_EOS_TOKEN, input->eos_token);
    return r < 0 ? r : set_kwargs(ev, input->kwargs);
}

int chat_template_render(const struct chat_template *template, const struct render_input *input,
                         struct rendered *ret, uint32_t *ret_line, struct errmsg *err)
{
    struct arena arena;
    struct buffer text;
    arena_init(&arena, CHAT_TEMPLATE_MEMORY_MAX);
    buffer_init(&text, CHAT_TEMPLATE_OUTPUT_MAX);
    struct jinja_eval ev = {.tmpl = &template->tmpl,
                            .arena = &arena,
                            .out = &text,
                            .line = 1,
                            .steps_max = template->steps_max,
                            .now = input->now,
                            .err = err};
    int r = set_variables(&ev, input);
    if (r >= 0)
        r = jinja_exec_body(&ev, &template->tmpl.body);
    ASSERT(r <= 0); /* the parser lets no break out of its loop */
    arena_done(&arena);
    if (r < 0) {
        if (ret_line != NULL)
            *ret_line = ev.line;
        mem_free(ev.spans);
        buffer_done(&text);
        return r;
    }
    *ret = (struct rendered){.text = text, .spans = ev.spans, .spans_count = ev.spans_count};
    return 0;
}

void rendered_done(struct rendered *rendered)
{
    buffer_done(&rendered->text);
    mem_free(rendered->spans);
    rendered->spans = NULL;
    rendered->spans_count = 0;
}
