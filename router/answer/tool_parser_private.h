/* tool_parser_private.h - the parser's state, for its readers: call_object.c, xml_parameters.c.
 *
 * A reader takes one byte at a time. Everything since the last call's arguments is in `held`, the
 * byte itself too, until the reader commits to a call; then `held` is empty and arguments go to the
 * call. */
#ifndef REFRAIN_ROUTER_ANSWER_TOOL_PARSER_PRIVATE_H
#define REFRAIN_ROUTER_ANSWER_TOOL_PARSER_PRIVATE_H

#include "router/answer/json_scan.h"
#include "router/answer/tool_parser.h"

enum tool_take {
    TOOL_MORE = 0, /* the byte was used, and the step goes on */
    TOOL_NEXT,     /* it was used, and the step is done */
    TOOL_PASS,     /* the step was done before it */
    TOOL_BAD       /* it cannot be: no call, or the end of one that broke off */
};

enum call_object_state {
    CALL_OPEN = 0,
    CALL_FIRST_KEY,
    CALL_NEXT_KEY,
    CALL_IN_KEY,
    CALL_COLON,
    CALL_VALUE,
    CALL_IN_VALUE,
    CALL_AFTER
};

enum call_field { CALL_OTHER = 0, CALL_NAME, CALL_ARGUMENTS };

struct call_object {
    enum call_object_state state;
    enum call_field field;
    struct json_scan scan;
    size_t from;                             /* in held: the key or value being read */
    size_t arguments_from, arguments_bytes;  /* in held: arguments that came before the name */
    bool has_name, has_arguments, streaming; /* streaming: arguments go to the call at once */
};

enum xml_state { XML_BETWEEN = 0, XML_TAG, XML_KEY, XML_VALUE_START, XML_VALUE };

enum xml_type { XML_STRING = 0, XML_NULLABLE, XML_JSON };

struct xml_parameters {
    enum xml_state state;
    enum xml_type type;
    bool committed;
    uint32_t count; /* parameters so far */
    size_t from;    /* in held: the tag or key being read */
    size_t matched; /* bytes of the end tag at the end of held */
    char key[TOOL_NAME_MAX + 1];
    size_t key_bytes;
};

struct tool_parser {
    struct tool_parser_options options;
    const struct tool_step *step; /* NULL: content */
    bool is_plain[256];           /* bytes that are content wherever content is read */
    size_t matched;               /* bytes of the step's text, or of a start at the end of held */
    struct buffer held;
    bool in_call; /* held has, from call_from on, a call or parameter that is none yet */
    size_t call_from;
    bool dropping;   /* the call is past the client's maximum */
    bool only_calls; /* only white space so far, or since the last call */
    bool after_call; /* nothing was written since the last call */
    char name[TOOL_NAME_MAX + 1];
    size_t name_bytes;
    struct json_scan scan; /* STEP_ARGUMENTS */
    bool committed;        /* STEP_ARGUMENTS has begun the call */
    struct call_object object;
    struct xml_parameters xml;
};

/* The last `bytes` of held begin a call, unless one has begun: content if nothing comes of it. */
void tool_parser_hold(struct tool_parser *parser, size_t bytes);
/* Begin a call of parser->name; `held` is used up. False: there is no room for it. */
bool tool_parser_commit(struct tool_parser *parser);
/* More of that call's arguments. */
void tool_parser_arguments(struct tool_parser *parser, const char *text, size_t bytes);

enum tool_take call_object_take(struct tool_parser *parser, char c);
enum tool_take xml_parameters_take(struct tool_parser *parser, char c);

#endif
