/* text_lines.h - JSON objects, one a line, from stdin to stdout: one line out per line in, in
 * order.
 */
#ifndef REFRAIN_DEPLOY_CLI_TEXT_LINES_H
#define REFRAIN_DEPLOY_CLI_TEXT_LINES_H

#include "proto/base/buffer.h"
#include "proto/base/errmsg.h"
#include "proto/base/json.h"

#define TEXT_LINE_BYTES_MAX ((size_t)64 << 20)    /* of a line in */
#define TEXT_ANSWER_BYTES_MAX ((size_t)512 << 20) /* of a line out */

/* Appends the answer to one object, without a newline. Negative: *err says why, and what was
 * appended is dropped; *line, when set, goes into the answer as "line". */
typedef int (*text_line_fn)(void *owner, const json_t *object, struct buffer *out, uint32_t *line,
                            struct errmsg *err);

/* Until end of file. A line that is no object, is longer than TEXT_LINE_BYTES_MAX or fails is
 * answered with {"error": ...}, and the rest goes on. What was answered is written whenever input
 * pauses. 0, or the negative errno of reading or writing (said in *err). */
int text_lines_run(text_line_fn answer, void *owner, struct errmsg *err);

#endif
