/* text_render.h - `refrain text render`. */
#ifndef REFRAIN_DEPLOY_CLI_TEXT_RENDER_H
#define REFRAIN_DEPLOY_CLI_TEXT_RENDER_H

#include "proto/base/errmsg.h"

/* Lines from stdin through the template at `path` to stdout. 0, or a negative errno. */
int text_render_run(const char *path, struct errmsg *err);

#endif
