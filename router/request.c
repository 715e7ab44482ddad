/* request.c - states, dispatches, retries, deadlines.
 *
 * (picture of the states: request.h)
 * Why one list and no timer per request: all deadlines are equally far from the arrival, so the
 * front of the list is the next; requests_tick() looks at nothing else. Invariants: `exchange` is
 * NULL exactly when the client has its whole answer or is gone; a choice holds a dispatch exactly
 * while it is neither done nor cancelled. A request frees itself in request_end(), so that whoever
 * calls something that may end it returns at once. */
#define LOG_MODULE "request"
#include "router/request.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <strings.h>

#include "proto/base/assert.h"
#include "proto/base/clock.h"
#include "proto/base/log.h"
#include "proto/base/mem.h"
#include "proto/base/rng.h"
#include "proto/vllm_metrics.h"
#include "router/api/grammar_fields.h"
#include "router/http/server.h"
#include "router/metrics.h"
#include "router/request_private.h"

#define SCRATCH_BYTES_MAX ((size_t)256 << 20)
#define SCRATCH_KEPT ((size_t)1 << 20) /* between requests */
#define REFRAIN_BYTES_MAX ((size_t)64 << 10)
#define COMPLETION_TOKENS_DEFAULT 16u         /* vLLM's, for /v1/completions */
#define DEADLINE_GRACE_MS 1000u               /* the worker's own deadline comes first */
#define GRAMMARS_BYTES_MAX ((size_t)32 << 20) /* looked at before: they need no second look */
#define TEXT_BYTES_MAX ((size_t)64 << 20)
#define PROMPT_VALUES_MAX (1u << 19)     /* of about 100 bytes each */
#define HELD_BYTES_MAX SCRATCH_BYTES_MAX /* of all choices: the answer must fit in the scratch */

static const bool may_follow[REQUEST_STATES][REQUEST_STATES] = {
    [REQUEST_PARSED] = {[REQUEST_DISPATCHED] = true, [REQUEST_DONE] = true},
    [REQUEST_DISPATCHED] = {[REQUEST_STREAMING] = true, [REQUEST_DONE] = true},
    [REQUEST_STREAMING] = {[REQUEST_DONE] = true},
};

static const char *const state_names[REQUEST_STATES] = {[REQUEST_PARSED] = "parsed",
                                                        [REQUEST_DISPATCHED] = "dispatched",
                                                        [REQUEST_STREAMING] = "streaming",
                                                        [REQUEST_DONE] = "done"};

void request_set_state(struct request *request, enum request_state next, const char *why)
{
    ASSERT(may_follow[request->state][next]);
    log_debug("request_state", "req=%s from=%s to=%s why=\"%s\"", request->id,
              state_names[request->state], state_names[next], why);
    request->state = next;
}

struct requests *requests_new(const struct requests_parts *parts)
{
    struct requests *requests = mem_zalloc(sizeof(*requests));
    char random[33];

    requests->parts = *parts;
    list_init(&requests->open);
    rng_hex_id(random);
    memcpy(requests->prefix, random, sizeof(requests->prefix) - 1);
    buffer_init(&requests->scratch, SCRATCH_BYTES_MAX);
    buffer_init(&requests->logprobs, SCRATCH_BYTES_MAX);
    requests->grammars = grammar_checks_new(parts->loop, GRAMMARS_BYTES_MAX);
    buffer_init(&requests->refrain, REFRAIN_BYTES_MAX);
    return requests;
}

void requests_free(struct requests *requests)
{
    if (!requests)
        return;
    ASSERT(list_empty(&requests->open) && requests->open_count == 0);
    buffer_done(&requests->scratch);
    buffer_done(&requests->logprobs);
    grammar_checks_free(requests->grammars);
    buffer_done(&requests->refrain);
    mem_free(requests);
}

uint32_t requests_open_count(const struct requests *requests)
{
    return requests->open_count;
}

const struct api_request *request_fields(const struct request *request)
{
    return &request->fields;
}

const struct served_model *request_model(const struct request *request)
{
    return request->model;
}

uint32_t request_context_tokens(const struct request *request)
{
    return request->context_tokens;
}

/* ---- end ---- */

static void request_free(struct request *request)
{
    struct requests *requests = request->requests;

    for (uint32_t i = 0; i < request->choices_count; i++) {
        ASSERT(!request->choices[i].dispatch.ticket);
        choice_done(&request->choices[i]);
    }
    for (uint32_t i = 0; i < request->prompts_count; i++) {
        token_ids_done(&request->prompts[i].ids);
        prompt_trace_done(&request->prompts[i].trace);
    }
    turn_free(request->turn);
    list_remove(&request->link);
    ASSERT(requests->open_count > 0);
    requests->open_count--;
    api_request_done(&request->fields);
    if (request->model)
        served_model_unref(request->model);
    arena_done(&request->arena);
    mem_free(request);
}

static void log_end(const struct request *request, int status, const char *finish)
{
    struct chunk_usage usage;
    uint64_t now = clock_ns();
    double ttft_ms = request->first_ns ? (double)(request->first_ns - request->began_ns) / 1e6 : -1;
    char group[16] = "-";

    answer_usage(request, &usage);
    for (uint32_t i = request->choices_count; i-- > 0;) {
        if (request->choices[i].first_seen)
            (void)snprintf(group, sizeof(group), "%u", request->choices[i].group);
    }
    log_info("request",
             "req=%s status=%d prompt_tokens=%llu cached_tokens=%llu completion_tokens=%llu "
             "group=%s ttft_ms=%.1f total_ms=%.1f finish=%s",
             request->id, status, (unsigned long long)usage.prompt_tokens,
             (unsigned long long)usage.cached_tokens, (unsigned long long)usage.completion_tokens,
             group, ttft_ms, (double)(now - request->began_ns) / 1e6, finish);
}

static void observe_choices(const struct request *request)
{
    uint32_t longest = 0;

    if (request->choices_count == 0) /* refused before it was dispatched */
        return;
    for (uint32_t i = 0; i < request->choices_count; i++)
        longest = request->choices[i].tokens > longest ? request->choices[i].tokens : longest;
    metrics_observe(request->model->metrics, VLLM_PARAMS_N, 0, request->fields.n);
    metrics_observe(request->model->metrics, VLLM_MAX_GENERATED, 0, longest);
}

/* The answer is out, or the client is gone. Frees the request. */
static void request_end(struct request *request, int status, const char *finish)
{
    struct requests *requests = request->requests;
    struct metrics *metrics = requests->parts.metrics;
    struct chunk_usage usage;

    ASSERT(!request->exchange);
    grammar_check_cancel(request->grammar_check);
    for (uint32_t i = 0; i < request->choices_count; i++)
        links_cancel(requests->parts.links, &request->choices[i].dispatch);
    beams_free(request->beams);
    request->beams = NULL;
    request_learn(request, status == 200);
    if (request->turn && request->choices_count > 0)
        turn_end(request->turn, request->choices[0].generated.ids,
                 request->choices[0].generated.count);
    request_set_state(request, REQUEST_DONE, finish);
    answer_usage(request, &usage);
    metrics_add(metrics, RM_REQUESTS, router_metric_code(status), 1);
    metrics_add(metrics, RM_COMPLETION_TOKENS, 0, (double)usage.completion_tokens);
    observe_choices(request);
    metrics_observe(metrics, RM_REQUEST_SECONDS, 0, (double)(clock_ns() - request->began_ns) / 1e9);
    log_end(request, status, finish);
    request_free(request);
    buffer_trim(&requests->scratch, SCRATCH_KEPT);
    buffer_trim(&requests->logprobs, SCRATCH_KEPT);
}

void request_refuse(struct request *request, const struct api_error *error)
{
    answer_error(request, error);
    request_end(request, error->status, error->code ? error->code : "error");
}

static void on_gone(void *owner)
{
    struct request *request = owner;
    request->exchange = NULL;
    request_end(request, 499, "client_gone");
}

/* ---- begin ---- */

/* A client's id is a label: only what is safe in headers, JSON and logs. */
static const char *label_of(const char *id)
{
    size_t bytes = id ? strlen(id) : 0;

    if (bytes == 0 || bytes > REQUEST_CLIENT_ID_MAX ||
        strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:") != bytes)
        return NULL;
    return id;
}

static void name_request(struct request *request)
{
    const char *label = label_of(http_exchange_header(request->exchange, "x-request-id"));

    if (!label)
        label = label_of(request->fields.request_id);

    (void)snprintf(request->id, sizeof(request->id), "%s-%llx", request->requests->prefix,
                   (unsigned long long)++request->requests->next_id);
    http_exchange_add_header(request->exchange, "x-request-id", label ? label : request->id);
    request->api_id = arena_printf(&request->arena, "%s-%s",
                                   request->fields.kind == API_CHAT ? "chatcmpl" : "cmpl",
                                   label ? label : request->id);
    if (!request->api_id) /* the body took all memory that a request may have */
        request->api_id = request->id;
    if (label)
        log_debug("request_label", "req=%s client_id=%s", request->id, label);
}

static bool body_is_json(const struct http_exchange *exchange)
{
    const char *type = http_exchange_header(exchange, "content-type");
    size_t bytes = type ? strcspn(type, "; \t") : 0;

    return !type || (bytes == 16 && strncasecmp(type, "application/json", 16) == 0) ||
           (bytes > 5 && strncasecmp(type + bytes - 5, "+json", 5) == 0);
}

static int refuse_broken(const struct served_model *model, struct api_error *error)
{
    return api_error_set(error, 500, "model_unusable", "model",
                         "The model '%.100s' cannot be served: %.300s.", model->card->name,
                         model->broken);
}

struct served_model *request_find_model(struct models *models, const char *name,
                                        struct api_error *error)
{
    struct served_model *model = models_find(models, name);

    if (!model && !name && models_live(models) > 1) {
        (void)api_error_bad(error, "model", "'model' is missing; %zu models are served here.",
                            models_live(models));
    } else if (model ? !model->live : list_empty(models_list(models)) || !name) {
        (void)api_error_set(error, 503, "no_worker_ready", NULL,
                            "No worker that serves this model is ready. Try again.");
        error->retry_after_s = 1;
        model = NULL;
    } else if (!model) {
        (void)api_error_set(error, 404, "model_not_found", "model",
                            "The model '%.200s' does not exist here.", name);
    } else if (!model->maker.tokenizer) {
        (void)refuse_broken(model, error);
        model = NULL;
    }
    return model;
}

static int refuse_memory(struct api_error *error)
{
    return api_error_set(error, 413, "request_too_large", NULL,
                         "The request needs more than the %zu MiB of memory that it may have.",
                         REQUEST_ARENA_MAX >> 20);
}

static int make_prompts(struct request *request, struct api_error *error)
{
    const char *model = request->model->card->name;
    size_t count = request->fields.prompts_count + 1;

    request->context_tokens = links_context_tokens(request->requests->parts.links, model);
    if (request->context_tokens == 0) {
        (void)api_error_set(error, 503, "no_worker_ready", NULL,
                            "No worker that serves this model takes requests now. Try again.");
        error->retry_after_s = 1;
        return -EINVAL;
    }
    request->prompts = arena_zalloc(&request->arena, count * sizeof(*request->prompts));
    return request->prompts ? 0 : refuse_memory(error);
}

static int open_fields(struct request *request, enum api_kind kind, struct api_error *error)
{
    size_t bytes = 0;
    const void *body = http_exchange_body(request->exchange, &bytes);

    if (!body_is_json(request->exchange)) {
        request->fields.kind = kind;
        return api_error_set(error, 415, "unsupported_media_type", NULL,
                             "The Content-Type must be application/json.");
    }
    int r = request_json_parse(kind, body, bytes, &request->arena, &request->fields, error);
    if (r < 0)
        return r;
    if (request->requests->parts.exclude_tools && request->fields.tool_choice == API_TOOLS_NONE)
        request->fields.tools = NULL;
    struct served_model *model =
        request_find_model(request->requests->parts.models, request->fields.model, error);
    if (!model)
        return -EINVAL;
    request->model = served_model_ref(model);
    if (kind == API_CHAT && model->no_chat[0] && request->fields.chat_template_bytes == 0)
        return api_error_set(error, 500, "chat_template_unusable", "model",
                             "The chat template of '%.100s' cannot be used: %.300s.",
                             model->card->name, model->no_chat);
    r = answer_budget_check(&model->answers, &request->fields, error);
    if (r < 0)
        return r;
    r = token_rules_make(&request->fields, model->maker.tokenizer, &request->arena, &request->rules,
                         error);
    if (r == 0)
        r = answer_force_calls(&model->answers, &request->arena, &request->fields, error);
    return r < 0 ? r : make_prompts(request, error);
}

struct request *request_open(struct requests *requests, struct http_exchange *exchange,
                             enum api_kind kind)
{
    struct request *request = mem_zalloc(sizeof(*request));
    struct api_error error;

    request->requests = requests;
    request->exchange = exchange;
    request->began_ns = clock_ns();
    request->created_s = clock_unix_s();
    request->deadline_ms = clock_ms() + requests->parts.timeout_ms;
    arena_init(&request->arena, REQUEST_ARENA_MAX);
    list_push_back(&requests->open, &request->link);
    requests->open_count++;
    int r = open_fields(request, kind, &error);
    name_request(request);
    if (r < 0) {
        request_refuse(request, &error);
        return NULL;
    }
    if (!request->fields.session) /* a hint for the policy "session" */
        request->fields.session = http_exchange_header(exchange, "x-session-id");
    request->plan = (struct choice_plan){.tokenizer = request->model->maker.tokenizer,
                                         .fields = &request->fields,
                                         .strip_first_space = kind == API_CHAT,
                                         .text_bytes_max = TEXT_BYTES_MAX};
    http_exchange_on_gone(exchange, on_gone, request);
    return request;
}

/* Room for new tokens, or the sentence with the numbers. 0 is never returned as room. */
static int room_for(const struct request *request, size_t tokens, uint32_t *ret_tokens_max,
                    struct api_error *error)
{
    const char *param = request->fields.kind == API_CHAT ? "messages" : "prompt";
    uint32_t context = request->context_tokens;
    uint32_t asked = request->fields.score_only ? 1 : request->fields.tokens_max;

    if (tokens >= context)
        return api_error_set(error, 400, "context_length_exceeded", param,
                             "This model's maximum context length is %u tokens, and the prompt "
                             "alone has %zu; at least 1 must be left for the answer. Please "
                             "shorten the %s.",
                             context, tokens, param);
    uint32_t room = context - (uint32_t)tokens;
    if (asked > room)
        return api_error_set(error, 400, "context_length_exceeded", param,
                             "This model's maximum context length is %u tokens. %zu tokens were "
                             "requested: %zu in the %s and %u for the answer. Please shorten "
                             "either.",
                             context, tokens + asked, tokens, param, asked);
    if (asked == 0)
        asked = request->fields.kind == API_COMPLETIONS && COMPLETION_TOKENS_DEFAULT < room
                    ? COMPLETION_TOKENS_DEFAULT
                    : room;
    uint32_t most = request->model->card->answer_tokens_max; /* as vLLM: a bound on all answers */
    if (most > 0 && asked > most)
        asked = most;
    if (request->fields.tokens_min > asked)
        return api_error_bad(error, "min_tokens",
                             "'min_tokens' is %u, but the answer can have at most %u tokens.",
                             request->fields.tokens_min, asked);
    *ret_tokens_max = asked;
    return 0;
}

/* They are kept as text until the answer is whole. */
static int count_prompt_values(struct request *request, size_t tokens, struct api_error *error)
{
    uint64_t each =
        (uint64_t)api_request_prompt_logprobs(&request->fields) * request->fields.best_of;

    request->prompt_values += each * tokens;
    if (request->prompt_values <= PROMPT_VALUES_MAX)
        return 0;
    return api_error_bad(error, request->fields.prompt_logprobs ? "prompt_logprobs" : "logprobs",
                         "%" PRIu64 " log probabilities of prompt tokens were asked for; at most "
                         "%u fit in an answer.",
                         request->prompt_values, PROMPT_VALUES_MAX);
}

int request_add_prompt(struct request *request, struct token_ids *ids, struct prompt_trace *trace,
                       struct api_error *error)
{
    uint32_t tokens_max = 0;

    ASSERT(request->state == REQUEST_PARSED && ids->count > 0);
    ASSERT(request->prompts_count < request->fields.prompts_count + 1);
    int r = room_for(request, ids->count, &tokens_max, error);
    if (r == 0)
        r = count_prompt_values(request, ids->count, error);
    if (r < 0)
        return r;
    request->prompts[request->prompts_count++] =
        (struct request_prompt){.ids = *ids, .trace = *trace, .tokens_max = tokens_max};
    struct request_prompt *prompt = &request->prompts[request->prompts_count - 1];
    prompt->thinks = answer_budget_make(&request->model->answers, request->model->maker.tokenizer,
                                        &request->fields, ids->ids, ids->count, &prompt->thinking);
    token_ids_init(ids, ids->count_max);
    *trace = (struct prompt_trace){0};
    return 0;
}

void request_set_turn(struct request *request, struct turn *turn)
{
    ASSERT(request->state == REQUEST_PARSED && !request->turn);
    request->turn = turn;
}

void request_echo_prompt(struct request *request, const char *echo, size_t echo_bytes)
{
    ASSERT(request->state == REQUEST_PARSED && request->prompts_count > 0);
    struct request_prompt *prompt = &request->prompts[request->prompts_count - 1];
    prompt->echo = echo;
    prompt->echo_bytes = echo_bytes;
}

void request_show_prompt(struct request *request, const char *text, size_t bytes)
{
    request->prompt_text = text;
    request->prompt_text_bytes = bytes;
}

const char *request_keep_text(struct request *request, const char *text, size_t bytes)
{
    return arena_strndup(&request->arena, text, bytes);
}

/* ---- dispatch ---- */

static void on_output(struct dispatch *dispatch, const Refrain__StepItem *item);
static void on_lost(struct dispatch *dispatch, const char *why);

static int prepare_choices(struct request *request, struct api_error *error)
{
    uint32_t n = request->fields.best_of;
    struct sampling_parts *sampling = &request->sampling;

    *sampling = (struct sampling_parts){.fields = &request->fields,
                                        .card = request->model->card,
                                        .rules = &request->rules,
                                        .seed = (uint64_t)request->fields.seed};
    if (!request->fields.has_seed)
        rng_system(&sampling->seed, sizeof(sampling->seed));
    sampling_parts_make(sampling);
    answer_plan_make(&request->model->answers, request->model->maker.tokenizer, &request->fields,
                     request->prompts[0].ids.ids, request->prompts[0].ids.count, TEXT_BYTES_MAX,
                     &request->plan.answer);
    request->choices =
        arena_zalloc(&request->arena, request->prompts_count * n * sizeof(*request->choices));
    if (!request->choices)
        return refuse_memory(error);
    for (uint32_t i = 0; i < request->prompts_count * n; i++) {
        struct request_prompt *prompt = &request->prompts[i / n];
        struct choice *choice = &request->choices[i];
        choice->index = i;
        choice->prompt = i / n;
        choice->echo = prompt->echo;
        choice->echo_bytes = prompt->echo_bytes;
        choice->prompt_ids = prompt->ids.ids;
        choice->prompt_count = prompt->ids.count;
        choice_init(choice, request, &request->plan);
        request->choices_count++;
        sampling_fill(sampling, i, prompt->tokens_max, &choice->sampling);
        if (prompt->thinks)
            choice->sampling.thinking = &prompt->thinking;
        choice->dispatch.avoid_group = -1;
    }
    return 0;
}

static void refuse_dispatch(int r, const struct request *request, const struct dispatch *dispatch,
                            const struct errmsg *err, struct api_error *error)
{
    const char *prompt = request->fields.kind == API_CHAT ? "messages" : "prompt";

    switch (r) {
    case -ENOENT:
        (void)api_error_set(error, 404, "model_not_found", "model", "%s.", err->text);
        break;
    case -EINVAL:
        (void)api_error_set(error, 400, "context_length_exceeded", prompt, "%s.", err->text);
        break;
    case -EBUSY:
        (void)api_error_set(error, 429, "overloaded", NULL, "%s. Try again later.", err->text);
        error->retry_after_s = dispatch->predicted_seconds > 1 && dispatch->predicted_seconds < 600
                                   ? (uint32_t)ceil(dispatch->predicted_seconds)
                                   : 1;
        break;
    default:
        (void)api_error_set(error, 503, "no_worker_ready", NULL, "%s. Try again.", err->text);
        error->retry_after_s = 1;
    }
}

static int choice_dispatch(struct choice *choice, struct api_error *error)
{
    struct request *request = choice->request;
    const struct request_prompt *prompt = &request->prompts[choice->prompt];
    struct dispatch *dispatch = &choice->dispatch;

    (void)snprintf(choice->id, sizeof(choice->id), "%s.%u.%u", request->id, choice->index,
                   choice->attempts++);
    dispatch->request_id = choice->id;
    dispatch->ids = prompt->ids.ids;
    dispatch->ids_count = prompt->ids.count;
    dispatch->sampling = &choice->sampling;
    dispatch->on_output = on_output;
    dispatch->on_lost = on_lost;
    return request_dispatch(request, dispatch, error);
}

int request_dispatch(struct request *request, struct dispatch *dispatch, struct api_error *error)
{
    uint64_t now = clock_ms();
    struct errmsg err;

    dispatch->model = request->model->card->name;
    dispatch->adapter = request->model->adapter;
    dispatch->cache_salt = request->fields.cache_salt;
    dispatch->session = request->fields.session;
    dispatch->priority = request->fields.priority;
    dispatch->no_prefix_reuse = dispatch->sampling->prompt_logprobs > 0;
    dispatch->deadline_ms = request->deadline_ms > now ? (uint32_t)(request->deadline_ms - now) : 1;
    dispatch->predicted_seconds = 0;
    int r = links_dispatch(request->requests->parts.links, dispatch, &err);
    if (r == 0)
        return 0;
    refuse_dispatch(r, request, dispatch, &err, error);
    return -EINVAL;
}

static void dispatch_all(struct request *request)
{
    struct api_error error;

    int r = prepare_choices(request, &error);
    if (r == 0 && request->fields.beam_search)
        r = beams_run(request, &request->beams, &error);
    for (uint32_t i = 0; i < request->choices_count && r == 0 && !request->beams; i++)
        r = choice_dispatch(&request->choices[i], &error);
    if (r < 0) {
        request_refuse(request, &error); /* cancels those that were dispatched */
        return;
    }
    request->choices_open = request->choices_count;
    request_set_state(request, REQUEST_DISPATCHED, "dispatched");
    if (request->turn)
        turn_sent(request->turn, request->prompts[0].ids.ids, request->prompts[0].ids.count);
}

static void on_grammar(void *user, int r, const struct errmsg *err)
{
    struct request *request = user;
    struct api_error error;

    request->grammar_check = NULL;
    if (r == 0) {
        dispatch_all(request);
        return;
    }
    (void)grammar_fields_refuse(&request->fields, err, &error);
    request_refuse(request, &error);
}

void request_run(struct request *request)
{
    struct requests *requests = request->requests;
    const struct grammar_spec *grammar = &request->fields.grammar;

    ASSERT(request->prompts_count > 0);
    metrics_observe(requests->parts.metrics, RM_PROMPT_SECONDS, 0,
                    (double)(clock_ns() - request->began_ns) / 1e9);
    if (grammar->kind == GRAMMAR_NONE || grammar_checks_ask(requests->grammars, grammar, on_grammar,
                                                            request, &request->grammar_check) == 0)
        dispatch_all(request);
}

/* ---- what comes back ---- */

/* Another worker may do it: nothing of the choice was sent. False: no. */
static bool choice_retry(struct choice *choice, struct api_error *error)
{
    struct request *request = choice->request;

    if (choice->sent || choice->attempts > REQUEST_RETRIES_MAX)
        return false;
    metrics_add(request->requests->parts.metrics, RM_RETRIES, 0, 1);
    log_info("request_retry", "req=%s choice=%u attempt=%u lost_group=%u", request->id,
             choice->index, choice->attempts, choice->dispatch.group);
    choice_restart(choice);
    choice->dispatch.avoid_group = (int32_t)choice->dispatch.group;
    return choice_dispatch(choice, error) == 0;
}

static void on_lost(struct dispatch *dispatch, const char *why)
{
    struct choice *choice = LIST_ENTRY(dispatch, struct choice, dispatch);
    struct request *request = choice->request;
    struct api_error error;

    (void)api_error_set(&error, 503, "worker_lost", NULL,
                        "The worker that answered this request was lost (%s)%s.", why,
                        choice->sent ? ", and part of the answer was sent already" : "");
    error.retry_after_s = 1;
    if (!choice_retry(choice, &error))
        request_refuse(request, &error);
}

/* Workers refuse what only the step shows: a grammar or rules that leave no token. NULL: neither.
 */
static const char *blamed_field(const struct api_request *fields)
{
    if (fields->grammar.kind != GRAMMAR_NONE)
        return fields->grammar_param;
    if (fields->allowed_count > 0)
        return "allowed_token_ids";
    return fields->bad_words_count > 0 ? "bad_words" : NULL;
}

void request_worker_error(const struct request *request, const Refrain__StepItem *item,
                          struct api_error *error)
{
    int status = item->error_code >= 400 && item->error_code < 600 ? item->error_code : 500;

    switch (item->finish) {
    case REFRAIN__FINISH__FINISH_DEADLINE:
        (void)api_error_set(error, 504, "timeout", NULL,
                            "The answer was not finished within the %.1f s a request may take.",
                            (double)request->requests->parts.timeout_ms / 1e3);
        break;
    case REFRAIN__FINISH__FINISH_CANCELLED:
        (void)api_error_set(error, 503, "cancelled", NULL,
                            "The request was cancelled at the worker.");
        break;
    default:
        (void)api_error_set(error, status, status == 400 ? "invalid_value" : "worker_error",
                            status == 400 ? blamed_field(&request->fields) : NULL, "%s%s",
                            item->error_text[0] ? item->error_text : "The worker failed", ".");
        if (status == 503 || status == 429)
            error->retry_after_s = 1;
    }
}

static void choice_failed(struct choice *choice, const Refrain__StepItem *item)
{
    struct request *request = choice->request;
    struct api_error error;

    request_worker_error(request, item, &error);
    if (item->finish == REFRAIN__FINISH__FINISH_ERROR && error.retry_after_s > 0 &&
        choice_retry(choice, &error))
        return; /* draining or full: another group may not be */
    request_refuse(request, &error);
}

/* Up to 128 answers may be held at once, each within its own bounds: this is the bound of all. */
static int count_held(struct request *request, struct choice *choice)
{
    size_t bytes = choice_bytes(choice);

    request->held_bytes += bytes - choice->held_bytes;
    choice->held_bytes = bytes;
    return request->held_bytes > HELD_BYTES_MAX ? -ENOBUFS : 0;
}

/* The choice could not take what the worker sent. */
static void take_failed(struct request *request, int r)
{
    struct api_error error;

    if (r == -ENOBUFS)
        (void)api_error_set(&error, 500, "answer_too_large", NULL,
                            "The answer has too many bytes.");
    else
        (void)api_error_set(&error, 500, "worker_error", NULL,
                            "The worker sent tokens that make no sense.");
    request_refuse(request, &error);
}

static void end_answered(struct request *request, int status)
{
    request_end(request, status,
                status == 200 ? request->choices[0].finish_reason : "answer_too_large");
}

void request_first_token(struct request *request, bool first, const Refrain__StepItem *item,
                         uint32_t group)
{
    if (first && request->turn)
        turn_first(request->turn, item->cached_tokens, group, item->miss);
    if (request->first_ns)
        return;
    request->first_ns = clock_ns();
    metrics_observe(request->requests->parts.metrics, RM_TTFT_SECONDS, 0,
                    (double)(request->first_ns - request->began_ns) / 1e9);
}

/* One that is no answer's end. */
static bool is_failure(Refrain__Finish finish)
{
    return finish >= REFRAIN__FINISH__FINISH_CANCELLED &&
           finish != REFRAIN__FINISH__FINISH_REPETITION;
}

static void on_output(struct dispatch *dispatch, const Refrain__StepItem *item)
{
    struct choice *choice = LIST_ENTRY(dispatch, struct choice, dispatch);
    struct request *request = choice->request;
    bool over = false;
    int status = 200;

    if (is_failure(item->finish)) {
        choice_failed(choice, item);
        return;
    }
    int r = choice_take(choice, item, &over);
    if (r == 0)
        r = count_held(request, choice);
    if (r < 0) {
        take_failed(request, r);
        return;
    }
    if (item->ids.len == 0 && !over)
        return; /* of the prompt: they wait for the first token */
    if (item->first || !request->first_ns)
        request_first_token(request, item->first && choice->index == 0, item, choice->group);
    if (over) {
        links_cancel(request->requests->parts.links, dispatch); /* a stop string: it goes on */
        ASSERT(request->choices_open > 0);
        request->choices_open--;
    }
    if (request->fields.stream)
        answer_stream(request, choice);
    else if (request->choices_open == 0)
        status = answer_whole(request);
    if (request->choices_open == 0)
        end_answered(request, status);
}

void request_beams_over(struct request *request, int r)
{
    if (r < 0) {
        take_failed(request, r);
        return;
    }
    request->choices_open = 0;
    end_answered(request, answer_whole(request));
}

void requests_tick(struct requests *requests, uint64_t now_ms)
{
    struct api_error error;

    while (!list_empty(&requests->open)) {
        struct request *request = LIST_ENTRY(requests->open.next, struct request, link);
        if (now_ms < request->deadline_ms + DEADLINE_GRACE_MS)
            return;
        (void)api_error_set(&error, 504, "timeout", NULL,
                            "The answer was not finished within the %.1f s a request may take.",
                            (double)requests->parts.timeout_ms / 1e3);
        request_refuse(request, &error);
    }
}
