/* exact_soak.c - reuse never changes an answer, for as long as one likes (tests/exact/exact.h).
 *
 *   exact_soak [--model FILE] [--tp N] [--threads N] [--seed N] [--schedules N] [--schedule K]
 *              [--int8]    KV in int8
 *
 * Plays schedules 0..N-1 (5,000 by default), or only K. Says every 50 what happened so far; the
 * last line is "N schedules, M sequences, P positions compared, 0 differ". Exit code 1: a
 * difference, which ends it. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/log.h"
#include "tests/exact/exact.h"
#include "tests/model_path.h"

#define SCHEDULES_DEFAULT 5000u
#define PROGRESS_EVERY 50u

static const struct option options[] = {
    {"model", required_argument, NULL, 'm'},
    {"tp", required_argument, NULL, 't'},
    {"threads", required_argument, NULL, 'n'},
    {"seed", required_argument, NULL, 's'},
    {"schedules", required_argument, NULL, 'c'},
    {"schedule", required_argument, NULL, 'k'},
    {"int8", no_argument, NULL, '8'},
    {NULL, 0, NULL, 0},
};

static int run(struct exact *exact, const struct exact_settings *settings, uint32_t first,
               uint32_t end)
{
    struct errmsg err = {""};
    uint32_t k = first;
    int r = 0;
    for (; k < end && r == 0; k++) {
        r = exact_run(exact, k, &err);
        if (r == 0 && (k + 1) % PROGRESS_EVERY == 0)
            exact_counts_print(exact_counts(exact), 0, stderr);
    }
    if (r != 0)
        (void)fprintf(stderr,
                      "%s: %s\nagain: exact_soak --model %s --tp %u --threads %u --seed %llu "
                      "--schedule %u%s\n",
                      r > 0 ? "DIFFERENCE" : "failed", err.text, settings->model, settings->ranks,
                      settings->threads, (unsigned long long)settings->seed, k - 1,
                      settings->kv_dtype == KV_INT8 ? " --int8" : "");
    exact_counts_print(exact_counts(exact), r > 0, stdout);
    return r == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    struct exact_settings settings = {
        .model = model_path(SMOLLM2_FILE), .ranks = 1, .threads = 1, .seed = 1};
    uint32_t first = 0, end = SCHEDULES_DEFAULT;
    struct exact *exact = NULL;
    struct errmsg err = {""};
    int c;

    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        uint64_t number = c == 'm' || optarg == NULL ? 0 : strtoull(optarg, NULL, 10);
        if (c == 'm')
            settings.model = optarg;
        else if (c == 't')
            settings.ranks = (uint32_t)number;
        else if (c == 'n')
            settings.threads = (uint32_t)number;
        else if (c == 's')
            settings.seed = number;
        else if (c == 'c')
            end = (uint32_t)number;
        else if (c == 'k')
            first = (uint32_t)number, end = first + 1;
        else if (c == '8')
            settings.kv_dtype = KV_INT8;
        else
            return 2;
    }
    log_init("exact_soak", LOG_WARN);
    if (exact_open(&settings, &exact, &err) < 0) {
        (void)fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    int failed = run(exact, &settings, first, end);
    exact_close(exact);
    return failed;
}
