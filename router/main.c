/* main.c - refrain-router: settings, the router, its exit code.
 *
 * 0: ended by a signal, everything answered or cut at the drain timeout. 1: could not start; 2: bad
 * settings. */
#include <stdio.h>

#include "proto/base/json.h"
#include "proto/base/log.h"
#include "router/router.h"

#define EXIT_BAD_SETTINGS 2

static int fail(const struct errmsg *err, int code)
{
    (void)fprintf(stderr, "refrain-router: %s\n", err->text);
    return code;
}

int main(int argc, char **argv)
{
    struct router_settings settings;
    struct router *router = NULL;
    struct errmsg err = {""};

    json_count_memory();
    int r = router_settings_parse(&settings, argc, argv, &err);
    if (r < 0)
        return fail(&err, EXIT_BAD_SETTINGS);
    if (r == SETTINGS_EXIT_OK) {
        router_settings_done(&settings);
        return 0;
    }
    log_init("router", (enum log_level)settings.log_level);
    r = router_new(&settings, &router, &err);
    if (r == 0)
        router_run(router);
    router_free(router);
    router_settings_done(&settings);
    return r < 0 ? fail(&err, 1) : 0;
}
