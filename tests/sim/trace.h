/* trace.h - workloads for the simulator: requests in the order in which they arrive.
 *
 * Each has its prompt's ids and the ids that the model will answer; the next turn's prompt holds
 * both. Traces that come as text have a token per four bytes of a message, which is what prefixes
 * need: equal text, equal ids. Everything random is drawn from a fixed seed. */
#ifndef REFRAIN_TESTS_SIM_TRACE_H
#define REFRAIN_TESTS_SIM_TRACE_H

#include <stdbool.h>
#include <stdint.h>

struct sim_request {
    uint32_t *ids; /* prompt, then answer */
    uint32_t prompt_tokens, answer_tokens;
    uint32_t trace_tokens; /* of a block trace: tokens that the prompt stands for */
};

struct sim_trace {
    const char *name;
    struct sim_request *requests;
    uint32_t count, capacity;
    bool
        blocks_only; /* each 16 ids stand for one block of the trace; no answers, no heads copied */
};

/* Mooncake's conversation trace: a block of 512 tokens is one pool block here. false: no file. */
bool sim_trace_mooncake(struct sim_trace *ret_trace);
/* MT-Bench-101 dialogues, `users` at a time, the next turn by any of them. thinking: so many times
 * the answer's length is generated before it and not sent back. false: no file. */
bool sim_trace_mtbench(struct sim_trace *ret_trace, const char *name, uint32_t users,
                       uint32_t thinking);
/* chats x turns, one after the other: 200 shared + 100 user + 32 generated tokens per turn. */
void sim_trace_round_robin(struct sim_trace *ret_trace, uint32_t chats, uint32_t turns);
/* Chats as above, any of them next, each `turns` long and then another one; of ten requests
 * `one_shots` are by somebody who never comes back. */
void sim_trace_mixed(struct sim_trace *ret_trace, uint32_t chats, uint32_t turns,
                     uint32_t one_shots);
void sim_trace_done(struct sim_trace *trace);

#endif
