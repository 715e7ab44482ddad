/* table.h - columns as wide as their widest cell, for a terminal. Thread: one. */
#ifndef REFRAIN_DEPLOY_CLI_TABLE_H
#define REFRAIN_DEPLOY_CLI_TABLE_H

#include <stddef.h>
#include <stdio.h>

#define TABLE_COLUMNS_MAX 24u
#define TABLE_ROWS_MAX 1024u

struct table {
    size_t columns;
    size_t rows;  /* the head is row 0 */
    size_t at;    /* next cell of the last row */
    char **cells; /* rows * columns, NULL: empty */
};

/* columns: NULL-terminated heads. */
void table_init(struct table *table, const char *const *columns);
void table_done(struct table *table);
void table_begin_row(struct table *table); /* past TABLE_ROWS_MAX the last row is overwritten */
void table_cell(struct table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
void table_print(const struct table *table, FILE *out);

#endif
