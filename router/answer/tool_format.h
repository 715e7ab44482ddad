/* tool_format.h - how a family of models writes tool calls, as a table that tool_parser.c runs.
 *
 * A format is a list of steps from a marker to the end of one call or list of calls. A new format
 * of JSON calls is one more table; one whose arguments are no JSON needs a reader of its own, as
 * xml_parameters.c is. All data is constant. Thread: any. */
#ifndef REFRAIN_ROUTER_ANSWER_TOOL_FORMAT_H
#define REFRAIN_ROUTER_ANSWER_TOOL_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TOOL_STARTS_MAX 2u
#define TOOL_MARKERS_MAX 6u
#define TOOL_TEXT_MAX 48u /* bytes of a start, marker or STEP_TEXT */

enum tool_step_kind {
    STEP_END = 0,    /* back to content */
    STEP_TEXT,       /* exactly `text` */
    STEP_SPACE,      /* white space, or none */
    STEP_BRANCH,     /* the next byte is text[0]: go on at `to` */
    STEP_GOTO,       /* go on at `to` */
    STEP_NAME,       /* the function's name */
    STEP_WORD,       /* a word without meaning to us */
    STEP_OBJECT,     /* {"name": ..., "arguments": ...}, a whole call */
    STEP_ARGUMENTS,  /* a JSON object, for the name before it */
    STEP_PARAMETERS, /* <parameter=a>...</parameter>, up to </function> */
};

struct tool_step {
    enum tool_step_kind kind;
    const char *text;
    uint8_t to;
};

/* What turns content into a call. Its first byte must not come again inside it. */
struct tool_start {
    const char *text; /* NULL: no more */
    uint8_t step;
    bool bare; /* "{": only where nothing but calls came before, and part of the call itself */
};

/* How required and named calls are forced by a grammar: begin NAME middle ARGUMENTS end. */
struct tool_force {
    const char *begin; /* NULL: this format cannot be forced */
    const char *middle, *end, *separator;
    bool plain_name; /* not as a JSON string */
    bool marker;     /* `begin` has a marker, which may be a control token */
};

struct tool_format {
    const char *name; /* of --tool-call-parser */
    struct tool_start starts[TOOL_STARTS_MAX];
    const struct tool_step *steps;
    bool strict;                           /* only names of the request, and with arguments */
    bool short_ids;                        /* 9 letters */
    const char *markers[TOOL_MARKERS_MAX]; /* texts that may be control tokens of a vocabulary */
    struct tool_force force;
    const char *needles[4]; /* all stand in the templates of such models */
    const char *token;      /* in the vocabulary, if the template says nothing; or NULL */
};

/* The formats in order; NULL: no more. */
const struct tool_format *tool_format_at(size_t index);
/* Of --tool-call-parser; NULL: no such name. */
const struct tool_format *tool_format_find(const char *name);
/* What this template tells models to write, or NULL. */
const struct tool_format *tool_format_of_template(const char *source, size_t bytes);
/* The format at `index` that can be told by its token; *ret_token is that. NULL: no more. */
const struct tool_format *tool_format_by_token(size_t index, const char **ret_token);
/* Bare JSON calls, for answers that a grammar forces where the own format cannot be. */
const struct tool_format *tool_format_plain(void);

extern const struct tool_format *const tool_formats_json[]; /* each ends with NULL */
extern const struct tool_format *const tool_formats_named[];
extern const struct tool_format *const tool_formats_xml[];

#endif
