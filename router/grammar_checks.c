/* grammar_checks.c - one libuv work request per check; the store is the loop's alone.
 *
 * Equal texts that are asked for at the same time are compiled once each: rare, and simpler than a
 * list of who waits for whom. Why every text goes to a thread, short ones too: a short text may
 * stand for a large automaton, and which does is known only once it is compiled. */
#include "router/grammar_checks.h"

#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "proto/grammar/store.h"

struct grammar_checks {
    uv_loop_t *loop;
    struct grammar_store *store;
    uint32_t pending;
};

struct grammar_check {
    uv_work_t work;
    struct grammar_checks *checks;
    grammar_checked_fn on_checked; /* NULL: cancelled */
    void *user;
    struct grammar_spec spec;
    char *text;
    /* The thread's, until it is done: */
    struct grammar *grammar;
    struct errmsg err;
    int r;
};

struct grammar_checks *grammar_checks_new(uv_loop_t *loop, size_t bytes_max)
{
    struct grammar_checks *checks = mem_zalloc(sizeof(*checks));

    checks->loop = loop;
    checks->store = grammar_store_new(bytes_max);
    return checks;
}

void grammar_checks_free(struct grammar_checks *checks)
{
    if (!checks)
        return;
    ASSERT(checks->pending == 0);
    grammar_store_free(checks->store);
    mem_free(checks);
}

/* On a thread of the pool. */
static void compile(uv_work_t *work)
{
    struct grammar_check *check = work->data;
    check->r = grammar_compile(&check->spec, &check->grammar, &check->err);
}

static void on_compiled(uv_work_t *work, int status)
{
    struct grammar_check *check = work->data;
    struct grammar_checks *checks = check->checks;

    ASSERT(checks->pending > 0);
    checks->pending--;
    if (status == 0 && check->r == 0)
        grammar_store_put(checks->store, &check->spec, check->grammar);
    if (check->on_checked) {
        ASSERT(status == 0); /* UV_ECANCELED: only of ours that were */
        check->on_checked(check->user, check->r, &check->err);
    }
    grammar_unref(check->grammar);
    mem_free(check->text);
    mem_free(check);
}

int grammar_checks_ask(struct grammar_checks *checks, const struct grammar_spec *spec,
                       grammar_checked_fn on_checked, void *user, struct grammar_check **ret_check)
{
    struct grammar *known = grammar_store_find(checks->store, spec);

    if (known) {
        grammar_unref(known);
        return 0;
    }
    struct grammar_check *check = mem_zalloc(sizeof(*check));
    check->work.data = check;
    check->checks = checks;
    check->on_checked = on_checked;
    check->user = user;
    check->text = mem_strndup(spec->text ? spec->text : "", spec->text ? spec->bytes : 0);
    check->spec = (struct grammar_spec){spec->kind, check->text, spec->bytes};
    checks->pending++;
    int r = uv_queue_work(checks->loop, &check->work, compile, on_compiled);
    ASSERT(r == 0);
    *ret_check = check;
    return 1;
}

void grammar_check_cancel(struct grammar_check *check)
{
    if (!check)
        return;
    check->on_checked = NULL;
    (void)uv_cancel((uv_req_t *)&check->work); /* one that runs already is awaited */
}
