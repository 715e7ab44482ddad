/* main.c - refrain-worker: settings, then one of three programs: a check of a model file, a rank of
 * a group (started by rank 0 with arguments of its own), or rank 0 itself. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/json.h"
#include "proto/base/mem.h"
#include "proto/base/process.h"
#include "worker/check.h"
#include "worker/model_file.h"
#include "worker/rank_process.h"
#include "worker/worker.h"

static int refuse(const struct errmsg *err)
{
    (void)fprintf(stderr, "refrain-worker: %s\n", err->text);
    return WORKER_EXIT_REFUSED;
}

static int run_check(const struct worker_settings *settings)
{
    char *file = NULL;
    struct errmsg err = {""};
    int r = model_file_find(settings->check, &file, &err);
    if (r < 0)
        return refuse(&err);
    struct check_settings check = {.model = file,
                                   .isa = settings->isa,
                                   .reference = settings->backend == WORKER_BACKEND_REF,
                                   .threads = settings->threads,
                                   .chunk = settings->chunk,
                                   .ranks = settings->ranks,
                                   .deadline_ms = settings->rank_timeout_ms,
                                   .tokens_max = settings->context_tokens,
                                   .start = settings,
                                   .kv_dtype = worker_backend_settings(settings).kv_dtype};
    FILE *in = NULL;
    uint64_t available = 0;
    process_memory(&check.memory_bytes, &available);
    if (settings->ids != NULL) {
        in = strcmp(settings->ids, "-") == 0 ? stdin : fopen(settings->ids, "re");
        if (in == NULL) {
            r = errmsg_errno(&err, "open '%s'", settings->ids);
            goto out;
        }
    }
    r = check_run(&check, in, stdout, &err);
    if (in != NULL && in != stdin)
        (void)fclose(in);
    if (fflush(stdout) != 0 && r == 0)
        r = errmsg_errno(&err, "write to stdout");
out:
    mem_free(file);
    return r < 0 ? refuse(&err) : 0;
}

int main(int argc, char **argv)
{
    struct worker_settings settings;
    struct rank_arguments arguments;
    struct errmsg err = {""};
    struct worker_exit end = {0};

    json_count_memory();
    int is_rank = rank_arguments_take(&argc, &argv, &arguments);
    if (is_rank == -EINVAL) {
        (void)errmsg_set(&err, -EINVAL, "--rank is for rank 0 to give; start one worker per group");
        return refuse(&err);
    }
    int r = worker_settings_parse(&settings, argc, argv, &err);
    if (r == SETTINGS_EXIT_OK) {
        worker_settings_done(&settings);
        return 0;
    }
    if (r < 0) {
        (void)refuse(&err);
        return WORKER_EXIT_USAGE;
    }
    if (is_rank == 0)
        end.code = rank_process_run(&settings, &arguments);
    else if (settings.check != NULL)
        end.code = run_check(&settings);
    else
        end = worker_run(&settings);
    if (end.at_once)
        _exit(end.code);
    worker_settings_done(&settings);
    return end.code;
}
