/* check.c - one model, one sequence at a time, through the path that serves.
 *
 *   check_open      file -> config -> (fork ranks) -> shard, weights, decoder -> barrier
 *   check_sequence  chunk by chunk: step -> step ring -> forward on all ranks -> rows of logits
 *   check_close     STEP_STOP, reap
 *
 *   rank 1..        step_ring_wait --> decoder_forward --> step_ring_done      STEP_STOP: exit 0
 *                         ^-------------------------------------'
 *
 * Why blocks in falling order: a block table that counts up from 0 would hide a mistake in paging.
 * Why fork before the backend: its thread pool does not survive a fork.
 * Cost: logits of a whole chunk are kept, chunk * vocabulary floats. */
#include "worker/check.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/backend.h"
#include "proto/base/assert.h"
#include "proto/base/json.h"
#include "proto/base/mem.h"
#include "worker/load/model_source.h"
#include "worker/load/weights.h"
#include "worker/model/decoder.h"
#include "worker/start_plan.h"
#include "worker/tp/comm.h"
#include "worker/tp/group.h"
#include "worker/tp/shard.h"
#include "worker/tp/step_ring.h"

#define TOKENS_MAX_DEFAULT 32768u
#define DEADLINE_DEFAULT_MS 30000u
#define LOAD_DEADLINE_MS 600000u
#define LINE_BYTES_MAX (64u << 20)
#define POSITIONS_MAX 4096u
#define DTYPES_MAX 64u

struct check {
    struct check_settings settings; /* defaults filled in */
    struct model_source *source;
    struct model_config config;
    struct group *group; /* NULL: one rank */
    pid_t pids[TP_RANKS_MAX];
    /* This rank's part. */
    struct shard shard;
    struct backend *backend;
    struct weights *weights;
    struct comm *comm;
    struct decoder *decoder;
    /* Rank 0: the step being described. */
    uint64_t steps;
    uint32_t blocks;
    uint32_t *position, *out_row, *table;
    float *logits;
    size_t logits_bytes;
};

/* --- one rank -------------------------------------------------------------------------------- */

static int open_backend(struct check *check, struct errmsg *err)
{
    const struct check_settings *s = &check->settings;
    const struct backend_settings settings = {
        .name = s->backend, .threads = s->threads, .isa = s->isa, .kv_dtype = s->kv_dtype};
    return backend_open(&settings, &check->backend, err);
}

static int open_rank(struct check *check, uint32_t rank, struct errmsg *err)
{
    const struct check_settings *s = &check->settings;
    int r = shard_compute(&check->config, rank, s->ranks, &check->shard, err);
    if (r < 0)
        return r;
    const struct shard *shard = &check->shard;
    const struct weights_slice slice = shard_slice(shard);
    r = open_backend(check, err);
    if (r == 0)
        r = weights_load(check->source, &check->config, &slice, check->backend, &check->weights,
                         err);
    if (r < 0)
        return r;
    check->comm = check->group == NULL ? comm_single_new() : comm_shm_new(check->group);
    check->comm->deadline_ms = s->deadline_ms;
    const struct decoder_settings settings = {.config = &check->config,
                                              .shard = shard,
                                              .weights = check->weights,
                                              .backend = check->backend,
                                              .comm = check->comm,
                                              .rows_max = s->chunk,
                                              .outputs_max = s->chunk,
                                              .positions_max = s->tokens_max,
                                              .kv_blocks = check->blocks};
    return decoder_new(&settings, &check->decoder, err);
}

static void close_rank(struct check *check)
{
    decoder_free(check->decoder);
    comm_free(check->comm);
    weights_free(check->weights, &check->config, check->backend);
    backend_close(check->backend);
}

/* --- ranks 1.. ------------------------------------------------------------------------------- */

static int follow(struct check *check)
{
    for (;;) {
        struct step_descriptor descriptor;
        int r = step_ring_wait(check->group, &descriptor);
        if (r < 0 || descriptor.kind == STEP_STOP)
            return r;
        r = decoder_forward(check->decoder, &descriptor.step, NULL);
        if (r < 0)
            return r;
        step_ring_done(check->group);
        group_beat(check->group, descriptor.number);
    }
}

static _Noreturn void run_follower(struct check *check, int fd, uint32_t rank, pid_t parent)
{
    struct errmsg err = {""};
    struct group *own = NULL;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    int r = group_join(fd, rank, &own, &err);
    if (r < 0) {
        group_abort(check->group, err.text); /* the parent's view, inherited */
        _exit(1);
    }
    check->group = own;
    r = open_rank(check, rank, &err);
    if (r < 0)
        group_abort(own, err.text);
    else
        r = group_barrier(own, LOAD_DEADLINE_MS);
    if (r == 0)
        r = follow(check);
    _exit(r == 0 ? 0 : 1); /* no exit handlers: they are the parent's */
}

static int start_ranks(struct check *check, struct errmsg *err)
{
    const struct check_settings *s = &check->settings;
    const struct group_limits limits = {
        .ranks = s->ranks,
        .step_bytes_max =
            step_ring_bytes_max(&(struct step_sizes){s->chunk, 1, check->blocks, 0, 0, 1, 0}),
        .reduce_floats_max = (size_t)s->chunk * check->config.hidden,
        .ids_max = check->config.vocab_size,
        .blocks_max = check->blocks,
    };
    int fd = -1;
    int r = group_create(&limits, &check->group, &fd, err);
    if (r < 0)
        return r;
    pid_t parent = getpid();
    for (uint32_t rank = 1; rank < s->ranks && r == 0; rank++) {
        pid_t pid = fork();
        if (pid == 0)
            run_follower(check, fd, rank, parent);
        if (pid < 0)
            r = errmsg_errno(err, "start rank %u", rank);
        else
            check->pids[rank] = pid;
    }
    (void)close(fd);
    return r;
}

/* --- open and close -------------------------------------------------------------------------- */

static void fill_defaults(struct check *check)
{
    struct check_settings *s = &check->settings;
    uint32_t context = check->config.context_tokens;
    if (s->backend == NULL)
        s->backend = s->reference ? "ref" : "cpu";
    s->threads = s->threads == 0 ? 1 : s->threads;
    s->chunk = s->chunk == 0 ? CHECK_CHUNK_DEFAULT : s->chunk;
    s->ranks = s->ranks == 0 ? 1 : s->ranks;
    s->deadline_ms = s->deadline_ms == 0 ? DEADLINE_DEFAULT_MS : s->deadline_ms;
    if (s->tokens_max == 0)
        s->tokens_max = context < TOKENS_MAX_DEFAULT ? context : TOKENS_MAX_DEFAULT;
    s->chunk = s->chunk > s->tokens_max ? s->tokens_max : s->chunk;
    check->blocks = (s->tokens_max + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
}

static int alloc_step(struct check *check, struct errmsg *err)
{
    const struct check_settings *s = &check->settings;
    check->position = mem_calloc(s->chunk, sizeof(uint32_t));
    check->out_row = mem_calloc(s->chunk, sizeof(uint32_t));
    check->table = mem_calloc(check->blocks, sizeof(uint32_t));
    for (uint32_t i = 0; i < check->blocks; i++)
        check->table[i] = check->blocks - 1 - i;
    for (uint32_t i = 0; i < s->chunk; i++)
        check->out_row[i] = i;
    size_t bytes = (size_t)s->chunk * check->config.vocab_size * sizeof(float);
    void *memory = NULL;
    if (mem_map(bytes, &memory) < 0)
        return errmsg_set(err, -ENOMEM, "no memory for %zu bytes of logits", bytes);
    check->logits = memory;
    check->logits_bytes = bytes;
    return 0;
}

/* A code from the communicator alone says little: the group knows why. */
static int explain(const struct check *check, int r, struct errmsg *err)
{
    const char *reason = check->group == NULL ? NULL : group_aborted(check->group);
    if (reason != NULL && (r == -ECANCELED || r == -ETIMEDOUT))
        return errmsg_set(err, r, "the tensor-parallel group failed: %s", reason);
    return r;
}

static int open_ranks(struct check *check, struct errmsg *err)
{
    int r = 0;
    if (check->settings.ranks > 1)
        r = start_ranks(check, err);
    if (r == 0)
        r = open_rank(check, 0, err);
    if (r == 0)
        r = alloc_step(check, err);
    if (r == 0 && check->group != NULL)
        r = explain(check, group_barrier(check->group, LOAD_DEADLINE_MS), err);
    return r;
}

int check_open(const struct check_settings *settings, struct check **ret_check, struct errmsg *err)
{
    struct check *check = mem_zalloc(sizeof(*check));
    check->settings = *settings;
    int r = model_source_open(settings->model, &check->source, err);
    if (r < 0)
        goto out;
    r = model_config_read(check->source, &check->config, err);
    if (r < 0) {
        r = errmsg_prefix(err, r, "'%s'", settings->model);
        goto out;
    }
    fill_defaults(check);
    if (check->settings.ranks > TP_RANKS_MAX) {
        r = errmsg_set(err, -EINVAL, "tensor parallel size %u, at most %u", check->settings.ranks,
                       TP_RANKS_MAX);
        goto out;
    }
    r = open_ranks(check, err);
    if (r < 0) {
        r = errmsg_prefix(err, r, "'%s'", settings->model);
        goto out;
    }
    *ret_check = check;
    check = NULL;
out:
    if (check != NULL && check->group != NULL)
        group_abort(check->group, "rank 0 could not start");
    check_close(check);
    return r;
}

static void stop_ranks(struct check *check)
{
    const struct step_descriptor stop = {.kind = STEP_STOP, .number = check->steps + 1};
    if (step_ring_publish(check->group, &stop) < 0)
        group_abort(check->group, "rank 0 stops");
    for (uint32_t rank = 1; rank < check->settings.ranks; rank++) {
        if (check->pids[rank] > 0)
            (void)waitpid(check->pids[rank], NULL, 0);
    }
}

void check_close(struct check *check)
{
    if (check == NULL)
        return;
    if (check->group != NULL)
        stop_ranks(check);
    close_rank(check);
    group_free(check->group);
    model_source_close(check->source);
    mem_free(check->position);
    mem_free(check->out_row);
    mem_free(check->table);
    if (check->logits != NULL)
        mem_unmap(check->logits, check->logits_bytes);
    mem_free(check);
}

const struct model_config *check_config(const struct check *check)
{
    return &check->config;
}

/* --- sequences ------------------------------------------------------------------------------- */

static int run_chunk(struct check *check, const uint32_t *ids, uint32_t first, uint32_t rows)
{
    const uint32_t row_first[2] = {0, rows};
    for (uint32_t i = 0; i < rows; i++)
        check->position[i] = first + i;
    const struct step_descriptor descriptor = {
        .kind = STEP_FORWARD,
        .number = ++check->steps,
        .step = {.rows = rows,
                 .sequences = 1,
                 .ids = ids + first,
                 .position = check->position,
                 .row_first = row_first,
                 .table = check->table,
                 .table_stride = check->blocks,
                 .out_row = check->out_row,
                 .outputs = rows},
    };
    if (check->group != NULL) {
        int r = step_ring_publish(check->group, &descriptor);
        if (r < 0)
            return r;
        group_beat(check->group, descriptor.number);
    }
    return decoder_forward(check->decoder, &descriptor.step, check->logits);
}

int check_sequence(struct check *check, const uint32_t *ids, uint32_t count, check_row_fn on_row,
                   void *user, struct errmsg *err)
{
    const struct check_settings *s = &check->settings;
    if (count > s->tokens_max)
        return errmsg_set(err, -EINVAL, "%u ids, at most %u", count, s->tokens_max);
    for (uint32_t i = 0; i < count; i++) {
        if (ids[i] >= check->config.vocab_size)
            return errmsg_set(err, -EINVAL, "id %u at %u, the vocabulary has %u", ids[i], i,
                              check->config.vocab_size);
    }
    for (uint32_t first = 0; first < count; first += s->chunk) {
        uint32_t rows = count - first < s->chunk ? count - first : s->chunk;
        int r = run_chunk(check, ids, first, rows);
        if (r < 0)
            return explain(check, r, err);
        for (uint32_t i = 0; i < rows; i++)
            on_row(user, first + i, check->logits + (size_t)i * check->config.vocab_size);
    }
    return 0;
}

/* --- lines of JSON --------------------------------------------------------------------------- */

struct question {
    uint32_t *ids, *positions;
    uint32_t ids_count, positions_count;
};

struct answer {
    const struct question *question;
    uint32_t vocab_size;
    uint32_t *argmax; /* [ids_count] */
    float *rows;      /* [positions_count, vocab_size] */
};

static void on_answer_row(void *user, uint32_t position, const float *logits)
{
    struct answer *answer = user;
    uint32_t best = 0;
    for (uint32_t i = 1; i < answer->vocab_size; i++)
        best = logits[i] > logits[best] ? i : best;
    answer->argmax[position] = best;
    for (uint32_t i = 0; i < answer->question->positions_count; i++) {
        if (answer->question->positions[i] == position)
            memcpy(answer->rows + (size_t)i * answer->vocab_size, logits,
                   answer->vocab_size * sizeof(float));
    }
}

/* An array of integers below `max`; absent: none. */
static int read_numbers(const json_t *object, const char *key, uint32_t max, uint32_t **ret_items,
                        uint32_t *ret_count, struct errmsg *err)
{
    const json_t *array = json_object_get(object, key);
    size_t count = array == NULL ? 0 : json_array_size(array);
    if (array != NULL && !json_is_array(array))
        return errmsg_set(err, -EINVAL, "\"%s\" is not an array", key);
    uint32_t *items = mem_calloc(count + 1, sizeof(*items));
    for (size_t i = 0; i < count; i++) {
        const json_t *item = json_array_get(array, i);
        json_int_t value = json_integer_value(item);
        if (!json_is_integer(item) || value < 0 || value >= (json_int_t)max) {
            mem_free(items);
            return errmsg_set(err, -EINVAL, "\"%s\"[%zu] is not an integer below %u", key, i, max);
        }
        items[i] = (uint32_t)value;
    }
    *ret_items = items;
    *ret_count = (uint32_t)count;
    return 0;
}

static int read_question(const struct check *check, const char *line, size_t bytes,
                         struct question *question, struct errmsg *err)
{
    json_t *object = NULL;
    int r = json_parse(line, bytes, LINE_BYTES_MAX, &object, err);
    if (r < 0)
        return r;
    if (!json_is_object(object))
        r = errmsg_set(err, -EINVAL, "not an object");
    if (r == 0)
        r = read_numbers(object, "ids", check->config.vocab_size, &question->ids,
                         &question->ids_count, err);
    if (r == 0)
        r = read_numbers(object, "positions", question->ids_count, &question->positions,
                         &question->positions_count, err);
    if (r == 0 && question->positions_count > POSITIONS_MAX)
        r = errmsg_set(err, -EINVAL, "%u positions, at most %u", question->positions_count,
                       POSITIONS_MAX);
    json_decref(object);
    return r;
}

static void print_answer(const struct answer *answer, FILE *out)
{
    (void)fputs("{\"argmax\": [", out);
    for (uint32_t i = 0; i < answer->question->ids_count; i++)
        (void)fprintf(out, "%s%u", i > 0 ? ", " : "", answer->argmax[i]);
    (void)fputs("], \"logits\": [", out);
    for (uint32_t p = 0; p < answer->question->positions_count; p++) {
        (void)fputs(p > 0 ? ", [" : "[", out);
        for (uint32_t i = 0; i < answer->vocab_size; i++) {
            float value = answer->rows[(size_t)p * answer->vocab_size + i];
            if (isfinite(value))
                (void)fprintf(out, "%s%.9g", i > 0 ? ", " : "", (double)value);
            else
                (void)fprintf(out, "%snull", i > 0 ? ", " : "");
        }
        (void)fputs("]", out);
    }
    (void)fputs("]}\n", out);
}

static int answer_line(struct check *check, const char *line, size_t bytes, FILE *out,
                       struct errmsg *err)
{
    struct question question = {NULL, NULL, 0, 0};
    struct answer answer = {.question = &question, .vocab_size = check->config.vocab_size};
    int r = read_question(check, line, bytes, &question, err);
    if (r < 0)
        goto out;
    answer.argmax = mem_calloc((size_t)question.ids_count + 1, sizeof(*answer.argmax));
    answer.rows =
        mem_calloc((size_t)question.positions_count * answer.vocab_size + 1, sizeof(*answer.rows));
    r = check_sequence(check, question.ids, question.ids_count, on_answer_row, &answer, err);
    if (r == 0)
        print_answer(&answer, out);
out:
    mem_free(answer.argmax);
    mem_free(answer.rows);
    mem_free(question.ids);
    mem_free(question.positions);
    return r;
}

static int answer_lines(struct check *check, FILE *in, FILE *out, struct errmsg *err)
{
    char *line = NULL;
    size_t capacity = 0, number = 0;
    ssize_t bytes = 0;
    int r = 0;
    while (r == 0 && (bytes = getline(&line, &capacity, in)) >= 0) {
        number++;
        while (bytes > 0 && (line[bytes - 1] == '\n' || line[bytes - 1] == '\r'))
            bytes--;
        if (bytes > 0)
            r = answer_line(check, line, (size_t)bytes, out, err);
        if (r < 0)
            r = errmsg_prefix(err, r, "line %zu", number);
    }
    free(line); /* getline's */
    if (r == 0 && ferror(in))
        r = errmsg_set(err, -EIO, "reading ids failed");
    return r;
}

/* --- the report ------------------------------------------------------------------------------ */

/* What the files hold, by type. */
static void print_types(const struct check *check, FILE *out)
{
    uint64_t bytes[DTYPES_MAX] = {0}, other = 0; /* other: fp8 */
    for (size_t i = 0; i < model_source_count(check->source); i++) {
        const struct model_entry entry = model_source_at(check->source, i);
        if (entry.dtype < DTYPES_MAX)
            bytes[entry.dtype] += entry.bytes;
        else
            other += entry.bytes;
    }
    (void)fputs("stored_bytes:", out);
    for (uint32_t i = 0; i < DTYPES_MAX; i++) {
        const struct dtype_info *info = dtype_info(i);
        if (bytes[i] > 0 && info != NULL)
            (void)fprintf(out, " %s %llu", info->name, (unsigned long long)bytes[i]);
    }
    if (other > 0)
        (void)fprintf(out, " other %llu", (unsigned long long)other);
    (void)fputc('\n', out);
}

struct first_token {
    uint32_t vocab_size, best, bad; /* bad: logits that are no numbers */
    float largest;
};

static void on_first_row(void *user, uint32_t position, const float *logits)
{
    struct first_token *first = user;
    ASSERT(position == 0);
    for (uint32_t i = 0; i < first->vocab_size; i++) {
        first->bad += isfinite(logits[i]) ? 0 : 1;
        first->best = logits[i] > logits[first->best] ? i : first->best;
    }
    first->largest = logits[first->best];
}

/* One token through everything: what is loaded computes numbers. */
static int try_token(struct check *check, FILE *out, struct errmsg *err)
{
    struct first_token first = {.vocab_size = check->config.vocab_size};
    const uint32_t id = 0;
    int r = check_sequence(check, &id, 1, on_first_row, &first, err);
    if (r < 0)
        return r;
    if (first.bad > 0)
        return errmsg_set(err, -EDOM, "'%s': %u of %u logits after token 0 are no numbers",
                          check->settings.model, first.bad, first.vocab_size);
    (void)fprintf(out, "after_token_0: %u, logit %.4g\n", first.best, (double)first.largest);
    return 0;
}

/* The numbers of this rank, as a start has them before it loads. */
static struct rank_model numbers_of(const struct check *check, bool whole_windows)
{
    return (struct rank_model){.source = check->source,
                               .config = check->config,
                               .groups = layer_groups_of(&check->config, whole_windows),
                               .shard = check->shard,
                               .backend = check->backend};
}

/* What a worker with these settings takes, as it plans it: layers that slide have blocks of their
 * own, and fewer of them. 0; as start_plan_make: such a worker would not start. */
static int print_plan(const struct check *check, FILE *out, struct errmsg *err)
{
    const struct worker_settings *start = check->settings.start;
    char text[START_PLAN_TEXT_MAX];
    struct start_plan plan;
    if (start == NULL)
        return 0;
    const struct rank_model model = numbers_of(check, worker_whole_windows(start));
    const struct layer_groups *groups = &model.groups;
    struct start_facts facts = start_facts_of(start, &model);
    facts.memory_bytes = check->settings.memory_bytes;
    int r = start_plan_make(start, &model, &facts, &plan, err);
    if (r < 0) {
        (void)fputs("kv_pool: none\n", out);
        return r;
    }
    uint32_t blocks = groups->full_layers > 0 ? plan.pool.blocks : 0;
    uint32_t windows = plan.pool.window_blocks;
    (void)fprintf(out, "kv_pool: %u blocks, %llu tokens in %llu bytes\n", blocks,
                  (unsigned long long)(blocks > 0 ? blocks : windows) * KV_BLOCK_TOKENS,
                  (unsigned long long)blocks * facts.pool.block_bytes +
                      (unsigned long long)windows * facts.pool.window_block_bytes);
    if (groups->window > 0)
        (void)fprintf(out, "kv_window: %u tokens of %u layers, %u blocks of %zu bytes of it\n",
                      groups->window, groups->window_layers, windows,
                      facts.pool.window_block_bytes);
    (void)fprintf(out, "max_model_len: %u, %u sequences of it\n", plan.pool.context_tokens,
                  plan.pool.sequences_at_full_context);
    start_plan_text(&facts, &plan, text);
    (void)fprintf(out, "plan: %s\n", text);
    return 0;
}

/* All of it, also where there is no plan: 0, or print_plan's. */
static int print_report(const struct check *check, FILE *out, struct errmsg *err)
{
    const struct model_config *c = &check->config;
    const struct check_settings *s = &check->settings;
    (void)fprintf(out, "model: %s\narchitecture: %s\n", s->model, c->architecture);
    (void)fprintf(out, "layers: %u\nhidden: %u\nffn: %u\nvocabulary: %u\ncontext_tokens: %u\n",
                  c->layers, c->hidden, c->ffn, c->vocab_size, c->context_tokens);
    (void)fprintf(out, "heads: %u query, %u KV, %u values each\n", c->q_heads, c->kv_heads,
                  c->head_dim);
    (void)fprintf(out, "rope: base %g, %u dimensions", (double)c->rope.theta, c->rotary_dims);
    if (c->rope.long_after > 0)
        (void)fprintf(out, ", %s factors (context %u, long after %u)",
                      s->tokens_max > c->rope.long_after ? "long" : "short", s->tokens_max,
                      c->rope.long_after);
    (void)fprintf(out, "\nwindow: %u\nfeatures:", c->window);
    for (unsigned i = 0; model_feature_name(i) != NULL; i++)
        (void)fprintf(out, "%s%s", model_has(c, 1u << i) ? " " : "",
                      model_has(c, 1u << i) ? model_feature_name(i) : "");
    (void)fprintf(out, "\nexperts: %u, %u of them for a token\n", c->experts.count,
                  c->experts.chosen);
    (void)fprintf(out, "backend: %s\nisa: %s\nranks: %u\nthreads: %u\n", s->backend,
                  check->backend->isa, s->ranks, check->backend->threads);
    const struct rank_model whole = numbers_of(check, true);
    (void)fprintf(out, "weights_bytes: %llu\nkv_block_bytes: %zu\nactivation_bytes: %zu\n",
                  (unsigned long long)check->weights->bytes, rank_model_block_bytes(&whole),
                  decoder_activation_bytes(check->decoder));
    (void)fprintf(out, "kv_cache_dtype: %s\n", kv_dtype_name(s->kv_dtype));
    int r = print_plan(check, out, err);
    print_types(check, out);
    return r;
}

static int report(struct check *check, FILE *out, struct errmsg *err)
{
    int plan = print_report(check, out, err);
    struct errmsg token = {""};
    int r = try_token(check, out, &token);
    return r < 0 ? errmsg_set(err, r, "%s", token.text) : plan;
}

int check_run(const struct check_settings *settings, FILE *in, FILE *out, struct errmsg *err)
{
    struct check *check = NULL;
    int r = check_open(settings, &check, err);
    if (r < 0)
        return r;
    ASSERT(check != NULL);
    r = in != NULL ? answer_lines(check, in, out, err) : report(check, out, err);
    check_close(check);
    if (fflush(out) != 0 && r == 0)
        r = errmsg_errno(err, "write the answer");
    return r;
}
