/* rng.c - Philox4x32-10 (Salmon et al. 2011) and the kernel's random bytes.
 *
 * A draw is a pure function of (seed, position): nothing to save when a sequence is preempted, and
 * ranks draw alike without talking. */
#include "proto/base/rng.h"

#include <errno.h>
#include <stdio.h>
#include <sys/random.h>

#include "proto/base/assert.h"

#define PHILOX_ROUNDS 10
#define PHILOX_M0 0xD2511F53u
#define PHILOX_M1 0xCD9E8D57u
#define PHILOX_W0 0x9E3779B9u /* golden ratio */
#define PHILOX_W1 0xBB67AE85u /* sqrt(3) - 1 */

void rng_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t ret_words[4])
{
    uint32_t x0 = counter[0], x1 = counter[1], x2 = counter[2], x3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];

    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        uint64_t p0 = (uint64_t)PHILOX_M0 * x0;
        uint64_t p1 = (uint64_t)PHILOX_M1 * x2;

        x0 = (uint32_t)(p1 >> 32) ^ x1 ^ k0;
        x1 = (uint32_t)p1;
        x2 = (uint32_t)(p0 >> 32) ^ x3 ^ k1;
        x3 = (uint32_t)p0;
        k0 += PHILOX_W0;
        k1 += PHILOX_W1;
    }
    ret_words[0] = x0;
    ret_words[1] = x1;
    ret_words[2] = x2;
    ret_words[3] = x3;
}

double rng_uniform(uint64_t seed, uint64_t position)
{
    const uint32_t counter[4] = {(uint32_t)position, (uint32_t)(position >> 32), 0, 0};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t words[4];

    rng_philox(counter, key, words);
    return words[0] * 0x1p-32;
}

void rng_system(void *data, size_t bytes)
{
    char *at = data;

    while (bytes > 0) {
        ssize_t got = getrandom(at, bytes, 0);

        if (got < 0 && errno == EINTR)
            continue;
        ASSERT(got > 0); /* ENOSYS and EFAULT only: neither can happen to us */
        at += got;
        bytes -= (size_t)got;
    }
}

void rng_hex_id(char ret_text[33])
{
    uint64_t words[2];

    rng_system(words, sizeof(words));
    (void)snprintf(ret_text, 33, "%016llx%016llx", (unsigned long long)words[0],
                   (unsigned long long)words[1]);
}
