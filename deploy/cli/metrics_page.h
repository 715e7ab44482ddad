/* metrics_page.h - a page of Prometheus text, taken apart. Thread: one. */
#ifndef REFRAIN_DEPLOY_CLI_METRICS_PAGE_H
#define REFRAIN_DEPLOY_CLI_METRICS_PAGE_H

#include <stddef.h>

#include "proto/base/errmsg.h"

#define METRICS_PAGE_SAMPLES_MAX 65536u

struct page_sample {
    const char *name;
    const char *labels; /* inside the braces, "" when there are none */
    double value;
};

struct metrics_page {
    struct page_sample *samples;
    size_t count;
    char *text; /* what the samples point into */
};

/* 0; -EINVAL: a line is no sample, *err has its number; -E2BIG. The text is copied. */
int metrics_page_parse(const char *text, struct metrics_page *ret_page, struct errmsg *err);
void metrics_page_done(struct metrics_page *page);

#endif
