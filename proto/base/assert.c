/* assert.c - the end of a process whose own invariants broke.
 *
 * Writes with write(2) from a buffer on the stack: the heap or stdio may be what is broken. abort()
 * leaves a core and lets the supervisor restart the process. */
#include "proto/base/assert.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

_Noreturn void assert_failed(const char *file, int line, const char *function, const char *what)
{
    char text[512];
    int bytes = snprintf(text, sizeof(text), "%s:%d: %s: ASSERT(%s)\n", file, line, function, what);

    if (bytes > (int)sizeof(text) - 1)
        bytes = (int)sizeof(text) - 1;
    if (bytes > 0 && write(STDERR_FILENO, text, (size_t)bytes) < 0)
        abort(); /* nowhere to say it */
    abort();
}
