/* rng.h - random numbers that depend on (seed, position) only.
 *
 * Philox4x32-10 (Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3"):
 * stateless, so a preempted sequence draws the same numbers again. Thread: any. */
#ifndef REFRAIN_PROTO_BASE_RNG_H
#define REFRAIN_PROTO_BASE_RNG_H

#include <stddef.h>
#include <stdint.h>

void rng_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t ret_words[4]);
/* Uniform in [0, 1) with 32 bits, for draw `position` of stream `seed`. */
double rng_uniform(uint64_t seed, uint64_t position);
/* From the kernel (getrandom): uuids, epochs, seeds of requests that gave none. */
void rng_system(void *data, size_t bytes);
/* 128 random bits as 32 hex digits and a NUL. */
void rng_hex_id(char ret_text[33]);

#endif
