/* doctor.c - `refrain doctor memory`: expected growth or a leak, with the evidence.
 *
 *   before -> [load -> wait until nothing runs -> take all numbers] x rounds -> judge -> table
 *
 * Exit code: 0 no leak, 1 a leak (or it could not be told), 2 wrong usage. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "deploy/cli/cli.h"
#include "deploy/cli/doctor_load.h"
#include "deploy/cli/memory_rows.h"
#include "deploy/cli/table.h"
#include "proto/base/clock.h"
#include "proto/base/mem.h"
#include "proto/base/settings.h"

#define IDLE_DEADLINE_MS 120000u
#define SETTLE_MS 1300u /* workers send their numbers once a second */
#define POLL_MS 50u

struct doctor_settings {
    char *url, *api_key;
    uint32_t rounds, requests, concurrency, prompt_words, answer_tokens, interval_s;
    double minutes;
    bool observe, all;
};

#define SETTING_STRUCT struct doctor_settings
static const struct setting doctor_table[] = {
    SETTING_TEXT("url", url, "http://127.0.0.1:8000", "Where the router listens."),
    SETTING_TEXT("api-key", api_key, NULL, "Bearer key, when the router asks for one."),
    SETTING_U32("rounds", rounds, "8", VERDICT_ROUNDS_MIN, VERDICT_ROUNDS_MAX,
                "How often to load, wait and take the numbers."),
    SETTING_U32("requests", requests, "16", 1, 1000000, "Chats in a round."),
    SETTING_DOUBLE("minutes", minutes, "0", 0, 10080,
                   "Length of all rounds together instead of a number of requests."),
    SETTING_U32("concurrency", concurrency, "4", 1, DOCTOR_CONCURRENCY_MAX, "Chats at a time."),
    SETTING_U32("prompt-tokens", prompt_words, "2000", 1, 1000000,
                "Words in each prompt, which are about as many tokens."),
    SETTING_U32("answer-tokens", answer_tokens, "16", 1, 100000, "Most tokens in each answer."),
    SETTING_BOOL("observe", observe, "false",
                 "Send nothing: take the numbers whenever the load of others leaves a pause."),
    SETTING_U32("interval", interval_s, "60", 1, 86400, "With --observe: seconds between rounds."),
    SETTING_BOOL("all", all, "false", "Show the rows that are 0 all the time too."),
    SETTING_END,
};

static const struct settings_spec doctor_spec = {
    .program = "refrain doctor memory",
    .summary = "Says whether memory that grew is expected growth or a leak.",
    .section = "doctor",
    .table = doctor_table,
};

static void wait_ms(uint64_t ms)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)(ms / 1000);
    until.tv_nsec += (long)(ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) != 0)
        ;
}

/* Nothing runs, and still nothing SETTLE_MS later, so that the workers' numbers are of after the
 * load. */
static int wait_idle(const struct memory_source *source, struct errmsg *err)
{
    uint64_t deadline_ms = clock_ms() + IDLE_DEADLINE_MS;
    bool settled = false;

    for (;;) {
        bool idle = false;
        int r = memory_is_idle(source, &idle, err);
        if (r < 0 || (idle && settled))
            return r;
        if (clock_ms() > deadline_ms)
            return errmsg_set(err, -ETIMEDOUT,
                              "requests still run %u s after the load: nothing can be said of "
                              "memory; stop other clients, or use --observe",
                              IDLE_DEADLINE_MS / 1000);
        settled = idle;
        wait_ms(idle ? SETTLE_MS : POLL_MS);
    }
}

static int run_round(const struct doctor_settings *settings, struct doctor_load_result *total,
                     struct errmsg *err)
{
    const struct doctor_load load = {.url = settings->url,
                                     .api_key = settings->api_key,
                                     .concurrency = settings->concurrency,
                                     .requests = settings->requests,
                                     .seconds = settings->minutes * 60 / settings->rounds,
                                     .prompt_words = settings->prompt_words,
                                     .answer_tokens = settings->answer_tokens};
    struct doctor_load_result result;

    if (settings->observe) {
        wait_ms((uint64_t)settings->interval_s * 1000);
        return 0;
    }
    int r = doctor_load_run(&load, &result, err);
    if (r < 0)
        return r;
    total->sent += result.sent;
    total->answered += result.answered;
    if (result.answered < result.sent) {
        total->last_status = result.last_status;
        total->last_text = result.last_text;
    }
    if (result.answered == 0)
        return errmsg_set(err, -EPROTO,
                          "no request of the load was answered with 200 (the last had "
                          "status %d%s%s)",
                          result.last_status, result.last_text.text[0] ? ": " : "",
                          result.last_text.text);
    return 0;
}

static void cell_bytes(struct table *table, const struct memory_row *row, double value)
{
    if (row->kind == MEMORY_ZERO)
        table_cell(table, "%.0f", value);
    else if (value < 1024.0 * 1024 && value > -1024.0 * 1024)
        table_cell(table, "%.1f KiB", value / 1024);
    else
        table_cell(table, "%.1f MiB", value / 1024 / 1024);
}

static void print_rows(const struct memory_rows *rows, size_t rounds, bool all)
{
    static const char *const columns[] = {"what",  "before",           "after round 1", "at half",
                                          "after", "rise, later half", "verdict",       NULL};
    struct table table;

    table_init(&table, columns);
    for (size_t i = 0; i < rows->count; i++) {
        const struct memory_row *row = &rows->rows[i];
        if (!all && row->before == 0 && row->values[rounds - 1] == 0 && row->values[0] == 0 &&
            row->verdict == VERDICT_STEADY)
            continue;
        table_begin_row(&table);
        table_cell(&table, "%s", row->name);
        cell_bytes(&table, row, row->before);
        cell_bytes(&table, row, row->values[0]);
        cell_bytes(&table, row, row->values[rounds / 2 - 1]);
        cell_bytes(&table, row, row->values[rounds - 1]);
        cell_bytes(&table, row, row->rise);
        table_cell(&table, "%s", memory_verdict_name(row));
    }
    table_print(&table, stdout);
    table_done(&table);
}

/* The sentence at the end. Returns the exit code. */
static int conclude(struct memory_rows *rows, size_t rounds)
{
    size_t leaks = 0, grown = 0;

    for (size_t i = 0; i < rows->count; i++) {
        leaks += rows->rows[i].verdict == VERDICT_LEAK;
        grown += rows->rows[i].verdict == VERDICT_GROWTH;
    }
    if (leaks == 0) {
        fprintf(stdout,
                "\nno leak: nothing is held while nothing runs; %zu of %zu numbers grew, and "
                "that growth is of bounded caches or has ended\n",
                grown, rows->count);
        return EXIT_DONE;
    }
    fprintf(stdout, "\nLEAK:\n");
    for (size_t i = 0; i < rows->count; i++) {
        const struct memory_row *row = &rows->rows[i];
        if (row->verdict != VERDICT_LEAK)
            continue;
        if (row->kind == MEMORY_ZERO)
            fprintf(stdout, "  %s: %.0f while nothing runs\n", row->name, row->values[rounds - 1]);
        else
            fprintf(stdout, "  %s: %.1f KiB more in the later half of the rounds, and it goes on\n",
                    row->name, row->rise / 1024);
    }
    return EXIT_FAILED;
}

static int examine(const struct doctor_settings *settings, struct memory_rows *rows,
                   struct errmsg *err)
{
    const struct memory_source source = {settings->url, settings->api_key};
    struct doctor_load_result total = {0};
    bool tty = isatty(STDERR_FILENO) == 1;
    int r = wait_idle(&source, err);

    if (r == 0)
        r = memory_rows_take(rows, &source, -1, err);
    for (uint32_t round = 0; round < settings->rounds && r == 0; round++) {
        if (tty)
            fprintf(stderr, "\rround %u of %u ", round + 1, settings->rounds);
        r = run_round(settings, &total, err);
        if (r == 0)
            r = wait_idle(&source, err);
        if (r == 0)
            r = memory_rows_take(rows, &source, (int)round, err);
    }
    if (tty)
        fprintf(stderr, "\r                    \r");
    if (r < 0)
        return r;
    for (size_t i = 0; i < rows->count; i++)
        memory_judge(&rows->rows[i], settings->rounds);
    if (!settings->observe)
        fprintf(stdout, "%llu chats of about %u tokens, %llu answered, in %u rounds\n\n",
                (unsigned long long)total.sent, settings->prompt_words,
                (unsigned long long)total.answered, settings->rounds);
    if (total.answered < total.sent)
        fprintf(stdout, "the last that was not answered had status %d%s%s\n\n", total.last_status,
                total.last_text.text[0] ? ": " : "", total.last_text.text);
    return 0;
}

static int doctor_memory(int argc, char **argv)
{
    struct doctor_settings settings;
    struct memory_rows rows;
    struct errmsg err;
    int code = EXIT_FAILED;

    int r = settings_parse(&doctor_spec, &settings, argc, argv, &err);
    if (r == SETTINGS_EXIT_OK)
        return EXIT_DONE;
    if (r < 0) {
        fprintf(stderr, "refrain doctor memory: %s\n", err.text);
        return EXIT_USAGE;
    }
    memory_rows_init(&rows);
    r = examine(&settings, &rows, &err);
    if (r < 0) {
        fprintf(stderr, "refrain doctor memory: %s\n", err.text);
    } else {
        print_rows(&rows, settings.rounds, settings.all);
        code = conclude(&rows, settings.rounds);
    }
    memory_rows_done(&rows);
    settings_done(&doctor_spec, &settings);
    return code;
}

int command_doctor(int argc, char **argv)
{
    if (argc >= 2 && strcmp(argv[1], "memory") == 0)
        return doctor_memory(argc - 1, argv + 1);
    bool help = argc >= 2 && strcmp(argv[1], "--help") == 0;
    fprintf(help ? stdout : stderr, "usage: refrain doctor memory [flags]\n\n"
                                    "`refrain doctor memory --help` lists the flags.\n");
    return help ? EXIT_DONE : EXIT_USAGE;
}
