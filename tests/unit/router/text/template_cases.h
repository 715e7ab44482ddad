/* template_cases.h - what the tests over shared/cases/templates share: reading files, rendering. */
#ifndef REFRAIN_TESTS_TEMPLATE_CASES_H
#define REFRAIN_TESTS_TEMPLATE_CASES_H

#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/mem.h"
#include "router/text/chat_template.h"

#define CASES_DIR SHARED_DIR "/cases/templates"
#define TEST_SKIPPED 77

/* Zero-terminated contents, or NULL; mem_free. */
static inline char *read_text_file(const char *path, size_t *ret_bytes)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return NULL;
    size_t capacity = 1u << 16, bytes = 0, got;
    char *text = mem_alloc(capacity + 1);
    while ((got = fread(text + bytes, 1, capacity - bytes, file)) > 0) {
        bytes += got;
        if (bytes == capacity) {
            capacity *= 2;
            text = mem_realloc(text, capacity + 1);
        }
    }
    (void)fclose(file);
    text[bytes] = '\0';
    *ret_bytes = bytes;
    return text;
}

/* A JSON file of the cases, or NULL (it is absent). */
static inline json_t *load_cases(const char *name)
{
    char path[600];
    json_error_t error;
    (void)snprintf(path, sizeof(path), "%s/%s", CASES_DIR, name);
    json_t *json = json_load_file(path, 0, &error);
    if (json == NULL)
        printf("skipped: %s is not there (%s)\n", name, error.text);
    return json;
}

static inline struct chat_template *load_template(const char *name)
{
    char path[600];
    size_t bytes;
    struct errmsg err = {""};
    struct chat_template *template = NULL;
    (void)snprintf(path, sizeof(path), "%s/%s.jinja", CASES_DIR, name);
    char *source = read_text_file(path, &bytes);
    if (source == NULL)
        return NULL;
    int r = chat_template_new(source, bytes, &template, &err);
    mem_free(source);
    if (r < 0)
        fail_msg("%s: %s", name, err.text);
    return template;
}

static inline const json_t *not_null(const json_t *json)
{
    return json_is_null(json) ? NULL : json;
}

/* The inputs of one entry of NAME.cases.json; 1734597000 = 2024-12-19T08:30:00. */
static inline struct render_input case_input(const json_t *entry)
{
    return (struct render_input){
        .messages = json_object_get(entry, "messages"),
        .tools = not_null(json_object_get(entry, "tools")),
        .kwargs = not_null(json_object_get(entry, "template_kwargs")),
        .add_generation_prompt = json_is_true(json_object_get(entry, "add_generation_prompt")),
        .bos_token = json_string_value(json_object_get(entry, "bos_token")),
        .eos_token = json_string_value(json_object_get(entry, "eos_token")),
        .now = 1734597000.0,
    };
}

/* Render `source` with the given variables; *ret on success. */
static inline int render_source(const char *source, const struct render_input *input,
                                struct rendered *ret, struct errmsg *err)
{
    struct chat_template *template = NULL;
    int r = chat_template_new(source, strlen(source), &template, err);
    if (r < 0)
        return r;
    r = chat_template_render(template, input, ret, NULL, err);
    chat_template_free(template);
    return r;
}

#endif
