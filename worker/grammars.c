/* grammars.c - store, vocabulary and machine of one worker, and the thread that makes them.
 *
 * Who owns what: the store, `ready` and `waiting` are the io thread's; vocab and machine the
 * compiling thread's until a job that found them made is popped, and constant afterwards. */
#include "worker/grammars.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/clock.h"
#define LOG_MODULE "grammars"
#include "proto/base/log.h"
#include "proto/base/mem.h"
#include "proto/base/queue.h"

struct job {
    struct grammar_spec spec; /* its text is the waiter's */
    void *waiter;
    bool end; /* of the thread */
    struct grammar *grammar;
    int r;
    struct errmsg err;
};

struct grammars {
    const struct model_card *card;
    size_t bytes_max;
    struct grammar_store *store;
    struct grammar_vocab *vocab; /* NULL before the first grammar */
    struct grammar_machine *machine;
    bool ready; /* both stand */
    struct queue *todo, *done;
    uint32_t waiting; /* asked for and not popped */
    pthread_t thread;
    bool started;
};

struct grammars *grammars_new(const struct model_card *card, size_t bytes_max)
{
    struct grammars *grammars = mem_zalloc(sizeof(*grammars));

    ASSERT(bytes_max >= GRAMMAR_MACHINE_BYTES_MIN);
    *grammars = (struct grammars){.card = card,
                                  .bytes_max = bytes_max,
                                  .store = grammar_store_new(bytes_max),
                                  .todo = queue_new(GRAMMARS_WAITING_MAX + 1),
                                  .done = queue_new(GRAMMARS_WAITING_MAX)};
    return grammars;
}

static int make_machine(struct grammars *grammars, struct errmsg *err)
{
    uint64_t start_ms = clock_ms();

    if (grammars->machine != NULL)
        return 0;
    if (grammars->vocab == NULL)
        grammars->vocab = grammar_vocab_new(grammars->card);
    int r = grammar_machine_new(grammars->vocab, grammars->bytes_max, &grammars->machine, err);
    log_info("grammar_vocabulary", "nodes=%u ms=%llu", grammars->vocab->nodes_count,
             (unsigned long long)(clock_ms() - start_ms));
    return r;
}

/* ---- the thread ---- */

static void job_free(struct job *job)
{
    grammar_unref(job->grammar);
    mem_free(job);
}

static void *compile_main(void *user)
{
    struct grammars *grammars = user;
    bool end = false;

    while (!end) {
        (void)queue_wait(grammars->todo, -1);
        struct job *job = queue_pop(grammars->todo);
        if (job == NULL)
            continue;
        end = job->end;
        if (end) {
            job_free(job);
            break;
        }
        job->r = make_machine(grammars, &job->err);
        if (job->r == 0)
            job->r = grammar_compile(&job->spec, &job->grammar, &job->err);
        int r = queue_push(grammars->done, job);
        ASSERT(r == 0); /* it has room for all that may wait */
    }
    return NULL;
}

static int start(struct grammars *grammars)
{
    if (grammars->started)
        return 0;
    if (pthread_create(&grammars->thread, NULL, compile_main, grammars) != 0)
        return -EAGAIN;
    (void)pthread_setname_np(grammars->thread, "grammar");
    grammars->started = true;
    return 0;
}

void grammars_stop(struct grammars *grammars)
{
    struct job *job;

    if (!grammars->started)
        return;
    job = mem_zalloc(sizeof(*job));
    job->end = true;
    int r = queue_push(grammars->todo, job);
    ASSERT(r == 0); /* one place is kept for it */
    (void)pthread_join(grammars->thread, NULL);
    grammars->started = false;
    while ((job = queue_pop(grammars->todo)) != NULL)
        job_free(job);
    while ((job = queue_pop(grammars->done)) != NULL)
        job_free(job);
    grammars->waiting = 0;
}

void grammars_free(struct grammars *grammars)
{
    if (grammars == NULL)
        return;
    grammars_stop(grammars);
    queue_free(grammars->todo);
    queue_free(grammars->done);
    grammar_machine_free(grammars->machine);
    grammar_vocab_free(grammars->vocab);
    grammar_store_free(grammars->store);
    mem_free(grammars);
}

/* ---- the io thread ---- */

int grammars_ask(struct grammars *grammars, const struct grammar_spec *spec, void *waiter)
{
    struct grammar *known = grammars->ready ? grammar_store_find(grammars->store, spec) : NULL;

    grammar_unref(known);
    if (known != NULL)
        return 0;
    if (grammars->waiting == GRAMMARS_WAITING_MAX || start(grammars) < 0)
        return -EAGAIN;
    struct job *job = mem_zalloc(sizeof(*job));
    job->spec = *spec;
    job->waiter = waiter;
    grammars->waiting++;
    int r = queue_push(grammars->todo, job);
    ASSERT(r == 0);
    return 1;
}

int grammars_fd(const struct grammars *grammars)
{
    return queue_fd(grammars->done);
}

bool grammars_pop(struct grammars *grammars, void **ret_waiter, int *ret_r, struct errmsg *err)
{
    struct job *job = queue_pop(grammars->done);

    if (job == NULL)
        return false;
    ASSERT(grammars->waiting > 0);
    grammars->waiting--;
    if (job->r == 0) {
        grammars->ready = true;
        grammar_store_put(grammars->store, &job->spec, job->grammar);
    }
    *ret_waiter = job->waiter;
    *ret_r = job->r;
    *err = job->err;
    job_free(job);
    return true;
}

int grammars_get(struct grammars *grammars, const struct grammar_spec *spec,
                 struct grammar **ret_grammar, struct grammar_machine **ret_machine,
                 struct errmsg *err)
{
    ASSERT(grammars->ready || !grammars->started);
    int r = make_machine(grammars, err);

    if (r == 0)
        r = grammar_store_get(grammars->store, spec, ret_grammar, err);
    if (r == 0)
        *ret_machine = grammars->machine;
    return r;
}
