/* jinja_eval.h - one render: its memory, limits, names and errors; calling things.
 *
 * Errors: the first one wins; its sentence goes to ev->err, its code is what every function on the
 * way up returns. Functions that return a pointer return NULL then. Thread: one per render. */
#ifndef REFRAIN_ROUTER_TEXT_JINJA_EVAL_H
#define REFRAIN_ROUTER_TEXT_JINJA_EVAL_H

#include "proto/base/arena.h"
#include "router/text/jinja_ast.h"
#include "router/text/jinja_string.h"
#include "router/text/jinja_value.h"

#define JINJA_EVAL_DEPTH_MAX (CHAT_TEMPLATE_DEPTH_MAX * 8) /* nodes on the C stack, all macros */
#define JINJA_SPANS_MAX (4u << 20)
#define JINJA_RANGE_MAX 100000 /* the sandbox's */

struct jinja_binding {
    uint32_t symbol;
    struct value value;
};

/* Names set inside a loop, macro or block. NULL stands for the template's top level. */
struct jinja_scope {
    struct jinja_scope *parent;
    struct jinja_binding *bindings;
    uint32_t count, capacity;
    bool captured; /* a macro was made here: not to be reused for the next turn of a loop */
};

struct jinja_eval {
    const struct jinja_template *tmpl;
    struct arena *arena;
    struct buffer *out;
    struct text_span *spans; /* of out; the caller frees them */
    size_t spans_count, spans_capacity;
    size_t spans_floor; /* marks before this one belong to an outer capture */
    struct value *root; /* top-level names, by symbol */
    struct jinja_scope *scope;
    uint32_t steps, steps_max, depth, calls;
    uint32_t line;
    double now;
    int code; /* of the first error */
    struct errmsg *err;
};

struct jinja_macro {
    const struct macro_def *def;
    struct jinja_scope *scope; /* where it was defined */
};

/* Evaluated arguments of a call. A bound call has one value per parameter, VALUE_MISSING for those
 * not given, and nothing in `named`. */
struct jinja_named {
    struct jinja_str *name;
    struct value value;
};
struct jinja_args {
    struct value *values;
    uint32_t count;
    struct jinja_named *named;
    uint32_t named_count;
};

#define JINJA_PARAMS_MAX 5
#define JINJA_PARAMS_RAW 255 /* takes the arguments as they come */

typedef int (*jinja_call_fn)(struct jinja_eval *ev, const struct value *self,
                             const struct jinja_args *args, struct value *ret);
/* A filter, test, method or function. */
struct jinja_callable {
    const char *name;
    jinja_call_fn call; /* NULL: hidden by the sandbox */
    uint32_t types;     /* methods: bits of enum value_type */
    uint8_t required;   /* parameters that must be given */
    uint8_t params_count;
    const char *params[JINJA_PARAMS_MAX];
};

/* Set the error (the first wins) and return its code. The line is added in front. */
int jinja_fail(struct jinja_eval *ev, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int jinja_fail_undefined(struct jinja_eval *ev, const struct value *value);
void *jinja_alloc(struct jinja_eval *ev, size_t bytes); /* NULL: error set */
/* Count work that is not a node, so that a step stays a bounded amount of time. */
int jinja_charge(struct jinja_eval *ev, uint64_t steps);
/* One level deeper in data or nodes; pair with jinja_leave. */
int jinja_enter(struct jinja_eval *ev);
static inline void jinja_leave(struct jinja_eval *ev)
{
    ev->depth--;
}

/* jinja_eval.c, jinja_exec.c */
int jinja_eval_node(struct jinja_eval *ev, const struct node *node, struct value *ret);
/* Statements. 0, JINJA_BREAK, JINJA_CONTINUE or an error. */
enum { JINJA_BREAK = 1, JINJA_CONTINUE = 2 };
int jinja_exec_body(struct jinja_eval *ev, const struct body *body);
int jinja_lookup(struct jinja_eval *ev, uint32_t symbol, struct value *ret);
int jinja_assign(struct jinja_eval *ev, uint32_t symbol, const struct value *value);
/* `value` to a name, a namespace's attribute or, unpacked, to several. */
int jinja_assign_target(struct jinja_eval *ev, const struct node *target,
                        const struct value *value);
struct jinja_scope *jinja_scope_new(struct jinja_eval *ev, struct jinja_scope *parent);

/* jinja_ops.c */
int jinja_binary(struct jinja_eval *ev, uint8_t op, const struct value *a, const struct value *b,
                 struct value *ret);
int jinja_contains(struct jinja_eval *ev, const struct value *item, const struct value *in,
                   bool *ret);
/* obj.name and obj[key], with Jinja's order of attribute and item; undefined when there is none. */
int jinja_getattr(struct jinja_eval *ev, const struct value *object, const struct jinja_str *name,
                  const struct jinja_callable *method, struct value *ret);
int jinja_getitem(struct jinja_eval *ev, const struct value *object, const struct value *key,
                  struct value *ret);
int jinja_slice(struct jinja_eval *ev, const struct value *object, const struct value bounds[3],
                struct value *ret);

/* jinja_call.c */
int jinja_eval_args(struct jinja_eval *ev, const struct call_args *call, struct jinja_args *ret);
int jinja_call_value(struct jinja_eval *ev, const struct value *callee,
                     const struct jinja_args *args, struct value *ret);
int jinja_call_bound(struct jinja_eval *ev, const struct jinja_callable *callable,
                     const struct value *self, const struct jinja_args *args, struct value *ret);
int jinja_make_macro(struct jinja_eval *ev, const struct macro_def *def, struct value *ret);
bool jinja_given(const struct jinja_args *args, uint32_t at);
bool jinja_arg_truth(const struct jinja_args *args, uint32_t at, bool dflt);
int jinja_arg_int(struct jinja_eval *ev, const struct jinja_args *args, uint32_t at, int64_t dflt,
                  int64_t *ret);
/* A flat string; *ret is NULL when the argument is missing or none. */
int jinja_arg_str(struct jinja_eval *ev, const struct jinja_args *args, uint32_t at,
                  struct jinja_str **ret);

/* jinja_loop.c */
int jinja_exec_for(struct jinja_eval *ev, const struct node *node, const struct value *iterable,
                   uint32_t depth);
int jinja_loop_getattr(struct jinja_eval *ev, struct jinja_loop *loop, const struct jinja_str *name,
                       struct value *ret);
int jinja_loop_cycle(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                     struct value *ret);
int jinja_loop_changed(struct jinja_eval *ev, const struct value *self,
                       const struct jinja_args *args, struct value *ret);
int jinja_loop_call(struct jinja_eval *ev, struct jinja_loop *loop, const struct jinja_args *args,
                    struct value *ret);

/* Tables; NULL: unknown name. */
const struct jinja_callable *jinja_filter_find(const char *name, size_t bytes);
const struct jinja_callable *jinja_test_find(const char *name, size_t bytes);
const struct jinja_callable *jinja_function_find(const char *name, size_t bytes);
/* The first method of this name; jinja_method_match picks the one for the type, or NULL. */
const struct jinja_callable *jinja_method_find(const char *name, size_t bytes);
const struct jinja_callable *jinja_method_match(const struct jinja_callable *first,
                                                enum value_type type);

/* Attribute paths of map, sort, join...: "a.b.0"; a value that is not a string is one key. */
int jinja_attribute(struct jinja_eval *ev, const struct value *item, const struct value *path,
                    const struct value *dflt, struct value *ret);
/* Where `needle` first is, or NULL. */
const char *jinja_find(const char *data, size_t bytes, const char *needle, size_t needle_bytes);
/* Shared by filters and methods of the same name. */
enum case_kind { CASE_UPPER = 0, CASE_LOWER, CASE_CAPITALIZE, CASE_TITLE, CASE_SWAP };
int jinja_change_case(struct jinja_eval *ev, struct jinja_str *string, enum case_kind kind,
                      struct value *ret);
int jinja_strip(struct jinja_eval *ev, struct jinja_str *string, struct jinja_str *chars, bool left,
                bool right, struct value *ret);
int jinja_replace(struct jinja_eval *ev, struct jinja_str *string, struct jinja_str *old,
                  struct jinja_str *new_text, int64_t count, struct value *ret);
int jinja_split_lines(struct jinja_eval *ev, struct jinja_str *string, bool keep_ends,
                      struct jinja_vec *ret);
int jinja_pad(struct jinja_eval *ev, struct jinja_str *string, int64_t left, int64_t right,
              uint32_t fill, struct value *ret);
/* repr(text) of a number as Python parses it. False: not a number. */
bool jinja_parse_int(const char *text, size_t bytes, int base, int64_t *ret);
bool jinja_parse_float(const char *text, size_t bytes, double *ret);
/* 'format' % args, and format.format(...). */
int jinja_percent_format(struct jinja_eval *ev, struct jinja_str *format, const struct value *args,
                         struct value *ret);
int jinja_brace_format(struct jinja_eval *ev, struct jinja_str *format,
                       const struct jinja_args *args, struct value *ret);
int jinja_tojson(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                 struct value *ret);
int jinja_strftime(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                   struct value *ret);
/* Sort `count` values by `keys` (same order), stable. */
int jinja_sort(struct jinja_eval *ev, struct value *values, struct value *keys, uint32_t count,
               bool reverse);

#endif
