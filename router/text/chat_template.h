/* chat_template.h - the model's own Jinja chat template: messages -> text, and who wrote what.
 *
 * Semantics: Jinja2 3.1 as Hugging Face transformers sets it up (immutable sandbox, trim_blocks,
 * lstrip_blocks, loop controls, generation blocks transparent). Lexer, parser and evaluator are
 * jinja_{lex,parse,eval}.c. Bounded: CHAT_TEMPLATE_* below; a template that passes a bound gets an
 * error naming line and cause. A compiled template is immutable; rendering is re-entrant. */
#ifndef REFRAIN_ROUTER_TEXT_CHAT_TEMPLATE_H
#define REFRAIN_ROUTER_TEXT_CHAT_TEMPLATE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/buffer.h"
#include "proto/base/errmsg.h"

#define CHAT_TEMPLATE_SOURCE_MAX (1u << 20)
#define CHAT_TEMPLATE_STEPS_MAX 50000000u /* evaluated nodes, bytes by 4 to 64 */
#define CHAT_TEMPLATE_FOREIGN_STEPS_MAX 2000000u
#define CHAT_TEMPLATE_DEPTH_MAX 200u /* nested expressions, blocks, macro calls */
#define CHAT_TEMPLATE_OUTPUT_MAX (64u << 20)
#define CHAT_TEMPLATE_MEMORY_MAX (256u << 20)

struct chat_template;

/* Which request field a run of output bytes was copied from. */
enum span_source {
    SPAN_CONTENT = 1, /* messages[message].content or another text of the message */
    SPAN_ROLE,        /* messages[message].role */
    SPAN_TOOLS,       /* from `tools` */
    SPAN_DOCUMENTS,
    SPAN_KWARGS, /* chat_template_kwargs */
};
/* Output bytes [start, end) came from outside the template. Everything else is the template's own
 * text. Rising, not overlapping. Text that passed through filters or methods (trim, replace,
 * tojson,
 * +, ~, slices...) keeps its mark byte for byte where the operation copies bytes, and is marked as
 * a whole where it transforms them. */
struct text_span {
    uint32_t start, end;
    enum span_source source;
    int32_t message; /* index in messages, -1 for tools, documents, kwargs */
};

struct render_input {
    const json_t *messages;  /* array */
    const json_t *tools;     /* array or NULL (None) */
    const json_t *documents; /* array or NULL (None) */
    const json_t *kwargs;    /* object or NULL: extra variables */
    bool add_generation_prompt;
    const char *bos_token, *eos_token; /* NULL: undefined */
    double now;                        /* unix seconds for strftime_now, local time UTC */
};

struct rendered {
    struct buffer text;
    struct text_span *spans;
    size_t spans_count;
};

/* 0; -EINVAL: syntax, *err names line and cause; -E2BIG. Source is copied. */
int chat_template_new(const char *source, size_t bytes, struct chat_template **ret_template,
                      struct errmsg *err);
/* A client's: it may take CHAT_TEMPLATE_FOREIGN_STEPS_MAX steps, a tenth of a second or so, since
 * everybody waits while it renders. */
void chat_template_distrust(struct chat_template *template);
void chat_template_free(struct chat_template *template);
/* What it holds, its source included: many times the source where that is nothing but tags. */
size_t chat_template_bytes(const struct chat_template *template);
/* 0; -EINVAL: raise_exception (the text is the template's own sentence, *ret_line set) or a type or
 * undefined error; -E2BIG: a bound. ret_line may be NULL. *ret is untouched on failure. */
int chat_template_render(const struct chat_template *template, const struct render_input *input,
                         struct rendered *ret, uint32_t *ret_line, struct errmsg *err);
void rendered_done(struct rendered *rendered);

#endif
