/* admin_table.h - one line of JSON -> a table for people. Thread: any. */
#ifndef REFRAIN_WORKER_ADMIN_TABLE_H
#define REFRAIN_WORKER_ADMIN_TABLE_H

#include "proto/base/buffer.h"

/* Objects become `name  value` lines; an array of objects becomes columns, with the first object's
 * names as titles. Ends with a newline. */
void admin_table_render(const char *json, struct buffer *out);

#endif
