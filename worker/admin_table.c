/* admin_table.c - columns as wide as their widest cell; no state, two passes. */
#include "worker/admin_table.h"

#include <string.h>

#include "proto/base/json.h"

#define COLUMNS_MAX 16
#define JSON_BYTES_MAX ((size_t)128 << 20)

static void append_cell(const json_t *value, struct buffer *out)
{
    if (json_is_string(value))
        buffer_append(out, json_string_value(value), json_string_length(value));
    else if (value != NULL)
        json_append_value(out, value);
}

static size_t cell_width(const json_t *value, struct buffer *scratch)
{
    buffer_clear(scratch);
    append_cell(value, scratch);
    return scratch->bytes;
}

static void pad(struct buffer *out, size_t from, size_t width)
{
    for (size_t i = from; i < width; i++)
        buffer_append_char(out, ' ');
}

static void render_rows(json_t *rows, struct buffer *out)
{
    const char *names[COLUMNS_MAX];
    size_t widths[COLUMNS_MAX], columns = 0, index;
    struct buffer scratch;
    const char *name;
    json_t *value, *row;

    buffer_init(&scratch, JSON_BYTES_MAX);
    json_object_foreach(json_array_get(rows, 0), name, value)
    {
        if (columns == COLUMNS_MAX)
            break;
        names[columns] = name;
        widths[columns++] = strlen(name);
    }
    json_array_foreach(rows, index, row)
    {
        for (size_t c = 0; c < columns; c++) {
            size_t width = cell_width(json_object_get(row, names[c]), &scratch);
            widths[c] = width > widths[c] ? width : widths[c];
        }
    }
    for (size_t c = 0; c < columns; c++) {
        buffer_append_text(out, names[c]);
        pad(out, strlen(names[c]), c + 1 < columns ? widths[c] + 2 : 0);
    }
    buffer_append_char(out, '\n');
    json_array_foreach(rows, index, row)
    {
        for (size_t c = 0; c < columns; c++) {
            size_t before = out->bytes;
            append_cell(json_object_get(row, names[c]), out);
            pad(out, out->bytes - before, c + 1 < columns ? widths[c] + 2 : 0);
        }
        buffer_append_char(out, '\n');
    }
    buffer_done(&scratch);
}

static bool is_rows(const json_t *value)
{
    return json_is_array(value) && json_array_size(value) > 0 &&
           json_is_object(json_array_get(value, 0));
}

static void render_object(json_t *object, struct buffer *out)
{
    const char *name;
    json_t *value;
    size_t width = 0;

    json_object_foreach(object, name, value)
    {
        width = strlen(name) > width && !is_rows(value) ? strlen(name) : width;
    }
    json_object_foreach(object, name, value)
    {
        if (is_rows(value)) {
            render_rows(value, out);
            continue;
        }
        buffer_append_text(out, name);
        pad(out, strlen(name), width + 2);
        append_cell(value, out);
        buffer_append_char(out, '\n');
    }
}

void admin_table_render(const char *json, struct buffer *out)
{
    json_t *value = NULL;
    if (json_parse(json, strlen(json), JSON_BYTES_MAX, &value, NULL) < 0) {
        buffer_append_text(out, json);
        buffer_append_char(out, '\n');
        return;
    }
    if (is_rows(value)) {
        render_rows(value, out);
    } else if (json_is_object(value)) {
        render_object(value, out);
    } else {
        append_cell(value, out);
        buffer_append_char(out, '\n');
    }
    json_decref(value);
}
