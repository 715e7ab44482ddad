/* text_render.c - messages -> text by a chat template, a line at a time.
 *
 * Fields with a meaning of their own: messages, tools, documents, add_generation_prompt, bos_token,
 * eos_token, now. All others are variables of the template, and so are those inside
 * chat_template_kwargs. bos_token and eos_token that a line does not give are those that stand with
 * the template. The messages go to the template as they are. */
#include "deploy/cli/text_render.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "deploy/cli/text_lines.h"
#include "proto/base/clock.h"
#include "proto/base/mem.h"
#include "proto/files/template_path.h"
#include "router/text/chat_template.h"

struct render {
    struct template_file file;
    struct chat_template *template;
};

/* "2024-12-19T08:30:00", with a fraction, Z or +hh:mm if it likes. */
static int parse_now(const char *text, double *ret_now)
{
    struct tm parts = {0};
    int offset_hours = 0, offset_minutes = 0, used = 0;
    char sign = '\0';
    const char *rest = strptime(text, "%Y-%m-%dT%H:%M", &parts);
    if (rest == NULL)
        rest = strptime(text, "%Y-%m-%d %H:%M", &parts);
    if (rest == NULL)
        rest = strptime(text, "%Y-%m-%d", &parts);
    if (rest != NULL && *rest == ':')
        rest = strptime(rest, ":%S", &parts);
    if (rest == NULL)
        return -EINVAL;
    if (*rest == '.')
        rest += 1 + strspn(rest + 1, "0123456789");
    if (strcmp(rest, "Z") != 0 && *rest != '\0') {
        if (sscanf(rest, "%c%2d:%2d%n", &sign, &offset_hours, &offset_minutes, &used) != 3 ||
            rest[used] != '\0' || (sign != '+' && sign != '-'))
            return -EINVAL;
    }
    int offset = (offset_hours * 60 + offset_minutes) * 60;
    *ret_now = (double)(timegm(&parts) - (sign == '-' ? -offset : offset));
    return 0;
}

static int get_list(const json_t *object, const char *key, const json_t **ret, struct errmsg *err)
{
    const json_t *value = json_object_get(object, key);
    if (value == NULL || json_is_null(value))
        return 0;
    if (!json_is_array(value))
        return errmsg_set(err, -EINVAL, "'%s' must be a list", key);
    *ret = value;
    return 0;
}

static int get_text(const json_t *object, const char *key, const char **text, struct errmsg *err)
{
    const json_t *value = json_object_get(object, key);
    if (value == NULL || json_is_null(value))
        return 0;
    if (!json_is_string(value) || strlen(json_string_value(value)) != json_string_length(value))
        return errmsg_set(err, -EINVAL, "'%s' must be a string without NUL", key);
    *text = json_string_value(value);
    return 0;
}

static int read_input(const struct render *render, const json_t *object, json_t *kwargs,
                      struct render_input *input, struct errmsg *err)
{
    const json_t *prompt = json_object_get(object, "add_generation_prompt");
    const char *now = NULL;
    *input = (struct render_input){.kwargs = kwargs,
                                   .bos_token = render->file.bos_token,
                                   .eos_token = render->file.eos_token,
                                   .now = clock_unix()};
    int r = get_list(object, "messages", &input->messages, err);
    if (r == 0 && input->messages == NULL)
        r = errmsg_set(err, -EINVAL, "'messages' must be a list");
    if (r == 0)
        r = get_list(object, "tools", &input->tools, err);
    if (r == 0)
        r = get_list(object, "documents", &input->documents, err);
    if (r == 0)
        r = get_text(object, "bos_token", &input->bos_token, err);
    if (r == 0)
        r = get_text(object, "eos_token", &input->eos_token, err);
    if (r == 0)
        r = get_text(object, "now", &now, err);
    if (r == 0 && now != NULL && parse_now(now, &input->now) < 0)
        r = errmsg_set(err, -EINVAL, "'now' must be an ISO 8601 time");
    if (r == 0 && prompt != NULL && !json_is_null(prompt) && !json_is_boolean(prompt))
        r = errmsg_set(err, -EINVAL, "'add_generation_prompt' must be true or false");
    input->add_generation_prompt = json_is_true(prompt);
    return r;
}

/* What is left of the line for the template. */
static json_t *read_kwargs(const json_t *object)
{
    static const char *const own[] = {
        "messages",  "tools",     "documents", "add_generation_prompt",
        "bos_token", "eos_token", "now",       "chat_template_kwargs"};
    json_t *kwargs = json_copy((json_t *)(uintptr_t)object);
    const json_t *more = json_object_get(object, "chat_template_kwargs");
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        (void)json_object_del(kwargs, own[i]);
    if (json_is_object(more))
        (void)json_object_update(kwargs, (json_t *)(uintptr_t)more);
    return kwargs;
}

static int render_line(void *owner, const json_t *object, struct buffer *out, uint32_t *line,
                       struct errmsg *err)
{
    const struct render *render = owner;
    struct render_input input;
    struct rendered rendered = {0};
    json_t *kwargs = read_kwargs(object);
    int r = read_input(render, object, kwargs, &input, err);
    if (r == 0)
        r = chat_template_render(render->template, &input, &rendered, line, err);
    if (r == 0) {
        buffer_append_text(out, "{\"text\":");
        json_append_string(out, rendered.text.data, rendered.text.bytes);
        buffer_append_char(out, '}');
        rendered_done(&rendered);
    }
    json_decref(kwargs);
    return r;
}

int text_render_run(const char *path, struct errmsg *err)
{
    struct render render = {0};
    int r = template_from_path(path, &render.file, err);
    if (r < 0)
        return r;
    r = chat_template_new(render.file.source, render.file.bytes, &render.template, err);
    if (r < 0)
        (void)errmsg_prefix(err, r, "%s", path);
    else
        r = text_lines_run(render_line, &render, err);
    chat_template_free(render.template);
    template_file_done(&render.file);
    return r;
}
