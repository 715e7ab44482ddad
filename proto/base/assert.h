/* assert.h - ASSERT: our own bugs end the process, in release builds too.
 *
 * Never for input from outside (that gets an errno), never with a side effect. */
#ifndef REFRAIN_PROTO_BASE_ASSERT_H
#define REFRAIN_PROTO_BASE_ASSERT_H

/* Logs `file:line: function: ASSERT(expression)` to stderr and aborts. */
_Noreturn void assert_failed(const char *file, int line, const char *function, const char *what);

#define ASSERT(condition)                                                                        \
    (__builtin_expect(!(condition), 0) ? assert_failed(__FILE__, __LINE__, __func__, #condition) \
                                       : (void)0)

#endif
