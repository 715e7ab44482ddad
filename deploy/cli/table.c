/* table.c - collects cells, then prints them aligned: numbers to the right, words to the left. */
#include "deploy/cli/table.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"

#define CELL_BYTES_MAX 256

void table_init(struct table *table, const char *const *columns)
{
    *table = (struct table){.rows = 1};
    while (columns[table->columns])
        table->columns++;
    ASSERT(table->columns <= TABLE_COLUMNS_MAX);
    table->cells = mem_calloc((TABLE_ROWS_MAX + 1) * table->columns, sizeof(*table->cells));
    for (size_t i = 0; i < table->columns; i++)
        table->cells[i] = mem_strdup(columns[i]);
}

void table_done(struct table *table)
{
    for (size_t i = 0; i < table->rows * table->columns; i++)
        mem_free(table->cells[i]);
    mem_free(table->cells);
}

void table_begin_row(struct table *table)
{
    if (table->rows <= TABLE_ROWS_MAX)
        table->rows++;
    table->at = 0;
}

void table_cell(struct table *table, const char *format, ...)
{
    char text[CELL_BYTES_MAX];
    va_list args;
    ASSERT(table->at < table->columns);

    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    char **cell = &table->cells[(table->rows - 1) * table->columns + table->at++];
    mem_free(*cell);
    *cell = mem_strdup(text);
}

static bool is_number(const char *text)
{
    return text && (isdigit((unsigned char)text[0]) || text[0] == '-');
}

void table_print(const struct table *table, FILE *out)
{
    size_t width[TABLE_COLUMNS_MAX] = {0};
    bool right[TABLE_COLUMNS_MAX] = {false};

    for (size_t i = 0; i < table->rows * table->columns; i++) {
        const char *cell = table->cells[i];
        size_t column = i % table->columns;
        if (cell && strlen(cell) > width[column])
            width[column] = strlen(cell);
        if (i >= table->columns && is_number(cell))
            right[column] = true;
    }
    for (size_t row = 0; row < table->rows; row++) {
        for (size_t column = 0; column < table->columns; column++) {
            const char *cell = table->cells[row * table->columns + column];
            bool last = column + 1 == table->columns;
            int pad = last && !right[column] ? 0 : (int)width[column];
            fprintf(out, "%*s%s", right[column] ? pad : -pad, cell ? cell : "", last ? "" : "  ");
        }
        fprintf(out, "\n");
    }
}
