/* jinja_call.c - arguments, macros, and the functions that every template finds defined.
 *
 * Built-ins name their parameters in a table; a call is bound to it here, so that a filter sees one
 * value per parameter. Macros see the names around their definition, not around their call. */
#include <errno.h>
#include <string.h>

#include "proto/base/assert.h"
#include "router/text/jinja_eval.h"

#define CALLS_MAX CHAT_TEMPLATE_DEPTH_MAX /* macros in macros */
#define RANGE_VALUE_MAX ((int64_t)1 << 60)

bool jinja_given(const struct jinja_args *args, uint32_t at)
{
    return at < args->count && args->values[at].type != VALUE_MISSING;
}

bool jinja_arg_truth(const struct jinja_args *args, uint32_t at, bool dflt)
{
    return jinja_given(args, at) ? jinja_truth(&args->values[at]) : dflt;
}

int jinja_arg_int(struct jinja_eval *ev, const struct jinja_args *args, uint32_t at, int64_t dflt,
                  int64_t *ret)
{
    *ret = dflt;
    if (!jinja_given(args, at))
        return 0;
    if (!jinja_is_integer(&args->values[at]))
        return jinja_fail(ev, -EINVAL, "'%s' object cannot be interpreted as an integer",
                          jinja_type_name(&args->values[at]));
    *ret = jinja_as_int(&args->values[at]);
    return 0;
}

int jinja_arg_str(struct jinja_eval *ev, const struct jinja_args *args, uint32_t at,
                  struct jinja_str **ret)
{
    *ret = NULL;
    if (!jinja_given(args, at) || args->values[at].type == VALUE_NONE)
        return 0;
    if (args->values[at].type == VALUE_UNDEFINED)
        return jinja_fail_undefined(ev, &args->values[at]);
    if (args->values[at].type != VALUE_STRING)
        return jinja_fail(ev, -EINVAL, "a text is expected, not '%s'",
                          jinja_type_name(&args->values[at]));
    *ret = args->values[at].string;
    return jinja_str_data(ev, *ret) ? 0 : ev->code;
}

/* *args and **kwargs of the call. */
static int add_starred(struct jinja_eval *ev, const struct call_args *call, struct jinja_args *args,
                       struct jinja_vec *values)
{
    struct value star = {0};
    struct jinja_vec items = {0};
    int r = 0;
    if (call->star != NULL)
        r = jinja_eval_node(ev, call->star, &star);
    if (r >= 0 && call->star != NULL)
        r = jinja_iterate(ev, &star, &items);
    for (uint32_t i = 0; r >= 0 && i < items.count; i++)
        r = jinja_vec_push(ev, values, &items.values[i]);
    if (r < 0 || call->star_star == NULL)
        return r;
    r = jinja_eval_node(ev, call->star_star, &star);
    if (r < 0)
        return r;
    if (star.type != VALUE_DICT)
        return jinja_fail(ev, -EINVAL, "argument after ** must be a mapping, not %s",
                          jinja_type_name(&star));
    size_t count = (size_t)args->named_count + star.dict->count;
    struct jinja_named *named = jinja_alloc(ev, (count + 1) * sizeof(*named));
    if (named == NULL)
        return ev->code;
    if (args->named_count > 0)
        memcpy(named, args->named, args->named_count * sizeof(*named));
    for (uint32_t i = 0; i < star.dict->count; i++) {
        const struct dict_entry *entry = &star.dict->entries[i];
        if (entry->key.type != VALUE_STRING)
            return jinja_fail(ev, -EINVAL, "keywords must be strings");
        named[args->named_count++] = (struct jinja_named){entry->key.string, entry->value};
    }
    args->named = named;
    return 0;
}

int jinja_eval_args(struct jinja_eval *ev, const struct call_args *call, struct jinja_args *ret)
{
    struct jinja_args args = {0};
    *ret = args;
    if (call == NULL ||
        (call->count == 0 && call->named_count == 0 && !call->star && !call->star_star))
        return 0;
    struct jinja_vec values = {.capacity = call->count};
    values.values = jinja_alloc(ev, ((size_t)call->count + 1) * sizeof(struct value));
    args.named = jinja_alloc(ev, ((size_t)call->named_count + 1) * sizeof(*args.named));
    if (values.values == NULL || args.named == NULL)
        return ev->code;
    for (uint32_t i = 0; i < call->count; i++) {
        int r = jinja_eval_node(ev, call->values[i], &values.values[i]);
        if (r < 0)
            return r;
        values.count++;
    }
    for (uint32_t i = 0; i < call->named_count; i++) {
        int r = jinja_eval_node(ev, call->named[i], &args.named[i].value);
        if (r < 0)
            return r;
        args.named[i].name = call->names[i];
        args.named_count++;
    }
    if (call->star != NULL || call->star_star != NULL) {
        int r = add_starred(ev, call, &args, &values);
        if (r < 0)
            return r;
    }
    args.values = values.values;
    args.count = values.count;
    *ret = args;
    return 0;
}

static bool name_is(const struct jinja_str *name, const char *text)
{
    size_t bytes = strlen(text);
    return name->bytes == bytes && memcmp(name->data, text, bytes) == 0;
}

static int bind_named(struct jinja_eval *ev, const struct jinja_callable *callable,
                      const struct jinja_named *named, struct value *bound)
{
    for (uint32_t i = 0; i < callable->params_count; i++) {
        if (!name_is(named->name, callable->params[i]))
            continue;
        if (bound[i].type != VALUE_MISSING)
            return jinja_fail(ev, -EINVAL, "%s() got multiple values for argument '%s'",
                              callable->name, callable->params[i]);
        bound[i] = named->value;
        return 0;
    }
    return jinja_fail(ev, -EINVAL, "%s() got an unexpected keyword argument '%.*s'", callable->name,
                      (int)named->name->bytes, named->name->data);
}

int jinja_call_bound(struct jinja_eval *ev, const struct jinja_callable *callable,
                     const struct value *self, const struct jinja_args *args, struct value *ret)
{
    struct value bound[JINJA_PARAMS_MAX];
    struct jinja_args out = {.values = bound, .count = callable->params_count};
    ASSERT(callable->call != NULL);
    if (self->type == VALUE_STRING && jinja_str_data(ev, self->string) == NULL)
        return ev->code;
    if (callable->params_count == JINJA_PARAMS_RAW) {
        if (args->count < callable->required)
            return jinja_fail(ev, -EINVAL, "%s() needs %u argument(s)", callable->name,
                              callable->required);
        return callable->call(ev, self, args, ret);
    }
    if (args->count > callable->params_count)
        return jinja_fail(ev, -EINVAL, "%s() takes at most %u argument(s) (%u given)",
                          callable->name, callable->params_count, args->count);
    for (uint32_t i = 0; i < JINJA_PARAMS_MAX; i++)
        bound[i] = i < args->count ? args->values[i] : jinja_missing();
    for (uint32_t i = 0; i < args->named_count; i++) {
        int r = bind_named(ev, callable, &args->named[i], bound);
        if (r < 0)
            return r;
    }
    for (uint32_t i = 0; i < callable->required; i++) {
        if (bound[i].type == VALUE_MISSING)
            return jinja_fail(ev, -EINVAL, "%s() missing argument '%s'", callable->name,
                              callable->params[i]);
    }
    return callable->call(ev, self, &out, ret);
}

int jinja_make_macro(struct jinja_eval *ev, const struct macro_def *def, struct value *ret)
{
    struct jinja_macro *macro = jinja_alloc(ev, sizeof(*macro));
    if (macro == NULL)
        return ev->code;
    *macro = (struct jinja_macro){def, ev->scope};
    for (struct jinja_scope *scope = ev->scope; scope != NULL; scope = scope->parent)
        scope->captured = true;
    *ret = (struct value){.type = VALUE_MACRO, .macro = macro};
    return 0;
}

/* The named argument of a macro's parameter; it is crossed out. */
static void take_named(struct jinja_args *args, const struct jinja_str *name, struct value *ret)
{
    for (uint32_t i = 0; i < args->named_count; i++) {
        struct jinja_named *named = &args->named[i];
        if (named->name == NULL || named->name->bytes != name->bytes ||
            memcmp(named->name->data, name->data, name->bytes) != 0)
            continue;
        *ret = named->value;
        named->name = NULL;
        return;
    }
}

static int bind_rest(struct jinja_eval *ev, const struct macro_def *def, struct jinja_args *args)
{
    struct value value = jinja_missing();
    const char *name = def->name ? def->name->data : "caller";
    int bytes = def->name ? (int)def->name->bytes : 6;
    take_named(args, ev->tmpl->symbols[SYMBOL_CALLER], &value);
    if (value.type != VALUE_MISSING && !def->uses_caller)
        return jinja_fail(ev, -EINVAL, "macro '%.*s' was invoked with caller() but does not use it",
                          bytes, name);
    int r = 0;
    if (def->uses_caller && value.type == VALUE_MISSING)
        r = jinja_make_undefined(ev, NULL, ev->tmpl->symbols[SYMBOL_CALLER], 0, &value);
    if (r >= 0 && def->uses_caller)
        r = jinja_assign(ev, SYMBOL_CALLER, &value);
    struct jinja_dict *kwargs = jinja_dict_new(ev, 0);
    if (r < 0 || kwargs == NULL)
        return ev->code;
    for (uint32_t i = 0; i < args->named_count; i++) {
        if (args->named[i].name == NULL)
            continue;
        if (!def->uses_kwargs)
            return jinja_fail(ev, -EINVAL, "macro '%.*s' takes no keyword argument '%.*s'", bytes,
                              name, (int)args->named[i].name->bytes, args->named[i].name->data);
        struct value key = jinja_string(args->named[i].name);
        if (jinja_dict_set(ev, kwargs, &key, &args->named[i].value) < 0)
            return ev->code;
    }
    if (def->uses_kwargs) {
        value = (struct value){.type = VALUE_DICT, .dict = kwargs};
        if (jinja_assign(ev, SYMBOL_KWARGS, &value) < 0)
            return ev->code;
    }
    if (args->count > def->params_count && !def->uses_varargs)
        return jinja_fail(ev, -EINVAL, "macro '%.*s' takes not more than %u argument(s)", bytes,
                          name, def->params_count);
    if (!def->uses_varargs)
        return 0;
    uint32_t rest = args->count > def->params_count ? args->count - def->params_count : 0;
    r = jinja_make_list(ev, VALUE_TUPLE, rest ? args->values + def->params_count : NULL, rest,
                        &value);
    return r < 0 ? r : jinja_assign(ev, SYMBOL_VARARGS, &value);
}

static int bind_macro(struct jinja_eval *ev, const struct macro_def *def, struct jinja_args *args)
{
    for (uint32_t i = 0; i < def->params_count; i++) {
        struct value value = jinja_missing();
        int r = 0;
        if (i < args->count)
            value = args->values[i];
        else
            take_named(args, def->param_names[i], &value);
        if (value.type == VALUE_MISSING && def->defaults[i] != NULL)
            r = jinja_eval_node(ev, def->defaults[i], &value);
        else if (value.type == VALUE_MISSING)
            r = jinja_make_undefined(ev, NULL, def->param_names[i], 0, &value);
        if (r >= 0)
            r = jinja_assign(ev, def->params[i], &value);
        if (r < 0)
            return r;
    }
    return bind_rest(ev, def, args);
}

static int call_macro(struct jinja_eval *ev, const struct jinja_macro *macro,
                      const struct jinja_args *args, struct value *ret)
{
    struct jinja_capture capture;
    struct jinja_args own = *args;
    struct jinja_scope *saved = ev->scope;
    if (ev->calls >= CALLS_MAX)
        return jinja_fail(ev, -E2BIG, "more than %u macro calls inside each other", CALLS_MAX);
    struct jinja_scope *scope = jinja_scope_new(ev, macro->scope);
    own.named = jinja_alloc(ev, ((size_t)args->named_count + 1) * sizeof(*own.named));
    if (scope == NULL || own.named == NULL)
        return ev->code;
    if (args->named_count > 0)
        memcpy(own.named, args->named, args->named_count * sizeof(*own.named));
    ev->scope = scope;
    ev->calls++;
    int r = bind_macro(ev, macro->def, &own);
    if (r < 0)
        return r;
    jinja_capture_begin(ev, &capture);
    r = jinja_exec_body(ev, &macro->def->body);
    if (r < 0)
        return r;
    ev->calls--;
    ev->scope = saved;
    return jinja_capture_end(ev, &capture, ret);
}

int jinja_call_value(struct jinja_eval *ev, const struct value *callee,
                     const struct jinja_args *args, struct value *ret)
{
    switch ((enum value_type)callee->type) {
    case VALUE_MACRO:
        return call_macro(ev, callee->macro, args, ret);
    case VALUE_FUNCTION:
        return jinja_call_bound(ev, callee->function, callee, args, ret);
    case VALUE_METHOD:
        return jinja_call_bound(ev, callee->method->callable, &callee->method->self, args, ret);
    case VALUE_LOOP:
        return jinja_loop_call(ev, callee->loop, args, ret);
    case VALUE_JOINER:
        if (callee->joiner->used) {
            *ret = callee->joiner->separator;
            return 0;
        }
        callee->joiner->used = true;
        struct jinja_str *empty = jinja_str_view(ev, "", 0, (struct jinja_origin){0, -1});
        if (empty == NULL)
            return ev->code;
        *ret = jinja_string(empty);
        return 0;
    case VALUE_UNDEFINED:
        return jinja_fail_undefined(ev, callee);
    default:
        return jinja_fail(ev, -EINVAL, "'%s' object is not callable", jinja_type_name(callee));
    }
}

static int function_range(struct jinja_eval *ev, const struct value *self,
                          const struct jinja_args *args, struct value *ret)
{
    int64_t bounds[3] = {0, 0, 1};
    if (args->count < 1 || args->count > 3 || args->named_count > 0)
        return jinja_fail(ev, -EINVAL, "range expects 1 to 3 arguments");
    for (uint32_t i = 0; i < args->count; i++) {
        if (args->values[i].type == VALUE_UNDEFINED)
            return jinja_fail_undefined(ev, &args->values[i]);
        int r = jinja_arg_int(ev, args, i, 0, &bounds[args->count == 1 ? 1 : i]);
        if (r < 0)
            return r;
    }
    if (bounds[2] == 0)
        return jinja_fail(ev, -EINVAL, "range() arg 3 must not be zero");
    int64_t count = 0;
    for (int i = 0; i < 3; i++) {
        if (bounds[i] > RANGE_VALUE_MAX || bounds[i] < -RANGE_VALUE_MAX)
            return jinja_fail(ev, -E2BIG, "range() arguments are too big");
    }
    if (bounds[2] > 0 && bounds[1] > bounds[0])
        count = (bounds[1] - bounds[0] + bounds[2] - 1) / bounds[2];
    if (bounds[2] < 0 && bounds[1] < bounds[0])
        count = (bounds[0] - bounds[1] - bounds[2] - 1) / -bounds[2];
    if (count > JINJA_RANGE_MAX)
        return jinja_fail(ev, -E2BIG,
                          "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).",
                          JINJA_RANGE_MAX);
    struct jinja_range *range = jinja_alloc(ev, sizeof(*range));
    if (range == NULL)
        return ev->code;
    *range = (struct jinja_range){bounds[0], bounds[2], (uint32_t)count};
    *ret = (struct value){.type = VALUE_RANGE, .range = range};
    return 0;
}

/* dict(...) and namespace(...): a mapping or pairs, then keywords. */
static int fill_dict(struct jinja_eval *ev, struct jinja_dict *dict, const struct jinja_args *args)
{
    struct jinja_vec items = {0}, pair;
    int r = 0;
    if (args->count > 1)
        return jinja_fail(ev, -EINVAL, "dict expected at most 1 argument, got %u", args->count);
    if (args->count == 1 && args->values[0].type == VALUE_DICT) {
        const struct jinja_dict *from = args->values[0].dict;
        for (uint32_t i = 0; r >= 0 && i < from->count; i++)
            r = jinja_dict_set(ev, dict, &from->entries[i].key, &from->entries[i].value);
    } else if (args->count == 1) {
        r = jinja_iterate(ev, &args->values[0], &items);
    }
    for (uint32_t i = 0; r >= 0 && i < items.count; i++) {
        r = jinja_iterate(ev, &items.values[i], &pair);
        if (r >= 0 && pair.count != 2)
            r = jinja_fail(ev, -EINVAL, "dictionary update sequence needs pairs");
        if (r >= 0)
            r = jinja_dict_set(ev, dict, &pair.values[0], &pair.values[1]);
    }
    for (uint32_t i = 0; r >= 0 && i < args->named_count; i++) {
        struct value key = jinja_string(args->named[i].name);
        r = jinja_dict_set(ev, dict, &key, &args->named[i].value);
    }
    return r;
}

static int make_dict(struct jinja_eval *ev, enum value_type type, const struct jinja_args *args,
                     struct value *ret)
{
    struct jinja_dict *dict = jinja_dict_new(ev, 0);
    if (dict == NULL)
        return ev->code;
    int r = fill_dict(ev, dict, args);
    if (r < 0)
        return r;
    *ret = (struct value){.type = (uint8_t)type, .dict = dict};
    if (args->count > 0) {
        ret->source = args->values[0].source;
        ret->message = args->values[0].message;
    }
    return 0;
}

static int function_dict(struct jinja_eval *ev, const struct value *self,
                         const struct jinja_args *args, struct value *ret)
{
    return make_dict(ev, VALUE_DICT, args, ret);
}

static int function_namespace(struct jinja_eval *ev, const struct value *self,
                              const struct jinja_args *args, struct value *ret)
{
    return make_dict(ev, VALUE_NAMESPACE, args, ret);
}

static int function_cycler(struct jinja_eval *ev, const struct value *self,
                           const struct jinja_args *args, struct value *ret)
{
    if (args->count == 0 || args->named_count > 0)
        return jinja_fail(ev, -EINVAL, "at least one item has to be provided");
    return jinja_make_list(ev, VALUE_CYCLER, args->values, args->count, ret);
}

static int function_joiner(struct jinja_eval *ev, const struct value *self,
                           const struct jinja_args *args, struct value *ret)
{
    struct jinja_joiner *joiner = jinja_alloc(ev, sizeof(*joiner));
    struct jinja_str *comma = jinja_str_view(ev, ", ", 2, (struct jinja_origin){0, -1});
    if (joiner == NULL || comma == NULL)
        return ev->code;
    joiner->separator = jinja_given(args, 0) ? args->values[0] : jinja_string(comma);
    joiner->used = false;
    *ret = (struct value){.type = VALUE_JOINER, .joiner = joiner};
    return 0;
}

static int function_raise(struct jinja_eval *ev, const struct value *self,
                          const struct jinja_args *args, struct value *ret)
{
    struct jinja_str *text;
    int r = jinja_to_str(ev, &args->values[0], &text);
    if (r < 0)
        return r;
    ev->code = -EINVAL; /* the template's own sentence, without our line in front */
    return errmsg_set(ev->err, -EINVAL, "%.*s", (int)text->bytes, text->data);
}

const struct jinja_callable *jinja_function_find(const char *name, size_t bytes)
{
    static const struct jinja_callable functions[] = {
        {"range", function_range, 0, 1, JINJA_PARAMS_RAW, {NULL}},
        {"dict", function_dict, 0, 0, JINJA_PARAMS_RAW, {NULL}},
        {"namespace", function_namespace, 0, 0, JINJA_PARAMS_RAW, {NULL}},
        {"cycler", function_cycler, 0, 0, JINJA_PARAMS_RAW, {NULL}},
        {"joiner", function_joiner, 0, 0, 1, {"sep"}},
        {"raise_exception", function_raise, 0, 1, 1, {"message"}},
        {"strftime_now", jinja_strftime, 0, 1, 1, {"format"}},
    };
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        if (strlen(functions[i].name) == bytes && memcmp(functions[i].name, name, bytes) == 0)
            return &functions[i];
    }
    return NULL;
}
