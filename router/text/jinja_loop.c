/* jinja_loop.c - for loops and their `loop` object.
 *
 * Items are taken one at a time, because the loop's own filter (`for x in xs if cond`) may look at
 * what the body has set meanwhile; loop.last and loop.nextitem look one ahead, loop.length takes
 * all the rest. The scope of a turn is used again for the next one unless a macro holds on to it.
 */
#include <errno.h>
#include <string.h>

#include "proto/base/assert.h"
#include "router/text/jinja_eval.h"

struct jinja_loop {
    const struct node *node;
    struct jinja_scope *outer; /* of the loop statement */
    struct jinja_vec items;    /* source, before the filter; values is NULL for a range */
    const struct jinja_range *range;
    uint32_t at;   /* next of items to look at */
    bool filtered; /* items passed the filter already, or there is none */
    bool has_next; /* `next` was taken ahead */
    bool ended;
    struct value current, next, previous;
    struct value changed; /* what loop.changed saw last, VALUE_MISSING before */
    uint32_t index0, depth;
};

static int passes_filter(struct jinja_eval *ev, struct jinja_loop *loop, const struct value *item,
                         bool *ret)
{
    struct value test;
    struct jinja_scope *saved = ev->scope;
    struct jinja_scope *scope = jinja_scope_new(ev, loop->outer);
    if (scope == NULL)
        return ev->code;
    ev->scope = scope;
    int r = jinja_assign_target(ev, loop->node->b, item);
    if (r >= 0)
        r = jinja_eval_node(ev, loop->node->c, &test);
    ev->scope = saved;
    if (r >= 0)
        *ret = jinja_truth(&test);
    return r;
}

/* The next item that passes, or *ret_found = false. */
static int take(struct jinja_eval *ev, struct jinja_loop *loop, struct value *ret, bool *ret_found)
{
    *ret_found = false;
    while (!*ret_found && loop->at < loop->items.count) {
        int64_t at = loop->at++;
        struct value item = loop->range ? jinja_int(loop->range->start + loop->range->step * at)
                                        : loop->items.values[at];
        int r = jinja_charge(ev, 1);
        *ret_found = true;
        if (r >= 0 && !loop->filtered)
            r = passes_filter(ev, loop, &item, ret_found);
        if (r < 0)
            return r;
        if (*ret_found)
            *ret = item;
    }
    return 0;
}

static int look_ahead(struct jinja_eval *ev, struct jinja_loop *loop)
{
    bool found;
    if (loop->has_next || loop->ended)
        return 0;
    int r = take(ev, loop, &loop->next, &found);
    if (r < 0)
        return r;
    loop->has_next = found;
    loop->ended = !found;
    return 0;
}

static int loop_length(struct jinja_eval *ev, struct jinja_loop *loop, uint32_t *ret)
{
    struct jinja_vec rest = {0};
    if (!loop->filtered) {
        for (;;) {
            struct value item;
            bool found;
            int r = take(ev, loop, &item, &found);
            if (r >= 0 && found)
                r = jinja_vec_push(ev, &rest, &item);
            if (r < 0)
                return r;
            if (!found)
                break;
        }
        loop->items = rest;
        loop->range = NULL;
        loop->at = 0;
        loop->filtered = true;
    }
    *ret = loop->index0 + 1 + (loop->has_next ? 1 : 0) + (loop->items.count - loop->at);
    return 0;
}

static int loop_number(struct jinja_eval *ev, struct jinja_loop *loop, const char *name,
                       struct value *ret)
{
    uint32_t length = 0;
    bool from_end = strcmp(name, "length") == 0 || strncmp(name, "revindex", 8) == 0;
    int r = from_end ? loop_length(ev, loop, &length) : 0;
    if (r < 0)
        return r;
    if (strcmp(name, "index") == 0)
        *ret = jinja_int((int64_t)loop->index0 + 1);
    else if (strcmp(name, "index0") == 0)
        *ret = jinja_int(loop->index0);
    else if (strcmp(name, "length") == 0)
        *ret = jinja_int(length);
    else if (strcmp(name, "revindex") == 0)
        *ret = jinja_int((int64_t)length - loop->index0);
    else if (strcmp(name, "revindex0") == 0)
        *ret = jinja_int((int64_t)length - loop->index0 - 1);
    else if (strcmp(name, "depth") == 0)
        *ret = jinja_int((int64_t)loop->depth + 1);
    else if (strcmp(name, "depth0") == 0)
        *ret = jinja_int(loop->depth);
    else if (strcmp(name, "first") == 0)
        *ret = jinja_bool(loop->index0 == 0);
    else
        *ret = jinja_missing();
    return 0;
}

int jinja_loop_getattr(struct jinja_eval *ev, struct jinja_loop *loop, const struct jinja_str *name,
                       struct value *ret)
{
    char key[16];
    int r = 0;
    if (name->bytes < sizeof(key)) {
        memcpy(key, name->data, name->bytes);
        key[name->bytes] = '\0';
        bool last = strcmp(key, "last") == 0;
        bool next = strcmp(key, "nextitem") == 0;
        if (last || next)
            r = look_ahead(ev, loop);
        if (r < 0)
            return r;
        if (last) {
            *ret = jinja_bool(!loop->has_next);
            return 0;
        }
        if (next && loop->has_next) {
            *ret = loop->next;
            return 0;
        }
        if (strcmp(key, "previtem") == 0 && loop->index0 > 0) {
            *ret = loop->previous;
            return 0;
        }
        r = loop_number(ev, loop, key, ret);
        if (r < 0 || ret->type != VALUE_MISSING)
            return r;
    }
    return jinja_make_undefined(ev, "jinja2.runtime.LoopContext object", name, 0, ret);
}

/* Run the body for the current item. */
static int run_turn(struct jinja_eval *ev, struct jinja_loop *loop, struct jinja_scope **scope)
{
    const struct value self = {.type = VALUE_LOOP, .loop = loop};
    if (*scope == NULL || (*scope)->captured) {
        *scope = jinja_scope_new(ev, loop->outer);
        if (*scope == NULL)
            return ev->code;
    }
    (*scope)->count = 0;
    ev->scope = *scope;
    int r = jinja_assign(ev, SYMBOL_LOOP, &self);
    if (r >= 0)
        r = jinja_assign_target(ev, loop->node->b, &loop->current);
    if (r >= 0)
        r = jinja_exec_body(ev, &loop->node->body);
    ev->scope = loop->outer;
    return r;
}

static int run_loop(struct jinja_eval *ev, struct jinja_loop *loop, bool *ret_ran)
{
    struct jinja_scope *scope = NULL;
    for (*ret_ran = false;; *ret_ran = true) {
        bool found = loop->has_next;
        struct value item = loop->next;
        int r = 0;
        if (!found && !loop->ended)
            r = take(ev, loop, &item, &found);
        if (r < 0 || !found)
            return r;
        if (*ret_ran) {
            loop->previous = loop->current;
            loop->index0++;
        }
        loop->current = item;
        loop->has_next = false;
        r = run_turn(ev, loop, &scope);
        if (r < 0)
            return r;
        if (r == JINJA_BREAK) {
            *ret_ran = true;
            return 0;
        }
    }
}

/* 0 or an error; break and continue end here. */
int jinja_exec_for(struct jinja_eval *ev, const struct node *node, const struct value *iterable,
                   uint32_t depth)
{
    bool ran;
    struct jinja_loop *loop = jinja_alloc(ev, sizeof(*loop));
    if (loop == NULL)
        return ev->code;
    *loop = (struct jinja_loop){.node = node,
                                .outer = ev->scope,
                                .filtered = node->c == NULL,
                                .changed = jinja_missing(),
                                .depth = depth};
    int r = 0;
    if (iterable->type == VALUE_RANGE) { /* not worth an array */
        loop->range = iterable->range;
        loop->items.count = iterable->range->count;
    } else {
        r = jinja_iterate(ev, iterable, &loop->items);
    }
    if (r >= 0)
        r = run_loop(ev, loop, &ran);
    if (r < 0 || ran || node->other.count == 0)
        return r;
    struct jinja_scope *outer = ev->scope;
    ev->scope = jinja_scope_new(ev, outer);
    r = ev->scope ? jinja_exec_body(ev, &node->other) : ev->code;
    ev->scope = outer;
    return r;
}

/* loop(items) of a recursive loop. */
int jinja_loop_call(struct jinja_eval *ev, struct jinja_loop *loop, const struct jinja_args *args,
                    struct value *ret)
{
    struct jinja_capture capture;
    struct jinja_scope *saved = ev->scope;
    if (!loop->node->flag)
        return jinja_fail(ev, -EINVAL, "'recursive' is not set on this loop");
    if (args->count != 1 || args->named_count != 0)
        return jinja_fail(ev, -EINVAL, "loop() takes one argument");
    jinja_capture_begin(ev, &capture);
    ev->scope = loop->outer;
    int r = jinja_exec_for(ev, loop->node, &args->values[0], loop->depth + 1);
    ev->scope = saved;
    return r < 0 ? r : jinja_capture_end(ev, &capture, ret);
}

/* loop.cycle(...), loop.changed(...): methods, see jinja_methods.c */
int jinja_loop_cycle(struct jinja_eval *ev, const struct value *self, const struct jinja_args *args,
                     struct value *ret)
{
    if (args->count == 0)
        return jinja_fail(ev, -EINVAL, "no items for cycling given");
    *ret = args->values[self->loop->index0 % args->count];
    return 0;
}

int jinja_loop_changed(struct jinja_eval *ev, const struct value *self,
                       const struct jinja_args *args, struct value *ret)
{
    struct value now;
    struct value *values = jinja_alloc(ev, (args->count + 1) * sizeof(*values));
    bool same = false;
    if (values == NULL)
        return ev->code;
    if (args->count > 0)
        memcpy(values, args->values, args->count * sizeof(*values));
    int r = jinja_make_list(ev, VALUE_TUPLE, values, args->count, &now);
    if (r >= 0)
        r = jinja_equal(ev, &now, &self->loop->changed, &same);
    if (r < 0)
        return r;
    self->loop->changed = now;
    *ret = jinja_bool(!same);
    return 0;
}
