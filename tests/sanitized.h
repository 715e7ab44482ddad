/* sanitized.h - SANITIZED: 1 in a program that ASan or TSan watches, else 0. Such a program is many
 * times slower, and malloc is not glibc's. */
#ifndef REFRAIN_TESTS_SANITIZED_H
#define REFRAIN_TESTS_SANITIZED_H

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

#endif
