/* exact.h - reuse never changes an answer: random schedules over a real model, in process.
 *
 *   world     requests that share prefixes; each is computed alone, cache off, and the bits of its
 *             logits are kept as hashes
 *   schedule  some of them arrive at one engine: small pool, small steps, cache, evictions,
 *             preemptions, cancels, host and disk tiers. Each row of logits must have the
 *             bits of the run alone
 *
 * The engine is the worker's own (commands, turns, outputs), driven by the caller's thread; the
 * other ranks are threads. A row is looked at between the forward pass and the sampler: programs
 * are linked with --wrap for that (tests/CMakeLists.txt). A schedule depends on seed and number
 * alone: not on those before it, since all KV memory is overwritten with rubbish first.
 * Thread: one; one struct exact at a time. */
#ifndef REFRAIN_TESTS_EXACT_H
#define REFRAIN_TESTS_EXACT_H

#include <stdint.h>
#include <stdio.h>

#include "kernels/ops.h"
#include "proto/base/errmsg.h"

struct exact;

struct exact_settings {
    const char *model; /* a GGUF file or a folder; outlives the struct exact */
    uint32_t ranks;    /* 1..TP_RANKS_MAX */
    uint32_t threads;  /* of each rank */
    uint64_t seed;
    enum kv_dtype kv_dtype;
    const char *isa; /* family of the cpu backend; NULL: the best */
};

/* What happened in the schedules; the runs alone count in `alone` only. */
struct exact_counts {
    uint64_t schedules, sequences, alone;
    uint64_t positions; /* whose logits were compared */
    uint64_t scored;    /* of these: of prompt tokens */
    uint64_t steps, rows;
    uint64_t preemptions, evictions;
    uint64_t hits;   /* blocks */
    uint64_t copies; /* of heads of blocks */
    uint64_t forks;  /* of these: from a block that another sequence holds */
    uint64_t holds;  /* sequences that waited for a prefix that another one computed */
    uint64_t chunks; /* parts of prompts that were not the last */
    uint64_t cancels;
    uint64_t window_evictions;        /* blocks */
    uint64_t tier_stores, tier_loads; /* blocks, to and from the host tier */
    uint64_t disk_stores, disk_loads; /* files written, blocks that came from files */
};

/* 0; the loader's, the backend's or the group's error. */
int exact_open(const struct exact_settings *settings, struct exact **ret_exact, struct errmsg *err);
void exact_close(struct exact *exact); /* NULL is fine */
/* Play one schedule. 0: all equal. 1: a difference, *err says seed, schedule, sequence, position
 * and the first logit; exact_soak --seed N --schedule K plays it again. Negative: the engine
 * failed. */
int exact_run(struct exact *exact, uint32_t schedule, struct errmsg *err);
const struct exact_counts *exact_counts(const struct exact *exact);
void exact_counts_add(struct exact_counts *to, const struct exact_counts *from);
/* A few lines; the last one is "N schedules, M sequences, P positions compared, D differ". */
void exact_counts_print(const struct exact_counts *counts, uint32_t differ, FILE *out);

#endif
