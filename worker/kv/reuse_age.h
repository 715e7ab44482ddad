/* reuse_age.h - how likely a block of some kind is wanted again, by how long nobody wanted it.
 *
 * Learnt while running. Per kind and age: how many blocks were that old (exposure, in blocks times
 * admissions), how many of them were asked for at that age. Their quotient is the chance to be
 * asked for next (an occurrence/exposure rate; blocks that are still waiting count, so nothing is
 * biased by what has not happened yet). From it the worth of a block:
 *
 *   worth(age) = max over a horizon h of  P(asked for within h) / E(time kept within h)
 *
 * hits per block and admission if it is kept for the best h: the Gittins index of a job of unknown
 * length (Gittins 1979; for caches LHD, Beckmann, Chen, Cidon 2018). Chats that come back at
 * random: worth falls with age, as in LRU. Chats that take turns: it rises until their turn comes,
 * as in Belady's optimum. Few counts are mixed with those of all kinds, and those with a falling
 * curve.
 *
 * Ages are in admissions; beyond 16 in eight bins per octave. Thread: one. Floating point, in a
 * fixed order: the same calls give the same numbers. */
#ifndef REFRAIN_WORKER_KV_REUSE_AGE_H
#define REFRAIN_WORKER_KV_REUSE_AGE_H

#include <stdbool.h>
#include <stdint.h>

enum reuse_kind {
    REUSE_ABANDONED = 0, /* its chat went on without it */
    REUSE_FRESH,         /* never asked for: one request so far */
    REUSE_OFTEN,         /* chats, by the time between their last two turns: up to 8 admissions, */
    REUSE_SOMETIMES,     /* 64, */
    REUSE_SELDOM,        /* 512, */
    REUSE_RARE,          /* more */
    REUSE_FRESH_ANSWER,  /* generated, nobody came back for it yet: of a fresh request, */
    REUSE_CHAT_ANSWER,   /* of a chat; where templates drop what was thought, nobody will */
    REUSE_SHARED,        /* several continuations: a system prompt */
    REUSE_KINDS
};

#define REUSE_LEVELS 12u /* octaves with bins of 1, 2, 4 ... 2048 admissions */
#define REUSE_BINS (16u + 8u * (REUSE_LEVELS - 1))

struct reuse_ages {
    float asked[REUSE_KINDS][REUSE_BINS];
    float exposed[REUSE_KINDS][REUSE_BINS];
    float worth[REUSE_KINDS][REUSE_BINS];
    uint32_t next_kind;
};

void reuse_ages_init(struct reuse_ages *ages);
uint32_t reuse_bin(uint32_t age);
/* `blocks` were this old for one more admission. */
static inline void reuse_expose(struct reuse_ages *ages, uint32_t kind, uint32_t bin,
                                uint32_t blocks)
{
    ages->exposed[kind][bin] += (float)blocks;
}
/* A block was asked for, whether or not it was still there. */
void reuse_ask(struct reuse_ages *ages, uint32_t kind, uint32_t age);
/* Work out the worth of one kind, in turn, and let its old counts fade. */
void reuse_learn(struct reuse_ages *ages);
static inline float reuse_worth(const struct reuse_ages *ages, uint32_t kind, uint32_t bin)
{
    return ages->worth[kind][bin];
}

#endif
