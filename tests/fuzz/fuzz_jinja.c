/* fuzz_jinja.c - any bytes as a chat template, over a fixed conversation.
 *
 * Must hold: no crash; an error has a sentence; marks rise, do not overlap and lie inside the text;
 * the text is UTF-8; and a request's text (three Greek letters that no input is likely to spell)
 * never appears outside the marks. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/assert.h"
#include "router/text/chat_template.h"
#include "router/text/jinja_utf8.h"

#define SECRET "\xce\xbe\xcf\x88\xce\xb6" /* xi psi zeta */
#define SECRET_UPPER "\xce\x9e\xce\xa8\xce\x96"

static const char messages_json[] =
    "[{\"role\": \"system\", \"content\": \"a " SECRET " b\"},"
    " {\"role\": \"user\", \"content\": \"  " SECRET ", " SECRET "\\n\", \"n\": 3},"
    " {\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"id\": \"x1\", \"type\":"
    "  \"function\", \"function\": {\"name\": \"f\", \"arguments\": {\"" SECRET "\": [1, 2.5, true,"
    "  \"" SECRET "\"]}}}]},"
    " {\"role\": \"tool\", \"content\": [{\"type\": \"text\", \"text\": \"" SECRET "\"}]}]";
static const char tools_json[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"" SECRET "\", \"parameters\": {}}}]";

static void check_marks(const struct rendered *out)
{
    size_t end = 0;
    for (size_t i = 0; i < out->spans_count; i++) {
        ASSERT(out->spans[i].start >= end && out->spans[i].end > out->spans[i].start);
        ASSERT(out->spans[i].source >= SPAN_CONTENT && out->spans[i].source <= SPAN_KWARGS);
        end = out->spans[i].end;
    }
    ASSERT(end <= out->text.bytes);
}

static void check_secret(const struct rendered *out, const char *secret)
{
    const char *at = out->text.data;
    const char *end = at + out->text.bytes;
    size_t i = 0;
    while ((at = memmem(at, (size_t)(end - at), secret, strlen(secret))) != NULL) {
        size_t start = (size_t)(at - out->text.data);
        while (i < out->spans_count && out->spans[i].end <= start)
            i++;
        ASSERT(i < out->spans_count && out->spans[i].start <= start);
        at += strlen(secret);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static json_t *messages, *tools; /* made once, never changed */
    struct chat_template *template = NULL;
    struct rendered out;
    struct errmsg err = {""};
    if (messages == NULL) {
        messages = json_loads(messages_json, 0, NULL);
        tools = json_loads(tools_json, 0, NULL);
        ASSERT(messages != NULL && tools != NULL);
    }
    const struct render_input input = {.messages = messages,
                                       .tools = tools,
                                       .add_generation_prompt = true,
                                       .bos_token = "<s>",
                                       .eos_token = "</s>",
                                       .now = 1734597000.0};
    if (chat_template_new((const char *)data, size, &template, &err) < 0) {
        ASSERT(err.text[0] != '\0');
        return 0;
    }
    int r = chat_template_render(template, &input, &out, NULL, &err);
    chat_template_free(template);
    if (r < 0)
        return 0;
    check_marks(&out);
    ASSERT(jinja_utf8_valid(out.text.data, out.text.bytes));
    if (memmem(data, size, SECRET, 6) == NULL && memmem(data, size, SECRET_UPPER, 6) == NULL) {
        check_secret(&out, SECRET);
        check_secret(&out, SECRET_UPPER);
    }
    rendered_done(&out);
    return 0;
}
