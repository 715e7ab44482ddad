/* metrics_page.c - lines of `name{labels} value`; comments are skipped. */
#include "deploy/cli/metrics_page.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/mem.h"

/* The brace that ends the labels: one inside quotes does not count. NULL: there is none. */
static char *labels_end(char *at)
{
    bool quoted = false;

    for (; *at != '\0'; at++) {
        if (quoted && *at == '\\' && at[1] != '\0')
            at++;
        else if (*at == '"')
            quoted = !quoted;
        else if (*at == '}' && !quoted)
            return at;
    }
    return NULL;
}

static int parse_line(char *line, struct page_sample *ret_sample)
{
    size_t name_bytes = strcspn(line, "{ ");
    char *value = line + name_bytes, *end;

    if (name_bytes == 0 || *value == '\0')
        return -EINVAL;
    *ret_sample = (struct page_sample){.name = line, .labels = ""};
    if (*value == '{') {
        char *close = labels_end(value);
        if (close == NULL)
            return -EINVAL;
        ret_sample->labels = value + 1;
        *value = *close = '\0';
        value = close + 1;
    } else {
        *value++ = '\0';
    }
    ret_sample->value = strtod(value, &end);
    return end == value ? -EINVAL : 0;
}

int metrics_page_parse(const char *text, struct metrics_page *ret_page, struct errmsg *err)
{
    struct metrics_page page = {.text = mem_strdup(text)};
    char *next = page.text;
    size_t number = 0;
    int r = 0;

    page.samples = mem_calloc(METRICS_PAGE_SAMPLES_MAX, sizeof(*page.samples));
    for (char *line = strsep(&next, "\n"); line != NULL; line = strsep(&next, "\n")) {
        number++;
        if (*line == '\0' || *line == '#')
            continue;
        if (page.count == METRICS_PAGE_SAMPLES_MAX)
            r = errmsg_set(err, -E2BIG, "more than %u samples", METRICS_PAGE_SAMPLES_MAX);
        else if (parse_line(line, &page.samples[page.count++]) < 0)
            r = errmsg_set(err, -EINVAL, "line %zu is no sample", number);
        if (r < 0) {
            metrics_page_done(&page);
            return r;
        }
    }
    *ret_page = page;
    return 0;
}

void metrics_page_done(struct metrics_page *page)
{
    mem_free(page->samples);
    mem_free(page->text);
    *page = (struct metrics_page){0};
}
